"""The JSON object of a simulation: what `--json` prints and `result.json` holds."""

from collections import Counter
from fractions import Fraction
from typing import Any

from hush_common.broker_url import BrokerUrl
from hush_common.epsilon import decimal_text
from hush_simulations.brokers.choice import is_external
from hush_simulations.engines.experiment import Experiment, Outcome, Round, judged
from hush_simulations.engines.seeded_rng import NOT_PRIVATE, SYSTEM
from hush_simulations.results.score import score

__all__ = ["document", "lost"]


def document(experiment: Experiment, outcome: Outcome, seed: int | None) -> dict[str, Any]:
    """Everything about a finished simulation but the values and the reports.

    With several rounds, `result`, `truth` and `covered` are those of the last one and `rounds` lists all of them;
    counts and times are totals.

    Args:
        experiment: what was run.
        outcome: what came of it.
        seed: the seed of the population, or None if there is none.
    """
    rounds = [_scored(experiment, done) for done in outcome.rounds]
    last = rounds[-1]
    declined = sum((Counter(done.declined) for done in outcome.rounds), Counter())
    found: dict[str, Any] = {
        "result": last["result"],
        "truth": last["truth"],
        "covered": last["covered"],
        "error": last["error"],
        "clients": len(experiment.values),
        "published": sum(len(done.reporters) for done in outcome.rounds),
        "lost": lost(outcome),
        "declined": dict(declined),
        "clamped": sum(done.clamped for done in outcome.rounds),
        "epsilon_spent": _spent(experiment, outcome),
        **_chosen(experiment, outcome),
        **_speed(outcome.rounds),
        "engine": experiment.engine,
        "broker": _broker(experiment),
        "connections": experiment.gateways,
        "noise": SYSTEM if experiment.noise_seed is None else NOT_PRIVATE,
    }
    if seed is not None:
        found["seed"] = seed
    if len(rounds) > 1:
        found["rounds"] = rounds
    return found


def lost(outcome: Outcome) -> int:
    """How many reports the broker acknowledged to a device and never delivered to the aggregator."""
    published = sum(len(done.reporters) for done in outcome.rounds)
    accepted = sum(int(done.result["n"]) for done in outcome.rounds)
    refused = outcome.rounds[-1].result["refused"]  # counted per task, all rounds together
    return max(0, published - judged(accepted, refused))


def _scored(experiment: Experiment, done: Round) -> dict[str, Any]:
    values = [experiment.values[device] for device in done.reporters]
    found = score(experiment.task.domain, done.result, values, experiment.scenario.population.mean)
    return {
        "result": dict(done.result),
        "truth": found.truth,
        "covered": found.covered,
        "error": found.error,
        "published": len(done.reporters),
        "clamped": done.clamped,
        **_speed((done,)),
    }


def _speed(rounds: tuple[Round, ...]) -> dict[str, float]:
    elapsed = sum(done.elapsed for done in rounds)
    accepted = sum(done.result["n"] for done in rounds)
    return {"elapsed_s": round(elapsed, 3), "reports_per_s": round(accepted / elapsed, 1) if elapsed > 0 else 0.0}


def _spent(experiment: Experiment, outcome: Outcome) -> str:
    """The most that one device has spent: what a round costs it, as often as it answered, or all of it at first."""
    task = outcome.task
    answered = Counter(device for done in outcome.rounds for device in done.reporters)
    totals = [task.offers[choice] for choice in experiment.choices] or [task.epsilon] * len(experiment.values)
    if task.repeat == "sticky":
        return decimal_text(max((totals[device] for device in answered), default=Fraction(0)))
    spent = (times * totals[device] / task.rounds for device, times in answered.items())
    return decimal_text(max(spent, default=Fraction(0)))


def _chosen(experiment: Experiment, outcome: Outcome) -> dict[str, dict[str, int]]:
    """How many devices took each of the epsilons offered, in the last round."""
    if not experiment.choices:
        return {}
    taken = Counter(experiment.choices[device] for device in outcome.rounds[-1].reporters)
    return {"chosen": {decimal_text(epsilon): taken[place] for place, epsilon in enumerate(outcome.task.offers)}}


def _broker(experiment: Experiment) -> str:
    if experiment.engine == "memory":
        return "memory"
    return str(BrokerUrl.parse(experiment.broker)) if is_external(experiment.broker) else experiment.broker
