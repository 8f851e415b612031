"""A service that stops ends in time, and leaves estimates to the next start, which publishes them first."""

import asyncio
import json
import signal
from pathlib import Path

import pytest
from broker_world import World, living
from processes import Serve
from servers import Mosquitto

from hush import Task
from hush_aggregator import Estimate, SqliteStore
from hush_aggregator.estimate.process import Failure, ThreadEstimator
from hush_aggregator.estimate.tally import Tally
from hush_common.task import make_task
from hush_common.topics import estimate_topic, report_topic
from hush_common.wire import Report, encode_frame

TASKS = [make_task({"id": f"task-{k:03}", "epsilon": "1", "domain": {"kind": "bit"}}) for k in range(60)]
LIMIT_S = 5.0  # containers are killed after ten


class Slow(ThreadEstimator):
    """Takes so many seconds for an estimate."""

    seconds = 0.0

    async def __call__(self, task: Task, tally: Tally, confidence: float) -> Estimate | Failure:
        await asyncio.sleep(self.seconds)
        return await super().__call__(task, tally, confidence)


def n(world: World, task: Task) -> int:
    return int(json.loads(world.broker.retained[estimate_topic(task.id)])["n"])


@pytest.mark.medium
def test_what_was_not_published_before_a_stop_comes_first_afterwards(memory_path: Path) -> None:
    slow = Slow()
    with living(memory_path / "store") as world:
        world.store.add_tasks(TASKS)
        world.serve(tasks=(), estimator=slow, for_s=20)
        slow.seconds = 0.1
        for task in TASKS[10:]:
            report = Report(task.report_digest, 0, bytes(16), (1,))
            world.broker.deliver(report_topic(task.id, "device"), encode_frame([report]))
        world.wait(0.2)
        began = world.loop.time()
        world.stop()
        assert world.loop.time() - began < LIMIT_S
        left = {task.id for task in TASKS[10:] if n(world, task) == 0}
        assert 10 < len(left) < 50
        slow.seconds = 0.0
        world.published.clear()
        world.serve(tasks=(), estimator=slow, for_s=20)
        assert {result.task.id for result in world.published[: len(left)]} == left
        assert all(n(world, task) == 1 for task in TASKS[10:])


@pytest.mark.large
@pytest.mark.face
@pytest.mark.parametrize("broker_answers", [True, False])
def test_a_service_ends_whatever_is_due(mosquitto: Mosquitto, tmp_path: Path, *, broker_answers: bool) -> None:
    serve = Serve(mosquitto.url, tmp_path, None, task=None)
    with SqliteStore(serve.store) as store:
        store.add_tasks(
            [make_task({"id": f"task-{k}", "epsilon": "1", "domain": {"kind": "bit"}}) for k in range(2000)]
        )
    serve.start()
    serve.until_connected()
    assert mosquitto.process is not None
    if not broker_answers:
        mosquitto.process.send_signal(signal.SIGSTOP)
    try:
        assert serve.end() == 0
    finally:
        mosquitto.process.send_signal(signal.SIGCONT)
    assert "ERROR" not in serve.log
