"""Taking the fields of a document one by one: of the right type, none misspelt, errors by dotted name.

Nothing is converted but whole numbers where a number is asked for: `"1"` is no number, 1.0 no integer, true neither.
What a legal value is beyond its type, `Task` and the domains judge.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TypeVar

from hush_common.errors import TaskError, printable

__all__ = ["Fields", "check_integers", "integers", "text"]

_T = TypeVar("_T")
_REQUIRED = object()
_NO_INTEGER = "not an integer; write a whole number"
_PUBLISHED_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?Z")
_NO_LIST = "not a list; write it in brackets"


def text(path: str, value: object) -> str:
    """A text as it is."""
    return _typed(path, value, str, "not text; write it in quotes")


def integers(path: str, value: object) -> tuple[int, ...]:
    """The integers of a list."""
    found = _typed(path, value, list, _NO_LIST)
    for place, item in enumerate(found):
        if type(item) is not int:
            raise TaskError(f"{path}.{place}", f"{_shown(item)} is {_NO_INTEGER}")
    return tuple(found)


def check_integers(field: str, numbers: object) -> None:
    """Refuse what is no tuple of integers: whatever is no integer here would end in a probability that is not exact."""
    if not isinstance(numbers, tuple) or not all(type(number) is int for number in numbers):
        raise TaskError(field, f"{str(numbers)[:40]!r} holds something that is not an integer; write whole numbers")


def _typed(path: str, value: object, kind: type[_T], complaint: str) -> _T:
    if isinstance(value, bool) or not isinstance(value, kind):
        raise TaskError(path, f"{_shown(value)} is {complaint}")
    return value


def _shown(value: object) -> str:
    return repr(value[:40] if isinstance(value, str) else str(value)[:40])


class Fields:
    """The fields of one table. Take each that is known, then call `end`.

    Args:
        document: a mapping with texts for keys.
        path: dotted name of the table, empty for the document itself.

    Raises:
        TaskError: (from every method) naming the field and the remedy.
    """

    def __init__(self, document: object, path: str = "") -> None:
        if not isinstance(document, Mapping):
            raise TaskError(path or "task", f"{_shown(document)} is not a table of fields; write them by name")
        self._left = dict(document)
        self._path = path

    def path(self, name: object) -> str:
        """The dotted name of a field."""
        return f"{self._path}.{name}" if self._path else str(name)

    def end(self) -> None:
        """Refuse what is left: a misspelt `epsilon` must not become a default."""
        for name in self._left:
            raise TaskError(self.path(printable(str(name)[:80])), "unknown field; check its spelling")

    def anything(self, name: str, default: object = _REQUIRED) -> object:
        """Whatever stands there."""
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
        """One integer, a list of them, or nothing."""
        value = self.anything(name, [])
        if isinstance(value, list):
            return integers(self.path(name), value)
        return (_typed(self.path(name), value, int, _NO_INTEGER),)
