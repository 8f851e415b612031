"""The attacker writes two tasks whose digests begin alike, shows people one and counts answers to the other.

A real pair that shares 8 bytes takes 2^32 evaluations of SHA-256, too many for a test. So the hash function is replaced
by one whose first bytes are equal for all tasks: what is still told apart is told apart by the bytes after them. A
report carries 16 bytes. A pair that shares those takes 2^64, and the last test has what it would allow.
"""

import asyncio
import hashlib
import secrets
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from heights import make_heights
from scripted_broker import ScriptedBroker
from waiting import until

from hush import Task
from hush_aggregator import Aggregator, SqliteStore
from hush_client import Gateway, Reason
from hush_common.task import decode_task
from hush_common.topics import report_topic, task_topic
from hush_common.wire import Refusal, Report, encode_frame, encode_json

TOPIC = task_topic("heights")
Pair = Callable[[int], tuple[Task, Task]]


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Pair:
    """Two tasks under one id, of epsilon 0.1 and 4, whose digests share exactly so many bytes."""

    def made(shared: int) -> tuple[Task, Task]:
        def sha256(payload: bytes) -> SimpleNamespace:
            own = hashlib.sha256(payload).digest()
            return SimpleNamespace(digest=lambda: bytes(shared) + own[shared:])

        monkeypatch.setattr("hush_common.task.hashlib", SimpleNamespace(sha256=sha256))
        mild, dear = (decode_task(make_heights(epsilon=epsilon)) for epsilon in ("0.1", "4"))
        assert mild.digest[:shared] == dear.digest[:shared]
        assert mild.digest[shared] != dear.digest[shared]
        return mild, dear

    return made


@pytest.mark.parametrize("shared", [8, 16, 31])
async def test_to_a_device_that_has_admitted_one_of_them(tmp_path: Path, pair: Pair, shared: int) -> None:
    mild, dear = pair(shared)
    broker = ScriptedBroker(retained={TOPIC: mild.payload})
    async with Gateway(broker, name="g", state=tmp_path, spread=0) as gateway:
        assert (await gateway.report("d", "heights", 172.0)).status == "sent"
        broker.retain(TOPIC, dear.payload)
        await until(lambda: gateway.tasks()["heights"].epsilon == dear.epsilon)
        assert (await gateway.report("d", "heights", 172.0)).reason is Reason.TASK_CHANGED
        statement = await gateway.ledger("d")
    assert statement.spent == mild.epsilon
    with closing(sqlite3.connect(tmp_path / "hush.sqlite3")) as state:
        assert state.execute("SELECT digest FROM charge").fetchall() == [(mild.digest,)]


@pytest.mark.parametrize("shared", [8, 16, 31])
async def test_by_publishing_one_over_the_other(
    tmp_path: Path, pair: Pair, shared: int, caplog: pytest.LogCaptureFixture
) -> None:
    mild, dear = pair(shared)
    broker = ScriptedBroker(retained={})
    with SqliteStore(tmp_path / "store") as store:
        running = asyncio.create_task(Aggregator(broker.bus("aggregator"), store, tasks=(mild,), settle_s=0).run())
        await until(lambda: len(broker.retained) > 1)
        broker.deliver(TOPIC, dear.payload, retain=True)
        await until(lambda: broker.retained[TOPIC] == mild.payload)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
    assert "heights" in caplog.text


async def counted(path: Path, mild: Task, dear: Task) -> tuple[int, dict[Refusal, int]]:
    """Send a frame and a JSON report of the other task, and one of the right one; how many count, and why not more."""
    broker = ScriptedBroker(retained={})
    with SqliteStore(path) as store:
        running = asyncio.create_task(Aggregator(broker.bus("aggregator"), store, tasks=(mild,), settle_s=0).run())
        await until(lambda: len(broker.retained) > 1)
        reports = [Report(task.report_digest, 0, secrets.token_bytes(16), (7,)) for task in (dear, dear, mild)]
        payloads = encode_frame(reports[:1]), encode_json("heights", reports[1]), encode_frame(reports[2:])
        for payload in payloads:
            broker.deliver(report_topic("heights", "d"), payload)
        await until(lambda: store.tally(mild.digest, 0).n + sum(store.refused().values()) == len(payloads))
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        return store.tally(mild.digest, 0).n, store.refusals("heights")


@pytest.mark.parametrize("shared", [8, 15])
async def test_by_reports_of_the_other(tmp_path: Path, pair: Pair, shared: int) -> None:
    assert await counted(tmp_path / "store", *pair(shared)) == (1, {Refusal.WRONG_DIGEST: 2})


async def test_reports_of_one_that_shares_all_16_bytes_count(tmp_path: Path, pair: Pair) -> None:
    assert await counted(tmp_path / "store", *pair(16)) == (3, {})
