"""Standard output of a command, whatever it is: closed, full, a pipe that ends or never blocks, in any encoding."""

import codecs
import errno
import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from select import select
from typing import Any, TextIO, cast

from hush_common.errors import HushError
from hush_common.terminal import note

_PIPE_ENDED = 141  # as a shell reports SIGPIPE
_ASCII = {
    **dict.fromkeys("─━\N{MINUS SIGN}\N{EN DASH}\N{EM DASH}", "-"),
    **dict.fromkeys("│├┤", "|"),
    "±": "+-",
    "≥": ">=",
    "≤": "<=",
    "\N{MULTIPLICATION SIGN}": "x",
    "≈": "~",
    "…": "...",
    "·": ".",
    "°": "deg",
    "ε": "epsilon",
    "Σ": "sum",
    "μ": "mu",
    "→": "->",
    "\N{NO-BREAK SPACE}": " ",
}
_ERRORS = "hush-ascii"


class OutputLostError(Exception):
    """Standard output takes no more.

    Attributes:
        exit_code: of a command whose work is what it prints: 141 after the end of a pipe, otherwise 1.
    """

    def __init__(self, error: OSError) -> None:
        super().__init__(f"standard output cannot be written ({error.strerror}); make room, or write it elsewhere")
        self.exit_code = _PIPE_ENDED if error.errno == errno.EPIPE else 1


class _Output(io.FileIO):
    """Raises OutputLostError once, and then takes everything: what is left in a buffer must not fail again."""

    def __init__(self, number: int, *, raises: bool) -> None:
        super().__init__(number, "w", closefd=False)
        self._raises = raises

    def write(self, data: Any) -> int:  # noqa: ANN401 - any buffer
        try:
            while (written := super().write(data)) is None:  # a full pipe that was opened not to block
                select([], [self], [])
        except OSError as error:
            if self._raises:
                self._raises = False
                raise OutputLostError(error) from None
            return len(data)
        return written


def open_outputs() -> None:
    """Make both outputs of this process usable: call it first, before another file gets the number of a closed one."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this
    codecs.register_error(_ERRORS, _in_ascii)
    sys.stdout = _opened(sys.stdout, 1)
    sys.stderr = _opened(sys.stderr, 2)


def _opened(stream: TextIO | None, number: int) -> TextIO:
    if stream is not None and os.name != "posix":  # a console of Windows has its own
        cast("io.TextIOWrapper", stream).reconfigure(errors=_ERRORS)
        return stream
    return io.TextIOWrapper(
        io.BufferedWriter(_Output(number, raises=number == 1)),
        encoding="utf-8" if stream is None else stream.encoding,
        errors=_ERRORS,
        line_buffering=number == 2 or os.isatty(number),  # noqa: PLR2004 - standard error
        write_through=bool(getattr(stream, "write_through", False)),
    )


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    signs = error.object[error.start : error.end]
    return "".join(_ASCII.get(sign) or sign.encode("ascii", "backslashreplace").decode() for sign in signs), error.end


def flush_output() -> None:
    """Write what is still in the buffer; OutputLostError if that is not possible."""
    if sys.stdout is not None:
        sys.stdout.flush()


@contextmanager
def noted_if_lost(text: str) -> Iterator[None]:
    """Print in the block about what is done and stays done; if standard output takes nothing, `text` is a note."""
    try:
        yield
    except OutputLostError:
        note(text)


def print_done(text: str) -> None:
    """Print a sentence about what is done."""
    with noted_if_lost(text):
        print(text, flush=True)


def print_json(document: object) -> None:
    """Print a JSON document: ASCII unless the output is UTF-8, because programs read it as UTF-8."""
    print(json.dumps(document, indent=2, ensure_ascii=not _is_utf8()))


def print_data(text: str) -> None:
    """Print what a program reads, a file of text, in UTF-8, unless a terminal shows it."""
    if not (_is_utf8() or sys.stdout.isatty()) and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    sys.stdout.write(text)


def _is_utf8() -> bool:
    with suppress(LookupError):
        return codecs.lookup(sys.stdout.encoding or "ascii").name == "utf-8"
    return False


@contextmanager
def files_first(directory: Path | None, write: Callable[[Path], Sequence[Path]]) -> Iterator[None]:
    """Write files if there is a directory for them, run the block, which prints, and then name the files.

    What cannot be written is printed nevertheless, and what cannot be printed is written.

    Raises:
        HushError: of `write`, after the block.
    """
    written: Sequence[Path] = ()
    trouble: HushError | None = None
    try:
        written = () if directory is None else write(directory)
    except HushError as error:
        trouble = error
    try:
        yield
    finally:
        if written:
            note("wrote " + ", ".join(map(str, written)))
        if trouble is not None:
            raise trouble
