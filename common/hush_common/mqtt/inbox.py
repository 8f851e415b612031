"""Inbox: messages that have arrived over a connection and were not handed over yet."""

from collections import deque

from hush_common.delivery import Delivery

__all__ = ["Inbox"]


class Inbox:
    """Messages that came and were not handed over yet, in order.

    Args:
        messages: how many make it full.
        payload_bytes: how many bytes of payload make it full, however few messages they are.
        optional: beginnings of topics whose messages a full one does without.
    """

    def __init__(self, messages: int, payload_bytes: int, optional: tuple[str, ...] = ()) -> None:
        self._limits = messages, payload_bytes
        self._optional = optional
        self._deliveries: deque[Delivery] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._deliveries)

    @property
    def full(self) -> bool:
        """Whether nothing more should come before something is taken. What comes all the same is kept."""
        messages, payload_bytes = self._limits
        return len(self._deliveries) >= messages or self._bytes >= payload_bytes

    def put(self, delivery: Delivery, *, promised: bool = True) -> None:
        """Keep a message, unless there is no room and it was promised to nobody, or is optional: then acknowledge it.

        While an answer is waited for the socket is read, and nothing else bounds what comes by it: mosquitto 2.0 sends
        more than its `max_inflight_messages` at once, all retained messages if it has to.
        """
        if self.full and (not promised or delivery.topic.startswith(self._optional)):
            delivery.ack()
            return
        self._deliveries.append(delivery)
        self._bytes += len(delivery.payload)

    def take(self, most: int) -> list[Delivery]:
        """The next messages, at most so many; empty if nothing is there."""
        taken = [self._deliveries.popleft() for _ in range(min(len(self._deliveries), most))]
        self._bytes -= sum(len(delivery.payload) for delivery in taken)
        return taken
