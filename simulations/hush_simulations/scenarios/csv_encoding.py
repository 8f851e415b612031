"""From the bytes of a CSV file to its text.

A byte order mark is certain, and so is UTF-8: other text is not legal UTF-8 by chance. Everything else looks alike to
a program: the same bytes are words in Western, Polish and Russian. Then only text that is the same in all of them,
ASCII, may be used, and whoever needs more is asked.
"""

import codecs
from pathlib import Path
from typing import NamedTuple

from hush_common.errors import OptionError

__all__ = ["MOST_BYTES", "Decoded", "read_text"]

MOST_BYTES = 1 << 28
_MARKS = (  # the longer first: the mark of UTF-32 begins with that of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (codecs.BOM_UTF8, "utf-8-sig"),
)
_SAVED = "save it as CSV in UTF-8, or write its --encoding, as in --encoding cp1252"


class Decoded(NamedTuple):
    """The text of a file; where `certain` is false, only its ASCII characters are those that were meant."""

    text: str
    certain: bool


def read_text(path: Path, encoding: str | None) -> Decoded:
    """The text of a file, without a byte order mark.

    Args:
        path: of the file.
        encoding: as a person states it; None to find it.

    Raises:
        OptionError: it cannot be read, is too large, or is no text in that encoding.
    """
    content = _content(path)
    if encoding is None:
        return _found(path, content)
    try:
        return Decoded(content.decode(encoding).removeprefix("\ufeff"), certain=True)
    except UnicodeError:
        raise OptionError("--encoding", f"{path} is not text in {encoding[:40]}; {_SAVED}") from None


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise OptionError("--csv", f"{path} cannot be read ({error.strerror}); name a CSV file") from error
    if len(content) > MOST_BYTES:
        raise OptionError("--csv", f"{path} has more than {MOST_BYTES >> 20} MiB; keep the column that is asked for")
    return content


def _found(path: Path, content: bytes) -> Decoded:
    marked = next((name for mark, name in _MARKS if content.startswith(mark)), None)
    try:
        text = content.decode(marked or "utf-8")
    except UnicodeError:
        if marked is not None or b"\0" in content:
            raise OptionError("--encoding", f"{path} is not UTF-8 text; {_SAVED}") from None
        return Decoded(content.decode("latin-1"), certain=False)  # each byte a character; ASCII bytes are their own
    if "\0" in text:
        raise OptionError("--encoding", f"{path} has null characters; if it is UTF-16, write --encoding utf-16-le")
    return Decoded(text, certain=True)
