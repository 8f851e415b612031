"""Values in the messages of sensors: JSON as households have it, or the bare text of a value.

A bad neighbour must not cost a good value. So the rest of a message is read leniently: NaN, repeated keys, names of any
characters, a byte order mark or NULs around it. The value itself is read strictly: a key that occurs twice has none.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from hush_common.domain import Domain

PAYLOAD_BYTES = 64 * 1024
"""The longest message of a sensor; a longer one has no value."""
OPPOSITES: Mapping[str, str] = {
    "on": "off",
    "open": "closed",
    "detected": "clear",
    "yes": "no",
    "true": "false",
    "1": "0",
}
"""Words for yes that sensors send, each with its word for no."""
WORDS: Mapping[str, bool] = dict.fromkeys(OPPOSITES, True) | dict.fromkeys(OPPOSITES.values(), False)

_MARGINS = "\ufeff\0 \t\r\n"
_SCALAR = re.compile(r'"(?:[^"\\]|\\.)*+"?|[^\s"{}\[\]:,]++', re.DOTALL)  # an open text ends with the message
_NO_VALUE = re.compile(r":(?=\s*[,}])")
_SPARE_COMMA = re.compile(r",(?=\s*[}\]])")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?")
_LONGEST_NUMBER = 100
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECONDS_FROM = 1e11  # of a number that is a time: in seconds it would be the year 5138


class Scalar(NamedTuple):
    """A JSON value that is not null, an object or a list: its text, and whether that was in quotes."""

    text: str
    quoted: bool

    @property
    def number(self) -> float | None:
        """The value of a JSON number; None for anything else."""
        is_one = not self.quoted and len(self.text) <= _LONGEST_NUMBER and _NUMBER.fullmatch(self.text)
        return float(self.text) if is_one else None

    @property
    def word(self) -> str:
        """Its text as a word: `1` for the number 1.0."""
        number = self.number
        return str(int(number)) if number is not None and number.is_integer() else self.text.strip().casefold()

    @property
    def time(self) -> datetime | None:
        """The time that it states: ISO 8601, local without a zone, or seconds or milliseconds since 1970; or None.

        An earlier time counts as 1970: some programs write the year 1 for a time that they do not know.
        """
        try:
            number = Scalar(self.text.strip(), quoted=False).number
            if number is None:
                return max(datetime.fromisoformat(self.text.strip()).astimezone(UTC), _EPOCH)
            return datetime.fromtimestamp(max(number / 1000 if number >= _MILLISECONDS_FROM else number, 0), UTC)
        except (ValueError, OverflowError, OSError):
            return None


class _Object(list[tuple[str, object]]):
    """The pairs of a JSON object, in their order."""


@dataclass(frozen=True, slots=True)
class SensorMessage:
    """A message: its text, and its JSON document, if it is one."""

    text: str
    document: object = None

    @classmethod
    def parse(cls, payload: bytes) -> "SensorMessage":
        """Parse a message; it never fails."""
        if len(payload) > PAYLOAD_BYTES:
            return cls("")
        text = payload.decode(errors="replace").strip(_MARGINS)
        return cls(text, _document(text) if text.startswith("{") else None)

    def find(self, path: str) -> tuple[bool, Scalar | None]:
        """Return whether the message has a key, with dots between nested ones, and its value.

        `""` is the whole message. A key that occurs twice in one object is present, but has no value.
        """
        if not path:
            return self.text != "", Scalar(self.text, quoted=True) if self.text else None
        found, is_clear = [self.document], True
        for key in path.split("."):
            found = [value for node in found if isinstance(node, _Object) for name, value in node if name == key]
            is_clear &= len(found) == 1
        return bool(found), found[0] if is_clear and isinstance(found[0], Scalar) else None


def _document(text: str) -> object:
    """Return the document, with a `Scalar` for each word; None unless brackets, commas and colons are as in JSON.

    Each word is replaced by its number in quotes, so that Python's parser reads the structure and no word.
    """
    words: list[str] = []

    def number(found: re.Match[str]) -> str:
        words.append(found[0])
        return f'"{len(words) - 1}"'

    def scalar(node: object) -> object:
        if not isinstance(node, str):
            return node
        word = words[int(node)] if node else "null"
        return None if word == "null" else Scalar(_unquoted(word), word.startswith('"'))

    def pairs(found: list[tuple[str, object]]) -> _Object:
        named = ((words[int(name)], value) for name, value in found if name)
        return _Object((_unquoted(name), scalar(value)) for name, value in named if name.startswith('"'))

    structure = _SPARE_COMMA.sub("", _NO_VALUE.sub(':""', _SCALAR.sub(number, text)))
    try:
        return json.JSONDecoder(object_pairs_hook=pairs).decode(structure)
    except (ValueError, RecursionError):
        return None


def _unquoted(word: str) -> str:
    """Return the text of a JSON text; of any other word, and of an invalid one, the word itself."""
    if not word.startswith('"'):
        return word
    try:
        return str(json.loads(word, strict=False)) if "\\" in word else word[1:-1]
    except ValueError:
        return word


@dataclass(frozen=True, slots=True)
class SensorField:
    """Where the value is in a message of a sensor.

    `path` names a key of a JSON object, with dots between nested keys; `""` takes the whole message. Several paths,
    with commas between them, are the coordinates of a vector. `words` are those for yes and no, whatever their type in
    JSON: with `{"false": True, "true": False}` the JSON value false means yes.
    """

    path: str = ""
    words: Mapping[str, bool] = field(default_factory=lambda: WORDS)

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(path.strip() for path in self.path.split(","))

    @property
    def key(self) -> str:
        """The paths as one name."""
        return ",".join(self.paths)

    def mismatch(self, domain: Domain) -> str:
        """Return why no message can have a value of a task's domain, in words; empty if one can."""
        given, wanted = len(self.paths), max(len(domain.numbers), 1)
        return "" if given in (1, wanted) else f"has {given} keys, but the task needs {wanted}"

    def read(self, payload: bytes, domain: Domain) -> object:
        """Return the value in one message, or None if there is none. It never raises."""
        message = SensorMessage.parse(payload)
        return self.value([message.find(path)[1] for path in self.paths], domain)

    def value(self, scalars: Sequence[Scalar | None], domain: Domain) -> object:
        """Return the value that the scalars of the paths make up, or None if there is none. It never raises."""
        if len(scalars) == 1:
            return None if scalars[0] is None else self._value(scalars[0], domain)
        # without bounded numbers the task is not about a vector, and no list is a value
        return [None if one is None else _number(one, domain) for one in scalars] if domain.numbers else None

    def _value(self, scalar: Scalar, domain: Domain) -> object:
        if domain.kind == "bit":
            return self.words.get(scalar.word)
        if domain.kind == "number":
            return _number(scalar, domain)
        return domain.parse(scalar.text.strip())


def _number(scalar: Scalar, domain: Domain) -> object:
    if scalar.quoted:
        return domain.numbers[0].parse(scalar.text.strip())
    return scalar.number
