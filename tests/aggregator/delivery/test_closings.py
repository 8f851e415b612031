"""When a task closes: what its estimate says, what still counts, and that no clock opens it again."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from broker_world import CLOSING, DRAFT, HOUR, World, frame, living
from stored import drop_reports

from hush_aggregator.delivery.closing import LASTING_S
from hush_aggregator.store import SqliteEditor, TaskState
from hush_common.errors import TaskError
from hush_common.task import make_task
from hush_common.wire import Refusal

SKEW_S = 300.0
DAILY = make_task(DRAFT | {"rounds": 9, "round_every": "1d", "opens": "2027-02-25T00:00:00Z", "epsilon": "9"})


@pytest.fixture
def world(memory_path: Path) -> Iterator[World]:
    with living(memory_path / "hush.sqlite") as world:
        world.task = CLOSING
        yield world


def says(world: World) -> tuple[bool, bool]:
    """Whether the estimate says that the task is closed, and that it is final; left out means no."""
    document = world.estimate
    assert {document.get(name) for name in ("closed", "final")} <= {True, None}
    return "closed" in document, "final" in document


@pytest.mark.medium
def test_an_estimate_says_when_its_task_has_closed_and_when_it_is_final(world: World) -> None:
    world.serve()
    world.send(frame(CLOSING))
    assert says(world) == (False, False)
    world.wait(HOUR + 3 - world.loop.time())
    assert says(world) == (True, False)
    world.send(frame(CLOSING))  # under way when it closed
    assert world.n == 2
    world.wait(HOUR + SKEW_S + LASTING_S + 5 - world.loop.time())
    assert says(world) == (True, True)
    assert world.estimate["n"] == 2
    assert world.store.is_closed(CLOSING.digest)
    assert world.store.task_rows()[0].state is TaskState.CLOSED


@pytest.mark.medium
def test_a_clock_set_back_opens_no_task_again(world: World) -> None:
    world.serve()
    counted = frame(CLOSING)
    world.send(counted)
    world.wait(2 * HOUR)
    drop_reports(world.path)
    world.offset -= timedelta(hours=2)
    world.send(counted, frame(CLOSING))
    assert world.n == 1
    assert world.store.refusals("heights") == {Refusal.CLOSED: 2}
    world.stop()
    world.serve()
    world.send(counted)
    assert world.n == 1
    assert says(world) == (True, True)


@pytest.mark.medium
def test_a_replay_counts_nothing_at_any_time(world: World) -> None:
    day = [frame(CLOSING) for _ in range(100)]
    world.serve()
    world.send(*day)
    world.send(*day)
    assert world.store.refusals("heights") == {Refusal.DUPLICATE: 100}
    world.wait(2 * HOUR)
    world.send(*day)
    assert world.store.refusals("heights") == {Refusal.DUPLICATE: 200}
    drop_reports(world.path)
    world.send(*day)
    assert world.store.refusals("heights") == {Refusal.DUPLICATE: 200, Refusal.CLOSED: 100}
    assert world.n == 100


def test_a_clock_that_is_ahead_for_a_while_closes_nothing_for_good(world: World) -> None:
    world.serve()
    world.offset += timedelta(days=1)
    world.send(frame(CLOSING))
    world.wait(LASTING_S - 60)
    world.offset -= timedelta(days=1)
    world.wait(LASTING_S)
    assert world.store.refusals("heights") == {Refusal.CLOSED: 1}
    world.send(frame(CLOSING))
    assert (world.n, world.store.is_closed(CLOSING.digest)) == (1, False)


def test_what_closed_meanwhile_is_marked_by_the_next_start(world: World) -> None:
    world.serve()
    world.stop()
    world.wait(2 * HOUR)
    world.serve()
    assert says(world) == (True, False)
    world.wait(LASTING_S + 60)
    assert says(world) == (True, True)


def test_an_estimate_is_final_two_seconds_after_an_operator_closes(world: World) -> None:
    world.task = DAILY
    world.serve()
    world.send(frame(DAILY, 0), frame(DAILY, 1))
    with SqliteEditor(world.path) as command:
        command.close_task("heights", 0)
    world.wait(3)
    assert says(world) == (False, False)  # the estimate is that of the latest round
    with SqliteEditor(world.path) as command:
        command.close_task("heights", 1)
    world.wait(3)
    assert says(world) == (True, True)
    world.send(frame(DAILY, 2))
    assert says(world) == (False, False)
    with SqliteEditor(world.path) as command:
        command.close_task("heights")
    world.wait(3)
    assert says(world) == (True, True)
    world.send(frame(DAILY, 3))
    assert world.store.latest_round(DAILY.digest) == 2


def test_no_mark_is_set_on_a_task_that_is_not_there(world: World) -> None:
    with SqliteEditor(world.path) as command, pytest.raises(TaskError, match="heigths"):
        command.close_task("heigths")


@pytest.mark.medium
def test_a_task_that_never_closes_and_one_at_the_end_of_time_stay_open(world: World) -> None:
    world.task = make_task(DRAFT | {"closes": "9999-12-31T23:59:59Z"})
    world.serve()
    world.send(frame(world.task))
    world.wait(HOUR)
    assert says(world) == (False, False)
