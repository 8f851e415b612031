"""A real aggregator on a real broker for the length of a test, and what it has counted."""

import asyncio
import sqlite3
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

from servers import Mosquitto, need
from stored import read_ids

from hush import Task
from hush_aggregator import Aggregator, MqttBroker, SqliteStore
from hush_aggregator.store import CommitOutcome
from hush_common.broker_url import BrokerUrl
from hush_common.topics import status_topic

__all__ = ["aggregating", "counted", "refused", "shell"]


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
