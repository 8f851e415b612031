"""A deadline for all that is read from an HTTP server: a time limit of a socket begins again with each byte."""

import errno
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from http.client import HTTPConnection
from socket import SHUT_RDWR, socket
from typing import TypeVar

T = TypeVar("T")


class Deadline:
    """Does blocking work with a connection, and gives it up after some seconds, whatever the server sends.

    Args:
        connection: not yet connected.
        seconds: for each piece of work, with the names and addresses that connecting looks up and tries.
    """

    def __init__(self, connection: HTTPConnection, seconds: float) -> None:
        self._connection = connection
        self._seconds = seconds
        self._is_cut = False
        self._socket: socket | None = None  # a connection forgets its own when it has read the headers

    def within(self, work: Callable[[], T]) -> T:
        """Return what the work returns; raise what it raises, or TimeoutError."""
        done: Future[T] = Future()
        threading.Thread(target=self._run, args=(work, done), daemon=True, name="hush-http-client").start()
        try:
            return done.result(self._seconds)
        except TimeoutError:
            if done.done():
                return done.result()
            self.cut()
            raise TimeoutError(errno.ETIMEDOUT, f"no complete answer within {self._seconds:g} s") from None

    def cut(self) -> None:
        """End the connection; work that waits for it sees its end."""
        self._is_cut = True
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(SHUT_RDWR)

    def _run(self, work: Callable[[], T], done: "Future[T]") -> None:
        try:
            self._connect()
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is waited for
            done.set_exception(error)

    def _connect(self) -> None:
        if self._socket is None:
            self._connection.connect()
            self._socket = self._connection.sock
        if self._is_cut:
            raise ConnectionAbortedError(errno.ECONNABORTED, "the connection was ended")
