"""The tasks that a device is asked: legal ones, and those that it must refuse."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from hush_common.domain import BitDomain, read_domain
from hush_common.mechanisms.registry import fitting
from hush_common.task import Task, decode_task, make_task

NUMBER: dict[str, object] = {"kind": "number", "lower": 120.0, "upper": 220.0, "unit": "cm"}
BIT = {"kind": "bit"}
CATEGORY: dict[str, object] = {"kind": "category", "labels": ["car", "bus", "train", "on foot"]}
VECTOR: dict[str, object] = {
    "kind": "vector",
    "coordinates": [{"name": name, "lower": 120.0, "upper": 220.0} for name in ("left", "right")],
}

DOMAINS: Mapping[str, object] = {"number": NUMBER, "bit": BIT, "category": CATEGORY, "vector": VECTOR}
"""What is asked of each kind of value."""

VALUES: Mapping[str, Sequence[str | None]] = {
    "number": (
        *("172.5", "120", "220", "119.99", "220.01", "-1e308", "1e309", "inf", "-inf", "nan", None, "", "no value"),
        *("12abc", "1e999999999", "0x78", "172,5", "9" * 200, " ", "\u0661\u0662\u0663"),
    ),
    "bit": ("yes", "no", "true", "0", None, "", "2", "perhaps"),
    "category": ("bus", "car", "submarine", None, ""),
    "vector": ("130,150", "-5,999", "nan,150", "150", "1,2,3", None, ""),
}
"""Values of each kind that a device is given, as text; None is a missing one. The first one is legal."""

EXTREMES: Mapping[str, Sequence[str | None]] = {
    "number": ("120", "220", "1e9", None),
    "bit": ("no", "yes", None),
    "category": ("car", "on foot", "submarine"),
    "vector": ("120,120", "220,220", "nan,999"),
}
"""The values whose noise is sampled: two that are far apart, one beyond the bounds, and none."""


@dataclass(frozen=True, slots=True)
class SampledLaw:
    """A law of reports, which is sampled if a program has it."""

    name: str
    kind: str  # of the values
    fields: Mapping[str, object]  # of its tasks
    values: Sequence[str | None]
    samples: int  # reports of each known value: together they show twice the epsilon with probability 0.99 or more


_SHARP = "1.75"
"""The epsilon of these tasks: near it, reports say most about whether the noise is that of twice the epsilon."""
_SAMPLES = {"number": 100, "bit": 250, "category": 120, "vector": 150}

LAWS: Sequence[SampledLaw] = (
    *(
        SampledLaw(
            part.name,
            kind,
            {"domain": domain, "mechanism": part.name, "epsilon": _SHARP},
            EXTREMES[kind],
            _SAMPLES[kind],
        )
        for kind, domain in DOMAINS.items()
        for part in fitting(read_domain(domain))
    ),
    SampledLaw(
        "offers", "number", {"mechanism": "laplace", "offers": ["0.2", "2"], "epsilon": "2"}, ("120", "220"), 115
    ),
    SampledLaw(
        "coins",
        "bit",
        {"domain": BIT, "coins": {"truth": "0.7", "yes": "0.8"}, "epsilon": "2.538974"},
        ("no", "yes"),
        340,
    ),
    SampledLaw(
        "other", "category", {"domain": CATEGORY | {"other": "on foot"}, "epsilon": _SHARP}, ("car", "submarine"), 120
    ),
)
"""Each mechanism, several epsilons, coins, and a label for every other text."""


def task(name: str, **fields: object) -> Task:
    """Return a legal task as published: by default a number at epsilon 1, with its own purpose."""
    document = {"id": name, "purpose": f"conform {name}", "epsilon": "1", "domain": NUMBER}
    return make_task(document | fields)


def unusual(task: Task) -> Task:
    """Return the same task in other bytes: another order of keys, and white space. Its digest is another one."""
    document: Mapping[str, object] = json.loads(task.payload)
    turned = dict(reversed(list(document.items())))
    return decode_task(b" " + json.dumps(turned, indent=1, ensure_ascii=False).encode() + b"\n")


def moment(after: float) -> datetime:
    """Return a whole second, some seconds from now."""
    return (datetime.now(UTC) + timedelta(seconds=after)).replace(microsecond=0)


@dataclass(frozen=True, slots=True)
class Hostile:
    """A payload that no device may answer."""

    name: str  # as in "answered …"
    payload: bytes


def hostile(legal: Task) -> list[Hostile]:
    """Return payloads that no device may answer, under the id of a legal task about `NUMBER`."""
    good = legal.payload
    return [
        *(Hostile(name, _edited(good, *edit)) for name, edit in _EDITS.items()),
        *(Hostile(name, _edited(good, f'"{legal.mechanism}"', f'"{other}"')) for name, other in _MECHANISMS.items()),
        *(Hostile(name, made(good)) for name, made in _MADE.items()),
    ]


def _edited(payload: bytes, before: str, after: str) -> bytes:
    if before.encode() not in payload:
        raise ValueError(f"{before!r} is not in the task")
    return payload.replace(before.encode(), after.encode(), 1)


_EDITS: Mapping[str, tuple[str, str]] = {
    "a task with the key epsilon twice": ('"epsilon":"1"', '"epsilon":"1","epsilon":"0.5"'),
    "a task with the key lower twice": ('"lower":120.0', '"lower":0.0,"lower":120.0'),
    "a task with the key id twice": ('"id":', '"id":"another","id":'),
    "a task with an unknown field": ('{"domain"', '{"value":"raw","domain"'),
    "a domain with an unknown field": ('"unit":"cm"', '"unit":"cm","step":1'),
    "an epsilon that is a number with a point": ('"epsilon":"1"', '"epsilon":1.0'),
    "an epsilon of 0": ('"epsilon":"1"', '"epsilon":"0"'),
    "a negative epsilon": ('"epsilon":"1"', '"epsilon":"-1"'),
    "an epsilon with a sign": ('"epsilon":"1"', '"epsilon":"+1"'),
    "an epsilon that is a fraction": ('"epsilon":"1"', '"epsilon":"1/3"'),
    "an epsilon with a space": ('"epsilon":"1"', '"epsilon":" 1"'),
    "an infinite epsilon": ('"epsilon":"1"', '"epsilon":"inf"'),
    "an epsilon of 51, above what is legal": ('"epsilon":"1"', '"epsilon":"51"'),
    "an epsilon that is null": ('"epsilon":"1"', '"epsilon":null'),
    "an epsilon that is a list": ('"epsilon":"1"', '"epsilon":["1"]'),
    "a task without epsilon": ('"epsilon":"1",', ""),
    "a task with another id than its topic": ('"id":"', '"id":"x'),
    "a task with an illegal id": ('"id":"', '"id":"../'),
    "a parameter of another mechanism": ('"rounds":1', '"levels":2,"rounds":1'),
    "a task that asks for silence outside its bounds": ('"outside":"clamp"', '"outside":"refuse"'),
    "bounds in the wrong order": ('"lower":120.0', '"lower":320.0'),
    "bounds that are equal": ('"lower":120.0', '"lower":220.0'),
    "a bound that is NaN": ('"lower":120.0', '"lower":NaN'),
    "a bound that is infinite": ('"upper":220.0', '"upper":Infinity'),
    "a bound beyond all floats": ('"upper":220.0', '"upper":1e999'),
    "a bound that is text": ('"upper":220.0', '"upper":"220"'),
    "a bound of more than 100 characters": ('"upper":220.0', '"upper":220.' + "0" * 100),
    "an unknown kind of value": ('"kind":"number"', '"kind":"image"'),
    "0 rounds": ('"rounds":1', '"rounds":0'),
    "rounds that are not an integer": ('"rounds":1', '"rounds":1.0'),
    "rounds that are a truth value": ('"rounds":1', '"rounds":true'),
    "rounds without a time": ('"rounds":1', '"rounds":3'),
    "a closing time that is not a time": ('"rounds":1', '"closes":"soon","rounds":1'),
    "a closing time before its opening": (
        '"rounds":1',
        '"closes":"2020-01-01T00:00:00Z","opens":"2030-01-01T00:00:00Z","rounds":1',
    ),
    "a title with a line break": ('"rounds":1', '"rounds":1,"title":"a\\nb"'),
    "a title with a character that is not printable": ('"rounds":1', '"rounds":1,"title":"a\u202eb"'),
    "a comment in JSON": ('{"domain"', '{/* */"domain"'),
    "a comma at the end": ('"rounds":1}', '"rounds":1,}'),
}
_MECHANISMS = {
    "an unknown mechanism": "none",
    "a mechanism for another kind of value": fitting(BitDomain())[0].name,
    "a mechanism that is left to the reader": "auto",
}
_MADE: Mapping[str, Callable[[bytes], bytes]] = {
    "half a task": lambda good: good[: len(good) // 2],
    "two tasks in one payload": lambda good: good + good,
    "a task in a list": lambda good: b"[" + good + b"]",
    "a task in text": lambda good: json.dumps(good.decode()).encode(),
    "text that is not JSON": lambda _good: b"please report",
    "a byte order mark": lambda good: b"\xef\xbb\xbf" + good,
    "text that is not UTF-8": lambda good: good.replace(b"cm", b"c\xff"),
    "a task in UTF-16": lambda good: good.decode().encode("utf-16"),
    "a zero byte at the end": lambda good: good + b"\0",
    "brackets without end": lambda _good: b"[" * 60_000,
    "a task longer than 64 KiB": lambda good: good[:-1] + b" " * 66_000 + b"}",
}
