"""The connection that devices and aggregators share."""

import asyncio
from dataclasses import replace

import pytest
from scripted_broker import Kind, ScriptedBroker, hang_up
from servers import Mosquitto

from hush_common.broker_url import BrokerUrl
from hush_common.errors import BrokerError, SubscriptionRefusedError
from hush_common.mqtt.connection import Options, connect
from hush_common.topics import Acknowledgement

pytestmark = pytest.mark.medium

OPTIONS = Options(identifier="test", payload_limit=100, inbox_messages=3, inbox_bytes=1000, window=10, patience=20.0)


async def test_several_subscriptions_of_one_connection_deliver_through_a_small_inbox_in_order(
    mosquitto: Mosquitto,
) -> None:
    url = BrokerUrl.parse(mosquitto.url)
    sent = [(f"{head}/{number}", b"%d" % number) for number in range(100) for head in "ab"]
    async with connect(url, OPTIONS) as reader, connect(url, replace(OPTIONS, identifier="writer")) as writer:
        await reader.subscribe("a/+", "b/+")
        for topic, payload in sent:
            assert await writer.publish(topic, payload) == Acknowledgement(reason=0)
        await writer.publish("c/0", b"nobody subscribed to this")
        await writer.publish("a/last", b"")
        came: list[tuple[str, bytes]] = []
        async with asyncio.timeout(60):
            while len(came) <= len(sent):
                for delivery in await reader.deliveries(7):
                    delivery.ack()
                    came.append((delivery.topic, delivery.payload))
    assert came == [*sent, ("a/last", b"")]


async def test_what_was_not_acknowledged_comes_again_to_a_persistent_session_and_to_no_other(
    mosquitto: Mosquitto,
) -> None:
    url = BrokerUrl.parse(mosquitto.url)
    for persistent in (True, False):
        options = replace(OPTIONS, identifier=f"kept-{persistent}", persistent=persistent)
        async with connect(url, options) as connection:
            await connection.subscribe("a/+")
            await connection.publish("a/b", b"1")
            (delivery,) = await connection.deliveries(10)
            assert delivery.payload == b"1"
        async with connect(url, options) as connection:
            waiting = asyncio.create_task(connection.deliveries(10))
            await asyncio.wait((waiting,), timeout=60 if persistent else 0.3)
            assert waiting.done() == persistent
            if persistent:
                (delivery,) = waiting.result()
                assert delivery.payload == b"1"
                delivery.ack()
            waiting.cancel()


async def test_whoever_waits_for_an_acknowledgement_is_told_at_once_that_the_connection_is_lost() -> None:
    async with (
        ScriptedBroker((Kind.PUBLISH, hang_up)).running() as broker,
        connect(BrokerUrl.parse(broker.url), OPTIONS) as connection,
    ):
        async with asyncio.timeout(60):
            with pytest.raises(BrokerError, match="the connection is lost; the broker may not have"):
                await connection.publish("a", b"1")
        for call in (connection.publish("a", b"2"), connection.subscribe("a"), connection.deliveries(1)):
            with pytest.raises(BrokerError, match="the connection is lost"):
                await call


async def test_an_acknowledgement_that_does_not_come_is_told_with_its_topic() -> None:
    async def keep_silent(_writer: asyncio.StreamWriter, _reply: bytes) -> None:
        pass

    async with (
        ScriptedBroker((Kind.PUBLISH, keep_silent)).running() as broker,
        connect(BrokerUrl.parse(broker.url), replace(OPTIONS, patience=1.0)) as connection,
    ):
        with pytest.raises(BrokerError, match=r"no acknowledgement within 1 s of a message to a/b"):
            await connection.publish("a/b", b"1")
        assert await connection.publish("a/b", b"2") == Acknowledgement(0), "the connection lives on"


async def test_what_may_not_be_subscribed_or_published_to_is_named() -> None:
    async with (
        ScriptedBroker(forbidden={"a/b"}).running() as broker,
        connect(BrokerUrl.parse(broker.url), OPTIONS) as connection,
    ):
        with pytest.raises(SubscriptionRefusedError, match="refuses the subscription to a/b; check its access rules"):
            await connection.subscribe("a/b")
        with pytest.raises(BrokerError, match=r"could not publish to a/\+"):
            await connection.publish("a/+", b"1")
        assert await connection.publish("a/b", b"2") == Acknowledgement(0)


async def test_the_last_will_is_heard_by_others_unless_the_farewell_was_taken(mosquitto: Mosquitto) -> None:
    url = BrokerUrl.parse(mosquitto.url)
    one = replace(OPTIONS, identifier="one", will=("gone", b"lost"))
    async with connect(url, replace(OPTIONS, identifier="reader")) as reader:
        await reader.subscribe("gone")
        async with connect(url, one) as proper:
            await proper.publish("gone", b"still here")
        async with connect(url, one) as first, connect(url, one):  # the second throws the first out
            with pytest.raises(BrokerError, match="lost"):
                await first.deliveries(1)
        async with asyncio.timeout(60):
            came = [(await reader.deliveries(1))[0].payload for _ in range(2)]
    assert came == [b"still here", b"lost"]
