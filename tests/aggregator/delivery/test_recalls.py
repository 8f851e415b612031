"""When an aggregator recalls, what it publishes, and when a recall ends: a whole service over a broker in memory."""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from broker_world import CLOSING, DRAFT, HEIGHTS, HOUR, START, TOPIC, WEEK, World, frame, living
from typer.testing import CliRunner

from hush_aggregator import Aggregator, SqliteStore
from hush_aggregator.closing import LASTING_S
from hush_aggregator.commands.task import app
from hush_aggregator.recalls import is_recallable, new_recall
from hush_aggregator.store import BrokerMemory, SqliteEditor, StoredRecall, TaskRow, TaskState
from hush_common.recall import Recall, encode_recall
from hush_common.task import make_task
from hush_common.topics import BROKER_DROPPED, BROKER_UPTIME, estimate_topic, recall_topic, task_topic
from hush_common.wire import Refusal


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with living(tmp_path / "hush.sqlite") as world:
        yield world


# When


def test_a_fresh_store_and_an_undisturbed_broker_recall_nothing(world: World) -> None:
    for _ in range(3):
        world.serve()
        world.wait(HOUR)
        world.broker.drop()
        world.wait(60)
        world.stop()
    assert world.broker.recalls == []


def test_a_broker_that_has_lost_the_session_is_one_recall_stored_before_it_is_published(world: World) -> None:
    world.serve()
    world.broker.kill()
    seen: list[bool] = []
    publish = world.broker.deliver

    def deliver(topic: str, payload: bytes, *, retain: bool = False) -> None:
        if topic == TOPIC:
            with SqliteEditor(world.path) as reader:
                seen.append(encode_recall(reader.recalls()[0].recall) == payload)
        publish(topic, payload, retain=retain)

    world.broker.deliver = deliver  # type: ignore[method-assign]  # looks on
    world.wait(HOUR)
    assert seen == [True]
    recall = world.open
    assert recall is not None
    assert (recall.task, recall.digest, recall.over) == ("heights", HEIGHTS.digest, 60)
    assert world.broker.retained[task_topic("heights")] == HEIGHTS.payload


def test_a_broker_put_back_from_a_snapshot_that_has_the_session_is_found_by_its_uptime(world: World) -> None:
    world.serve()
    world.wait(HOUR)
    world.broker.kill(keep=True)
    world.wait(60)
    assert world.made == 1
    world.broker.kill(keep=True)  # so soon that both starts are within what clocks may differ
    world.wait(60)
    assert world.made == 2


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("away", [5.0, HOUR, 30 * 86400.0])
def test_what_happened_while_the_service_was_away_is_found_at_its_next_start(
    world: World, *, keep: bool, away: float
) -> None:
    world.serve()
    world.wait(60)
    world.stop()
    world.wait(away)
    world.broker.kill(keep=keep)
    world.wait(away)
    world.serve()
    assert world.made == 1


def test_a_broker_that_starts_anew_in_the_second_in_which_it_was_last_heard_is_found_out(world: World) -> None:
    world.serve(for_s=0.3)
    world.stop()
    world.broker.kill(keep=True)
    world.serve()
    world.wait(60)
    assert world.made == 1


def test_a_service_that_starts_again_soon_after_its_broker_did_takes_no_old_word_for_a_start(world: World) -> None:
    world.wait(3)
    for _ in range(3):
        world.serve(for_s=4)  # the word that is retained is older than the end of this
        world.stop()
        world.broker.drop()
    world.serve()
    world.wait(60)
    assert world.made == 0


def test_a_broker_that_says_one_word_alone_leaves_a_doubt_and_is_recalled(world: World) -> None:
    world.serve()
    world.broker.kill(keep=True)
    world.broker.mute = True
    world.wait(40)
    assert world.made == 1


def test_a_sign_whose_recall_was_not_stored_is_found_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.serve()
    world.wait(60)
    world.stop()
    world.broker.kill(keep=True)
    with monkeypatch.context() as patched:
        patched.setattr(SqliteStore, "recall", lambda *_: 1 / 0)
        running = world.loop.create_task(
            Aggregator(world.broker.bus(), world.store, tasks=(HEIGHTS,), clock=world.now).run()
        )
        world.wait(10)
        assert running.done()
        assert isinstance(running.exception(), ZeroDivisionError)
    assert world.made == 0
    world.serve()
    assert world.made == 1


@pytest.mark.large
def test_dropped_messages_are_recalled_at_most_once_an_hour_and_the_last_of_them_too(world: World) -> None:
    world.serve()
    for count in range(1, 60):
        world.broker.tell(BROKER_DROPPED, b"%d" % count)
        world.wait(60)
    assert world.made == 1
    world.wait(2 * HOUR)
    assert world.made == 2
    world.wait(5 * HOUR)
    assert world.made == 2


def test_a_drop_that_was_not_recalled_yet_is_remembered_by_the_next_start(world: World) -> None:
    world.serve()
    for count in (1, 2):
        world.broker.tell(BROKER_DROPPED, b"%d" % count)
        world.wait(60)
    world.stop()
    world.wait(HOUR)
    world.serve()
    assert world.made == 2


@pytest.mark.large
def test_a_broker_that_does_not_speak_of_itself_is_a_doubt_once_an_hour(world: World) -> None:
    world.broker.mute = True
    world.broker.about.clear()
    world.serve()
    assert world.made == 0
    for _ in range(10):
        world.broker.drop()
        world.wait(10 * 60)
    assert world.made == 2
    world.wait(HOUR)
    assert world.made == 3  # for the last reconnections, which were within the hour
    world.wait(5 * HOUR)
    assert world.made == 3


@pytest.mark.parametrize("words", [b"", b"-5 seconds", b"x", b"9" * 30, b"\xff", b"1e9 seconds", b"0x10"])
def test_nonsense_about_itself_is_as_good_as_silence(world: World, words: bytes) -> None:
    world.broker.mute = True
    world.serve()
    for topic in (BROKER_UPTIME, BROKER_DROPPED):
        world.broker.tell(topic, words)
    world.broker.drop()
    world.wait(60)
    assert world.made == 1


@pytest.mark.parametrize("jump", [timedelta(hours=9), -timedelta(hours=9), timedelta(days=400)])
def test_a_clock_that_jumps_does_not_storm(world: World, jump: timedelta) -> None:
    world.serve()
    for _ in range(5):
        world.offset += jump
        world.wait(60)
        world.broker.drop()
        world.wait(60)
    assert world.made == 0  # within one process the jump is no sign
    world.stop()
    world.offset += jump
    world.serve()
    for _ in range(5):
        world.broker.drop()
        world.wait(60)
    assert world.made <= 1


def asked(world: World) -> Recall:
    """`hush task recall`, as far as the store goes."""
    row = new_recall(world.store, world.task, world.now())
    with SqliteEditor(world.path) as command:
        command.recall([row])
    return row.recall


def test_a_command_is_reacted_to_within_two_seconds(world: World) -> None:
    world.serve()
    recall = asked(world)
    world.wait(2)
    assert world.open == recall


def test_a_session_that_another_store_left_is_told_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Where the client id is the user, a mistyped store takes what waits for the right one."""
    for _ in range(2):
        world.serve()
        world.stop()
    assert "never had" not in caplog.text  # its own
    world.store._connection.execute("UPDATE broker SET session = 0")
    for _ in range(2):
        world.serve()
        world.stop()
    assert caplog.text.count("a session that this store never had") == 1


def test_a_store_put_back_from_a_backup_recalls_once(world: World) -> None:
    world.serve()
    world.wait(60)
    world.stop()
    world.store._connection.execute("UPDATE identity SET restored = 1")
    for _ in range(3):
        world.serve()
        world.stop()
    assert world.made == 1
    assert not world.store.restored


def test_a_task_that_is_taken_over_is_recalled_once_it_is_this_stores(world: World) -> None:
    others = {"store": "f" * 32, "term": 3, "digest": HEIGHTS.digest.hex(), "n": 10**6}
    world.broker.retained[estimate_topic("heights")] = json.dumps(others).encode()
    world.serve()
    world.broker.kill()  # which is for the other one to recall
    world.broker.retained[estimate_topic("heights")] = json.dumps(others).encode()
    world.wait(60)
    assert world.made == 0
    result = CliRunner().invoke(app, ["take-over", "heights", "--store", str(world.path)])
    assert result.exit_code == 0, result.output
    world.wait(10)
    assert world.made == 1
    assert world.open == world.store.recalls()[0].recall
    assert world.estimate["store"] == world.store.public_identity


def test_an_estimate_of_this_store_with_more_reports_than_it_has_is_recalled_once(world: World) -> None:
    own = {"store": world.store.public_identity, "term": 1, "digest": HEIGHTS.digest.hex(), "n": 60_000}
    world.broker.retained[estimate_topic("heights")] = json.dumps(own).encode()
    for _ in range(2):
        world.serve()
        world.stop()
    assert world.made == 1
    assert world.store.recalls()[0].recall.over == 120
    assert world.estimate["n"] == 0


def test_what_waited_at_the_broker_does_not_hide_what_a_store_copied_back_lacks(tmp_path: Path) -> None:
    """Ten are in the copy, ten were counted since; while nobody counts, thirty more wait on the broker."""
    with living(tmp_path / "hush.sqlite") as world:
        world.serve()
        world.send(*(frame() for _ in range(10)))
        with closing(sqlite3.connect(tmp_path / "copy")) as copy:
            world.store._connection.backup(copy)
        world.send(*(frame() for _ in range(10)))
        world.stop()
        assert world.estimate["n"] == 20
        with closing(sqlite3.connect(tmp_path / "copy")) as copy, closing(sqlite3.connect(world.path)) as there:
            copy.backup(there)
        world.send(*(frame() for _ in range(30)))
        world.serve()
        assert (world.n, world.made) == (40, 1)
        world.broker.drop()
        world.wait(60)
        world.stop()
        world.serve()
        assert world.made == 1  # what it publishes from then on it has counted itself


def test_a_store_put_back_from_a_backup_is_not_recalled_for_its_old_estimate_too(world: World) -> None:
    own = {"store": world.store.public_identity, "term": 1, "digest": HEIGHTS.digest.hex(), "n": 60_000}
    world.broker.retained[estimate_topic("heights")] = json.dumps(own).encode()
    world.store._connection.execute("UPDATE identity SET restored = 1")
    world.serve()
    assert world.made == 1
    world.broker.retained[estimate_topic("heights")] = json.dumps(own | {"n": 70_000}).encode()
    world.broker.drop()  # what is there now nobody has recalled
    world.wait(60)
    assert world.made == 2


def test_tasks_that_are_closed_or_not_yet_open_or_over_are_not_recalled() -> None:
    later = make_task(DRAFT | {"opens": "2027-03-01T23:00:00Z"})
    gone = make_task(DRAFT | {"closes": "2027-03-01T11:54:00Z"})
    late = make_task(DRAFT | {"closes": "2027-03-01T11:56:00Z"})
    row = TaskRow("heights", b"", b"")
    kept = [is_recallable(task, row, START) for task in (HEIGHTS, later, gone, late)]
    assert kept == [True, False, False, True]
    assert not is_recallable(HEIGHTS, replace(row, state=TaskState.CLOSED), START)


# What is published


def test_the_time_over_which_it_is_spread_grows_with_what_may_come(world: World) -> None:
    daily = {"rounds": 365, "round_every": "1d", "opens": "2027-02-01T00:00:00Z", "enrolled": 100_000}
    world.store.add_task(HEIGHTS)
    overs = [
        new_recall(world.store, task, START, expected).recall.over
        for task, expected in [
            (HEIGHTS, 0),
            (HEIGHTS, 30_001),
            (HEIGHTS, 2**53),
            (make_task(DRAFT | {"enrolled": 1_000_000}), 0),
            (make_task(DRAFT | daily), 0),  # eight rounds reach into the last seven days
        ]
    ]
    assert overs == [60, 61, 86_400, 2000, 1600]


def test_a_recall_that_somebody_else_writes_or_clears_is_put_right(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.serve()
    foreign = encode_recall(Recall("heights", HEIGHTS.digest, bytes(16), 86_400))
    for written in (foreign, b"nonsense", foreign):
        world.broker.deliver(TOPIC, written, retain=True)
        world.wait(2)
        assert TOPIC not in world.broker.retained
    recall = asked(world)
    world.wait(2)
    for written in (foreign, b""):
        world.broker.deliver(TOPIC, written, retain=True)
        world.wait(2)
        assert world.open == recall
    assert caplog.text.count("another client has written its recall") == 4
    world.broker.deliver(recall_topic("other"), foreign, retain=True)  # a task that is none of its own
    world.wait(2)
    assert world.broker.retained[recall_topic("other")] == foreign


@pytest.mark.parametrize("restored", [True, False], ids=["hush store restore", "hush task recall"])
def test_its_own_earlier_recall_is_not_that_of_somebody_else(
    world: World, caplog: pytest.LogCaptureFixture, *, restored: bool
) -> None:
    """A store put back lacks the recall that it published last; a command replaces it while the service is away."""
    world.serve()
    with closing(sqlite3.connect(":memory:")) as copy:
        world.store._connection.backup(copy)
        published = asked(world)
        world.wait(2)
        assert world.open == published
        world.stop()
        if restored:
            copy.backup(world.store._connection)
    if restored:
        world.store._connection.execute("UPDATE identity SET restored = 1")
    else:
        asked(world)
    world.serve()
    assert world.open not in (None, published)
    later = asked(world)  # while it runs
    world.wait(2)
    assert world.open == later
    assert "somebody else" not in caplog.text
    world.broker.deliver(TOPIC, encode_recall(Recall("heights", HEIGHTS.digest, bytes(16), 86_400)), retain=True)
    world.wait(2)
    assert world.open == later
    assert caplog.text.count("another client has written its recall") == 1


def test_a_flood_of_foreign_recalls_is_answered_twice_a_second(world: World) -> None:
    world.serve()
    before = len(world.broker.recalls)
    for number in range(1000):
        world.broker.deliver(
            TOPIC, encode_recall(Recall("heights", HEIGHTS.digest, number.to_bytes(16, "big"), 1)), retain=True
        )
        world.wait(0.01)
    assert len(world.broker.recalls) - before - 1000 <= 21


def test_an_open_recall_is_published_again_on_every_connection(world: World) -> None:
    world.serve()
    recall = asked(world)
    world.wait(2)
    world.broker.retained.pop(TOPIC)
    world.broker.drop()
    world.wait(20)
    assert world.open == recall
    world.stop()
    world.broker.retained.pop(TOPIC)
    world.serve()
    assert world.open == recall


def test_a_user_who_may_not_write_recalls_is_told_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.serve()
    deliver = world.broker.deliver
    world.broker.deliver = lambda topic, payload, *, retain=False: (  # type: ignore[method-assign]  # an access rule
        None if topic == TOPIC else deliver(topic, payload, retain=retain)
    )
    for _ in range(3):
        asked(world)
        world.wait(20)
    told = "the recall of heights did not come back from the broker: allow this user to write and to read"
    assert caplog.text.count(told) == 1


def test_a_quiet_day_costs_a_write_every_ten_minutes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[object] = []
    recall = SqliteStore.recall

    def watched(
        store: SqliteStore, rows: Sequence[StoredRecall], memory: BrokerMemory | None = None
    ) -> list[StoredRecall]:
        written.append(memory)
        return recall(store, rows, memory)

    monkeypatch.setattr(SqliteStore, "recall", watched)
    monkeypatch.setattr("hush_aggregator.closing._CHECK_EVERY_S", 60)
    world.serve()
    world.wait(24 * HOUR)
    assert 24 <= len(written) <= 24 * 6 + 5


# When it ends


@pytest.mark.large
def test_a_recall_ends_after_seven_days_and_its_spread_and_is_cleared(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hush_aggregator.closing._CHECK_EVERY_S", 600)
    world.serve()
    asked(world)
    world.wait(WEEK)
    assert world.open is not None
    world.wait(60 + LASTING_S + 120)
    assert TOPIC not in world.broker.retained
    assert world.store.recalls() == []


def test_a_recall_that_ends_while_the_service_is_away_is_cleared_by_the_next_start(world: World) -> None:
    world.serve()
    asked(world)
    world.wait(5)
    world.stop()
    world.wait(2 * WEEK)
    world.serve()
    assert world.open is not None
    world.wait(LASTING_S + 120)
    assert TOPIC not in world.broker.retained


def test_a_clock_that_is_ahead_for_a_minute_ends_nothing(world: World) -> None:
    world.serve()
    recall = asked(world)
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
    asked(world)
    world.wait(2)
    with SqliteEditor(world.path) as command:
        command.close_task("heights")
    world.wait(2)
    assert TOPIC not in world.broker.retained
    assert world.store.recalls() == []
    world.broker.kill()
    world.wait(60)
    assert world.open is None


def test_what_is_recalled_before_the_end_counts_until_twice_its_spread_after_it(world: World) -> None:
    world.task = CLOSING
    world.serve()
    lost = [frame(CLOSING) for _ in range(4)]
    world.wait(55 * 60 - world.loop.time())
    world.broker.kill()  # five minutes before the end, and nobody knows what was lost
    world.wait(30)
    assert world.open is not None
    world.wait(HOUR + 300 + 2 * 60 - world.loop.time() - 2)
    world.send(*lost)
    assert world.n == 4
    world.wait(5)
    world.send(lost[0], frame(CLOSING))
    assert world.n == 4
    assert world.store.refusals("heights") == {Refusal.DUPLICATE: 1, Refusal.CLOSED: 1}


def test_without_a_recall_the_same_reports_are_late(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hush_aggregator.recalls.RecallManager._note", lambda *_: None)
    with pytest.raises(AssertionError):
        test_what_is_recalled_before_the_end_counts_until_twice_its_spread_after_it(world)
