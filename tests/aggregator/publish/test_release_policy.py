"""`release_from` and `release_every`: what is published, when, and that nothing says more before."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from broker_world import DRAFT, HOUR, START, World, frame, living

from hush import Task
from hush_aggregator.count.tasks import facts_of, row_of
from hush_aggregator.store import CommitOutcome, SqliteEditor
from hush_common.task import make_task
from hush_common.topics import estimate_topic

TOPIC = estimate_topic("heights")
FROM = make_task(DRAFT | {"release_from": 5})
HOURLY = make_task(DRAFT | {"release_every": "1h"})
BOTH = make_task(DRAFT | {"release_from": 5, "release_every": "1h"})
ROUNDS = DRAFT | {"rounds": 9, "round_every": "1d", "opens": "2027-02-25T00:00:00Z", "epsilon": "9"}


@dataclass
class Recorded(World):
    """A world that records each estimate that is published, with its time, and each outcome of a commit."""

    estimates: list[tuple[datetime, dict[str, Any]]] = field(default_factory=list)
    outcomes: list[CommitOutcome] = field(default_factory=list)

    def __post_init__(self) -> None:
        deliver = self.broker.deliver

        def delivered(topic: str, payload: bytes, *, retain: bool = False) -> None:
            if topic == TOPIC and payload:
                self.estimates.append((self.now(), json.loads(payload)))
            deliver(topic, payload, retain=retain)

        self.broker.deliver = delivered  # type: ignore[method-assign]

    def serve(self, **options: Any) -> None:  # noqa: ANN401 - of an aggregator
        super().serve(on_commit=self.outcomes.append, **options)

    def until(self, at: datetime) -> None:
        self.wait((at - self.now()).total_seconds())

    def drain(self) -> list[tuple[str, int]]:
        """When estimates were published since the last call, and their n."""
        found, self.estimates = self.estimates, []
        return [(f"{at:%H:%M}", document["n"]) for at, document in found]


@contextmanager
def recorded(path: Path, task: Task) -> Iterator[Recorded]:
    with living(path) as world:
        made = Recorded(world.loop, world.broker, world.store, world.path, task)
        try:
            yield made
        finally:
            made.stop()


def at(hour: int, minute: int = 0, second: int = 0) -> datetime:
    return START.replace(hour=hour, minute=minute, second=second)


def counted(world: World) -> int:
    """How many reports are counted, released or not."""
    return sum(one.n for one in world.store.stored_rounds())


def test_an_estimate_below_release_from_has_no_figures(tmp_path: Path) -> None:
    with recorded(tmp_path / "s", FROM) as world:
        world.serve()
        (first,) = {json.dumps(document, sort_keys=True) for _, document in world.estimates}
        world.send(*(frame(FROM) for _ in range(4)))
        world.wait(60)
        assert counted(world) == 4
        document = json.loads(first)
        assert document == world.estimate
        assert (document["n"], document["release_from"], document["refused"]) == (0, 5, {})
        assert not {"mean", "intervals", "stderr", "monitor"} & document.keys()
        world.send(frame(FROM))
        world.wait(3)
        assert world.estimate["n"] == 5
        assert "mean" in world.estimate
        world.send(frame(FROM))
        world.wait(3)
        assert world.estimate["n"] == 6


@pytest.mark.medium
def test_estimates_are_released_at_fixed_times_only(tmp_path: Path) -> None:
    with recorded(tmp_path / "s", HOURLY) as world:
        world.serve()
        world.until(at(12, 10))
        world.drain()
        for minute in range(10, 60, 7):
            world.until(at(12, minute))
            world.send(frame(HOURLY))
        world.until(at(12, 59, 59))
        assert (world.drain(), world.estimate["n"]) == ([], 0)
        assert world.aggregator is not None
        assert world.aggregator.estimates.due == 0  # so no alarm says that it is late
        world.until(at(13, 0, 5))
        assert world.drain() == [("13:00", 8)]
        assert world.estimate["updated_at"] == "2027-03-01T13:00:00Z"
        assert "mean" in world.estimate
        world.until(at(14, 30))  # nothing was counted, and it is published all the same
        assert world.drain() == [("14:00", 8)]
        assert world.estimate["updated_at"] == "2027-03-01T14:00:00Z"


@pytest.mark.medium
def test_a_start_an_outage_and_a_take_over_release_nothing_in_between(tmp_path: Path) -> None:
    with recorded(tmp_path / "s", HOURLY) as world:
        world.serve()
        world.send(frame(HOURLY))
        world.until(at(13, 1))
        released = world.estimate
        world.drain()
        for minute in range(2, 50, 8):
            world.until(at(13, minute))
            world.send(frame(HOURLY))
            world.stop()
            world.serve(for_s=60)
            world.broker.kill(keep=minute % 16 == 2)
            world.wait(60)
        assert counted(world) == 7
        figures = {name: value for name, value in released.items() if name not in {"store", "term"}}
        for _, document in world.estimates:
            assert figures.items() <= document.items()
        world.until(at(14, 0, 5))
        assert world.estimate["n"] == 7


@pytest.mark.medium
def test_a_release_that_was_missed_waits_for_the_next_time(tmp_path: Path) -> None:
    with recorded(tmp_path / "s", HOURLY) as world:
        world.serve()
        world.send(frame(HOURLY))
        world.until(at(12, 50))
        world.stop()
        world.until(at(13, 2))
        world.serve()
        assert world.estimate["n"] == 0
        world.until(at(13, 59))
        assert world.estimate["n"] == 0
        world.until(at(14, 0, 5))
        assert world.estimate["n"] == 1


@pytest.mark.medium
def test_a_clock_that_is_set_back_releases_nothing_a_second_time(tmp_path: Path) -> None:
    with recorded(tmp_path / "s", HOURLY) as world:
        world.serve()
        world.send(frame(HOURLY))
        world.until(at(13, 1))
        assert world.estimate["n"] == 1
        world.send(frame(HOURLY))
        world.offset -= timedelta(minutes=30)
        world.wait(HOUR)
        assert world.estimate["n"] == 1
        world.until(at(14, 0, 5))
        assert world.estimate["n"] == 2


@pytest.mark.medium
def test_a_clock_that_jumps_ahead_brings_no_release_early(tmp_path: Path) -> None:
    with recorded(tmp_path / "s", HOURLY) as world:
        world.serve()
        world.until(at(13, 1))
        for n in range(5):  # as somebody may make it do who answers for its time
            world.send(frame(HOURLY))
            world.offset += at(14 + n) - world.now() + timedelta(seconds=2)
            world.wait(5)
            assert world.estimate["n"] == 0
        world.wait(2 * HOUR)
        assert world.estimate["n"] == 5


@pytest.mark.medium
def test_a_clock_that_was_wrong_is_set_back_by_accept_clock(tmp_path: Path) -> None:
    with recorded(tmp_path / "s", HOURLY) as world:
        world.offset = timedelta(days=365)
        world.serve(for_s=2 * HOUR)
        world.stop()
        world.offset = timedelta(0)
        world.store.set_back_releases(int(world.now().timestamp()))
        world.serve()
        world.send(frame(HOURLY))
        world.wait(HOUR + 60)
        assert world.estimate["n"] == 1


@pytest.mark.medium
def test_a_closed_task_is_released_once_more_at_the_next_fixed_time(tmp_path: Path) -> None:
    with recorded(tmp_path / "s", HOURLY) as world:
        world.serve()
        world.until(at(13, 1))
        world.send(frame(HOURLY))
        with SqliteEditor(world.path) as command:
            command.close_task("heights")
        world.wait(10)
        document = world.estimate  # the closing is no secret, the report is
        assert (document["n"], document["closed"], "final" in document) == (0, True, False)
        world.until(at(14, 0, 5))
        document = world.estimate
        assert (document["n"], document["final"]) == (1, True)
        world.drain()
        world.until(at(15, 10))
        assert world.drain() == []
        world.stop()
        world.serve()
        world.until(at(16, 1))
        assert world.estimate == document | {"term": 1}


def test_a_task_that_closes_below_release_from_is_final_without_figures(tmp_path: Path) -> None:
    with recorded(tmp_path / "s", FROM) as world:
        world.serve()
        world.send(frame(FROM))
        with SqliteEditor(world.path) as command:
            command.close_task("heights")
        world.wait(10)
        assert (world.estimate["n"], world.estimate["final"]) == (0, True)
        assert "mean" not in world.estimate


def observed(world: Recorded) -> str:
    """All that leaves the store and the aggregator, without the random name of the store."""
    store = world.store
    for _, document in world.estimates:
        document["updated_at"] = document["updated_at"][:16]  # reconnecting takes a random time
    found = {
        "published": [(f"{at:%H:%M}", document) for at, document in world.estimates],
        "outcomes": [str(outcome) for outcome in world.outcomes],
        "counts": [str(one) for one in store.counts()],
        "refused": store.refused(),
        "refusals": store.refusals("heights"),
        "facts": facts_of(store, row_of(store, "heights")),
        "tally": str(store.tally(world.task.digest, 0)),
        "since": store.counted_since(world.task.digest, 0),
        "recalls": [(row.recall.over, row.ended) for row in store.recalls()],
        "due": world.aggregator.estimates.due if world.aggregator is not None else None,
        "backlog": world.aggregator.intake.backlog if world.aggregator is not None else None,
    }
    return json.dumps(found, sort_keys=True, default=str).replace(store.public_identity, "store")


def life(path: Path, task: Task, reports: list[int]) -> str:
    """What is seen of an aggregator that counts so many reports after 10, 20, … minutes, and is restarted meanwhile."""
    with recorded(path, task) as world:
        world.serve()
        for k, count in enumerate(reports):
            world.until(at(12, 10 * (k + 1)))
            frames = [frame(task) for _ in range(count)]
            world.send(*frames, *frames, *([b"?"] if count else []))
            if k == 1:
                world.stop()
                world.serve(for_s=30)
            if k == 2:
                world.broker.kill(keep=True)
        world.until(at(12, 50))
        assert counted(world) == sum(reports)
        return observed(world)


@pytest.mark.parametrize(
    "task", [pytest.param(FROM, marks=pytest.mark.medium), pytest.param(HOURLY, marks=pytest.mark.medium), BOTH]
)
def test_nothing_seen_before_a_release_depends_on_the_reports(tmp_path: Path, task: Task) -> None:
    silent = life(tmp_path / "silent", task, [0, 0, 0, 0])
    for number, reports in enumerate(([1, 0, 0, 0], [0, 1, 1, 1])):
        assert life(tmp_path / str(number), task, reports) == silent


@pytest.mark.medium
def test_planted_without_a_rule_what_is_seen_depends_on_reports(tmp_path: Path) -> None:
    task = make_task(DRAFT)
    assert life(tmp_path / "silent", task, [0, 0, 0, 0]) != life(tmp_path / "one", task, [1, 0, 0, 0])
