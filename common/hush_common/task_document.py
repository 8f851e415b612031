"""The shape of a task document: the pydantic models between TOML or JSON and a frozen `Task`, and back."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from hush_common.domain import BitDomain, CategoryDomain, Coordinate, Domain, NumberDomain, VectorDomain
from hush_common.epsilon import decimal_text, parse_epsilon
from hush_common.errors import TaskError
from hush_common.mechanisms.build import complete, fitting
from hush_common.mechanisms.parameters import Coins, MechanismName, Parameters, Table
from hush_common.mechanisms.sticky import best_sticky_levels
from hush_common.mechanisms.tables import choose, shipped, shipped_at
from hush_common.task import Repeat, Task

__all__ = ["encode_document", "task_of_document"]

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_INTERVAL = re.compile(r"([1-9][0-9]{0,8})([smhdw])")
_PROBABILITY = re.compile(r"[01](\.[0-9]{1,18})?")
_KINDS = {"number", "bit", "category", "vector"}
_FORMS = {"_Table", "str", "int", "list[int]"}
"""How pydantic calls the members of a union in the path of an error."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class _Number(_Model):
    kind: Literal["number"]
    lower: float
    upper: float
    unit: str = Field("", max_length=40)
    outside: Literal["clamp", "refuse"] = "clamp"


class _Bit(_Model):
    kind: Literal["bit"]


class _Category(_Model):
    kind: Literal["category"]
    labels: list[str]


class _Coordinate(_Model):
    name: str
    lower: float
    upper: float
    unit: str = Field("", max_length=40)
    outside: Literal["clamp", "refuse"] = "clamp"


class _Vector(_Model):
    kind: Literal["vector"]
    coordinates: list[_Coordinate]


class _Coins(_Model):
    truth: str
    yes: str


class _Table(_Model):
    positions: list[int]
    unit: int
    weights: list[list[int]]


def _moment(value: object) -> object:
    """TOML brings datetimes, JSON text; both end as an aware datetime in UTC, or as pydantic's complaint."""
    return datetime.fromisoformat(value) if isinstance(value, str) else value


_Moment = Annotated[datetime, BeforeValidator(_moment)]


class _Document(_Model):
    """What a task file may say. Unknown fields are refused: a misspelt `epsilon` must not become a default."""

    id: str
    title: str = ""
    purpose: str = ""
    epsilon: object = None  # `parse_epsilon` judges it: its message names the remedy
    offers: list[object] = []  # like epsilon
    mechanism: Literal[MechanismName, "auto"] | None = None
    levels: int | list[int] = []
    size: int | list[int] = []
    sampled: int | None = None
    table: _Table | str | None = None
    rounds: int = 1
    repeat: Repeat = "fresh"
    round_every: str | None = None
    opens: _Moment | None = None
    closes: _Moment | None = None
    enrolled: int | None = None
    domain: Annotated[_Number | _Bit | _Category | _Vector, Field(discriminator="kind")]
    coins: _Coins | None = None


def task_of_document(document: Mapping[str, object], *, payload: bytes = b"", draft: bool = False) -> Task:
    """Validate a document.

    Args:
        document: the fields of a task.
        payload: the bytes that it was published as.
        draft: whether it is a person's file, in which `"auto"`, parameters left out and shipped tables are resolved. In
            a published task they would leave a choice to each reader.

    Raises:
        TaskError: naming the field and the remedy.
    """
    try:
        model = _Document.model_validate(dict(document))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = ".".join(str(part) for part in first["loc"] if part not in _KINDS | _FORMS) or "task"
        raise TaskError(path, _complaint(first["type"], first["msg"], first.get("input"))) from error
    domain = _domain(model.domain)
    coins = None if model.coins is None else _coins(model.coins)
    epsilon = _epsilon(model, coins)
    offers = tuple(parse_epsilon(offer, field="offers") for offer in model.offers)
    mechanism, parameters = _mechanism(model, domain, offers or (epsilon,), coins, draft=draft)
    return Task(
        id=model.id,
        title=model.title,
        purpose=model.purpose,
        epsilon=epsilon,
        offers=offers,
        mechanism=mechanism,
        parameters=parameters,
        domain=domain,
        enrolled=model.enrolled,
        rounds=model.rounds,
        repeat=model.repeat,
        round_every=None if model.round_every is None else _interval(model.round_every),
        opens=model.opens,
        closes=model.closes,
        payload=payload,
    )


def _mechanism(
    model: _Document, domain: Domain, totals: Sequence[Fraction], coins: Coins | None, *, draft: bool
) -> tuple[MechanismName, Parameters]:
    if isinstance(model.table, str) and not draft:
        raise TaskError("table", "a published task holds the table itself; publish it with hush task publish")
    if model.mechanism == "auto" and not draft:
        raise TaskError("mechanism", "'auto' is for task files; publish it with hush task publish, which decides")
    name, table, levels = model.mechanism, None, _several(model.levels)
    per_round = [total / max(model.rounds, 1) for total in totals]
    if draft and model.repeat == "sticky" and isinstance(domain, NumberDomain) and name in (None, "auto", "multilevel"):
        name, levels = "multilevel", levels or (best_sticky_levels(totals[-1], max(model.rounds, 1)),)
    if name == "auto":
        name, table = choose(domain, per_round)
    elif isinstance(model.table, str):
        table = shipped(model.table)
    elif model.table is not None:
        table = Table(tuple(model.table.positions), model.table.unit, tuple(tuple(row) for row in model.table.weights))
    elif name == "table" and draft:
        table = shipped_at(per_round[-1])
    name = name or fitting(domain)[0]
    given = Parameters(levels, _several(model.size), model.sampled, coins, table)
    return name, complete(name, domain, per_round, given) if draft and name in fitting(domain) else given


def _several(numbers: int | list[int]) -> tuple[int, ...]:
    return (numbers,) if isinstance(numbers, int) else tuple(numbers)


def _complaint(kind: str, message: str, value: object) -> str:
    match kind:
        case "extra_forbidden":
            return "no task has this field; check its spelling"
        case "missing":
            return "is missing; add it"
        case "union_tag_not_found":
            return 'has no kind; write kind = "number", "bit", "category" or "vector"'
        case _:
            return f"{str(value)[:60]!r}: {message[0].lower()}{message[1:]}"


def _domain(model: _Number | _Bit | _Category | _Vector) -> Domain:
    match model:
        case _Bit():
            return BitDomain()
        case _Category(labels=labels):
            return CategoryDomain(tuple(labels))
        case _Vector(coordinates=coordinates):
            return VectorDomain(tuple(Coordinate(**_bounds(part), name=part.name) for part in coordinates))
        case _Number():
            return NumberDomain(**_bounds(model))


def _bounds(model: _Number | _Coordinate) -> dict[str, Any]:
    if not model.unit.isprintable():
        raise TaskError("domain.unit", f"{model.unit!r} has characters that cannot be printed; remove them")
    return {"lower": model.lower, "upper": model.upper, "unit": model.unit, "outside": model.outside}


def _epsilon(model: _Document, coins: Coins | None) -> Fraction:
    if model.epsilon is not None:
        return parse_epsilon(model.epsilon)
    if coins is None:
        raise TaskError("epsilon", 'is missing; write for example epsilon = "1"')
    return coins.epsilon() * (2 if model.repeat == "sticky" else model.rounds)


def _coins(model: _Coins) -> Coins:
    return Coins(truth=_probability("coins.truth", model.truth), yes=_probability("coins.yes", model.yes))


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
        "domain": _domain_document(task.domain),
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


def _domain_document(domain: Domain) -> dict[str, object]:
    match domain:
        case NumberDomain():
            return {"kind": "number", **_bounds_document(domain)}
        case BitDomain():
            return {"kind": "bit"}
        case CategoryDomain(labels=labels):
            return {"kind": "category", "labels": list(labels)}
        case VectorDomain(coordinates=coordinates):
            parts = [{"name": part.name, **_bounds_document(part)} for part in coordinates]
            return {"kind": "vector", "coordinates": parts}


def _bounds_document(domain: NumberDomain) -> dict[str, object]:
    document: dict[str, object] = {"lower": domain.lower, "upper": domain.upper, "outside": domain.outside}
    return document | ({"unit": domain.unit} if domain.unit else {})
