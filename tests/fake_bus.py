"""The broker in memory as tests of the aggregator use it: it looks on, refuses, and brings tasks late."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

from hush_aggregator.broker.session import BrokerSession
from hush_common.errors import BrokerError
from hush_common.topics import ALL_REPORTS, ALL_TASKS, task_topic
from hush_simulations.brokers.memory import MemoryBroker

__all__ = ["FakeBus"]


class FakeBus(MemoryBroker):
    """A broker with one aggregator, whose session is there from the start.

    Args:
        window: most messages unacknowledged.
        retained_after: seconds after connecting at which the retained tasks come.
        refuses: how many attempts to connect are refused first.

    Attributes:
        published: everything retained that the aggregator published, in order.
        connections: how many there were; `up` is set with the first.
    """

    def __init__(self, *, window: int | None = None, retained_after: float = 0.0, refuses: int = 0) -> None:
        super().__init__("fake", window=window)
        self.published: list[tuple[str, bytes]] = []
        self.connections = 0
        self.up = asyncio.Event()
        self._retained_after = retained_after
        self._refuses = refuses

    @property
    def acknowledged(self) -> int:
        """How many messages were acknowledged."""
        return self.session().acknowledged

    @property
    def waiting(self) -> int:
        """How many messages are not acknowledged."""
        return len(self.session().waiting) + len(self.session().unacknowledged)

    def deliver(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """From the aggregator. Its own tasks do not come back to it: all that it acknowledges was sent."""
        if retain:
            self.published.append((topic, payload))
            self.retained[topic] = payload
            if not payload:
                del self.retained[topic]
        self.show(topic, payload)

    def send(self, topic: str, *payloads: bytes) -> None:
        """Messages for the aggregator, whatever their topic; they wait while it is away."""
        for payload in payloads:
            self.session().put(topic, payload)

    def retain(self, task_id: str, payload: bytes) -> None:
        """A retained task; an aggregator that is connected gets it now."""
        super().deliver(task_topic(task_id), payload, retain=True)

    async def emptied(self) -> None:
        """Wait until everything is acknowledged."""
        while self.waiting:  # noqa: ASYNC110 - a queue has no event
            await asyncio.sleep(0.001)

    @asynccontextmanager
    async def connect(self, filters: Sequence[str]) -> AsyncIterator[BrokerSession]:
        assert list(filters) == [ALL_TASKS, ALL_REPORTS]
        if self._refuses:
            self._refuses -= 1
            raise BrokerError(self.name, "cannot connect")
        self.connections += 1
        if self._retained_after:
            for topic, payload in self.retained_under(ALL_TASKS):
                del self.retained[topic]
                bring = partial(super().deliver, topic, payload, retain=True)
                asyncio.get_running_loop().call_later(self._retained_after, bring)
        async with self.bus().connect(filters) as session:
            self.up.set()
            yield session
