"""A device keeps the tasks that it has learned: one that starts without a network answers, and no damage counts."""

import asyncio
import hashlib
import sqlite3
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import pytest
from heights import HEIGHTS, make_heights
from scripted_broker import ScriptedBroker
from virtual_time import eventually
from waiting import until

from hush_client import Gateway, Reason, Receipt
from hush_client.state.database import FILE_NAME
from hush_client.tasks import CACHE_NAME, MOST_BYTES, CachedTask, TaskCache, TaskRegistry, open_tasks
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


async def learn(state: Path, payload: bytes = HEIGHTS) -> None:
    """Be online once, and answer nothing."""
    async with gateway(ScriptedBroker(retained={TOPIC: payload}), state) as g:
        await g.task("heights", timeout=10)


async def test_a_start_without_a_network_queues_for_the_next_start(tmp_path: Path) -> None:
    await learn(tmp_path)
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
    await learn(tmp_path, make_heights(opens="2026-01-01T00:00:00Z", closes="2026-01-02T00:00:00Z"))
    async with gateway(away(), tmp_path, START + timedelta(hours=hours)) as g:
        receipt = await g.report("d", "heights", 172.0, timeout=0.3)
    assert receipt.reason is reason


async def test_what_is_not_kept_is_told_with_what_to_do(tmp_path: Path) -> None:
    async with gateway(away(), tmp_path) as g:
        with pytest.raises(BrokerError, match=r"cannot connect.*heights"):
            await g.report("d", "heights", 172.0, timeout=0.3)


async def test_a_connected_device_uses_the_tasks_of_this_connection_only(tmp_path: Path) -> None:
    await learn(tmp_path)
    async with gateway(ScriptedBroker(retained={}), tmp_path) as g:
        with pytest.raises(BrokerError, match="heights"):
            await g.report("d", "heights", 172.0, timeout=0.2)
        assert g.tasks() == {}


async def test_a_task_withdrawn_while_the_device_was_off_is_not_answered(tmp_path: Path) -> None:
    await learn(tmp_path)
    async with gateway(ScriptedBroker(retained={}), tmp_path) as g:
        with pytest.raises(BrokerError, match="no task 'heights'"):
            await g.report("d", "heights", 172.0, timeout=60)
    async with gateway(away(), tmp_path) as g:
        with pytest.raises(BrokerError, match=r"heights.*withdrawn"):
            await g.report("d", "heights", 172.0, timeout=0.3)
    assert [task.payload for task in TaskCache(tmp_path).load()] == [HEIGHTS], "the bytes stay"
    await learn(tmp_path)
    async with gateway(away(), tmp_path) as g:
        assert (await g.report("d", "heights", 172.0, timeout=0.3)).status == "queued", "it was published again"


async def test_an_empty_message_withdraws_and_pin_and_bytes_stay(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    async with gateway(broker, tmp_path) as g:
        assert (await g.report("d", "heights", 172.0)).status == "sent"
        broker.retain(TOPIC, b"")
        await until(lambda: not g.tasks())
        with pytest.raises(BrokerError, match="no task 'heights'"):
            await g.report("e", "heights", 172.0, timeout=0.1)
    assert TaskCache(tmp_path).load() == [CachedTask("heights", HEIGHTS, withdrawn=True, answered=True)]
    other = ScriptedBroker(retained={TOPIC: make_heights(title="another")})
    async with gateway(other, tmp_path) as g:
        assert (await g.report("d", "heights", 172.0, timeout=10)).reason is Reason.TASK_CHANGED
        assert (await g.report("e", "heights", 172.0, timeout=10)).status == "sent"


async def test_after_a_lost_connection_a_task_must_come_again(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    async with gateway(broker, tmp_path) as g:
        task = await g.task("heights")
        broker.refusals.extend(["cannot connect"] * 2)
        broker.drop()
        await until(lambda: broker.connections == 2 and g.tasks())
        assert await g.task("heights", timeout=10) is task


async def test_listeners_hear_of_kept_tasks_without_a_network_and_once(tmp_path: Path) -> None:
    await learn(tmp_path)
    broker, told = ScriptedBroker(refusals=deque(["cannot connect"])), list[str]()
    async with gateway(broker, tmp_path) as g:
        g.on_task(lambda task: told.append(task.id))
        await until(lambda: told and g.tasks())
        await until(lambda: broker.connections)
        await g.task("heights", timeout=10)
    assert told == ["heights"]


async def test_a_source_is_asked_without_a_network_where_the_task_is_kept(tmp_path: Path) -> None:
    await learn(tmp_path)
    receipts: list[Receipt] = []
    async with gateway(away(), tmp_path) as g:
        g.answer("d", "heights", lambda: 172.0, source_timeout=0.1, on_receipt=receipts.append)
        await until(lambda: receipts)
    assert (receipts[0].status, receipts[0].offline) == ("queued", True)


async def test_a_source_gives_no_answer_when_its_task_is_gone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    await learn(tmp_path)
    broker = ScriptedBroker(retained={}, refusals=deque(["cannot connect"]))
    async with gateway(broker, tmp_path) as g:
        g.answer("d", "heights", lambda: 172.0, source_timeout=0.5)
        await eventually(lambda: "withdrawn" in caplog.text)
        assert (await g.ledger("d")).spent == 0
    assert broker.arrived == []


class Counted(ScriptedBroker):
    def back(self) -> bool:
        return self.connections == 2


def files(state: Path) -> dict[str, int]:
    return {file.name: file.stat().st_size for file in sorted(state.iterdir())}


def digest(state: Path) -> tuple[str, int]:
    """What the file holds, and when it was written."""
    file = state / CACHE_NAME
    return hashlib.sha256(file.read_bytes()).hexdigest(), file.stat().st_mtime_ns


async def test_a_task_that_is_sent_again_unchanged_writes_nothing(tmp_path: Path) -> None:
    async with gateway(ScriptedBroker(), tmp_path) as g:
        await g.report("d", "heights", 172.0)
    before = digest(tmp_path)
    for _ in range(2):
        broker = Counted()
        async with gateway(broker, tmp_path) as g:
            await g.report("d", "heights", 172.0)
            broker.retain(TOPIC, HEIGHTS)
            broker.drop()
            await until(broker.back)
            await g.task("heights", timeout=10)
    assert digest(tmp_path) == before
    assert list(files(tmp_path)) == ["hush.lock", FILE_NAME, "policy.json", CACHE_NAME]


async def test_frequent_new_tasks_are_written_six_times_an_hour(tmp_path: Path) -> None:
    writes = set[str]()
    async with open_tasks(tmp_path) as writer:
        running = asyncio.create_task(writer.run())
        for number in range(3600):
            writer.registry.receive(task_topic("t"), make_heights(id="t", title=f"{number}"))
            await asyncio.sleep(1)
            if (tmp_path / CACHE_NAME).exists():
                writes.add(digest(tmp_path)[0])
        running.cancel()
    assert 6 <= len(writes) <= 8


def _directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "not a database": lambda file: file.write_bytes(b"x" * 5000),
    "empty": lambda file: file.write_bytes(b""),
    "another program's": lambda file: _script(file, "DROP TABLE task; CREATE TABLE other (x)"),
    "a column is missing": lambda file: _script(file, "ALTER TABLE task DROP COLUMN answered"),
    "no task": lambda file: _script(file, "UPDATE task SET payload = x'7b7d'"),
    "not bytes": lambda file: _script(file, "UPDATE task SET payload = 'text'"),
    "another id": lambda file: _script(file, "UPDATE task SET id = 'weights'"),
    "no id": lambda file: _script(file, "UPDATE task SET id = '../../x'"),
    "flags that are none": lambda file: _script(file, "UPDATE task SET withdrawn = 'x', answered = x'00'"),
    "a page": lambda file: file.write_bytes(file.read_bytes()[:4096] + b"\xff" * 4096),
    "cut off": lambda file: file.write_bytes(file.read_bytes()[:4500]),
    "a directory": _directory,
}


def _script(file: Path, text: str) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(text)


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
async def test_no_damage_to_what_is_kept_stands_between_a_device_and_its_ledger(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
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


async def test_a_device_answers_where_no_task_can_be_stored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / CACHE_NAME).mkdir(mode=0o700)
    (tmp_path / CACHE_NAME / "file").touch()
    async with gateway(ScriptedBroker(), tmp_path) as g:
        assert (await g.report("d", "heights", 172.0)).status == "sent"
    assert CACHE_NAME in caplog.text


def hostile_tasks(count: int) -> Iterator[tuple[str, bytes]]:
    labels = [f"{number:04d}" + "x" * 90 for number in range(100)]
    large = make_task({"id": "t00000", "epsilon": "1", "domain": {"kind": "category", "labels": labels}}).payload
    for number in range(count):
        yield task_topic(f"t{number:05d}"), large.replace(b"t00000", b"t%05d" % number)


@pytest.mark.large
async def test_two_thousand_hostile_tasks_do_not_displace_an_answered_one(tmp_path: Path) -> None:
    async with open_tasks(tmp_path) as writer:
        writer.registry.receive(TOPIC, HEIGHTS)
        writer.note_answer("heights")
        await writer.save()
        for number, (topic, payload) in enumerate(hostile_tasks(2000)):
            writer.registry.receive(topic, payload)
            if number % 100 == 0:
                await writer.save()
    kept = TaskCache(tmp_path).load()
    assert sum(len(task.payload) for task in kept) <= MOST_BYTES
    assert sum(files(tmp_path).values()) < 1.6 * MOST_BYTES
    assert kept[0] == CachedTask("heights", HEIGHTS, withdrawn=False, answered=True)
    assert len(TaskRegistry(kept).tasks()) == 0, "nothing is read before it is asked for"


def test_a_cache_file_that_is_too_large_is_read_up_to_the_limit(tmp_path: Path) -> None:
    tasks = [CachedTask(f"t{number}", b"x" * 9000, withdrawn=False, answered=False) for number in range(3000)]
    TaskCache(tmp_path).save([*tasks, CachedTask("long", b"x" * 70_000, withdrawn=False, answered=False)])
    assert len(TaskCache(tmp_path).load()) == MOST_BYTES // 9000


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
