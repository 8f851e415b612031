"""What paho reads is cut where it is too long, and is otherwise every byte that came."""

import logging
import struct
from collections.abc import Iterator
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt.client import Client, _WebsocketWrapper
from paho.mqtt.enums import CallbackAPIVersion
from scripted_broker import header, message

from hush_common.mqtt.packets import limit_packets

MOST = 1000
CONNACK = b"\x20\x02\x00\x00"


class Socket:
    """Gives bytes in pieces of the lengths that a test names, and nothing (for now) where one is 0."""

    def __init__(self, data: bytes, pieces: Iterator[int]) -> None:
        self.data = bytearray(data)
        self.pieces = pieces

    def recv(self, size: int) -> bytes:
        piece = bytes(self.data[: min(size, next(self.pieces))])
        if not piece:
            raise BlockingIOError
        del self.data[: len(piece)]
        return piece

    def send(self, data: bytes) -> int:
        return len(data)

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        self.data.clear()


def forever(*sizes: int) -> Iterator[int]:
    while True:
        yield from sizes


def reading(data: bytes, *sizes: int, frames: bool = False, limited: bool = True) -> tuple[Any, list[bytes]]:
    """A client of paho that has read all of `data`, and the payloads that it was given."""
    client: Any = Client(CallbackAPIVersion.VERSION2, "x", reconnect_on_failure=False)
    got: list[bytes] = []
    client.on_message = lambda _client, _data, received: got.append(received.payload)
    if limited:
        limit_packets(client, MOST, "mqtt://broker")
    socket = client._sock = Socket(data, forever(*sizes))
    if frames:
        client._sock = wrapped(socket)
    for _ in range(20 * len(data) + 20):
        if not socket.data:
            break
        client.loop_read()
    else:
        pytest.fail("it does not come to an end")
    return client, got


def wrapped(socket: Socket) -> Any:  # noqa: ANN401 - paho's WebSocket
    """A WebSocket after its handshake."""
    frames = cast("Any", _WebsocketWrapper.__new__(_WebsocketWrapper))
    frames.connected, frames._ssl, frames._socket = True, False, socket
    frames._sendbuffer, frames._readbuffer = bytearray(), bytearray()
    frames._requested_size = frames._payload_head = frames._readbuffer_head = 0
    return frames


def frame(data: bytes, *, opcode: int = 2, mask: bytes = b"") -> bytes:
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


@given(
    payloads=st.lists(st.binary(max_size=400), min_size=1, max_size=5),
    cuts=st.lists(st.integers(1, 300), max_size=6),
    masks=st.lists(st.binary(min_size=4, max_size=4) | st.just(b""), min_size=1, max_size=3),
    pieces=st.lists(st.integers(0, 60), min_size=1, max_size=6).filter(any),
    ping=st.booleans(),
)
def test_whatever_the_frames_of_a_websocket_are_the_messages_are_the_same(
    payloads: list[bytes], cuts: list[int], masks: list[bytes], pieces: list[int], *, ping: bool
) -> None:
    stream = b"".join(message("topic", payload) for payload in payloads)
    data = b""
    for number, cut in enumerate([*cuts, len(stream)]):
        part, stream = stream[:cut], stream[cut:]
        if part:
            data += frame(part, mask=masks[number % len(masks)])
        if ping:
            data += frame(b"still there?", opcode=9)
    _, got = reading(data, *pieces, frames=True)
    assert got == payloads


@pytest.mark.parametrize("frames", [False, True])
def test_a_message_that_is_too_long_is_cut_and_the_next_one_is_whole(
    caplog: pytest.LogCaptureFixture, *, frames: bool
) -> None:
    huge, after = message("t", bytes(range(256)) * 4000), message("t", b"after")
    data = huge + after
    _, got = reading(frame(data) if frames else data, 5000, frames=frames)
    assert len(got) == 2
    assert MOST < len(got[0]) < 200_000
    assert got[1] == b"after"
    (record,) = caplog.records
    assert record.getMessage() == (
        "mqtt://broker: truncated a message of 1024003 bytes: payload and MQTT 5 properties together may have 1000"
    )


@pytest.mark.parametrize("topic", ["t", "t" * 65_535])
def test_what_is_left_of_a_message_that_is_cut_is_longer_than_the_limit(topic: str) -> None:
    for length in (100_000, 70_000, 131_072):
        _, got = reading(message(topic, bytes(length)), 64)
        assert MOST < len(got[0]) <= length


def test_a_payload_of_just_the_limit_is_never_cut(caplog: pytest.LogCaptureFixture) -> None:
    _, got = reading(message("t" * 65_535, bytes(range(250)) * 4), 64)
    assert got == [bytes(range(250)) * 4]
    assert caplog.records == []


def test_many_that_are_too_long_are_one_line_a_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading(message("t", bytes(100_000)) * 20, 100_000)
    assert len(caplog.records) == 1
    monkeypatch.setattr("hush_common.mqtt.packets._LOG_EVERY_S", 0.0)
    reading(message("t", bytes(100_000)) * 20, 100_000)
    assert len(caplog.records) > 20


@pytest.mark.parametrize(
    ("data", "frames", "words"),
    [
        (header(0x90, 200_000_000) + bytes(5000), False, "sends a packet of 200000000 bytes that is not a message"),
        (header(0x34, 20) + bytes(20), False, "sends messages of QoS 2"),
        (header(0x3D, 20) + bytes(20), False, "sends messages of QoS 2"),
        (frame(bytes(5000), opcode=9), True, "sends a control frame of a WebSocket that is too long"),
    ],
)
def test_what_no_broker_has_a_reason_to_send_ends_the_connection(
    data: bytes, words: str, caplog: pytest.LogCaptureFixture, *, frames: bool
) -> None:
    client, got = reading(data, 100, frames=frames)
    assert client.socket() is None
    assert got == []
    assert f"mqtt://broker: closed the connection: it {words}" in caplog.text
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_a_broker_that_takes_no_acknowledgement_is_left_before_they_fill_the_memory(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deaf(_self: Socket, _data: bytes) -> int:
        raise BlockingIOError

    monkeypatch.setattr(Socket, "send", deaf)
    monkeypatch.setattr("hush_common.mqtt.packets._MOST_UNSENT", 100)
    packet = header(0x32, 5) + struct.pack(">H", 1) + b"t" + struct.pack(">H", 7)
    client, got = reading(packet * 101, 100)
    assert len(got) == 101
    assert len(client._out_packet) == 101
    client, got = reading(packet * 200, 100)
    assert client.socket() is None
    assert len(got) == 101
    assert "closed the connection: it sends messages without end" in caplog.text


def test_without_the_limit_paho_keeps_all_of_it() -> None:
    _, got = reading(message("t", bytes(1_000_000)), 50_000, limited=False)
    assert [len(payload) for payload in got] == [1_000_000]
