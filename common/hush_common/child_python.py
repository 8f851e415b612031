"""Start another Python that runs code of hush and nothing from the working directory, and exchange objects with it."""

import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Self


def python_command(code: str, *words: str) -> list[str]:
    """Return the command of another Python that runs `code`, with `words` as `sys.argv[1:]`.

    It finds modules where this one finds them, in the same order, but not in the working directory: anybody may have
    put a `json.py` there. hush itself is found wherever it is, there as the last place.
    """
    places = [place for place in map(_absolute, sys.path) if place]
    here = [place for place in places if os.path.realpath(place) == _absolute("", real=True)]
    home = str(Path(__file__).resolve().parents[1])
    path = f"[place for place in {places!a} if place in sys.path or place not in {here!a}] + [{home!a}]"
    more = [*(["-E"] if sys.flags.ignore_environment else []), *(["-s"] if sys.flags.no_user_site else [])]
    return [sys.executable, "-P", *more, "-c", f"import sys; sys.path[:] = {path}; {code}", *words]  # noqa: TID251 - the place


def _absolute(place: str, *, real: bool = False) -> str:
    """Return the full path, or nothing if the working directory no longer exists."""
    try:
        return os.path.realpath(place) if real else os.path.abspath(place)  # noqa: PTH100 - "" is the directory itself
    except OSError:
        return ""


class ChildPython:
    """Another Python, and the two pipes to it. `hear` blocks until it answers or has ended.

    Use as a context manager: at its end the process is killed, whatever it is doing. A signal to the group of this
    process is not for it: Ctrl-C is for this one, which decides what becomes of the other.

    Args:
        code: what it runs; it makes a `Parent`.
    """

    def __init__(self, code: str) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and code
            python_command(code), stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        assert self._process.stdin is not None  # noqa: S101 - for the type checker
        assert self._process.stdout is not None  # noqa: S101
        self._requests, self._answers = self._process.stdin, self._process.stdout
        self._broken = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def alive(self) -> bool:
        return not self._broken and self._process.poll() is None

    @property
    def code(self) -> int:
        """Its exit code, negative after a signal. Blocks until it has ended."""
        return self._process.wait()

    def send(self, request: object) -> None:
        try:
            pickle.dump(request, self._requests)
            self._requests.flush()
        except OSError:
            self._broken = True

    def hear(self) -> object:
        """Return its next answer, which is never None; None if it has ended."""
        try:
            return None if self._broken else pickle.load(self._answers)  # noqa: S301 - from our own process
        except (EOFError, OSError, ValueError, pickle.UnpicklingError):
            self._broken = True
            return None

    def end(self) -> None:
        """Kill it; a thread that waits for it is notified at once."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._requests, self._answers):
            with suppress(OSError):  # what was not sent need not be
                pipe.close()


class Parent:
    """In a `ChildPython`: the process that started it. When that one ends, so does this, whatever it is doing."""

    def __init__(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):  # a service manager sends them to all; the parent decides
            signal.signal(number, signal.SIG_IGN)
        self._answers = os.fdopen(os.dup(1), "wb")
        self._requests: queue.SimpleQueue[object] = queue.SimpleQueue()
        _print_to_standard_error()  # what is printed must not come among the answers
        threading.Thread(target=self._listen, args=(sys.stdin.buffer,), daemon=True, name="hush-listen").start()

    def requests(self) -> Iterator[object]:
        while True:
            yield self._requests.get()

    def answer(self, answer: object) -> None:
        with suppress(OSError):  # nobody listens any more: `_listen` ends this process
            pickle.dump(answer, self._answers)
            self._answers.flush()

    def _listen(self, pipe: IO[bytes]) -> None:
        with suppress(EOFError, OSError):
            while True:
                self._requests.put(pickle.load(pipe))  # noqa: S301 - from the parent, by a private pipe
        os._exit(0)


def _print_to_standard_error() -> None:
    try:
        os.dup2(2, 1)
    except OSError:  # it is closed
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
