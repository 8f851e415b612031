"""Where `hush watch` gets its events: the HTTP service, or the broker."""

import asyncio
import secrets
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import NoReturn

from hush_aggregator.http_deadline import Deadline
from hush_aggregator.ops.watch.terminal import Event, EventKind
from hush_common.address import AddressParts, parse_address
from hush_common.aio import Backoff, cancellable
from hush_common.broker_url import BrokerUrl
from hush_common.errors import BrokerError, LoginRefusedError, OptionError
from hush_common.topics import estimate_topic, task_topic
from hush_common.untrusted import ESTIMATE, read_json

_PATIENCE_S = 60.0
_LONGEST = 16 * 1024 * 1024
_EVENTS = "/v1/events"
_OK, _UNAUTHORIZED, _NOT_FOUND = 200, 401, 404


class HttpUrl:
    """The URL of a service: `http://HOST:PORT` or `https://…`, perhaps with a path before `/v1`.

    Raises:
        OptionError: it is not valid, or has a login, which belongs in a file.
    """

    def __init__(self, text: str, option: str = "--http") -> None:
        try:
            parts = parse_address(text)
        except ValueError:
            parts = AddressParts("")
        login = parts.user is not None or parts.password is not None
        is_http = parts.scheme in ("http", "https") and bool(parts.host) and parts.has_plain_path
        if not is_http or parts.query or login:
            raise OptionError(option, "is not the URL of a service; for example http://127.0.0.1:8080")
        self._secure, self._host, self._port = parts.scheme == "https", parts.host, parts.port
        self._path = parts.path.rstrip("/")

    def __str__(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        port = "" if self._port is None else f":{self._port}"
        return f"http{'s' if self._secure else ''}://{host}{port}{self._path}"

    def connection(self) -> HTTPConnection:
        kind = HTTPSConnection if self._secure else HTTPConnection
        return kind(self._host, self._port, timeout=_PATIENCE_S)

    def path(self, path: str) -> str:
        return self._path + path


async def watch_http(where: HttpUrl, task_id: str, token: str, receive: Callable[[Event], object]) -> NoReturn:
    """Pass events to `receive`; reconnect after a loss. Raises BrokerError if the first connection fails."""
    loop, backoff, reached = asyncio.get_running_loop(), Backoff(), False
    while True:
        follower = _Follower(where, task_id, token, lambda one: loop.call_soon_threadsafe(receive, one))
        try:
            await _in_thread(follower)
        except _RefusedError as error:
            raise BrokerError(str(where), str(error)) from None
        except (OSError, HTTPException, ValueError) as error:
            why = getattr(error, "strerror", None) or "the connection was lost"
            if not reached and not follower.reached:
                raise BrokerError(str(where), f"{why}; is a service there?") from None
            reached = True
            if follower.reached:
                backoff.reset()
            receive(Event(EventKind.LOST, f"{where}: {why}; trying again".encode()))
        await asyncio.sleep(backoff.next())


async def _in_thread(follower: "_Follower") -> None:
    running = asyncio.create_task(asyncio.to_thread(follower.run), name="hush-watch-http")
    try:
        await asyncio.shield(running)
    finally:
        follower.close()
        with suppress(OSError, HTTPException, ValueError, _RefusedError):
            await running


class _RefusedError(Exception):
    """The service refuses: a retry would not help."""


class _Follower:
    """Follows the stream of events in a thread, until the connection is lost."""

    def __init__(self, where: HttpUrl, task_id: str, token: str, receive: Callable[[Event], object]) -> None:
        self._where = where
        self._task_id = task_id
        self._token = token
        self._receive = receive
        self._closed = False
        self._deadline: Deadline | None = None
        self.reached = False

    def close(self) -> None:
        """End the current request; its reader sees the end of the stream."""
        self._closed = True
        if self._deadline is not None:
            self._deadline.cut()

    def run(self) -> None:
        """Follow the stream until it ends; raises `OSError` or `HTTPException` then."""
        connection, streaming = self._start()
        with closing(connection):
            stream = streaming.within(lambda: self._request(connection, _EVENTS, "text/event-stream"))
            with stream:
                self._follow(streaming, stream)

    def _follow(self, streaming: Deadline, stream: HTTPResponse) -> NoReturn:
        self.reached = True
        self._refresh()
        self._receive(Event(EventKind.CONNECTED))
        self._deadline = streaming
        for data in _events(lambda: streaming.within(lambda: stream.readline(_LONGEST))):
            if self._closed:
                break
            document = _document(data)
            if document is not None and document.get("task") == self._task_id and "n" in document:
                self._receive(Event(EventKind.ESTIMATE, data.encode()))
            elif not data or self._task_id in data:
                self._refresh()
                self._deadline = streaming
        raise ConnectionResetError(None, None)

    def _refresh(self) -> None:
        """Request the task and its latest result."""
        facts = _document(self._get(f"/v1/tasks/{self._task_id}").decode(errors="replace")) or {}
        payload = self._get(f"/v1/tasks/{self._task_id}/document")
        self._receive(Event(EventKind.TASK, payload))
        if payload and facts.get("state") != "open":
            self._receive(Event(EventKind.TASK))
        self._receive(
            Event(EventKind.ESTIMATE, self._get(f"/v1/tasks/{self._task_id}/rounds/latest") if payload else b"")
        )

    def _get(self, path: str) -> bytes:
        """The body of a response; empty for 404."""
        connection, deadline = self._start()

        def get() -> bytes:
            response = self._request(connection, path, "application/json", found=False)
            return response.read(_LONGEST) if response.status == _OK else b""

        try:
            return deadline.within(get)
        finally:
            connection.close()

    def _start(self) -> tuple[HTTPConnection, Deadline]:
        connection = self._where.connection()
        self._deadline = deadline = Deadline(connection, _PATIENCE_S)
        if self._closed:
            raise ConnectionResetError(None, None)
        return connection, deadline

    def _request(self, connection: HTTPConnection, path: str, kind: str, *, found: bool = True) -> HTTPResponse:
        login = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        connection.request("GET", self._where.path(path), headers={"Accept": kind, **login})
        response = connection.getresponse()
        if response.status == _OK or (response.status == _NOT_FOUND and not found):
            return response
        if response.status == _UNAUTHORIZED:
            raise _RefusedError("asks for a token; name its file with --token-file, or set HUSH_HTTP_TOKEN")
        raise _RefusedError(f"answers {response.status} to {path}; is it hush serve --http, or hush http?")


def _events(read_line: Callable[[], bytes]) -> Iterator[str]:
    """The data of each event; empty for a comment, which the service sends every few seconds without news."""
    data: list[str] = []
    while line := read_line():
        text = line.decode(errors="replace").rstrip("\r\n")
        if text.startswith("data:"):
            data.append(text.removeprefix("data:").removeprefix(" "))
        elif text.startswith(":"):
            yield ""
        elif not text and data:
            yield "\n".join(data)
            data = []


def _document(text: str) -> dict[str, object] | None:
    try:
        document = read_json(text, ESTIMATE)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


async def watch_broker(where: BrokerUrl, task_id: str, receive: Callable[[Event], object]) -> NoReturn:
    """Pass events to `receive`; reconnect after a loss. Raises BrokerError if the first connection fails."""
    from hush_aggregator.delivery.mqtt import MqttBroker  # noqa: PLC0415 - HTTP needs no MQTT

    bus = MqttBroker(where, identifier=f"hush-watch-{secrets.token_hex(6)}")
    topics = {task_topic(task_id): EventKind.TASK, estimate_topic(task_id): EventKind.ESTIMATE}
    backoff, reached = Backoff(), asyncio.Event()

    def listen(topic: str, payload: bytes) -> None:
        if topic in topics:
            receive(Event(topics[topic], payload))

    async def connected() -> None:
        async with bus.connect(()) as session:
            await session.look([*topics], listen)
            reached.set()
            backoff.reset()
            receive(Event(EventKind.CONNECTED))
            while True:
                await session.batch()  # discards the copies of tasks; raises when the connection is lost

    while True:
        try:
            await cancellable(connected(), BrokerError)
        except LoginRefusedError:
            raise
        except BrokerError as error:
            if not reached.is_set():
                raise
            receive(Event(EventKind.LOST, f"{error}; trying again".encode()))
        await asyncio.sleep(backoff.next())
