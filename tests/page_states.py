"""Tasks of each kind in each state that the page can show: five kinds of answer, and what became of the question."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from page_tasks import count

from hush import Task
from hush_aggregator import Estimate, SqliteStore, estimation
from hush_aggregator.estimate import estimate as real_estimate
from hush_aggregator.tally import Tally
from hush_common.task import make_task
from hush_common.wire import Refusal

__all__ = ["ALL", "fail_the_failed", "fill"]

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
_STATES = ("none", "failed", "live", "final")
_REPORTS = 130


def _drafts() -> Iterator[tuple[str, Mapping[str, object]]]:
    for kind, (domain, more, _) in _KINDS.items():
        for state in _STATES:
            name = {"id": f"{kind}-{state}", "title": f"{kind}, {state}"}
            yield state, {**name, "epsilon": "2", "domain": {**domain}, **more}


ALL: Mapping[str, Task] = {str(draft["id"]): make_task(dict(draft)) for _, draft in _drafts()}
"""By id, `kind-state`."""


def fill(path: Path) -> None:
    """Write a store with all of them."""
    with SqliteStore(path) as store:
        for task_id, task in ALL.items():
            kind, _, state = task_id.partition("-")
            store.add_task(task)
            if state == "none":
                continue
            for round_ in range(min(task.rounds, 3)):
                count(store, task, [_KINDS[kind][2]] * _REPORTS, round_)
            store.commit([], {(task_id, Refusal.DUPLICATE): 7, (task_id, Refusal.OUT_OF_RANGE): 1})
            if state == "final":
                store.close_task(task_id)


def fail_the_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on no estimate of a task in the state `failed` can be made, in this process."""

    def estimate(task: Task, tally: Tally, confidence: float) -> Estimate:
        if task.id.endswith("-failed"):
            raise FloatingPointError
        return real_estimate(task, tally, confidence)

    monkeypatch.setattr(estimation, "estimate", estimate)
