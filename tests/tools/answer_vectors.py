"""`cd tests; python -m tools.answer_vectors`: writes the vectors of tests/vectors/v1 that need a feature.

In answers.json and hostile.json it keeps the other vectors and makes these again: tasks, values and random bytes, and
what the Python client makes of them. The bytes are uniform from a fixed seed. In many vectors the first draw is next to
a threshold of the mechanism, or to the limit of the rejection.
"""

import json
import random
import re
from bisect import bisect_right
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, count
from typing import Any

import pytest
from port_cases import VECTORS_FILE, Answer, Case, answer_of, answers_from_memory, needs_of
from port_programs import FEATURES

from hush import Task
from hush_common.domain import GRID_STEPS
from hush_common.epsilon import WEIGHT_OF_TRUTH
from hush_common.errors import TaskError
from hush_common.mechanisms import Channel, Multilevel, RandomizedResponse, SubsetSelection, Vector
from hush_common.mechanisms.mechanism import Mechanism
from hush_common.task import decode_task, make_task

__all__ = ["main"]

HOSTILE_FILE = VECTORS_FILE.with_name("hostile.json")
SEED = 25
OPENS, DAY = 1767225600, 86_400
SENDER = "sensor-17"
_SINGLE = 8  # a larger subset is made of coins
ABOUT = (
    "hush/v1, the device's side: from a task, a value (null for none) and the random bytes of the reference order to a "
    "report. `tasks` has the published text of each task by its name. An answer `needs` features in addition to those "
    "of every port. It is that of a device whose limit is `most` and that has spent nothing. `cost` is a fraction in "
    "lowest terms. `sticky` has answers that share the random bytes, in order. `refused_tasks` (hexadecimal) are "
    "refused by a small client; `legal` is whether the task is right, and `needs` what a client needs to answer it."
)
_DAILY: dict[str, Any] = {"rounds": 3, "round_every": "1d", "opens": "2026-01-01T00:00:00Z"}
_NUMBER: dict[str, Any] = {"kind": "number", "lower": 15, "upper": 30, "unit": "°C"}
_GRID: dict[str, Any] = {"kind": "number", "lower": 0, "upper": GRID_STEPS}
_FEW: dict[str, Any] = {"kind": "category", "labels": ["bus", "car", 'on "foot"', "by\\bike", "é"]}
_TABLE: dict[str, Any] = {
    "positions": [-4, 1, 99, 1, 8],
    "unit": 3,
    "weights": [[6, 4, 0, 4, 2], [4, 4, 0, 4, 4], [2, 4, 0, 4, 6]],
}
_UNEVEN: dict[str, Any] = {"positions": [-2, 5], "unit": 3, "weights": [[5, 2], [2, 5]]}


def _labels(count: int, other: str | None = None) -> dict[str, Any]:
    domain = {"kind": "category", "labels": [f"c{place}" for place in range(count)]}
    return domain if other is None else {**domain, "other": other}


def _vector(count: int) -> dict[str, Any]:
    bounds: list[dict[str, Any]] = [{"lower": 10, "upper": 35, "unit": "°C"}, {"lower": 0, "upper": GRID_STEPS}]
    bounds.append({"lower": -0.1, "upper": 0.3})
    return {"kind": "vector", "coordinates": [{"name": f"n{at}", **bounds[at % 3]} for at in range(count)]}


@dataclass(frozen=True)
class Asked:
    """A task and what is answered: values with uniform bytes, and a value with each edge of the first draw."""

    name: str
    document: dict[str, Any]
    values: Sequence[str | None]
    at: str | None = None  # the value that is answered at the edges; None leaves them out
    most: str = "50"
    now: int = OPENS


def _numbers(count: int) -> str:
    return ", ".join(["21.5", "524288", "0.1"][at % 3] for at in range(count))


def asked() -> Iterator[Asked]:
    """Every mechanism and parameter that changes how a report is drawn."""
    document: dict[str, Any]
    number: list[str | None] = ["15", "21.5", "29.999", "30", "1e9", "-inf", None, "warm"]
    yield Asked(
        "a small table",
        {"id": "t", "epsilon": "1.2", "table": _TABLE, "domain": _GRID},
        ["1048575", "3", None],
        "262144",
    )
    yield Asked("a table of two levels", {"id": "t", "epsilon": "1", "table": _UNEVEN, "domain": _GRID}, ["7"], "7")
    for epsilon in ("0.33", "0.5", "1", "2"):
        document = {
            "id": "room",
            "epsilon": epsilon,
            "table": f"epsilon-{epsilon}",
            "domain": _NUMBER,
            "purpose": "Heating",
        }
        yield Asked(f"the table of epsilon {epsilon}", document, number, "21.5" if epsilon in ("0.5", "1") else None)
    for epsilon in ("4", "8"):
        document = {"id": "room", "epsilon": epsilon, "table": f"epsilon-{epsilon}", "domain": _NUMBER}
        yield Asked(f"the table of epsilon {epsilon}", document, ["15", "21.5", "30", None])
    for size in range(1, 5):
        document = {"id": "way", "epsilon": "1", "size": size, "domain": _FEW}
        values = [*_FEW["labels"], 'on \\"foot\\"', "BUS", "", None]
        yield Asked(f"{size} of 5 categories", document, values, "car")
    yield Asked(
        "one of two categories",
        {"id": "way", "epsilon": "2", "size": 1, "domain": _labels(2)},
        ["c0", "c1", None],
        "c1",
    )
    for k, sizes in (
        (12, (2, 7, 9)),
        (32, (8, 9, 16, 31)),
        (33, (9, 32)),
        (40, (1, 30)),
        (1024, (3, 9, 100, 275, 512, 1023)),
    ):
        for size in sizes:
            document = {"id": "list", "epsilon": "0.7", "size": size, "domain": _labels(k, "c1")}
            values = ["c0", f"c{k - 1}", f"c{k // 2}", "another", None]
            yield Asked(
                f"{size} of {k} categories, one for all others", document, values, f"c{k // 3}" if size < 10 else None
            )
    for d, sampled, levels in (
        (1, 1, 1),
        (2, 1, 2),
        (3, 2, 1),
        (3, 3, 7),
        (9, 8, 3),
        (9, 9, 3),
        (12, 10, 1),
        (40, 2, 1024),
        (64, 20, 2),
    ):
        document = {"id": "body", "epsilon": "3", "sampled": sampled, "levels": levels, "domain": _vector(d)}
        whole = _numbers(d)
        values = [
            whole,
            whole.replace("21.5", "99"),
            whole.replace("21.5", "x"),
            whole.replace(" ", ""),
            f"{whole},1",
            "",
            None,
        ]
        yield Asked(f"{sampled} of {d} coordinates, {levels} levels", document, values, whole if sampled < 4 else None)
    for truth, yes in (
        ("0.5", "0.5"),
        ("0.75", "0.1"),
        ("0.123456789012345678", "0.999999999999999999"),
        ("0.2", "0.000000000001"),
    ):
        document = {"id": "coin", "coins": {"truth": truth, "yes": yes}, "domain": {"kind": "bit"}}
        yield Asked(f"coins {truth} and {yes}", document, ["yes", "no", None], "no")
    yield Asked(
        "coins, in rounds",
        {"id": "coin", "coins": {"truth": "0.5", "yes": "0.5"}, "domain": {"kind": "bit"}, **_DAILY},
        ["yes"],
        "no",
    )
    yield from _offers()
    yield from _rounds()


def _offers() -> Iterator[Asked]:
    three: dict[str, Any] = {"epsilon": "2", "offers": ["0.5", "1", "2"]}
    documents: dict[str, tuple[dict[str, Any], str]] = {
        "laplace": ({"mechanism": "laplace", "domain": _NUMBER}, "21.5"),
        "multilevel": ({"mechanism": "multilevel", "domain": _GRID, "levels": [1, 2, 5]}, "524289"),
        "a bit": ({"domain": {"kind": "bit"}}, "yes"),
        "categories": ({"domain": _labels(12, "c3"), "size": [1, 5, 2]}, "c3"),
        "a vector": ({"domain": _vector(3), "sampled": 2, "levels": [1, 2, 3]}, _numbers(3)),
    }
    for name, (document, value) in documents.items():
        for most in ("0.5", "0.999", "1", "1.999", "2", "50"):
            whole = {"id": "offer", **three, **document}
            yield Asked(
                f"offers of {name}, a limit of {most}", whole, [value, None], value if most == "1" else None, most
            )
    eight = {
        "epsilon": "1",
        "offers": ["0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "1"],
        "domain": {"kind": "bit"},
    }
    yield Asked("eight offers in seven rounds", {"id": "offer", **eight, **_DAILY, "rounds": 7}, ["yes"], "yes", "0.65")


def _rounds() -> Iterator[Asked]:
    kinds: dict[str, dict[str, Any]] = {
        "laplace": {"mechanism": "laplace", "domain": _NUMBER},
        "multilevel": {"mechanism": "multilevel", "domain": _NUMBER, "levels": 3},
        "table": {"table": "epsilon-0.33", "domain": _NUMBER},
        "a bit": {"domain": {"kind": "bit"}},
    }
    moments = {"as it opens": 0, "at the end of its first round": DAY - 1, "as its second round opens": DAY}
    moments |= {"as its last round opens": 2 * DAY, "long after its last round opened": 900 * DAY}
    for name, document in kinds.items():
        for when, after in moments.items():
            whole = {"id": "daily", "epsilon": "1", **document, **_DAILY}
            value = "yes" if name == "a bit" else "21.5"
            at = value if after == DAY and name != "laplace" else None
            yield Asked(f"rounds of {name}, {when}", whole, [value], at, now=OPENS + after)
    long = {
        "id": "long",
        "epsilon": "1",
        "domain": {"kind": "bit"},
        "rounds": 1_000_000,
        "round_every": "1s",
        "opens": "2026-01-01T00:00:00Z",
    }
    for now in (OPENS, OPENS + 999_999, OPENS + 10**9):
        yield Asked(f"a million rounds, after {now - OPENS} s", long, ["no"], now=now)
    once: dict[str, Any] = {
        "id": "once",
        "epsilon": "1",
        "domain": {"kind": "bit"},
        "round_every": "2w",
        "opens": "2026-01-01T00:00:00Z",
    }
    yield Asked("one round with a length, after it", once, ["no"], now=OPENS + 60 * DAY)


# ---- the bytes


def edges(mechanism: Mechanism, index: Any) -> Iterator[tuple[str, int, int]]:  # noqa: ANN401 - int or tuple, as perturb
    """The first draw next to each threshold: what it is, the draw, and what it is below."""
    match mechanism:
        case Multilevel():
            yield from _rounded(mechanism.total, mechanism.steps, index * mechanism.levels % mechanism.steps)
            lies = [WEIGHT_OF_TRUTH + place * mechanism.lie for place in range(min(mechanism.levels, 4))]
            yield from _both(lies, mechanism.draws)
        case Channel():
            total = mechanism.total
            row = index * mechanism.levels // mechanism.steps
            lower, upper = (list(accumulate(mechanism.weights[place])) for place in (row, row + 1))
            differ = next(draw for draw in range(total) if bisect_right(lower, draw) != bisect_right(upper, draw))
            for name, draw, below in _rounded(total, mechanism.steps, index * mechanism.levels % mechanism.steps):
                yield name, draw + differ, below
            for up in (0, 1):
                ends = sorted({end for end in accumulate(mechanism.weights[row + up]) if 0 < end < total})
                few = ends if len(ends) < 12 else [*ends[:2], ends[len(ends) // 2], *ends[-2:]]
                yield from _both(
                    [total * (mechanism.steps - 1) * (1 - up) + end for end in few], mechanism.steps * total
                )
        case RandomizedResponse():
            yield from _both([*mechanism.ones], mechanism.total)
        case SubsetSelection():
            true, total = mechanism._odds
            lies = [true + place * mechanism.lie for place in range(1, min(mechanism.categories, 4))]
            yield from _both([true, *(lies if mechanism.size == 1 else [])], total)
        case Vector():
            subsets, every = mechanism._draws
            part = mechanism.part
            for draw, one in [
                (0, 0),
                (subsets - 1, 0),
                (0, part.total - 1),
                (subsets // 2, WEIGHT_OF_TRUTH),
                (1, WEIGHT_OF_TRUTH - 1),
            ]:
                yield f"subset {draw} of {subsets}", draw + subsets * one, every
            for place in range(mechanism.sampled):
                yield f"a lie at place {place}", subsets * part.draws**place * (part.total - 1), every
            yield from _both([], every)


def _rounded(total: int, steps: int, rest: int) -> Iterator[tuple[str, int, int]]:
    for name, rounding in (("the last that rounds up", rest - 1), ("the first that rounds down", rest)):
        if 0 <= rounding < steps:
            yield name, rounding * total, steps * total


def _both(thresholds: Sequence[int], below: int) -> Iterator[tuple[str, int, int]]:
    for place, threshold in enumerate(thresholds):
        yield f"the last below threshold {place}", threshold - 1, below
        yield f"threshold {place}", threshold, below
    yield "the last of all draws", below - 1, below
    size = _size(below)
    limit = (1 << 8 * size) - (1 << 8 * size) % below
    yield "the last that is not refused", limit - 1, below
    if limit < 1 << 8 * size:
        yield "the first that is refused", limit, below


def _bytes(draw: int, below: int) -> bytes:
    return draw.to_bytes(_size(below), "big")


def _size(below: int) -> int:
    return (below.bit_length() + 15) >> 3


# ---- the vectors


def _mechanism(task: Task, most: str) -> Mechanism:
    parts = getattr(task.randomizer, "parts", None)
    if parts is None:
        return task.randomizer  # type: ignore[return-value]  # one without parts is a mechanism
    fitting = [part for part, offer in zip(parts, task.offers, strict=True) if float(offer) <= float(most)]
    return fitting[-1]  # type: ignore[no-any-return]


def _answered(asked: Asked, source: random.Random, patch: pytest.MonkeyPatch) -> Iterator[tuple[Case, str, Answer]]:
    task = make_task({"mechanism": "table", **asked.document} if "table" in asked.document else asked.document)
    cases = [
        (f"{asked.name}: {'no value' if value is None else repr(value)[:24]}", value, b"") for value in asked.values
    ]
    if asked.at is not None:
        index = task.domain.index(task.domain.parse(asked.at)).index
        cases += [
            (f"{asked.name}: {name}", asked.at, _bytes(draw, below))
            for name, draw, below in edges(_mechanism(task, asked.most), index)
        ]
    if (
        isinstance(task.randomizer, SubsetSelection)
        and _SINGLE < task.randomizer.size < task.randomizer.categories < 50
    ):
        for byte in (0xFF, 0x00):
            first = bytes(_size(task.randomizer._odds[1])) + bytes([byte]) * 60
            cases.append((f"{asked.name}: 60 bytes {byte:#04x} after the first draw", asked.values[0], first))
    for name, value, first in cases:
        case = Case(task, value, first + source.randbytes(6000), asked.now, SENDER, asked.most)
        answer = answer_of(case, patch)
        assert isinstance(answer, Answer), name
        used = len(case.data) - answer.left
        case = Case(task, value, case.data[:used], asked.now, SENDER, asked.most)
        yield case, name, answer_of(case, patch)  # type: ignore[misc]  # as before


STICKY: list[tuple[str, dict[str, Any], list[tuple[int, str | None]]]] = [
    ("a bit", {"domain": {"kind": "bit"}}, [(0, "yes"), (1, "no"), (2, "yes"), (3, None), (4, None), (900, "no")]),
    (
        "one level",
        {"domain": _NUMBER, "mechanism": "multilevel", "levels": 1},
        [(0, "15"), (1, "30"), (2, "22.5"), (3, None), (4, "warm"), (5, "1e9")],
    ),
    (
        "three levels",
        {"domain": _GRID, "mechanism": "multilevel", "levels": 3},
        [(0, "0"), (1, "349525"), (2, "349526"), (3, None), (4, "1048576"), (5, "524288"), (6, None)],
    ),
]


def _sticky(source: random.Random, patch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    for name, document, asked in STICKY * 3:
        daily: dict[str, Any] = {"rounds": 10, "round_every": "1d", "opens": "2026-01-01T00:00:00Z"}
        task = make_task({"id": "kept", "epsilon": "2", "repeat": "sticky", **document, **daily})
        script = source.randbytes(400)
        given = [(OPENS + after * DAY, value) for after, value in asked]
        found = list(answers_from_memory(task, SENDER, given, script, patch))
        script = script[: len(script) - found[-1].left]
        found = list(answers_from_memory(task, SENDER, given, script, patch))
        answers = [
            {"now": now, "value": value, **answer.document(task)}
            for (now, value), answer in zip(given, found, strict=True)
        ]
        yield {
            "name": name,
            "needs": sorted(needs_of(task)),
            "most": "50",
            "sender": SENDER,
            "task": task.payload.decode(),
            "random": script.hex(),
            "answers": answers,
        }


def _vectors(source: random.Random, patch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    for one in asked():
        for case, name, answer in _answered(one, source, patch):
            about: dict[str, Any] = {
                "name": name,
                "needs": sorted(needs_of(case.task)),
                "task": case.task.payload.decode(),
            }
            about |= {"value": case.value, "now": case.now, "most": case.most, "sender": case.sender}
            yield {**about, "random": case.data.hex(), **answer.document(case.task)}


# ---- hostile tasks


Named = Iterator[tuple[str, dict[str, Any]]]
_BIT: dict[str, Any] = {"kind": "bit"}
_UNIT: dict[str, Any] = {"kind": "number", "lower": 0, "upper": 1, "outside": "clamp"}
_TWO: dict[str, Any] = {"kind": "category", "labels": ["a\\b", "b"]}
_FAIR = {"truth": "0.5", "yes": "0.5"}
_EVERY_DAY: dict[str, Any] = {"round_every": "1d", "opens": "2026-01-01T00:00:00Z"}
_TWICE = {**_EVERY_DAY, "rounds": 2}


def _task(domain: Any, mechanism: str, **others: Any) -> dict[str, Any]:  # noqa: ANN401 - anything that JSON has
    return {"id": "h", "epsilon": "1", "rounds": 1, "domain": domain, "mechanism": mechanism, **others}


def _hostile() -> Named:
    """Tasks at and beyond the limits of what the features add."""
    yield from _hostile_categories()
    yield from _hostile_vectors_of_numbers()
    yield from _hostile_tables()
    yield from _hostile_coins()
    yield from _hostile_offers()
    yield from _hostile_rounds()


def _hostile_categories() -> Named:
    for many in (1, 2, 1024, 1025):
        labels = [str(place) for place in range(many)]
        yield f"{many} labels", _task({"kind": "category", "labels": labels}, "subset_selection", size=1)
    for name, label in {
        "a label of 100 characters": "é" * 100,
        "a label of 101 characters": "é" * 101,
        "an empty label": "",
        "a label of spaces": "  ",
        "a label with spaces around": " a ",
        "a label twice": "b",
        "a label with quotes and a backslash": '"\\"',
        "a label of another type": 1,
    }.items():
        yield name, _task({"kind": "category", "labels": [label, "b"]}, "subset_selection", size=1)
    for other in ("a\\b", "b", "c", "", 1):
        yield f"other is {other!r}", _task({**_TWO, "other": other}, "subset_selection", size=1)
    for size in (0, 1, 2, [1], [], [1, 1], "1", 1.0):
        yield f"size {size!r} of two", _task(_TWO, "subset_selection", size=size)
    yield "a category without a size", _task(_TWO, "subset_selection")
    yield "a category with levels", _task(_TWO, "subset_selection", size=1, levels=1)
    yield "a category by multilevel", _task(_TWO, "multilevel", levels=1)


def _hostile_vectors_of_numbers() -> Named:
    for many in (1, 1024, 1025):
        yield f"{many} coordinates", _task(_short(many), "vector", sampled=1, levels=1)
    yield "no coordinates", _task(_short(0), "vector", sampled=1, levels=1)
    for sampled in (0, 1, 3, 4, "1", [1]):
        yield f"sampled {sampled!r} of three", _task(_short(3), "vector", sampled=sampled, levels=1)
    for sampled in (511, 512):
        yield f"sampled {sampled} of 512", _task(_short(512), "vector", sampled=sampled, levels=1, epsilon="50")
    for levels in (0, 1, 1024, 1025, [2], []):
        yield f"a vector of levels {levels!r}", _task(_short(2), "vector", sampled=1, levels=levels)
    part: dict[str, Any] = {"name": "a", "lower": 0, "upper": 1, "outside": "clamp"}
    changes: dict[str, dict[str, Any]] = {
        "a coordinate with a unit": {"unit": "°C"},
        "a coordinate of another way outside": {"outside": "refuse"},
        "a coordinate of bounds out of order": {"lower": 1},
        "a coordinate of a range that overflows": {"lower": -1.7e308, "upper": 1.7e308},
        "a coordinate with an empty name": {"name": ""},
        "a coordinate with a name of spaces": {"name": " "},
        "a coordinate with a name of 100 characters": {"name": "n" * 100},
        "a coordinate with a name of 101 characters": {"name": "n" * 101},
        "a coordinate with the name of another one": {"name": "b"},
        "a coordinate with a kind": {"kind": "number"},
    }
    for name, change in changes.items():
        coordinates = [{**part, **change}, {**part, "name": "b"}]
        yield name, _task({"kind": "vector", "coordinates": coordinates}, "vector", sampled=1, levels=1)
    yield "a vector without sampled", _task(_short(2), "vector", levels=1)
    yield "a vector without levels", _task(_short(2), "vector", sampled=1)


def _hostile_tables() -> Named:
    big = 1 << 128
    good = _TABLE["positions"], _TABLE["unit"], _TABLE["weights"]
    for name, (positions, unit, weights) in {
        "a table": good,
        "a table with a position too many": ([*good[0], 0], good[1], good[2]),
        "a table of a negative unit": (good[0], -3, good[2]),
        "a table of unit 0": (good[0], 0, good[2]),
        "a biased table": (good[0], 4, good[2]),
        "a table of one row": (good[0], 3, good[2][:1]),
        "a table of no row": (good[0], 3, []),
        "a table of unequal sums": (good[0], 3, [[7, 4, 0, 4, 2], *good[2][1:]]),
        "a table with a negative weight": (good[0], 3, [[6, 4, -1, 4, 3], *good[2][1:]]),
        "a table with a row of zeros": (good[0], 3, [[0] * 5] * 3),
        "a table with a zero in one row": (good[0], 3, [[6, 4, 1, 3, 2], *good[2][1:]]),
        "a table of floats": (good[0], 3, [[6.0, 4, 0, 4, 2], *good[2][1:]]),
        "a table of weights up to 2^128": ([-1, 4], 3, [[big, big // 4], [big // 4, big]]),
        "a table of two levels": ([-1, 4], 3, [[4, 1], [1, 4]]),
        "a table of a weight above 2^128": ([-1, 4], 3, [[big + 4, big // 4 + 1], [big // 4 + 1, big + 4]]),
        "a table of positions above 2^128": ([-big - 1, 4 * big + 4], 3 * big + 3, [[4, 1], [1, 4]]),
        "a table of one output": ([0], 1, [[1], [1]]),
    }.items():
        table = {"positions": positions, "unit": unit, "weights": weights}
        yield name, _task(_UNIT, "table", table=table, epsilon="1.4")
    yield "a table above its epsilon", _task(_UNIT, "table", table=_TABLE, epsilon="1.09")
    yield "a table in rounds, above its epsilon", _task(_UNIT, "table", table=_TABLE, epsilon="2.1", **_TWICE)
    yield "a table in rounds", _task(_UNIT, "table", table=_TABLE, epsilon="2.2", **_TWICE)
    yield "a table with offers", _task(_UNIT, "table", table=_TABLE, epsilon="3", offers=["2", "3"])
    yield "a table by its name", _task(_UNIT, "table", table="epsilon-1")
    yield "a table with another field", _task(_UNIT, "table", table={**_TABLE, "x": 1}, epsilon="1.4")
    yield "a table without a unit", _task(_UNIT, "table", table={"positions": [0, 1], "weights": [[1, 1], [1, 1]]})
    yield "no table", _task(_UNIT, "table")
    for cells in (8192, 8193):
        ends = [-(cells + 1), *[0] * (cells - 2), 2 * (cells + 1)]
        rows = [[2, *[1] * (cells - 1)], [*[1] * (cells - 1), 2]]
        table = {"positions": ends, "unit": 3, "weights": rows}
        yield f"a table of {2 * cells} cells", _task(_UNIT, "table", table=table)


def _hostile_coins() -> Named:
    for name, coins in {
        "coins": {"truth": "0.5", "yes": "0.5"},
        "coins with another field": {"truth": "0.5", "yes": "0.5", "no": "0.5"},
        "coins without yes": {"truth": "0.5"},
        "coins of numbers": {"truth": 0.5, "yes": 0.5},
        "coins of 18 places": {"truth": "0.500000000000000000", "yes": "0.5"},
        "coins of 19 places": {"truth": "0.5000000000000000000", "yes": "0.5"},
        "coins with a sign": {"truth": "+0.5", "yes": "0.5"},
        "coins above 1": {"truth": "1.5", "yes": "0.5"},
        "coins without a digit before the point": {"truth": ".5", "yes": "0.5"},
        "coins of no truth": {"truth": "0", "yes": "0.5"},
        "coins of nothing but truth": {"truth": "1", "yes": "0.5"},
        "coins of no yes": {"truth": "0.5", "yes": "0"},
        "coins of nothing but yes": {"truth": "0.5", "yes": "1.0"},
        "coins that cost more than 50": {"truth": "0.5", "yes": "0.000000000000000001"},
    }.items():
        yield name, _task(_BIT, "randomized_response", coins=coins, epsilon="1.098613")
    for epsilon in ("1.098612", "1.0986131", "1.098614"):
        yield f"coins at epsilon {epsilon}", _task(_BIT, "randomized_response", coins=_FAIR, epsilon=epsilon)
    paid: dict[str, Any] = {"coins": _FAIR, "epsilon": "3.295839"}
    yield "coins in three rounds", _task(_BIT, "randomized_response", **{**paid, **_EVERY_DAY, "rounds": 3})
    yield "coins with offers", _task(_BIT, "randomized_response", offers=["1", "3.295839"], **paid)


def _hostile_offers() -> Named:
    for name, offers in {
        "two offers": ["0.5", "1"],
        "one offer": ["1"],
        "eight offers": ["0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "1"],
        "nine offers": ["0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "1"],
        "offers out of order": ["0.5", "0.4", "1"],
        "an offer twice": ["0.5", "0.50", "1"],
        "offers below epsilon": ["0.5", "0.9"],
        "offers of integers": [1],
        "offers as texts and integers": ["0.5", 1],
        "an offer that is a float": [0.5, "1"],
        "offers as text": "0.5",
        "an offer below 0.000001": ["0.0000001", "1"],
    }.items():
        yield name, _task(_BIT, "randomized_response", offers=offers)
    yield "offers below 0.000001 in two rounds", _task(_BIT, "randomized_response", offers=["0.000001", "1"], **_TWICE)
    for levels in (1, [1], [1, 2], [1, 2, 3], [0, 1]):
        yield f"two offers of levels {levels}", _task(_UNIT, "multilevel", offers=["0.5", "1"], levels=levels)
    yield "two offers of laplace", _task(_UNIT, "laplace", offers=["0.5", "1"])
    yield "two offers of categories", _task(_TWO, "subset_selection", offers=["0.5", "1"], size=[1, 1])


def _hostile_rounds() -> Named:
    given: dict[str, dict[str, Any]] = {
        "two rounds": {"rounds": 2},
        "a million rounds": {"rounds": 1_000_000, "round_every": "1s"},
        "a million and one rounds": {"rounds": 1_000_001, "round_every": "1s", "epsilon": "2"},
        "rounds without a length": {"rounds": 2, "round_every": None},
        "rounds without a beginning": {"rounds": 2, "opens": None},
        "one round with a length": {"rounds": 1},
        "one round with a length and no beginning": {"rounds": 1, "opens": None},
        "a round of no length": {"rounds": 2, "round_every": "0d"},
        "rounds of ten digits": {"rounds": 2, "round_every": "1000000000s"},
        "a last round in the year 9999": {"rounds": 2, "round_every": "2912442d"},
        "a last round in the year 10000": {"rounds": 2, "round_every": "2912443d"},
        "a round longer than any": {"rounds": 1, "round_every": "999999999w"},
        "a round of a billion days": {"rounds": 1, "round_every": "999999999d"},
        "rounds below 0.000001": {"rounds": 2, "epsilon": "0.000001"},
        "rounds at 0.000001": {"rounds": 2, "epsilon": "0.000002"},
        "explicitly fresh": {"rounds": 2, "repeat": "fresh"},
        "another way to repeat": {"rounds": 2, "repeat": "often"},
        "sticky in two rounds": {"rounds": 2, "repeat": "sticky"},
        "sticky in three rounds": {"rounds": 3, "repeat": "sticky"},
        "sticky with offers": {"rounds": 3, "repeat": "sticky", "offers": ["0.5", "1"]},
        "sticky below 0.000001": {"rounds": 3, "repeat": "sticky", "epsilon": "0.000001"},
        "sticky coins": {"rounds": 3, "repeat": "sticky", "epsilon": "2.197226", "coins": _FAIR},
        "sticky coins of another epsilon": {"rounds": 3, "repeat": "sticky", "epsilon": "3.295839", "coins": _FAIR},
    }
    for name, change in given.items():
        whole = {**_task(_BIT, "randomized_response"), **_EVERY_DAY, **change}
        yield name, {key: value for key, value in whole.items() if value is not None}
    for rounds in (4, 5):
        sticky = {**_EVERY_DAY, "rounds": rounds, "repeat": "sticky"}
        yield f"three sticky levels in {rounds} rounds", _task(_UNIT, "multilevel", **{"levels": 3, **sticky})
    sticky = {**_EVERY_DAY, "rounds": 9, "repeat": "sticky"}
    yield "sticky laplace", _task(_UNIT, "laplace", **sticky)
    yield "a sticky table", _task(_UNIT, "table", **{"table": _TABLE, **sticky, "epsilon": "12"})
    yield "sticky categories", _task(_TWO, "subset_selection", **{"size": 1, **sticky})


def _short(count: int) -> dict[str, Any]:
    parts = [{"name": str(at), "lower": 0, "upper": 1, "outside": "clamp"} for at in range(count)]
    return {"kind": "vector", "coordinates": parts}


def _hostile_vectors() -> Iterator[dict[str, Any]]:
    for name, document in _hostile():
        text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        try:
            decode_task(text.encode())
        except TaskError:
            accepted = False
        else:
            accepted = True
        yield {"name": name, "needs": sorted(_asked_by(document)), "parts": _parts(text), "accepted": accepted}


def _parts(text: str) -> list[list[Any]]:
    """A text as pieces with how often each is repeated."""
    pieces = re.split(r"((?:0,){50,}|(?:1,){50,})", text)
    return [[piece[:2], len(piece) // 2] if place % 2 else [piece, 1] for place, piece in enumerate(pieces)]


def _asked_by(document: dict[str, Any]) -> set[str]:
    """The features that a document names, legal or not."""
    kinds = {"category": "subset_selection", "vector": "vector"}
    named: dict[str, bool] = {
        document["mechanism"]: True,
        kinds.get(document["domain"]["kind"], ""): True,
        "coins": "coins" in document,
        "offers": "offers" in document,
        "rounds": "round_every" in document or document["rounds"] != 1,
        "sticky": document.get("repeat", "fresh") != "fresh",
    }
    return {name for name, needed in named.items() if needed} & FEATURES


def _named(vectors: Sequence[dict[str, Any]], texts: dict[str, str]) -> dict[str, str]:
    """Give each vector a name of its own, and the name of its task for the task; return all tasks by name."""
    tasks: dict[str, str] = {}
    names = set[str]()
    for vector in vectors:
        vector["name"] = _new(vector["name"], names)
        names.add(vector["name"])
        text = texts.get(vector["task"], vector["task"])
        known = next((name for name, other in tasks.items() if other == text), None)
        vector["task"] = known or _new(json.loads(text)["id"], tasks)
        tasks[vector["task"]] = text
    return tasks


def _new(name: str, known: Container[str]) -> str:
    return next(one for one in chain([name], (f"{name} {number}" for number in count(2))) if one not in known)


def _text(document: dict[str, Any]) -> str:
    """JSON with one line for each vector."""
    parts = []
    for name, value in document.items():
        if isinstance(value, str):
            parts.append(f"{json.dumps(name)}:{json.dumps(value, ensure_ascii=False)}")
        elif isinstance(value, dict):
            lines = [f"{json.dumps(key)}:{json.dumps(one, ensure_ascii=False)}" for key, one in value.items()]
            parts.append(json.dumps(name) + ":{\n" + ",\n".join(lines) + "\n}")
        else:
            lines = [json.dumps(one, ensure_ascii=False, separators=(",", ":")) for one in value]
            parts.append(json.dumps(name) + ":[\n" + ",\n".join(lines) + "\n]")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> None:
    source = random.Random(SEED)
    document = json.loads(VECTORS_FILE.read_text(encoding="utf-8"))
    with pytest.MonkeyPatch.context() as patch:
        document["answers"] = [one for one in document["answers"] if not one["needs"]] + list(_vectors(source, patch))
        document["sticky"] = list(_sticky(source, patch))
    document["about"] = ABOUT
    document["tasks"] = _named([*document["answers"], *document["sticky"]], document["tasks"])
    VECTORS_FILE.write_text(_text(document), encoding="utf-8")
    hostile = json.loads(HOSTILE_FILE.read_text(encoding="utf-8"))
    hostile["tasks"] = [one for one in hostile["tasks"] if not one["needs"]] + list(_hostile_vectors())
    HOSTILE_FILE.write_text(_text(hostile), encoding="utf-8")


if __name__ == "__main__":
    main()
