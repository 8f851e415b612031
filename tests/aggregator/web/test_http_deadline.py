"""A server that sends a byte now and then holds no client longer than its deadline."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from http.client import HTTPConnection
from pathlib import Path

import pytest
from waiting import wait_until

from hush_aggregator.http_deadline import Deadline
from hush_aggregator.ops.doctor.check_result import Verdict
from hush_aggregator.ops.doctor.peers import check_service
from hush_aggregator.ops.watch.source import HttpUrl, watch_http
from hush_aggregator.ops.watch.terminal import Event, EventKind
from hush_aggregator.publish.webhook import NotifyEvent, Webhook
from hush_common.errors import BrokerError

KINDS = {
    "headers": (b"HTTP/1.1 200 OK\r\n", b"X: a\r\n"),
    "continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "status": (b"", b"H"),
    "body": (b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"a"),
    "closing": (b"HTTP/1.0 200 OK\r\n\r\n", b"a"),
    "chunks": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n"),
    "silence": (b"", b""),
}


@pytest.fixture
def endless(request: pytest.FixtureRequest) -> Iterator[tuple[str, int]]:
    """A server that never ends its answer."""
    first, more = KINDS[request.param]
    ended = threading.Event()

    def drip(client: socket.socket) -> None:
        with closing(client), suppress(OSError):
            client.recv(65536)
            client.sendall(first)
            while not ended.wait(0.3):
                client.sendall(more)

    def accept(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=drip, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, args=(listener,), daemon=True).start()
        yield listener.getsockname()
        ended.set()
        listener.shutdown(socket.SHUT_RDWR)


def nobody_reads() -> bool:
    return not [one for one in threading.enumerate() if one.name == "hush-http-client"]


@pytest.mark.medium
@pytest.mark.parametrize("endless", KINDS, indirect=True)
def test_an_answer_without_an_end_is_given_up(endless: tuple[str, int]) -> None:
    with closing(HTTPConnection(*endless, timeout=60)) as connection:

        def read() -> bytes:
            connection.request("GET", "/")
            return connection.getresponse().read()

        with pytest.raises(TimeoutError):
            Deadline(connection, 0.2).within(read)
        wait_until(nobody_reads)


@pytest.mark.medium
@pytest.mark.parametrize("endless", ["silence"], indirect=True)
def test_work_that_ends_in_time_is_as_without_a_deadline(endless: tuple[str, int]) -> None:
    with closing(HTTPConnection(*endless)) as connection:
        deadline = Deadline(connection, 60)
        assert deadline.within(lambda: 7) == 7
        with pytest.raises(ZeroDivisionError):
            deadline.within(lambda: 1 // 0)
        deadline.cut()
        with pytest.raises(ConnectionAbortedError):
            deadline.within(lambda: 7)


@pytest.mark.large  # the deadlines are of ten, fifteen and sixty seconds
@pytest.mark.parametrize("endless", ["headers", "body"], indirect=True)
def test_no_command_waits_for_an_answer_without_an_end(endless: tuple[str, int], tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{endless[1]}"
    (tmp_path / "key").write_text("whsec_" + "A" * 32, encoding="ascii")
    found: list[object] = []

    def doctor() -> None:
        found.append([one.verdict for one in check_service(HttpUrl(url), "", "1")] == [Verdict.FAILURE])

    def webhook() -> None:
        with suppress(OSError):  # a status that has come is an answer
            assert Webhook(url, tmp_path / "key").post(NotifyEvent("1", "way", 0, b"{}")) == 200
        found.append(True)

    def lost(event: Event) -> None:
        assert event.kind is EventKind.LOST
        raise ConnectionResetError

    def watch() -> None:
        with suppress(BrokerError, ConnectionResetError):
            asyncio.run(watch_http(HttpUrl(url), "heights", "", lost))
        found.append(True)

    works: list[Callable[[], None]] = [doctor, webhook, watch]
    threads = [threading.Thread(target=one, daemon=True) for one in works]
    for one in threads:
        one.start()
    until = time.monotonic() + 120
    for one in threads:
        one.join(until - time.monotonic())
    assert found == [True] * 3
    wait_until(nobody_reads)
