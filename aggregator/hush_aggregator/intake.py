"""Intake: the state of what comes in, at one moment."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

__all__ = ["Backlog", "Intake"]


@dataclass(frozen=True, slots=True)
class Backlog:
    """Reports that wait at the broker, and are being counted.

    Args:
        counted: reports counted since the backlog was noticed.
        rate: reports counted each second, over the last ten.
    """

    counted: int
    rate: float


@dataclass(frozen=True, slots=True)
class Intake:
    """The state of the intake of an aggregator.

    Args:
        tasks: ids of the tasks that are counted.
        connected: whether there is a connection to the broker, over which reports come.
        waiting: messages that have come from it, and are in no batch yet.
        dropped: messages that the broker says it has dropped since it started; None if it has not said.
        without_room: tasks that are published and are not counted for lack of room.
        backlog: None if reports are counted as they come.
        stored: messages that the broker holds for somebody, about; None if it does not tell.
        connections: how many there were since the start, by what they are for: `intake` and `control`.
        repeated: messages that came with a packet id that was in flight already.
    """

    tasks: Collection[str]
    connected: bool
    waiting: int
    dropped: int | None
    without_room: int = 0
    backlog: Backlog | None = None
    stored: int | None = None
    connections: Mapping[str, int] = field(default_factory=dict)
    repeated: int = 0
