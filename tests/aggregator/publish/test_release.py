"""When estimates are made and released, in virtual time: whatever one of them does, the others stay fresh."""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, partial
from itertools import pairwise
from typing import Any

import pytest
from made_results import single
from virtual_time import VirtualLoop

from hush import Task
from hush_aggregator import Estimate, Result
from hush_aggregator.estimation import Failure, estimate_each
from hush_aggregator.release import LONGEST_S, EstimatePublisher
from hush_aggregator.result import RoundCounts, encode
from hush_aggregator.status import EstimateStatus
from hush_aggregator.tally import Tally
from hush_common.errors import BrokerError
from hush_common.task import make_task
from hush_common.topics import Delivery

FRESH_S = 5.0
FAILS = Failure("failed", "planted")


@cache
def task_of(name: str) -> Task:
    return make_task({"id": name, "epsilon": "1", "domain": {"kind": "bit"}})


@dataclass
class World:
    """A store, an estimator and a broker of which the test decides everything.

    Attributes:
        n: reports counted, by task.
        rounds: the latest round, by task.
        takes: seconds that an estimate of the task takes.
        fails: why it fails then.
        final: tasks of which nothing counts any more.
        attempts: n of each estimate that was begun, by task.
        published: when, what, in order.
        ranks: of tasks that are not small ones of this store.
        acknowledged_s: seconds that the broker takes to acknowledge.
    """

    n: Counter[str] = field(default_factory=Counter)
    rounds: Counter[str] = field(default_factory=Counter)
    takes: dict[str, float] = field(default_factory=dict)
    fails: dict[str, Failure] = field(default_factory=dict)
    final: set[str] = field(default_factory=set)
    attempts: dict[str, list[int]] = field(default_factory=dict)
    published: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    running: int = 0
    most_running: int = 0
    given_up: int = 0
    connected: bool = True

    ranks: dict[str, tuple[bool, int]] = field(default_factory=dict)
    acknowledged_s: float = 0.0

    def __post_init__(self) -> None:
        self.releases = EstimatePublisher(
            self._read,
            self,
            confidence=0.95,
            clock=lambda: datetime.now(UTC),
            owns=lambda _: True,
            sign=lambda _, document: encode(document),
            rank=lambda name: self.ranks.get(name, (False, 1)),
        )

    def count(self, name: str, more: int = 1) -> None:
        self.n[name] += more
        self.releases.mark({name})

    def released(self, name: str) -> list[dict[str, Any]]:
        return [document for _, document in self.published if document["task"] == name]

    async def _read(self, names: Sequence[str]) -> list[RoundCounts]:
        return [
            RoundCounts(task_of(name), self.rounds[name], Tally(self.n[name]), {}, final=name in self.final)
            for name in names
        ]

    async def prepare(self) -> None:
        await asyncio.sleep(0)

    async def __call__(self, task: Task, tally: Tally, confidence: float) -> Estimate | Failure:
        assert confidence == 0.95
        self.attempts.setdefault(task.id, []).append(tally.n)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await asyncio.sleep(self.takes.get(task.id, 0.005))
        except asyncio.CancelledError:
            self.given_up += 1
            raise
        finally:
            self.running -= 1
        return self.fails.get(task.id) or single(tally.n, mean=0.5)

    async def many(
        self, asked: Sequence[tuple[Task, Tally]], confidence: float, made: list[Estimate | Failure]
    ) -> None:
        await estimate_each(self, asked, confidence, made)

    async def batch(self) -> list[Delivery]:
        raise NotImplementedError

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        await asyncio.sleep(self.acknowledged_s)
        if not self.connected:
            raise BrokerError("fake", "the connection was lost")
        document: dict[str, Any] = json.loads(payload)
        assert (topic, retain) == (f"hush/v1/estimates/{document['task']}", True)
        self.published.append((asyncio.get_running_loop().time(), document))

    async def serve(self, seconds: float, meanwhile: Callable[[], object] = int) -> None:
        """Let the service run, and something happen twice a second."""
        serving = asyncio.create_task(self.releases.serve(self), name="serve")
        end = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < end and not serving.done():
            meanwhile()
            await asyncio.sleep(0.5)
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving

    def longest_gap(self, name: str) -> float:
        times = [at for at, document in self.published if document["task"] == name]
        return max(later - earlier for earlier, later in pairwise(times))


@pytest.fixture
def run() -> Iterator[Callable[[Any], Any]]:
    loop = VirtualLoop()
    yield loop.run_until_complete
    loop.close()


Run = Callable[[Any], Any]


def test_a_hundred_tasks_that_fail_are_tried_when_their_reports_have_doubled_and_delay_nobody(run: Run) -> None:
    async def story() -> World:
        world = World()
        bad = [f"bad-{k}" for k in range(100)]
        world.fails = dict.fromkeys(bad, FAILS)
        await world.serve(20, lambda: list(map(world.count, ("healthy", *bad))))
        return world

    world = run(story())
    assert world.longest_gap("healthy") < 2
    for name in world.fails:
        assert len(world.attempts[name]) <= 1 + world.n[name].bit_length()
        assert all(later >= 2 * earlier for earlier, later in pairwise(world.attempts[name]))
        last = world.released(name)[-1]
        assert last["failures"] == {"estimate": "failed"}
        assert last["n"] >= world.n[name] - 4
        assert "mean" not in last
    assert world.most_running == 1


def test_a_hundred_estimates_of_a_minute_keep_a_quick_one_fresh_and_run_one_at_a_time_beside_it(run: Run) -> None:
    async def story() -> World:
        world = World()
        await world.serve(2, lambda: world.count("healthy"))
        slow = [f"a-slow-{k}" for k in range(100)]
        world.takes = dict.fromkeys(slow, 60.0)
        for name in slow:
            world.count(name)
        await world.serve(600, lambda: world.count("healthy"))
        await world.releases.close()
        return world

    world = run(story())
    assert world.longest_gap("healthy") < FRESH_S
    assert world.most_running == 2
    assert world.running == 0
    assert sum(bool(world.released(f"a-slow-{k}")) for k in range(100)) >= 9  # ten minutes, one at a time


def test_a_slow_estimate_is_released_when_it_is_made_and_made_again_when_its_reports_have_doubled(run: Run) -> None:
    async def story() -> World:
        world = World(takes={"slow": 10.0})
        await world.serve(200, lambda: world.count("slow"))
        await world.releases.close()
        return world

    world = run(story())
    releases = [document["n"] for document in world.released("slow")]
    assert releases == world.attempts["slow"][: len(releases)]
    assert len(releases) >= len(world.attempts["slow"]) - 1
    assert all(later >= 2 * earlier for earlier, later in pairwise(world.attempts["slow"]))
    assert len(world.attempts["slow"]) >= 4
    assert all("failures" not in document for document in world.released("slow"))
    assert world.given_up == 0


def test_the_next_round_of_a_slow_task_is_tried_at_once_and_beside_the_others(run: Run) -> None:
    async def story() -> World:
        world = World(takes={"slow": 10.0})
        world.count("slow", 100)
        await world.serve(20, lambda: world.count("healthy"))
        world.published.clear()
        world.rounds["slow"], world.n["slow"] = 1, 0
        world.count("slow", 1)
        await world.serve(20, lambda: world.count("healthy"))
        return world

    world = run(story())
    assert world.attempts["slow"] == [100, 1]
    assert world.released("slow")[-1]["round"] == 1
    assert world.longest_gap("healthy") < 1.6


def test_an_estimate_that_never_ends_is_given_up_and_its_lane_is_free_again(run: Run) -> None:
    async def story() -> World:
        world = World(takes={"endless": 1e9, "minute": 60.0})
        world.count("endless")
        world.count("minute")
        await world.serve(LONGEST_S + 100)
        return world

    world = run(story())
    assert world.released("endless")[-1]["failures"] == {"estimate": "too_slow"}
    assert world.released("minute")[-1]["mean"] == 0.5
    assert world.running == 0


def test_a_task_that_was_slow_once_is_quick_again(run: Run) -> None:
    async def story() -> World:
        world = World(takes={"once": 4.0})
        world.count("once", 10)
        await world.serve(8)
        world.takes.clear()
        await world.serve(30, lambda: world.count("once"))
        return world

    world = run(story())
    assert world.released("once")[-1]["n"] >= world.n["once"] - 2
    assert world.attempts["once"][:2] == [10, 20]


@pytest.mark.parametrize("fails", [{}, {"slow": FAILS}])
def test_the_last_word_on_a_slow_or_failing_task_is_made_once_however_few_reports_came(
    run: Run, fails: dict[str, Failure]
) -> None:
    async def story() -> World:
        world = World(takes={"slow": 10.0}, fails=fails)
        world.count("slow", 10)
        await world.serve(20)
        world.count("slow")
        world.final.add("slow")
        await world.serve(20)
        world.releases.mark({"slow"})
        await world.serve(20)
        return world

    world = run(story())
    assert world.attempts["slow"] == [10, 11]
    assert (world.released("slow")[-1]["n"], world.released("slow")[-1]["final"]) == (11, True)


def test_an_estimate_made_while_nobody_was_connected_is_released_later(run: Run) -> None:
    async def story() -> World:
        world = World(takes={"slow": 10.0})
        world.count("slow")
        await world.serve(4)
        world.connected = False
        world.count("healthy")
        with pytest.raises(BrokerError):
            await world.serve(20)
        world.connected = True
        await world.serve(20)
        return world

    world = run(story())
    assert world.attempts["slow"] == [1]
    assert [document["n"] for document in world.released("slow")] == [1]
    assert world.released("healthy")[-1]["n"] == 1


def test_the_last_release_does_not_wait_for_what_is_slow(run: Run) -> None:
    async def story() -> tuple[World, float]:
        world = World(takes={"slow": 60.0, "slower": 60.0})
        for name in ("slow", "slower"):
            world.count(name)
        await world.serve(6)
        for name in ("slow", "slower", "healthy"):
            world.count(name)
        began = asyncio.get_running_loop().time()
        await world.releases.release_last(world)
        await world.releases.close()
        return world, asyncio.get_running_loop().time() - began

    world, took = run(story())
    assert took < FRESH_S
    assert [document["n"] for document in world.released("healthy")] == [1]
    assert world.running == 0


@pytest.mark.parametrize(
    ("connected", "why"), [(False, "fake: the connection was lost"), (True, "they took longer than 2.5 s")]
)
def test_estimates_that_are_left_to_the_next_start_have_a_reason(
    run: Run, caplog: pytest.LogCaptureFixture, *, connected: bool, why: str
) -> None:
    async def story() -> None:
        world = World(connected=connected)
        world.count("task")
        await world.releases.release_last(world, first=partial(asyncio.sleep, 60 if connected else 0))
        await world.releases.close()

    run(story())
    assert caplog.messages == [f"the last estimates could not be released ({why}); the next start releases them first"]


@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_trouble_is_told_once_and_without_a_number_of_the_reports(
    run: Run, caplog: pytest.LogCaptureFixture, seconds: float
) -> None:
    async def story() -> None:
        world = World(takes={"bad": seconds}, fails={"bad": FAILS})
        await world.serve(300, lambda: world.count("bad"))
        world.rounds["bad"], world.n["bad"] = 1, 0
        await world.serve(300, lambda: world.count("bad"))

    run(story())
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(lines) == 1
    assert lines[0].startswith("task bad, round 0: ")


def test_an_estimator_that_breaks_its_promise_and_raises_stops_nobody(run: Run) -> None:
    class Broken(World):
        async def __call__(self, task: Task, tally: Tally, confidence: float) -> Estimate | Failure:
            if task.id == "bad":
                await asyncio.sleep(self.takes["bad"])
                raise RuntimeError
            return await super().__call__(task, tally, confidence)

    async def story(takes: float) -> Mapping[str, Any]:
        world = Broken(takes={"bad": takes})
        world.count("bad")
        await world.serve(20, lambda: world.count("healthy"))
        assert world.longest_gap("healthy") < FRESH_S
        return world.released("bad")[-1]

    for takes in (0.0, 10.0):
        assert run(story(takes))["failures"] == {"estimate": "crashed"}


# Many tasks


def names(count: int, word: str = "task") -> list[str]:
    return [f"{word}-{k}" for k in range(count)]


def order(world: World) -> list[str]:
    return [document["task"] for _, document in world.published]


@pytest.mark.large
def test_of_thousands_that_change_all_the_time_each_is_released_in_turn_the_longest_waiting_first(run: Run) -> None:
    many = names(2000)

    async def story() -> World:
        world = World(takes=dict.fromkeys(many, 0.002), acknowledged_s=0.02)
        await world.serve(20, lambda: list(map(world.count, many)))
        return world

    world = run(story())
    gaps = [world.longest_gap(name) for name in many]
    assert max(gaps) < 6.5, "2000 times 2 ms, and the acknowledgements of each batch"
    assert min(gaps) > 3.5, "none is preferred"
    assert [name for k, name in enumerate(order(world)[:2000]) if abs(int(name.split("-")[1]) - k) > 60] == []


def test_each_of_many_is_published_once_a_second_at_most_and_its_last_change_too(run: Run) -> None:
    many = names(20)

    async def story() -> World:
        world = World(takes=dict.fromkeys(many, 0.001))
        await world.serve(10, lambda: list(map(world.count, many)))
        await world.serve(2)
        return world

    world = run(story())
    for name in many:
        times = [at for at, document in world.published if document["task"] == name]
        assert all(later - earlier >= 1 for earlier, later in pairwise(times))
        assert world.released(name)[-1]["n"] == world.n[name]


def test_publications_do_not_wait_for_each_others_acknowledgement(run: Run) -> None:
    many = names(200)

    async def story() -> World:
        world = World(takes=dict.fromkeys(many, 0.0001), acknowledged_s=1.0)
        for name in many:
            world.count(name)
        await world.serve(5)
        return world

    assert len(run(story()).published) == 200


@pytest.mark.parametrize("hostile", ["new", "slow to make", "failing"])
def test_however_many_large_ones_of_others_there_are_own_ones_have_their_turn(run: Run, hostile: str) -> None:
    own, quick, evil = names(30, "own"), names(30, "quick"), names(1000, "evil")

    async def story() -> World:
        world = World(ranks=dict.fromkeys(evil, (True, 10**5)))
        world.takes = dict.fromkeys(evil, 0.2 if hostile == "slow to make" else 0.02)
        world.fails = dict.fromkeys(evil, FAILS) if hostile == "failing" else {}
        for name in quick:
            world.count(name)
        await world.serve(2)
        for name in evil:
            world.count(name)
        await world.serve(10, lambda: list(map(world.count, [*quick, *own, *evil])))
        return world

    world = run(story())
    for name in own + quick:
        assert world.longest_gap(name) < 3, name
    assert any(name in evil for name in order(world)), "they have a turn, too"


def test_small_tasks_do_not_wait_for_all_large_ones_nor_these_for_ever(run: Run) -> None:
    large, small = names(100, "large"), names(400, "small")

    async def story() -> World:
        world = World(ranks=dict.fromkeys(large, (False, 1000)), takes=dict.fromkeys(large, 0.1))
        for name in large + small:
            world.count(name)
        await world.serve(60)
        return world

    found = order(run(story()))
    assert sorted(found) == sorted(large + small)
    before = {name: k for k, name in enumerate(found)}
    assert max(before[name] for name in small) < 460
    assert min(before[name] for name in large) < 100


def test_what_the_last_run_did_not_publish_comes_first(run: Run) -> None:
    many, left = names(500), [f"task-{k}" for k in range(300, 420)]

    async def story() -> World:
        world = World(takes=dict.fromkeys(many, 0.01))
        world.releases.mark(many)
        world.releases.mark(left, first=True)
        world.releases.mark(many)
        await world.serve(20)
        return world

    found = order(run(story()))
    assert found[:120] == left
    assert sorted(found) == sorted(many)


def test_a_stop_with_thousands_due_ends_in_time_and_what_was_not_published_stays_due(run: Run) -> None:
    many = names(2000)

    async def story() -> tuple[World, float]:
        world = World(takes=dict.fromkeys(many, 0.01), acknowledged_s=0.05)
        for name in many:
            world.count(name)
        began = asyncio.get_running_loop().time()
        await world.releases.release_last(world)
        return world, asyncio.get_running_loop().time() - began

    world, took = run(story())
    assert took < 3
    assert len(world.published) > 100
    assert world.releases.due >= 2000 - len(world.published)


def test_a_stop_publishes_what_changed_less_than_a_second_after_it_was_published(run: Run) -> None:
    async def story() -> World:
        world = World()
        world.count("task")
        serving = asyncio.create_task(world.releases.serve(world), name="serve")
        await asyncio.sleep(0.2)
        world.count("task")
        serving.cancel()
        await asyncio.wait({serving})
        await world.releases.release_last(world)
        return world

    assert [document["n"] for document in run(story()).released("task")] == [1, 2]


def test_a_publication_that_is_lost_is_made_up_for_on_the_next_connection(run: Run) -> None:
    many = names(50)

    async def story() -> World:
        world = World(takes=dict.fromkeys(many, 0.001), connected=False)
        for name in many:
            world.count(name)
        with pytest.raises(BrokerError):
            await world.serve(3)
        assert (world.published, world.releases.due) == ([], 50)
        world.connected = True
        await world.serve(3)
        return world

    world = run(story())
    assert set(order(world)) == set(many)


def test_the_status_says_what_is_due_what_failed_and_how_old_the_newest_estimate_is(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("hush_aggregator.release.time.monotonic", lambda: now[0])

    async def story() -> World:
        world = World()
        world.fails = {"bad": FAILS}
        now[0] += 50  # of the start nothing is published yet
        assert world.releases.status == EstimateStatus(due=0, failed=0, age_s=50.0)
        world.count("bad")
        world.count("good")
        assert world.releases.status == EstimateStatus(due=2, failed=0, age_s=50.0)
        now[0] += 10
        await world.serve(1)
        assert world.releases.status == EstimateStatus(due=0, failed=1, age_s=0.0)
        now[0] += 70
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
        return world

    run(story())


def test_a_result_is_told_only_once_the_broker_has_its_estimate_and_not_if_that_failed(run: Run) -> None:
    told: list[tuple[float, Result]] = []

    async def story() -> World:
        world = World()
        world.releases._on_published = lambda result: told.append((asyncio.get_running_loop().time(), result))
        world.acknowledged_s = 0.4
        world.count("good", 3)
        await world.serve(1)
        world.connected = False
        world.count("good", 3)
        with pytest.raises(BrokerError):
            await world.serve(2)
        return world

    world = run(story())
    ((published, document),) = world.published
    ((when, result),) = told
    assert when >= published
    assert result.to_document() == document
