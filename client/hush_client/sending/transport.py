"""Transport: the broker as the sender sees it, as two small protocols that another transport can implement.

A third is for whoever hears of connections and messages.
"""

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from hush_common.errors import SubscriptionRefusedError
from hush_common.topics import Acknowledgement

__all__ = ["Acknowledgement", "Link", "Listener", "SubscriptionRefusedError", "Transport"]


class Link(Protocol):
    """One connection. Every method raises `BrokerError` once it is lost."""

    async def publish(self, topic: str, payload: bytes) -> Acknowledgement:
        """Send at QoS 1, and return what the broker says to it. Calls in order send in order."""
        ...

    async def subscribe(self, topic: str) -> None:
        """Subscribe at QoS 1, on this connection; retained messages of the topic follow through `receive`.

        Raises:
            SubscriptionRefusedError: the broker forbids it.
        """
        ...

    async def receive(self) -> tuple[str, bytes]:
        """The next message: topic and payload."""
        ...


class Transport(Protocol):
    """A way to a broker. Each `connect` is a new connection that remembers nothing: the outbox is the memory."""

    @property
    def name(self) -> str:
        """What messages to people call it: the address without a password. Two of one name are the same broker."""
        ...

    def connect(self) -> AbstractAsyncContextManager[Link]:
        """A connection for the length of the `async with`.

        Raises:
            BrokerError: (on entering) the broker is not there, or refuses the login; the message says which.
        """
        ...


class Listener(Protocol):
    """Whoever hears what comes from the broker. Nothing of it may block or raise."""

    def connected(self, now: bool, /) -> None:
        """A connection has begun; or an attempt failed, or a connection ended."""
        ...

    def receive(self, topic: str, payload: bytes, /) -> None:
        """A message of a subscribed topic."""
        ...

    def heard(self, topic: str, /) -> None:
        """What is retained under a subscribed topic has come."""
        ...
