"""When estimates are made and released, in virtual time: whatever one of them does, the others stay fresh."""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, partial
from itertools import pairwise
from typing import Any

import pytest
from virtual_time import VirtualLoop

from hush_aggregator.bus import Delivery
from hush_aggregator.estimate import Estimate
from hush_aggregator.estimating import Failure
from hush_aggregator.lanes import LONGEST_S
from hush_aggregator.release import Releases
from hush_aggregator.result import Counted
from hush_aggregator.tally import Tally
from hush_common.errors import BrokerError
from hush_common.task import Task
from hush_common.task_file import make_task

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

    def __post_init__(self) -> None:
        self.releases = Releases(self._read, self, confidence=0.95, clock=lambda: datetime.now(UTC))

    def count(self, name: str, more: int = 1) -> None:
        self.n[name] += more
        self.releases.mark({name})

    def released(self, name: str) -> list[dict[str, Any]]:
        return [document for _, document in self.published if document["task"] == name]

    async def _read(self, name: str) -> Counted:
        return Counted(task_of(name), self.rounds[name], Tally(self.n[name]), {}, final=name in self.final)

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
        return self.fails.get(task.id) or Estimate(tally.n, mean=0.5)

    async def batch(self) -> list[Delivery]:
        raise NotImplementedError

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        await asyncio.sleep(0)
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
    ("connected", "why"), [(False, "fake: the connection was lost"), (True, "they took longer than 5 s")]
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
    assert caplog.messages == [f"the last estimates could not be released ({why}); the next start releases them"]


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
