"""Somebody wants a service to be of no use to others: by waiting, by sending, or by not reading.

A real server on the loopback, with shorter times than its own.
"""

import asyncio
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI, Response
from http_process import running
from http_world import BEARER, make_store, serving, writable

from hush_aggregator.web import connection, security
from hush_aggregator.web.app import create_app
from hush_aggregator.web.client_address import parse_network
from hush_aggregator.web.connection import TIMEOUTS_S, Phase
from hush_aggregator.web.security import BODY_LIMIT, STREAMS
from hush_aggregator.web.service import ProblemType

pytestmark = [pytest.mark.medium, pytest.mark.face]

PATIENCE_S = 60
HEAD = b"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
HEAD += b"".join(f"{name}: {value}\r\n".encode() for name, value in BEARER.items())
HALF_HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
REFUSED = b"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n"
STREAM = b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
HONEST = 40


@pytest.fixture
def app(tmp_path: Path) -> FastAPI:
    return create_app(writable(make_store(tmp_path / "hush.sqlite3")))


@pytest.fixture
def many_files() -> Iterator[None]:
    import resource  # noqa: PLC0415 - not on Windows

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def connected(port: int, sent: bytes = b"", *, address: str = "127.0.0.1") -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S, (address, 0)) as one:
        one.sendall(sent)
        yield one


def read(one: socket.socket) -> bytes:
    """All that comes until the other side ends."""
    found = b""
    with suppress(ConnectionError):
        while portion := one.recv(65_536):
            found += portion
    return found


def limit_connections(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Let the service have so many connections, as where the system has no more files for it."""
    monkeypatch.setattr(connection, "REQUESTS", most)
    monkeypatch.setattr(connection, "open_file_limit", lambda: 0)


async def answered(port: int) -> bool:
    """Whether others are answered meanwhile."""
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as client:
        return (await client.get("/v1/tasks")).status_code == 200


@contextmanager
def reopening(port: int, sent: bytes) -> Iterator[list[int]]:
    """Two threads that open connections without pause, up to 250 each at a time. The list says how many they opened."""
    opened, over = [0, 0], threading.Event()

    def reopen(at: int) -> None:
        held: list[socket.socket] = []
        while not over.is_set():
            with suppress(OSError):
                held.append(socket.create_connection(("127.0.0.1", port), PATIENCE_S))
                opened[at] += 1
                held[-1].sendall(sent)
            if len(held) > 250:
                held.pop().close()  # the others stay for as long as the service lets them
        for one in held:
            one.close()

    threads = [threading.Thread(target=reopen, args=(at,)) for at in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield opened
    finally:
        over.set()
        for thread in threads:
            thread.join()


def until(opened: list[int], number: int) -> None:
    while sum(opened) < number:
        time.sleep(0.01)


def ask(port: int, path: str = "/v1/tasks", *, forwarded: str = "", address: str = "127.0.0.1") -> bytes:
    """The status of an answer; empty if the connection was closed instead."""
    head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    head += f"X-Forwarded-For: {forwarded}\r\n" if forwarded else ""
    with suppress(ConnectionError), socket.create_connection(("127.0.0.1", port), PATIENCE_S, (address, 0)) as one:
        one.sendall(f"{head}\r\n".encode())
        return status(one)
    return b""


def ask_again(port: int) -> bytes:
    """The status of the first answer: on a busy machine so many others can come before a request is sent."""
    return next(filter(None, (ask(port) for _ in range(4))), b"")


def status(one: socket.socket) -> bytes:
    """The status of the answer that comes; empty if the connection is closed instead."""
    with suppress(ConnectionError):
        return one.recv(65_536)[9:12]
    return b""


async def test_a_head_that_never_ends_is_cut_off(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TIMEOUTS_S, Phase.HEAD, 2.0)

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
    monkeypatch.setitem(TIMEOUTS_S, Phase.HEAD, 2.0)
    limit_connections(monkeypatch, 8)
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


LONG = HEAD + b"Content-Length: 100000000\r\n\r\n"


async def test_a_refused_body_that_goes_on_is_cut_off(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TIMEOUTS_S, Phase.LEFT, 10.0 * PATIENCE_S)

    def send(port: int) -> int:
        with connected(port, LONG) as one:
            sent = 0
            with suppress(ConnectionError):
                while sent < 64_000_000:
                    one.sendall(bytes(65_536))
                    sent += 65_536
            return sent

    async with serving(app) as port:
        assert await asyncio.to_thread(send, port) < 16_000_000  # what the buffers of the system hold, and 4 MiB
        assert await answered(port)


@pytest.mark.parametrize("head", [LONG, REFUSED], ids=["long", "short"])
async def test_the_rest_of_a_refused_body_has_a_time(
    app: FastAPI, monkeypatch: pytest.MonkeyPatch, head: bytes
) -> None:
    monkeypatch.setitem(TIMEOUTS_S, Phase.LEFT, 1.0)

    def drip(port: int) -> bool:
        with connected(port, head) as one:
            deadline = time.monotonic() + PATIENCE_S
            try:
                while time.monotonic() < deadline:
                    one.sendall(b" ")
                    time.sleep(0.05)
            except ConnectionError:
                return True
            return False

    async with serving(app) as port:
        assert await asyncio.to_thread(drip, port)


async def test_a_body_up_to_the_limit_is_read(app: FastAPI) -> None:
    async with serving(app) as port:
        body = b" " * (BODY_LIMIT - 2) + b"{}"
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as client:
            headers = {**BEARER, "Content-Type": "application/json"}
            assert (await client.post("/v1/tasks", content=body, headers=headers)).status_code == 422
            assert (await client.post("/v1/tasks", content=body + b" ", headers=headers)).status_code == 413


async def test_a_body_that_never_comes_ends_in_an_answer(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security, "REQUEST_S", 0.3)

    def ask(port: int) -> bytes:
        with connected(port, HEAD + b"Content-Length: 100\r\n\r\n{") as one:
            return read(one)

    async with serving(app) as port:
        answer = await asyncio.to_thread(ask, port)
        assert b"503" in answer.split(b"\r\n")[0]


async def test_a_client_that_leaves_within_its_body_is_not_an_error(
    app: FastAPI, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(app) as port:
        with connected(port, HEAD + b"Content-Length: 100\r\n\r\n{"):
            assert await answered(port)
        assert await answered(port)
    assert caplog.text == ""


async def test_a_reader_that_does_not_read_is_cut_off(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TIMEOUTS_S, Phase.READER, 2.0)
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

    monkeypatch.setattr(security, "REQUESTS", 4)
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
        assert (found.status_code, found.headers["retry-after"]) == (429, "5")
        assert found.json()["type"] == ProblemType.OVER_SHARE.type
        assert await asyncio.to_thread(ask, port, address="127.0.0.2") == b"200"
        assert (await one.get("/healthz")).status_code == 200
        for task in asked:
            task.cancel()
        await asyncio.wait(asked)


@pytest.mark.large
@pytest.mark.parametrize("sent", [HALF_HEAD, b"", REFUSED], ids=["half", "no", "refused"])
async def test_connections_reopened_without_pause_keep_nobody_out(
    app: FastAPI, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    """Half heads, nothing, and refused requests whose body never comes, with the fewest connections there may be."""
    limit_connections(monkeypatch, 64)
    async with serving(app) as port:
        with reopening(port, sent) as opened:
            await asyncio.to_thread(until, opened, 200)
            found = [await asyncio.to_thread(ask_again, port) for _ in range(HONEST)]
    assert found == [b"200"] * HONEST


async def test_refused_requests_use_no_share_of_their_address(app: FastAPI) -> None:
    """They are refused without a hand-over to a thread, so that however many come at once, each is done at once."""
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        found = await asyncio.gather(*(client.post("/v1/tasks", content=b"{}") for _ in range(2 * security.REQUESTS)))
    assert {answer.status_code for answer in found} == {401}


@pytest.mark.large
def test_nor_do_they_with_the_limits_of_the_service(tmp_path: Path) -> None:
    make_store(tmp_path / "store")
    with running(tmp_path, ["http", "--store", str(tmp_path / "store")]) as service:
        with reopening(service.port, HALF_HEAD) as opened:
            until(opened, 2000)
            found = [ask_again(service.port) for _ in range(HONEST)]
        assert found == [b"200"] * HONEST


@pytest.mark.large
def test_one_address_gets_half_of_the_streams(tmp_path: Path) -> None:
    make_store(tmp_path / "store")
    with running(tmp_path, ["http", "--store", str(tmp_path / "store")]) as service, ExitStack() as stack:
        opened = []
        for _ in range(620):
            opened.append(stack.enter_context(connected(service.port)))
            with suppress(ConnectionError):
                opened[-1].sendall(STREAM)
        found = [status(one) for one in opened]
        assert found.count(b"200") == STREAMS // 2
        assert set(found) <= {b"200", b"429", b""}
        assert ask(service.port) == b"200"
        assert ask(service.port, "/v1/events") == b"429"
        assert ask(service.port, "/v1/events", address="127.0.0.2") == b"200"


@pytest.mark.usefixtures("many_files")
@pytest.mark.parametrize(("files", "most"), [(None, 792), (300, 172)])
async def test_the_oldest_connection_is_closed_for_one_too_many(
    app: FastAPI, monkeypatch: pytest.MonkeyPatch, files: int | None, most: int
) -> None:
    monkeypatch.setattr(connection, "open_file_limit", lambda: files)
    monkeypatch.setitem(TIMEOUTS_S, Phase.HEAD, 10.0 * PATIENCE_S)
    async with serving(app) as port:
        with ExitStack() as stack:

            def silent(at: int) -> socket.socket:
                return stack.enter_context(connected(port, address=f"127.0.0.{2 + at % 3}"))

            idle = await asyncio.to_thread(lambda: [silent(at) for at in range(most - 1)])
            poll = select.poll()
            for one in idle:
                poll.register(one, select.POLLIN)
            assert await asyncio.to_thread(ask, port) == b"200"
            assert poll.poll(0) == []
            idle.append(await asyncio.to_thread(silent, most))
            assert await asyncio.to_thread(ask, port) == b"200"
            assert [found for found, _ in poll.poll(1000 * PATIENCE_S)] == [idle[0].fileno()]


async def test_one_address_has_a_share_of_the_connections(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of its connections have sent a complete request, so that none of them is closed for another one."""
    limit_connections(monkeypatch, 40)
    monkeypatch.setattr(connection, "is_loopback", lambda _: False)
    async with serving(app) as port:
        with ExitStack() as stack:
            found = []
            for _ in range(20):
                one = stack.enter_context(connected(port, STREAM))
                found.append(await asyncio.to_thread(status, one))
            assert found == [b"200"] * 20
            assert await asyncio.to_thread(ask, port) == b""
            assert await asyncio.to_thread(ask, port, address="127.0.0.2") == b"200"


async def test_behind_a_trusted_proxy_the_forwarded_address_has_the_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(security, "STREAMS", 4)
    limit_connections(monkeypatch, 12)
    monkeypatch.setattr(connection, "is_loopback", lambda _: False)
    service = writable(make_store(tmp_path / "hush.sqlite3"))
    made = create_app(replace(service, trusted_proxies=(parse_network("127.0.0.1"),)))
    async with serving(made) as port:
        with ExitStack() as stack:
            found: list[bytes] = []
            for _ in range(3):  # what the client has put there itself does not count
                head = STREAM[:-2] + b"X-Forwarded-For: 198.51.100.%d, 192.0.2.1\r\n\r\n" % len(found)
                found.append(await asyncio.to_thread(status, stack.enter_context(connected(port, head))))
            assert found == [b"200", b"200", b"429"]
            other = STREAM[:-2] + b"X-Forwarded-For: 192.0.2.2\r\n\r\n"
            assert await asyncio.to_thread(status, stack.enter_context(connected(port, other))) == b"200"
            idle = [
                stack.enter_context(connected(port)) for _ in range(4)
            ]  # more than an address may have: a proxy may
            assert await asyncio.to_thread(ask, port, forwarded="192.0.2.3") == b"200"
            assert select.select(idle, [], [], 0)[0] == []


async def test_who_is_no_trusted_proxy_cannot_name_another_address(
    app: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(security, "STREAMS", 4)
    async with serving(app) as port:
        with ExitStack() as stack:
            found = []
            for number in range(3):
                head = STREAM[:-2] + b"X-Forwarded-For: 192.0.2.%d\r\n\r\n" % number
                found.append(await asyncio.to_thread(status, stack.enter_context(connected(port, head))))
            assert found == [b"200", b"200", b"429"]
