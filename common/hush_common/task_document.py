"""The shape of a task document: between TOML or JSON and a frozen `Task`, and back. The standard library is enough."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, timedelta
from fractions import Fraction
from typing import Any, Literal, cast

from hush_common.domain import BitDomain, CategoryDomain, Coordinate, Domain, NumberDomain, VectorDomain
from hush_common.epsilon import decimal_text, parse_epsilon
from hush_common.errors import TaskError
from hush_common.mechanisms.build import complete, fitting
from hush_common.mechanisms.parameters import Coins, MechanismName, Parameters, Table
from hush_common.mechanisms.sticky import best_sticky_levels
from hush_common.mechanisms.tables import choose, shipped, shipped_at
from hush_common.task import ROUND_LIMIT, Repeat, Task
from hush_common.task_fields import Fields, integers, text

__all__ = ["domain_document", "encode_document", "task_of_document"]

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_INTERVAL = re.compile(r"([1-9][0-9]{0,8})([smhdw])")
_PROBABILITY = re.compile(r"[01](\.[0-9]{1,18})?")


@dataclass(frozen=True, slots=True)
class _Choice:
    """What a document says about the mechanism."""

    name: MechanismName | Literal["auto"] | None
    levels: tuple[int, ...]
    size: tuple[int, ...]
    sampled: int | None
    table: Table | str | None
    coins: Coins | None
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
    times = {name: fields.moment_or_none(name) for name in ("opens", "closes")}
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
    stated = {"levels": choice.levels, "size": choice.size, "sampled": choice.sampled}
    names = {name for name, value in stated.items() if value in (None, ())}
    names |= {"table"} if choice.table is None or isinstance(choice.table, str) else set()
    return frozenset(names | {"mechanism"} if choice.name == "auto" else names)


def _choice(fields: Fields) -> _Choice:
    table, coins = fields.anything("table", None), fields.anything("coins", None)
    name, repeat = fields.text_or_none("mechanism"), fields.text("repeat", "fresh")
    return _Choice(
        name=cast('MechanismName | Literal["auto"] | None', name),  # the task judges the words
        levels=fields.some_integers("levels"),
        size=fields.some_integers("size"),
        sampled=fields.integer_or_none("sampled"),
        table=table if table is None or isinstance(table, str) else _table(Fields(table, "table")),
        coins=None if coins is None else _coins(Fields(coins, "coins")),
        rounds=fields.integer("rounds", 1),
        repeat=cast("Repeat", repeat),
    )


def _mechanism(
    choice: _Choice, domain: Domain, totals: Sequence[Fraction], *, draft: bool
) -> tuple[MechanismName, Parameters]:
    if isinstance(choice.table, str) and not draft:
        raise TaskError("table", "a published task holds the table itself; publish it with hush task publish")
    if choice.name == "auto" and not draft:
        raise TaskError("mechanism", "'auto' is for task files; publish it with hush task publish, which decides")
    name, table, levels = choice.name, choice.table, choice.levels
    rounds = min(max(choice.rounds, 1), ROUND_LIMIT)  # of other numbers the task complains
    per_round = [total / rounds for total in totals]
    sticky_number = choice.repeat == "sticky" and isinstance(domain, NumberDomain)
    if draft and sticky_number and choice.name in (None, "auto", "multilevel"):
        name, levels = "multilevel", levels or (best_sticky_levels(totals[-1], rounds),)
    if name == "auto":
        name, table = choose(domain, per_round)
    elif isinstance(table, str):
        table = shipped(table)
    elif table is None and name == "table" and draft:
        table = shipped_at(per_round[-1])
    name = fitting(domain)[0] if name is None else name
    given = Parameters(levels, choice.size, choice.sampled, choice.coins, table)
    return name, complete(name, domain, per_round, given) if draft and name in fitting(domain) else given


def _table(fields: Fields) -> Table:
    rows = enumerate(fields.items("weights"))
    weights = tuple(integers(f"table.weights.{place}", row) for place, row in rows)
    table = Table(fields.integers("positions"), fields.integer("unit"), weights)
    fields.end()
    return table


def _domain(document: object) -> Domain:
    fields = Fields(document, "domain")
    kind = fields.anything("kind", None)
    domain: Domain
    match kind:
        case "bit":
            domain = BitDomain()
        case "category":
            labels = enumerate(fields.items("labels"))
            places = tuple(text(f"domain.labels.{place}", label) for place, label in labels)
            domain = CategoryDomain(places, fields.text_or_none("other"))
        case "vector":
            parts = enumerate(fields.items("coordinates"))
            domain = VectorDomain(tuple(_coordinate(Fields(part, f"domain.coordinates.{n}")) for n, part in parts))
        case "number":
            domain = NumberDomain(**_bounds(fields))
        case None:
            raise TaskError("domain", 'has no kind; write kind = "number", "bit", "category" or "vector"')
        case _:
            raise TaskError("domain", f"{str(kind)[:40]!r} is no kind; write number, bit, category or vector")
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
    if choice.coins is None:
        raise TaskError("epsilon", 'is missing; write for example epsilon = "1"')
    return choice.coins.epsilon() * (2 if choice.repeat == "sticky" else choice.rounds)


def _coins(fields: Fields) -> Coins:
    coins = Coins(*(_probability(f"coins.{name}", fields.text(name)) for name in ("truth", "yes")))
    fields.end()
    return coins


def _probability(field: str, text: str) -> Fraction:
    if not _PROBABILITY.fullmatch(text):
        raise TaskError(field, f'{text[:40]!r} is no exact probability; write for example "0.5"')
    return Fraction(text)


def _interval(text: str) -> timedelta:
    match = _INTERVAL.fullmatch(text)
    if match is None:
        raise TaskError("round_every", f'{text[:40]!r} is no interval; write a number and s, m, h, d or w, as in "1d"')
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
    document |= _parameters_document(task.parameters)
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8")


def _parameters_document(parameters: Parameters) -> dict[str, object]:
    document: dict[str, object] = {
        name: numbers[0] if len(numbers) == 1 else list(numbers)
        for name in ("levels", "size")
        if (numbers := getattr(parameters, name))
    }
    if parameters.sampled is not None:
        document["sampled"] = parameters.sampled
    if (coins := parameters.coins) is not None:
        document["coins"] = {"truth": decimal_text(coins.truth), "yes": decimal_text(coins.yes)}
    if (table := parameters.table) is not None:
        document["table"] = {"positions": table.positions, "unit": table.unit, "weights": table.weights}
    return document


def domain_document(domain: Domain) -> dict[str, object]:
    """A domain as it stands in a task."""
    match domain:
        case NumberDomain():
            return {"kind": "number", **_bounds_document(domain)}
        case BitDomain():
            return {"kind": "bit"}
        case CategoryDomain(labels=labels, other=other):
            category: dict[str, object] = {"kind": "category", "labels": list(labels)}
            return category if other is None else category | {"other": other}
        case VectorDomain(coordinates=coordinates):
            parts = [{"name": part.name, **_bounds_document(part)} for part in coordinates]
            return {"kind": "vector", "coordinates": parts}


def _bounds_document(domain: NumberDomain) -> dict[str, object]:
    document: dict[str, object] = {"lower": domain.lower, "upper": domain.upper, "outside": domain.outside}
    return document | ({"unit": domain.unit} if domain.unit else {})
