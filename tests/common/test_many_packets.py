"""Packets are read and written many at a time: the same messages in the same order, and never more than may be."""

import asyncio
import struct
from functools import partial
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from paho.mqtt.client import Client, MQTTv5, MQTTv311, topic_matches_sub
from paho.mqtt.enums import CallbackAPIVersion
from scripted_broker import header, message

from hush_common.mqtt.connection import TopicHandlers
from hush_common.mqtt.packets import Incoming, Message, Outgoing, limit_packets, longest_packet

MOST = 70_000


class Socket:
    """Gives what has come piece by piece, then nothing for now, and takes so many bytes at each write."""

    def __init__(self, pieces: list[bytes] | None = None, room: int = 1 << 20) -> None:
        self.pieces = pieces or []
        self.sent = bytearray()
        self.writes = 0
        self.room = room

    def recv(self, size: int) -> bytes:
        if not self.pieces:
            raise BlockingIOError
        piece = self.pieces[0][:size]
        self.pieces[0] = self.pieces[0][size:]
        if not self.pieces[0]:
            self.pieces.pop(0)
        return piece

    def send(self, data: bytes) -> int:
        taken = min(len(data), self.room)
        if not taken:
            raise BlockingIOError
        self.room -= taken
        self.sent += data[:taken]
        self.writes += 1
        return taken

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        self.pieces.clear()


def reading(pieces: list[bytes], *, five: bool, ahead: bool) -> list[tuple[object, ...]]:
    """What a client is told of: messages and acknowledgements."""
    client: Any = Client(
        CallbackAPIVersion.VERSION2,
        "x",
        protocol=MQTTv5 if five else MQTTv311,
        transport="tcp" if ahead else "websockets",  # over which paho reads every packet piece by piece
    )
    told: list[tuple[object, ...]] = []

    def take(messages: list[Message]) -> None:
        told.extend(message if message.retain else message[:3] for message in messages)

    incoming = Incoming(
        client,
        longest_packet(MOST),
        limit_packets(client, MOST, "mqtt://broker"),
        messages=take,
        acknowledged=lambda number, reason: told.append((number, reason)),
    )
    client._sock = socket = Socket(list(pieces))
    for _ in range(10_000):
        if client.socket() is None or not (incoming.advance() or socket.pieces):
            return told
    pytest.fail("it does not come to an end")


def published(topic: bytes, payload: bytes, number: int, *, five: bool, retained: bool = False) -> bytes:
    properties = b"\x00" if five else b""
    body = struct.pack(">H", len(topic)) + topic + struct.pack(">H", number) + properties + payload
    return header(0x32 | retained, len(body)) + body


PACKETS = st.one_of(
    st.tuples(st.just("message"), st.integers(1, 65_535), st.integers(0, 300)),
    st.tuples(st.just("message"), st.integers(1, 65_535), st.sampled_from([16_376, 16_377, 20_000, 70_000, 140_000])),
    st.tuples(st.just("ack"), st.integers(1, 65_535), st.sampled_from([0, 16, 135])),
    st.tuples(st.just("ping"), st.just(0), st.just(0)),
)


@example(packets=[("message", 1, 70_000), ("message", 1, 140_000)], cuts=[1, 3952, 5000], five=False)
@given(st.lists(PACKETS, max_size=8), st.lists(st.integers(1, 5000), max_size=12), st.booleans())
def test_what_is_read_ahead_is_what_paho_reads_piece_by_piece(
    packets: list[tuple[str, int, int]], cuts: list[int], five: bool
) -> None:
    stream = b""
    for kind, number, size in packets:
        if kind == "message":
            payload = (bytes(range(251)) * (size // 251 + 1))[:size]
            stream += published(b"hush/v1/x", payload, number, five=five, retained=number % 2 == 0)
        elif kind == "ack":
            stream += header(0x40, 3 if five else 2) + struct.pack(">H", number) + (bytes((size,)) if five else b"")
        else:
            stream += b"\xd0\x00"
    pieces = []
    for cut in cuts:
        pieces.append(stream[:cut])
        stream = stream[cut:]
    pieces = [piece for piece in [*pieces, stream] if piece]
    assert shortened(reading(pieces, five=five, ahead=True)) == shortened(reading(pieces, five=five, ahead=False))


@pytest.mark.parametrize("five", [False, True])
@pytest.mark.parametrize("ahead", [False, True])
def test_a_message_that_the_broker_had_stored_is_told_apart_whatever_its_length(five: bool, ahead: bool) -> None:
    sizes = (0, 1, 127, 16_383, 70_000)
    stream = b"".join(
        published(b"t", bytes(size), 1, five=five, retained=retained) for size in sizes for retained in (True, False)
    )
    assert [len(one) == 4 and one[3] for one in reading([stream], five=five, ahead=ahead)] == [1, False] * len(sizes)


def shortened(told: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """A message that is too long is cut somewhere beyond the limit: where is up to how it comes."""
    return [tuple(part[: MOST + 1] if isinstance(part, bytes) else part for part in one) for one in told]


def stream(*, five: bool) -> bytes:
    """A packet of every kind that a broker sends once it has welcomed a client, between messages of every length."""
    some = published(b"hush/v1/reports/t/d", b"x" * 48, 1, five=five)
    longer = published(b"t", b"y" * 200, 65_535, five=five)
    suback = b"\x90\x04\x00\x07\x00\x01" if five else b"\x90\x03\x00\x07\x01"
    puback = b"\x40\x02\x00\x09"
    properties = b"\x00" if five else b""
    return b"".join(
        [some, suback, some, puback, puback, longer, b"\xd0\x00", message("t", b"once", properties=properties), some]
        + ([b"\x40\x03\x00\x08\x10", b"\x40\x04\x00\x08\x87\x00"] if five else [])
        + [message("t", b"", properties=properties), published(b"u", b"", 2, five=five)]
    )


@pytest.mark.parametrize("five", [False, True])
def test_every_split_of_the_stream_gives_the_same(five: bool) -> None:
    whole = stream(five=five)
    wanted = reading([whole], five=five, ahead=False)
    assert len(wanted) == (13 if five else 11) - 2
    for cut in range(1, len(whole)):
        assert reading([whole[:cut], whole[cut:]], five=five, ahead=True) == wanted, cut
    assert reading([whole[at : at + 1] for at in range(len(whole))], five=five, ahead=True) == wanted


@pytest.mark.parametrize("five", [False, True])
@pytest.mark.parametrize(
    "hostile",
    [
        b"\x32\x00",  # no topic at all
        b"\x32\x01\x00",
        b"\x32\x02\x00\x00",  # an empty one, and no number
        b"\x32\x04\x00\x09ab",  # a topic that is longer than the packet
        b"\x32\x03\x00\x01t",  # no number
        b"\x30\x02\x00\x00",
        b"\x40\x00",
        b"\x40\x01\x00",
        b"\x32\xff\xff\xff\xff\x01",  # a length of five bytes
        b"\x36\x08\x00\x01t\x00\x01\x00ab",  # QoS 3
    ],
)
def test_hostile_lengths_end_the_connection_after_what_came_before_and_nothing_is_made_up(
    hostile: bytes, five: bool
) -> None:
    good = published(b"t", b"good", 1, five=five)
    after = published(b"t", b"after", 2, five=five)
    for pieces in ([good + hostile + after], [good, hostile, after], [good + hostile[:1], hostile[1:] + after]):
        assert reading(pieces, five=five, ahead=True) == [(b"t", b"\x00\x01", b"good")]


def test_a_length_of_more_bytes_than_come_waits_and_takes_no_memory() -> None:
    good = published(b"t", b"good", 1, five=False)
    for length in (b"\xff\xff\xff\x7f", b"\xff\x7f", b"\x80\x80\x80\x01"):
        assert reading([good, b"\x32" + length + b"\x00\x01t"], five=False, ahead=True) == [
            (b"t", b"\x00\x01", b"good")
        ]


def test_no_filter_is_matched_against_the_topic_of_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that begins with a wildcard could be meant by every topic: it took a third of the processor time."""
    matched: list[str] = []

    def match(wanted: str, topic: str) -> bool:
        matched.append(topic)
        return topic_matches_sub(wanted, topic)

    monkeypatch.setattr("hush_common.mqtt.connection.topic_matches_sub", match)
    aside, got = TopicHandlers(), list[str]()
    for wanted in ("hush/v1/estimates/+", "+/status", "$SYS/broker/uptime", "hush/v1/recalls/+"):
        aside.set(wanted, lambda topic, _: got.append(topic), copy=False)
    assert not aside.takes("hush/v1/reports/heights/device-7", b"")
    assert matched == []
    assert aside.takes("homeassistant/status", b"")
    assert got == ["homeassistant/status"]


def test_a_message_of_quality_0_and_one_that_nobody_subscribed_to() -> None:
    assert reading([message("t", b"once")], five=False, ahead=True) == [(b"t", b"", b"once", 1)]
    assert reading([header(0x34, 20) + bytes(20)], five=False, ahead=True) == []


@given(
    st.lists(st.sampled_from(["a/b", "a/#", "a/+", "+/b", "#", "b", "a/b/c", "$SYS/#", "a"]), max_size=4, unique=True),
    st.sampled_from(["a/b", "a", "a/b/c", "b", "c/b", "$SYS/uptime", "ab", "a/"]),
)
def test_a_message_is_set_aside_for_all_whose_filter_matches(filters: list[str], topic: str) -> None:
    got: list[str] = []

    def listen(wanted: str, _topic: str, _payload: bytes) -> None:
        got.append(wanted)

    aside = TopicHandlers()
    for wanted in filters:
        aside.set(wanted, partial(listen, wanted), copy=True)
    assert not aside.takes(topic, b"")
    assert got == [wanted for wanted in filters if topic_matches_sub(wanted, topic)]
    if got:
        aside.set(got[0], lambda _topic, _payload: None, copy=False)
        assert aside.takes(topic, b"")


class Way:
    """An `Outgoing` over a socket."""

    def __init__(self, *, window: int = 4, room: int = 1 << 20, patience: float = 30.0) -> None:
        self.paho = cast("Any", Client(CallbackAPIVersion.VERSION2, "x", protocol=MQTTv311))
        self.paho.on_socket_register_write = lambda *_: None
        self.socket = Socket(room=room)
        self.paho._sock = self.socket
        self.outgoing = Outgoing(
            self.paho, asyncio.get_running_loop(), window=window, patience=patience, write=self.write, ask=self.ask
        )
        self.asked = asyncio.Event()

    def ask(self) -> None:
        self.asked.set()

    def write(self) -> None:
        self.paho.loop_write()
        self.outgoing.go_on()

    def publish(self, *payloads: bytes) -> list[asyncio.Future[int]]:
        return [self.outgoing.publish(b"t", payload, retain=False) for payload in payloads]


def sent(*payloads: bytes, first: int = 1) -> bytes:
    return b"".join(published(b"t", payload, first + place, five=False) for place, payload in enumerate(payloads))


async def test_what_is_published_in_one_turn_is_one_write_and_acknowledged_by_its_number() -> None:
    way = Way()
    futures = way.publish(b"a", b"b", b"c")
    way.outgoing.acknowledge(b"\x40\x02\x00\x07", 1)
    assert way.socket.sent == b""
    await asyncio.sleep(0)
    assert way.socket.sent == sent(b"a", b"b", b"c") + b"\x40\x02\x00\x07"
    assert way.socket.writes == 1
    way.outgoing.acknowledged(2, 16)
    assert [future.done() for future in futures] == [False, True, False]
    assert futures[1].result() == 16
    way.outgoing.acknowledged(2, 0)  # again, and one of nobody
    way.outgoing.acknowledged(99, 0)
    assert futures[1].result() == 16
    way.outgoing.end(ConnectionError("lost"))
    assert isinstance(futures[0].exception(), ConnectionError)
    assert isinstance(futures[2].exception(), ConnectionError)


async def test_no_more_is_in_flight_than_the_window_even_where_nobody_waits_any_more() -> None:
    way = Way(window=2)
    first, second, third, fourth = way.publish(b"a", b"b", b"c", b"d")
    await asyncio.sleep(0)
    assert way.socket.sent == sent(b"a", b"b")
    first.cancel()
    third.cancel()
    await asyncio.sleep(0)
    assert way.socket.sent == sent(b"a", b"b")  # the broker has not answered: it may still work on it
    way.outgoing.acknowledged(1, 0)
    await asyncio.sleep(0)
    assert way.socket.sent == sent(b"a", b"b") + published(b"t", b"d", 3, five=False)
    way.outgoing.acknowledged(2, 0)
    way.outgoing.acknowledged(3, 0)
    assert (second.result(), fourth.result()) == (0, 0)


async def test_a_number_in_flight_is_given_to_no_other_when_all_have_gone_round() -> None:
    """Else the acknowledgement of one would delete the other, which the broker may not have."""
    way = Way(window=2)
    (slow,) = way.publish(b"slow")
    for number in range(2, 65_536):
        (quick,) = way.publish(b"quick")
        way.outgoing.acknowledged(number, 0)
        assert quick.result() == 0
    waiting = way.publish(b"a", b"b")
    way.outgoing.acknowledged(2, 0)
    assert [future.done() for future in (slow, *waiting)] == [False, True, False]
    way.outgoing.acknowledged(1, 0)
    assert (slow.result(), waiting[1].done()) == (0, False)
    way.outgoing.acknowledged(3, 0)
    assert waiting[1].result() == 0


async def test_much_that_is_published_while_the_socket_is_full_is_no_reason_to_leave() -> None:
    way = Way(window=1000, room=0)
    way.publish(b"first")
    await asyncio.sleep(0)
    way.publish(*[bytes(6160)] * 900)
    await asyncio.sleep(0)
    way.outgoing.check()


async def test_what_a_full_socket_does_not_take_goes_when_it_does_in_the_same_order() -> None:
    way = Way(window=9, room=5)
    way.publish(b"a", b"b")
    await asyncio.sleep(0)
    way.publish(b"c")
    await asyncio.sleep(0)
    whole = sent(b"a", b"b", b"c")
    assert way.socket.sent == whole[:5]
    way.socket.room = 1 << 20
    way.write()
    assert way.socket.sent == whole


async def test_paho_takes_leave_after_what_was_published() -> None:
    way = Way()
    way.publish(b"a")
    way.paho.disconnect()
    way.write()
    assert way.socket.sent == sent(b"a") + b"\xe0\x00"


async def test_an_answer_is_late_once_the_broker_has_answered_what_came_after_it() -> None:
    way = Way(patience=0.05)
    late, good = way.publish(b"a", b"b")
    way.outgoing.acknowledged(2, 0)
    loop = asyncio.get_running_loop()
    sent_at = loop.time()
    await asyncio.wait_for(way.asked.wait(), 60)
    way.outgoing.answered_until(sent_at)
    assert not late.done(), "the broker may be busy with what it had to send before"
    way.outgoing.answered_until(loop.time() + 0.05)
    with pytest.raises(TimeoutError):
        await late
    assert good.result() == 0
    way.asked.clear()
    (later,) = way.publish(b"c")
    await asyncio.wait_for(way.asked.wait(), 60)
    way.outgoing.answered_until(loop.time())
    assert isinstance(later.exception(), TimeoutError)


async def test_a_broker_that_takes_no_acknowledgement_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hush_common.mqtt.packets._MOST_UNSENT", 25)
    way = Way(room=0)
    for number in range(1, 27):
        way.outgoing.check()
        way.outgoing.acknowledge(b"\x40\x02\x00%c" % number, 1)
    await asyncio.sleep(0)
    way.outgoing.acknowledge(b"\x40\x02\x00\x01" * 26, 26)
    with pytest.raises(ConnectionAbortedError, match="reads none of their acknowledgements"):
        way.outgoing.check()
