"""The broker as the sender sees it: two small protocols that another transport can implement."""

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from hush_common.topics import Acknowledgement


class Link(Protocol):
    """One connection. Every method raises `BrokerError` once it is lost."""

    async def publish(self, topic: str, payload: bytes) -> Acknowledgement:
        """Send at QoS 1, and return the broker's acknowledgement. Calls in order send in order."""
        ...

    async def subscribe(self, topic: str) -> None:
        """Subscribe at QoS 1, on this connection; retained messages of the topic follow through `receive`.

        Raises:
            SubscriptionRefusedError: the broker forbids it.
        """
        ...

    async def receive(self) -> tuple[str, bytes]:
        """Return the next message: topic and payload."""
        ...


class Transport(Protocol):
    """A way to a broker. Each `connect` is a new connection that remembers nothing: the outbox is the memory."""

    @property
    def name(self) -> str:
        """The name in messages: the address without a password. Two transports of one name are the same broker."""
        ...

    def connect(self) -> AbstractAsyncContextManager[Link]:
        """Return a connection, open during the `async with`.

        Raises:
            BrokerError: (on entering) the broker cannot be reached, or refuses the login; the message says which.
        """
        ...
