"""Keeping: how long, and how much of, what the broker has acknowledged stays on the device in case it is recalled."""

from dataclasses import dataclass

from hush_client.limits import DEVICE_BYTES

__all__ = ["HOUR", "Keeping"]

HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Keeping:
    """How a device keeps what it has sent.

    Args:
        sender: in the topics of its reports.
        keep: seconds from an acknowledgement on, at most a week; 0 keeps nothing.
        room: most bytes, of payloads, topics and the name of the broker.
        every: seconds between two recalls of a task that are obeyed.
    """

    sender: str = "nobody"
    keep: float = 0.0
    room: int = DEVICE_BYTES
    every: float = HOUR
