"""The connection to a broker that devices and aggregators share: what comes in, what goes out, and how it ends."""

import asyncio
import random
import struct
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from scripted_broker import (
    Action,
    Kind,
    ScriptedBroker,
    endless,
    hang_up,
    header,
    keep_silent,
    message,
    replying,
)
from servers import Mosquitto
from waiting import until

from hush_common.broker_url import BrokerUrl
from hush_common.errors import BrokerError, SubscriptionRefusedError
from hush_common.mqtt.connection import MqttConnection, Options, connect
from hush_common.topics import Acknowledgement

pytestmark = [pytest.mark.medium, pytest.mark.face]

LIMIT = 70_000
OPTIONS = Options(
    identifier="test", payload_limit=LIMIT, inbox_messages=5000, inbox_bytes=1 << 22, window=10, patience=20.0
)
KEPT = replace(OPTIONS, identifier="kept", persistent=True)
FIVE = replace(OPTIONS, version="5")
VERSIONS = pytest.mark.parametrize("options", [OPTIONS, FIVE], ids=["3.1.1", "5"])
Frame = Callable[[bytes], bytes] | None


def sending(*pieces: bytes) -> Action:
    """The reply, and then each of these pieces when the client has had time to read the one before."""

    async def send(writer: asyncio.StreamWriter, reply: bytes) -> None:
        for piece in (reply, *pieces):
            writer.write(piece)
            await writer.drain()
            for _ in range(4):
                await asyncio.sleep(0)

    return send


def published(topic: bytes, payload: bytes, number: int, *, five: bool, retained: bool = False) -> bytes:
    """A message of QoS 1."""
    body = struct.pack(">H", len(topic)) + topic + struct.pack(">H", number) + (b"\x00" if five else b"") + payload
    return header(0x32 | retained, len(body)) + body


Received = tuple[str, bytes, bool]


async def receive(connection: MqttConnection, count: int) -> list[Received]:
    """The next messages, acknowledged."""
    came: list[Received] = []
    async with asyncio.timeout(60):
        while len(came) < count:
            for delivery in await connection.deliveries(7):
                delivery.ack()
                came.append((delivery.topic, delivery.payload, delivery.retained))
    return came


async def received(count: int, *pieces: bytes, options: Options = OPTIONS, frame: Frame = None) -> list[Received]:
    """The messages in what a broker sends."""
    broker = ScriptedBroker((Kind.SUBSCRIBE, sending(*pieces)), retained={})
    async with broker.running(frame=frame), connect(BrokerUrl.parse(broker.url), options) as connection:
        await connection.subscribe("#")
        return await receive(connection, count)


# What comes in


@VERSIONS
@pytest.mark.parametrize("way", ["tcp", "websocket"])
async def test_every_split_of_a_stream_gives_the_same_messages(options: Options, way: str) -> None:
    five = options.version == "5"
    none = b"\x00" if five else b""
    some = published(b"hush/v1/reports/t/d", b"x" * 48, 1, five=five)
    stream = b"".join(
        (
            some,
            b"\x90\x04\x00\x63\x00\x01" if five else b"\x90\x03\x00\x63\x01",  # a SUBACK that nobody waits for
            published(b"t", b"y" * 200, 65_535, five=five, retained=True),
            b"\x40\x02\x00\x63" * 2,
            some,
            b"\xd0\x00",
            message("t", b"once", properties=none),
            b"\x40\x03\x00\x08\x10\x40\x04\x00\x08\x87\x00" if five else b"",
            message("t", b"", properties=none),
            published(b"u", b"", 2, five=five),
        )
    )
    whole = ("hush/v1/reports/t/d", b"x" * 48, False)
    wanted = [whole, ("t", b"y" * 200, True), whole, ("t", b"once", True), ("t", b"", True), ("u", b"", False)]
    splits = [piece for cut in range(1, len(stream)) for piece in (stream[:cut], stream[cut:])]
    splits += [stream[at : at + 1] for at in range(len(stream))]
    count = len(stream)
    frame = endless() if way == "websocket" else None
    assert await received(6 * count, *splits, options=options, frame=frame) == wanted * count


@VERSIONS
@pytest.mark.parametrize("piece", [3952, 5000, 65_537, 1 << 20])
async def test_messages_of_any_length_come_whole_up_to_the_limit(options: Options, piece: int) -> None:
    sizes = (0, 1, 127, 128, 16_376, 16_377, 20_000, LIMIT, LIMIT + 65_540, 1 << 20, 5)
    payloads = [(bytes(range(251)) * (size // 251 + 1))[:size] for size in sizes]
    five = options.version == "5"
    stream = b"".join(
        published(b"t", payload, place + 1, five=five, retained=place % 2 == 0)
        for place, payload in enumerate(payloads)
    )
    pieces = [stream[at : at + piece] for at in range(0, len(stream), piece)]
    came = await received(len(sizes), *pieces, options=options)
    assert [retained for *_, retained in came] == [place % 2 == 0 for place in range(len(sizes))]
    for (_, payload, _), sent in zip(came, payloads, strict=True):
        if len(sent) <= LIMIT:
            assert payload == sent
        else:
            assert LIMIT < len(payload) < LIMIT + 3 * 65_536
            assert payload[:LIMIT] == sent[:LIMIT]


async def test_a_payload_of_just_the_limit_with_the_longest_topic_comes_whole() -> None:
    topic, payload = "t" * 65_535, bytes(LIMIT)
    assert await received(1, message(topic, payload)) == [(topic, payload, True)]


def websocket_frame(data: bytes, *, opcode: int = 2, mask: bytes = b"") -> bytes:
    """One frame of a WebSocket, RFC 6455, 5.2."""
    length, masked = len(data), 0x80 if mask else 0
    if length < 126:
        head = bytes((0x80 | opcode, masked | length))
    elif length < 1 << 16:
        head = struct.pack(">BBH", 0x80 | opcode, masked | 126, length)
    else:
        head = struct.pack(">BBQ", 0x80 | opcode, masked | 127, length)
    if mask:
        data = bytes(byte ^ mask[place % 4] for place, byte in enumerate(data))
    return head + mask + data


@pytest.mark.parametrize("seed", range(8))
async def test_messages_are_the_same_whatever_the_websocket_frames(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311 - repeatable

    def cut(data: bytes) -> bytes:
        framed = b""
        while data:
            size = dice.choice((1, 2, 50, 125, 126, 300, 65_535, 65_536, 100_000))
            framed += websocket_frame(data[:size], mask=dice.choice((b"", b"", b"mask")))
            framed += websocket_frame(b"still there?", opcode=9) if dice.random() < 0.3 else b""
            data = data[size:]
        return framed

    payloads = [dice.randbytes(dice.choice((0, 10, 400, 60_000))) for _ in range(30)]
    stream = b"".join(message("t", payload) for payload in payloads)
    pieces = [stream[at : at + 4999] for at in range(0, len(stream), 4999)]
    came = await received(30, *pieces, frame=cut)
    assert [payload for _, payload, _ in came] == payloads


HOSTILE = {
    "no topic": b"\x32\x00",
    "one byte": b"\x32\x01\x00",
    "an empty topic and no number": b"\x32\x02\x00\x00",
    "a topic longer than the packet": b"\x32\x04\x00\x09ab",
    "no number": b"\x32\x03\x00\x01t",
    "an empty topic": b"\x30\x02\x00\x00",
    "an acknowledgement of nothing": b"\x40\x00",
    "half an acknowledgement": b"\x40\x01\x00",
    "a length of five bytes": b"\x32\xff\xff\xff\xff\x01",
    "QoS 2": header(0x34, 20) + bytes(20),
    "QoS 2 again": header(0x3D, 20) + bytes(20),
    "QoS 3": b"\x36\x08\x00\x01t\x00\x01\x00ab",
    "200 MB that are no message": header(0x90, 200_000_000) + bytes(5000),
}


async def ended(options: Options, *pieces: bytes, frame: Frame = None) -> list[bytes]:
    """What came before the connection ended."""
    got: list[bytes] = []
    broker = ScriptedBroker((Kind.SUBSCRIBE, sending(*pieces)), retained={})
    async with broker.running(frame=frame), connect(BrokerUrl.parse(broker.url), options) as connection:
        connection.set_aside("#", lambda _topic, payload: got.append(payload))
        await connection.subscribe("#")
        async with asyncio.timeout(60):
            with pytest.raises(BrokerError):
                await connection.deliveries(1)
    return got


@VERSIONS
@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
async def test_a_hostile_packet_ends_the_connection_and_makes_nothing_up(options: Options, hostile: bytes) -> None:
    good, later = (published(b"t", word, 1, five=options.version == "5") for word in (b"good", b"later"))
    for pieces in ((good + hostile + later,), (good, hostile, later), (good + hostile[:1], hostile[1:] + later)):
        assert await ended(options, *pieces) == [b"good"]


async def test_a_control_frame_that_is_too_long_ends_the_connection() -> None:
    ping = websocket_frame(bytes(5000), opcode=9)
    assert await ended(OPTIONS, ping, frame=lambda data: data if data == ping else websocket_frame(data)) == []


@pytest.mark.parametrize("length", [b"\xff\xff\xff\x7f", b"\xff\x7f", b"\x80\x80\x80\x01"])
async def test_a_packet_that_does_not_end_is_waited_for(length: bytes) -> None:
    good = published(b"t", b"good", 1, five=False)
    assert await received(1, good, b"\x32" + length + b"\x00\x01t") == [("t", b"good", False)]


async def test_truncated_messages_are_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    await received(20, message("t", bytes(200_000)) * 20)
    (record,) = caplog.records
    assert "200003" in record.getMessage()


TOPICS = ["a/b", "a", "a/b/c", "b", "c/b", "$SYS/uptime", "ab", "a/"]
MATCHED = {
    "a/b": {"a/b"},
    "a/#": {"a/b", "a", "a/b/c", "a/"},
    "a/+": {"a/b", "a/"},
    "+/b": {"a/b", "c/b"},
    "#": {*TOPICS} - {"$SYS/uptime"},
    "b": {"b"},
    "$SYS/#": {"$SYS/uptime"},
    "a": {"a"},
}


@pytest.mark.parametrize("wanted", MATCHED)
async def test_a_handler_gets_the_messages_that_its_filter_matches(wanted: str) -> None:
    got: list[str] = []
    broker = ScriptedBroker((Kind.SUBSCRIBE, sending(*(message(topic, b"") for topic in TOPICS))), retained={})
    async with broker.running(), connect(BrokerUrl.parse(broker.url), OPTIONS) as connection:
        connection.set_aside(wanted, lambda topic, _payload: got.append(topic))
        await connection.subscribe("#")
        rest = await receive(connection, len(TOPICS) - len(MATCHED[wanted]))
        await has_read_everything(connection)
    assert set(got) == MATCHED[wanted]
    assert [topic for topic, *_ in rest] == [topic for topic in TOPICS if topic not in MATCHED[wanted]]


async def test_every_handler_gets_its_copy_of_a_message() -> None:
    got: list[str] = []

    def listen(wanted: str, topic: str, _payload: bytes) -> None:
        got.append(f"{wanted} {topic}")

    broker = ScriptedBroker((Kind.SUBSCRIBE, sending(message("a/b", b""))), retained={})
    async with broker.running(), connect(BrokerUrl.parse(broker.url), OPTIONS) as connection:
        for wanted in MATCHED:
            connection.set_aside(wanted, partial(listen, wanted), copy=True)
        await connection.subscribe("#")
        assert await receive(connection, 1) == [("a/b", b"", True)]
    assert set(got) == {f"{wanted} a/b" for wanted, topics in MATCHED.items() if "a/b" in topics}


async def test_several_subscriptions_come_through_a_small_inbox_in_order(mosquitto: Mosquitto) -> None:
    url = BrokerUrl.parse(mosquitto.url)
    sent = [(f"{head}/{number}", b"%d" % number, False) for number in range(100) for head in "ab"]
    small = replace(OPTIONS, inbox_messages=3, inbox_bytes=1000)
    async with connect(url, small) as reader, connect(url, replace(OPTIONS, identifier="writer")) as writer:
        await reader.subscribe("a/+", "b/+")
        for topic, payload, _ in sent:
            assert await writer.publish(topic, payload) == Acknowledgement(reason=0)
        await writer.publish("c/0", b"nobody subscribed to this")
        await writer.publish("a/last", b"")
        assert await receive(reader, len(sent) + 1) == [*sent, ("a/last", b"", False)]


async def test_a_full_inbox_makes_the_broker_wait() -> None:
    size, count = 60_000, 1000
    small = replace(OPTIONS, inbox_bytes=10 * size)
    flood = b"".join(message("t", b"%06d" % number + bytes(size - 6)) for number in range(count))
    broker = ScriptedBroker((Kind.SUBSCRIBE, replying(b"\x90\x03\x00\x01\x01", flood)), retained={})
    async with broker.running(), connect(BrokerUrl.parse(broker.url), small) as connection:
        await connection.subscribe("#")
        await until(lambda: connection.waiting >= 10)
        for _ in range(100):
            await asyncio.sleep(0)
        assert connection.waiting < 40, "the rest has stayed on the broker"
        came = await receive(connection, count)
    assert [payload[:6] for _, payload, _ in came] == [b"%06d" % number for number in range(count)]


# What is acknowledged


async def has_read_everything(connection: MqttConnection) -> None:
    """Wait until the broker has read all that was sent: until it answers a ping."""
    before = connection.current_until
    connection.ping()
    await until(lambda: connection.current_until > before)


async def acknowledged(order: list[int], backlog: ScriptedBroker) -> tuple[list[list[int]], int]:
    """Acknowledge the messages of a backlog by their places; what the broker has seen after each, and the repeats."""
    count, seen = len(backlog.backlog), []
    async with backlog.running() as broker, connect(BrokerUrl.parse(broker.url), KEPT) as connection:
        await until(lambda: connection.waiting == count)
        deliveries = await connection.deliveries(count)
        repeated = connection.repeated
        for place in order:
            connection.acknowledge([0, -1, 99, deliveries[place].number])
            await has_read_everything(connection)
            seen.append(list(broker.released))
    return seen, repeated


@pytest.mark.parametrize("seed", range(5))
async def test_acknowledgements_are_sent_in_the_order_of_receipt(seed: int) -> None:
    order = random.Random(seed).sample(range(8), 8)  # noqa: S311 - repeatable
    broker = ScriptedBroker(retained={}, backlog=[("t", b"%d" % number) for number in range(8)])
    seen, repeated = await acknowledged([*order, *order], broker)
    assert repeated == 0
    for place, ids in enumerate(seen):
        done = {*order[: place + 1]}
        leading = next((number for number in range(8) if number not in done), 8)
        assert ids == list(range(1, leading + 1))


async def test_packet_ids_that_repeat_are_acknowledged_in_the_order_of_receipt() -> None:
    """A PUBACK deletes the oldest message with its id: acknowledged early, it would delete what is not counted."""
    broker = ScriptedBroker(retained={}, backlog=[("t", b"%d" % number) for number in range(8)], ids=3)
    seen, repeated = await acknowledged([7, 6, 5, 0, 1, 2, 4, 3], broker)
    assert repeated == 5
    ids = [1, 2, 3, 1, 2, 3, 1, 2]
    assert seen == [[], [], [], ids[:1], ids[:2], ids[:3], ids[:3], ids]


async def test_packet_ids_that_repeat_are_counted() -> None:
    """Also after one of those with this id was acknowledged."""
    more = replying(published(b"t", b"", 1, five=False), b"\xd0\x00")
    broker = ScriptedBroker((Kind.PINGREQ, more), retained={}, backlog=[("t", b"")] * 4, ids=3)
    async with broker.running(), connect(BrokerUrl.parse(broker.url), KEPT) as connection:
        await until(lambda: connection.waiting == 4)
        assert connection.repeated == 1
        connection.acknowledge([(await connection.deliveries(1))[0].number])
        await has_read_everything(connection)
        assert connection.repeated == 2


async def test_a_persistent_session_gets_again_what_was_not_acknowledged(mosquitto: Mosquitto) -> None:
    url = BrokerUrl.parse(mosquitto.url)
    for options in (KEPT, OPTIONS):
        async with connect(url, options) as connection:
            await connection.subscribe("a/+")
            await connection.publish("a/b", b"1")
            (delivery,) = await connection.deliveries(10)
            assert delivery.payload == b"1"
        async with connect(url, options) as connection:
            assert connection.resumed is options.persistent
            await connection.subscribe("end")
            await connection.publish("end", b"")
            came = await receive(connection, 2 if options.persistent else 1)
        assert came == [("a/b", b"1", False)] * options.persistent + [("end", b"", False)]


async def test_a_broker_that_reads_no_acknowledgement_is_left(caplog: pytest.LogCaptureFixture) -> None:
    """Else they would fill the memory. The publication fills the buffers of the socket."""
    flood = published(b"t", b"", 7, five=False) * 150_000

    async def read_no_more(writer: asyncio.StreamWriter, reply: bytes) -> None:
        writer.write(reply)
        await begun.wait()
        writer.write(flood)
        await writer.drain()
        await asyncio.Event().wait()

    begun = asyncio.Event()
    broker = ScriptedBroker((Kind.SUBSCRIBE, read_no_more), retained={})
    async with broker.running(), connect(BrokerUrl.parse(broker.url), OPTIONS) as connection:
        connection.set_aside("t", lambda _topic, _payload: None)
        await connection.subscribe("t")
        publishing = asyncio.create_task(connection.publish("u", bytes(50_000_000)))
        await asyncio.sleep(0)
        begun.set()
        async with asyncio.timeout(60):
            with pytest.raises(BrokerError):
                await connection.deliveries(1)
        await asyncio.wait((publishing,))
        assert isinstance(publishing.exception(), BrokerError)
    assert "closed the connection" in caplog.text


# What goes out


class Holding:
    """An action that answers nothing until it is told to."""

    def __init__(self) -> None:
        self.replies: list[Callable[[], None]] = []

    async def __call__(self, writer: asyncio.StreamWriter, reply: bytes) -> None:
        self.replies.append(lambda: writer.write(reply))


async def test_no_more_is_in_flight_than_the_window_even_if_callers_give_up() -> None:
    holding = Holding()
    broker = ScriptedBroker(*[(Kind.PUBLISH, holding)] * 5)
    async with broker.running(), connect(BrokerUrl.parse(broker.url), replace(OPTIONS, window=2)) as connection:
        first, second, third, fourth, fifth = (
            asyncio.create_task(connection.publish("t", word)) for word in (b"a", b"b", b"c", b"d", b"e")
        )
        await until(lambda: len(holding.replies) == 2)
        first.cancel()
        third.cancel()
        await has_read_everything(connection)
        assert broker.payloads == [b"a", b"b"], "the broker may still work on the first one"
        holding.replies[0]()
        await until(lambda: len(holding.replies) == 3)
        await has_read_everything(connection)
        assert broker.payloads == [b"a", b"b", b"d"]
        for number in (1, 2, 3):
            await until(lambda number=number: len(holding.replies) > number)
            holding.replies[number]()
        assert {answer.reason for answer in await asyncio.gather(second, fourth, fifth)} == {0}
    assert broker.payloads == [b"a", b"b", b"d", b"e"]


async def test_no_more_is_in_flight_than_the_broker_takes() -> None:
    holding = Holding()
    broker = ScriptedBroker(*[(Kind.PUBLISH, holding)] * 9, limits=b"\x21\x00\x03")
    async with broker.running(), connect(BrokerUrl.parse(broker.url), FIVE) as connection:
        publishing = [asyncio.create_task(connection.publish("t", bytes((byte,)))) for byte in b"abcdefghi"]
        for number in range(9):
            await until(lambda number=number: len(holding.replies) == min(number + 3, 9))
            await has_read_everything(connection)
            assert len(broker.payloads) == min(number + 3, 9)
            holding.replies[number]()
        await asyncio.gather(*publishing)
    assert broker.payloads == [bytes((byte,)) for byte in b"abcdefghi"]


@pytest.mark.large
async def test_a_packet_id_in_flight_is_given_to_no_other_message() -> None:
    """Else the acknowledgement of one would delete the other, which the broker may not have."""
    holding = Holding()
    broker = ScriptedBroker((Kind.PUBLISH, holding))
    async with broker.running(), connect(BrokerUrl.parse(broker.url), replace(OPTIONS, window=1000)) as connection:
        slow = asyncio.create_task(connection.publish("t", b"slow"))
        await until(lambda: holding.replies)
        for _ in range(132):  # 66 000
            await asyncio.gather(*(connection.publish("t", b"quick") for _ in range(500)))
        assert not slow.done()
        holding.replies[0]()
        assert await slow == Acknowledgement(0)


async def test_what_a_full_socket_does_not_take_follows_in_the_same_order() -> None:
    going_on = asyncio.Event()

    async def read_later(writer: asyncio.StreamWriter, reply: bytes) -> None:
        writer.write(reply)
        await going_on.wait()

    broker = ScriptedBroker((Kind.SUBSCRIBE, read_later), retained={})
    payloads = [b"%05d" % number + bytes(6155) for number in range(2000)]
    async with broker.running(), connect(BrokerUrl.parse(broker.url), replace(OPTIONS, window=5000)) as connection:
        await connection.subscribe("t")
        publishing = [asyncio.create_task(connection.publish("u", payload)) for payload in payloads]
        for _ in range(100):
            await asyncio.sleep(0)
        going_on.set()
        async with asyncio.timeout(60):
            await asyncio.gather(*publishing)
    assert broker.payloads == payloads


async def test_what_was_published_is_sent_before_the_farewell() -> None:
    async with ScriptedBroker((Kind.PUBLISH, keep_silent)).running() as broker:
        async with connect(BrokerUrl.parse(broker.url), OPTIONS) as connection:
            publishing = asyncio.create_task(connection.publish("t", b"last"))
            await asyncio.sleep(0)
        await until(lambda: broker.payloads == [b"last"])
        await asyncio.wait((publishing,))
        assert isinstance(publishing.exception(), BrokerError)


async def test_a_broker_that_is_busy_is_not_late() -> None:
    """It answers a ping after all that it had to send before."""
    holding = Holding()
    script: list[tuple[Kind | None, Action]] = [(Kind.PUBLISH, keep_silent), (Kind.PINGREQ, holding)]
    async with (
        ScriptedBroker(*script).running() as broker,
        connect(BrokerUrl.parse(broker.url), replace(OPTIONS, patience=0.1)) as connection,
    ):
        publishing = asyncio.create_task(connection.publish("a/b", b"1"))
        await until(lambda: holding.replies)
        assert not publishing.done()
        holding.replies[0]()
        with pytest.raises(BrokerError, match=r"0\.1 s .*a/b"):
            await publishing
        assert await connection.publish("a/b", b"2") == Acknowledgement(0), "the connection lives on"


# Refusals, and the end


async def test_what_may_not_be_subscribed_or_published_to_is_named() -> None:
    async with (
        ScriptedBroker(forbidden={"a/b"}).running() as broker,
        connect(BrokerUrl.parse(broker.url), OPTIONS) as connection,
    ):
        with pytest.raises(SubscriptionRefusedError, match="a/b"):
            await connection.subscribe("a/b")
        with pytest.raises(BrokerError, match=r"a/\+"):
            await connection.publish("a/+", b"1")
        assert await connection.publish("a/b", b"2") == Acknowledgement(0)


async def test_a_lost_connection_is_told_to_everyone_who_waits_or_calls() -> None:
    async with (
        ScriptedBroker((Kind.PUBLISH, hang_up)).running() as broker,
        connect(BrokerUrl.parse(broker.url), OPTIONS) as connection,
    ):
        waiting = asyncio.create_task(connection.deliveries(1))
        async with asyncio.timeout(60):
            with pytest.raises(BrokerError):
                await connection.publish("a", b"1")
            with pytest.raises(BrokerError):
                await waiting
        for call in (connection.publish("a", b"2"), connection.subscribe("a"), connection.deliveries(1)):
            with pytest.raises(BrokerError):
                await call


async def test_a_reason_for_which_the_broker_hangs_up_is_named() -> None:
    disconnect = replying(b"\xe0\x02\x97\x00", hangs_up=True)
    async with (
        ScriptedBroker((Kind.PUBLISH, disconnect)).running() as broker,
        connect(BrokerUrl.parse(broker.url), FIVE) as connection,
    ):
        with pytest.raises(BrokerError, match="quota exceeded") as caught:
            await connection.publish("a", b"1")
        assert caught.value.reason == 0x97


async def test_the_last_will_is_published_only_without_a_farewell(mosquitto: Mosquitto) -> None:
    url = BrokerUrl.parse(mosquitto.url)
    one = replace(OPTIONS, identifier="one", will=("gone", b"lost"))
    async with connect(url, replace(OPTIONS, identifier="reader")) as reader:
        await reader.subscribe("gone")
        async with connect(url, one) as proper:
            await proper.publish("gone", b"still here")
        async with connect(url, one) as first, connect(url, one):  # the second throws the first out
            with pytest.raises(BrokerError):
                await first.deliveries(1)
        assert await receive(reader, 2) == [("gone", b"still here", False), ("gone", b"lost", False)]
