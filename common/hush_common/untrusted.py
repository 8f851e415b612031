"""Read documents that others wrote: JSON and TOML within limits, then each field by its type.

A parser may take the square of a document's size in time or memory (`tomllib` keeps every prefix of a dotted key), end
in a recursion, or turn thousands of digits into a number. So the text is scanned first: its bytes, the depth of its
brackets, the parts of a dotted key, its keys, its characters and the length of a number. docs/wire.md has the limits.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from hush_common.errors import TaskError, printable


@dataclass(frozen=True, slots=True)
class DocumentLimits:
    """The most that a document may have."""

    bytes: int  # of UTF-8
    depth: int  # open brackets at one place
    keys: int  # and headers of tables


TASK = DocumentLimits(64 * 1024, 8, 8192)
"""A published task: 1024 coordinates of five fields each, and what else a task has."""
DRAFT = DocumentLimits(128 * 1024, 8, 8192)  # a task in a file or an HTTP body, with its comments and its white space
REPORT = DocumentLimits(32 * 1024, 2, 16)
RECALL = DocumentLimits(512, 1, 16)
ESTIMATE = DocumentLimits(4 * 1024 * 1024, 16, 128 * 1024)
"""An estimate that is read back; the brokers that hush configures take no longer message."""
SCENARIO = DocumentLimits(1024 * 1024, 16, 8192)  # a scenario or a sweep in a file

NUMBER_CHARACTERS = 100  # most characters of a number, or of any other word without quotes
KEY_PARTS = 8  # most parts of a dotted key in TOML

# Control characters (between the words of a document tab, line feed and return are legal), formats, white space,
# surrogates and private use (D800-F8FF and F0000-10FFFF), and the last two of each plane, which are no characters.
_RANGES = """
    0-1F 7F-A0 AD 600-605 61C 6DD 70F 890-891 8E2 1680 180E 2000-200F 2028-202F 205F-206F 3000 D800-F8FF FDD0-FDEF FEFF
    FFF0-FFFB FFFE-FFFF 1FFFE-1FFFF 2FFFE-2FFFF 3FFFE-3FFFF 4FFFE-4FFFF 5FFFE-5FFFF 6FFFE-6FFFF 7FFFE-7FFFF 8FFFE-8FFFF
    9FFFE-9FFFF AFFFE-AFFFF BFFFE-BFFFF CFFFE-CFFFF DFFFE-DFFFF EFFFE-EFFFF 110BD 110CD 13430-1343F 1BCA0-1BCA3
    1D173-1D17A E0000-E00FF E01F0-E0FFF F0000-10FFFF
"""
UNPRINTABLE: tuple[tuple[int, int], ...] = tuple(
    (int(low, 16), int(high or low, 16)) for low, _, high in (one.partition("-") for one in _RANGES.split())
)
"""Characters that no text of a task has, as ranges. hush has its own list, because each version of Unicode, and so of
Python, has another one."""

_UNPRINTABLE_CLASS = "".join(f"{re.escape(chr(low))}-{re.escape(chr(high))}" for low, high in UNPRINTABLE)
_UNPRINTABLE = re.compile(f"[{_UNPRINTABLE_CLASS}]")
_FOREIGN = re.compile(f"(?![\t\n\r])[{_UNPRINTABLE_CLASS}]")

# Texts and comments, each up to its end or that of the document. A parser that does not see one where these do has met
# an error before it, and reads no further.
_JSON_TEXT = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_JSON_ESCAPE = re.compile(r'\\(?:["\\]|(.?))', re.DOTALL)
_TOML_TEXT = re.compile(
    r"(?P<comment>\#[^\n]*+)"
    r'|"""(?:[^"\\]++|\\.|"(?!""))*+(?:"{3,5}|\\?\Z)'
    r"|'''(?:[^']++|'(?!''))*+(?:'{3,5}|\Z)"
    r'|"(?:[^"\\\n]++|\\.)*+(?:"|\\?\Z|(?=\n))'
    r"|'[^'\n]*+(?:'|\Z|(?=\n))",
    re.DOTALL | re.VERBOSE,
)
_LONG_WORD = re.compile(rf"[0-9A-Za-z_+.-]{{{NUMBER_CHARACTERS + 1}}}")
_LONG_KEY = re.compile(rf"(?:[0-9A-Za-z_-]{{1,{NUMBER_CHARACTERS}}}+[ \t]*+\.[ \t]*+){{{KEY_PARTS}}}")
_HEADER = re.compile(r"^[ \t]*+\[", re.MULTILINE)
_BRACKET = re.compile(r"[\[\]{}]")


def is_printable(text: str) -> bool:
    """Whether every character of a text may be shown, on one line and in its order: none is `UNPRINTABLE`."""
    return _UNPRINTABLE.search(text) is None


def read_file(path: Path, limits: DocumentLimits) -> str:
    """Read a file, up to the limit; OSError, or ValueError if it is too long or not UTF-8 (`UnicodeDecodeError`)."""
    with path.open("rb") as file:
        return _decoded(file.read(limits.bytes + 1), limits)


def read_json(
    payload: bytes | str,
    limits: DocumentLimits,
    *,
    published: bool = False,
    parse_int: Callable[[str], object] | None = None,
) -> object:
    r"""Parse a JSON document.

    A `published` one must be as hush publishes tasks: without null, and with no other escapes than `\"` and `\\`.

    Raises:
        ValueError: it is not UTF-8 or not JSON (NaN is not), is beyond a limit, or has a key twice in one object.
    """
    text = _decoded(payload, limits)
    _check_printable(text)
    if _has_much(text, limits):
        bare = _JSON_TEXT.sub('"', text)
        _check_structure(bare, bare.count(":"), limits)
    if published:
        _check_published(text)
    decoder = _decoder(_object, parse_int) if parse_int else _PUBLISHED_DECODER if published else _DECODER
    return decoder.decode(text)


def read_toml(text: str, limits: DocumentLimits) -> dict[str, object]:
    """Parse a TOML document; ValueError if it is not TOML, or beyond a limit."""
    import tomllib  # noqa: PLC0415 - a twentieth of a device's start, and a device reads no file

    _decoded(text, limits)
    _check_printable(_TOML_TEXT.sub(lambda found: "" if found["comment"] else found[0], text), ", or escape it")
    bare = _TOML_TEXT.sub(lambda found: "" if found["comment"] else "s", text)
    found = _LONG_KEY.search(bare)
    if found is not None:
        raise ValueError(f"line {_line(bare, found.start())} has a key of more than {KEY_PARTS} parts")
    _check_structure(bare, bare.count("=") + sum(1 for _ in _HEADER.finditer(bare)), limits)
    return tomllib.loads(text)


def _decoded(payload: bytes | str, limits: DocumentLimits) -> str:
    size = len(payload) if isinstance(payload, bytes) else len(payload.encode("utf-8", "surrogatepass"))
    if size > limits.bytes:
        raise ValueError(f"more than {limits.bytes} bytes are too long")
    return payload.decode("utf-8") if isinstance(payload, bytes) else payload


def _check_printable(text: str, remedy: str = "") -> None:
    if text.isascii() and text.isprintable():  # as most are; the list takes longer
        return
    found = _FOREIGN.search(text)
    if found is not None:
        what = f"U+{ord(found[0]):04X}, which is not printable"
        raise ValueError(f"line {_line(text, found.start())} has {what}; remove it{remedy}")


def _has_much(text: str, limits: DocumentLimits) -> bool:
    """Whether a limit may be exceeded, by counts that do not distinguish texts from structure."""
    opened = text.count("{") + text.count("[")
    return opened > limits.depth or text.count(":") > limits.keys or _LONG_WORD.search(text) is not None


def _check_structure(bare: str, keys: int, limits: DocumentLimits) -> None:
    """Check a document without its texts."""
    if keys > limits.keys:
        raise ValueError(f"{keys} keys are too many; at most {limits.keys}")
    found = _LONG_WORD.search(bare)
    if found is not None:
        place = _line(bare, found.start())
        raise ValueError(f"line {place} has a number or a word of more than {NUMBER_CHARACTERS} characters")
    depth = 0
    for bracket in _BRACKET.finditer(bare):
        depth += 1 if bracket[0] in "[{" else -1
        if depth > limits.depth:
            raise ValueError(f"line {_line(bare, bracket.start())} has more than {limits.depth} brackets open")


def _check_published(text: str) -> None:
    for found in _JSON_ESCAPE.finditer(text):
        if found[1] is not None:
            raise ValueError(f"'\\{found[1]}' is an escape that hush does not publish; write the character itself")


def _line(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Refuse a repeated key: one reader would take the first value, another one the last."""
    document = dict(pairs)
    if len(document) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice[:40]!r} appears twice")
    return document


def _published_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    for name, value in pairs:
        if value is None:
            raise ValueError(f"the key {name[:40]!r} is null; leave it out")
    return _object(pairs)


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _decoder(
    pairs: Callable[[list[tuple[str, object]]], object], parse_int: Callable[[str], object] | None = None
) -> json.JSONDecoder:
    return json.JSONDecoder(object_pairs_hook=pairs, parse_constant=_no_constant, parse_int=parse_int)


_DECODER, _PUBLISHED_DECODER = _decoder(_object), _decoder(_published_object)  # to make one takes longer than to decode


_T = TypeVar("_T")
_REQUIRED = object()
_NO_INTEGER = "not an integer; write a whole number"
_PUBLISHED_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?Z")
_NO_LIST = "not a list; write it in brackets"


def text(path: str, value: object) -> str:
    return _typed(path, value, str, "not text; write it in quotes")


def integers(path: str, value: object) -> tuple[int, ...]:
    found = _typed(path, value, list, _NO_LIST)
    for place, item in enumerate(found):
        if type(item) is not int:
            raise TaskError(f"{path}.{place}", f"{_shown(item)} is {_NO_INTEGER}")
    return tuple(found)


def check_integers(field: str, numbers: object) -> None:
    """Refuse anything but a tuple of integers: another number would make a probability inexact."""
    if not isinstance(numbers, tuple) or not all(type(number) is int for number in numbers):
        raise TaskError(field, f"{str(numbers)[:40]!r} holds something that is not an integer; write whole numbers")


def _typed(path: str, value: object, kind: type[_T], complaint: str) -> _T:
    if isinstance(value, bool) or not isinstance(value, kind):
        raise TaskError(path, f"{_shown(value)} is {complaint}")
    return value


def _shown(value: object) -> str:
    return repr(value[:40] if isinstance(value, str) else str(value)[:40])


class Fields:
    """The fields of one table. Take each known one, then call `end`; a TaskError names the field and the remedy."""

    def __init__(self, document: object, path: str = "") -> None:
        if not isinstance(document, Mapping):
            raise TaskError(path or "task", f"{_shown(document)} is not a table of fields; write them by name")
        self._left = dict(document)
        self._path = path

    def path(self, name: object) -> str:
        """Return the dotted name of a field."""
        return f"{self._path}.{name}" if self._path else str(name)

    def end(self) -> None:
        """Refuse remaining fields: a misspelt `epsilon` must not become a default."""
        for name in self._left:
            raise TaskError(self.path(printable(str(name)[:80])), "unknown field; check its spelling")

    def anything(self, name: str, default: object = _REQUIRED) -> object:
        if name not in self._left and default is _REQUIRED:
            raise TaskError(self.path(name), "is missing; add it")
        return self._left.pop(name, default)

    def text(self, name: str, default: object = _REQUIRED) -> str:
        return text(self.path(name), self.anything(name, default))

    def text_or_none(self, name: str) -> str | None:
        value = self.anything(name, None)
        return None if value is None else text(self.path(name), value)

    def integer(self, name: str, default: object = _REQUIRED) -> int:
        return _typed(self.path(name), self.anything(name, default), int, _NO_INTEGER)

    def integer_or_none(self, name: str) -> int | None:
        value = self.anything(name, None)
        return None if value is None else _typed(self.path(name), value, int, _NO_INTEGER)

    def number(self, name: str) -> float:
        value = self.anything(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        return _typed(self.path(name), value, float, "not a number; write it without quotes")

    def moment_or_none(self, name: str, *, published: bool = False) -> datetime | None:
        """Return a time: TOML has datetimes, JSON has texts of ISO 8601; a published task, texts of one form."""
        value = self.anything(name, None)
        if published and isinstance(value, str) and not _PUBLISHED_MOMENT.fullmatch(value):
            raise TaskError(self.path(name), f'{_shown(value)} is not written as in "2026-01-01T00:00:00Z"')
        if isinstance(value, str):
            try:
                value = datetime.fromisoformat(value)
            except ValueError as error:
                raise TaskError(
                    self.path(name), f'{_shown(value)} is not a time; write for example "2026-01-01T00:00:00Z"'
                ) from error
        return None if value is None else _typed(self.path(name), value, datetime, "not a date with a time; write both")

    def items(self, name: str, default: object = _REQUIRED) -> Sequence[object]:
        return _typed(self.path(name), self.anything(name, default), list, _NO_LIST)

    def integers(self, name: str) -> tuple[int, ...]:
        return integers(self.path(name), self.anything(name))

    def some_integers(self, name: str) -> tuple[int, ...]:
        """Return one integer, a list of them, or nothing."""
        value = self.anything(name, [])
        if isinstance(value, list):
            return integers(self.path(name), value)
        return (_typed(self.path(name), value, int, _NO_INTEGER),)
