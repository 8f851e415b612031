"""The program under test: how it is started, with what, and how it ends.

It may print and start what it likes: of its output hush keeps the last lines, and every process that it has started is
killed with it, also one with its own session (Linux). A process that has removed its environment is found when the
command ends, if its parent has ended: orphans become children of the command then.
"""

import asyncio
import ctypes
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from hush_common.errors import OptionError

_END_SECONDS = 2.0
"""Seconds between SIGTERM and SIGKILL."""


@dataclass(frozen=True, slots=True)
class Place:
    """What a program is told: the rows of docs/conform.md."""

    broker: str
    host: str
    port: int
    tasks: Sequence[str]
    sender: str
    state: Path
    value_file: Path
    max_epsilon: str
    spread: str

    @property
    def named(self) -> dict[str, str]:
        """What is in the environment, and what a placeholder stands for."""
        return {
            "broker": self.broker,
            "task": ",".join(self.tasks),
            "sender": self.sender,
            "state": str(self.state),
            "value_file": str(self.value_file),
            "max_epsilon": self.max_epsilon,
            "spread": self.spread,
        }

    @property
    def value(self) -> str:
        return self.value_file.read_text(encoding="utf-8").removesuffix("\n")


def filled(command: Sequence[str], place: Place) -> list[str]:
    """Return a command with its placeholders replaced; any other brace stays."""
    meanings = {**place.named, "host": place.host, "port": str(place.port), "value": place.value}
    words = []
    for word in command:
        for name, meaning in meanings.items():
            word = word.replace("{" + name + "}", meaning)  # noqa: PLW2901
        words.append(word)
    return words


def environment(place: Place, inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment of a program: that of hush, without other settings of hush."""
    kept = {name: text for name, text in inherited.items() if not name.startswith("HUSH_")}
    return kept | {f"HUSH_{name.upper()}": text for name, text in place.named.items()}


class Output:
    """What a program prints, in bounded memory: its last bytes, and whether some texts occur in it."""

    def __init__(self) -> None:
        self.search: Sequence[bytes] = ()  # texts to look for
        self.found: set[bytes] = set()  # those among them that were printed
        self._last = b""

    def begin(self) -> None:
        """Begin another run of the program: no text reaches from one run into the next."""
        self._last += b"\n"

    def add(self, printed: bytes) -> None:
        window = self._last + printed
        self.found |= {text for text in self.search if text in window}
        self._last = window[-_KEPT_BYTES:]

    def last_line(self) -> str:
        lines = self._last.decode("utf-8", errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else ""


_KEPT_BYTES = 4096
_READ_BYTES = 1 << 16  # what a pipe holds


class Program:
    """One run of the program, with everything that it starts."""

    def __init__(self, process: Process, place: Place, output: Output, pipe: int) -> None:
        self._process = process
        self._mark = f"HUSH_STATE={place.state}".encode()
        self._output = output
        self._pipe: int | None = pipe
        asyncio.get_running_loop().add_reader(pipe, self._read)

    @classmethod
    async def start(cls, command: Sequence[str], place: Place, output: Output) -> "Program":
        """Start it in its own process group; what it prints is added to `output`.

        Raises:
            OptionError: it cannot be started.
        """
        words = filled(command, place)
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        output.begin()
        try:
            with place.value_file.open("rb") as value:
                process = await asyncio.create_subprocess_exec(
                    *words,
                    env=environment(place),
                    stdin=value,
                    stdout=writing,
                    stderr=writing,
                    start_new_session=True,
                )
        except BaseException as error:
            os.close(reading)
            if not isinstance(error, OSError | ValueError):
                raise
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
            shown = repr(command[0][:80])  # its arguments may hold a password
            raise OptionError("COMMAND", f"{shown} cannot be started ({reason}); write it after --") from error
        finally:
            os.close(writing)
        return cls(process, place, output, reading)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def code(self) -> int | None:
        """Its exit code, negative after a signal; None while it runs."""
        return self._process.returncode

    async def ended(self) -> int:
        """Wait until it has ended; return its exit code."""
        return await self._process.wait()

    async def kill(self) -> None:
        """End it and what it has started, without a warning."""
        self._signal(signal.SIGKILL)
        await self._process.wait()
        for _ in range(_TRIES):
            if not (left := _with_environment(self._mark)):
                break
            _kill(left)
        self._read()  # what is left in the pipe
        self._close()

    def _read(self) -> None:
        if self._pipe is None:
            return
        try:
            printed = os.read(self._pipe, _READ_BYTES)
        except BlockingIOError:
            return
        if printed:
            self._output.add(printed)
        else:
            self._close()

    def _close(self) -> None:
        if self._pipe is not None:
            asyncio.get_running_loop().remove_reader(self._pipe)
            os.close(self._pipe)
            self._pipe = None

    async def stop(self) -> None:
        """Ask it to end; kill it if it does not in time."""
        if self.code is None:
            self._signal(signal.SIGTERM)
            with suppress(TimeoutError):
                async with asyncio.timeout(_END_SECONDS):
                    await self._process.wait()
        await self.kill()

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):  # the whole group has ended
            os.killpg(self._process.pid, number)


_PROC = Path("/proc")
_TRIES = 20
"""Searches for processes that start others while they are killed."""
_SET_CHILD_SUBREAPER = 36  # of prctl(2)


def _kill(processes: Iterable[int]) -> None:
    for pid in processes:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _with_environment(mark: bytes) -> list[int]:
    """Return the processes that were started with a variable; none where the system has no /proc."""
    found = []
    for path in _PROC.glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is somebody else's
            if mark in (path / "environ").read_bytes().split(b"\0"):
                found.append(int(path.name))
    return found


@contextmanager
def adopted_orphans() -> Iterator[None]:
    """Become the parent of orphans during the context, and kill them at its end (Linux)."""
    if sys.platform != "linux":
        yield
        return
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    before = _children()
    prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        for _ in range(_TRIES):  # each may leave orphans, too
            orphans = _children() - before
            _kill(orphans)
            for pid in orphans:
                with suppress(ChildProcessError):
                    os.waitpid(pid, 0)
        prctl(_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _children() -> set[int]:
    """Return the children of this process, of all its threads."""
    found = set[int]()
    for path in (_PROC / "self" / "task").iterdir():
        with suppress(OSError):
            found |= set(map(int, (path / "children").read_text().split()))
    return found
