"""When estimates are made and released, in virtual time: whatever one of them does, the others stay fresh."""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, partial
from itertools import pairwise
from typing import Any

import pytest
from made_results import single

from hush import Task
from hush_aggregator import Estimate, Result
from hush_aggregator.estimate.process import Failure, estimate_each
from hush_aggregator.estimate.result import RoundCounts, encode
from hush_aggregator.estimate.tally import Tally
from hush_aggregator.publish.release import LONGEST_S, EstimatePublisher
from hush_aggregator.publish.status import EstimateStatus
from hush_common.errors import BrokerError
from hush_common.task import make_task
from hush_common.topics import Delivery, estimate_topic

pytestmark = pytest.mark.virtual_time

FRESH_S = 5.0
FAILS = Failure("failed", "planted")


@cache
def task_of(name: str) -> Task:
    return make_task({"id": name, "epsilon": "1", "domain": {"kind": "bit"}})


def now() -> float:
    return asyncio.get_running_loop().time()


@dataclass
class World:
    """A store, an estimator and a broker of which the test decides everything.

    Attributes:
        n: reports counted, by task.
        rounds: the latest round, by task.
        takes: seconds that an estimate of the task takes.
        fails: why it fails then.
        raises: tasks whose estimate breaks the promise of an estimator, and raises.
        final: tasks of which nothing counts any more.
        ranks: of tasks that are not small ones of this store.
        acknowledged_s: seconds that the broker takes to acknowledge.
        attempts: n of each estimate that was begun, by task.
        published: when, what, in order.
        results: when each result was said to be published, and it.
    """

    n: Counter[str] = field(default_factory=Counter)
    rounds: Counter[str] = field(default_factory=Counter)
    takes: dict[str, float] = field(default_factory=dict)
    fails: dict[str, Failure] = field(default_factory=dict)
    raises: set[str] = field(default_factory=set)
    final: set[str] = field(default_factory=set)
    ranks: dict[str, tuple[bool, int]] = field(default_factory=dict)
    acknowledged_s: float = 0.0
    connected: bool = True
    attempts: dict[str, list[int]] = field(default_factory=dict)
    published: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    results: list[tuple[float, Result]] = field(default_factory=list)
    running: int = 0
    most_running: int = 0

    def __post_init__(self) -> None:
        self.releases = EstimatePublisher(
            self._read,
            self,
            confidence=0.95,
            clock=lambda: datetime.now(UTC),
            owns=lambda _: True,
            sign=lambda _, document: encode(document),
            rank=lambda name: self.ranks.get(name, (False, 1)),
            on_published=lambda result: self.results.append((now(), result)),
        )

    def count(self, name: str, more: int = 1) -> None:
        self.n[name] += more
        self.releases.mark({name})

    def count_all(self, names: Sequence[str]) -> None:
        for name in names:
            self.count(name)

    def released(self, name: str) -> list[dict[str, Any]]:
        return [document for _, document in self.published if document["task"] == name]

    @property
    def order(self) -> list[str]:
        return [document["task"] for _, document in self.published]

    def longest_gap(self, name: str) -> float:
        times = [at for at, document in self.published if document["task"] == name]
        return max(later - earlier for earlier, later in pairwise(times))

    async def serve(self, seconds: float, meanwhile: Callable[[], object] = int) -> None:
        """Let the service run, and something happen twice a second."""
        serving = asyncio.create_task(self.releases.serve(self), name="serve")
        end = now() + seconds
        while now() < end and not serving.done():
            meanwhile()
            await asyncio.sleep(0.5)
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving

    # The store

    async def _read(self, names: Sequence[str]) -> list[RoundCounts]:
        return [
            RoundCounts(task_of(name), self.rounds[name], Tally(self.n[name]), {}, final=name in self.final)
            for name in names
        ]

    # The estimator

    async def prepare(self) -> None:
        await asyncio.sleep(0)

    async def __call__(self, task: Task, tally: Tally, confidence: float) -> Estimate | Failure:
        assert confidence == 0.95
        self.attempts.setdefault(task.id, []).append(tally.n)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await asyncio.sleep(self.takes.get(task.id, 0.005))
        finally:
            self.running -= 1
        if task.id in self.raises:
            raise RuntimeError
        return self.fails.get(task.id) or single(tally.n, mean=0.5)

    async def many(
        self, asked: Sequence[tuple[Task, Tally]], confidence: float, made: list[Estimate | Failure]
    ) -> None:
        await estimate_each(self, asked, confidence, made)

    # The broker

    async def batch(self) -> list[Delivery]:
        raise NotImplementedError

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        await asyncio.sleep(self.acknowledged_s)
        if not self.connected:
            raise BrokerError("fake", "planted")
        document: dict[str, Any] = json.loads(payload)
        assert (topic, retain) == (estimate_topic(document["task"]), True)
        self.published.append((now(), document))


def names(count: int, word: str = "task") -> list[str]:
    return [f"{word}-{k}" for k in range(count)]


# Estimates that fail or are slow


async def test_tasks_that_fail_are_tried_when_their_reports_have_doubled() -> None:
    bad = names(20, "bad")
    world = World(fails=dict.fromkeys(bad, FAILS))
    await world.serve(20, lambda: world.count_all(["healthy", *bad]))
    assert world.longest_gap("healthy") < 2
    for name in bad:
        assert len(world.attempts[name]) <= 1 + world.n[name].bit_length()
        assert all(later >= 2 * earlier for earlier, later in pairwise(world.attempts[name]))
        last = world.released(name)[-1]
        assert (last["failures"], "mean" in last) == ({"estimate": "failed"}, False)
        assert last["n"] >= world.n[name] - 4
    assert world.most_running == 1


@pytest.mark.medium
async def test_slow_estimates_run_one_at_a_time_next_to_a_fresh_one() -> None:
    slow, world = names(30, "a-slow"), World()
    await world.serve(2, lambda: world.count("healthy"))
    world.takes = dict.fromkeys(slow, 60.0)
    world.count_all(slow)
    await world.serve(600, lambda: world.count("healthy"))
    await world.releases.close()
    assert world.longest_gap("healthy") < FRESH_S
    assert (world.most_running, world.running) == (2, 0)
    assert sum(bool(world.released(name)) for name in slow) >= 9  # ten minutes, one at a time


async def test_a_slow_estimate_is_made_again_when_its_reports_have_doubled() -> None:
    world = World(takes={"slow": 10.0})
    await world.serve(200, lambda: world.count("slow"))
    await world.releases.close()
    attempts, released = world.attempts["slow"], world.released("slow")
    assert [document["n"] for document in released] == attempts[: len(released)]
    assert len(attempts) - 1 <= len(released) <= len(attempts)
    assert all(later >= 2 * earlier for earlier, later in pairwise(attempts))
    assert len(attempts) >= 4
    assert all("failures" not in document for document in released)


async def test_the_next_round_of_a_slow_task_is_tried_at_once() -> None:
    world = World(takes={"slow": 10.0})
    world.count("slow", 100)
    await world.serve(20, lambda: world.count("healthy"))
    world.published.clear()
    world.rounds["slow"], world.n["slow"] = 1, 0
    world.count("slow", 1)
    await world.serve(20, lambda: world.count("healthy"))
    assert world.attempts["slow"] == [100, 1]
    assert world.released("slow")[-1]["round"] == 1
    assert world.longest_gap("healthy") < 1.6


async def test_an_estimate_that_never_ends_is_given_up() -> None:
    world = World(takes={"endless": 1e9, "minute": 60.0})
    world.count_all(["endless", "minute"])
    await world.serve(LONGEST_S + 100)
    assert world.released("endless")[-1]["failures"] == {"estimate": "too_slow"}
    assert world.released("minute")[-1]["mean"] == 0.5  # its turn has come
    assert world.running == 0


async def test_a_task_that_was_slow_once_is_quick_again() -> None:
    world = World(takes={"once": 4.0})
    world.count("once", 10)
    await world.serve(8)
    world.takes.clear()
    await world.serve(30, lambda: world.count("once"))
    assert world.released("once")[-1]["n"] >= world.n["once"] - 2
    assert world.attempts["once"][:2] == [10, 20]


@pytest.mark.parametrize("fails", [{}, {"slow": FAILS}])
async def test_the_final_estimate_of_a_slow_task_is_made_once(fails: dict[str, Failure]) -> None:
    world = World(takes={"slow": 10.0}, fails=fails)
    world.count("slow", 10)
    await world.serve(20)
    world.count("slow")
    world.final.add("slow")
    await world.serve(20)
    world.releases.mark({"slow"})
    await world.serve(20)
    assert world.attempts["slow"] == [10, 11]
    assert (world.released("slow")[-1]["n"], world.released("slow")[-1]["final"]) == (11, True)


@pytest.mark.parametrize("takes", [0.0, 10.0])
async def test_an_estimator_that_raises_stops_no_other_task(takes: float) -> None:
    world = World(takes={"bad": takes}, raises={"bad"})
    world.count("bad")
    await world.serve(20, lambda: world.count("healthy"))
    assert world.longest_gap("healthy") < FRESH_S
    assert world.released("bad")[-1]["failures"] == {"estimate": "crashed"}


@pytest.mark.medium
@pytest.mark.parametrize("seconds", [0.0, 60.0])
async def test_trouble_is_logged_once_and_without_a_number_of_reports(
    caplog: pytest.LogCaptureFixture, seconds: float
) -> None:
    world = World(takes={"bad": seconds}, fails={"bad": FAILS})
    for round_ in range(2):
        world.rounds["bad"], world.n["bad"] = round_, 4711
        await world.serve(300, lambda: world.count("bad"))
    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert "task bad, round 0" in line
    assert "471" not in line


# Many tasks


@pytest.mark.medium
async def test_of_many_that_change_all_the_time_each_has_its_turn() -> None:
    many = names(600)
    world = World(takes=dict.fromkeys(many, 0.007), acknowledged_s=0.02)
    await world.serve(20, lambda: world.count_all(many))
    gaps = [world.longest_gap(name) for name in many]
    assert max(gaps) < 6.5, "600 times 7 ms, and the acknowledgements of each batch"
    assert min(gaps) > 3.5, "none is preferred"
    assert [name for k, name in enumerate(world.order[:600]) if abs(int(name.split("-")[1]) - k) > 60] == []


async def test_each_task_is_published_once_a_second_and_its_last_change_too() -> None:
    many = names(20)
    world = World(takes=dict.fromkeys(many, 0.001))
    await world.serve(10, lambda: world.count_all(many))
    await world.serve(2)
    for name in many:
        times = [at for at, document in world.published if document["task"] == name]
        assert all(later - earlier >= 1 for earlier, later in pairwise(times))
        assert len(times) >= 9
        assert world.released(name)[-1]["n"] == world.n[name]


async def test_publications_do_not_wait_for_each_others_acknowledgement() -> None:
    many = names(200)
    world = World(takes=dict.fromkeys(many, 0.0001), acknowledged_s=1.0)
    world.count_all(many)
    await world.serve(5)
    assert len(world.published) == 200


@pytest.mark.medium
@pytest.mark.parametrize("hostile", ["new", "slow to make", "failing"])
async def test_own_tasks_have_their_turn_among_many_large_foreign_ones(hostile: str) -> None:
    own, quick, evil = names(15, "own"), names(15, "quick"), names(400, "evil")
    world = World(ranks=dict.fromkeys(evil, (True, 10**5)))
    world.takes = dict.fromkeys(evil, 0.2 if hostile == "slow to make" else 0.05)
    world.fails = dict.fromkeys(evil, FAILS) if hostile == "failing" else {}
    world.count_all(quick)
    await world.serve(2)
    world.count_all(evil)
    await world.serve(10, lambda: world.count_all([*quick, *own, *evil]))
    for name in own + quick:
        assert world.longest_gap(name) < 3, name
    assert {*evil} & {*world.order}, "they have a turn, too"


@pytest.mark.medium
async def test_neither_small_nor_large_tasks_wait_for_all_of_the_others() -> None:
    large, small = names(100, "large"), names(400, "small")
    world = World(ranks=dict.fromkeys(large, (False, 1000)), takes=dict.fromkeys(large, 0.1))
    world.count_all(large + small)
    await world.serve(60)
    assert sorted(world.order) == sorted(large + small)
    before = {name: k for k, name in enumerate(world.order)}
    assert max(before[name] for name in small) < 460
    assert min(before[name] for name in large) < 100


@pytest.mark.medium
async def test_what_the_last_run_did_not_publish_comes_first() -> None:
    many, left = names(500), [f"task-{k}" for k in range(300, 420)]
    world = World(takes=dict.fromkeys(many, 0.01))
    world.releases.mark(many)
    world.releases.mark(left, first=True)
    world.releases.mark(many)
    await world.serve(20)
    assert world.order[:120] == left
    assert sorted(world.order) == sorted(many)


# A lost connection, and the end


async def test_what_was_made_or_lost_without_a_connection_is_released_later() -> None:
    world = World(takes={"slow": 10.0})
    world.count("slow")
    await world.serve(4)
    world.connected = False
    world.count_all(names(20))
    with pytest.raises(BrokerError):
        await world.serve(20)
    assert (world.published, world.releases.due) == ([], 20)
    world.connected = True
    await world.serve(20)
    assert world.attempts["slow"] == [1]
    assert {*world.order} == {"slow", *names(20)}


async def test_a_result_is_reported_once_the_broker_has_its_estimate() -> None:
    world = World(acknowledged_s=0.4)
    world.count("good", 3)
    await world.serve(1)
    world.connected = False
    world.count("good", 3)
    with pytest.raises(BrokerError):
        await world.serve(2)
    ((published, document),) = world.published
    ((when, result),) = world.results
    assert when >= published
    assert result.to_document() == document


async def test_the_last_release_does_not_wait_for_slow_estimates() -> None:
    world, slow = World(takes={"slow": 60.0, "slower": 60.0}), ["slow", "slower"]
    world.count_all(slow)
    await world.serve(6)
    world.count_all([*slow, "healthy"])
    began = now()
    await world.releases.release_last(world)
    await world.releases.close()
    assert now() - began < FRESH_S
    assert [document["n"] for document in world.released("healthy")] == [1]
    assert world.running == 0


async def test_a_stop_with_many_due_ends_in_time_and_they_stay_due() -> None:
    many = names(600)
    world = World(takes=dict.fromkeys(many, 0.01), acknowledged_s=0.05)
    world.count_all(many)
    began = now()
    await world.releases.release_last(world)
    assert now() - began < 3
    assert len(world.published) > 100
    assert world.releases.due >= 600 - len(world.published) > 0


async def test_a_stop_publishes_what_changed_within_the_last_second() -> None:
    world = World()
    world.count("task")
    await world.serve(0.2)
    world.count("task")
    await world.releases.release_last(world)
    assert [document["n"] for document in world.released("task")] == [1, 2]


@pytest.mark.parametrize(("connected", "why"), [(False, "planted"), (True, "2.5 s")])
async def test_estimates_that_are_left_to_the_next_start_have_a_reason(
    caplog: pytest.LogCaptureFixture, *, connected: bool, why: str
) -> None:
    world = World(connected=connected)
    world.count("task")
    await world.releases.release_last(world, first=partial(asyncio.sleep, 60 if connected else 0))
    await world.releases.close()
    (line,) = caplog.messages
    assert why in line


async def test_the_status_has_what_is_due_what_failed_and_an_age(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("hush_aggregator.publish.release.time.monotonic", lambda: clock[0])
    world = World(fails={"bad": FAILS})
    clock[0] += 50  # nothing is published since the start
    world.count_all(["bad", "good"])
    assert world.releases.status == EstimateStatus(due=2, failed=0, age_s=50.0)
    clock[0] += 10
    await world.serve(1)
    assert world.releases.status == EstimateStatus(due=0, failed=1, age_s=0.0)
    clock[0] += 70
    world.connected = False
    world.count("good")
    with pytest.raises(BrokerError):
        await world.serve(2)
    assert world.releases.status == EstimateStatus(due=1, failed=1, age_s=70.0)
    del world.fails["bad"]
    world.connected = True
    world.count("bad", 2)
    await world.serve(3)
    assert world.releases.status == EstimateStatus(due=0, failed=0, age_s=0.0)
