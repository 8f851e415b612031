"""The embedded broker: amqtt in this process, so that nothing needs installing. The only place that imports amqtt.

It has its own event loop in its own thread, for two reasons: its tasks may fail in ways that only the loop's exception
handler sees, and that handler must not speak for the loop of a simulation; and a busy simulation must not keep it from
reading its sockets. The listening socket is ours (amqtt calls that an external listener), so that a port that is taken
gives our message and port 0 works.

Good for trying things. It keeps everything in memory, and gives up on a message that the aggregator leaves
unacknowledged for five seconds, or at the loss of its connection; mosquitto does neither.
"""

import asyncio
import logging
import os
import threading
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

# amqtt has inline annotations but no py.typed marker
from amqtt.adapters import StreamReaderAdapter, StreamWriterAdapter  # type: ignore[import-untyped]
from amqtt.broker import Broker  # type: ignore[import-untyped]
from amqtt.contexts import BrokerConfig, ListenerConfig, ListenerType  # type: ignore[import-untyped]
from amqtt.plugins.base import BaseAuthPlugin  # type: ignore[import-untyped]

from hush_common.errors import BrokerError

_SHUTDOWN_SECONDS = 5.0
_LISTENER = "default"


class _OpenDoor(BaseAuthPlugin):  # type: ignore[misc] # amqtt is untyped
    """Admits everybody, without marking the session as anonymous.

    amqtt keeps nothing for an anonymous client that is away; an aggregator relies on a persistent session.
    """

    async def authenticate(self, *, session: Any) -> bool:  # noqa: ANN401, ARG002 - the signature is amqtt's
        return True


class _Broker(Broker):  # type: ignore[misc] # amqtt is untyped
    """amqtt with three faults mended.

    A session that returns is heard at once, a newcomer gets only what it subscribed to, and what a client sent before
    it left reaches its subscribers.
    """

    def __init__(self, configuration: BrokerConfig) -> None:
        super().__init__(configuration)
        self._redelivering: set[asyncio.Task[None]] = set()

    async def _publish_session_retained_messages(self, session: Any) -> None:  # noqa: ANN401
        """Deliver what a session missed while it is heard already; amqtt would first wait for each acknowledgement."""
        task = asyncio.create_task(super()._publish_session_retained_messages(session), name="hush-redeliver")
        self._redelivering.add(task)
        task.add_done_callback(self._redelivering.discard)

    async def _handle_disconnect(self, client_session: Any, handler: Any, disconnect_waiter: Any) -> None:  # noqa: ANN401
        """Hand on what a client sent before it left; amqtt has acknowledged it by now, and would forget it."""
        received = client_session.delivered_message_queue
        while not received.empty():
            message: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            message.set_result(received.get_nowait())
            await self._handle_message_delivery(client_session, handler, message)
        await super()._handle_disconnect(client_session, handler, disconnect_waiter)

    async def _publish_retained_messages_for_subscription(self, subscription: tuple[str, int], session: Any) -> None:  # noqa: ANN401
        """Publish them to a session that holds the subscription; amqtt sends a newcomer those of everybody's."""
        if any(holder is session for holder, _ in self._subscriptions.get(subscription[0], ())):
            await super()._publish_retained_messages_for_subscription(subscription, session)


@asynccontextmanager
async def embedded_broker(host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """Run a broker while the context is open.

    Args:
        host: the address to listen on; anything but loopback opens it to the network, without passwords.
        port: a TCP port; 0 takes a free one.

    Yields:
        Its URL.

    Raises:
        BrokerError: the port is taken, or the address is not one of this machine.
    """
    server = _Server(host, port)
    with _silenced("amqtt"):
        thread = threading.Thread(target=server.run, name="hush-embedded-broker", daemon=True)
        thread.start()
        try:
            listening: int = await asyncio.wrap_future(server.port)
            yield f"mqtt://{_bracketed(host)}:{listening}"
        finally:
            server.stop()
            await asyncio.to_thread(thread.join, 2 * _SHUTDOWN_SECONDS)


class _Server:
    """One broker and its event loop, for a thread of its own."""

    def __init__(self, host: str, port: int) -> None:
        self.port: Future[int] = Future()
        self._address = (host, port)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped: asyncio.Event | None = None

    def run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - it belongs to the thread that waits for the port
            if not self.port.done():
                self.port.set_exception(error)

    def stop(self) -> None:
        if self._loop is not None and self._stopped is not None:
            with suppress(RuntimeError):  # the loop has ended already
                self._loop.call_soon_threadsafe(self._stopped.set)

    async def _serve(self) -> None:
        self._loop, self._stopped = asyncio.get_running_loop(), asyncio.Event()
        self._loop.set_exception_handler(lambda _loop, _context: None)  # what amqtt's tasks leave behind
        broker = _Broker(_configuration())
        await broker.start()
        try:
            listener = await self._listen(broker)
            self.port.set_result(listener.sockets[0].getsockname()[1])
            await self._stopped.wait()
            listener.close()  # nobody new while the sessions end
        finally:
            await _shut_down(broker)

    async def _listen(self, broker: _Broker) -> asyncio.Server:
        async def serve(reader: StreamReader, writer: StreamWriter) -> None:
            try:
                await broker.external_connected(StreamReaderAdapter(reader), StreamWriterAdapter(writer), _LISTENER)
            finally:
                writer.close()

        host, port = self._address
        try:
            return await asyncio.start_server(serve, host, port)
        except OSError as error:
            reason = os.strerror(error.errno).lower() if error.errno and error.errno > 0 else str(error)
            url = f"mqtt://{_bracketed(host)}:{port}"
            raise BrokerError(url, f"cannot listen there ({reason}); choose another --port or --host") from error


async def _shut_down(broker: _Broker) -> None:
    with suppress(Exception):  # a broker that fails while it stops has nothing left to say
        async with asyncio.timeout(_SHUTDOWN_SECONDS):
            await broker.shutdown()


def _configuration() -> BrokerConfig:
    return BrokerConfig(
        listeners={_LISTENER: ListenerConfig(type=ListenerType.EXTERNAL, bind="hush")},
        plugins={f"{__name__}.{_OpenDoor.__name__}": {}},
    )


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


@contextmanager
def _silenced(name: str) -> Iterator[None]:
    """Keep a library's log from the terminal; a handler that the application installed on it still gets everything."""
    logger, quiet = logging.getLogger(name), logging.NullHandler()
    propagate, logger.propagate = logger.propagate, False
    logger.addHandler(quiet)
    try:
        yield
    finally:
        logger.removeHandler(quiet)
        logger.propagate = propagate
