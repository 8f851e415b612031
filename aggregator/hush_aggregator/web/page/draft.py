"""A task as somebody types it into the form of `/new`: what it asks, or what is wrong with each field."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from hush_common.domain import KINDS, BitDomain, CategoryDomain, NumberDomain, VectorDomain
from hush_common.errors import TaskError
from hush_common.mechanisms.registry import known
from hush_common.task import Task, make_task
from hush_common.untrusted import DRAFT, Fields, read_json

_ASKED = {NumberDomain: ("lower", "upper", "unit"), CategoryDomain: ("labels", "other"), VectorDomain: ("coordinates",)}
_TEXTS = ("id", "title", "purpose", "epsilon", "mechanism", "round_every", "repeat", "release_every", "retention")
_INTEGERS = ("rounds", "enrolled", "release_from")
_TIMES = ("opens", "closes")
_DOMAIN = ("lower", "upper", "unit", "labels", "other", "coordinates")

LABELS = {
    "": "The task",
    "title": "Title",
    "purpose": "Purpose",
    "id": "Id",
    "kind": "Kind of answer",
    "lower": "From",
    "upper": "To",
    "unit": "Unit",
    "labels": "Answers to choose from",
    "other": "For any other answer",
    "coordinates": "The numbers",
    "epsilon": "Epsilon",
    "rounds": "How often",
    "round_every": "Every",
    "opens": "Opens",
    "closes": "Closes",
    "mechanism": "Mechanism",
    "repeat": "Repeated answers",
    "enrolled": "Devices that are asked",
    "release_from": "First figures from",
    "release_every": "New figures every",
    "retention": "Delete reports after",
}
"""What the form calls its fields, in its order; the empty name is for the task as a whole."""

FIELDS: tuple[str, ...] = tuple(name for name in LABELS if name)
"""The names of the fields of the form."""

_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_INTEGER = re.compile(r"[0-9]{1,18}")
_LONGEST_NUMBER = 40
_LOCAL = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2})?")

_LEGAL: Mapping[str, object] = {
    "id": "a",
    "lower": -1e300,
    "upper": 1e300,
    "labels": ["a", "b"],
    "coordinates": [{"name": "a", "lower": 0, "upper": 1}],
    "epsilon": "1",
    "round_every": "1s",
    "opens": "0001-01-02T00:00:00Z",
    "closes": "9999-12-30T00:00:00Z",
}
"""What replaces a field with an error, so that the errors of other fields are found; others are left out."""


@dataclass(frozen=True, slots=True)
class CheckedDraft:
    """What was typed, and the task that it makes: None if a field has an error."""

    values: Mapping[str, str]
    errors: Mapping[str, str]
    task: Task | None = None


def read_form(body: bytes) -> Mapping[str, str]:
    """Return the fields of the form from JSON, texts by name; a TaskError names one that is unknown or not text."""
    try:
        fields = Fields(read_json(body, DRAFT))
    except ValueError as error:
        raise TaskError("task", f"cannot be read: {error}") from error
    found = {name: fields.text(name, "") for name in FIELDS}
    fields.end()
    return found


def check_draft(values: Mapping[str, str]) -> CheckedDraft:
    """Check all fields: the errors are those of `hush task check`, at most one for each field.

    Blocks as long as that takes: at most a second for a task as large as may be.
    """
    errors: dict[str, str] = {}
    document = _document(values, errors)
    task = None
    while task is None:
        try:
            task = make_task(document)
        except TaskError as error:
            name = _field(error, document)
            if name in errors or not name:
                errors.setdefault(name, _message(error))
                break
            errors[name] = _message(error)
            _replace(document, name)
    ordered = {name: errors[name] for name in LABELS if name in errors}
    return CheckedDraft(values, ordered, None if errors else task)


def _document(values: Mapping[str, str], errors: dict[str, str]) -> dict[str, object]:
    """Return the document of a task, with legal values in the place of those that are not of their type."""
    typed = {name: text.strip() for name, text in values.items() if text.strip()}
    kind = KINDS.get(typed.get("kind", ""))
    if kind is None:
        errors["kind"] = "choose one"
        kind = BitDomain
    domain: dict[str, object] = {"kind": kind.kind}
    document: dict[str, object] = {name: typed[name] for name in _TEXTS if name in typed} | {"domain": domain}
    document |= {name: _moment(typed[name]) for name in _TIMES if name in typed}
    for place, name in [(document, name) for name in _INTEGERS] + [(domain, name) for name in _ASKED.get(kind, ())]:
        if name in typed:
            try:
                place[name] = _value(name, typed[name])
            except ValueError as error:
                errors[name] = str(error)
                _replace(document, name)
    return document


def _value(name: str, text: str) -> object:
    match name:
        case "lower" | "upper":
            return _number(text)
        case "labels":
            return [line.strip() for line in text.splitlines() if line.strip()]
        case "coordinates":
            return [_coordinate(line, number) for number, line in _lines(text)]
        case "unit" | "other":
            return text
        case _:
            bare = text.replace(" ", "")
            if not _INTEGER.fullmatch(bare):
                raise ValueError(f"{text[:40]!r} is not a whole number; write for example 12")
            return int(bare)


def _number(text: str) -> float:
    if len(text) > _LONGEST_NUMBER or not _NUMBER.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is not a number; write for example 12.5")
    return float(text)


def _lines(text: str) -> list[tuple[int, str]]:
    return [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]


def _coordinate(line: str, number: int) -> dict[str, object]:
    name, *bounds = (part.strip() for part in line.split(","))
    try:
        lower, upper, *unit = bounds
        (unit_text,) = unit or [""]
    except ValueError:
        raise ValueError(f"line {number} is not NAME, FROM, TO, UNIT; write for example: Humidity, 0, 100, %") from None
    try:
        found: dict[str, object] = {"name": name, "lower": _number(lower), "upper": _number(upper)}
    except ValueError as error:
        raise ValueError(f"line {number}: {error}") from None
    return found | ({"unit": unit_text} if unit_text else {})


def _moment(text: str) -> str:
    """Return a time of the form, which is in UTC, as one of a task."""
    return f"{text}Z" if _LOCAL.fullmatch(text) else text


def _field(error: TaskError, document: Mapping[str, object]) -> str:
    """Return the field of the form that an error is about; empty for the task as a whole."""
    name, _, rest = error.field.partition(".")
    if name == "domain":
        is_vector = isinstance(domain := document["domain"], Mapping) and domain["kind"] == VectorDomain.kind
        name = "coordinates" if is_vector else rest.partition(".")[0] or "kind"
    if name in {parameter for kind in known() for parameter in kind.takes}:
        name = "mechanism"
    return name if name in FIELDS else ""


def _message(error: TaskError) -> str:
    found = str(error).removeprefix(f"{error.field}: ")
    place = re.match(r"domain\.coordinates\.([0-9]+)", error.field)
    return found if place is None else f"number {int(place[1]) + 1}: {found}"


def _replace(document: dict[str, object], name: str) -> None:
    """Put a legal value in the place of a field."""
    place = document["domain"] if name in _DOMAIN else document
    assert isinstance(place, dict)  # noqa: S101 - for the type checker
    place.pop(name, None)
    if name in _LEGAL:
        place[name] = _LEGAL[name]
