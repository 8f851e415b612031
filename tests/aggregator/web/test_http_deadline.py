"""A server that goes on sending holds nobody longer than a deadline."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from http.client import HTTPConnection
from pathlib import Path

import pytest

from hush_aggregator import notify
from hush_aggregator.doctor import peers
from hush_aggregator.doctor.check_result import Verdict
from hush_aggregator.http_deadline import Deadline
from hush_aggregator.notify import NotifyEvent, Webhook
from hush_aggregator.watch import source
from hush_aggregator.watch.source import HttpUrl

KINDS = {
    "headers": (b"HTTP/1.1 200 OK\r\n", b"X: a\r\n"),
    "continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "status": (b"", b"H"),
    "body": (b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"a"),
    "closing": (b"HTTP/1.0 200 OK\r\n\r\n", b"a"),
    "chunks": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n"),
    "silence": (b"", b""),
}


@pytest.fixture(params=KINDS)
def endless(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server that drips for ever, each byte long before the time limit of a socket is over."""
    first, more = KINDS[request.param]
    ended = threading.Event()

    def drip(client: socket.socket) -> None:
        with closing(client), suppress(OSError):
            client.recv(65536)
            client.sendall(first)
            while not ended.wait(0.01):
                client.sendall(more)

    def accept(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=drip, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, args=(listener,), daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        ended.set()
        listener.shutdown(socket.SHUT_RDWR)


def clients() -> set[threading.Thread]:
    return {one for one in threading.enumerate() if one.name == "hush-http-client"}


def assert_ended() -> None:
    """No thread goes on reading."""
    until = time.monotonic() + 60
    while clients():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_the_doctor_is_not_held(endless: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "_PATIENCE_S", 0.2)
    (found,) = peers.check_service(HttpUrl(endless), "", "1")
    assert found.verdict is Verdict.FAILURE
    assert_ended()


def test_a_webhook_is_not_held(endless: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(notify, "_PATIENCE_S", 0.2)
    (tmp_path / "key").write_text("whsec_" + "A" * 32, encoding="ascii")
    with suppress(OSError):  # a status that has come is an answer
        assert Webhook(endless, tmp_path / "key").post(NotifyEvent("1", "way", 0, b"{}")) == 200
    assert_ended()


def test_a_watcher_is_not_held(endless: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_PATIENCE_S", 0.2)
    follower = source._Follower(HttpUrl(endless), "way", "", lambda _: None)
    with pytest.raises(TimeoutError):  # of the deadline, or of the socket: a server that is silent meets both
        follower.run()
    assert_ended()


def test_work_that_fails_or_ends_in_time_is_as_without_a_deadline(endless: str) -> None:
    host, port = endless.removeprefix("http://").split(":")
    with closing(HTTPConnection(host, int(port))) as connection:
        deadline = Deadline(connection, 60)
        assert deadline.within(lambda: 7) == 7
        with pytest.raises(ZeroDivisionError):
            deadline.within(lambda: 1 // 0)
        deadline.cut()
        with pytest.raises(ConnectionAbortedError):
            deadline.within(lambda: 7)
