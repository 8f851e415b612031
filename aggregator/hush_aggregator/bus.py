"""What the pipeline needs of a broker, and no more: a session that delivers batches, and publishes."""

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

__all__ = ["BATCH_LIMIT", "Bus", "Delivery", "Inbox", "Session"]

BATCH_LIMIT = 4096
"""Most messages in one batch."""


def _nothing() -> None:
    """Acknowledge what needs no acknowledgement."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message as it came.

    Args:
        topic: the topic it came on.
        payload: its bytes, whatever they are.
        ack: sends the broker's acknowledgement on the connection the message came from; harmless once that
            connection is gone, and for a message that needs none.
    """

    topic: str
    payload: bytes
    ack: Callable[[], object] = field(default=_nothing, repr=False, compare=False)


class Session(Protocol):
    """One connection to a broker."""

    async def batch(self) -> list[Delivery]:
        """Wait for a message, then hand over all that have come, in order (a bounded number).

        Cancelling it loses nothing: what it would have handed over comes with the next batch.

        Raises:
            BrokerError: the connection is lost.
        """
        ...

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Publish at QoS 1; return once the broker has acknowledged.

        Raises:
            BrokerError: the connection is lost, or no acknowledgement came in time.
        """
        ...


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


class Inbox:
    """Messages that came and were not handed over yet, in order.

    Args:
        messages: how many make it full.
        payload_bytes: how many bytes of payload make it full, however few messages they are.
    """

    def __init__(self, messages: int, payload_bytes: int) -> None:
        self._limits = messages, payload_bytes
        self._deliveries: deque[Delivery] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._deliveries)

    @property
    def full(self) -> bool:
        """Whether nothing more should come before something is taken. What comes all the same is kept."""
        messages, payload_bytes = self._limits
        return len(self._deliveries) >= messages or self._bytes >= payload_bytes

    def put(self, delivery: Delivery) -> None:
        self._deliveries.append(delivery)
        self._bytes += len(delivery.payload)

    def take(self) -> list[Delivery]:
        """The next batch; empty if nothing is there."""
        taken = [self._deliveries.popleft() for _ in range(min(len(self._deliveries), BATCH_LIMIT))]
        self._bytes -= sum(len(delivery.payload) for delivery in taken)
        return taken
