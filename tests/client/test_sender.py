"""How the sender comes back after an outage, and what it says when a connection ends; time is virtual."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from virtual_time import VirtualLoop

from hush_client.sending.sender import Sender
from hush_client.sending.transport import Link
from hush_client.state import outbox
from hush_client.state.database import DeviceState
from hush_client.tasks import TaskRegistry
from hush_common.errors import BrokerError
from hush_common.topics import Acknowledgement

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


def send(way: Way, state: Path, *waiting: bytes) -> None:
    """Three minutes of a sender, in virtual time."""

    async def run() -> None:
        opened = await DeviceState.open(state)
        for payload in waiting:
            await opened.run(partial(outbox.put, topic="topic", payload=payload))
        sender = Sender(way, opened, TaskRegistry(), lambda: datetime(2026, 1, 1, tzinfo=UTC))
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(180):
                    await sender.run()
        finally:
            await opened.close()

    loop = VirtualLoop()
    try:
        loop.run_until_complete(run())
    finally:
        loop.close()


@pytest.mark.parametrize(("drawn", "factor"), [(0, 1.0), (999, 1.999)])
def test_pauses_double_up_to_half_a_minute_and_stay_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drawn: int, factor: float
) -> None:
    way, jitter = Way([]), Jitter(drawn)
    monkeypatch.setattr("hush_common.aio.SystemRng", lambda: jitter)
    send(way, tmp_path)
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
def test_pauses_begin_anew_after_a_connection_that_was_good_for_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: Way, *, again: bool
) -> None:
    monkeypatch.setattr("hush_common.aio.SystemRng", lambda: Jitter(0))
    send(way, tmp_path, b"report")
    after = FIRST_PAUSES[:4] if again else FIRST_PAUSES[5:9]
    assert way.pauses()[5:9] == pytest.approx(after, abs=2e-3)


def test_an_acknowledged_report_is_not_sent_again(tmp_path: Path) -> None:
    way = Way([1.0, 1.0], acknowledges=True)
    send(way, tmp_path, b"report")
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
        send(Way([60.0]), tmp_path, b"lost", b"mistaken")
    assert caught.group_contains(LookupError, match="planted")
    assert caught.group_contains(BrokerError, match="lost")
