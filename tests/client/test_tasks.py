"""The tasks that a device knows: 1000 of them, 8 MiB as they came, and on the disk for a start without a network."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import pytest
from device_state import execute
from heights import HEIGHTS, make_heights
from scripted_broker import ScriptedBroker
from virtual_time import eventually

from hush_client import Client, Gateway, Reason
from hush_client.tasks import CACHE_NAME, CachedTask, TaskCache, TaskRegistry, open_tasks
from hush_common.errors import BrokerError
from hush_common.task import decode_task, make_task
from hush_common.topics import task_topic

pytestmark = pytest.mark.virtual_time

TOPIC = task_topic("heights")
START = datetime(2026, 1, 1, tzinfo=UTC)
KEPT = CachedTask("heights", HEIGHTS, withdrawn=False, answered=False)


def away() -> ScriptedBroker:
    """No network."""
    return ScriptedBroker(refusals=deque(["cannot connect"] * 10_000))


def gateway(broker: ScriptedBroker, state: Path, now: datetime = START) -> Gateway:
    return Gateway(broker, name="g", state=state, spread=0, clock=lambda: now)


async def be_online(state: Path, payload: bytes = HEIGHTS) -> None:
    """Be online once, and answer nothing."""
    async with gateway(ScriptedBroker(retained={TOPIC: payload}), state) as g:
        await g.task("heights", timeout=10)


def learn(catalogue: TaskRegistry, task_id: str, payload: bytes | None = None) -> None:
    catalogue.receive(task_topic(task_id), make_heights(id=task_id) if payload is None else payload)


@pytest.fixture
def room_for_three(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hush_client.tasks.MOST_TASKS", 3)


@pytest.fixture
def room_for_a_tenth(monkeypatch: pytest.MonkeyPatch) -> int:
    """Room for less than the eight mebibytes, which take seconds to fill."""
    most = 800_000
    monkeypatch.setattr("hush_client.tasks.MOST_BYTES", most)
    return most


def on_disk(state: Path) -> tuple[int, bytes]:
    """When the cache was written, and its bytes."""
    file = state / CACHE_NAME
    return (file.stat().st_mtime_ns, file.read_bytes()) if file.exists() else (0, b"")


def large(task_id: str) -> bytes:
    """A task of some 58 000 bytes."""
    labels = [f"{number:04d}" + "x" * 90 for number in range(590)]
    return make_task({"id": task_id, "epsilon": "1", "domain": {"kind": "category", "labels": labels}}).payload


@pytest.mark.medium
def test_a_thousand_payloads_or_8_mib_are_remembered() -> None:
    catalogue = TaskRegistry()
    for number in range(1002):
        learn(catalogue, f"t{number}", b"[")
    assert [catalogue.may_have_forgotten(f"t{number}") for number in (0, 1, 2, 1001)] == [True, True, False, False]
    catalogue = TaskRegistry()
    for number in range(200):
        learn(catalogue, f"t{number}", b"[" * 60_000)
    assert sum(catalogue.may_have_forgotten(f"t{number}") for number in range(200)) == 200 - 8 * 1024 * 1024 // 60_000


@pytest.mark.medium
def test_the_room_of_a_withdrawn_task_is_free_again(room_for_a_tenth: int) -> None:
    catalogue, payload = TaskRegistry(), large("t000")
    for number in range(20):
        learn(catalogue, f"t{number:03d}", payload.replace(b"t000", f"t{number:03d}".encode()))
    most = room_for_a_tenth // len(payload)
    assert list(catalogue.tasks()) == [f"t{number:03d}" for number in range(20 - most, 20)]
    catalogue.receive(task_topic("t019"), b"")
    learn(catalogue, "late", large("late"))
    assert len(catalogue.tasks()) == most


@pytest.mark.medium
async def test_many_hostile_tasks_do_not_displace_an_answered_one(tmp_path: Path, room_for_a_tenth: int) -> None:
    payload = large("t00000")
    async with open_tasks(tmp_path) as writer:
        writer.registry.receive(TOPIC, HEIGHTS)
        writer.note_answer("heights")
        await writer.save()
        for number in range(30):
            learn(writer.registry, f"t{number:05d}", payload.replace(b"t00000", b"t%05d" % number))
            if number % 10 == 0:
                await writer.save()
    stored = TaskCache(tmp_path).load()
    assert sum(len(task.payload) for task in stored) <= room_for_a_tenth
    assert len(on_disk(tmp_path)[1]) < 1.6 * room_for_a_tenth
    assert stored[0] == CachedTask("heights", HEIGHTS, withdrawn=False, answered=True)
    assert len(TaskRegistry(stored).tasks()) == 0, "nothing is read before it is asked for"


def test_a_large_cache_is_read_up_to_the_limit(tmp_path: Path, room_for_a_tenth: int) -> None:
    tasks = [CachedTask(f"t{number}", b"x" * 9000, withdrawn=False, answered=False) for number in range(300)]
    TaskCache(tmp_path).save([*tasks, CachedTask("long", b"x" * 70_000, withdrawn=False, answered=False)])
    assert len(TaskCache(tmp_path).load()) == room_for_a_tenth // 9000


async def test_unchanged_tasks_are_not_written_again(tmp_path: Path) -> None:
    async with gateway(ScriptedBroker(), tmp_path) as g:
        await g.report("d", "heights", 172.0)
    before = on_disk(tmp_path)
    broker = ScriptedBroker()
    async with gateway(broker, tmp_path) as g:
        await g.report("d", "heights", 172.0)
        broker.retain(TOPIC, HEIGHTS)
        broker.drop()
        await eventually(lambda: broker.connections == 2)
        await g.task("heights", timeout=10)
    assert on_disk(tmp_path) == before


@pytest.mark.medium
async def test_frequent_new_tasks_are_written_six_times_an_hour(tmp_path: Path) -> None:
    writes = set[bytes]()
    async with open_tasks(tmp_path) as writer:
        running = asyncio.create_task(writer.run())
        for number in range(360):
            learn(writer.registry, "t", make_heights(id="t", title=f"{number}"))
            await asyncio.sleep(10)
            writes.add(on_disk(tmp_path)[1])
        running.cancel()
    assert 6 <= len(writes - {b""}) <= 8


def spoil(statement: str) -> Callable[[Path], object]:
    return lambda file: execute(file.parent, statement, name=file.name)


def replace_by_a_directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file.write_bytes(b"x" * 5000),
        lambda file: file.write_bytes(file.read_bytes()[:4096] + b"\xff" * 4096),
        spoil("DROP TABLE task; CREATE TABLE other (x)"),
        spoil("UPDATE task SET payload = x'7b7d'"),
        spoil("UPDATE task SET payload = 'text'"),
        spoil("UPDATE task SET id = 'weights'"),
        spoil("UPDATE task SET id = '../../x'"),
        spoil("UPDATE task SET withdrawn = 'x', answered = x'00'"),
        replace_by_a_directory,
    ],
)
async def test_no_damage_to_cached_tasks_blocks_a_ledger(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    async with gateway(ScriptedBroker(), tmp_path) as g:
        await g.report("d", "heights", 172.0)
    damage(tmp_path / CACHE_NAME)
    async with gateway(away(), tmp_path) as g:
        assert (await g.ledger("d")).spent == 1
        for name in ("heights", "weights"):
            with suppress(BrokerError):
                assert (await g.report("d", name, 172.0, timeout=0.1)).status == "already_answered"
    async with gateway(broker := ScriptedBroker(), tmp_path) as g:
        assert (await g.report("e", "heights", 172.0, timeout=10)).status == "sent"
    assert len(broker.arrived) == 1
    if (tmp_path / CACHE_NAME).is_file():
        async with gateway(away(), tmp_path) as g:
            assert (await g.report("f", "heights", 172.0, timeout=0.1)).status == "queued", "it was learned anew"


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
async def test_a_task_that_was_forgotten_is_asked_for_again(tmp_path: Path) -> None:
    broker = ScriptedBroker(retained={task_topic(f"t{number}"): make_heights(id=f"t{number}") for number in range(5)})
    async with Client("mqtt://h", device="d", state=tmp_path, spread=0, transport=broker) as client:
        assert (await client.task("t0")).id == "t0"
        client.on_task(lambda _: None)
        await eventually(lambda: "t4" in client.tasks())
        assert "t0" not in client.tasks()
        assert (await client.report("t0", 172.0)).status == "sent"
        assert "t0" in client.tasks()


async def test_a_start_without_a_network_queues_for_the_next_start(tmp_path: Path) -> None:
    await be_online(tmp_path)
    async with gateway(away(), tmp_path) as g:
        receipt = await g.report("d", "heights", 172.0, timeout=0.3)
        again = await g.report("d", "heights", 100.0, timeout=0.3)
    assert (receipt.status, receipt.offline, receipt.spent) == ("queued", True, Fraction(1))
    assert (again.status, again.report_id) == ("already_answered", receipt.report_id)
    broker = ScriptedBroker()
    async with gateway(broker, tmp_path) as g:
        assert await g.flush(timeout=10)
    assert receipt.report_id is not None
    ((_, payload),) = broker.arrived
    assert bytes.fromhex(receipt.report_id) in payload


@pytest.mark.parametrize(("hours", "reason"), [(-1, Reason.NOT_OPEN), (1, None), (25, Reason.CLOSED)])
async def test_the_times_of_a_kept_task_hold(tmp_path: Path, hours: int, reason: Reason | None) -> None:
    await be_online(tmp_path, make_heights(opens="2026-01-01T00:00:00Z", closes="2026-01-02T00:00:00Z"))
    async with gateway(away(), tmp_path, START + timedelta(hours=hours)) as g:
        receipt = await g.report("d", "heights", 172.0, timeout=0.3)
    assert receipt.reason is reason


async def test_a_task_withdrawn_while_the_device_was_off_is_not_answered(tmp_path: Path) -> None:
    await be_online(tmp_path)
    async with gateway(ScriptedBroker(retained={}), tmp_path) as g:
        with pytest.raises(BrokerError, match="no task 'heights'"):
            await g.report("d", "heights", 172.0, timeout=60)
    async with gateway(away(), tmp_path) as g:
        with pytest.raises(BrokerError, match=r"heights.*withdrawn"):
            await g.report("d", "heights", 172.0, timeout=0.3)
    assert [task.payload for task in TaskCache(tmp_path).load()] == [HEIGHTS], "the bytes stay"
    await be_online(tmp_path)
    async with gateway(away(), tmp_path) as g:
        assert (await g.report("d", "heights", 172.0, timeout=0.3)).status == "queued", "it was published again"


async def test_an_empty_message_withdraws_and_pin_and_bytes_stay(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    async with gateway(broker, tmp_path) as g:
        assert (await g.report("d", "heights", 172.0)).status == "sent"
        broker.retain(TOPIC, b"")
        await eventually(lambda: not g.tasks())
        with pytest.raises(BrokerError, match="no task 'heights'"):
            await g.report("e", "heights", 172.0, timeout=0.1)
    assert TaskCache(tmp_path).load() == [CachedTask("heights", HEIGHTS, withdrawn=True, answered=True)]
    other = ScriptedBroker(retained={TOPIC: make_heights(title="another")})
    async with gateway(other, tmp_path) as g:
        assert (await g.report("d", "heights", 172.0, timeout=10)).reason is Reason.TASK_CHANGED
        assert (await g.report("e", "heights", 172.0, timeout=10)).status == "sent"


async def test_listeners_hear_of_kept_tasks_without_a_network_and_once(tmp_path: Path) -> None:
    await be_online(tmp_path)
    broker, told = ScriptedBroker(refusals=deque(["cannot connect"])), list[str]()
    async with gateway(broker, tmp_path) as g:
        g.on_task(lambda task: told.append(task.id))
        await eventually(lambda: told and g.tasks())
        await eventually(lambda: broker.connections)
        await g.task("heights", timeout=10)
    assert told == ["heights"]


async def test_a_source_gives_no_answer_when_its_task_is_gone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    await be_online(tmp_path)
    broker = ScriptedBroker(retained={}, refusals=deque(["cannot connect"]))
    async with gateway(broker, tmp_path) as g:
        g.answer("d", "heights", lambda: 172.0, source_timeout=0.5)
        await eventually(lambda: "withdrawn" in caplog.text)
        assert (await g.ledger("d")).spent == 0
    assert broker.arrived == []


async def test_a_device_answers_where_no_task_can_be_stored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / CACHE_NAME).mkdir(mode=0o700)
    (tmp_path / CACHE_NAME / "file").touch()
    async with gateway(ScriptedBroker(), tmp_path) as g:
        assert (await g.report("d", "heights", 172.0)).status == "sent"
    assert CACHE_NAME in caplog.text


def test_what_is_gone_or_changed_is_written_and_nothing_else(tmp_path: Path) -> None:
    shelf = TaskCache(tmp_path)
    other = CachedTask("weights", make_heights(id="weights"), withdrawn=False, answered=True)
    shelf.save([])
    assert not (tmp_path / CACHE_NAME).exists()
    shelf.save([KEPT, other])
    assert TaskCache(tmp_path).load() == [KEPT, other]
    shelf.save([other])
    assert TaskCache(tmp_path).load() == [other]
    assert decode_task(other.payload).id == "weights"
