"""Figures: what the metrics are made of, counted once a batch. Nothing here knows how they are written.

They start from what is in the store, so that `hush serve` and `hush http` say the same, and none of them falls while
the process runs: a counter that falls is taken for one that began anew. There is no time in them: not of a report, of
a batch, or of the first of a kind.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hush_aggregator.intake import Intake
from hush_aggregator.store.base import CommitOutcome, TaskCount
from hush_common.wire import Refusal

__all__ = ["BatchFigures", "Figures", "Histogram", "IntakeFigures", "StoreFigures"]

REPORTS = (1.0, 10.0, 100.0, 1000.0, 10_000.0, 100_000.0)
SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Histogram:
    """How many values were at most each bound.

    Args:
        bounds: ascending; what is beyond the last is counted too.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self.sum: float = 0.0

    def add(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    def cumulative(self) -> list[tuple[float, int]]:
        """Each bound with the number of values up to it; the last bound is infinity."""
        total, found = 0, []
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            total += count
            found.append((bound, total))
        return found


@dataclass(frozen=True, slots=True)
class BatchFigures:
    """What is known of the batches of an intake.

    Args:
        reports: in each, refused ones included.
        commit_s: seconds of each transaction.
        acknowledged_s: seconds from when each was taken from the connection to its last acknowledgement.
    """

    reports: Histogram = field(default_factory=lambda: Histogram(REPORTS))
    commit_s: Histogram = field(default_factory=lambda: Histogram(SECONDS))
    acknowledged_s: Histogram = field(default_factory=lambda: Histogram(SECONDS))


@dataclass(frozen=True, slots=True)
class Figures:
    """All that is told at one moment.

    Args:
        accepted: reports counted, by the id of their task: of tasks that the store knows, and of no other.
        refused: reports refused, by reason.
        batches: of the intake in this process; None where there is none.
        intake: how it stands; None likewise.
        foreign: reports of tasks that are published on the broker, and are not for this store.
    """

    accepted: Mapping[str, int]
    refused: Mapping[Refusal, int]
    batches: BatchFigures | None = None
    intake: Intake | None = None
    foreign: int = 0


class IntakeFigures:
    """Counts what an aggregator commits, in its event loop.

    Args:
        accepted: reports counted before it began, by task.
        refused: reports refused before it began, by reason.
    """

    def __init__(self, accepted: Mapping[str, int], refused: Mapping[Refusal, int]) -> None:
        self._accepted = Counter(accepted)
        self._refused = Counter(refused)
        self._foreign = 0
        self._batches = BatchFigures()

    def add(self, outcome: CommitOutcome) -> None:
        """A batch was committed and acknowledged."""
        self._accepted.update(outcome.counted)
        self._refused.update(outcome.refused)
        self._foreign += outcome.foreign
        self._batches.reports.add(outcome.accepted + sum(outcome.refused.values()))
        self._batches.commit_s.add(outcome.commit_s)
        self._batches.acknowledged_s.add(outcome.acknowledged_s)

    def figures(self, intake: Intake) -> Figures:
        """What is told now; of a task that is forgotten nothing more."""
        for task_id in self._accepted.keys() - intake.tasks:
            del self._accepted[task_id]
        return Figures(
            {task_id: self._accepted[task_id] for task_id in sorted(intake.tasks)},
            dict(self._refused),
            self._batches,
            intake,
            self._foreign,
        )


class StoreFigures:
    """What a store says that another process counts into."""

    def __init__(self) -> None:
        self._accepted: dict[str, int] = {}
        self._refused: Counter[Refusal] = Counter()
        self._before: Mapping[Refusal, int] = {}

    def look_at(self, counts: Iterable[TaskCount], refused: Mapping[Refusal, int]) -> None:
        """What it says now. What was refused under the name of a task stays counted when the task is forgotten."""
        self._accepted = {count.id: count.counted for count in counts}
        for reason, count in refused.items():
            self._refused[reason] += max(0, count - self._before.get(reason, 0))
        self._before = dict(refused)

    def figures(self) -> Figures:
        """What is told now."""
        return Figures(self._accepted, dict(self._refused))
