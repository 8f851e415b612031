"""What comes from a broker: a message, and its answer to a publication."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

__all__ = ["Acknowledgement", "Delivery", "Source"]


class Source(Protocol):
    """Where a message came from: the connection that its acknowledgement goes to."""

    def acknowledge(self, numbers: Iterable[int]) -> None:
        """Acknowledge the messages with these numbers (`Delivery.number`); harmless once the connection is lost."""
        ...


class Delivery(NamedTuple):
    """One message.

    Args:
        topic: its topic; empty if that is invalid: not text, or with a wildcard in it.
        payload: its bytes, unchecked.
        number: its place in the order of receipt on its connection, from 1; 0 if it needs no acknowledgement.
        source: where it came from; None if it needs no acknowledgement.
    """

    topic: str
    payload: bytes
    number: int = 0
    source: Source | None = None

    def ack(self) -> None:
        """Acknowledge it alone; for many messages `Source.acknowledge` is quicker."""
        if self.source is not None:
            self.source.acknowledge((self.number,))


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """The broker's answer to a publication.

    Args:
        reason: the reason code. MQTT 3.1.1 has none: then it is 0, success.
        told: whether the broker could have given another: MQTT 5.
    """

    reason: int = 0
    told: bool = False
