"""Instead: what the best mechanism would have given, with the same devices at the same epsilon."""

from dataclasses import dataclass
from functools import lru_cache

from hush_aggregator.estimate import REPORTERS
from hush_common.domain import Domain
from hush_common.mechanisms import Offers
from hush_common.task import Task
from hush_simulations.planning.plan import PlanQuestion, solve


@dataclass(frozen=True, slots=True, kw_only=True)
class Instead:
    """A mechanism beside the best one. Half-widths are those for the reporters, at the values that make them largest.

    Args:
        domain: what is asked for.
        own: the mechanism that was used.
        best: the one that `auto` takes.
        own_error: half-width of its interval, in the unit of the domain.
        best_error: the same of the best one.
        times: how many times the devices of the best one it takes for the same error.
    """

    domain: Domain
    own: str
    best: str
    own_error: float
    best_error: float
    times: float

    def to_document(self) -> dict[str, object]:
        """The JSON object."""
        return {
            "mechanism": self.best,
            "half_width": {self.own: self.own_error, self.best: self.best_error},
            "people_ratio": self.times,
        }


def instead(task: Task, people: int, confidence: float) -> Instead | None:
    """What to use instead, computed as `hush plan` does.

    Args:
        task: that was asked.
        people: how many reported in a round.
        confidence: of the interval.

    Returns:
        None where there is nothing to compare: no report, several epsilons, or answers that repeat.
    """
    if not people or isinstance(task.randomizer, Offers) or task.repeat == "sticky":
        return None
    return _compared(task.domain, task.mechanism, people, task, confidence)


@lru_cache(maxsize=8)
def _compared(domain: Domain, own: str, people: int, task: Task, confidence: float) -> Instead | None:
    question = PlanQuestion(
        domain=domain, people=people, epsilon=task.epsilon_per_round, error=None, confidence=confidence
    )
    plan = solve(question)
    by_name = {line.mechanism: line for line in plan.mechanisms if REPORTERS in line.amounts}
    auto = plan.auto.get(REPORTERS)
    if auto is None or own not in by_name:
        return None
    mine, best = by_name[own], by_name[auto]
    return Instead(
        domain=domain,
        own=own,
        best=best.mechanism,
        own_error=float(mine.amounts[REPORTERS]),
        best_error=float(best.amounts[REPORTERS]),
        times=mine.relative.get(REPORTERS, 1.0),
    )
