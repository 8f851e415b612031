"""Intake: how it stands with the reports that come in, at one moment."""

from collections.abc import Collection
from dataclasses import dataclass

__all__ = ["Intake"]


@dataclass(frozen=True, slots=True)
class Intake:
    """How the intake of an aggregator stands.

    Args:
        tasks: ids of the tasks that are counted.
        connected: whether there is a connection to the broker.
        waiting: messages that have come from it, and are in no batch yet.
        dropped: messages that the broker says it has dropped since it started; None if it has not said.
        without_room: tasks that are published and are not counted for lack of room.
    """

    tasks: Collection[str]
    connected: bool
    waiting: int
    dropped: int | None
    without_room: int = 0
