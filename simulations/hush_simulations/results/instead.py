"""The mechanism that `auto` takes, next to the one that was used: by a look-up, and for documents by the planner."""

from fractions import Fraction
from functools import lru_cache

from hush_aggregator.estimate import REPORTERS
from hush_common.domain import Domain
from hush_common.mechanisms import Offers
from hush_common.mechanisms.registry import best, choose, named
from hush_common.task import Task


def auto_mechanism(task: Task) -> tuple[str, float] | None:
    """The mechanism that `auto` takes, and how many times its devices the task's own needs for the same standard error.

    That is the ratio of the largest variances of one report. It is the ratio that `hush plan --rms` gives; those of
    intervals come near it as the devices become many.

    Returns:
        None where there is nothing to compare: several epsilons, or answers that repeat.
    """
    if isinstance(task.randomizer, Offers) or task.repeat == "sticky":
        return None
    epsilon = task.epsilon_per_round
    name, _ = choose(task.domain, [epsilon])
    kind = named(name)
    if kind is None or name == task.mechanism:
        return name, 1.0
    return name, task.randomizer.worst_variance / best(kind, task.domain, epsilon).worst_variance


def planned_document(task: Task, people: int, confidence: float) -> dict[str, object] | None:
    """The same with half-widths of the reporters' interval in the worst case, as `hush plan` computes them.

    Args:
        task: that was asked.
        people: how many reported in a round.
        confidence: of the interval.
    """
    if not people or isinstance(task.randomizer, Offers) or task.repeat == "sticky":
        return None
    return _planned(task.domain, task.mechanism, people, task.epsilon_per_round, confidence)


@lru_cache(maxsize=8)
def _planned(domain: Domain, own: str, people: int, epsilon: Fraction, confidence: float) -> dict[str, object] | None:
    from hush_simulations.planning.plan import PlanQuestion, solve  # noqa: PLC0415 - only documents need the planner

    plan = solve(PlanQuestion(domain=domain, people=people, epsilon=epsilon, error=None, confidence=confidence))
    by_name = {line.mechanism: line for line in plan.mechanisms if REPORTERS in line.amounts}
    auto = plan.auto.get(REPORTERS)
    if auto is None or own not in by_name:
        return None
    return {
        "mechanism": auto,
        "half_width": {name: float(by_name[name].amounts[REPORTERS]) for name in (own, auto)},
        "people_ratio": by_name[own].relative.get(REPORTERS, 1.0),
    }
