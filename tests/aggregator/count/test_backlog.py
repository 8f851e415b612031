"""A backlog is normal: nothing stalls, nothing is lost, nothing is counted twice, whatever the broker is like."""

import asyncio
import random
import re
import signal
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from backlog import Service, counted_ids, fill, report_id, retain, slowed
from counting import counted
from paho.mqtt.client import topic_matches_sub
from scripted_broker import Manners, ScriptedBroker
from servers import Mosquitto

from hush import Task
from hush_aggregator import Aggregator, MqttBroker, SqliteStore
from hush_aggregator.store import CommitOutcome
from hush_common.broker_url import BrokerUrl
from hush_common.mqtt.connection import AckQueue, MqttClient, TopicHandlers
from hush_common.task import make_task
from hush_common.topics import ALL_TASKS, Delivery, report_topic, task_topic
from hush_common.wire import Report, encode_frame

NUMBER = make_task({"id": "number", "epsilon": "1", "domain": {"kind": "number", "lower": 0.0, "upper": 1.0}})
LONGEST_GAP_S = 5.0
BUSY = 4
"""How many times as long a machine with other work may take: a connection that stalls is given up after 30 s."""
MOST_MB = 200


def foreign(count: int) -> list[tuple[str, bytes]]:
    """Retained tasks of nobody here, of 350 bytes or so."""
    draft = {"epsilon": "1", "title": "x" * 150, "domain": {"kind": "number", "lower": 0.0, "upper": 1.0}}
    return [(task_topic(f"f{place}"), make_task(draft | {"id": f"f{place}"}).payload) for place in range(count)]


def write_task(directory: Path, task: Task) -> Path:
    path = directory / "task.json"
    path.write_bytes(task.payload)
    return path


class Gaps:
    """The longest time between two commits, as far as the service ran and was not stopped."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._last = -1
        self._since = time.monotonic()

    def look(self, counted: int) -> None:
        now = time.monotonic()
        if counted != self._last:
            self._last, self._since = counted, now
        self.longest = max(self.longest, now - self._since)

    def forget(self) -> None:
        """The service is dead, or starts."""
        self._last, self._since = -1, time.monotonic()


def count_backlog(mosquitto: Mosquitto, directory: Path, reports: int, kills: int, seed: int) -> tuple[Service, float]:
    """Leave reports and foreign tasks waiting; count them with a quarter of a core, killed so many times at random.

    Returns the service, still running, and the longest gap between two commits.
    """
    options = ("--task", str(write_task(directory, NUMBER)))
    store = directory / "hush.sqlite3"
    service = Service(mosquitto.url, store, *options)
    service.until_subscribed()
    time.sleep(4)  # so that the broker is no longer as young as it may seem to be under load
    service.stop()
    retain(mosquitto.port, foreign(1000))
    fill(mosquitto.port, NUMBER, range(reports))
    dice = random.Random(seed)  # noqa: S311 - moments, not secrets
    ends = sorted(dice.randrange(1, reports) for _ in range(kills))
    gaps, most_mb, deadline = Gaps(), 0.0, time.monotonic() + 240 + reports / 2000
    service = Service(mosquitto.url, store, *options)
    while True:
        starting = True
        before = service.counted()
        with slowed(service):
            while (now := service.counted()) < (ends[0] if ends else reports):
                assert time.monotonic() < deadline, service.text
                starting = starting and now == before
                if starting:
                    gaps.forget()
                gaps.look(now)
                time.sleep(0.02)
        most_mb = max(most_mb, service.resident_mb)
        if not ends:
            break
        while ends and ends[0] <= now:
            ends.pop(0)
        service.kill()
        gaps.forget()
        service = Service(mosquitto.url, store, *options)
    while service.text.count("aggregator: connected to") < kills + 2:
        assert time.monotonic() < deadline, service.text
        time.sleep(0.05)
    assert most_mb < MOST_MB
    return service, gaps.longest


def assert_counted(service: Service, reports: int) -> None:
    """Counted = made, by id, with no recall and no error."""
    assert service.stop() < 5 * BUSY
    assert sorted(counted_ids(service.store)) == sorted(map(report_id, range(reports)))
    assert "recalled" not in service.text
    assert "ERROR" not in service.text


@pytest.mark.large
@pytest.mark.timeout(400)
def test_a_backlog_is_counted_on_a_quarter_of_a_core_beside_foreign_tasks_and_kills(
    mosquitto: Mosquitto, tmp_path: Path
) -> None:
    service, gap = count_backlog(mosquitto, tmp_path, 60_000, kills=2, seed=1)
    assert_counted(service, 60_000)
    assert gap < LONGEST_GAP_S * BUSY


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_million_reports_are_counted_through_ten_kills(mosquitto: Mosquitto, tmp_path: Path) -> None:
    service, gap = count_backlog(mosquitto, tmp_path, 1_000_000, kills=10, seed=2)
    assert_counted(service, 1_000_000)
    assert gap < LONGEST_GAP_S
    assert re.search(r"draining a backlog: \d+ counted, \d+ a second, about \d+ wait on the broker", service.text)


# Brokers that repeat packet ids, answer late, or are silent


@asynccontextmanager
async def aggregating(broker: ScriptedBroker, path: Path, *outcomes: list[CommitOutcome]) -> AsyncIterator[Aggregator]:
    """Over one connection, where tasks, reports and answers come one behind the other."""
    with SqliteStore(path) as store:
        bus = MqttBroker(BrokerUrl.parse(broker.url), "hush-aggregator-test", kept=True)
        aggregator = Aggregator(bus, store, tasks=(NUMBER,), settle_s=0.1)
        if outcomes:
            aggregator._on_commit = outcomes[0].append
        running = asyncio.create_task(aggregator.run())
        try:
            yield aggregator
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


def backlog(count: int, others: int = 0) -> list[tuple[str, bytes]]:
    """Reports, and between them so many tasks that are counted nowhere."""
    every = count // others if others else count + 1
    found = []
    for number in range(count):
        if number % every == every - 1:
            found.append((task_topic(f"f{number}"), b"{}"))
        payload = encode_frame([Report(NUMBER.report_digest, 0, report_id(number), (7,))])
        found.append((report_topic("number", f"d{number % 1000}"), payload))
    return found


async def drained(broker: ScriptedBroker, path: Path, reports: int, seconds: float) -> None:
    async with asyncio.timeout(seconds):
        while broker.backlog or counted(path) < reports:  # noqa: ASYNC110 - a store has no event
            await asyncio.sleep(0.05)


def hasty(received: AckQueue, numbers: Iterable[int]) -> None:
    """Planted: acknowledge at once, in whatever order."""
    for number in numbers:
        place = number - received._first
        if 0 <= place < len(received._ids):
            received._send(b"\x40\x02" + received._ids[place], 1)


def pass_tasks_by(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: tasks are acknowledged when they come, before the reports that came before them are counted.

    The first connection counts nothing at all, as on a machine that is too slow, so that the loss is no race.
    """
    takes, take, clients = TopicHandlers.takes, MqttClient.take, list[MqttClient]()

    def without_tasks(handlers: TopicHandlers, topic: str, payload: bytes) -> bool:
        return topic_matches_sub(ALL_TASKS, topic) or takes(handlers, topic, payload)

    async def nothing_at_first(client: MqttClient, most: int, most_bytes: int) -> list[Delivery]:
        if client not in clients:
            clients.append(client)
        if client is not clients[0]:
            return await take(client, most, most_bytes)
        await asyncio.wait({client._disconnected})
        return []

    monkeypatch.setattr(MqttClient, "take", nothing_at_first)
    monkeypatch.setattr(TopicHandlers, "takes", without_tasks)
    monkeypatch.setattr(AckQueue, "acknowledge", hasty)
    monkeypatch.setattr("hush_aggregator.broker.mqtt._INBOX_MESSAGES", 100_000)


async def drained_through_repeated_ids(path: Path, ids: int, hang_up_after: int, *, in_order: bool) -> bool:
    """70 000 messages are in flight; the broker hangs up, halfway or soon, and sends again what it has left.

    Return whether each report is counted once.
    """
    reports = 69_000
    waiting = ScriptedBroker(
        retained={}, backlog=backlog(reports, others=1000), manners=Manners(hang_up_after=hang_up_after), ids=ids
    )
    async with waiting.running() as broker, aggregating(broker, path) as aggregator:
        async with asyncio.timeout(200):
            while broker.backlog or (in_order and counted(path) < reports):  # noqa: ASYNC110 - a store has no event
                await asyncio.sleep(0.05)
        if not in_order:
            await asyncio.sleep(0.5)
        assert broker.connections == 2
        repeated = aggregator.intake.repeated
    found = counted_ids(path)
    assert counted(path) == len(found)
    assert (repeated > 0) is (ids < 65_535)
    return sorted(found) == sorted(map(report_id, range(reports)))


@pytest.mark.large
@pytest.mark.parametrize(("ids", "hang_up_after"), [(65_535, 35_000), (2000, 1500)])
async def test_packet_ids_that_repeat_lose_nothing_and_count_nothing_twice(
    tmp_path: Path, ids: int, hang_up_after: int
) -> None:
    assert await drained_through_repeated_ids(tmp_path / "hush.sqlite3", ids, hang_up_after, in_order=True)


@pytest.mark.large
async def test_packet_ids_that_repeat_lose_some_if_tasks_are_acknowledged_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pass_tasks_by(monkeypatch)
    assert not await drained_through_repeated_ids(tmp_path / "hush.sqlite3", 2000, 500, in_order=False)


def scaled(monkeypatch: pytest.MonkeyPatch, scale: float) -> None:
    """Seconds that hush waits, shortened like those of the broker."""
    for name in ("_PATIENCE_SECONDS", "_PING_SECONDS", "_SILENCE_SECONDS"):
        from hush_aggregator.broker import mqtt  # noqa: PLC0415 - what is patched

        monkeypatch.setattr(mqtt, name, getattr(mqtt, name) * scale)
    monkeypatch.setattr("hush_common.mqtt.connection._TICK_SECONDS", scale)


@pytest.mark.large
@pytest.mark.parametrize("scale", [0.05, pytest.param(1.0, marks=[pytest.mark.soak, pytest.mark.timeout(480)])])
@pytest.mark.parametrize(
    ("name", "manners"),
    [
        ("a late SUBACK", {"suback_after": 60}),
        ("retained messages first", {"retained_for": 60}),
        ("silence", {"silent_for": 15}),
    ],
)
async def test_a_broker_that_is_slow_is_not_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, manners: dict[str, float], scale: float
) -> None:
    scaled(monkeypatch, scale)
    path, reports, outcomes = tmp_path / "hush.sqlite3", 20_000, list[CommitOutcome]()
    slow = Manners(**{key: seconds * scale for key, seconds in manners.items()})  # type: ignore[arg-type]
    waiting = ScriptedBroker(retained={}, backlog=backlog(reports), manners=slow)
    async with waiting.running() as broker, aggregating(broker, path, outcomes):
        await drained(broker, path, reports, 100 + 100 * scale)
        assert broker.connections == 1, name
        if slow.suback_after or slow.retained_for:
            assert not broker.published, "it was counted before the broker has answered"
        async with asyncio.timeout(100 + 300 * scale):  # four subscriptions, each answered before the next is sent
            while task_topic("number") not in broker.retained:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.05)
        assert broker.connections == 1, name
    assert sorted(counted_ids(path)) == sorted(map(report_id, range(reports)))
    assert len(outcomes) > 2


async def test_a_broker_that_is_silent_for_longer_is_given_up_and_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scaled(monkeypatch, 0.02)
    path = tmp_path / "hush.sqlite3"
    waiting = ScriptedBroker(retained={}, backlog=backlog(1000), manners=Manners(silent_for=3))
    async with waiting.running() as broker, aggregating(broker, path):
        async with asyncio.timeout(60):
            while broker.connections < 2:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.05)
        broker.manners = Manners()
        await drained(broker, path, 1000, 60)
    assert "nothing came for 0.6 s, not even the answer to a ping; check the network" in caplog.text
    assert sorted(counted_ids(path)) == sorted(map(report_id, range(1000)))


@pytest.mark.large
def test_stopping_in_the_middle_of_a_backlog_takes_less_than_five_seconds(mosquitto: Mosquitto, tmp_path: Path) -> None:
    options = ("--task", str(write_task(tmp_path, NUMBER)))
    service = Service(mosquitto.url, tmp_path / "hush.sqlite3", *options)
    service.until_subscribed()
    service.stop()
    fill(mosquitto.port, NUMBER, range(60_000))
    service = Service(mosquitto.url, tmp_path / "hush.sqlite3", *options)
    while not (done := service.counted()):
        time.sleep(0.01)
    assert done < 60_000
    assert service.stop() < 5 * BUSY
    assert "Traceback" not in service.text
    last = Service(mosquitto.url, tmp_path / "hush.sqlite3", *options)
    while last.counted() < 60_000:
        time.sleep(0.05)
    last.process.send_signal(signal.SIGTERM)
    assert last.process.wait(60) == 0
