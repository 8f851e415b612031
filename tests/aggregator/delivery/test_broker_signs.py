"""What an uptime proves about a broker, however late it comes, and what it does not."""

from dataclasses import dataclass, field

import pytest

from hush_aggregator.recalls import BrokerRestartDetector, RecallReason
from hush_aggregator.store.base import BrokerMemory
from hush_common.topics import BROKER_UPTIME

WALL = 1_800_000_000.0


@dataclass
class World:
    """A broker that publishes its uptime every ten seconds, and an aggregator that reads it."""

    time: float = 1000.0
    started: float = 0.0
    jump: float = 0.0
    signs: BrokerRestartDetector = field(init=False)

    def __post_init__(self) -> None:
        self.start(BrokerMemory())

    def start(self, memory: BrokerMemory) -> None:
        """A process of the aggregator."""
        self.signs = BrokerRestartDetector(memory, lambda: WALL + self.jump + self.time, lambda: self.time)

    def connect(self) -> RecallReason | None:
        """A new connection, and the uptime that is retained."""
        self.opened = self.time
        assert self.signs.connected(resumed=True) is None
        self.signs.listening()
        return self.hear((self.time - self.started) // 10 * 10, since=self.opened)

    def hear(self, uptime: float, since: float) -> RecallReason | None:
        return self.signs.heard(BROKER_UPTIME, b"%d seconds" % uptime, since)

    def next(self, number: int = 1, late: float = 0.0, since: float | None = None) -> RecallReason | None:
        """So many uptimes after the connection was opened, the next one comes, late."""
        uptime = ((self.opened - self.started) // 10 + number) * 10
        self.time = max(self.time, self.started + uptime + late)
        return self.hear(uptime, self.opened if since is None else since)

    def live(self, seconds: float = 60) -> None:
        """A connection on which nothing happens."""
        assert self.connect() is None
        for number in range(1, 1 + int(seconds // 10)):
            assert self.next(number) is None
        self.signs.alive(self.time)


@pytest.mark.parametrize("delay", [0, 20, 120, 600])
def test_one_process_is_never_taken_for_another_however_late_its_uptimes_come(delay: float) -> None:
    """Behind a backlog the second one is minutes old: `now` less the uptime lies long after the last connection."""
    world = World()
    world.live()
    for _ in range(3):
        world.time += 3
        assert world.connect() is None
        for number in range(1, 4):
            assert world.next(number, late=delay) is None, number
        world.live()


def test_an_uptime_that_is_repeated_proves_nothing() -> None:
    world = World()
    world.live()
    world.time += 5
    assert world.connect() is None
    for _ in range(5):
        world.time += 60
        assert world.next(0) is None
    assert world.next(40) is None


@pytest.mark.parametrize("late", [0, 9, 60])
@pytest.mark.parametrize("away", [1, 30, 100_000])
@pytest.mark.parametrize("same_process", [True, False])
def test_another_process_is_found_by_its_second_uptime_at_the_latest(
    late: float, away: float, same_process: bool
) -> None:
    world = World()
    world.live(300)
    world.time += away / 2
    world.started = world.time
    world.time += away / 2
    if not same_process:
        world.start(world.signs.memory)
    cause = world.connect() or world.next(late=late)
    assert cause is RecallReason.RESTART
    assert "it is up for" in world.signs.evidence
    world.time += 5
    world.live(30)


@pytest.mark.parametrize("jump", [-50.0, 0.0, 30.0, 7200.0])
def test_a_start_of_the_aggregator_is_no_start_of_the_broker(jump: float) -> None:
    """Unless its clock was put forward by more than a minute: then the broker seems to have started later."""
    world = World()
    world.live(300)
    world.jump = jump
    world.start(world.signs.memory)
    world.time += 20
    cause = world.connect() or world.next()
    assert (cause is None) is (jump < 60)


def test_a_broker_that_was_seconds_old_is_recalled_in_doubt_and_only_once_nothing_is_late() -> None:
    world = World(time=1.0)
    assert world.connect() is None
    world.started = 2.0
    world.time = 3.0
    assert world.connect() is None
    assert world.next(late=30) is None, "it is late: the next one may tell"
    assert world.next(5, since=50.0) is RecallReason.RESTART


def test_a_broker_that_answers_proves_that_it_lives_although_it_says_nothing_new() -> None:
    """The last uptime was 0 s, but it answered pings until it was 9 s old."""
    world = World(time=2.0)
    assert world.connect() is None
    world.time = 9.5
    world.signs.alive(9.0)
    assert world.signs.memory.alive == int(WALL + 9)
    assert world.connect() is None
    assert world.next() is None


def test_a_start_two_seconds_after_that_of_the_broker_is_enough_to_know_it_again() -> None:
    """The aggregator stops after two seconds, and is killed again and again before it hears a second uptime."""
    world = World(time=1.2, started=0.3)
    assert world.connect() is None
    world.time = 3.2
    world.signs.alive(2.2)  # a ping a second is answered
    memory = world.signs.memory
    for moment in (13.0, 18.0, 27.0):
        world.time = moment
        world.start(memory)
        assert world.connect() is None
        memory = world.signs.memory
    assert world.next() is None
