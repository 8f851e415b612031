"""The rounds of a run, each judged against the truth; and all of them together."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hush_aggregator.result import Result
from hush_aggregator.tally import Tally
from hush_common.domain import CategoryDomain, VectorDomain
from hush_common.task import Task
from hush_simulations.engines.experiment import Experiment, RoundOutcome
from hush_simulations.engines.reports import Received
from hush_simulations.results.score import Score, score, score_of_truth

__all__ = ["Round", "Together", "found_document", "judge", "rate", "round_document", "together_document"]


@dataclass(frozen=True, slots=True)
class Round:
    """One round of a run, judged.

    Args:
        result: of the aggregator.
        score: the same beside the truth.
        reporters: positions, in `Experiment.values`, of the devices that sent a report.
        clamped: how many of them had to move their value into the domain.
        declined: devices that sent nothing, by their reason.
        elapsed: seconds from the first answer to the last commit.
        received: what the aggregator counted; empty in bulk, where no report is kept.
        chosen: in bulk, how many devices took each epsilon offered; empty where there is one.
        tally: in bulk, that of the round.
        truth: in bulk, as in `RoundOutcome`.
    """

    result: Result
    score: Score
    reporters: Sequence[int] = field(repr=False)
    clamped: int
    declined: Mapping[str, int]
    elapsed: float
    received: Received = field(repr=False)
    chosen: tuple[int, ...] = ()
    tally: Tally | None = None
    truth: tuple[float | None, ...] | None = None


@dataclass(frozen=True, slots=True)
class Together:
    """All rounds of a run as one estimate, judged: the truth is the mean over all reports.

    Args:
        result: with the intervals of `hush_simulations.results.combined`.
        score: the same beside the truth.
        rounds: how many there are.
    """

    result: Result
    score: Score
    rounds: int


def judge(experiment: Experiment, task: Task, done: RoundOutcome) -> Round:
    population, estimate = experiment.scenario.population.mean, done.result.estimate
    if done.truth is None:
        found = score(task.domain, estimate, [experiment.values[device] for device in done.reporters], population)
    else:
        found = score_of_truth(task.domain, estimate, done.truth, population)
    judged = (done.result, found, done.reporters, done.clamped, done.declined, done.elapsed, done.received)
    return Round(*judged, done.chosen, done.tally, done.truth)


def rate(rounds: Iterable[Round]) -> float:
    elapsed = sum(done.elapsed for done in rounds)
    accepted = sum(done.result.n for done in rounds)
    return round(accepted / elapsed, 1) if elapsed > 0 else 0.0


def round_document(done: Round) -> dict[str, Any]:
    return {
        **found_document(done),
        "published": len(done.reporters),
        "clamped": done.clamped,
        "elapsed_s": round(done.elapsed, 3),
        "reports_per_s": rate((done,)),
    }


def together_document(done: Together) -> dict[str, Any]:
    found = found_document(done)
    kept = ("confidence", "n", "mean", "stderr", "intervals", "methods", "categories", "coordinates")
    found["result"] = {name: found["result"][name] for name in kept if name in found["result"]}
    return {"rounds": done.rounds, **found}


def found_document(done: Round | Together) -> dict[str, Any]:
    """What was estimated, and what is true; of categories and vectors a list, each part by its name."""
    found, result = done.score, done.result.to_document()
    match done.result.task.domain:
        case CategoryDomain():
            many, one, estimated = "categories", "label", [True for _ in done.result.categories]
        case VectorDomain():
            many, one, estimated = "coordinates", "name", [part.n > 0 for part in done.result.coordinates]
        case _:
            views = {"truth": dict(found.truth), "covered": dict(found.covered), "error": dict(found.error)}
            return {"result": result, **views}
    parts = list(zip(found.parts.items(), estimated or [False] * len(found.parts), strict=True))
    covered: dict[str, Any] = {
        many: [
            {one: name} | ({"intervals": dict(part.covered), "joint_intervals": dict(part.joint)} if known else {})
            for (name, part), known in parts
        ]
    }
    return {
        "result": result,
        "truth": {many: [{one: name, **part.truth} for (name, part), _ in parts]},
        "covered": covered | ({"joint": dict(found.joint)} if found.joint else {}),
        "error": {many: [{one: name, **part.error} for (name, part), _ in parts]},
    }
