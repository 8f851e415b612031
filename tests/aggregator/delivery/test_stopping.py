"""A service that stops leaves estimates to the next start, which publishes them first."""

import asyncio
import json
import secrets
from contextlib import suppress
from pathlib import Path

import pytest
from scripted_broker import ScriptedBroker

from hush import Task
from hush_aggregator import Aggregator, Estimate, SqliteStore, release
from hush_aggregator.estimation import Failure, ThreadEstimator
from hush_aggregator.tally import Tally
from hush_common.task import make_task
from hush_common.topics import estimate_topic, report_topic, task_of_estimate_topic
from hush_common.wire import Report, encode_frame

TASKS = [make_task({"id": f"task-{k:03}", "epsilon": "1", "domain": {"kind": "bit"}}) for k in range(120)]


class Slow(ThreadEstimator):
    """Takes so many seconds for an estimate."""

    seconds = 0.0

    async def __call__(self, task: Task, tally: Tally, confidence: float) -> Estimate | Failure:
        await asyncio.sleep(self.seconds)
        return await super().__call__(task, tally, confidence)


def n(bus: ScriptedBroker, task: Task) -> int:
    return int(json.loads(bus.retained.get(estimate_topic(task.id), b'{"n":-1}'))["n"])


def released(bus: ScriptedBroker) -> list[str]:
    """Tasks whose estimates were published, in order."""
    return [task_id for topic, _ in bus.published if (task_id := task_of_estimate_topic(topic)) is not None]


@pytest.mark.virtual_time
async def test_what_was_not_published_before_a_stop_comes_first_after_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(release, "_LAST_S", 0.2)
    bus, slow = ScriptedBroker(retained={}), Slow()
    with SqliteStore(tmp_path / "store") as store:
        store.add_tasks(TASKS)
        async with asyncio.timeout(60):
            running = asyncio.create_task(Aggregator(bus, store, settle_s=0, estimator=slow).run(), name="first")
            while any(n(bus, task) < 0 for task in TASKS):  # noqa: ASYNC110 - a broker has no event for it
                await asyncio.sleep(0.01)
            slow.seconds = 0.02
            for task in TASKS[20:]:
                frame = encode_frame([Report(task.report_digest, 0, secrets.token_bytes(16), (1,))])
                bus.send(report_topic(task.id, "device"), frame)
            await bus.emptied()
            began = asyncio.get_running_loop().time()
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
            assert asyncio.get_running_loop().time() - began < 2
        assert "the next start releases them first" in caplog.text
        left = {task.id for task in TASKS[20:] if n(bus, task) == 0}
        assert len(left) > 20
        bus.published.clear()
        slow.seconds = 0.0
        async with asyncio.timeout(60):
            running = asyncio.create_task(Aggregator(bus, store, settle_s=0, estimator=slow).run(), name="second")
            while len(set(released(bus))) < len(TASKS):  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.01)
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
    assert set(released(bus)[: len(left)]) == left
    assert all(n(bus, task) == 1 for task in TASKS[20:])
