"""What a device remembers of the tasks on a broker: 1000 of them, and 8 MiB as they came."""

import asyncio
from pathlib import Path

import pytest
from heights import make_heights
from scripted_broker import ScriptedBroker

from hush_client import Client
from hush_client.tasks import TaskRegistry
from hush_common.errors import TaskError
from hush_common.task import make_task
from hush_common.topics import task_topic


def learn(catalogue: TaskRegistry, task_id: str, payload: bytes | None = None) -> None:
    catalogue.receive(task_topic(task_id), make_heights(id=task_id) if payload is None else payload)


def large(task_id: str) -> bytes:
    """A task of some 58 000 bytes."""
    labels = [f"{number:04d}" + "x" * 90 for number in range(590)]
    return make_task({"id": task_id, "epsilon": "1", "domain": {"kind": "category", "labels": labels}}).payload


@pytest.fixture
def room_for_three(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hush_client.tasks.MOST_TASKS", 3)


def test_a_thousand_tasks_are_remembered_and_the_oldest_goes_first() -> None:
    catalogue = TaskRegistry()
    for number in range(1000):
        learn(catalogue, f"t{number}")
    assert len(catalogue.tasks()) == 1000
    learn(catalogue, "one-more")
    assert len(catalogue.tasks()) == 1000
    assert "t0" not in catalogue.tasks()
    assert {"t1", "t999", "one-more"} <= catalogue.tasks().keys()


@pytest.mark.large
def test_no_more_than_8_mib_of_payloads_are_remembered() -> None:
    catalogue = TaskRegistry()
    payload = large("t000")
    for number in range(200):
        learn(catalogue, f"t{number:03d}", payload.replace(b"t000", f"t{number:03d}".encode()))
    most = 8 * 1024 * 1024 // len(payload)
    assert 100 < most < 200
    assert list(catalogue.tasks()) == [f"t{number:03d}" for number in range(200 - most, 200)]
    catalogue.receive(task_topic("t199"), b"")  # withdrawn: its room is free again
    learn(catalogue, "late", large("late"))
    assert len(catalogue.tasks()) == most


def test_what_is_no_task_takes_room_as_well() -> None:
    catalogue = TaskRegistry()
    for number in range(200):
        learn(catalogue, f"t{number}", b"[" * 60_000)
    assert sum(catalogue.may_have_forgotten(f"t{number}") for number in range(200)) == 200 - 8 * 1024 * 1024 // 60_000


@pytest.mark.usefixtures("room_for_three")
def test_the_answered_are_forgotten_after_those_that_never_were() -> None:
    catalogue = TaskRegistry()
    for name in ("answered-a", "answered-b", "heard"):
        learn(catalogue, name)
    catalogue.note_answer("answered-a")
    catalogue.note_answer("answered-b")
    learn(catalogue, "new")
    assert list(catalogue.tasks()) == ["answered-a", "answered-b", "new"]
    catalogue.note_answer("new")
    learn(catalogue, "newer")
    assert list(catalogue.tasks()) == ["answered-a", "answered-b", "new"], "the only one that never was goes first"
    catalogue.note_answer("newer")
    learn(catalogue, "newer")
    assert list(catalogue.tasks()) == ["answered-b", "new", "newer"]


@pytest.mark.usefixtures("room_for_three")
def test_what_has_a_source_is_never_forgotten() -> None:
    catalogue = TaskRegistry()
    for name in ("a", "b", "c", "d"):
        catalogue.hold(name)
        learn(catalogue, name)
    learn(catalogue, "other")
    assert list(catalogue.tasks()) == ["a", "b", "c", "d"]


@pytest.mark.usefixtures("room_for_three")
async def test_what_somebody_waits_for_is_taken_in_and_may_then_be_forgotten() -> None:
    catalogue = TaskRegistry()
    for name in ("a", "b", "c"):
        learn(catalogue, name)
        catalogue.note_answer(name)
    waiting = asyncio.create_task(catalogue.wait("wanted"))
    await asyncio.sleep(0)
    learn(catalogue, "wanted")
    assert (await waiting).id == "wanted"
    learn(catalogue, "a")
    assert list(catalogue.tasks()) == ["b", "c", "a"]


@pytest.mark.usefixtures("room_for_three")
def test_a_task_that_comes_again_is_the_same_one_and_drives_nothing_out() -> None:
    catalogue = TaskRegistry()
    for name in ("a", "b", "c"):
        learn(catalogue, name)
    before = catalogue.tasks()
    learn(catalogue, "a")
    assert all(before[name] is task for name, task in catalogue.tasks().items())
    assert before.keys() == catalogue.tasks().keys()


@pytest.mark.usefixtures("room_for_three")
def test_it_is_said_once_that_tasks_are_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    catalogue = TaskRegistry()
    for number in range(10):
        learn(catalogue, f"t{number}")
    (record,) = caplog.records
    assert "more tasks" in record.getMessage()


async def test_an_error_that_is_told_again_and_again_does_not_grow() -> None:
    catalogue = TaskRegistry()
    learn(catalogue, "wrong", b"{")
    depths = []
    for _ in range(3):
        with pytest.raises(TaskError, match="cannot be read: Expecting") as caught:
            await catalogue.wait("wrong")
        assert caught.value.__cause__ is None  # which would keep all of the payload
        depths.append(len(caught.traceback))
    assert depths[0] == depths[2]


@pytest.mark.usefixtures("room_for_three")
async def test_a_task_that_was_forgotten_is_asked_for_again(tmp_path: Path) -> None:
    broker = ScriptedBroker(retained={task_topic(f"t{number}"): make_heights(id=f"t{number}") for number in range(5)})
    async with Client("mqtt://h", device="d", state=tmp_path, spread=0, transport=broker) as client:
        assert (await client.task("t0")).id == "t0"
        client.on_task(lambda _: None)
        async with asyncio.timeout(60):
            while "t4" not in client.tasks():  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.01)
        assert "t0" not in client.tasks()
        assert (await client.report("t0", 172.0)).status == "sent"
        assert "t0" in client.tasks()
