"""Task documents: from TOML or JSON to a frozen `Task`, and back, by the standard library alone."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, timedelta
from fractions import Fraction
from typing import Any, cast

from hush_common.domain import BitDomain, CategoryDomain, Coordinate, Domain, NumberDomain, VectorDomain
from hush_common.epsilon import decimal_text, parse_epsilon
from hush_common.errors import TaskError
from hush_common.mechanisms.build import choose, complete
from hush_common.mechanisms.mechanism import Levelled
from hush_common.mechanisms.parameters import Parameters
from hush_common.mechanisms.registry import fitting
from hush_common.mechanisms.tables import shipped
from hush_common.task import ROUND_LIMIT, Repeat, Task
from hush_common.task_fields import Fields, text

__all__ = ["domain_document", "encode_document", "task_of_document"]

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_AUTO = "auto"
_OPEN = frozenset({"levels", "size", "sampled", "table"})  # what hush fills in
_INTERVAL = re.compile(r"([1-9][0-9]{0,8})([smhdw])")


@dataclass(frozen=True, slots=True)
class _Choice:
    """What a document says about the mechanism.

    Args:
        name: its own, `"auto"`, or None.
        given: its parameters.
        shipped: the name of a table, where a draft has that in its place.
        rounds: of the task.
        repeat: of the task.
    """

    name: str | None
    given: Parameters
    shipped: str | None
    rounds: int
    repeat: Repeat


def task_of_document(
    document: Mapping[str, object], *, payload: bytes = b"", draft: bool = False, legacy: bool = False
) -> Task:
    """Validate a document.

    Args:
        document: the fields of a task.
        payload: the bytes that it was published as.
        draft: whether it is a person's file, in which `"auto"`, parameters left out and shipped tables are resolved. In
            a published task they would leave a choice to each reader.
        legacy: whether it may be one of before, which nobody answers any more: see `Task`.

    Raises:
        TaskError: naming the field and the remedy.
    """
    fields = Fields(document)
    identifier, title, purpose = fields.text("id"), fields.text("title", ""), fields.text("purpose", "")
    given, offered = fields.anything("epsilon", None), fields.items("offers", [])
    choice = _choice(fields)
    times = {name: fields.moment_or_none(name, published=not draft) for name in ("opens", "closes")}
    every, enrolled = fields.text_or_none("round_every"), fields.integer_or_none("enrolled")
    domain = _domain(fields.anything("domain"))
    fields.end()
    epsilon = _epsilon(given, choice)
    offers = tuple(parse_epsilon(offer, field="offers") for offer in offered)
    mechanism, parameters = _mechanism(choice, domain, offers or (epsilon,), draft=draft)
    return Task(
        id=identifier,
        title=title,
        purpose=purpose,
        epsilon=epsilon,
        offers=offers,
        mechanism=mechanism,
        parameters=parameters,
        domain=domain,
        enrolled=enrolled,
        rounds=choice.rounds,
        repeat=choice.repeat,
        round_every=None if every is None else _interval(every),
        **times,
        payload=payload,
        chosen=_left_open(choice) if draft else frozenset(),
        legacy=legacy,
    )


def _left_open(choice: _Choice) -> frozenset[str]:
    """What a draft does not fix, but a version of hush: an upgrade may decide it otherwise, and tables may improve."""
    names = _OPEN - choice.given.given
    return names | {"mechanism"} if choice.name == _AUTO else names


def _choice(fields: Fields) -> _Choice:
    table = fields.anything("table", None)
    return _Choice(
        name=fields.text_or_none("mechanism"),
        repeat=cast("Repeat", fields.text("repeat", "fresh")),  # the task judges the words
        given=Parameters.read(fields, None if isinstance(table, str) else table),
        shipped=table if isinstance(table, str) else None,
        rounds=fields.integer("rounds", 1),
    )


def _mechanism(choice: _Choice, domain: Domain, totals: Sequence[Fraction], *, draft: bool) -> tuple[str, Parameters]:
    """The name of the mechanism, and its parameters: complete, if it is a draft."""
    if draft:
        return _decided(choice, domain, totals)
    if choice.shipped is not None:
        raise TaskError("table", "a published task holds the table itself; publish it with hush task publish")
    if choice.name == _AUTO:
        raise TaskError("mechanism", "'auto' is for task files; publish it with hush task publish, which decides")
    return _or_default(choice.name, domain), choice.given


def _decided(choice: _Choice, domain: Domain, totals: Sequence[Fraction]) -> tuple[str, Parameters]:
    """What a draft leaves open is decided here, once: the task is published with it."""
    rounds = min(max(choice.rounds, 1), ROUND_LIMIT)  # of other numbers the task complains
    per_round = [total / rounds for total in totals]
    name, given = choice.name, choice.given
    if choice.repeat == "sticky":
        name, given = _sticky(choice, domain, totals, rounds)
    if name == _AUTO:
        name, table = choose(domain, per_round)
        given = replace(given, table=table)
    elif choice.shipped is not None:
        given = replace(given, table=shipped(choice.shipped))
    name = _or_default(name, domain)
    return name, complete(name, domain, per_round, given)


def _or_default(name: str | None, domain: Domain) -> str:
    return fitting(domain)[0].name if name is None else name


def _sticky(choice: _Choice, domain: Domain, totals: Sequence[Fraction], rounds: int) -> tuple[str | None, Parameters]:
    """Where a mechanism has something to choose for sticky answers, a draft that leaves the mechanism open means it."""
    for kind in fitting(domain):
        if issubclass(kind, Levelled) and choice.name in (None, _AUTO, kind.name):
            chosen = kind.sticky(totals[-1], rounds, choice.given)
            if chosen is not None:
                return kind.name, chosen
    return choice.name, choice.given


def _domain(document: object) -> Domain:
    fields = Fields(document, "domain")
    kind = fields.anything("kind", None)
    domain: Domain
    match kind:
        case BitDomain.kind:
            domain = BitDomain()
        case CategoryDomain.kind:
            labels = enumerate(fields.items("labels"))
            places = tuple(text(f"domain.labels.{place}", label) for place, label in labels)
            domain = CategoryDomain(places, fields.text_or_none("other"))
        case VectorDomain.kind:
            parts = enumerate(fields.items("coordinates"))
            domain = VectorDomain(tuple(_coordinate(Fields(part, f"domain.coordinates.{n}")) for n, part in parts))
        case NumberDomain.kind:
            domain = NumberDomain(**_bounds(fields))
        case None:
            raise TaskError("domain", 'has no kind; write kind = "number", "bit", "category" or "vector"')
        case _:
            raise TaskError("domain", f"{str(kind)[:40]!r} is not a kind; write number, bit, category or vector")
    fields.end()
    return domain


def _coordinate(fields: Fields) -> Coordinate:
    part = Coordinate(name=fields.text("name"), **_bounds(fields))
    fields.end()
    return part


def _bounds(fields: Fields) -> dict[str, Any]:
    return {
        "lower": fields.number("lower"),
        "upper": fields.number("upper"),
        "unit": fields.text("unit", ""),
        "outside": fields.text("outside", "clamp"),
    }


def _epsilon(given: object, choice: _Choice) -> Fraction:
    if given is not None:
        return parse_epsilon(given)
    coins = choice.given.coins
    if coins is None:
        raise TaskError("epsilon", 'is missing; write for example epsilon = "1"')
    return coins.epsilon() * (2 if choice.repeat == "sticky" else choice.rounds)


def _interval(text: str) -> timedelta:
    match = _INTERVAL.fullmatch(text)
    if match is None:
        raise TaskError(
            "round_every", f'{text[:40]!r} is not an interval; write a number and s, m, h, d or w, as in "1d"'
        )
    try:
        return timedelta(seconds=int(match[1]) * _SECONDS[match[2]])
    except OverflowError as error:
        raise TaskError("round_every", f"{text!r} is too long") from error


def _interval_text(interval: timedelta) -> str:
    seconds = int(interval.total_seconds())
    unit = max((unit for unit, length in _SECONDS.items() if seconds % length == 0), key=_SECONDS.__getitem__)
    return f"{seconds // _SECONDS[unit]}{unit}"


def encode_document(task: Task) -> bytes:
    """The published form: sorted keys, no spaces, UTF-8; what says nothing is left out."""
    document: dict[str, object] = {
        "id": task.id,
        "epsilon": decimal_text(task.epsilon),
        "mechanism": task.mechanism,
        "domain": domain_document(task.domain),
        "rounds": task.rounds,
    }
    document |= {name: value for name in ("title", "purpose", "enrolled") if (value := getattr(task, name))}
    document |= {
        name: moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
        for name in ("opens", "closes")
        if (moment := getattr(task, name)) is not None
    }
    if task.round_every is not None:
        document["round_every"] = _interval_text(task.round_every)
    if task.repeat != "fresh":
        document["repeat"] = task.repeat
    if task.offers:
        document["offers"] = [decimal_text(offer) for offer in task.offers]
    document |= task.parameters.document()
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8")


def domain_document(domain: Domain) -> dict[str, object]:
    """A domain as it stands in a task."""
    match domain:
        case NumberDomain():
            return {"kind": domain.kind, **_bounds_document(domain)}
        case BitDomain():
            return {"kind": domain.kind}
        case CategoryDomain(labels=labels, other=other):
            category: dict[str, object] = {"kind": domain.kind, "labels": list(labels)}
            return category if other is None else category | {"other": other}
        case VectorDomain(coordinates=coordinates):
            parts = [{"name": part.name, **_bounds_document(part)} for part in coordinates]
            return {"kind": domain.kind, "coordinates": parts}


def _bounds_document(domain: NumberDomain) -> dict[str, object]:
    document: dict[str, object] = {"lower": domain.lower, "upper": domain.upper, "outside": domain.outside}
    return document | ({"unit": domain.unit} if domain.unit else {})
