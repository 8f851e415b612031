"""Ids and bodies of a round that is over are dropped by policy; its sums stay, and nothing counts there again."""

import os
import secrets
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from broker_world import DRAFT, HOUR, World, frame, living
from stored import read_ids

from hush import Task
from hush_aggregator import SqliteReader, SqliteStore
from hush_aggregator.closing import LASTING_S
from hush_aggregator.exporting import export_reports
from hush_aggregator.store import Accepted, SqliteEditor
from hush_aggregator.store import sqlite as module
from hush_common.task import make_task
from hush_common.wire import Refusal, Report, encode_frame

CLOSING = make_task(DRAFT | {"closes": "2027-03-01T13:00:00Z", "retention": "2h"})
HOURLY = DRAFT | {"rounds": 99, "round_every": "1h", "opens": "2027-03-01T12:00:00Z", "epsilon": "9"}
SOON = 2 * 60 + LASTING_S


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with living(tmp_path / "hush.sqlite") as world:
        yield world


def report(task: Task, round_: int) -> bytes:
    return encode_frame([Report(task.report_digest, round_, secrets.token_bytes(16), (1,))])


def stored(world: World) -> int:
    return len(read_ids(world.store._connection))


def dropped(world: World) -> list[int]:
    return [one.round for one in world.store.stored_rounds() if one.dropped]


def is_recalled(world: World) -> bool:
    return world.open is not None


def test_reports_are_dropped_once_their_task_was_closed_for_so_long(world: World) -> None:
    world.task = CLOSING
    world.serve()
    counted = frame(CLOSING)
    world.send(counted, frame(CLOSING))
    world.wait(HOUR + 2 * SOON)
    before = world.estimate
    world.wait(2 * HOUR - 2 * SOON)
    assert (stored(world), dropped(world)) == (2, [])
    world.wait(4 * SOON)
    assert (stored(world), dropped(world)) == (0, [0])
    after = world.estimate
    assert (world.n, after | {"updated_at": ""}) == (2, before | {"updated_at": ""})
    world.send(counted, frame(CLOSING))
    assert world.store.refusals("heights") == {Refusal.CLOSED: 2}
    assert world.n == 2


def test_a_round_is_closed_when_its_reports_are_dropped_and_others_stay_open(world: World) -> None:
    world.task = task = make_task(HOURLY | {"retention": "2h"})
    world.serve()
    first = report(task, 0)
    world.send(first)
    world.wait(HOUR)
    world.send(report(task, 1), report(task, 0))
    world.wait(2 * HOUR - SOON)
    assert (stored(world), dropped(world)) == (3, [])
    world.wait(3 * SOON)
    assert (stored(world), dropped(world)) == (1, [0])
    assert world.store.is_closed(task.digest, 0)
    world.send(first, report(task, 0), report(task, 1))
    assert world.store.refusals("heights") == {Refusal.CLOSED: 2}
    assert [world.store.tally(task.digest, round_).n for round_ in range(2)] == [2, 2]
    assert world.estimate["round"] == 1
    assert "final" not in world.estimate


@pytest.mark.large
@pytest.mark.parametrize(
    ("own", "limit", "hours"), [("1h", None, 1), (None, 1, 1), ("1h", 3, 1), ("3h", 1, 1), (None, None, None)]
)
def test_the_shorter_of_both_policies_holds(
    world: World, own: str | None, limit: int | None, hours: int | None
) -> None:
    world.task = make_task(DRAFT | ({} if own is None else {"retention": own}))
    world.serve()
    assert world.aggregator is not None
    world.aggregator._retention._limit = None if limit is None else timedelta(hours=limit)
    world.send(frame(world.task))
    world.wait(4 * HOUR)
    assert stored(world) == 1  # the task is open
    with SqliteEditor(world.path) as command:
        command.close_task("heights", at=world.now())
    world.wait((hours or 4) * HOUR - SOON)
    assert stored(world) == 1
    world.wait(3 * SOON)
    assert stored(world) == (0 if hours else 1)


def test_a_clock_that_is_ahead_for_a_while_drops_nothing(world: World) -> None:
    world.task = CLOSING
    world.serve()
    world.send(frame(CLOSING))
    world.wait(HOUR + 2 * SOON)
    world.offset += timedelta(days=3)
    world.wait(LASTING_S - 70)
    world.offset -= timedelta(days=3)
    world.wait(HOUR)
    assert stored(world) == 1


def test_a_recall_under_way_keeps_rounds_open(world: World) -> None:
    world.task = task = make_task(HOURLY | {"retention": "1h"})
    world.serve()
    world.send(report(task, 0))
    world.wait(HOUR / 2)
    world.broker.kill()  # and with it what it had taken
    world.wait(4 * HOUR)
    assert (is_recalled(world), dropped(world)) == (True, [])
    world.send(report(task, 0))
    assert world.n == 2
    with SqliteEditor(world.path) as command:
        command.recall([replace(row, ended=True) for row in command.recalls()])
    world.wait(SOON)
    assert (is_recalled(world), dropped(world)) == (False, [0])


TWO_ROUNDS = {"rounds": 2, "round_every": "1d", "opens": "2027-03-01T00:00:00Z"}
TASKS = [make_task({"id": name, "epsilon": "1", "domain": {"kind": "bit"}, **TWO_ROUNDS}) for name in "ab"]
A, B = sorted(TASKS, key=lambda task: task.digest)  # the store has them in this order


def accepted(task: Task, round_: int, ids: bytes) -> Accepted:
    count = len(ids) // 16
    return Accepted(task, round_, np.frombuffer(ids, dtype="V16"), np.zeros((count, 1), dtype=np.int64))


def fill(path: Path) -> dict[tuple[str, int], bytes]:
    """Make a store with reports of two tasks and rounds; return their ids."""
    ids = {(task.id, round_): secrets.token_bytes(16 * 1500) for task in (A, B) for round_ in range(2)}
    with SqliteStore(path) as store:
        store.add_tasks([A, B])
        for start in range(0, 16 * 1500, 16 * 300):
            batch = [
                accepted(task, round_, ids[task.id, round_][start : start + 16 * 300])
                for task in (A, B)
                for round_ in range(2)
            ]
            store.commit(batch, {})
    return ids


def killed(path: Path, statement: int) -> bool:
    """Drop the first round of A in a process that is killed before a statement; return whether it was."""
    child = os.fork()
    if not child:
        try:
            store, left = SqliteStore(path), [statement]

            def count(_: str) -> None:
                left[0] -= 1
                if not left[0]:
                    os._exit(9)

            store._connection.set_trace_callback(count)
            while store.drop_reports(A.digest, 0):
                pass
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


@pytest.mark.large
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")  # the child touches the store alone
def test_a_kill_at_every_step_loses_and_double_counts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PORTION", 500)
    source = tmp_path / "source"
    ids = fill(source)
    content, statement, states = source.read_bytes(), 0, set[tuple[bool, bool]]()
    while True:
        statement += 1
        path = tmp_path / "hush.sqlite"
        path.write_bytes(content)
        was_killed = killed(path, statement)
        with SqliteStore(path) as store:
            (first,) = [one for one in store.stored_rounds(A.digest) if one.round == 0]
            states.add((first.dropped, first.dropping))
            assert store.is_closed(A.digest, 0) == first.dropped  # the marks are set together
            again = [accepted(task, round_, ids[task.id, round_]) for task in (A, B) for round_ in range(2)]
            outcome = store.commit(again, {})
            assert outcome.accepted == 0
            assert outcome.refused[Refusal.DUPLICATE] == (4500 if first.dropped else 6000)
            assert [store.tally(task.digest, round_).n for task in (A, B) for round_ in range(2)] == [1500] * 4
            while store.drop_reports(A.digest, 0):
                pass
            assert not list(store.reports(A.digest, 0))
            left = {
                report.id for task in (A, B) for round_ in range(2) for report in store.reports(task.digest, round_)
            }
            assert len(left) == 4500
            assert len(read_ids(store._connection)) == 4500
        if not was_killed:
            break
    assert states == {(False, False), (True, True), (True, False)}
    assert statement > 12
    content = path.read_bytes()  # closed, so there is no other file
    assert not any(ids[A.id, 0][start : start + 16] in content for start in range(0, len(ids[A.id, 0]), 16))
    assert ids[A.id, 1][:16] in content


def test_a_round_that_is_dropped_halfway_is_finished_by_the_next_start(world: World) -> None:
    world.task = CLOSING
    world.serve()
    world.send(frame(CLOSING))
    world.stop()
    assert world.store.drop_reports(CLOSING.digest, 0)
    assert (dropped(world), stored(world)) == ([0], 1)
    world.serve(for_s=90)
    assert stored(world) == 0
    assert not any(one.dropping for one in world.store.stored_rounds())


def test_an_export_says_what_was_dropped(tmp_path: Path) -> None:
    fill(tmp_path / "s")
    with SqliteStore(tmp_path / "s") as store:
        while store.drop_reports(A.digest, 0):
            pass
    done = export_reports(tmp_path / "s", A.id, tmp_path / "all.csv", None)
    assert done == (1500, {0: 1500})
    assert export_reports(tmp_path / "s", A.id, tmp_path / "first.csv", 0) == (0, {0: 1500})
    assert export_reports(tmp_path / "s", A.id, tmp_path / "second.csv", 1) == (1500, {})
    assert len((tmp_path / "all.csv").read_text().splitlines()) == 1501


def test_a_reader_of_the_file_sees_the_same(tmp_path: Path) -> None:
    fill(tmp_path / "s")
    with SqliteStore(tmp_path / "s") as store, SqliteReader(tmp_path / "s") as reader:
        drop = partial(store.drop_reports, A.digest, 0)
        assert drop()
        assert [one.dropped for one in reader.stored_rounds()] == [one.dropped for one in store.stored_rounds()]
        assert not list(reader.reports(A.digest, 0))  # whatever of it is left
