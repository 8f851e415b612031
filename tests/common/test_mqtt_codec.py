"""Bytes to packets: however a stream is cut, and only what the other side may send."""

import pytest

from hush_common.mqtt.codec import NEW, OF_CLIENTS, OLD, Kind, PacketError, PacketReader, write_packet, write_publish

LONGEST = 1000
STREAM = (
    write_publish(OLD, b"a/b", b"x" * 300, qos=1, number=7, retained=True)
    + b"\xc0\x00"
    + write_packet(0x82, b"\0\1\0\1a\1")
    + write_publish(NEW, b"t", b"", qos=0, number=0, retained=False)
    + write_packet(0x40, b"\0\7")
)
KINDS = [Kind.PUBLISH, Kind.PINGREQ, Kind.SUBSCRIBE, Kind.PUBLISH, Kind.PUBACK]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100, 1000])
def test_packets_are_the_same_however_the_stream_is_cut(size: int) -> None:
    reader, found = PacketReader(OF_CLIENTS, LONGEST), []
    for start in range(0, len(STREAM), size):
        reader.feed(STREAM[start : start + size])
        while (packet := reader.next_packet()) is not None:
            found.append(packet)
    assert [one.kind for one in found] == KINDS
    assert b"".join(write_packet(one.kind << 4 | one.flags, one.body) for one in found) == STREAM


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(b"\x00\x00", id="no kind"),
        pytest.param(b"\x20\x02\x00\x00", id="a packet of brokers"),
        pytest.param(b"\xc1\x00", id="reserved flags"),
        pytest.param(b"\x30\xff\xff\xff\xff", id="a length of five bytes"),
        pytest.param(b"\x30\xff\x7f", id="a packet that is too long"),
    ],
)
def test_what_may_not_be_sent_is_refused_before_it_is_whole(wrong: bytes) -> None:
    reader = PacketReader(OF_CLIENTS, LONGEST)
    reader.feed(wrong)
    with pytest.raises(PacketError, match=r"^sends "):
        reader.next_packet()
