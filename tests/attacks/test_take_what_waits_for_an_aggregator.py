"""Whoever knows the client id of an aggregator wants the reports that wait for it deleted."""

import asyncio
import secrets
from collections.abc import Iterator
from pathlib import Path

import aiomqtt
import pytest
from processes import HEIGHTS, Serve
from servers import Mosquitto
from waiting import wait_until

from hush_common.topics import estimate_topic
from hush_common.wire import Report, encode_frame

pytestmark = [pytest.mark.medium, pytest.mark.face]
GUESSABLE = "hush-aggregator-aggregator"


@pytest.fixture
def one_a_user(tmp_path: Path) -> Iterator[Mosquitto]:
    """A broker that takes the client id from the user, so that a user has one connection."""
    (tmp_path / "broker").mkdir()
    with Mosquitto(
        tmp_path / "broker", access="allow_anonymous true\nuse_username_as_clientid true"
    ).running() as broker:
        yield broker


async def report(mosquitto: Mosquitto, count: int) -> None:
    async with aiomqtt.Client("127.0.0.1", mosquitto.port, username="device") as client:
        for _ in range(count):
            payload = encode_frame([Report(HEIGHTS.report_digest, 0, secrets.token_bytes(16), (7,))])
            await client.publish("hush/v1/reports/heights/device", payload, qos=1)


def serve(mosquitto: Mosquitto, directory: Path, *options: str) -> Serve:
    return Serve(mosquitto.url.replace("//", "//aggregator@"), directory, over=None, options=options)


async def released(mosquitto: Mosquitto, n: int) -> None:
    """Wait until the retained estimate is of `n` reports."""
    async with aiomqtt.Client("127.0.0.1", mosquitto.port, username="reader") as client, asyncio.timeout(60):
        await client.subscribe(estimate_topic("heights"))
        async for message in client.messages:
            assert isinstance(message.payload, bytes)
            if b'"n":%d,' % n in message.payload:
                return


async def test_a_stranger_under_the_id_that_can_be_guessed_deletes_nothing(
    mosquitto: Mosquitto, tmp_path: Path
) -> None:
    service = serve(mosquitto, tmp_path).start()
    await asyncio.to_thread(service.until_subscribed)
    assert service.end() == 0
    await report(mosquitto, 100)
    for identifier in (GUESSABLE, f"{GUESSABLE}-control"):
        async with aiomqtt.Client("127.0.0.1", mosquitto.port, identifier=identifier, clean_session=True):
            pass
    service.start()
    await asyncio.to_thread(wait_until, lambda: service.n == 100)
    assert service.end() == 0


async def test_one_connection_for_each_user_loses_nothing(one_a_user: Mosquitto, tmp_path: Path) -> None:
    """The second connection takes over the session in which reports wait: it must neither end nor empty it."""
    service = serve(one_a_user, tmp_path).start()
    await asyncio.to_thread(service.until_subscribed)
    assert service.end() == 0
    await report(one_a_user, 300)
    service.start()
    await report(one_a_user, 100)
    await asyncio.to_thread(wait_until, lambda: service.n == 400)
    await released(one_a_user, 400)
    for n in (401, 402, 403):  # over the one connection that is left
        connections = service.log.count("connected to")
        await report(one_a_user, 1)
        await released(one_a_user, n)
    assert service.log.count("connected to") == connections, "it stays connected"
    assert service.end() == 0
    assert service.counted() == (403, 403)
    assert "--control-user" in service.log
    assert "ERROR" not in service.log


async def test_a_second_user_keeps_two_connections(one_a_user: Mosquitto, tmp_path: Path) -> None:
    service = serve(one_a_user, tmp_path, "--control-user", "control").start()
    await asyncio.to_thread(service.until_connected)
    await report(one_a_user, 50)
    await released(one_a_user, 50)
    assert service.end() == 0
    assert "--control-user" not in service.log
