"""Recalls by hand, in virtual time: an aggregator that asks, a device that has kept what it sent, and its disk."""

import asyncio
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from heights import HEIGHTS
from scripted_broker import ScriptedBroker
from virtual_time import in_virtual_time

from hush_client import Gateway
from hush_client.state.database import FILE_NAME
from hush_common.recall import Recall, encode_recall
from hush_common.task import digest_of
from hush_common.topics import recall_topic

__all__ = ["START", "Wall", "in_virtual_time", "kept", "make_recall", "opened", "publish", "recalled"]

START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Wall:
    """The clock of the wall, which goes with the loop's until a test sets it.

    Args:
        ahead: how far it is ahead of where it began, beside the loop's time.
    """

    ahead: timedelta = field(default_factory=timedelta)

    def __call__(self) -> datetime:
        return START + self.ahead + timedelta(seconds=asyncio.get_running_loop().time())


def opened(broker: ScriptedBroker, state: Path, clock: Wall, **options: Any) -> Gateway:  # noqa: ANN401 - of a Gateway
    return Gateway(broker, state=state, clock=clock, **{"name": "g", "spread": 0, **options})


def make_recall(number: int, *, over: int = 60, task: str = "heights", payload: bytes = HEIGHTS) -> Recall:
    return Recall(task, digest_of(payload), number.to_bytes(16, "big"), over)


def publish(broker: ScriptedBroker, recall: Recall) -> None:
    broker.retain(recall_topic(recall.task), encode_recall(recall))


def recalled(broker: ScriptedBroker) -> Counter[bytes]:
    """How often each payload arrived beyond the first time."""
    return Counter(payload for _, payload in broker.arrived) - Counter({payload for _, payload in broker.arrived})


def kept(state: Path, select: str = "SELECT sequence FROM kept ORDER BY sequence") -> list[Any]:
    with closing(sqlite3.connect(state / FILE_NAME)) as connection:
        rows = connection.execute(select).fetchall()
    return [row[0] if len(row) == 1 else row for row in rows]
