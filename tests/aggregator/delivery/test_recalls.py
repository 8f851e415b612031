"""When an aggregator recalls, what it publishes, and when a recall ends: a whole service over a broker in memory."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import pytest
from broker_world import (
    CLOSING,
    DRAFT,
    ESTIMATE,
    FOREIGN,
    HEIGHTS,
    HOUR,
    START,
    TOPIC,
    WEEK,
    World,
    frame,
    living,
    told,
)
from typer.testing import CliRunner

from hush_aggregator import Aggregator, SqliteStore
from hush_aggregator.commands.task import app
from hush_aggregator.delivery.closing import LASTING_S
from hush_aggregator.delivery.recalls import BrokerRestartDetector, RecallReason, is_recallable, new_recall
from hush_aggregator.store import BrokerMemory, SqliteEditor, TaskRow, TaskState
from hush_common.recall import encode_recall
from hush_common.task import make_task
from hush_common.topics import BROKER_DROPPED, BROKER_UPTIME, recall_topic, task_topic
from hush_common.wire import Refusal


@pytest.fixture
def world(memory_path: Path) -> Iterator[World]:
    with living(memory_path / "hush.sqlite") as world:
        yield world


# When it recalls

EVENTS: dict[str, Callable[[World], object]] = {
    "serve": World.serve,
    "stop": World.stop,
    "cut off": lambda world: world.broker.drop(),
    "killed": lambda world: world.broker.kill(),
    "put back": lambda world: world.broker.kill(keep=True),  # a snapshot that has the session
    "mute": lambda world: setattr(world.broker, "mute", True),
    "silent": lambda world: world.broker.about.clear(),
}
UNITS = {"s": 1.0, "min": 60.0, "h": HOUR, "d": 24 * HOUR}
QUIET = "serve; 10 min; cut off; 1 min; stop; "
SOON = "serve 4 s; stop; cut off; "
FLAPPING = 4 * "cut off; 10 min; "
DROPS = "".join(f"dropped {count}; 3 s; " for count in range(1, 12))
STORIES = [
    # what happened, and how many recalls that makes
    ("serve; 1 min; killed; 10 min", 1),
    ("serve; 1 h; put back; 1 min", 1),
    ("serve; 1 h; put back; 1 min; put back; 1 min", 2),
    *(
        (f"serve; 1 min; stop; {away}; {forgets}; {away}; serve", 1)
        for away in ("3 s", "1 h", "30 d")
        for forgets in ("killed", "put back")
    ),
    ("serve 0.3 s; stop; put back; serve; 1 min", 1),
    (f"3 s; {3 * SOON}serve; 1 min", 0),
    ("serve; put back; mute; 1 min", 1),
    (f"serve; {DROPS}10 min", 1),
    (f"serve; {DROPS}1 h; 1 min; 1 h", 2),
    ("serve; dropped 1; 1 min; dropped 2; 1 min; stop; 1 h; serve", 2),
    ("mute; silent; serve", 0),
    (f"mute; silent; serve; {FLAPPING}", 1),
    (f"mute; silent; serve; {2 * FLAPPING}1 h", 3),
]


def play(world: World, story: str) -> None:
    for event in filter(None, story.split("; ")):
        what, _, number = event.partition(" ")
        if event in EVENTS:
            EVENTS[event](world)
        elif what == "dropped":
            world.broker.tell(BROKER_DROPPED, number.encode())
        elif what == "serve":
            world.serve(for_s=float(number.split()[0]))
        else:
            world.wait(float(what) * UNITS[number])


@pytest.mark.medium
def test_a_fresh_store_and_an_undisturbed_broker_recall_nothing(world: World) -> None:
    play(world, 3 * QUIET)
    assert world.broker.recalls == []


@pytest.mark.medium
@pytest.mark.parametrize(("story", "made"), STORIES)
def test_each_sign_of_a_loss_is_recalled_once(world: World, story: str, made: int) -> None:
    play(world, story)
    assert world.made == made


def test_a_recall_is_stored_before_it_is_published(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    stored: list[bool] = []
    deliver = world.broker.deliver

    def watched(topic: str, payload: bytes, *, retain: bool = False) -> None:
        if topic == TOPIC:
            with SqliteEditor(world.path) as reader:
                stored.append(encode_recall(reader.recalls()[0].recall) == payload)
        deliver(topic, payload, retain=retain)

    monkeypatch.setattr(world.broker, "deliver", watched)
    play(world, "serve; killed; 1 min")
    assert stored == [True]
    assert world.open is not None
    assert (world.open.task, world.open.digest, world.open.over) == ("heights", HEIGHTS.digest, 60)
    assert world.broker.retained[task_topic("heights")] == HEIGHTS.payload


def test_a_sign_whose_recall_was_not_stored_is_found_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    play(world, "serve; 1 min; stop; put back")
    with monkeypatch.context() as patched:
        patched.setattr(SqliteStore, "recall", lambda *_: 1 / 0)
        failing = Aggregator(world.broker.bus(), world.store, tasks=(HEIGHTS,), clock=world.now)
        with pytest.raises(ZeroDivisionError):
            world.loop.run_until_complete(failing.run())
    assert world.made == 0
    world.serve()
    assert world.made == 1


@pytest.mark.parametrize("words", [b"", b"-5 seconds", b"9" * 30, b"\xff", b"1e9 seconds"])
def test_nonsense_of_a_broker_is_as_good_as_silence(world: World, words: bytes) -> None:
    play(world, "mute; serve")
    for topic in (BROKER_UPTIME, BROKER_DROPPED):
        world.broker.tell(topic, words)
    play(world, "cut off; 1 min")
    assert world.made == 1


@pytest.mark.medium
@pytest.mark.parametrize("jump", [timedelta(hours=9), -timedelta(hours=9), timedelta(days=400)])
def test_a_clock_that_jumps_does_not_storm(world: World, jump: timedelta) -> None:
    world.serve()
    for _ in range(5):
        world.offset += jump
        play(world, "1 min; cut off; 1 min")
    assert world.made == 0  # within one process the jump is no sign
    world.stop()
    world.offset += jump
    world.serve()
    for _ in range(5):
        play(world, "cut off; 1 min")
    assert world.made <= 1


def test_a_task_that_is_taken_over_is_recalled_by_its_new_owner(world: World) -> None:
    others = world.claim("f" * 32, 10**6, term=3)
    world.broker.retained[ESTIMATE] = others
    world.serve()
    world.broker.kill()  # which is for the other one to recall
    world.broker.retained[ESTIMATE] = others
    world.wait(60)
    assert world.made == 0
    result = CliRunner().invoke(app, ["take-over", "heights", "--store", str(world.path)])
    assert result.exit_code == 0, result.output
    world.wait(10)
    assert world.made == 1
    assert world.open == world.store.recalls()[0].recall
    assert world.estimate["store"] == world.store.public_identity


# A store that lacks what it has published


def test_a_store_put_back_by_the_command_recalls_once(world: World) -> None:
    play(world, "serve; 1 min; stop")
    world.mark_restored()
    for _ in range(3):
        play(world, "serve; stop")
    assert world.made == 1
    assert not world.store.restored


def test_a_store_with_fewer_reports_than_it_published_recalls_once(world: World) -> None:
    world.broker.retained[ESTIMATE] = world.claim(world.store.public_identity, 60_000)
    for _ in range(2):
        play(world, "serve; stop")
    assert world.made == 1
    assert world.store.recalls()[0].recall.over == 120
    assert world.estimate["n"] == 0


def test_what_waited_on_the_broker_does_not_hide_a_loss(world: World, tmp_path: Path) -> None:
    """Ten are in the copy, ten were counted since; while nobody counts, thirty more wait on the broker."""
    world.serve()
    world.send(*(frame() for _ in range(10)))
    world.copy(tmp_path / "copy")
    world.send(*(frame() for _ in range(10)))
    world.stop()
    assert world.estimate["n"] == 20
    world.put_back(tmp_path / "copy")
    world.send(*(frame() for _ in range(30)))
    world.serve()
    assert (world.n, world.made) == (40, 1)
    play(world, "cut off; 1 min; stop; serve")
    assert world.made == 1  # what it publishes from then on it has counted itself


def test_a_restored_store_is_not_recalled_for_its_old_estimate_too(world: World) -> None:
    world.broker.retained[ESTIMATE] = world.claim(world.store.public_identity, 60_000)
    world.mark_restored()
    world.serve()
    assert world.made == 1
    world.broker.retained[ESTIMATE] = world.claim(world.store.public_identity, 70_000)
    play(world, "cut off; 1 min")  # what is there now nobody has recalled
    assert world.made == 2


def test_a_session_that_another_store_left_is_warned_about_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Where the client id is the user, a mistyped store takes what waits for the right one."""
    play(world, "serve; stop; serve; stop")
    assert told(caplog, "hush task recall") == 0  # its own
    world.store.recall([], replace(world.store.broker(), session=False))
    play(world, "serve; stop; serve; stop")
    assert told(caplog, "session", "hush task recall") == 1


# What is published


def test_a_task_is_recallable_while_its_reports_count() -> None:
    later = make_task(DRAFT | {"opens": "2027-03-01T23:00:00Z"})
    gone = make_task(DRAFT | {"closes": "2027-03-01T11:54:00Z"})
    late = make_task(DRAFT | {"closes": "2027-03-01T11:56:00Z"})
    row = TaskRow("heights", b"", b"")
    assert [is_recallable(task, row, START) for task in (HEIGHTS, later, gone, late)] == [True, False, False, True]
    assert not is_recallable(HEIGHTS, replace(row, state=TaskState.CLOSED), START)


def test_the_time_over_which_it_is_spread_grows_with_what_may_come(world: World) -> None:
    daily = {"rounds": 365, "round_every": "1d", "opens": "2027-02-01T00:00:00Z", "enrolled": 100_000}
    world.store.add_task(HEIGHTS)
    cases = [
        (HEIGHTS, 0, 60),
        (HEIGHTS, 30_001, 61),
        (HEIGHTS, 2**53, 86_400),
        (make_task(DRAFT | {"enrolled": 1_000_000}), 0, 2000),
        (make_task(DRAFT | daily), 0, 1600),  # eight rounds reach into the last seven days
    ]
    found = [new_recall(world.store, task, START, expected).recall.over for task, expected, _ in cases]
    assert found == [over for _, _, over in cases]


def test_a_command_is_published_within_two_seconds_and_again_when_lost(world: World) -> None:
    world.serve()
    recall = world.ask()
    world.wait(2)
    assert world.open == recall
    world.broker.retained.pop(TOPIC)
    world.broker.drop()
    world.wait(20)
    assert world.open == recall
    world.stop()
    world.broker.retained.pop(TOPIC)
    world.serve()
    assert world.open == recall


def test_a_recall_that_another_client_writes_or_clears_is_put_right(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.serve()
    for written in (FOREIGN, b"nonsense", FOREIGN):
        world.write(TOPIC, written)
        assert TOPIC not in world.broker.retained
    recall = world.ask()
    world.wait(2)
    for written in (FOREIGN, b""):
        world.write(TOPIC, written)
        assert world.open == recall
    assert told(caplog, "heights", "another client", "recall") == 4
    world.write(recall_topic("other"), FOREIGN)  # the task of another aggregator
    assert world.broker.retained[recall_topic("other")] == FOREIGN


@pytest.mark.parametrize("restored", [True, False], ids=["hush store restore", "hush task recall"])
def test_its_own_earlier_recall_is_not_that_of_another_client(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture, *, restored: bool
) -> None:
    """A store put back lacks the recall that it published last; a command replaces it while the service is away."""
    world.serve()
    world.copy(tmp_path / "copy")
    published = world.ask()
    world.wait(2)
    assert world.open == published
    world.stop()
    if restored:
        world.put_back(tmp_path / "copy", by_command=True)
    else:
        world.ask()
    world.serve()
    assert world.open not in (None, published)
    later = world.ask()  # while it runs
    world.wait(2)
    assert world.open == later
    assert told(caplog, "another client") == 0
    world.write(TOPIC, FOREIGN)
    assert world.open == later
    assert told(caplog, "another client", "recall") == 1


def test_a_flood_of_foreign_recalls_is_answered_twice_a_second(world: World) -> None:
    world.serve()
    before = len(world.broker.recalls)
    for number in range(1000):
        world.write(TOPIC, FOREIGN.replace(bytes(16).hex().encode(), number.to_bytes(16, "big").hex().encode()), 0.01)
    assert len(world.broker.recalls) - before - 1000 <= 21


def test_a_user_who_may_not_write_recalls_is_told_once(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.serve()
    deliver = world.broker.deliver

    def forbidden(topic: str, payload: bytes, *, retain: bool = False) -> None:
        if topic != TOPIC:
            deliver(topic, payload, retain=retain)

    monkeypatch.setattr(world.broker, "deliver", forbidden)
    for _ in range(3):
        world.ask()
        world.wait(20)
    assert told(caplog, "heights", "hush/v1/recalls/+", "allow") == 1


@pytest.mark.medium
def test_quiet_hours_cost_a_write_every_ten_minutes(world: World) -> None:
    world.serve()
    before = world.store.version()
    world.wait(HOUR)
    assert 1 <= world.store.version() - before <= 6 + 1


# When it ends


def test_a_recall_ends_after_seven_days_and_its_spread(world: World) -> None:
    world.serve()
    world.ask()
    world.offset += timedelta(seconds=WEEK - LASTING_S - 60)
    world.wait(LASTING_S + 50)
    assert world.open is not None
    world.wait(60 + LASTING_S + 120)
    assert TOPIC not in world.broker.retained
    assert world.store.recalls() == []


def test_a_recall_that_ends_while_the_service_is_away_is_cleared_later(world: World) -> None:
    world.serve()
    world.ask()
    world.wait(5)
    world.stop()
    world.wait(2 * WEEK)
    world.serve()
    assert world.open is not None
    world.wait(LASTING_S + 120)
    assert TOPIC not in world.broker.retained


def test_a_clock_that_is_ahead_for_a_while_ends_no_recall(world: World) -> None:
    world.serve()
    recall = world.ask()
    world.wait(5)
    for _ in range(3):
        world.offset += timedelta(days=30)
        world.wait(LASTING_S - 60)
        world.offset -= timedelta(days=30)
        world.wait(120)
    assert world.open == recall
    assert not world.store.recalls()[0].ended


def test_an_operator_who_closes_the_task_ends_its_recall(world: World) -> None:
    world.serve()
    world.ask()
    world.wait(2)
    with SqliteEditor(world.path) as command:
        command.close_task("heights")
    world.wait(2)
    assert TOPIC not in world.broker.retained
    assert world.store.recalls() == []
    play(world, "killed; 1 min")
    assert world.open is None


@pytest.mark.medium
@pytest.mark.parametrize("recalled", [True, False], ids=["recalled", "the twin without a recall"])
def test_recalled_reports_count_for_twice_the_spread_after_the_end(world: World, *, recalled: bool) -> None:
    world.task = CLOSING
    world.serve()
    lost = [frame(CLOSING) for _ in range(4)]
    world.wait(55 * 60 - world.loop.time())
    if recalled:
        world.broker.kill()  # five minutes before the end, and nobody knows what was lost
    world.wait(30)
    assert (world.open is not None) is recalled
    world.wait(HOUR + 300 + 2 * 60 - world.loop.time() - 2)
    world.send(*lost)
    assert world.n == (4 if recalled else 0)
    world.wait(5)
    world.send(lost[0], frame(CLOSING))
    assert world.store.refusals("heights") == (
        {Refusal.DUPLICATE: 1, Refusal.CLOSED: 1} if recalled else {Refusal.CLOSED: 6}
    )


# What an uptime proves about a broker, however late it comes, and what it does not

WALL = 1_800_000_000.0


@dataclass
class Uptimes:
    """A broker that publishes its uptime every ten seconds, and an aggregator that reads it."""

    time: float = 1000.0
    started: float = 0.0
    jump: float = 0.0
    opened: float = 0.0
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
def test_late_uptimes_of_one_broker_are_never_a_restart(delay: float) -> None:
    """Behind a backlog the second one is minutes old: `now` less the uptime lies long after the last connection."""
    broker = Uptimes()
    broker.live()
    for _ in range(3):
        broker.time += 3
        assert broker.connect() is None
        for number in range(1, 4):
            assert broker.next(number, late=delay) is None, number
        broker.live()


def test_an_uptime_that_is_repeated_proves_nothing() -> None:
    broker = Uptimes()
    broker.live()
    broker.time += 5
    assert broker.connect() is None
    for _ in range(5):
        broker.time += 60
        assert broker.next(0) is None
    assert broker.next(40) is None


@pytest.mark.parametrize("late", [0, 9, 60])
@pytest.mark.parametrize("away", [1, 30, 100_000])
@pytest.mark.parametrize("same_process", [True, False])
def test_a_restart_is_found_by_the_second_uptime(late: float, away: float, same_process: bool) -> None:
    broker = Uptimes()
    broker.live(300)
    broker.time += away / 2
    broker.started = broker.time
    broker.time += away / 2
    if not same_process:
        broker.start(broker.signs.memory)
    assert (broker.connect() or broker.next(late=late)) is RecallReason.RESTART
    assert broker.signs.evidence
    broker.time += 5
    broker.live(30)


@pytest.mark.parametrize("jump", [-50.0, 0.0, 30.0, 7200.0])
def test_a_start_of_the_aggregator_is_no_start_of_the_broker(jump: float) -> None:
    """Unless its clock was put forward by more than a minute: then the broker seems to have started later."""
    broker = Uptimes()
    broker.live(300)
    broker.jump = jump
    broker.start(broker.signs.memory)
    broker.time += 20
    cause = broker.connect() or broker.next()
    assert (cause is None) is (jump < 60)


def test_a_broker_that_was_seconds_old_is_in_doubt_until_nothing_is_late() -> None:
    broker = Uptimes(time=1.0)
    assert broker.connect() is None
    broker.started = 2.0
    broker.time = 3.0
    assert broker.connect() is None
    assert broker.next(late=30) is None, "it is late: the next one may tell"
    assert broker.next(5, since=50.0) is RecallReason.RESTART


def test_a_broker_that_answers_pings_proves_that_it_lives() -> None:
    """The last uptime was 0 s, but it answered pings until it was 9 s old."""
    broker = Uptimes(time=2.0)
    assert broker.connect() is None
    broker.time = 9.5
    broker.signs.alive(9.0)
    assert broker.signs.memory.alive == int(WALL + 9)
    assert broker.connect() is None
    assert broker.next() is None


def test_a_ping_two_seconds_after_its_start_is_enough_to_know_it_again() -> None:
    """The aggregator stops after two seconds, and is killed again and again before it hears a second uptime."""
    broker = Uptimes(time=1.2, started=0.3)
    assert broker.connect() is None
    broker.time = 3.2
    broker.signs.alive(2.2)  # a ping a second is answered
    memory = broker.signs.memory
    for moment in (13.0, 18.0, 27.0):
        broker.time = moment
        broker.start(memory)
        assert broker.connect() is None
        memory = broker.signs.memory
    assert broker.next() is None
