"""Ids and bodies of a round that is over are dropped by policy; its sums stay, and nothing counts there again."""

import secrets
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from broker_world import DRAFT, HOUR, World, frame, living
from stored import stored_ids

from hush_aggregator import SqliteReader, SqliteStore
from hush_aggregator.delivery.closing import LASTING_S
from hush_aggregator.ops.export import export_reports
from hush_aggregator.store import Accepted, SqliteEditor
from hush_common.task import make_task
from hush_common.wire import Refusal

CLOSING = make_task(DRAFT | {"closes": "2027-03-01T13:00:00Z", "retention": "2h"})
HOURLY = DRAFT | {"rounds": 99, "round_every": "1h", "opens": "2027-03-01T12:00:00Z", "epsilon": "9"}
SOON = 2 * 60 + LASTING_S


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with living(tmp_path / "hush.sqlite") as world:
        yield world


def stored(world: World) -> int:
    return len(stored_ids(world.path))


def dropped(world: World) -> list[int]:
    return [one.round for one in world.store.stored_rounds() if one.dropped]


@pytest.mark.medium
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


@pytest.mark.medium
def test_a_round_is_closed_when_its_reports_are_dropped(world: World) -> None:
    world.task = task = make_task(HOURLY | {"retention": "2h"})
    world.serve()
    first = frame(task, 0)
    world.send(first)
    world.wait(HOUR)
    world.send(frame(task, 1), frame(task, 0))
    world.wait(2 * HOUR - SOON)
    assert (stored(world), dropped(world)) == (3, [])
    world.wait(3 * SOON)
    assert (stored(world), dropped(world)) == (1, [0])
    assert world.store.is_closed(task.digest, 0)
    world.send(first, frame(task, 0), frame(task, 1))
    assert world.store.refusals("heights") == {Refusal.CLOSED: 2}
    assert [world.store.tally(task.digest, round_).n for round_ in range(2)] == [2, 2]
    assert world.estimate["round"] == 1
    assert "final" not in world.estimate


@pytest.mark.medium
@pytest.mark.parametrize(("own", "limit", "hours"), [("1h", None, 1), (None, 1, 1), ("3h", 1, 1), (None, None, None)])
def test_the_shorter_of_both_policies_holds(
    world: World, own: str | None, limit: int | None, hours: int | None
) -> None:
    world.task = make_task(DRAFT | ({} if own is None else {"retention": own}))
    world.serve(retention=None if limit is None else timedelta(hours=limit))
    world.send(frame(world.task))
    world.wait(2 * HOUR)
    assert stored(world) == 1  # the task is open
    with SqliteEditor(world.path) as command:
        command.close_task("heights", at=world.now())
    world.wait((hours or 4) * HOUR - SOON)
    assert stored(world) == 1
    world.wait(3 * SOON)
    assert stored(world) == (0 if hours else 1)


@pytest.mark.medium
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


@pytest.mark.medium
def test_a_recall_under_way_keeps_rounds_open(world: World) -> None:
    world.task = task = make_task(HOURLY | {"retention": "1h"})
    world.serve()
    world.send(frame(task, 0))
    world.wait(HOUR / 2)
    world.broker.kill()  # and with it what it had taken
    world.wait(4 * HOUR)
    assert (world.open is not None, dropped(world)) == (True, [])
    world.send(frame(task, 0))
    assert world.n == 2
    with SqliteEditor(world.path) as command:
        command.recall([replace(row, ended=True) for row in command.recalls()])
    world.wait(SOON)
    assert (world.open, dropped(world)) == (None, [0])


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


def test_an_export_has_what_was_not_dropped_and_names_the_rest(tmp_path: Path) -> None:
    task = make_task(HOURLY)
    with SqliteStore(tmp_path / "s") as store, SqliteReader(tmp_path / "s") as reader:
        store.add_task(task)
        for round_ in range(2):
            ids = np.frombuffer(secrets.token_bytes(16 * 30), dtype="V16")
            store.commit([Accepted(task, round_, ids, np.zeros((30, 1), dtype=np.int64))], {})
        while store.drop_reports(task.digest, 0):
            assert [one.dropped for one in reader.stored_rounds()] == [True, False]
            assert not list(reader.reports(task.digest, 0))  # whatever is left of it
    assert export_reports(tmp_path / "s", task.id, tmp_path / "all.csv", None) == (30, {0: 30})
    assert export_reports(tmp_path / "s", task.id, tmp_path / "first.csv", 0) == (0, {0: 30})
    assert export_reports(tmp_path / "s", task.id, tmp_path / "second.csv", 1) == (30, {})
    assert len((tmp_path / "all.csv").read_text().splitlines()) == 31
