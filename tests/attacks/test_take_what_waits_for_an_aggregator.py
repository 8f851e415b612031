"""Whoever knows the client id of an aggregator wants the reports that wait for it deleted."""

import asyncio
import secrets
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import aiomqtt
import pytest
from counting import counted, refused
from servers import Mosquitto

from hush_aggregator.bus import Bus, Session
from hush_aggregator.commands.serve import _bus
from hush_aggregator.commands.serve_settings import Settings
from hush_aggregator.moving import MovingBus
from hush_aggregator.mqtt import MqttBus
from hush_aggregator.pipeline import Aggregator
from hush_aggregator.store import SqliteStore
from hush_common.broker_url import BrokerUrl
from hush_common.codec import encode_frame
from hush_common.errors import BrokerError
from hush_common.report import Report
from hush_common.task_file import make_task
from hush_common.topics import ALL_REPORTS, ALL_TASKS, status_topic

HEIGHTS = make_task({"id": "heights", "epsilon": "1", "domain": {"kind": "number", "lower": 120.0, "upper": 220.0}})
GUESSABLE = "hush-aggregator-aggregator"


async def report(mosquitto: Mosquitto, count: int) -> None:
    async with aiomqtt.Client("127.0.0.1", mosquitto.port, username="device") as client:
        for _ in range(count):
            payload = encode_frame([Report(HEIGHTS.report_digest, 0, secrets.token_bytes(16), (7,))])
            await client.publish("hush/v1/reports/heights/device", payload, qos=1)


@asynccontextmanager
async def running(bus: Bus, store: SqliteStore) -> AsyncIterator[None]:
    aggregator = asyncio.create_task(Aggregator(bus, store, tasks=(HEIGHTS,)).run())
    try:
        yield
    finally:
        aggregator.cancel()
        with suppress(asyncio.CancelledError):
            await aggregator


def settings(mosquitto: Mosquitto, path: Path) -> Settings:
    return Settings.read({"broker": mosquitto.url.replace("//", "//aggregator@"), "store": path})


async def count_until(mosquitto: Mosquitto, path: Path, reports: int, *, settled: bool = True) -> None:
    """Serve as `hush serve` does until so many are counted, and the former session is ended if there was one."""
    with SqliteStore(path) as store:
        async with running(_bus(settings(mosquitto, path), store), store), asyncio.timeout(20):
            while counted(path) < reports or (settled and store.has_former_session):  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.02)


async def old_session(mosquitto: Mosquitto, path: Path, reports: int) -> None:
    """What an earlier hush left: a store without an identity, and reports that wait under the guessable id."""
    url = settings(mosquitto, path).broker
    async with MqttBus(url, GUESSABLE, status=status_topic("aggregator")).connect((ALL_TASKS, ALL_REPORTS)):
        pass
    SqliteStore(path).close()
    with closing(sqlite3.connect(path)) as store, store:
        store.execute("UPDATE identity SET former = 1")
    await report(mosquitto, reports)


async def is_kept(mosquitto: Mosquitto, identifier: str) -> bool:
    """Whether the broker has a session of that id (and has none afterwards)."""
    bus = MqttBus(BrokerUrl.parse(mosquitto.url), identifier, kept=True)
    ending = MqttBus(BrokerUrl.parse(mosquitto.url), identifier)
    await report(mosquitto, 1)
    try:
        async with bus.connect(()) as session, asyncio.timeout(0.3):
            return bool(await session.batch())
    except TimeoutError:
        return False
    finally:
        async with ending.connect(()):
            pass


async def test_a_stranger_under_the_id_that_can_be_guessed_deletes_nothing(
    mosquitto: Mosquitto, tmp_path: Path
) -> None:
    path = tmp_path / "hush.sqlite"
    with SqliteStore(path) as store:
        async with _bus(settings(mosquitto, path), store).connect((ALL_TASKS, ALL_REPORTS)):
            pass
    await report(mosquitto, 100)
    async with aiomqtt.Client("127.0.0.1", mosquitto.port, identifier=GUESSABLE, clean_session=True):
        pass
    await count_until(mosquitto, path, 100)


async def test_what_waited_under_the_former_id_counts_once_and_its_session_is_ended(
    mosquitto: Mosquitto, tmp_path: Path
) -> None:
    path = tmp_path / "hush.sqlite"
    await old_session(mosquitto, path, 100)
    await asyncio.gather(count_until(mosquitto, path, 150), report(mosquitto, 50))
    assert counted(path) == 150
    assert refused(path).keys() <= {"duplicate"}  # what came while both sessions were subscribed
    assert not await is_kept(mosquitto, GUESSABLE)


class Away:
    """A broker that is not there when the former session is to be ended."""

    name = "away"

    @asynccontextmanager
    async def connect(self, filters: Sequence[str]) -> AsyncIterator[Session]:
        if not filters:
            raise BrokerError(self.name, "cannot connect")
        async with self.connect(()) as session:
            yield session


async def test_a_move_that_fails_loses_nothing_and_is_made_at_the_next_start(
    mosquitto: Mosquitto, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "hush.sqlite"
    await old_session(mosquitto, path, 20)
    with SqliteStore(path) as store:
        bus = _bus(settings(mosquitto, path), store)
        assert isinstance(bus, MovingBus)
        bus._ending = Away()
        async with running(bus, store), asyncio.timeout(20):
            while "could not be ended" not in caplog.text:  # noqa: ASYNC110 - a log has no event
                await asyncio.sleep(0.02)
        assert store.has_former_session
    assert counted(path) == 20
    await report(mosquitto, 5)
    await count_until(mosquitto, path, 25)
    assert not await is_kept(mosquitto, GUESSABLE)
    assert counted(path) == 25


@pytest.mark.parametrize("mark_comes", [True, False])
async def test_without_the_mark_silence_ends_the_move(
    mosquitto: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mark_comes: bool
) -> None:
    monkeypatch.setattr("hush_aggregator.moving._QUIET_S", 30.0 if mark_comes else 0.5)
    path = tmp_path / "hush.sqlite"
    await old_session(mosquitto, path, 20)
    if not mark_comes:
        rules = mosquitto.directory / "rules"
        rules.write_text(
            "user aggregator\ntopic readwrite hush/v1/tasks/+\ntopic read hush/v1/reports/#\n"
            "topic write hush/v1/status/+\ntopic write hush/v1/estimates/+\n"
        )
        mosquitto.stop()
        mosquitto.access += f"\nacl_file {rules}"
        mosquitto.start()
    await count_until(mosquitto, path, 20)
    assert counted(path) == 20


async def test_a_broker_that_takes_the_id_from_the_user_is_served_all_the_same(tmp_path: Path) -> None:
    mosquitto = Mosquitto(tmp_path, access="allow_anonymous true\nuse_username_as_clientid true")
    mosquitto.start()
    try:
        path = tmp_path / "hush.sqlite"
        await old_session(mosquitto, path, 30)
        await asyncio.gather(count_until(mosquitto, path, 40, settled=False), report(mosquitto, 10))
        assert counted(path) == 40
    finally:
        mosquitto.stop()
