"""The broker as the pipeline sees it: a session that delivers batches of messages, and publishes."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from hush_common.topics import Delivery

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

    @property
    def repeated(self) -> int:
        """How many messages came on this connection with a packet id that was in flight already."""
        ...

    @property
    def current_until(self) -> float:
        """The newest moment (time of the event loop) for which it is known that all has come that was sent before it.

        Behind a backlog of reports an answer may be minutes late, and nothing follows from that.
        """
        ...

    async def watch(self, listen: Callable[[str, bytes], object]) -> None:
        """Give what the broker says about itself, and recalls, to `listen`, by topic, at once, while it is connected.

        Its version and uptime, the messages that it holds and has dropped, if it tells; and if this user may read it.

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
            BrokerError: the connection is lost, or the broker refuses a subscription.
        """
        ...

    def acknowledge(self, numbers: Iterable[int]) -> None:
        """Acknowledge messages by their numbers. Each is told to the broker after all that came before it.

        Harmless once the connection is lost; 0 is the number of a message that needs none.
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

    @property
    def repeated(self) -> int:
        return self._session.repeated

    @property
    def current_until(self) -> float:
        return self._session.current_until

    def acknowledge(self, numbers: Iterable[int]) -> None:
        self._session.acknowledge(numbers)

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
        """Open the session of this aggregator; it subscribes to `filters` in order, at QoS 1.

        A new session is subscribed on entering. To one that is resumed, messages that came while nobody was connected,
        and those never acknowledged, are delivered (again) at once: before the broker answers the subscription, and
        before the retained messages.

        Raises:
            BrokerError: the broker is not there, or refuses.
        """
        ...
