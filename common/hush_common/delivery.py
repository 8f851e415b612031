"""A message as it came from a broker."""

from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Delivery"]


def _nothing() -> None:
    """Acknowledge what needs no acknowledgement."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message as it came.

    Args:
        topic: the topic it came on; empty where that is none: no text, or with a wildcard in it.
        payload: its bytes, whatever they are.
        ack: sends the broker's acknowledgement on the connection the message came from; harmless once that
            connection is gone, and for a message that needs none.
    """

    topic: str
    payload: bytes
    ack: Callable[[], object] = field(default=_nothing, repr=False, compare=False)
