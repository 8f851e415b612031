"""A whole aggregator over a broker in memory that can be killed, in virtual time."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from secrets import token_bytes
from typing import Any

from virtual_time import VirtualLoop

from hush import Task
from hush_aggregator import Aggregator, SqliteStore
from hush_aggregator.home_assistant import Announcing
from hush_common.recall import Recall, decode_recall
from hush_common.task import make_task
from hush_common.topics import BROKER_DROPPED, BROKER_UPTIME, estimate_topic, recall_topic, report_topic
from hush_common.wire import Report, encode_frame
from hush_simulations.brokers.memory import MemoryBroker

__all__ = ["CLOSING", "DRAFT", "HEIGHTS", "HOUR", "START", "TOPIC", "WEEK", "Broker", "World", "frame", "living"]

START = datetime(2027, 3, 1, 12, tzinfo=UTC)
DRAFT = {"id": "heights", "epsilon": "1", "domain": {"kind": "number", "lower": 0.0, "upper": 1.0}}
HEIGHTS = make_task(DRAFT)
CLOSING = make_task(DRAFT | {"closes": "2027-03-01T13:00:00Z"})
TOPIC = recall_topic("heights")
HOUR, WEEK = 3600.0, 7 * 86400.0


class Broker(MemoryBroker):
    """A broker with an uptime, that can be killed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop
        self.started = loop.time()
        self.mute = False
        self.recalls: list[bytes] = []

    def deliver(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        if topic == TOPIC:
            self.recalls.append(payload)
        super().deliver(topic, payload, retain=retain)

    def say(self) -> None:
        if not self.mute:
            self.tell(BROKER_UPTIME, b"%d seconds" % (self._loop.time() - self.started))

    def kill(self, *, keep: bool = False) -> None:
        """SIGKILL, and up again; with `keep` it has an older snapshot, of the session too."""
        self.started = self._loop.time()
        sessions = dict(self._sessions)
        self.drop()
        if not keep:
            self._sessions.clear()
            self.retained.clear()
        for session in sessions.values():
            session.waiting.clear()
            session.unacknowledged.clear()
        self.about.clear()
        self.tell(BROKER_DROPPED, b"0")
        self.say()


@dataclass
class World:
    loop: VirtualLoop
    broker: Broker
    store: SqliteStore
    path: Path
    task: Task = HEIGHTS
    offset: timedelta = field(default_factory=timedelta)
    aggregator: Aggregator | None = None
    _running: "asyncio.Task[None] | None" = None

    def now(self) -> datetime:
        return START + timedelta(seconds=self.loop.time()) + self.offset

    def serve(self, *, for_s: float = 20, announcing: Announcing | None = None) -> None:
        self.aggregator = Aggregator(
            self.broker.bus(), self.store, tasks=(self.task,), clock=self.now, settle_s=0.1, announcing=announcing
        )
        self._running = self.loop.create_task(self.aggregator.run())
        self.wait(for_s)

    def stop(self) -> None:
        """The process ends, however."""
        if self._running is not None:
            self._running.cancel()
            with suppress(asyncio.CancelledError):
                self.loop.run_until_complete(self._running)
        self._running = None

    def wait(self, seconds: float) -> None:
        """Time passes; the broker says every ten seconds how long it is up."""

        async def pass_by() -> None:
            step = seconds if self._running is None else 10 if seconds < WEEK else 600
            for _ in range(int(seconds // step)):
                await asyncio.sleep(step)
                self.broker.say()
            await asyncio.sleep(seconds % step)

        self.loop.run_until_complete(pass_by())
        assert self._running is None or not self._running.done()

    def send(self, *frames: bytes) -> None:
        for frame in frames:
            self.broker.deliver(report_topic("heights", "device"), frame)
        self.wait(1)

    @property
    def open(self) -> Recall | None:
        return decode_recall(self.broker.retained.get(TOPIC, b""))

    @property
    def made(self) -> int:
        """How many different recalls there were."""
        return len({payload for payload in self.broker.recalls if payload})

    @property
    def n(self) -> int:
        return self.store.tally(self.task.digest, 0).n

    @property
    def estimate(self) -> dict[str, Any]:
        """The retained estimate."""
        document: dict[str, Any] = json.loads(self.broker.retained[estimate_topic("heights")])
        return document


@contextmanager
def living(path: Path) -> Iterator[World]:
    """Until the block ends; nothing runs yet."""
    loop = VirtualLoop()
    asyncio.set_event_loop(loop)
    with SqliteStore(path) as store:
        world = World(loop, Broker(loop), store, path)
        world.broker.tell(BROKER_DROPPED, b"0")
        world.broker.say()
        yield world
        world.stop()
    loop.close()
    asyncio.set_event_loop(None)


def frame(task: Task = HEIGHTS) -> bytes:
    return encode_frame([Report(task.report_digest, 0, token_bytes(16), (1,))])
