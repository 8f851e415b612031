"""The embedded broker: amqtt in this process, so that nothing needs installing. The only module that imports amqtt.

It has its own event loop in its own thread, for two reasons: only the loop's exception handler sees how some of its
tasks fail, and that handler must not serve the loop of a simulation; and a busy simulation must not keep it from
reading its sockets. The listening socket is ours (an external listener of amqtt), so that a port in use gives our
message, port 0 works, and it may be a Unix socket.

It is for trying things: it keeps everything in memory, and drops a message that the aggregator leaves unacknowledged
for five seconds, or when the connection is lost; mosquitto does neither.
"""

import asyncio
import logging
import os
import threading
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from hmac import compare_digest
from pathlib import Path
from typing import Any

# amqtt has inline annotations but no py.typed marker
from amqtt.adapters import StreamReaderAdapter, StreamWriterAdapter  # type: ignore[import-untyped]
from amqtt.broker import Broker  # type: ignore[import-untyped]
from amqtt.contexts import Action, BrokerConfig, ListenerConfig, ListenerType  # type: ignore[import-untyped]
from amqtt.plugins.base import BaseAuthPlugin, BaseTopicPlugin  # type: ignore[import-untyped]

from hush_common.broker_url import BrokerUrl
from hush_common.errors import BrokerError
from hush_common.topics import is_sender, task_of_recall_topic, task_of_report_topic, task_of_task_topic
from hush_simulations.brokers.sockets import private_socket

_SHUTDOWN_SECONDS = 2.0
_LISTENER = "default"
_MOST_SUBSCRIPTIONS = 100  # of a device: amqtt compares each message with all of them


class _OpenDoor(BaseAuthPlugin):  # type: ignore[misc] # amqtt is untyped
    """Admits every client, without marking the session as anonymous: amqtt keeps no session of an anonymous client."""

    async def authenticate(self, *, session: Any) -> bool:  # noqa: ANN401, ARG002 - the signature is amqtt's
        return True


OWNER = "aggregator"
"""The user who may do everything on a broker with `owner_password`."""


class _Login(BaseAuthPlugin):  # type: ignore[misc] # amqtt is untyped
    """Admits the owner with its password, and everybody else without a name."""

    @dataclass
    class Config:
        password: str = ""

    async def authenticate(self, *, session: Any) -> bool:  # noqa: ANN401 - the signature is amqtt's
        if session.username is None:
            # amqtt publishes a will without asking the rules, and keeps a session that is not clean
            return session.clean_session and not session.will_flag
        given = (session.password or "").encode()
        return session.username == OWNER and compare_digest(given, self.config.password.encode())


class _Rules(BaseTopicPlugin):  # type: ignore[misc] # amqtt is untyped
    """Lets everybody but the owner read tasks and recalls and write reports, as the rules of a real broker do."""

    async def topic_filtering(self, *, session: Any = None, topic: str | None = None, action: Any = None) -> bool:  # noqa: ANN401
        if session is None or topic is None:
            return False
        if session.username == OWNER:
            return True
        if action is Action.PUBLISH:
            return task_of_report_topic(topic) is not None and is_sender(topic.rpartition("/")[2])
        if task_of_task_topic(topic) is None and task_of_recall_topic(topic) is None:
            return False
        if action is Action.SUBSCRIBE:
            session.hush_subscriptions = getattr(session, "hush_subscriptions", 0) + 1
            return bool(session.hush_subscriptions <= _MOST_SUBSCRIPTIONS)
        return True


class _Broker(Broker):  # type: ignore[misc] # amqtt is untyped
    """amqtt with three faults fixed, one in each method."""

    def __init__(self, configuration: BrokerConfig) -> None:
        super().__init__(configuration)
        self._redelivering: set[asyncio.Task[None]] = set()

    async def _publish_session_retained_messages(self, session: Any) -> None:  # noqa: ANN401
        """Deliver missed messages while the session is served; amqtt would first wait for each acknowledgement."""
        task = asyncio.create_task(super()._publish_session_retained_messages(session), name="hush-redeliver")
        self._redelivering.add(task)
        task.add_done_callback(self._redelivering.discard)

    async def _handle_disconnect(self, client_session: Any, handler: Any, disconnect_waiter: Any) -> None:  # noqa: ANN401
        """Deliver what a client sent before it left; amqtt has acknowledged it by now, and would drop it."""
        received = client_session.delivered_message_queue
        while not received.empty():
            message: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            message.set_result(received.get_nowait())
            await self._handle_message_delivery(client_session, handler, message)
        await super()._handle_disconnect(client_session, handler, disconnect_waiter)

    async def _publish_retained_messages_for_subscription(self, subscription: tuple[str, int], session: Any) -> None:  # noqa: ANN401
        """Publish them to a session with that subscription; amqtt sends a new one those of all subscriptions."""
        if any(holder is session for holder, _ in self._subscriptions.get(subscription[0], ())):
            await super()._publish_retained_messages_for_subscription(subscription, session)


class _Writer(StreamWriterAdapter):  # type: ignore[misc] # amqtt is untyped
    """An adapter for a Unix socket, too, whose other side has no address; amqtt would refuse it."""

    def get_peer_info(self) -> tuple[str, int]:
        peer: tuple[str, int] | None = super().get_peer_info()
        return peer or ("local", 0)


@asynccontextmanager
async def embedded_broker(host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """Run a broker without passwords while the context is open: anyone who reaches its address may do everything.

    It yields its URL. Any host but loopback opens it to the network. Port 0 takes a free one.

    Raises:
        BrokerError: the port is in use, or the address is not one of this machine.
    """
    async with _running(_Server((host, port))) as url:
        yield str(url)


@asynccontextmanager
async def private_broker(owner_password: str = "") -> AsyncIterator[BrokerUrl]:
    """Run a broker for this program while the context is open; other users of the machine cannot reach it.

    It listens on a Unix socket in a directory that only this user may enter. On Windows, which has no such sockets, it
    listens on the loopback interface. With `owner_password`, the user `OWNER` may do everything with it, and others may
    only be devices.
    """
    if not hasattr(asyncio, "start_unix_server"):
        async with _running(_Server(("127.0.0.1", 0), owner_password)) as url:
            yield url
        return
    with private_socket() as path:
        async with _running(_Server(path, owner_password)) as url:
            yield url


@asynccontextmanager
async def _running(server: "_Server") -> AsyncIterator[BrokerUrl]:
    thread = threading.Thread(target=server.run, name="hush-embedded-broker", daemon=True)
    with _silenced("amqtt", thread):
        thread.start()
        try:
            yield await asyncio.wrap_future(server.url)
        finally:
            server.stop()
            await asyncio.to_thread(thread.join, 2 * _SHUTDOWN_SECONDS)


class _Server:
    """One broker and its event loop, to run in a separate thread."""

    def __init__(self, place: tuple[str, int] | Path, owner_password: str = "") -> None:
        self.url: Future[BrokerUrl] = Future()
        self._configuration = _configuration(owner_password)
        self._place = place
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped: asyncio.Event | None = None

    def run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - it belongs to the thread that waits for the address
            if not self.url.done():
                self.url.set_exception(error)

    def stop(self) -> None:
        self.url.cancel()  # a broker that is still starting then ends by itself
        if self._loop is not None and self._stopped is not None:
            with suppress(RuntimeError):  # the loop has ended already
                self._loop.call_soon_threadsafe(self._stopped.set)

    async def _serve(self) -> None:
        self._loop, self._stopped = asyncio.get_running_loop(), asyncio.Event()
        self._loop.set_exception_handler(lambda _loop, _context: None)  # errors that amqtt's tasks leave
        broker = _Broker(self._configuration)
        await broker.start()
        try:
            listener = await self._listen(broker)
            if self.url.set_running_or_notify_cancel():  # False if the caller no longer waits for the address
                self.url.set_result(self._url(listener))
                await self._stopped.wait()
            listener.close()  # no new client while the sessions end
        finally:
            await _shut_down(broker)

    async def _listen(self, broker: _Broker) -> asyncio.Server:
        async def serve(reader: StreamReader, writer: StreamWriter) -> None:
            try:
                await broker.external_connected(StreamReaderAdapter(reader), _Writer(writer), _LISTENER)
            finally:
                writer.close()

        if isinstance(self._place, Path):
            return await asyncio.start_unix_server(serve, self._place)
        host, port = self._place
        try:
            return await asyncio.start_server(serve, host, port)
        except OSError as error:
            reason = os.strerror(error.errno).lower() if error.errno and error.errno > 0 else str(error)
            url = str(BrokerUrl(host, port))
            raise BrokerError(url, f"cannot listen there ({reason}); choose another --port or --host") from error

    def _url(self, listener: asyncio.Server) -> BrokerUrl:
        if isinstance(self._place, Path):
            return BrokerUrl.of_socket(self._place)
        return BrokerUrl(self._place[0], listener.sockets[0].getsockname()[1])


async def _shut_down(broker: _Broker) -> None:
    with suppress(Exception):  # how a broker fails while it stops does not matter
        async with asyncio.timeout(_SHUTDOWN_SECONDS):
            await broker.shutdown()


def _configuration(owner_password: str) -> BrokerConfig:
    plugins: dict[str, dict[str, str]] = {_OpenDoor.__name__: {}}
    if owner_password:
        plugins = {_Login.__name__: {"password": owner_password}, _Rules.__name__: {}}
    return BrokerConfig(
        listeners={_LISTENER: ListenerConfig(type=ListenerType.EXTERNAL, bind="hush")},
        plugins={f"{__name__}.{name}": options for name, options in plugins.items()},
    )


@contextmanager
def _silenced(name: str, thread: threading.Thread) -> Iterator[None]:
    """Keep a library's log from the terminal, but not from handlers that the application installed on it.

    It stays silent if its thread has not ended by then.
    """
    logger, quiet = logging.getLogger(name), logging.NullHandler()
    propagate, logger.propagate = logger.propagate, False
    logger.addHandler(quiet)
    try:
        yield
    finally:
        if not thread.is_alive():
            logger.removeHandler(quiet)
            logger.propagate = propagate
