"""Every command of `hush` in this process, and all that it shows: what it prints, and logs at any level."""

import functools
import io
import logging
import os
import re
import signal
import socket
import sys
import traceback
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn
from unittest.mock import patch

import typer

from hush import cli

__all__ = ["EXIT_CODES", "PROGRESS", "Option", "Shown", "commands", "leaves", "run", "unprintable", "without_progress"]

EXIT_CODES = {0, 1, 2, 130, 141, 143}
"""Done; it did not work; a mistake on the command line; stopped, by Ctrl-C, a closed pipe or SIGTERM."""

PROGRESS = re.compile(r"^hush: (\d[\d ]*) of \d[\d ]* .+, \d[\d ]* s(?:, .+)?\n", re.MULTILINE)
"""A line of progress: how many are done. It comes after five seconds, so how many lines come depends on the machine."""

_read: list[Any] = []
"""The trees of command lines as they were read; each is made once in a process."""
_make_once = functools.cache(typer.main.get_command)


def _get_command(app: typer.Typer) -> Any:  # noqa: ANN401 - of click
    _read.append(_make_once(app))
    return _read[-1]


_LAST_WORDS = {
    "serve": "retrying until",
    "gateway": "trying again",
    "broker": "Ctrl-C stops",
    "poll": "; Ctrl-C ends",
    "http": "HTTP on http://",
}
"""After these a command that runs for ever has shown all that there is to show."""


@dataclass(frozen=True, slots=True)
class Option:
    """What a command takes on its command line.

    Args:
        flag: as typed; for an argument its name in capitals.
        variable: of the environment, that may stand for it.
        width: how many texts follow the flag; none after a switch.
    """

    flag: str
    variable: str | None
    width: int

    @property
    def is_argument(self) -> bool:
        return not self.flag.startswith("-")


@functools.cache
def trees() -> dict[str, Any]:
    """What reads the command line of each command that `hush --help` lists, as of click."""
    found = {}
    for name in typer.main.get_command(cli.app).commands:  # type: ignore[attr-defined]  # it is a group
        shown = run([name, "--help"], Path.cwd())
        assert shown.code == 0, shown
        found[name] = _read[-1]
    return found


@functools.cache
def leaves() -> dict[str, Any]:
    """The same for each command that does something, as `task publish`."""
    return {name: leaf for word, tree in trees().items() for name, leaf in _leaves(word, tree)}


def _leaves(name: str, command: Any) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - of click, which typer may hide
    parts = getattr(command, "commands", {})
    if not parts:
        yield name, command
    for word, part in parts.items():
        yield from _leaves(f"{name} {word}", part)


def commands() -> dict[str, list[Option]]:
    """All commands with all that they take."""
    return {name: [_option(one) for one in leaf.params] for name, leaf in leaves().items()}


def _option(one: Any) -> Option:  # noqa: ANN401 - of click
    if one.param_type_name == "argument":
        return Option(one.name.upper(), one.envvar, 1)
    return Option(max(one.opts, key=len), one.envvar, 0 if one.is_flag else one.nargs)


@dataclass(frozen=True, slots=True)
class Shown:
    """What became of a command.

    Args:
        code: of its end.
        out: its standard output.
        err: its standard error.
        log: every record of every logger, with its traceback.
        trouble: a traceback that a person would have seen.
    """

    code: int | None
    out: str
    err: str
    log: str
    trouble: str = ""


def unprintable(text: str) -> list[str]:
    """What could move a cursor, forge a line or turn the order of letters round, but for `\\n` and `\\t`."""
    return sorted({sign for sign in text if sign not in "\n\t" and unicodedata.category(sign) in _HIDDEN})


def without_progress(text: str) -> str:
    """What a command prints on standard error, however long the machine takes for it."""
    return PROGRESS.sub("", text)


_HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Control characters, marks of direction and of no width, halves of a character, breaks of lines and paragraphs."""


class _Ear(io.TextIOWrapper):
    """A standard stream; it presses Ctrl-C after the last words."""

    def __init__(self, errors: str, last: str | None) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", errors=errors, newline="\n")
        self._last = last

    def write(self, text: str) -> int:
        count = super().write(text)
        if self._last is not None and self._last in text:
            signal.raise_signal(signal.SIGINT)
        return count

    def all(self) -> str:
        self.flush()
        raw = self.buffer
        assert isinstance(raw, io.BytesIO)
        return raw.getvalue().decode("utf-8", errors="surrogateescape")


def run(
    arguments: Sequence[str],
    directory: Path,
    *,
    typed: bytes = b"",
    environment: Mapping[str, str] | None = None,
    patience: float = 120.0,
) -> Shown:
    """`hush` with these arguments, in `directory`, without a network beyond the loopback.

    Args:
        arguments: as a shell hands them over.
        directory: working directory, and home.
        typed: standard input.
        environment: beside an empty one.
        patience: seconds after which somebody presses Ctrl-C.
    """
    last = _LAST_WORDS.get(arguments[0]) if arguments else None
    out, err, log = (_Ear(errors, last) for errors in ("strict", "backslashreplace", "backslashreplace"))
    code: int | None = None
    trouble = ""
    with ExitStack() as stack:
        stack.enter_context(_place(directory, environment or {}))
        stack.enter_context(_logged(log))
        stack.enter_context(_interrupted(patience))
        stack.enter_context(patch.object(typer.main, "get_command", _get_command))
        stack.enter_context(patch.object(socket, "getaddrinfo", _here_only(socket.getaddrinfo)))
        stack.enter_context(patch.multiple(sys, argv=["hush", *arguments], path=list(sys.path), stdout=out, stderr=err))
        stack.enter_context(patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed))))
        try:
            cli.main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        except BaseException:  # noqa: BLE001 - what ends a process with a traceback
            trouble = traceback.format_exc()
    return Shown(code, out.all(), err.all(), log.all(), trouble)


@contextmanager
def _place(directory: Path, environment: Mapping[str, str]) -> Iterator[None]:
    here = Path.cwd()
    os.chdir(directory)
    try:
        with patch.dict(os.environ, {"HOME": str(directory), "PATH": os.environ["PATH"], **environment}, clear=True):
            yield
    finally:
        os.chdir(here)


@contextmanager
def _logged(stream: _Ear) -> Iterator[None]:
    """Everything that any logger says, whatever its level, on `stream`."""
    root, quiet = logging.getLogger(), logging.getLogger("mqtt")
    before = root.handlers, root.level, quiet.level
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    root.handlers, root.level = [handler], logging.DEBUG
    try:
        yield
    finally:
        root.handlers, root.level, quiet.level = before


@contextmanager
def _interrupted(patience: float) -> Iterator[None]:
    def press(_number: int, _frame: FrameType | None) -> None:
        signal.raise_signal(signal.SIGINT)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGALRM, press)
    signal.setitimer(signal.ITIMER_REAL, patience, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def _here_only(real: Any) -> Any:  # noqa: ANN401 - a function of the standard library with many forms
    def found(host: object, *arguments: object, **options: object) -> object:
        name = host.decode() if isinstance(host, bytes) else host
        if name in ("127.0.0.1", "::1", "localhost"):
            return real("127.0.0.1", *arguments, **options)
        _nowhere()

    return found


def _nowhere() -> NoReturn:
    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
