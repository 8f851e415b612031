"""Somebody wants a service to be of no use to others: by waiting, by sending, or by not reading.

A real server on the loopback, with shorter times than its own.
"""

import asyncio
import select
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI, Response
from http_world import BEARER, make_store, writable
from servers import free_port

from hush_aggregator.http import connection, guard
from hush_aggregator.http.address import Address, bind
from hush_aggregator.http.app import create_app
from hush_aggregator.http.connection import LONGEST, Phase
from hush_aggregator.http.guard import BODY_LIMIT
from hush_aggregator.http.server import serve_http

PATIENCE_S = 30
HEAD = b"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
HEAD += b"".join(f"{name}: {value}\r\n".encode() for name, value in BEARER.items())


@pytest.fixture
def app(tmp_path: Path) -> FastAPI:
    return create_app(writable(make_store(tmp_path / "hush.sqlite3")))


@asynccontextmanager
async def serving(app: FastAPI) -> AsyncIterator[int]:
    """The port of a server."""
    port = free_port()
    running = asyncio.create_task(serve_http(app, bind("--http", Address("127.0.0.1", port))))
    try:
        yield port
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


@contextmanager
def connected(port: int, sent: bytes = b"") -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as one:
        one.sendall(sent)
        yield one


def read(one: socket.socket) -> bytes:
    """All that comes until the other side ends."""
    found = b""
    with suppress(ConnectionError):
        while portion := one.recv(65_536):
            found += portion
    return found


async def answered(port: int) -> bool:
    """Whether others are answered meanwhile."""
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as client:
        return (await client.get("/v1/tasks")).status_code == 200


async def test_a_head_that_never_ends_is_cut_off(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LONGEST, Phase.HEAD, 0.5)

    def drip(port: int) -> int:
        with connected(port, b"GET / HTTP/1.1\r\nHost: localhost\r\n") as one:
            deadline = time.monotonic() + PATIENCE_S
            with suppress(ConnectionError):
                while time.monotonic() < deadline:
                    one.sendall(b"X-A: b\r\n")
                    if select.select([one], [], [], 0.05)[0]:
                        return len(one.recv(10))
            return 0

    async with serving(app) as port:
        cut = asyncio.create_task(asyncio.to_thread(drip, port))
        assert await answered(port)
        assert await asyncio.wait_for(cut, PATIENCE_S) == 0


async def test_connections_that_say_nothing_keep_nobody_out_for_long(
    app: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LONGEST, Phase.HEAD, 0.5)
    monkeypatch.setattr(connection, "_most", lambda: 8)
    async with serving(app) as port:
        with ExitStack() as stack:
            idle = [stack.enter_context(connected(port)) for _ in range(20)]
            ended = await asyncio.gather(*(asyncio.to_thread(read, one) for one in idle))
            assert ended == [b""] * 20
            assert await answered(port)


@pytest.mark.parametrize("form", ["chunked", "of a length", "of a length that is no number"])
async def test_a_body_of_100_megabytes_is_refused_before_it_is_read(app: FastAPI, form: str) -> None:
    def send(port: int) -> tuple[int, bytes]:
        chunked = form == "chunked"
        length = {"of a length": b"Content-Length: 100000000\r\n", "chunked": b"Transfer-Encoding: chunked\r\n"}
        with connected(port, HEAD + length.get(form, b"Content-Length: 1e8\r\n") + b"\r\n") as one:
            portion = b"10000\r\n" + bytes(65_536) + b"\r\n" if chunked else bytes(65_536)
            sent = 0
            with suppress(ConnectionError):
                while sent < 100_000_000 and not select.select([one], [], [], 0)[0]:
                    one.sendall(portion)
                    sent += len(portion)
            return sent, read(one)

    async with serving(app) as port:
        sent, answer = await asyncio.to_thread(send, port)
        assert answer.split(b"\r\n")[0].split()[1] == (b"400" if form.endswith("number") else b"413")
        assert sent < 16_000_000  # what the buffers of the system hold, and no more
        assert await answered(port)


async def test_a_body_up_to_the_limit_is_read(app: FastAPI) -> None:
    async with serving(app) as port:
        body = b" " * (BODY_LIMIT - 2) + b"{}"
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as client:
            headers = {**BEARER, "Content-Type": "application/json"}
            assert (await client.post("/v1/tasks", content=body, headers=headers)).status_code == 422
            assert (await client.post("/v1/tasks", content=body + b" ", headers=headers)).status_code == 413


async def test_a_body_that_never_comes_ends_in_an_answer(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "REQUEST_S", 0.3)

    def ask(port: int) -> bytes:
        with connected(port, HEAD + b"Content-Length: 100\r\n\r\n{") as one:
            return read(one)

    async with serving(app) as port:
        answer = await asyncio.to_thread(ask, port)
        assert b"503" in answer.split(b"\r\n")[0]
        assert b"took too long" in answer


async def test_a_reader_that_does_not_read_is_cut_off(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LONGEST, Phase.READER, 0.5)
    app.add_api_route("/large", lambda: Response(bytes(64_000_000)))

    def wait(port: int) -> int:
        with connected(port, b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n") as one:
            poll = select.poll()
            poll.register(one, 0)  # of what goes wrong one is told without asking
            return len(poll.poll(1000 * PATIENCE_S))

    async with serving(app) as port:
        assert await asyncio.to_thread(wait, port) == 1
        assert await answered(port)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X-A: b\r\n" * 64, b"431"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX-A: " + b"a" * 20_000 + b"\r\n", b"431"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n", b"400"),
        (b"GET / HTTP/1.1\r\n", b"400"),
        (b"GET / HTTP/1.0\r\n", b"421"),
        (b"no request at all\r\n", b"400"),
    ],
)
async def test_a_head_that_is_none_or_too_large_is_a_problem(app: FastAPI, head: bytes, status: bytes) -> None:
    def ask(port: int) -> bytes:
        with connected(port, head + b"Connection: close\r\n\r\n") as one:
            return read(one)

    async with serving(app) as port:
        answer = await asyncio.to_thread(ask, port)
        assert answer.split(b"\r\n")[0].split()[1] == status
        assert b"application/problem+json" in answer
        assert await answered(port)


async def test_streams_that_stay_open_take_no_place_of_a_request(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    entered = asyncio.Semaphore(0)

    async def slow() -> None:
        entered.release()
        await asyncio.Event().wait()

    monkeypatch.setattr(guard, "REQUESTS", 2)
    app.add_api_route("/slow", slow)
    async with serving(app) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as one:
        for _ in range(5):
            request = one.build_request("GET", "/v1/events")
            assert (await one.send(request, stream=True)).status_code == 200
        assert await answered(port)
        asked = [asyncio.create_task(one.get("/slow")) for _ in range(2)]
        for _ in asked:
            await entered.acquire()
        found = await one.get("/v1/tasks")
        assert (found.status_code, found.headers["retry-after"]) == (503, "5")
        assert (await one.get("/healthz")).status_code == 200
        for task in asked:
            task.cancel()
        await asyncio.wait(asked)
