"""What the broker does not take is tried again, ever more rarely, and holds nobody else up; time is virtual."""

import asyncio
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from virtual_time import VirtualLoop

from hush_client.sending.schedule import milliseconds
from hush_client.sending.sender import Sender
from hush_client.sending.transport import Link
from hush_client.state import outbox
from hush_client.state.database import FILE_NAME, DeviceState
from hush_client.tasks import TaskRegistry
from hush_common.errors import BrokerError
from hush_common.recall import LAST_COUNTED
from hush_common.topics import Acknowledgement

HOUR = 3600.0
WALL = datetime(2026, 1, 1, tzinfo=UTC)
TAKEN, NOBODY, FORBIDDEN, TOO_LARGE, QUOTA, INVALID, UNSPECIFIED = 0, 0x10, 0x87, 0x95, 0x97, 0x99, 0x80
OF_A_TOPIC = pytest.mark.parametrize("reason", [NOBODY, FORBIDDEN, QUOTA])
Says = Callable[[str, bytes], int]


@dataclass
class Broker:
    """A broker that answers with a reason code, or ends the connection where it gives an error instead.

    Args:
        says: what it answers to a topic and a payload.
    """

    says: Callable[[str, bytes], int | BrokerError]
    name: str = "scripted"
    came: list[tuple[float, str, bytes]] = field(default_factory=list)

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Link]:
        yield _Link(self)

    def times(self, payload: bytes) -> list[float]:
        return [moment for moment, _, one in self.came if one == payload]


class _Link:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def publish(self, topic: str, payload: bytes) -> Acknowledgement:
        self._broker.came.append((asyncio.get_running_loop().time(), topic, payload))
        said = self._broker.says(topic, payload)
        await asyncio.sleep(0.001)
        if isinstance(said, BrokerError):
            if not self._lost.done():
                self._lost.set_exception(said)
            raise said
        return Acknowledgement(said, can_refuse=True)

    async def subscribe(self, topic: str) -> None:
        raise NotImplementedError(topic)

    async def receive(self) -> tuple[str, bytes]:
        await self._lost
        raise NotImplementedError


def now() -> float:
    return asyncio.get_running_loop().time()


def run(
    broker: Broker,
    directory: Path,
    *waiting: tuple[str, bytes],
    seconds: float,
    closes: int | None = None,
    later: Callable[[Sender, DeviceState], asyncio.Future[None] | None] = lambda *_: None,
) -> list[tuple[str, bytes]]:
    """A sender in virtual time, and what its outbox holds in the end."""

    async def send() -> list[tuple[str, bytes]]:
        state = await DeviceState.open(directory)
        for topic, payload in waiting:
            await state.run(partial(outbox.put, topic=topic, payload=payload, closes=closes))
        sender = Sender(broker, state, TaskRegistry(), lambda: WALL)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    kept = later(sender, state)
                    await sender.run()
            del kept
            return [
                (entry.topic, entry.payload) for entry in await state.run(partial(outbox.page, after=0, limit=9999))
            ]
        finally:
            await state.close()

    loop = VirtualLoop()
    try:
        return loop.run_until_complete(send())
    finally:
        loop.close()


@OF_A_TOPIC
def test_a_refused_report_is_retried_ever_more_rarely(tmp_path: Path, reason: int) -> None:
    broker = Broker(lambda topic, _: reason if topic == "closed" else TAKEN)
    left = run(broker, tmp_path, ("closed", b"refused"), ("open", b"taken"), seconds=24 * HOUR)
    assert left == [("closed", b"refused")]
    assert len(broker.times(b"taken")) == 1
    times = broker.times(b"refused")
    pauses = [after - before for before, after in pairwise(times)]
    assert 24 <= len(times) <= 60
    assert 5 <= pauses[0] <= 10.1
    assert all(after >= before for before, after in zip(pauses[:6], pauses[2:8], strict=True))
    assert all(HOUR / 2 <= pause <= HOUR + 0.1 for pause in pauses[10:])


@pytest.mark.parametrize("reason", [TOO_LARGE, INVALID, UNSPECIFIED, 0xFF])
def test_what_is_said_of_one_report_holds_no_other_of_its_topic_up(tmp_path: Path, reason: int) -> None:
    broker = Broker(lambda _, payload: reason if payload == b"refused" else TAKEN)
    left = run(broker, tmp_path, ("t", b"refused"), *[("t", b"%d" % number) for number in range(500)], seconds=HOUR)
    assert left == [("t", b"refused")]
    assert Counter(payload for _, _, payload in broker.came if payload != b"refused").total() == 500
    assert max(moment for moment, _, payload in broker.came if payload != b"refused") < 10
    assert 8 <= len(broker.times(b"refused")) <= 13


@pytest.mark.large
@OF_A_TOPIC
def test_one_refused_report_probes_for_all(tmp_path: Path, reason: int) -> None:
    mended = 6 * HOUR
    broker = Broker(lambda _, __: reason if now() < mended else TAKEN)
    left = run(broker, tmp_path, *[("t", b"%d" % number) for number in range(1000)], seconds=8 * HOUR)
    assert left == []
    before = [moment for moment, _, _ in broker.came if moment < mended]
    assert len([moment for moment in before if moment > 1]) < 40, "each of them would be 20 000"
    after = [payload for moment, _, payload in broker.came if moment >= mended]
    assert sorted(after) == sorted(b"%d" % number for number in range(1000)), "each once"
    assert max(moment for moment, _, _ in broker.came) < mended + HOUR + 60


@pytest.mark.parametrize(("reason", "lines"), [(FORBIDDEN, 1), (TOO_LARGE, 3)])
def test_what_is_not_taken_is_logged_once_and_not_at_every_try(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, reason: int, lines: int
) -> None:
    broker = Broker(lambda *_: reason)
    run(broker, tmp_path, *[("hush/v1/reports/t/d", b"%d" % number) for number in range(3)], seconds=6 * HOUR)
    told = [record.getMessage() for record in caplog.records if "delivered" in record.getMessage()]
    assert len(told) == lines
    assert all(line.startswith("hush/v1/reports/t/d: ") and "retried" in line for line in told)


def test_retries_commit_nothing(tmp_path: Path) -> None:
    versions = []

    async def look() -> None:
        with closing(sqlite3.connect(tmp_path / FILE_NAME)) as onlooker:
            for _ in range(20):
                versions.append(onlooker.execute("PRAGMA data_version").fetchone())
                await asyncio.sleep(HOUR)

    broker = Broker(lambda *_: FORBIDDEN)
    run(broker, tmp_path, ("t", b"1"), seconds=22 * HOUR, later=lambda *_: asyncio.ensure_future(look()))
    assert len(versions) == 20
    assert len(set(versions)) == 1
    assert len(broker.times(b"1")) > 22


class Even:
    """Randomness that cuts every pause by a quarter: it is asked after 7.5, 22.5, … 1912.5, and never near an hour."""

    def randbelow(self, n: int, /) -> int:
        return n // 2


def test_a_new_report_asks_at_once_where_the_last_answer_is_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hush_common.aio.SystemRng", Even)
    said: list[Acknowledgement | None] = []

    async def report(sender: Sender, state: DeviceState) -> None:
        for moment, payload in ((1.0, b"soon"), (HOUR, b"later"), (2 * HOUR, b"mended")):
            await asyncio.sleep(moment - now())
            sequence = await state.run(partial(outbox.put, topic="t", payload=payload))
            sender.send(sequence, sender.now())
            waiter = sender.acknowledgement(sequence)
            assert waiter is not None
            said.append(await waiter)
            assert now() < moment + 1

    broker = Broker(lambda _, __: FORBIDDEN if now() < 2 * HOUR else TAKEN)
    left = run(
        broker, tmp_path, ("t", b"old"), seconds=2 * HOUR + 60, later=lambda *both: asyncio.ensure_future(report(*both))
    )
    assert left == [], "what is taken of the new one lets the old ones go"
    assert [answer.reason for answer in said if answer] == [FORBIDDEN, FORBIDDEN, TAKEN]
    assert broker.times(b"soon")[0] > 2, "it was told what had just been said to another"
    assert broker.times(b"later")[0] == pytest.approx(HOUR, abs=1)


def test_a_report_that_ends_the_connection_does_not_block_others(tmp_path: Path) -> None:
    too_large = BrokerError("scripted", "the broker ended the connection (packet too large)", reason=TOO_LARGE)
    broker = Broker(lambda _, payload: too_large if payload == b"huge" else TAKEN)
    left = run(broker, tmp_path, ("t", b"huge"), *[("t", b"%d" % number) for number in range(100)], seconds=HOUR)
    assert left == [("t", b"huge")]
    assert len(broker.times(b"huge")) <= 13
    assert max(moment for moment, _, payload in broker.came if payload != b"huge") < 10


def test_a_report_that_silently_ends_the_connection_goes_last(tmp_path: Path) -> None:
    broker = Broker(lambda _, payload: BrokerError("scripted", "lost") if payload == b"odd" else TAKEN)
    left = run(broker, tmp_path, ("t", b"odd"), *[("t", b"%d" % number) for number in range(100)], seconds=HOUR)
    assert left == [("t", b"odd")]
    assert max(moment for moment, _, payload in broker.came if payload != b"odd") < 60
    assert len(broker.times(b"odd")) < 5 + 13, "later it is tried ever more rarely, too"


@pytest.mark.parametrize("reason", [None, 0x8B, 0x8E, 0x98])
def test_a_connection_that_ends_now_and_then_postpones_nothing(tmp_path: Path, reason: int | None) -> None:
    ends = iter([True, True, False, True, True, *[False] * 99])
    lost = BrokerError("scripted", "lost", reason=reason)
    broker = Broker(lambda *_: lost if next(ends) else TAKEN)
    assert run(broker, tmp_path, *[("t", b"%d" % number) for number in range(3)], seconds=HOUR) == []
    assert max(moment for moment, _, _ in broker.came) < 5


def test_sync_ends_when_only_refused_reports_are_left(tmp_path: Path) -> None:
    told: list[tuple[bool, float]] = []

    async def wait(sender: Sender, _: DeviceState) -> None:
        told.append((await sender.flush(), now()))

    broker = Broker(lambda topic, _: FORBIDDEN if topic == "closed" else TAKEN)
    entries = [("closed", b"1"), ("open", b"2"), ("closed", b"3")]
    run(broker, tmp_path, *entries, seconds=60, later=lambda *both: asyncio.ensure_future(wait(*both)))
    ((empty, moment),) = told
    assert not empty
    assert moment < 1


@pytest.mark.parametrize("reason", [FORBIDDEN, TOO_LARGE])
def test_what_is_too_late_to_be_counted_is_tried_once_a_start_and_stays(tmp_path: Path, reason: int) -> None:
    late = milliseconds(WALL - LAST_COUNTED)
    broker = Broker(lambda _, payload: reason if payload != b"in time" else TAKEN)
    for _ in range(2):
        run(broker, tmp_path, ("t", b"late"), seconds=24 * HOUR, closes=late)
    assert len(broker.times(b"late")) == 3, "that of the first start is tried by the second, too"
    before = len(broker.came)
    left = run(broker, tmp_path, ("t", b"open"), seconds=24 * HOUR, closes=late + 1)
    assert left == [("t", b"late"), ("t", b"late"), ("t", b"open")]
    assert len(broker.came) - before > 24


def test_what_is_too_late_goes_once_the_broker_takes_its_topic_again(tmp_path: Path) -> None:
    async def report(sender: Sender, state: DeviceState) -> None:
        await asyncio.sleep(2 * HOUR)
        sender.send(await state.run(partial(outbox.put, topic="t", payload=b"new")), sender.now())

    broker = Broker(lambda *_: FORBIDDEN if now() < HOUR else TAKEN)
    late = milliseconds(WALL - LAST_COUNTED)
    later = lambda *both: asyncio.ensure_future(report(*both))  # noqa: E731 - as everywhere here
    assert run(broker, tmp_path, ("t", b"late"), seconds=3 * HOUR, closes=late, later=later) == []
    assert len(broker.times(b"late")) == 2
