"""What comes from a broker: a message, and what it says to one of ours."""

from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Acknowledgement", "Delivery"]


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


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """What the broker said to a publication.

    Args:
        reason: the reason code. MQTT 3.1.1 has none: then it is 0, success.
        told: whether it could have been another: MQTT 5.
    """

    reason: int = 0
    told: bool = False
