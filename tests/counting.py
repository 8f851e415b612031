"""A real aggregator on a real broker for the length of a test, and what it has counted."""

import asyncio
import sqlite3
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import aiomqtt
from servers import Mosquitto, need
from stored import read_ids

from hush import Task
from hush_aggregator import Aggregator, MqttBroker, SqliteStore
from hush_aggregator.store import CommitOutcome
from hush_common.broker_url import BrokerUrl
from hush_common.topics import ALL_REPORTS, status_topic
from hush_common.wire import Frame, decode

__all__ = ["Observer", "aggregating", "counted", "observing", "refused", "shell"]

_END = "test/end"  # no topic of reports, or the aggregator would count it too


def shell(program: str, port: int, *arguments: str) -> str:
    """What a program of mosquitto prints."""
    command = [need(program), "-p", str(port), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=240).stdout


@asynccontextmanager
async def aggregating(
    mosquitto: Mosquitto,
    path: Path,
    *,
    tasks: tuple[Task, ...],
    on_commit: Callable[[CommitOutcome], None] | None = None,
    any_task: bool = False,
) -> AsyncIterator[Aggregator]:
    """An aggregator that counts into the file `path`, subscribed when the block begins."""
    bus = MqttBroker(BrokerUrl.parse(mosquitto.url), "hush-aggregator-test", status=status_topic("test"))
    with SqliteStore(path) as store:
        aggregator = Aggregator(bus, store, tasks=tasks, on_commit=on_commit, any_task=any_task)
        running = asyncio.create_task(aggregator.run(), name="aggregator")
        try:
            await asyncio.to_thread(
                shell, "mosquitto_sub", mosquitto.port, "-t", status_topic("test"), "-C", "1", "-F", "%p", "-W", "60"
            )
            yield aggregator
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


def counted(path: Path) -> int:
    """How many reports are counted; the rows and the tally agree."""
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")  # both from one snapshot: the aggregator goes on committing
        rows = len(read_ids(reader))
        (n,) = reader.execute("SELECT coalesce(sum(n), 0) FROM tally").fetchone()
    assert rows == n
    return int(n)


def refused(path: Path) -> dict[str, int]:
    """How many reports were refused, by reason."""
    with closing(sqlite3.connect(path)) as reader:
        return dict(reader.execute("SELECT reason, sum(count) FROM refusal GROUP BY reason"))


@dataclass(slots=True)
class Observer:
    """An independent subscriber: what was on the topics of reports, whoever counted it.

    Attributes:
        arrivals: how often each report came, by the hexadecimal digits of its id.
        payloads: the bytes under which it came; more than one set of them is a fault.
    """

    arrivals: Counter[str] = field(default_factory=Counter)
    payloads: dict[str, set[bytes]] = field(default_factory=dict)
    _client: aiomqtt.Client = field(kw_only=True)

    @property
    def again(self) -> int:
        """How many arrivals were not the first of their report."""
        return self.arrivals.total() - len(self.arrivals)

    async def catch_up(self) -> None:
        """Take in everything that the broker acknowledged before this call."""
        await self._client.publish(_END, b"", qos=1)
        async for message in self._client.messages:
            if str(message.topic) == _END:
                return
            assert isinstance(message.payload, bytes)
            self.arrivals.update(self.compare(message.payload))

    def compare(self, payload: bytes) -> list[str]:
        """Keep the bytes under which reports came, or lie in an outbox; return their ids."""
        frame = decode(payload)
        assert isinstance(frame, Frame)
        ids = [report.id.hex() for report in frame.reports]
        for report_id in ids:
            self.payloads.setdefault(report_id, set()).add(payload)
        return ids


@asynccontextmanager
async def observing(mosquitto: Mosquitto) -> AsyncIterator[Observer]:
    """A subscriber to all reports."""
    async with aiomqtt.Client("127.0.0.1", mosquitto.port) as client:
        await client.subscribe([(ALL_REPORTS, 1), (_END, 1)])
        yield Observer(_client=client)
