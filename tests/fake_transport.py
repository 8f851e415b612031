"""The broker in memory as tests of the device use it: it looks on, and fails on demand."""

import sqlite3
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from hush_client.privacy.answer import Answer, Question, answer
from hush_client.sending.transport import Link
from hush_common.domain import ParsedValue
from hush_common.errors import BrokerError
from hush_common.rng import ReportRng, SystemRng
from hush_common.task import make_task
from hush_common.topics import Acknowledgement, task_topic
from hush_simulations.brokers.faulty import Fate, FaultyTransport
from hush_simulations.brokers.memory import MemoryBroker

__all__ = ["HEIGHTS", "FakeTransport", "Fate", "RecordingRng", "answer_one", "make_heights"]


def make_heights(**changes: object) -> bytes:
    """The payload of a task about heights, with some fields changed."""
    document: dict[str, object] = {
        "id": "heights",
        "purpose": "workplaces",
        "epsilon": "1",
        "domain": {"kind": "number", "lower": 120.0, "upper": 220.0},
    }
    return make_task(document | changes).payload


HEIGHTS = make_heights()


def answer_one(
    connection: sqlite3.Connection, question: Question, value: ParsedValue, rng: ReportRng, *, device: str = "d"
) -> Answer:
    """Answer for one device alone."""
    return answer(connection, question, {device: value}, rng)[device]


class RecordingRng:
    """The system's randomness, counted."""

    def __init__(self) -> None:
        self.draws = 0

    def randbelow(self, n: int, /) -> int:
        self.draws += 1
        return SystemRng().randbelow(n)

    def token_bytes(self, count: int, /) -> bytes:
        self.draws += 1
        return SystemRng().token_bytes(count)

    def report_id(self) -> bytes:
        return self.token_bytes(16)


class FakeTransport:
    """One broker, which every connection of a test shares.

    Args:
        retained: payloads by topic, handed out on subscription; a task about heights if left out.
        refusals: errors of the next attempts to connect.
        forbidden: topics that may not be subscribed.
        on_publish: called before each publication.

    Attributes:
        faults: what happens to the next publications, one each; acknowledged at once when there are none left.
        answers: what is said to the next ones that are acknowledged, one each; that all is well when none is left.
        attempts: every publication, whether it arrived or not.
        arrived: those that did.
    """

    def __init__(
        self,
        *,
        retained: dict[str, bytes] | None = None,
        refusals: deque[str] | None = None,
        forbidden: frozenset[str] = frozenset(),
        on_publish: Callable[[], object] = lambda: None,
    ) -> None:
        broker = _Broker("fake://broker")
        broker.retained = {task_topic("heights"): HEIGHTS} if retained is None else retained
        broker.forbidden |= forbidden
        self.name = broker.name
        self.faults: deque[Fate] = deque()
        self.answers: deque[Acknowledgement] = deque()
        self.refusals = deque[str]() if refusals is None else refusals
        self.attempts: list[tuple[str, bytes]] = []
        self.arrived = broker.arrived
        self.connections = 0
        self.on_publish = on_publish
        self._broker = broker
        self._way = FaultyTransport(broker.transport(), self._fate)

    @property
    def retained(self) -> dict[str, bytes]:
        return self._broker.retained

    @retained.setter
    def retained(self, payloads: dict[str, bytes]) -> None:
        self._broker.retained = payloads

    def drop(self) -> None:
        """Cut the present connection."""
        self._way.drop()

    def allow(self, topic: str) -> None:
        """Let a topic be subscribed from now on."""
        self._broker.forbidden.discard(topic)

    def publish_task(self, topic: str, payload: bytes) -> None:
        """Retain a payload and hand it to the present connection."""
        self._broker.deliver(topic, payload, retain=True)

    def subscribed(self, topic: str) -> bool:
        """Whether the present connection has subscribed to `topic`."""
        return any(topic in link.filters for link in self._broker._links)

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Link]:
        if self.refusals:
            raise BrokerError(self.name, self.refusals.popleft())
        self.connections += 1
        async with self._way.connect() as link:
            yield _Answering(link, self.answers)

    def _fate(self, topic: str, payload: bytes) -> Fate:
        self.attempts.append((topic, payload))
        self.on_publish()
        return self.faults.popleft() if self.faults else Fate.GOOD


class _Answering:
    """A link of a broker that says what it is told to."""

    def __init__(self, inner: Link, answers: deque[Acknowledgement]) -> None:
        self._inner = inner
        self._answers = answers
        self.subscribe = inner.subscribe
        self.receive = inner.receive

    async def publish(self, topic: str, payload: bytes) -> Acknowledgement:
        answer = await self._inner.publish(topic, payload)
        return self._answers.popleft() if self._answers else answer


class _Broker(MemoryBroker):
    """Keeps what devices sent."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.arrived: list[tuple[str, bytes]] = []

    def deliver(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        if not retain:
            self.arrived.append((topic, payload))
        super().deliver(topic, payload, retain=retain)
