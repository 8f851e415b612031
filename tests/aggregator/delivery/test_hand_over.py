"""A change of the worker that publishes, orderly or not: readers see no step back, and nothing is recalled."""

import asyncio
import json
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from broker_world import DRAFT, ESTIMATE, FOREIGN, HOUR, TOPIC, World, frame, living, told

from hush_aggregator import Estimate
from hush_aggregator.estimate.process import EstimateInput, Failure, ThreadEstimator
from hush_common.recall import encode_recall
from hush_common.task import make_task
from hush_common.topics import BROKER_DROPPED

ROUNDS = make_task(DRAFT | {"rounds": 9, "round_every": "10m", "opens": "2027-03-01T11:50:00Z"})
STOPS = "stops publishing"


@pytest.fixture
def group(memory_path: Path) -> Iterator[World]:
    with living(memory_path / "hush.sqlite") as group:
        yield group


def two(group: World, estimator: ThreadEstimator | None = None) -> None:
    """Let worker 1 publish and worker 2 follow."""
    group.start("1", estimator=estimator)
    group.start("2")
    assert group.row.holder == "1"


def send(group: World, count: int) -> None:
    group.send(*(frame() for _ in range(count)))
    group.wait(5)


@pytest.mark.parametrize("how", ["end", "kill", "cut_off"])
def test_a_worker_that_followed_recalls_nothing_when_it_takes_over(
    group: World, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    two(group)
    send(group, 40)
    getattr(group, how)("1")
    caplog.clear()
    group.wait(20)
    assert (group.row.holder, group.made) == ("2", 0)
    send(group, 10)
    assert group.made == 0
    assert group.broker.seen[-1].lease == group.row.number
    assert group.broker.seen[-1].n == group.n >= 45
    group.assert_readers_see_no_step_back()
    assert told(caplog) == told(caplog, STOPS) == (how == "cut_off")


@pytest.mark.medium
def test_rounds_that_began_while_a_worker_followed_are_not_taken_for_lost(group: World) -> None:
    group.task = ROUNDS
    two(group)
    for number in (1, 2, 3):
        group.wait(600)
        group.send(*(frame(ROUNDS, number) for _ in range(20)))
    group.end("1")
    group.wait(20)
    assert (group.row.holder, group.estimate["round"], group.estimate["n"]) == ("2", 3, 20)
    assert group.made == 0


@pytest.mark.medium
@pytest.mark.parametrize("away", [15.0, 60.0])
def test_a_worker_that_gets_the_lease_back_publishes_nothing_from_before(
    group: World, away: float, caplog: pytest.LogCaptureFixture
) -> None:
    two(group)
    send(group, 40)
    for first, second in ("12", "21", "12"):
        group.cut_off(first)
        send(group, 10)
        group.wait(away)
        assert group.row.holder == second
        group.reconnect(first)
        send(group, 10)
    assert group.n == 40 + 3 * 20
    assert group.broker.seen[-1] == (4, group.n)
    group.assert_readers_see_no_step_back()
    assert group.made == 0
    assert told(caplog) == told(caplog, STOPS) == 3


def test_what_the_next_worker_writes_is_not_that_of_another_client(
    group: World, caplog: pytest.LogCaptureFixture
) -> None:
    two(group)
    send(group, 40)
    group.cut_off("1")  # it is still connected to the broker, and reads there what the other one writes
    group.wait(10)
    assert group.row.holder == "2"
    group.ask()
    send(group, 10)
    assert group.open is not None
    group.wait(30)
    group.reconnect("1")
    group.wait(30)
    group.end("2")
    group.wait(30)
    assert (group.row.holder, group.made) == ("1", 1)
    assert told(caplog) == told(caplog, STOPS) == 1
    group.assert_readers_see_no_step_back()


class SlowEstimator(ThreadEstimator):
    """Takes as many seconds for an estimate as a test says."""

    seconds = 0.0

    async def many(self, asked: Sequence[EstimateInput], confidence: float, made: list[Estimate | Failure]) -> None:
        await asyncio.sleep(self.seconds)
        await super().many(asked, confidence, made)


def test_a_worker_that_loses_the_lease_at_once_compares_nothing(group: World) -> None:
    """What it reads on the broker then, another worker has published since."""
    slow = SlowEstimator()
    slow.seconds = 30.0
    for _ in range(2):  # then it is stored who owns the task
        group.start("2")
        group.end("2")
    group.start("2")
    group.start("1", estimator=slow, settle_s=300.0)  # it waits a minute for what is retained
    send(group, 40)
    group.end("2")
    group.wait(5)
    assert group.row.holder == "1"
    group.cut_off("1", only_lease=True)
    group.start("2")
    send(group, 30)
    assert group.row.holder == "2"
    group.wait(60)
    group.reconnect("1")
    group.wait(60)
    assert group.made == 0
    group.assert_readers_see_no_step_back()


@pytest.mark.parametrize("seconds", [1.0, 4.0, 30.0])
def test_an_estimate_that_was_slow_is_not_published_under_a_later_lease(group: World, seconds: float) -> None:
    slow = SlowEstimator()
    two(group, slow)
    send(group, 40)
    slow.seconds = seconds
    group.send(frame())
    group.wait(0.5)
    group.cut_off("1")
    group.wait(10)
    send(group, 30)
    assert group.row.holder == "2"
    group.reconnect("1")
    group.wait(10)
    group.end("2")
    group.wait(100)
    assert group.row.holder == "1"
    assert group.broker.seen[-1] == (3, group.n)
    group.assert_readers_see_no_step_back()


def test_a_store_that_was_put_back_is_recalled_once_by_one_worker(group: World, tmp_path: Path) -> None:
    """Ten are in the copy, ten were counted since; while nobody counts, thirty more wait on the broker."""
    two(group)
    send(group, 10)
    group.copy(tmp_path / "copy")
    send(group, 10)
    group.end("2")
    group.kill("1")
    assert group.estimate["n"] == 20
    group.put_back(tmp_path / "copy")
    group.send(*(frame() for _ in range(30)))
    group.start("2")
    assert (group.row.holder, group.made) == ("2", 1)
    group.start("1")
    for worker in "21":
        group.end(worker)
        group.start(worker, for_s=60)
    assert group.made == 1
    assert group.n == 40


@pytest.mark.medium
def test_a_broker_that_forgot_is_recalled_by_one_worker(group: World) -> None:
    two(group)
    group.end("1")
    group.wait(20)
    group.start("1")
    group.wait(60)
    assert group.row.holder == "2"
    group.broker.kill(keep=True)
    group.wait(60)
    assert group.made == 1
    for count in (1, 3):
        group.broker.tell(BROKER_DROPPED, b"%d" % count)
        group.wait(HOUR / 2)
    assert group.made == 2
    for worker in "21":
        group.end(worker)
        group.wait(20)
        group.start(worker, for_s=60)
    assert group.made == 2


@pytest.mark.parametrize("how", ["end", "kill"])
def test_a_restart_while_no_worker_publishes_is_recalled_by_the_next(group: World, how: str) -> None:
    """The next one has never listened to the broker, and the one before has stored what it heard."""
    two(group)
    group.wait(200)
    getattr(group, how)("1")
    group.broker.kill(keep=True)
    group.wait(60)
    assert (group.row.holder, group.made) == ("2", 1)


@pytest.mark.medium
def test_a_late_estimate_of_an_earlier_lease_is_replaced_without_blame(
    group: World, caplog: pytest.LogCaptureFixture
) -> None:
    two(group)
    send(group, 40)
    late = group.broker.retained[ESTIMATE]
    group.end("1")
    group.wait(20)
    send(group, 10)
    caplog.set_level(logging.INFO)
    group.write(ESTIMATE, late, for_s=5)
    assert (group.estimate["lease"], group.estimate["n"]) == (2, 50)
    assert any("lease 1" in one.getMessage() and "lease 2" in one.getMessage() for one in caplog.records)
    assert told(caplog) == 0
    for _ in range(12):  # nobody has so much on its way
        group.write(ESTIMATE, late, for_s=60)
    assert told(caplog, "another client") > 0


@pytest.mark.parametrize("lease", [2, 9])
def test_an_estimate_that_no_lease_explains_is_of_another_client(
    group: World, caplog: pytest.LogCaptureFixture, lease: int
) -> None:
    two(group)
    group.end("1")
    group.wait(20)
    send(group, 40)
    forged = json.dumps({**group.estimate, "lease": lease, "n": 10**6}).encode()
    group.write(ESTIMATE, forged, for_s=5)
    assert (group.estimate["lease"], group.estimate["n"]) == (2, 40)
    assert told(caplog) == told(caplog, "another client") == 1


def test_a_late_recall_of_a_former_holder_is_not_of_another_client(
    group: World, caplog: pytest.LogCaptureFixture
) -> None:
    two(group)
    recalls = []
    for _ in range(2):
        recalls.append(encode_recall(group.ask()))
        group.wait(5)
    group.end("1")
    group.wait(20)
    group.write(TOPIC, recalls[0], for_s=5)
    assert group.broker.retained[TOPIC] == recalls[1]
    assert told(caplog) == 0
    group.write(TOPIC, FOREIGN, for_s=5)
    assert group.broker.retained[TOPIC] == recalls[1]
    assert told(caplog) == told(caplog, "another client") == 1


def test_no_estimate_is_late_for_a_worker_that_publishes_nothing(group: World) -> None:
    two(group)
    send(group, 10)  # each worker counts half of them
    assert group.aggregator is not None
    assert group.aggregator.estimates.due == 0


@pytest.mark.parametrize("how", ["together", "in turn", "without a database"])
def test_what_comes_while_no_worker_runs_waits_for_the_first_that_starts(group: World, how: str) -> None:
    """A broker gives what comes to nobody once all have left the shared subscription."""
    two(group)
    send(group, 10)
    if how == "together":
        group.stop()
    elif how == "in turn":
        for worker in "21":
            group.end(worker)
    else:
        group.fail()
    send(group, 30)
    for worker in "12":
        group.start(worker)
    assert group.n == 40
    for worker in "21":
        group.end(worker)
        send(group, 10)
        group.start(worker)
    assert group.n == 60
    assert group.made == 0
    group.assert_readers_see_no_step_back()
