"""Messages that wait to be taken, and those that wait to be acknowledged, in the order of receipt."""

from hypothesis import given
from hypothesis import strategies as st

from hush_common.mqtt.connection import AckQueue, Inbox
from hush_common.topics import Delivery


def test_an_inbox_is_full_by_number_or_by_bytes_and_keeps_what_comes_all_the_same() -> None:
    inbox = Inbox(3, 100)
    for number in range(4):
        full = inbox.is_full
        assert full == (number >= 3)
        inbox.put(Delivery("t", b"%d" % number))
    assert [delivery.payload for delivery in inbox.take(2, 1000)] == [b"0", b"1"]
    inbox.put(Delivery("t", bytes(100)))
    assert inbox.is_full
    assert len(inbox.take(10, 1000)) == 3
    assert (len(inbox), inbox.is_full) == (0, False)


def test_a_batch_ends_with_the_message_that_exceeds_its_bytes() -> None:
    inbox = Inbox(100, 10_000)
    for size in (10, 10, 10, 500, 1):
        inbox.put(Delivery("t", bytes(size)))
    sizes = []
    while taken := inbox.take(100, 25):
        sizes.append([len(delivery.payload) for delivery in taken])
    assert sizes == [[10, 10, 10], [500], [1]]


class Way:
    """What is sent, and how many acknowledgements it was said to be."""

    def __init__(self) -> None:
        self.sent = b""
        self.count = 0

    def send(self, packets: bytes, count: int) -> None:
        self.sent += packets
        self.count += count


def packet_id(number: int) -> bytes:
    return number.to_bytes(2, "big")


@given(st.permutations(range(1, 9)), st.lists(st.integers(-1, 12), max_size=4))
def test_acknowledgements_are_sent_in_the_order_of_receipt_whatever_the_order_of_the_calls(
    order: list[int], nonsense: list[int]
) -> None:
    way = Way()
    received = AckQueue(way.send)
    numbers = {place: received.add(packet_id(100 + place)) for place in range(1, 9)}
    done: set[int] = set()
    for place in order:
        received.acknowledge([0, *(number for number in nonsense if number not in numbers.values()), numbers[place]])
        done.add(place)
        leading = next((place - 1 for place in range(1, 10) if place not in done), 8)
        assert way.sent == b"".join(b"\x40\x02" + packet_id(100 + place) for place in range(1, leading + 1))
        assert way.count == leading
    assert len(received) == 0


def test_a_message_is_acknowledged_once() -> None:
    way = Way()
    received = AckQueue(way.send)
    first, second = received.add(packet_id(1)), received.add(packet_id(2))
    for _ in range(2):
        received.acknowledge([first])
    received.acknowledge([second, second])
    assert way.sent == b"\x40\x02\x00\x01\x40\x02\x00\x02"


def test_packet_ids_in_flight_twice_are_counted_and_acknowledged_one_after_the_other() -> None:
    """70 000 messages in flight: the first 4465 ids come again before any is acknowledged."""
    way = Way()
    received = AckQueue(way.send)
    ids = [packet_id(1 + place % 65_535) for place in range(70_000)]
    numbers = [received.add(one) for one in ids]
    assert received.repeated == 70_000 - 65_535
    received.acknowledge(numbers[65_535:])
    assert way.sent == b"", "these came last: acknowledged first, they would delete what is not counted"
    received.acknowledge(numbers[:65_535])
    assert way.sent == b"".join(b"\x40\x02" + one for one in ids)
    received.add(packet_id(1))
    assert received.repeated == 70_000 - 65_535
    received.add(packet_id(1))
    assert received.repeated == 70_001 - 65_535
