"""The broker as the pipeline sees it: a session that delivers batches of messages, and publishes."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from hush_common.delivery import Delivery

__all__ = ["BATCH_LIMIT", "Bus", "Delivery", "Publisher", "Session", "SessionAround"]

BATCH_LIMIT = 4096
"""Most messages in one batch."""


class Publisher(Protocol):
    """Where something can be published."""

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Publish at QoS 1; return once the broker has acknowledged.

        Raises:
            BrokerError: the connection is lost, or no acknowledgement came in time.
        """
        ...


class Session(Publisher, Protocol):
    """One connection to a broker."""

    @property
    def waiting(self) -> int:
        """Messages that have come, and are in no batch yet."""
        ...

    @property
    def resumed(self) -> bool:
        """Whether the broker had kept the session of before, with all that waited in it as far as it remembers."""
        ...

    async def watch(self, listen: Callable[[str, bytes], object]) -> None:
        """Give what the broker says about itself, and recalls, to `listen`, by topic, at once, while it is connected.

        Its uptime and how many messages it has dropped, where it says so; and all of it where this user may read it.

        Raises:
            BrokerError: the connection is lost.
        """
        ...

    async def look(self, topics: Sequence[str], listen: Callable[[str, bytes], object]) -> None:
        """Give what is retained and published on topics of tasks and estimates to `listen`, at once, until the end.

        One's own messages come back too, after what was retained before them. Those of tasks are in a `batch` as well.
        What this user may not read does not come.

        Raises:
            BrokerError: the connection is lost.
        """
        ...

    async def hear(self, topic: str, listen: Callable[[str, bytes], object]) -> None:
        """Give what is published on one more topic, of two levels the second of which is `status`, to `listen`.

        At once, while it is connected, and if this user may read it.

        Raises:
            BrokerError: the connection is lost.
        """
        ...

    async def batch(self) -> list[Delivery]:
        """Wait for a message, then hand over all that have come, in order (a bounded number).

        Cancelling it loses nothing: what it would have handed over comes with the next batch.

        Raises:
            BrokerError: the connection is lost.
        """
        ...


class SessionAround:
    """A `Session` that does as the one inside; who makes a difference overrides where it is.

    Args:
        inner: the session inside.
    """

    def __init__(self, inner: Session) -> None:
        self._session = inner

    @property
    def waiting(self) -> int:
        return self._session.waiting

    @property
    def resumed(self) -> bool:
        return self._session.resumed

    async def watch(self, listen: Callable[[str, bytes], object]) -> None:
        await self._session.watch(listen)

    async def look(self, topics: Sequence[str], listen: Callable[[str, bytes], object]) -> None:
        await self._session.look(topics, listen)

    async def hear(self, topic: str, listen: Callable[[str, bytes], object]) -> None:
        await self._session.hear(topic, listen)

    async def batch(self) -> list[Delivery]:
        return await self._session.batch()

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        await self._session.publish(topic, payload, retain=retain)


class Bus(Protocol):
    """A broker, seen by an aggregator."""

    @property
    def name(self) -> str:
        """What to call it in a message: its address, without a password."""
        ...

    def connect(self, filters: Sequence[str]) -> AbstractAsyncContextManager[Session]:
        """Open the session of this aggregator and subscribe to `filters` in order, at QoS 1.

        Messages that came while nobody was connected, and those never acknowledged, are delivered (again), perhaps
        before the retained messages are.

        Raises:
            BrokerError: the broker is not there, or refuses.
        """
        ...
