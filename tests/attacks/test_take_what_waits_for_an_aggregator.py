"""Whoever knows the client id of an aggregator wants the reports that wait for it deleted."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiomqtt
import pytest
from counting import counted, refused
from servers import Mosquitto

from hush_aggregator import Aggregator, SqliteStore
from hush_aggregator.commands.serve import Settings, _buses
from hush_common.broker_url import BrokerUrl
from hush_common.task import make_task
from hush_common.topics import estimate_topic
from hush_common.wire import Report, encode_frame

HEIGHTS = make_task({"id": "heights", "epsilon": "1", "domain": {"kind": "number", "lower": 120.0, "upper": 220.0}})
GUESSABLE = "hush-aggregator-aggregator"


@pytest.fixture
def one_a_user(tmp_path: Path) -> Iterator[Mosquitto]:
    """A broker that takes the client id from the user, so that a user has one connection."""
    (tmp_path / "broker").mkdir()
    access = "allow_anonymous true\nuse_username_as_clientid true"
    mosquitto = Mosquitto(tmp_path / "broker", access=access)
    mosquitto.start()
    yield mosquitto
    mosquitto.stop()


async def report(mosquitto: Mosquitto, count: int) -> None:
    async with aiomqtt.Client("127.0.0.1", mosquitto.port, username="device") as client:
        for _ in range(count):
            payload = encode_frame([Report(HEIGHTS.report_digest, 0, secrets.token_bytes(16), (7,))])
            await client.publish("hush/v1/reports/heights/device", payload, qos=1)


@asynccontextmanager
async def serving(mosquitto: Mosquitto, path: Path, control: str = "aggregator") -> AsyncIterator[Aggregator]:
    """Serve as `hush serve` does; `control` is the user of the second connection."""
    address = mosquitto.url.replace("//", "//{}@")
    settings = Settings.read({"broker": address.format("aggregator"), "store": path})
    with SqliteStore(path) as store:
        bus, separate = _buses(settings, BrokerUrl.parse(address.format(control)), store)
        aggregator = Aggregator(bus, store, tasks=(HEIGHTS,), separate=separate)
        running = asyncio.create_task(aggregator.run())
        try:
            async with asyncio.timeout(60):
                yield aggregator
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


async def until(path: Path, reports: int) -> None:
    while counted(path) < reports:  # noqa: ASYNC110 - a store has no event
        await asyncio.sleep(0.02)


async def connected(aggregator: Aggregator) -> None:
    while not aggregator.connected:  # noqa: ASYNC110 - a property has no event
        await asyncio.sleep(0.02)


async def released(mosquitto: Mosquitto, n: int) -> None:
    """Wait until the retained estimate is of `n` reports."""
    async with aiomqtt.Client("127.0.0.1", mosquitto.port, username="reader") as client:
        await client.subscribe(estimate_topic("heights"))
        async for message in client.messages:
            assert isinstance(message.payload, bytes)
            if b'"n":%d,' % n in message.payload:
                return


async def test_a_stranger_under_the_id_that_can_be_guessed_deletes_nothing(
    mosquitto: Mosquitto, tmp_path: Path
) -> None:
    path = tmp_path / "hush.sqlite"
    async with serving(mosquitto, path) as aggregator:
        await connected(aggregator)
    await report(mosquitto, 100)
    for identifier in (GUESSABLE, f"{GUESSABLE}-control"):
        async with aiomqtt.Client("127.0.0.1", mosquitto.port, identifier=identifier, clean_session=True):
            pass
    async with serving(mosquitto, path):
        await until(path, 100)


async def test_a_broker_that_allows_one_connection_a_user_loses_nothing_and_is_served_by_one(
    one_a_user: Mosquitto, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The second connection takes over the session in which reports wait: it must neither end nor empty it."""
    path = tmp_path / "hush.sqlite"
    async with serving(one_a_user, path) as aggregator:
        await connected(aggregator)
    await report(one_a_user, 300)
    async with serving(one_a_user, path) as aggregator:
        await report(one_a_user, 100)
        await until(path, 400)
        await released(one_a_user, 400)
        connections = aggregator.intake.connections["intake"]
        await asyncio.sleep(2)
        assert aggregator.intake.connections["intake"] == connections, "it stays connected"
    assert (counted(path), set(refused(path)) - {"duplicate"}) == (400, set())
    assert "from now on there is one" in caplog.text
    assert "never had" not in caplog.text
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_a_second_user_keeps_two_connections_there(
    one_a_user: Mosquitto, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "hush.sqlite"
    async with serving(one_a_user, path, control="control") as aggregator:
        await connected(aggregator)
        await report(one_a_user, 50)
        await released(one_a_user, 50)
        assert aggregator.intake.connections == {"intake": 1, "control": 1}
    assert "from now on there is one" not in caplog.text
