"""A faulty link to a good broker: it breaks, loses messages, and acknowledges late, twice or never."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum, auto

from hush_client.sending.transport import Link, Transport
from hush_common.errors import BrokerError
from hush_common.topics import Acknowledgement

_PATIENCE_SECONDS = 30.0  # until a client gives up on an acknowledgement, as the MQTT client does


class Fate(Enum):
    """What happens to a publication."""

    GOOD = auto()
    LATE = auto()
    """It arrives; the acknowledgement is late."""
    TWICE = auto()
    """It arrives twice, as QoS 1 allows."""
    NEVER = auto()
    """It arrives; it is never acknowledged."""
    LOST = auto()
    """The link breaks before it arrives."""
    FORGOTTEN = auto()
    """It is acknowledged, and never delivered."""
    REORDERED = auto()
    """It waits until a later one has arrived, or for a moment if there is none."""
    CUT = auto()
    """It arrives; the link breaks before the acknowledgement."""


@dataclass(slots=True)
class FaultyTransport:
    """A transport around another, with the `fate` of each publication, and the seconds by which one is late."""

    inner: Transport
    fate: Callable[[str, bytes], Fate]
    lateness: Callable[[], float] = lambda: 1.0
    reachable: bool = True
    _link: "_FaultyLink | None" = field(default=None, init=False)

    @property
    def name(self) -> str:
        return self.inner.name

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Link]:
        if not self.reachable:
            raise BrokerError(self.name, "cannot connect")
        async with self.inner.connect() as inner:
            self._link = link = _FaultyLink(self, inner)
            try:
                yield link
            finally:
                link.lose()
                self._link = None

    def drop(self) -> None:
        """Break the current link, if there is one."""
        if self._link is not None:
            self._link.lose()


class _FaultyLink:
    def __init__(self, transport: FaultyTransport, inner: Link) -> None:
        self._transport = transport
        self._inner = inner
        self._lost = asyncio.Event()
        self._begun = 0
        self._waiting: dict[int, asyncio.Event] = {}  # to be overtaken, by when they were published

    def lose(self) -> None:
        self._lost.set()
        for overtaken in self._waiting.values():
            overtaken.set()

    async def publish(self, topic: str, payload: bytes) -> Acknowledgement:
        fate = self._transport.fate(topic, payload)
        if fate is Fate.LOST:
            self.lose()
        self._check()
        if fate is Fate.FORGOTTEN:
            return Acknowledgement()
        number = self._begun = self._begun + 1
        if fate is Fate.REORDERED:
            await self._be_overtaken(number)
            self._check()
        answer = await self._inner.publish(topic, payload)
        for earlier, overtaken in self._waiting.items():
            if earlier < number:
                overtaken.set()
        match fate:
            case Fate.TWICE:
                await self._inner.publish(topic, payload)
            case Fate.CUT:
                self.lose()
            case Fate.LATE:
                await self._stay(self._transport.lateness())
            case Fate.NEVER:
                await self._stay(_PATIENCE_SECONDS)
                self.lose()
        self._check()
        return answer

    async def subscribe(self, topic: str) -> None:
        self._check()
        await self._inner.subscribe(topic)

    async def receive(self) -> tuple[str, bytes]:
        message = asyncio.ensure_future(self._inner.receive())
        lost = asyncio.ensure_future(self._lost.wait())
        try:
            await asyncio.wait((message, lost), return_when=asyncio.FIRST_COMPLETED)
            if not message.done():
                raise self._error()
            return message.result()
        finally:
            message.cancel()
            lost.cancel()

    async def _be_overtaken(self, number: int) -> None:
        """Wait until a later one has arrived, at most as long as a late one takes."""
        self._waiting[number] = overtaken = asyncio.Event()
        try:
            async with asyncio.timeout(self._transport.lateness()):
                await overtaken.wait()
        except TimeoutError:
            return
        finally:
            del self._waiting[number]

    async def _stay(self, seconds: float) -> None:
        """Wait, or until the link is lost."""
        try:
            async with asyncio.timeout(seconds):
                await self._lost.wait()
        except TimeoutError:
            return

    def _check(self) -> None:
        if self._lost.is_set():
            raise self._error()

    def _error(self) -> BrokerError:
        return BrokerError(self._transport.name, "the connection is lost")
