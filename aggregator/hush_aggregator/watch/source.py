"""Watching over HTTP: a task and its result from `hush serve --http` or `hush http`, then the stream of events.

With the HTTP client of the standard library, in a thread: all there is to do is two short requests and lines that come
one after the other, for which a library of its own would be five packages.
"""

import asyncio
import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import NoReturn
from urllib.parse import urlsplit

from hush_aggregator.broker.mqtt import MqttBus
from hush_aggregator.watch.terminal import Heard, News
from hush_common.aio import Backoff, cancellable
from hush_common.broker_url import BrokerUrl
from hush_common.errors import BrokerError, LoginRefusedError, OptionError
from hush_common.topics import estimate_topic, task_topic
from hush_common.untrusted import ESTIMATE, read_json

TOKEN_VARIABLE = "HUSH_HTTP_TOKEN"  # noqa: S105 - the name of a variable

_PATIENCE_S = 60.0
_LONGEST = 16 * 1024 * 1024
_EVENTS = "/v1/events"
_OK, _UNAUTHORIZED, _NOT_FOUND = 200, 401, 404


class HttpUrl:
    """Where a service is.

    Args:
        text: `http://HOST:PORT` or `https://…`, perhaps with a path before `/v1`.
        option: of the command line that names it, for messages.

    Raises:
        OptionError: it is no such address, or one with a login, which belongs in a file.
    """

    def __init__(self, text: str, option: str = "--http") -> None:
        try:
            parts = urlsplit(text)
            host, port = parts.hostname, parts.port
        except ValueError:
            parts, host, port = urlsplit(""), None, None
        if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment or "@" in parts.netloc:
            raise OptionError(option, "is no address of a service; write for example http://127.0.0.1:8080")
        self._secure, self._host, self._port = parts.scheme == "https", host, port
        self._path = parts.path.rstrip("/")

    def __str__(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        port = "" if self._port is None else f":{self._port}"
        return f"http{'s' if self._secure else ''}://{host}{port}{self._path}"

    def connection(self) -> HTTPConnection:
        """A connection that is made with its first request."""
        kind = HTTPSConnection if self._secure else HTTPConnection
        return kind(self._host, self._port, timeout=_PATIENCE_S)

    def path(self, path: str) -> str:
        """The path of a request."""
        return self._path + path


async def watch_http(where: HttpUrl, task_id: str, token: str, heard: Callable[[Heard], object]) -> NoReturn:
    """Hand over what is heard, through every loss of the connection.

    Args:
        where: the service.
        task_id: which task.
        token: that it asks for; empty for none.
        heard: called in the event loop.

    Raises:
        BrokerError: it could not be reached the first time, or refuses.
    """
    loop, backoff, reached = asyncio.get_running_loop(), Backoff(), False
    while True:
        asking = _Asking(where, task_id, token, lambda one: loop.call_soon_threadsafe(heard, one))
        try:
            await _in_thread(asking)
        except _RefusedError as error:
            raise BrokerError(str(where), str(error)) from None
        except (OSError, HTTPException, ValueError) as error:
            why = getattr(error, "strerror", None) or "the connection was lost"
            if not reached and not asking.reached:
                raise BrokerError(str(where), f"{why}; is a service there?") from None
            reached = True
            if asking.reached:
                backoff.reset()
            heard(Heard(News.LOST, f"{where}: {why}; trying again".encode()))
        await asyncio.sleep(backoff.next())


async def _in_thread(asking: "_Asking") -> None:
    running = asyncio.create_task(asyncio.to_thread(asking.run), name="hush-watch-http")
    try:
        await asyncio.shield(running)
    finally:
        asking.close()
        with suppress(OSError, HTTPException, ValueError, _RefusedError):
            await running


class _RefusedError(Exception):
    """The service answers, and trying again would not help."""


class _Asking:
    """One connection after the other, in a thread, until one is lost."""

    def __init__(self, where: HttpUrl, task_id: str, token: str, heard: Callable[[Heard], object]) -> None:
        self._where = where
        self._task_id = task_id
        self._token = token
        self._heard = heard
        self._connection = where.connection()
        self._closed = False
        self.reached = False

    def close(self) -> None:
        """End the request under way; its reader finds the end."""
        self._closed = True
        connection = self._connection
        with suppress(OSError):
            if connection.sock is not None:
                connection.sock.shutdown(2)

    def run(self) -> None:
        """Until the stream ends.

        Raises:
            OSError: the connection is lost.
            HTTPException: it is no service.
        """
        stream = self._ask(_EVENTS, "text/event-stream")
        self.reached = True
        events = _events(stream)
        streaming = self._connection
        self._look()
        self._heard(Heard(News.THERE))
        self._connection = streaming
        for data in events:
            if self._closed:
                return
            document = _document(data)
            if document is not None and document.get("task") == self._task_id and "n" in document:
                self._heard(Heard(News.ESTIMATE, data.encode()))
            elif not data or self._task_id in data:
                self._look()
                self._connection = streaming
        raise ConnectionResetError(None, None)

    def _look(self) -> None:
        """The task and its latest result as they are."""
        facts = _document(self._get(f"/v1/tasks/{self._task_id}").decode(errors="replace")) or {}
        payload = self._get(f"/v1/tasks/{self._task_id}/document")
        self._heard(Heard(News.TASK, payload))
        if payload and facts.get("state") != "open":
            self._heard(Heard(News.TASK))
        self._heard(Heard(News.ESTIMATE, self._get(f"/v1/tasks/{self._task_id}/rounds/latest") if payload else b""))

    def _get(self, path: str) -> bytes:
        """What is there; nothing where there is nothing."""
        answer = self._ask(path, "application/json", found=False)
        body = answer.read(_LONGEST)
        self._connection.close()
        return body if answer.status == _OK else b""

    def _ask(self, path: str, kind: str, *, found: bool = True) -> HTTPResponse:
        self._connection = self._where.connection()
        if self._closed:
            raise ConnectionResetError(None, None)
        login = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        self._connection.request("GET", self._where.path(path), headers={"Accept": kind, **login})
        answer = self._connection.getresponse()
        if answer.status == _OK or (answer.status == _NOT_FOUND and not found):
            return answer
        if answer.status == _UNAUTHORIZED:
            raise _RefusedError("asks for a token; name its file with --token-file, or set HUSH_HTTP_TOKEN")
        raise _RefusedError(f"answers {answer.status} to {path}; is it hush serve --http, or hush http?")


def _events(stream: HTTPResponse) -> Iterator[str]:
    """The data of each event; nothing for a comment, which comes every few seconds where nothing else does."""
    data: list[str] = []
    while line := stream.readline(_LONGEST):
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


async def watch_broker(where: BrokerUrl, task_id: str, heard: Callable[[Heard], object]) -> NoReturn:
    """Hand over what is heard, at once, through every loss of the connection.

    Args:
        where: the broker.
        task_id: which task.
        heard: called in the event loop.

    Raises:
        BrokerError: it could not be reached the first time, or lets this user in no more.
    """
    bus = MqttBus(where, identifier=f"hush-watch-{secrets.token_hex(6)}")
    topics = {task_topic(task_id): News.TASK, estimate_topic(task_id): News.ESTIMATE}
    backoff, reached = Backoff(), asyncio.Event()

    def listen(topic: str, payload: bytes) -> None:
        if topic in topics:
            heard(Heard(topics[topic], payload))

    async def connected() -> None:
        async with bus.connect(()) as session:
            await session.look([*topics], listen)
            reached.set()
            backoff.reset()
            heard(Heard(News.THERE))
            while True:
                await session.batch()  # the tasks once more; it ends with the connection

    while True:
        try:
            await cancellable(connected(), BrokerError)
        except LoginRefusedError:
            raise
        except BrokerError as error:
            if not reached.is_set():
                raise
            heard(Heard(News.LOST, f"{error}; trying again".encode()))
        await asyncio.sleep(backoff.next())
