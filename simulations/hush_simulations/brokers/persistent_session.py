"""What a broker in memory keeps for an aggregator, connected or not."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

__all__ = ["Connected", "PersistentSession"]


class Connected(Protocol):
    """A connection of an aggregator.

    Attributes:
        listen: told what the broker says of itself, and of recalls.
        looks: told what is published under a topic, by topic.
    """

    listen: Callable[[str, bytes], object]
    looks: dict[str, Callable[[str, bytes], object]]

    def wake(self) -> None:
        """Something has come."""
        ...

    def lose(self) -> None:
        """It is lost."""
        ...


@dataclass(slots=True)
class PersistentSession:
    """What outlives a connection of an aggregator: its subscriptions, and the messages it has not acknowledged.

    Args:
        filters: topic filters subscribed to.
        known: whether somebody has connected to it.
        waiting: messages not handed over on the connection of now, in order.
        unacknowledged: messages handed over, by number, in order.
        acknowledged: how many messages were acknowledged.
        connection: the connection of now, if there is one.
    """

    filters: list[str] = field(default_factory=list)
    known: bool = False
    waiting: deque[tuple[str, bytes]] = field(default_factory=deque)
    unacknowledged: dict[int, tuple[str, bytes]] = field(default_factory=dict)
    acknowledged: int = 0
    connection: Connected | None = None

    def put(self, topic: str, payload: bytes) -> None:
        self.waiting.append((topic, payload))
        if self.connection is not None:
            self.connection.wake()

    def restore(self) -> None:
        """Put back what was handed over and never acknowledged, ahead of everything newer."""
        self.waiting.extendleft(reversed(self.unacknowledged.values()))
        self.unacknowledged.clear()

    def acknowledge(self, number: int) -> None:
        if self.unacknowledged.pop(number, None) is not None:
            self.acknowledged += 1
            if self.connection is not None:
                self.connection.wake()
