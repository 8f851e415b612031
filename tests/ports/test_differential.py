"""All readers of tasks give the same verdict, but for the differences that docs/wire.md has.

A fuzzer draws tasks without end; the Python client and the ports to C, Node.js and MicroPython judge each. What is
accepted is answered from the same random bytes, and the reports are compared byte for byte.
"""

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice, tee
from pathlib import Path
from typing import Any

import pytest
from port_cases import Case, reference, some_bytes, some_task, some_value
from port_programs import Port, Session, compiled, hexadecimal, planted, port_of

from hush import Task
from hush_common.errors import TaskError
from hush_common.task import decode_task, make_task

pytestmark = pytest.mark.large


Fields = list[tuple[str, Any]]
"""Keys as they are written, quotes and all, and values: the text of a word, or the fields of an object."""

_TASK = {"id", "title", "purpose", "epsilon", "mechanism", "domain", "rounds", "levels", "enrolled", "opens", "closes"}
_DOMAIN = {"kind", "lower", "upper", "outside", "unit"}
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)


def _domain(task: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = task["domain"]
    return found


_FIELDS = ("size", "sampled", "table", "coins", "offers", "round_every", "repeat", "labels", "other", "coordinates")


def _has_every_field(task: dict[str, Any]) -> bool:
    domain = _domain(task)
    numbers = [domain] if "lower" in domain else domain.get("coordinates", [])
    return {"mechanism", "rounds", "epsilon"} <= task.keys() and all("outside" in number for number in numbers)


RULES: dict[str, Callable[[dict[str, Any]], bool]] = {
    "a task without `mechanism`, `rounds`, `epsilon` or `outside`": lambda task: not _has_every_field(task),
    "decimals of a second in `opens` or `closes`": lambda task: (
        not all(_MOMENT.fullmatch(task[name]) for name in ("opens", "closes") if name in task)
    ),
}
"""Where a port may refuse what the Python client accepts, as docs/wire.md says it. There is no other difference."""


@dataclass(frozen=True)
class Drawn:
    """A payload to be judged, and what is answered where it is accepted."""

    payload: bytes
    value: str | None
    data: bytes


def drawn(seed: int) -> Iterator[Drawn]:
    """Payloads without end, the same for a seed; first those that chance seldom makes."""
    source = random.Random(seed)  # noqa: S311 - a test wants the same tasks every time
    for text in _RARE:
        yield Drawn(text.encode(), "0.5", some_bytes(source, _FURTHER[0]))
    while True:
        task = some_task(source) if source.random() < 0.8 else source.choice(_FURTHER)
        fields = _fields(json.loads(task.payload))
        if source.random() < 0.3:
            _add_known(source, fields)
        for _ in range(source.choice([0, 0, 1, 1, 1, 1, 2, 3])):
            source.choice(_CHANGES)(source, fields)
        text = _written(source, fields, source.choice([0.0, 0.0, 0.05]))
        payload = bytearray(text.encode("utf-8", "surrogatepass"))
        if source.random() < 0.15:
            _spoil(source, payload)
        if source.random() < 0.0005:
            payload += b" " * (65_536 - len(payload) + source.choice([0, 1]))
        yield Drawn(bytes(payload), some_value(source, task), some_bytes(source, task))


_NUMBER: dict[str, object] = {"kind": "number", "lower": 0, "upper": 1}
_TIMED: dict[str, object] = {"opens": "2026-01-01T00:00:00Z", "closes": "2026-02-01T00:00:00.25Z", "domain": _NUMBER}
_TABLE: dict[str, object] = {"positions": [-2, 5], "unit": 3, "weights": [[5, 2], [2, 5]]}
_ROUNDS: dict[str, object] = {"rounds": 4, "round_every": "1d", "opens": "2026-01-01T00:00:00Z"}
_COORDINATES = [{"name": name, "lower": 0, "upper": 1} for name in "xyz"]
_KINDS: list[dict[str, object]] = [
    {"domain": {"kind": "category", "labels": ["x", "y", "z"], "other": "z"}},
    {"domain": {"kind": "category", "labels": ["x", "y", 'z "\\', "w"]}, "size": 2},
    {"domain": {"kind": "vector", "coordinates": _COORDINATES[:1]}},
    {"domain": {"kind": "vector", "coordinates": _COORDINATES}, "sampled": 2, "levels": 3, **_ROUNDS},
    {"offers": ["0.5", "1"], "domain": _NUMBER},
    {"offers": ["0.5", "0.75", "1"], "domain": {"kind": "category", "labels": ["x", "y", "z"]}, "size": [1, 2, 1]},
    {"domain": _NUMBER, **_ROUNDS},
    {"domain": _NUMBER, "table": _TABLE, "mechanism": "table"},
    {"domain": _NUMBER, "mechanism": "multilevel", "levels": 2, "repeat": "sticky", **_ROUNDS},
    {"coins": {"truth": "0.5", "yes": "0.5"}, "domain": {"kind": "bit"}, "epsilon": "1.098613"},
    {"mechanism": "laplace", **_TIMED},
    {"mechanism": "laplace", **_TIMED, "opens": "2026-01-15T00:00:00Z", "closes": "2026-02-01T00:00:00Z"},
    {"mechanism": "laplace", **_TIMED, "opens": None, "closes": "2025-02-01T00:00:00Z"},
]
_FURTHER: list[Task] = [make_task({"id": "a", "epsilon": "1"} | further) for further in _KINDS]
"""Of what the other mechanisms, domains and fields have, and times of which some are not now."""


_PLAIN = """{"id":"a","epsilon":"1","mechanism":"laplace","rounds":1,\
"domain":{"kind":"number","lower":0,"upper":1,"outside":"clamp"}%s}"""
_RARE = [
    _PLAIN % more for more in (',"offers":[]', ',"size":[]', ',"levels":[]', r',"title":"a\/b"', r',"title":"a\\/b"')
]
"""Empty lists, which count as absent, and an escape that no reader accepts."""


def _fields(document: dict[str, Any]) -> Fields:
    return [
        (json.dumps(name), _fields(value) if isinstance(value, dict) else json.dumps(value, ensure_ascii=False))
        for name, value in document.items()
    ]


def _written(source: random.Random, fields: Fields, space: float) -> str:
    def some() -> str:
        return source.choice([" ", "\t", "\n", "\r\n", "  "]) if source.random() < space else ""

    parts = []
    for name, value in fields:
        text = _written(source, value, space) if isinstance(value, list) else value
        parts.append(f"{some()}{name}{some()}:{some()}{text}{some()}")
    return "{" + ",".join(parts) + "}"


def _level(source: random.Random, fields: Fields) -> Fields:
    """The task, or its domain."""
    inner = [value for _, value in fields if isinstance(value, list) and value]
    return source.choice(inner) if inner and source.random() < 0.4 else fields


def _add_known(source: random.Random, fields: Fields) -> None:
    name, value = source.choice(
        [
            ("opens", f'"{source.choice(_MOMENTS)}"'),
            ("closes", f'"{source.choice(_MOMENTS)}"'),
            ("enrolled", source.choice(_COUNTS)),
            ("title", f'"{source.choice(_TEXTS)}"'),
            ("levels", source.choice(_COUNTS)),
            ("rounds", source.choice(_COUNTS)),
        ]
    )
    fields[:] = [(key, it) for key, it in fields if key != f'"{name}"']
    fields.insert(source.randrange(len(fields) + 1), (f'"{name}"', value))


_MOMENTS = [
    *("2026-01-01T00:00:00Z", "2000-02-29T23:59:59Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"),
    *("1900-02-29T00:00:00Z", "2026-13-01T00:00:00Z", "2026-01-32T00:00:00Z", "0000-01-01T00:00:00Z"),
    *("2026-01-01T24:00:00Z", "2026-01-01T00:60:00Z", "2026-01-01T00:00:60Z", "2026-06-30T23:59:60Z"),
    *("2026-01-01T00:00:00.5Z", "2026-01-01T00:00:00+00:00", "2026-01-01", "20260101T000000Z", "2026-W01-1T00:00:00Z"),
    *(
        "2026-01-01 00:00:00Z",
        "2026-01-01T00:00:00z",
        "2026-01-01T00:00Z",
        "\u0662\u0660\u0662\u0666-01-01T00:00:00Z",
        "+002026-01-01T00:00:00Z",
    ),
]
_COUNTS = [
    "0",
    "1",
    "2",
    "3",
    "1024",
    "1025",
    "1.0",
    "1e0",
    "-1",
    "-0",
    "01",
    "9007199254740991",
    "9007199254740992",
    '"1"',
]
_WORDS = ["null", "true", "false", "NaN", "Infinity", "[]", "{}", '""', "0", "nul", "undefined", "'x'"]
_NUMBERS = [
    *(
        "0",
        "-0",
        "-0.0",
        "1",
        "120",
        "1e2",
        "1E+2",
        "1e-400",
        "1e400",
        "-1e999",
        "0.1",
        "5e-324",
        "1.7976931348623157e308",
    ),
    *(
        "01",
        "+1",
        ".5",
        "1.",
        "1e",
        "1e+",
        "--1",
        "0x10",
        "1_0",
        "1,5",
        "\u0661",
        "9" * 100,
        "9" * 101,
        "0." + "1" * 98,
    ),
    *("0." + "1" * 99, "1e99999", "-1e-99999", "9007199254740993", "1.8e308", "-1.7976931348623157e308"),
]
_EPSILONS = [
    *(
        "1",
        "0.5",
        "50",
        "51",
        "0.000001",
        "0.0000009",
        "1e-6",
        "5e1",
        "5e9",
        "1e-9",
        "007",
        "0007",
        ".5",
        "1.",
        "+1",
        " 1",
    ),
    *(
        "1e+1",
        "1/3",
        "1E0",
        "1e00",
        "",
        "0",
        "0.0",
        "49.999999999999999999",
        "0." + "1" * 18,
        "0." + "1" * 19,
        "\u0661",
        "1e",
        "\u0661e1",
    ),
]
_TEXTS = [
    "",
    "x",
    "x" * 40,
    "x" * 41,
    "x" * 500,
    "x" * 501,
    "é" * 500,
    "👩" * 500,
    "👩" * 501,
    'a:b,{[\\"\\\\',
    '\\"' * 250,
    '\\"' * 251,
]
_IDS = [
    "a",
    "a" * 64,
    "a" * 65,
    "-a",
    "a-",
    "A",
    "a_b",
    "a/b",
    "",
    "0",
    "é",
    "a\\u0062",
    "__proto__",
    "constructor",
    "a b",
]
_ESCAPES = [
    "\\n",
    "\\u0041",
    "\\/",
    "\\u202e",
    "\\ud800",
    "\\x41",
    "\\",
    "\\u12",
    "\\b",
    "\\\\u0041",
    "\\\\",
    '\\"',
    "\\'",
]


def _character(source: random.Random) -> str:
    """A character that may not be printable, or is next to one that is not."""
    ranges = [(0, 0x20), (0x7F, 0xA1), (0xAC, 0xAE), (0x5FF, 0x606), (0x61B, 0x61D), (0x1FFF, 0x2010), (0x2027, 0x2030)]
    ranges += [
        (0x205E, 0x2070),
        (0x2FFF, 0x3001),
        (0xD7FF, 0xD801),
        (0xF8FF, 0xF901),
        (0xFDCF, 0xFDF1),
        (0xFEFE, 0xFF00),
    ]
    ranges += [(0xFFEF, 0x10001), (0x1FFFD, 0x20001), (0xE00FF, 0xE01F1), (0xEFFFD, 0xF0001), (0x20, 0x110000)]
    low, high = source.choice(ranges)
    return chr(source.randrange(low, high))


def _repeat(source: random.Random, fields: Fields) -> None:
    level = _level(source, fields)
    if not level:
        return
    name, value = source.choice(level)
    text = _written(source, value, 0) if isinstance(value, list) else value
    other = source.choice([value, f"[{text}]", f"[[{text}]]", f'{{"x":{text}}}', *_WORDS, *_NUMBERS[:6]])
    place = source.choice([fields, level, level])
    place.insert(source.randrange(len(place) + 1), (name, other))


def _remove(source: random.Random, fields: Fields) -> None:
    level = _level(source, fields)
    if level:
        del level[source.randrange(len(level))]


def _rename(source: random.Random, fields: Fields) -> None:
    level = _level(source, fields)
    if level:
        at = source.randrange(len(level))
        name, value = level[at]
        inner = name[1:-1]
        escaped = f'"{inner[:1]}\\u{ord(inner[-1:] or "x"):04x}"'
        names = [
            *_TASK,
            *_DOMAIN,
            *_FIELDS,
            "x",
            "__proto__",
            "constructor",
            "toString",
            inner.upper(),
            inner + " ",
            "x" * 200,
            "",
        ]
        level[at] = (source.choice([escaped, inner, *(f'"{one}"' for one in names)]), value)


def _replace(source: random.Random, fields: Fields) -> None:
    level = _level(source, fields)
    if level:
        at = source.randrange(len(level))
        name, value = level[at]
        text = _written(source, value, 0) if isinstance(value, list) else value
        deep = source.choice([1, 2, 7, 8, 9, 40])
        texts = {'"epsilon"': _EPSILONS, '"id"': _IDS, '"opens"': _MOMENTS, '"closes"': _MOMENTS}.get(name, _TEXTS)
        kinds: list[str] = [
            source.choice(_WORDS),
            source.choice(_NUMBERS),
            source.choice(_COUNTS),
            f'"{source.choice(texts)}"',
            f'"{source.choice(texts)}"',
            source.choice(texts),
            f"[{text}]",
            f"[{text}]",
            "[" * deep + text + "]" * source.choice([deep, deep, deep - 1]),
            '{"a":' * deep + text + "}" * deep,
        ]
        likely = {
            '"lower"': _NUMBERS,
            '"upper"': _NUMBERS,
            '"rounds"': _COUNTS,
            '"levels"': [*_COUNTS, f"[{text}]"],
        }.get(name, kinds)
        level[at] = (name, source.choice(source.choice([kinds, likely])))


def _change_text(source: random.Random, fields: Fields) -> None:
    level = _level(source, fields)
    places = [at for at, (_, value) in enumerate(level) if isinstance(value, str) and value.startswith('"')]
    if places:
        at = source.choice(places)
        name, value = level[at]
        where = source.randrange(1, max(len(value), 2))
        piece = source.choice([_character(source), _character(source), source.choice(_ESCAPES)])
        level[at] = (name, value[:where] + piece + value[where:])


def _change_space(source: random.Random, fields: Fields) -> None:
    level = _level(source, fields)
    if level:
        at = source.randrange(len(level))
        name, value = level[at]
        space = source.choice(
            [" ", "\t", "\r", "\n", "\v", "\f", "\xa0", "\u2028", "\ufeff", "\0", "/**/", "//\n", "#\n"]
        )
        level[at] = (space + name, value) if source.random() < 0.5 else (name + space, value)


def _shuffle(source: random.Random, fields: Fields) -> None:
    source.shuffle(fields)


def _change_list(source: random.Random, fields: Fields) -> None:
    """Change, repeat or remove a word of a list: an offer, a level, a weight, a label or a field of a coordinate."""
    level = _level(source, fields)
    places = [at for at, (_, value) in enumerate(level) if isinstance(value, str) and value.startswith("[")]
    if not places:
        return
    at = source.choice(places)
    name, value = level[at]
    words = list(re.finditer(r'"[^"]*"|-?[0-9.]+', value))
    if words:
        word = source.choice(words)
        text = word[0].strip('"')
        others = [
            "0",
            "1",
            "2",
            "-1",
            "-0",
            "1.0",
            '"1"',
            '"x"',
            '" "',
            "[]",
            "[1]",
            "null",
            "",
            f"{word[0]},{word[0]}",
        ]
        others += [str(int(text) + source.choice([-1, 1]))] if text.lstrip("-").isdecimal() else []
        level[at] = (name, value[: word.start()] + source.choice(others) + value[word.end() :])


_CHANGES: list[Callable[[random.Random, Fields], None]] = [
    *(
        _repeat,
        _repeat,
        _remove,
        _rename,
        _replace,
        _replace,
        _replace,
        _change_text,
        _change_text,
        _change_space,
        _change_list,
        _change_list,
        _shuffle,
    ),
]
_PIECES = [
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b" ",
    b"\n",
    b"0",
    b"-",
    b".",
    b"e",
    b"\xc3",
    b"\xff",
    b"\x00",
]
_PIECES += [
    b"\xed\xa0\x80",
    b"\xc0\xaf",
    b"\xf4\x90\x80\x80",
    b"\xe2\x80\xae",
    b"\xef\xbb\xbf",
    b"{}",
    b'"x":1,',
    b",,",
]


def _spoil(source: random.Random, payload: bytearray) -> None:
    """Replace, remove or insert some bytes, wherever they are."""
    for _ in range(source.choice([1, 1, 2, 4])):
        start = source.randrange(len(payload) + 1)
        end = start + source.choice([0, 1, 1, 2, 9])
        payload[start:end] = source.choice([b"", *_PIECES, bytes(payload[start : start + source.randrange(30)])])


ROOT = Path(__file__).parents[2]
SEED, SOAK_SEED = 20261122, 20261123
FEW, MANY = 6, 1000
"""Batches."""
NOW = 1767225600
BATCH = 100
REFUSALS = {"malformed", "task", "mechanism", "rounds", "epsilon", "too_large"}


Judged = tuple[Drawn, str, set[str]]
"""A task, the outcome by the Python client, and the rules by which a port refuses what that accepts."""


def judged(seed: int) -> Iterator[Judged]:
    """Tasks without end, with what the Python client makes of them."""
    for one in drawn(seed):
        with pytest.MonkeyPatch.context() as patch:  # while the generator waits, nothing is patched
            found = expected(one, patch)
        yield one, *found


def expected(one: Drawn, monkeypatch: pytest.MonkeyPatch) -> tuple[str, set[str]]:
    """The outcome by the Python client, or "refused"; and the rules by which a port refuses what that accepts."""
    try:
        task = decode_task(one.payload)
    except TaskError:
        return "refused", set()
    document = json.loads(one.payload)
    rules = {name for name, applies in RULES.items() if applies(document)}
    if rules:
        return "accepted", rules
    return reference(Case(task, one.value, one.data, NOW, "dev"), monkeypatch), rules


def order(one: Drawn) -> str:
    value = "none" if one.value is None else hexadecimal(one.value)
    return f"answer 50 {NOW} dev {value} {hexadecimal(one.payload)} {hexadecimal(one.data)}"


def differences(sessions: Mapping[str, Session], cases: Iterator[Judged], seen: Counter[str]) -> Iterator[str]:
    """What the ports make otherwise of a batch than the Python client does, without what a rule allows."""
    batch = list(islice(cases, BATCH))
    orders = [order(one) for one, *_ in batch]
    with ThreadPoolExecutor(len(sessions)) as pool:
        asked = pool.map(lambda session: session.ask(orders), sessions.values())
        outcomes = dict(zip(sessions, asked, strict=True))
    for at, (one, wanted, rules) in enumerate(batch):
        seen[wanted.split()[0]] += 1
        seen.update(rules)
        for name, found in outcomes.items():
            short = "refused" if found[at] in REFUSALS else found[at]
            if short != ("refused" if rules else wanted):
                yield f"{name}: {short[:60]}, Python: {wanted[:60]} {rules or ''}: {one.payload[:2000]!r} {one.value!r}"


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Session]]:
    directory = tmp_path_factory.mktemp("ports")
    with ExitStack() as stack:
        yield {
            language: stack.enter_context(port_of(language, directory).session(directory / language))
            for language in ("c", "node", "micropython")
        }


@pytest.fixture(scope="module")
def again() -> Callable[[], Iterator[Judged]]:
    """The same tasks whenever it is called, which the Python client judges once."""
    first = judged(SEED)

    def start() -> Iterator[Judged]:
        nonlocal first
        first, cases = tee(first)
        return cases

    return start


def fuzz(ports: Mapping[str, Session], cases: Iterator[Judged], batches: int) -> Counter[str]:
    seen = Counter[str]()
    for _ in range(batches):
        assert list(differences(ports, cases, seen)) == []
    return seen


@pytest.mark.timeout(240)
def test_every_reader_gives_the_same_verdict(ports: Mapping[str, Session]) -> None:
    seen = fuzz(ports, judged(SEED), FEW)
    assert seen["ok"] > seen.total() // 20, "many are answered, so that reports are compared"


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_every_reader_gives_the_same_verdict_on_many_tasks(ports: Mapping[str, Session]) -> None:
    seen = fuzz(ports, judged(SOAK_SEED), MANY)
    assert seen["ok"] > seen.total() // 20


def test_the_rules_are_those_of_the_document() -> None:
    text = (ROOT / "docs" / "wire.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"\| a port refuses \| because \|\n\|---\|---\|\n(.*?)\n\n", text, flags=re.DOTALL)
    assert [line.split(" | ")[0].removeprefix("| ") for line in table.splitlines()] == list(RULES)


SLIPS = {
    "c takes a field twice": ("c", "c/hush.c", "status == HUSH_OK && *seen & BIT(field)", "false"),
    "node takes 1.0 for 1": (
        "node",
        "js/src/json.js",
        "decimals || power ? Number(token) : BigInt(token)",
        "Number.isInteger(Number(token)) ? BigInt(Number(token)) : Number(token)",
    ),
    "node shows what cannot be shown": ("node", "js/src/json.js", "!UNPRINTABLE.test(text)", 'text !== "\\0"'),
    "micropython takes a field twice": (
        "cpython",
        "micropython/hush_micropython.py",
        "name not in names or name in seen",
        "name not in names",
    ),
}
"""Planted in a port, each must be found."""


@pytest.mark.parametrize("slip", SLIPS.values(), ids=SLIPS.keys())
def test_a_slip_is_found(
    slip: tuple[str, str, str, str], tmp_path: Path, again: Callable[[], Iterator[Judged]]
) -> None:
    language, name, right, wrong = slip
    client = planted(tmp_path, name, right, wrong)
    if language == "c":
        port = Port((str(compiled(tmp_path, library=client / "ports" / name, sanitized=False)),))
    else:
        port = port_of(language, tmp_path, client=client)
    cases, seen = again(), Counter[str]()
    with port.session(tmp_path / "log") as session:
        assert any(any(differences({language: session}, cases, seen)) for _ in range(60))
