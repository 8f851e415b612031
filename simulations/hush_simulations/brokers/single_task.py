"""The broker as the aggregator of a simulation sees it: its own task only, and nothing left behind."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from hush_aggregator.broker.session import Bus, Session
from hush_common.errors import BrokerError
from hush_common.topics import ALL_REPORTS, ALL_TASKS, estimate_topic, report_topic, status_topic, task_topic

__all__ = ["SingleTaskBus", "tidy"]

_TIDY_SECONDS = 10.0


class SingleTaskBus:
    """A bus that serves one task only, and remembers whether it is connected.

    Without the first, a simulation on a shared broker would collect everybody's reports and publish estimates made of
    whatever part of them it saw.

    Args:
        bus: the bus itself.
        task_id: the task of the simulation.

    Attributes:
        attempted: set once the first attempt to connect has ended, either way.
        connected: set while there is a connection.
        troubled: set while there is none, from the first failure on.
        trouble: why the last attempt or connection ended, or None.
    """

    def __init__(self, bus: Bus, task_id: str) -> None:
        self.attempted: asyncio.Event = asyncio.Event()
        self.connected: asyncio.Event = asyncio.Event()
        self.troubled: asyncio.Event = asyncio.Event()
        self.trouble: BrokerError | None = None
        self._bus = bus
        self._own = {
            ALL_TASKS: task_topic(task_id),
            ALL_REPORTS: report_topic(task_id, "sender").removesuffix("sender") + "+",
        }

    @property
    def name(self) -> str:
        return self._bus.name

    @asynccontextmanager
    async def connect(self, filters: Sequence[str]) -> AsyncIterator[Session]:
        try:
            async with self._bus.connect([self._own.get(wanted, wanted) for wanted in filters]) as session:
                self.trouble = None
                self.troubled.clear()
                self.connected.set()
                self.attempted.set()
                yield session
        except BrokerError as error:
            self.trouble = error
            self.troubled.set()
            self.attempted.set()
            raise
        finally:
            self.connected.clear()


async def tidy(bus: Bus, task_id: str, aggregator: str) -> None:
    """Clear the retained messages of a simulation and the session of its aggregator; do nothing if that fails.

    Args:
        bus: the broker, under the client id of the aggregator; connecting once with a clean session ends its
            persistent one.
        task_id: the task of the simulation.
        aggregator: the aggregator's name in its status topic.
    """
    topics = (task_topic(task_id), estimate_topic(task_id), status_topic(aggregator))
    with suppress(BrokerError, TimeoutError):
        async with asyncio.timeout(_TIDY_SECONDS), bus.connect(()) as session:
            for topic in topics:
                await session.publish(topic, b"", retain=True)
