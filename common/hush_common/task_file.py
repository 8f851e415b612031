"""Reading and writing tasks: the edge where TOML or JSON becomes a frozen `Task`, validated by pydantic."""

import json
import re
import tomllib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from hush_common.codec import unique_object
from hush_common.domain import BitDomain, NumberDomain
from hush_common.epsilon import decimal_text, parse_epsilon
from hush_common.errors import TaskError
from hush_common.task import Coins, MechanismName, Task

__all__ = ["PAYLOAD_LIMIT", "decode_task", "make_task", "read_task"]

PAYLOAD_LIMIT = 16 * 1024
"""Most bytes of a published task."""

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_INTERVAL = re.compile(r"([1-9][0-9]{0,8})([smhdw])")
_PROBABILITY = re.compile(r"[01](\.[0-9]{1,18})?")


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


class _Coins(_Model):
    truth: str
    yes: str


def _moment(value: object) -> object:
    """TOML brings datetimes, JSON text; both end as an aware datetime in UTC, or as pydantic's complaint."""
    return datetime.fromisoformat(value) if isinstance(value, str) else value


_Moment = Annotated[datetime, BeforeValidator(_moment)]


class _Task(_Model):
    """What a task file may say. Unknown fields are refused: a misspelt `epsilon` must not become a default."""

    id: str
    title: str = ""
    purpose: str = ""
    epsilon: object = None  # `parse_epsilon` judges it: its message names the remedy
    mechanism: MechanismName | None = None
    rounds: int = 1
    round_every: str | None = None
    opens: _Moment | None = None
    closes: _Moment | None = None
    domain: Annotated[_Number | _Bit, Field(discriminator="kind")]
    coins: _Coins | None = None


def read_task(path: Path) -> Task:
    """Read a task from a TOML or JSON file, and fix the bytes under which it will be published.

    Raises:
        TaskError: the file is missing, not TOML or JSON, or not a legal task.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise TaskError(str(path), f"cannot be read ({error.strerror}); name a TOML or JSON task file") from error
    except UnicodeDecodeError as error:
        raise TaskError(str(path), "is not UTF-8 text; name a TOML or JSON task file") from error
    try:
        document = _json(text) if text.lstrip().startswith("{") else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise TaskError(str(path), f"cannot be parsed: {error}") from error
    return make_task(document)


def make_task(document: Mapping[str, object]) -> Task:
    """Validate a task given as a mapping, fill in what has one sensible value, and encode it for publication.

    Raises:
        TaskError: naming the field and the remedy.
    """
    draft = _task(document, payload=b"")
    return decode_task(_encode(draft))


def decode_task(payload: bytes) -> Task:
    """The task in a retained message. Its digest is that of these very bytes.

    Raises:
        TaskError: not UTF-8 JSON, too long, a duplicate key, an unknown field, or not a legal task.
    """
    if len(payload) > PAYLOAD_LIMIT:
        raise TaskError("task", f"{len(payload)} bytes are too long for a task; at most {PAYLOAD_LIMIT}")
    try:
        document = _json(payload.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise TaskError("task", f"is not JSON: {error}") from error
    return _task(document, payload=bytes(payload))


def _json(text: str) -> dict[str, object]:
    document = json.loads(text, object_pairs_hook=unique_object)
    if not isinstance(document, dict):
        raise TaskError("task", "is no JSON object; write the fields of the task in braces")
    return document


def _task(document: Mapping[str, object], payload: bytes) -> Task:
    try:
        model = _Task.model_validate(dict(document))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = ".".join(str(part) for part in first["loc"] if part not in {"number", "bit"}) or "task"
        raise TaskError(path, _complaint(first["type"], first["msg"], first.get("input"))) from error
    coins = None if model.coins is None else _coins(model.coins)
    number = isinstance(model.domain, _Number)
    return Task(
        id=model.id,
        title=model.title,
        purpose=model.purpose,
        epsilon=_epsilon(model, coins),
        mechanism=model.mechanism or ("laplace" if number else "randomized_response"),
        domain=_domain(model.domain),
        rounds=model.rounds,
        round_every=None if model.round_every is None else _interval(model.round_every),
        opens=model.opens,
        closes=model.closes,
        coins=coins,
        payload=payload,
    )


def _complaint(kind: str, message: str, value: object) -> str:
    match kind:
        case "extra_forbidden":
            return "no task has this field; check its spelling"
        case "missing":
            return "is missing; add it"
        case "union_tag_not_found":
            return 'has no kind; write kind = "number" or kind = "bit"'
        case _:
            return f"{str(value)[:60]!r}: {message[0].lower()}{message[1:]}"


def _domain(model: _Number | _Bit) -> NumberDomain | BitDomain:
    if isinstance(model, _Bit):
        return BitDomain()
    if not model.unit.isprintable():
        raise TaskError("domain.unit", f"{model.unit!r} has characters that cannot be printed; remove them")
    return NumberDomain(model.lower, model.upper, model.unit, model.outside)


def _epsilon(model: _Task, coins: Coins | None) -> Fraction:
    if model.epsilon is not None:
        return parse_epsilon(model.epsilon)
    if coins is None:
        raise TaskError("epsilon", 'is missing; write for example epsilon = "1"')
    return coins.epsilon() * model.rounds


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


def _encode(task: Task) -> bytes:
    """The published form: sorted keys, no spaces, UTF-8; what says nothing is left out."""
    document: dict[str, object] = {
        "id": task.id,
        "epsilon": decimal_text(task.epsilon),
        "mechanism": task.mechanism,
        "domain": _domain_document(task),
        "rounds": task.rounds,
    }
    document |= {name: text for name in ("title", "purpose") if (text := getattr(task, name))}
    document |= {
        name: moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
        for name in ("opens", "closes")
        if (moment := getattr(task, name)) is not None
    }
    if task.round_every is not None:
        document["round_every"] = _interval_text(task.round_every)
    if task.coins is not None:
        document["coins"] = {"truth": decimal_text(task.coins.truth), "yes": decimal_text(task.coins.yes)}
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8")


def _domain_document(task: Task) -> dict[str, object]:
    match task.domain:
        case NumberDomain(lower=lower, upper=upper, unit=unit, outside=outside):
            document: dict[str, object] = {"kind": "number", "lower": lower, "upper": upper, "outside": outside}
            return document | ({"unit": unit} if unit else {})
        case BitDomain():
            return {"kind": "bit"}
