"""What the relay of a poll passes on to the broker: the packets of a device, at its pace."""

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hush_poll.relay import LONGEST_PACKET, Allowance, ForbiddenPacketError, PacketFollower, RateLimit

CONNECT = b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x3c\x00\x01x"


def packet(first: int, length: int) -> bytes:
    head, rest = bytearray([first]), length
    while True:
        rest, low = divmod(rest, 128)
        head.append(low | (128 if rest else 0))
        if not rest:
            return bytes(head) + bytes(length)


_FROM_DEVICES = st.sampled_from([0x30, 0x32, 0x3A, 0x40, 0x82, 0xA2, 0xC0, 0xE0])
_LENGTHS = st.one_of(st.integers(0, 300), st.sampled_from([127, 128, 16_383, 16_384, LONGEST_PACKET]))


@pytest.mark.medium
@given(st.lists(st.tuples(_FROM_DEVICES, _LENGTHS), max_size=6), st.data())
def test_packets_are_counted_in_pieces_of_any_length(packets: list[tuple[int, int]], data: st.DataObject) -> None:
    sent = CONNECT + b"".join(packet(*one) for one in packets)
    cuts = sorted({0, len(sent), *data.draw(st.lists(st.integers(0, len(sent)), max_size=9))})
    follower = PacketFollower()
    for start, stop in pairwise(cuts):
        follower.follow(sent[start:stop])
    assert follower.complete == 1 + len(packets)


@pytest.mark.parametrize(
    "sent",
    [
        packet(0x32, 9),  # not CONNECT at first
        CONNECT + CONNECT,
        CONNECT + b"\x00\x00",
        CONNECT + packet(0xF0, 0),
        CONNECT + packet(0x20, 2),  # an answer of a broker
        CONNECT + packet(0x33, 9),  # retained
        CONNECT + packet(0x39, 9),
        CONNECT + packet(0x32, LONGEST_PACKET + 1),
        packet(0x10, LONGEST_PACKET + 1),
        b"\x10\xff\xff\xff\xff\x01",  # a length of more than four bytes
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_what_no_device_sends_is_refused(sent: bytes) -> None:
    for pieces in ([sent], [sent[at : at + 1] for at in range(len(sent))]):
        with pytest.raises(ForbiddenPacketError):
            follow(pieces)


def follow(pieces: list[bytes]) -> None:
    follower = PacketFollower()
    for piece in pieces:
        follower.follow(piece)


@pytest.mark.virtual_time
async def test_a_phone_that_sends_too_much_has_to_wait() -> None:
    pace = Allowance(at_once=20, per_s=4)
    assert pace.use(20) == 0
    assert pace.use(6) == pytest.approx(1.5, abs=0.01)
    await asyncio.sleep(1.5)
    assert pace.use(0) == pytest.approx(0, abs=0.01)
    await asyncio.sleep(1000)
    assert pace.use(20) == 0  # what was not used does not add up
    assert pace.use(1) == pytest.approx(0.25, abs=0.01)


@pytest.mark.virtual_time
async def test_phones_of_one_address_share_a_pace() -> None:
    own, address = [RateLimit() for _ in range(100)], RateLimit(8)
    waits = [max(pace.send(200, 9000) for pace in (one, address)) for one in own]
    assert waits[0] == 0
    assert waits[-1] > 60, "a hundred phones of one address send no faster than eight"
    assert own[0].send(100, 100) == pytest.approx(44 / 16, abs=0.01)
