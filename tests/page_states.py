"""Tasks of each kind in each state that the page can show."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from page_tasks import count

from hush import Task
from hush_aggregator import Estimate, SqliteStore
from hush_aggregator.estimate.process import Failure, ThreadEstimator
from hush_aggregator.estimate.tally import Tally
from hush_common.task import make_task
from hush_common.wire import Refusal

__all__ = ["ALL", "SHARES", "FailingEstimator", "fill"]

_NUMBER = {"kind": "number", "lower": -10.0, "upper": 30.0, "unit": "°C"}
_ROUNDS = {"rounds": 4, "round_every": "1d", "opens": "2026-01-01T00:00:00Z"}
_VECTOR = [{"name": "x", "lower": 0.0, "upper": 1.0}, {"name": "y", "lower": -5.0, "upper": 5.0, "unit": "m"}]
_KINDS: Mapping[str, tuple[Mapping[str, object], Mapping[str, object], object]] = {
    "number": (_NUMBER, {"enrolled": 500}, 17.0),
    "bit": ({"kind": "bit"}, {}, True),
    "category": ({"kind": "category", "labels": ["red", "green", "blue"]}, {}, "green"),
    "vector": ({"kind": "vector", "coordinates": _VECTOR}, {}, [0.25, 2.0]),
    "rounds": (_NUMBER, _ROUNDS, 12.0),
}
SHARES = ("bit", "category")
"""Kinds whose figures are shown in per cent."""


def _tasks() -> Iterator[Task]:
    for kind, (domain, more, _) in _KINDS.items():
        for state in ("none", "failed", "live", "final"):
            yield make_task({"id": f"{kind}-{state}", "epsilon": "2", "domain": dict(domain), **more})


ALL: Mapping[str, Task] = {task.id: task for task in _tasks()}
"""By id, `kind-state`."""


def fill(path: Path) -> Path:
    """Write a store with all of them."""
    with SqliteStore(path) as store:
        for task_id, task in ALL.items():
            kind, _, state = task_id.partition("-")
            store.add_task(task)
            if state == "none":
                continue
            for round_ in range(min(task.rounds, 3)):
                count(store, task, [_KINDS[kind][2]] * 130, round_)
            store.commit([], {(task_id, Refusal.DUPLICATE): 7, (task_id, Refusal.OUT_OF_RANGE): 1})
            if state == "final":
                store.close_task(task_id)
    return path


class FailingEstimator(ThreadEstimator):
    """Makes no estimate of a task in the state `failed`."""

    async def __call__(self, task: Task, tally: Tally, confidence: float) -> Estimate | Failure:
        if task.id.endswith("-failed"):
            return Failure("failed", "a test")
        return await super().__call__(task, tally, confidence)
