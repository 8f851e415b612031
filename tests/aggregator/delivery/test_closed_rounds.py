"""What is closed stays closed, whatever the clock says later; and what was counted in time is never told as late."""

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from stores import StorePlace

from hush import Task
from hush_aggregator import SqliteStore
from hush_aggregator.store import Accepted, BrokerMemory, StoredRecall, TaskState
from hush_aggregator.store.base import ServedStore
from hush_common.errors import StoreError, TaskError
from hush_common.recall import Recall
from hush_common.task import make_task
from hush_common.wire import Refusal

NUMBER = {"kind": "number", "lower": 0.0, "upper": 1.0}
DAILY = make_task(
    {
        "id": "daily",
        "epsilon": "3",
        "domain": NUMBER,
        "rounds": 3,
        "round_every": "1d",
        "opens": "2026-01-01T00:00:00Z",
    }
)
OTHER = make_task({"id": "other", "epsilon": "1", "domain": NUMBER})


@pytest.fixture
def store(place: StorePlace) -> Iterator[ServedStore]:
    with place.open() as store:
        for task in (DAILY, OTHER):
            store.add_task(task)
        yield store


def reports(*numbers: int, task: Task = DAILY, round_: int = 0, late: bool = False) -> Accepted:
    ids = np.frombuffer(b"".join(number.to_bytes(16, "big") for number in numbers), dtype="V16")
    return Accepted(task, round_, ids, np.ones((len(numbers), 1), dtype=np.int64), late=late)


def commit(store: ServedStore, *accepted: Accepted) -> tuple[int, dict[Refusal, int]]:
    outcome = store.commit(accepted, {})
    return outcome.accepted, dict(outcome.refused)


def test_late_reports_are_closed_and_those_counted_in_time_are_duplicates(store: ServedStore) -> None:
    commit(store, reports(1, 2))
    assert commit(store, reports(1, 3, 4, late=True)) == (0, {Refusal.CLOSED: 2, Refusal.DUPLICATE: 1})
    assert commit(store, reports(1, 3)) == (1, {Refusal.DUPLICATE: 1})  # lateness alone leaves no mark
    assert store.tally(DAILY.digest, 0).n == 3


def test_a_closed_round_counts_nothing_more_and_the_other_rounds_go_on(store: ServedStore) -> None:
    commit(store, reports(1, round_=1))
    for _ in range(2):  # twice is as good as once
        store.close_task("daily", 1)
    assert commit(store, reports(1, 2, round_=1)) == (0, {Refusal.CLOSED: 1, Refusal.DUPLICATE: 1})
    assert commit(store, reports(3, round_=0), reports(4, round_=2), reports(5, task=OTHER))[0] == 3
    closed = [store.is_closed(DAILY.digest, round_) for round_ in range(3)]
    assert (closed, store.is_closed(DAILY.digest)) == ([False, True, False], False)
    assert {row.id: row.state for row in store.task_rows()} == {"daily": TaskState.OPEN, "other": TaskState.OPEN}


def test_a_closed_task_counts_nothing_more_in_any_round(store: ServedStore, place: StorePlace) -> None:
    commit(store, reports(1))
    with place.edit() as command:
        command.close_task("daily")
    assert commit(store, reports(1), reports(2, round_=2)) == (0, {Refusal.CLOSED: 1, Refusal.DUPLICATE: 1})
    place.drop_reports()
    assert commit(store, reports(1), reports(1, late=True)) == (0, {Refusal.CLOSED: 2})
    assert {row.id: row.state for row in store.task_rows()} == {"daily": TaskState.CLOSED, "other": TaskState.OPEN}
    store.close()
    with place.open() as again:
        assert commit(again, reports(1)) == (0, {Refusal.CLOSED: 1})


def recall(task: Task, number: int = 0, made: int = 5) -> StoredRecall:
    return StoredRecall(Recall(task.id, task.digest, bytes([number]) * 16, 60), made)


def test_a_recall_and_what_is_known_of_the_broker_are_kept_together(store: ServedStore, place: StorePlace) -> None:
    assert (store.recalls(), store.broker()) == ([], BrokerMemory())
    memory = BrokerMemory(session=True, started=17, alive=18, dropped=0)
    store.recall([recall(DAILY), recall(OTHER)], memory)
    store.recall([recall(DAILY, 1, made=6)])
    store.close()
    with place.open() as again:
        assert again.recalls() == [recall(DAILY, 1, made=6), recall(OTHER)]
        assert again.broker() == memory


def test_a_recall_ends_with_its_task_and_no_later_one_with_it(store: ServedStore) -> None:
    store.recall([recall(DAILY), recall(OTHER)])
    store.close_task("daily", 1)
    assert not any(row.ended for row in store.recalls())
    store.close_task("daily")
    assert store.recalls() == [replace(recall(DAILY), ended=True), recall(OTHER)]
    store.end_recall(recall(OTHER, 9).recall)
    store.end_recall(recall(DAILY).recall)
    assert store.recalls() == [recall(OTHER)]


def test_a_recall_that_was_drawn_up_before_its_task_was_closed_is_not_kept(store: ServedStore) -> None:
    store.close_task("daily")
    assert store.recall([recall(DAILY), recall(OTHER)]) == [recall(OTHER)]
    assert store.recalls() == [recall(OTHER)]


def test_the_end_of_a_recall_ends_no_later_one(store: ServedStore) -> None:
    store.recall([recall(OTHER, 1), recall(DAILY, 1)])
    store.recall([recall(OTHER, 2)])
    ended = [replace(recall(task, 1), ended=True) for task in (OTHER, DAILY)]
    assert store.recall(ended) == [ended[1]]
    assert store.recalls() == [ended[1], recall(OTHER, 2)]


def test_a_closed_task_is_not_opened_again(store: ServedStore, place: StorePlace) -> None:
    store.close_task("daily")
    for state in (TaskState.OPEN, TaskState.WITHDRAWN):
        with place.edit() as command, pytest.raises(TaskError, match="'daily'"):
            command.set_state("daily", state)
    assert {row.id: row.state for row in store.task_rows()} == {"daily": TaskState.CLOSED, "other": TaskState.OPEN}


def test_a_recall_goes_with_the_task_that_is_forgotten(store: ServedStore, place: StorePlace) -> None:
    store.recall([recall(DAILY), recall(OTHER)])
    with place.edit() as command:
        command.forget("daily")
    assert store.recalls() == [recall(OTHER)]


@pytest.mark.parametrize("damage", ["over = -1", "id = x'00'", "task = 'A'", "digest = x''"])
def test_a_damaged_recall_is_told(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "hush.sqlite"
    with SqliteStore(path) as store:
        store.recall([recall(DAILY)])
    with sqlite3.connect(path) as writer:
        writer.execute(f"UPDATE recall SET {damage}")  # noqa: S608 - our own text
    writer.close()
    with SqliteStore(path) as again, pytest.raises(StoreError, match="recall"):
        again.recalls()
