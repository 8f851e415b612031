"""Messages of one connection: those that wait to be taken, and those that wait to be acknowledged."""

from collections import deque
from collections.abc import Callable, Iterable

from hush_common.delivery import Delivery

__all__ = ["Inbox", "Received"]

_PUBACK = b"\x40\x02"


class Inbox:
    """Messages that came and were not taken yet, in order.

    Args:
        messages: the number of messages that makes it full.
        payload_bytes: the bytes of payload that make it full, however few messages they are.
    """

    def __init__(self, messages: int, payload_bytes: int) -> None:
        self._limits = messages, payload_bytes
        self._deliveries: deque[Delivery] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._deliveries)

    @property
    def is_full(self) -> bool:
        """Whether no more should be read before something is taken."""
        messages, payload_bytes = self._limits
        return len(self._deliveries) >= messages or self._bytes >= payload_bytes

    def put(self, delivery: Delivery) -> None:
        self._deliveries.append(delivery)
        self._bytes += len(delivery.payload)

    def take(self, most: int, most_bytes: int) -> list[Delivery]:
        """Remove and return the next messages, at most `most`, and at most one beyond `most_bytes` of payload."""
        taken: list[Delivery] = []
        room = most_bytes
        while self._deliveries and len(taken) < most and room > 0:
            delivery = self._deliveries.popleft()
            taken.append(delivery)
            room -= len(delivery.payload)
        self._bytes -= most_bytes - room
        return taken


class Received:
    """Messages of QoS 1 that were received and not acknowledged, in the order of receipt.

    Acknowledgements are sent in that order, whatever the order of the calls: a message that is done waits for those
    before it. MQTT requires it (3.1.1, section 4.6), and mosquitto up to 2.0.12 depends on it: it may have more than
    65 535 messages in flight, so that packet ids repeat, and a PUBACK deletes the oldest message with its id.

    Args:
        send: sends acknowledgements: their bytes, and how many they are.

    Attributes:
        repeated: how many messages came with the packet id of another one that was not acknowledged yet.
    """

    def __init__(self, send: Callable[[bytes, int], None]) -> None:
        self._send = send
        self._first = 1  # number of the oldest message in `_ids`
        self._ids: deque[bytes] = deque()  # packet ids as they came, two bytes each
        self._in_flight: set[bytes] = set()
        self._done: set[int] = set()
        self.repeated: int = 0

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, packet_id: bytes) -> int:
        """Note a message; return its number."""
        if packet_id in self._in_flight:
            self.repeated += 1
        else:
            self._in_flight.add(packet_id)
        self._ids.append(packet_id)
        return self._first + len(self._ids) - 1

    def acknowledge(self, numbers: Iterable[int]) -> None:
        """Note that these messages are done, and acknowledge the oldest ones as far as all of them are."""
        first, end, done = self._first, self._first + len(self._ids), self._done
        done.update(number for number in numbers if first <= number < end)
        ready: list[bytes] = []
        while first in done:
            done.remove(first)
            ready.append(self._ids.popleft())
            first += 1
        if not ready:
            return
        self._first = first
        self._in_flight.difference_update(ready)
        if self.repeated:  # an id of one of these may still be in flight for a later message
            self._in_flight.update(self._ids)
        self._send(_PUBACK + _PUBACK.join(ready), len(ready))
