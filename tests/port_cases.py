"""What the ports are asked in tests, and what the Python client makes of it from the same random bytes."""

import json
import random
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from port_programs import FEATURES, hexadecimal

from hush import Task
from hush_client import Policy, Reason
from hush_client.privacy.decide import DecisionTime, SpendingHistory, decide
from hush_client.privacy.draw import draw
from hush_common.domain import GRID_STEPS, BitDomain, CategoryDomain, NumberDomain, VectorDomain
from hush_common.epsilon import WEIGHT_OF_TRUTH, weight_of_lie
from hush_common.mechanisms.sticky import Memory
from hush_common.rng import SystemRng
from hush_common.task import decode_task, make_task
from hush_common.topics import report_topic
from hush_common.wire import Report, encode_frame, encode_json

__all__ = [
    "VECTORS",
    "VECTORS_FILE",
    "Answer",
    "Case",
    "answer_of",
    "answers_from_memory",
    "cases",
    "needs_of",
    "plain_task",
    "reference",
    "some_task",
    "some_value",
    "vectors",
]

VECTORS_FILE = Path(__file__).parent / "vectors" / "v1" / "answers.json"


def _vectors() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(VECTORS_FILE.read_text(encoding="utf-8"))
    for vector in (*document["answers"], *document["sticky"]):
        vector["task"] = document["tasks"][vector["task"]]
    return document


VECTORS = _vectors()
"""Tasks, values and random bytes, and the reports that they make."""

EPSILONS = ["0.000001", "1e-6", "1", "50", "5e1", "0.5", "1.098613", "0.123456789012345678", "3.3e-5", "007", "49.999"]
EDGES = ["0", "-0", "1e-999", "5e-324", "2.5e-324", ".5", "5.", "+1", "1.7976931348623157e308"]
BEYOND = ["1e400", "-1e999", "1e1000", "-1e999999999", "inf", "+INF", "-Infinity", "1.7976931348623159e308", "0e99999"]
NO_NUMBERS = [None, "", ".", "e5", "1e", "0x1", "nan", "-nan", "infinite", "1_0", " 1", "1,5", "--1", "1e+", "9" * 101]


def needs_of(task: Task) -> frozenset[str]:
    """The features that a port needs for a task."""
    found = {
        task.mechanism: task.mechanism in FEATURES,
        "coins": task.parameters.coins is not None,
        "offers": bool(task.offers),
        "rounds": task.round_every is not None,
        "sticky": task.repeat == "sticky",
    }
    return frozenset(name for name, needed in found.items() if needed)


class ScriptEndsError(Exception):
    """The scripted bytes are used up."""


@dataclass
class Script(SystemRng):
    """The Python client's own way from bytes to integers, with the bytes given."""

    data: bytes

    def token_bytes(self, count: int, /) -> bytes:
        if len(self.data) < count:
            raise ScriptEndsError
        taken, self.data = self.data[:count], self.data[count:]
        return taken


@dataclass(frozen=True)
class Case:
    """One answer to be made: the task, the value as typed or None, and the random bytes."""

    task: Task
    value: str | None
    data: bytes
    now: int = 0
    sender: str = "dev:1@x.y_z-0"
    most: str = "50"  # the limit of the device

    @property
    def order(self) -> str:
        value = "none" if self.value is None else hexadecimal(self.value)
        words = [value, hexadecimal(self.task.payload), hexadecimal(self.data)]
        return " ".join([f"answer {self.most} {self.now}", self.sender, *words])


@dataclass(frozen=True)
class Answer:
    """A report of the Python client, and what was decided before it was drawn."""

    report: Report
    value: str  # used, moved or replaced
    left: int  # random bytes that were not used
    offer: int
    cost: Fraction
    topic: str

    def facts(self, task: Task) -> str:
        """The answer as a port writes it."""
        body, frame = ",".join(map(str, self.report.body)), encode_frame((self.report,)).hex()
        facts = [task.digest.hex(), self.report.id.hex(), body, self.value, self.left, self.topic, frame]
        return " ".join([*map(str, facts), encode_json(task.id, self.report).decode()])

    def document(self, task: Task) -> dict[str, Any]:
        """The answer as a vector has it."""
        frame, text = encode_frame((self.report,)).hex(), encode_json(task.id, self.report).decode()
        decided = {
            "round": self.report.round,
            "offer": self.offer,
            "cost": f"{self.cost.numerator}/{self.cost.denominator}",
        }
        drawn = {"became": self.value, "id": self.report.id.hex(), "body": list(self.report.body)}
        return {**decided, **drawn, "topic": self.topic, "frame": frame, "json": text}


_REFUSALS = {Reason.EPSILON_TOO_LARGE: "epsilon", Reason.NOT_OPEN: "not_open", Reason.CLOSED: "closed"}


def answer_of(
    case: Case, monkeypatch: pytest.MonkeyPatch, rng: Script | None = None, memory: Memory | None = None
) -> Answer | str:
    """The answer of a device that has spent nothing, or the word of a port for a refusal."""
    return _answer(case, monkeypatch, Script(case.data) if rng is None else rng, memory)[0]


def _answer(
    case: Case, monkeypatch: pytest.MonkeyPatch, rng: Script, memory: Memory | None
) -> tuple[Answer | str, Memory | None]:
    task, now = case.task, datetime.fromtimestamp(case.now, UTC)
    policy, history = Policy(case.most, 999, sticky=True), SpendingHistory(charged=memory is not None)
    receipt, decision = decide(task, policy, history, room=True, time=DecisionTime(now))
    if decision is None:
        return _REFUSALS[receipt.reason], None  # type: ignore[index]  # no other is met
    monkeypatch.setattr("hush_common.rng.token_bytes", rng.token_bytes)
    reading = task.domain.read(None if case.value is None else task.domain.parse(case.value))
    try:
        drawn = draw(replace(decision, memory=memory), reading, rng)
    except ScriptEndsError:
        return "random", None
    about = reading.coercion, len(rng.data), decision.offer, decision.cost, report_topic(task.id, case.sender)
    return Answer(drawn.report, *about), drawn.memory or memory


def answers_from_memory(
    task: Task, sender: str, given: Sequence[tuple[int, str | None]], data: bytes, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Answer]:
    """The answers to a sticky task at some times and with some values, with one memory."""
    rng, memory = Script(data), None
    for now, value in given:
        answer, memory = _answer(Case(task, value, b"", now, sender), monkeypatch, rng, memory)
        assert isinstance(answer, Answer)
        yield answer


def reference(case: Case, monkeypatch: pytest.MonkeyPatch) -> str:
    """The outcome by the Python client."""
    answer = answer_of(case, monkeypatch)
    return answer if isinstance(answer, str) else f"ok {answer.facts(case.task)}"


def some_number(source: random.Random) -> float:
    """Any finite binary64 by its bits, or one that a person would write."""
    if source.random() < 0.5:
        return round(source.uniform(-1000, 1000), source.randrange(4))
    number = float(struct.unpack(">d", source.randbytes(8))[0])
    return number if abs(number) < 1e308 else 0.1


def some_task(source: random.Random) -> Task:
    """A task of one of the first three mechanisms, in two of five cases with a feature."""
    return _with_features(source) if source.random() < 0.4 else plain_task(source)


def _with_features(source: random.Random) -> Task:
    document: dict[str, Any] = {"id": "f", "epsilon": source.choice(["0.4", "1", "2.5", "7", "49.999", "1.234567"])}
    many = source.choice([2, 3, 7, 20, 33, 100])
    match source.randrange(6):
        case 0:
            document |= {"domain": _bounds(source), "mechanism": "table", "table": "epsilon-0.33"}
        case 1:
            labels = [f"c{place}" for place in range(many)]
            other = {"other": source.choice(labels)} if source.random() < 0.5 else {}
            document["domain"] = {"kind": "category", "labels": labels, **other}
            document["size"] = source.randrange(1, many)
        case 2:
            parts = [{**_bounds(source), "name": f"n{place}"} for place in range(many)]
            for part in parts:
                del part["kind"]
            document["domain"] = {"kind": "vector", "coordinates": parts}
            document |= {"sampled": source.randrange(1, min(many, 12) + 1), "levels": source.choice([1, 2, 50])}
        case 3:
            document |= {"domain": {"kind": "bit"}, "coins": {"truth": "0.5", "yes": source.choice(["0.5", "0.1"])}}
            del document["epsilon"]
        case 4:
            document |= {"domain": _bounds(source), "mechanism": "laplace", "offers": ["0.1", document["epsilon"]]}
        case _:
            document |= {"domain": _bounds(source), "mechanism": "multilevel", "levels": source.choice([1, 3, 40])}
            document |= {"repeat": "sticky", "rounds": 99, "round_every": "1d", "opens": "1970-01-01T00:00:00Z"}
    if "coins" not in document and "table" not in document and source.random() < 0.5:
        document |= {"rounds": 99, "round_every": source.choice(["1s", "7h"]), "opens": "1970-01-01T00:00:00Z"}
    return make_task(document)


def _bounds(source: random.Random) -> dict[str, Any]:
    lower, upper = source.choice([(0.0, float(GRID_STEPS)), sorted((some_number(source), some_number(source)))])
    return {"kind": "number", "lower": lower, "upper": upper if upper > lower else 1e308}


def plain_task(source: random.Random) -> Task:
    """A task of one of the first three mechanisms and of one round."""
    epsilon = source.choice([*EPSILONS, f"{source.randrange(1, 50)}.{source.randrange(10**6):06}"])
    kind = source.choice(["laplace", "laplace", "multilevel", "randomized_response"])
    if kind == "randomized_response":
        return make_task({"id": "a-bit", "epsilon": epsilon, "domain": {"kind": "bit"}, "title": 'say "ja\\"'})
    bounds = _bounds(source)
    levels = {"levels": source.choice([1, 2, 3, 7, 1024])} if kind == "multilevel" else {}
    return make_task({"id": "n", "epsilon": epsilon, "mechanism": kind, "domain": bounds, "purpose": "é" * 9, **levels})


def some_value(source: random.Random, task: Task) -> str | None:
    if isinstance(task.domain, BitDomain):
        return source.choice(["yes", "no", "true", "false", "1", "0", "maybe", "2", "", None])
    if isinstance(task.domain, CategoryDomain):
        return source.choice([*task.domain.labels, "c", "c1 ", '"', "", None])
    if isinstance(task.domain, VectorDomain):
        numbers = [_some_number_in(source, part) or "" for part in task.domain.coordinates]
        return source.choice([*[source.choice([",", " ,\t"]).join(numbers)] * 5, ",".join([*numbers, "1"]), "", None])
    return _some_number_in(source, task.domain)


def _some_number_in(source: random.Random, domain: NumberDomain) -> str | None:
    lower, upper = Fraction(domain.lower), Fraction(domain.upper)
    place = Fraction(source.randrange(2 * GRID_STEPS + 1), 2 * GRID_STEPS)  # grid points, and ties between them
    inside = repr(float(lower + place * (upper - lower)))
    odd = source.choice([*EDGES, *BEYOND, *NO_NUMBERS])
    return source.choice([inside, inside, inside, repr(some_number(source)), odd])


def some_bytes(source: random.Random, task: Task) -> bytes:
    """Uniform bytes; or a first draw at an edge of a threshold or of the rejection; or bytes that are all alike."""
    tail = source.randbytes(3000 if needs_of(task) else 300)
    match source.randrange(8):
        case 0:
            return bytes([source.choice([0, 1, 127, 128, 254, 255])]) * 300
        case 1:
            return tail[: source.randrange(40)]
        case 2 | 3 | 4 if task.mechanism != "laplace" and not needs_of(task):
            return edge(source, task) + tail
        case _:
            return tail


def edge(source: random.Random, task: Task) -> bytes:
    """The bytes of a first draw next to where the answer changes."""
    lie = weight_of_lie(task.epsilon)
    others = task.parameters.levels[0] if task.mechanism == "multilevel" else 1
    total = WEIGHT_OF_TRUTH + others * lie
    n = total * (GRID_STEPS if task.mechanism == "multilevel" else 1)
    size = (n.bit_length() + 15) // 8
    refused = (1 << 8 * size) - (1 << 8 * size) % n
    at = source.choice([lie, WEIGHT_OF_TRUTH, WEIGHT_OF_TRUTH + source.randrange(others) * lie, total, n, refused])
    at += (
        total * source.choice([0, 1, GRID_STEPS // 2, source.randrange(GRID_STEPS)]) if n > total and at < total else 0
    )
    return min(max(at + source.choice([-1, 0, 1]), 0), (1 << 8 * size) - 1).to_bytes(size, "big")


def cases(seed: int, count: int) -> Iterator[Case]:
    source = random.Random(seed)  # noqa: S311 - a test wants the same cases every time
    for _ in range(count):
        task = some_task(source)
        yield Case(task, some_value(source, task), some_bytes(source, task))


def vectors() -> Iterator[Case]:
    for vector in VECTORS["answers"]:
        task = decode_task(vector["task"].encode())
        about = vector["now"], vector["sender"], vector["most"]
        yield Case(task, vector["value"], bytes.fromhex(vector["random"]), *about)
