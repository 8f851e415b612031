"""How the sender comes back after an outage, and what it does with reports that are not taken; time is virtual."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from device_state import FILE_NAME, DeviceState, opened_state
from virtual_time import in_virtual_time

from hush_client.sending.sender import Sender
from hush_client.sending.transport import Link
from hush_client.state import outbox
from hush_client.tasks import TaskRegistry
from hush_common.errors import BrokerError
from hush_common.recall import LAST_COUNTED
from hush_common.topics import Acknowledgement

Later = Callable[[Sender, DeviceState], Coroutine[Any, Any, None]]
LOST = BrokerError("fake", "lost")
FIRST_PAUSES = [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8]
"""Seconds, where the jitter is least; then they are 15."""


@dataclass
class Way:
    """A way to a broker that is away again and again.

    Args:
        lasts: seconds after which each connection is lost; None where the attempt fails, as all later ones do.
        sends: whether the broker sends a message at once.
        acknowledges: whether it acknowledges what is published.
    """

    lasts: list[float | None]
    sends: bool = False
    acknowledges: bool = False
    name: str = "fake"
    published: list[bytes] = field(default_factory=list)
    attempts: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Link]:
        self.attempts.append(asyncio.get_running_loop().time())
        number = len(self.attempts) - 1
        seconds = self.lasts[number] if number < len(self.lasts) else None
        try:
            if seconds is None:
                raise LOST
            yield PoorLink(self, seconds)
        finally:
            self.ends.append(asyncio.get_running_loop().time())

    def pauses(self) -> list[float]:
        """Seconds from each end to the next attempt."""
        pairs = zip(self.ends, self.attempts[1:], strict=False)
        return [round(attempt - end, 3) for end, attempt in pairs]


@dataclass
class PoorLink:
    way: Way
    seconds: float

    async def receive(self) -> tuple[str, bytes]:
        if self.way.sends:
            self.way.sends = False
            return "topic", b"payload"
        await asyncio.sleep(self.seconds)
        raise LOST

    async def publish(self, _topic: str, payload: bytes) -> Acknowledgement:
        self.way.published.append(payload)
        if not self.way.acknowledges:
            await asyncio.Event().wait()
        return Acknowledgement()

    async def subscribe(self, topic: str) -> None:
        raise NotImplementedError(topic)


class Jitter:
    """The same draw again and again."""

    def __init__(self, drawn: int) -> None:
        self.drawn, self.bounds = drawn, set[int]()

    def randbelow(self, n: int, /) -> int:
        self.bounds.add(n)
        return self.drawn

    def token_bytes(self, count: int, /) -> bytes:
        raise NotImplementedError(count)


HOUR = 3600.0
WALL = datetime(2026, 1, 1, tzinfo=UTC)


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


TAKEN, NOBODY, FORBIDDEN, TOO_LARGE, QUOTA, INVALID = 0, 0x10, 0x87, 0x95, 0x97, 0x99


def run(
    broker: Broker | Way,
    directory: Path,
    *waiting: tuple[str, bytes],
    seconds: float = 180,
    closes: int | None = None,
    later: Later | None = None,
) -> list[tuple[str, bytes]]:
    """A sender in virtual time, and what its outbox holds in the end."""

    async def send() -> list[tuple[str, bytes]]:
        async with opened_state(directory) as state:
            for topic, payload in waiting:
                await state.run(partial(outbox.put, topic=topic, payload=payload, closes=closes))
            sender = Sender(broker, state, TaskRegistry(), lambda: WALL)
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    other = asyncio.create_task(later(sender, state)) if later else None
                    await sender.run()
            del other
            return [
                (entry.topic, entry.payload) for entry in await state.run(partial(outbox.page, after=0, limit=9999))
            ]

    return in_virtual_time(send())


def numbered(count: int) -> list[tuple[str, bytes]]:
    return [("t", b"%d" % number) for number in range(count)]


@pytest.mark.parametrize(("drawn", "factor"), [(0, 1.0), (999, 1.999)])
def test_pauses_double_up_to_half_a_minute_and_stay_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drawn: int, factor: float
) -> None:
    way, jitter = Way([]), Jitter(drawn)
    monkeypatch.setattr("hush_common.aio.SystemRng", lambda: jitter)
    run(way, tmp_path)
    pauses = [*FIRST_PAUSES, 15, 15, 15]
    assert way.pauses()[: len(pauses)] == pytest.approx([factor * pause for pause in pauses], abs=2e-3)
    assert jitter.bounds == {1000}


@pytest.mark.parametrize(
    ("way", "again"),
    [
        (Way([None] * 5 + [29.0]), False),
        (Way([None] * 5 + [31.0]), True),
        (Way([None] * 5 + [0.1], sends=True), True),
        (Way([None] * 5 + [0.1], acknowledges=True), True),
    ],
    ids=["a short connection", "a long one", "a message", "an acknowledgement"],
)
def test_pauses_begin_anew_after_a_useful_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: Way, *, again: bool
) -> None:
    monkeypatch.setattr("hush_common.aio.SystemRng", lambda: Jitter(0))
    run(way, tmp_path, ("t", b"report"))
    after = FIRST_PAUSES[:4] if again else FIRST_PAUSES[5:9]
    assert way.pauses()[5:9] == pytest.approx(after, abs=2e-3)


def test_an_acknowledged_report_is_not_sent_again(tmp_path: Path) -> None:
    way = Way([1.0, 1.0], acknowledges=True)
    run(way, tmp_path, ("t", b"report"))
    assert len(way.attempts) > 2
    assert way.published == [b"report"]


def test_a_programming_error_is_not_hidden_by_a_lost_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def publish(_link: PoorLink, _topic: str, payload: bytes) -> None:
        if payload == b"mistaken":
            raise LookupError("planted")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise LOST from None

    monkeypatch.setattr(PoorLink, "publish", publish)
    with pytest.raises(ExceptionGroup) as caught:
        run(Way([60.0]), tmp_path, ("t", b"lost"), ("t", b"mistaken"))
    assert caught.group_contains(LookupError, match="planted")
    assert caught.group_contains(BrokerError, match="lost")


@pytest.mark.parametrize("reason", [NOBODY, FORBIDDEN, QUOTA])
def test_a_refused_report_is_retried_ever_more_rarely(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, reason: int
) -> None:
    versions = []

    async def look(_sender: Sender, _state: DeviceState) -> None:
        with closing(sqlite3.connect(tmp_path / FILE_NAME)) as onlooker:
            for _ in range(20):
                await asyncio.sleep(HOUR)
                versions.append(onlooker.execute("PRAGMA data_version").fetchone())

    broker = Broker(lambda topic, _: reason if topic == "closed" else TAKEN)
    left = run(broker, tmp_path, ("closed", b"refused"), ("open", b"taken"), seconds=24 * HOUR, later=look)
    assert left == [("closed", b"refused")]
    assert len(broker.times(b"taken")) == 1
    times = broker.times(b"refused")
    pauses = [after - before for before, after in pairwise(times)]
    assert 24 <= len(times) <= 60
    assert 5 <= pauses[0] <= 10.1
    assert all(after >= before for before, after in zip(pauses[:6], pauses[2:8], strict=True))
    assert all(HOUR / 2 <= pause <= HOUR + 0.1 for pause in pauses[10:])
    assert len(versions) == 20
    assert len(set(versions)) == 1, "a retry writes nothing to the disk"
    assert len([record for record in caplog.records if "closed" in record.getMessage()]) == 1


@pytest.mark.parametrize("reason", [TOO_LARGE, INVALID, 0xFF])
def test_a_refused_report_holds_up_no_other_of_its_topic(tmp_path: Path, reason: int) -> None:
    broker = Broker(lambda _, payload: reason if payload == b"refused" else TAKEN)
    left = run(broker, tmp_path, ("t", b"refused"), *numbered(100), seconds=HOUR)
    assert left == [("t", b"refused")]
    others = [moment for moment, _, payload in broker.came if payload != b"refused"]
    assert len(others) == 100
    assert max(others) < 10
    assert 8 <= len(broker.times(b"refused")) <= 13


@pytest.mark.medium
def test_one_refused_report_probes_for_all_of_its_topic(tmp_path: Path) -> None:
    mended = 6 * HOUR
    broker = Broker(lambda _, __: FORBIDDEN if now() < mended else TAKEN)
    assert run(broker, tmp_path, *numbered(200), seconds=8 * HOUR) == []
    probes = [moment for moment, _, _ in broker.came if 1 < moment < mended]
    assert len(probes) < 40, "each of them would be 4000"
    after = [payload for moment, _, payload in broker.came if moment >= mended]
    assert sorted(after) == sorted(payload for _, payload in numbered(200)), "each once"
    assert max(moment for moment, _, _ in broker.came) < mended + HOUR + 60


@pytest.mark.parametrize("said", [TOO_LARGE, None], ids=["with a reason", "in silence"])
def test_a_report_that_ends_the_connection_blocks_no_other(tmp_path: Path, said: int | None) -> None:
    end = BrokerError("scripted", "the connection ended", reason=said)
    broker = Broker(lambda _, payload: end if payload == b"odd" else TAKEN)
    left = run(broker, tmp_path, ("t", b"odd"), *numbered(100), seconds=HOUR)
    assert left == [("t", b"odd")]
    assert len(broker.times(b"odd")) <= (13 if said else 17)
    assert max(moment for moment, _, payload in broker.came if payload != b"odd") < (10 if said else 60)


def test_a_new_report_asks_at_once_where_the_last_answer_is_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "hush_common.aio.SystemRng", lambda: Jitter(500)
    )  # after 7.5, 22.5, … 1912.5: never near an hour
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
    left = run(broker, tmp_path, ("t", b"old"), seconds=2 * HOUR + 60, later=report)
    assert left == [], "what is taken of the new one lets the old ones go"
    assert [answer.reason for answer in said if answer] == [FORBIDDEN, FORBIDDEN, TAKEN]
    assert broker.times(b"soon")[0] > 2, "it was told what had just been said to another"
    assert broker.times(b"later")[0] == pytest.approx(HOUR, abs=1)


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
    run(broker, tmp_path, *entries, seconds=60, later=wait)
    ((empty, moment),) = told
    assert not empty
    assert moment < 1


@pytest.mark.medium
@pytest.mark.parametrize("reason", [FORBIDDEN, TOO_LARGE])
def test_what_is_too_late_to_be_counted_is_tried_once_a_start_and_stays(tmp_path: Path, reason: int) -> None:
    late = int((WALL - LAST_COUNTED).timestamp() * 1000)
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
    late = int((WALL - LAST_COUNTED).timestamp() * 1000)
    assert run(broker, tmp_path, ("t", b"late"), seconds=3 * HOUR, closes=late, later=report) == []
    assert len(broker.times(b"late")) == 2
