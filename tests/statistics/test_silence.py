"""A value never decides whether, when or what a device answers: by following every draw for every value.

Small instances of every kind (at most 8 grid steps, 5 labels, 2 coordinates), every pair of values, legal or not: the
law of everything that leaves the device differs by at most e^epsilon, and nothing can happen under one value alone.
What devices without a value do to an estimate is exactly what `replacement_bias` says at most.
"""

import logging
import math
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import product
from threading import get_ident
from typing import Any

import numpy as np
import pytest
from answers import answer_one

from hush import Task
from hush_aggregator.estimate import estimate as estimated
from hush_aggregator.estimate.diagnostics import replacement_bias
from hush_aggregator.estimate.mechanisms import fold as folded
from hush_client import Policy, Receipt
from hush_client.privacy.answer import Question
from hush_client.state import ledger, outbox
from hush_common.domain import BitDomain, CategoryDomain, Coordinate, Domain, NumberDomain, ParsedValue, VectorDomain
from hush_common.mechanisms import Channel, Laplace, Multilevel, RandomizedResponse, SubsetSelection, Vector
from hush_common.mechanisms.parameters import ChannelTable, Parameters
from hush_common.rng import ReportRng
from hush_common.task import make_task

NOW = datetime(2026, 1, 1, tzinfo=UTC)
Outcome = tuple[Receipt, int | None]
Answer = Callable[[sqlite3.Connection, Question, ParsedValue, ReportRng], Outcome]
Event = tuple[object, object, object, object]
"""What was said, the rows of the state, what was put into the outbox, and the log."""
Events = tuple[Event, ...]
_ID = bytes(16)


@dataclass
class Tree:
    """Randomness that is followed along every path: a path is the choices made so far, each with its probability."""

    script: list[int] = field(default_factory=list)
    made: list[tuple[int, int]] = field(default_factory=list)
    weight: Decimal = Decimal(1)

    def pick(self, weights: Sequence[Decimal]) -> int:
        """One of several branches; the first time the first, later what the script says."""
        place = len(self.made)
        choice = self.script[place] if place < len(self.script) else 0
        self.made.append((choice, len(weights)))
        self.weight *= weights[choice]
        return choice

    def randbelow(self, n: int, /) -> int:
        assert n <= 16, "more than small instances draw, once the mechanisms are known by their laws"
        return self.pick([Decimal(1) / n] * n)

    def token_bytes(self, count: int, /) -> bytes:
        return _ID[:count]

    def report_id(self) -> bytes:
        return _ID

    def after(self) -> list[int] | None:
        """The script of the next path, or None after the last one."""
        script = list(self.made)
        while script and script[-1][0] == script[-1][1] - 1:
            script.pop()
        return [*(choice for choice, _ in script[:-1]), script[-1][0] + 1] if script else None


@contextmanager
def known_laws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every mechanism draws from its exact table in one choice: that its sampler has this law, other tests show."""

    def perturb(self: Any, index: Any, rng: Tree) -> tuple[int, ...]:  # noqa: ANN401 - of each mechanism its own
        bodies = list(self.outputs())
        return tuple(bodies[rng.pick([self.probability(body, index) for body in bodies])])

    with monkeypatch.context() as patch:
        for kind in (Channel, Laplace, Multilevel, RandomizedResponse, SubsetSelection, Vector):
            patch.setattr(kind, "perturb", perturb)
        yield


def question_of(task: Task, policy: Policy | None = None) -> Question:
    limits = policy or Policy(max_epsilon=task.epsilon, lifetime=task.epsilon, sticky=True)
    return Question(task, "topic", limits, NOW, not_before=1234, delay=34)


def paths(rounds: Sequence[tuple[Question, object]], act: Answer = answer_one) -> Iterator[tuple[Events, Tree]]:
    """Each path of one answer, or of some one after the other: the course of events, and the draws that led there.

    An event is all that anybody but the program itself can learn: whether the call ended in an error and in which,
    the receipt but for what became of the value, every row of the state but the secret memory, and the log.
    """
    script: list[int] | None = []
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.executescript(ledger.SCHEMA + outbox.SCHEMA)
        while script is not None:
            tree = Tree(script)
            connection.execute("BEGIN")
            seen = [_event(connection, question, value, tree, act) for question, value in rounds]
            connection.execute("ROLLBACK")
            yield tuple(seen), tree
            script = tree.after()


def law_of(question: Question, value: object, act: Answer = answer_one) -> dict[Event, Decimal]:
    """The probability of each event, over all paths of one answer."""
    law: dict[Event, Decimal] = defaultdict(Decimal)
    for (event,), tree in paths([(question, value)], act):
        law[event] += tree.weight
    assert abs(sum(law.values(), Decimal(-1))) < Decimal("1e-20")
    return law


def _event(connection: sqlite3.Connection, question: Question, value: object, tree: Tree, act: Answer) -> Event:
    log = _Lines()
    logging.getLogger().addHandler(log)
    try:
        receipt, sequence = act(connection, question, question.task.domain.read(value), tree)
        said: object = (replace(receipt, value=None), sequence)
    except Exception as error:  # noqa: BLE001 - an error is an event, too
        said = type(error).__name__, str(error)
    finally:
        logging.getLogger().removeHandler(log)
    queries = ("SELECT * FROM charge", "SELECT * FROM account", "SELECT * FROM refusal", "SELECT * FROM pin")
    rows = tuple(tuple(connection.execute(query).fetchall()) for query in queries)
    sent = tuple(
        (entry.topic, entry.payload, entry.not_before, entry.delay) for entry in outbox.page(connection, 0, 99)
    )
    return said, rows, sent, tuple(log.lines)


class _Lines(logging.Handler):
    """What hush says on this thread; what an earlier test left behind to be collected may speak at any time."""

    def __init__(self) -> None:
        super().__init__(logging.NOTSET)
        self.thread = get_ident()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith("hush") and record.thread == self.thread:
            self.lines.append(record.getMessage())


def worst_ratio(laws: Sequence[Mapping[Any, Decimal]]) -> Decimal | None:
    """The largest ratio of the probabilities of one event under two values; None where one of them cannot happen."""
    events = {event for law in laws for event in law}
    worst = Decimal(1)
    for event in events:
        chances = [law.get(event, Decimal(0)) for law in laws]
        if min(chances) == 0:
            return None
        worst = max(worst, max(chances) / min(chances))
    return worst


# ---- every value of every kind

HUGE = [math.inf, -math.inf, 10**500, Decimal("1e999999999")]
MISSING = [None, math.nan]


def number(steps: int) -> NumberDomain:
    return NumberDomain(0.0, float(steps), steps=steps)


BODY = VectorDomain(tuple(Coordinate(0.0, 2.0, steps=2, name=name) for name in "ab"))
WAYS = CategoryDomain(("a", "b", "c", "d", "e"))
ELSE = CategoryDomain(("a", "b", "c"), other="c")
TABLE = ChannelTable(positions=(-1, 2), unit=1, weights=((2, 1), (1, 2)))
NUMBERS: list[object] = [0, 1, 2.4, 4, -0.001, *HUGE, *MISSING]
VECTORS: list[object] = [[0, 2], [1, 1], [-5, math.inf], [None, 2], [0, math.nan], None, [], [1, 2, 3], {"a": 1}]
LABELS: list[object] = ["a", "c", "e", "unknown", "", *MISSING]


def task(domain: Domain, mechanism: str, epsilon: str, **parameters: object) -> Task:
    offers = tuple(map(Fraction, parameters.pop("offers", ())))  # type: ignore[call-overload]  # texts
    return Task(
        id="t",
        epsilon=Fraction(epsilon),
        mechanism=mechanism,
        domain=domain,
        parameters=Parameters(**parameters),  # type: ignore[arg-type]  # of the mechanism
        offers=offers,
        payload=b"t",
    )


INSTANCES: dict[str, tuple[Task, list[object]]] = {
    "laplace": (task(number(4), "laplace", "16"), NUMBERS),
    "laplace, one step": (task(number(1), "laplace", "8"), NUMBERS),
    "multilevel": (task(number(8), "multilevel", "1", levels=(3,)), NUMBERS),
    "table": (task(number(4), "table", "0.693148", table=TABLE), NUMBERS),
    "a bit": (task(BitDomain(), "randomized_response", "1"), [True, False, 0, 1, 2, -1, 10**500, *MISSING]),
    "labels": (task(WAYS, "subset_selection", "2", size=(2,)), LABELS),
    "labels with another": (task(ELSE, "subset_selection", "1", size=(1,)), LABELS),
    "a vector": (task(BODY, "vector", "1", sampled=1, levels=(1,)), VECTORS),
    "a whole vector": (task(BODY, "vector", "2", sampled=2, levels=(2,)), VECTORS),
    "offers of numbers": (task(number(2), "multilevel", "2", levels=(1, 2), offers=("1", "2")), NUMBERS),
    "offers of labels": (task(WAYS, "subset_selection", "2", size=(2, 1), offers=("1", "2")), LABELS),
}


def laws(name: str, act: Answer = answer_one, *, policy: Policy | None = None) -> list[dict[Event, Decimal]]:
    asked, values = INSTANCES[name]
    return [law_of(question_of(asked, policy), value, act) for value in values]


def bound(epsilon: Fraction) -> Decimal:
    return (Decimal(epsilon.numerator) / Decimal(epsilon.denominator)).exp() * (1 + Decimal("1e-20"))


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.medium] if name == "laplace" else []) for name in INSTANCES],
)
def test_what_leaves_a_device_has_nearly_one_law_for_any_two_values(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, _ = INSTANCES[name]
    with known_laws(monkeypatch):
        worst = worst_ratio(laws(name))
        refused = laws(name, policy=Policy(max_epsilon=Fraction(0)))
    assert worst is not None, "something happens under one value alone"
    assert 1 < worst <= bound(asked.epsilon)
    assert all(law == refused[0] for law in refused), "and a refusal is the same for every value"


def skip(connection: sqlite3.Connection, question: Question, value: ParsedValue, rng: ReportRng) -> Outcome:
    """Planted: nothing is said where there is no value."""
    if value.coercion == "replaced":
        return Receipt("refused", None, question.task.id, 0, Fraction(0), Fraction(0), Fraction(0)), None
    return answer_one(connection, question, value, rng)


def fail(connection: sqlite3.Connection, question: Question, value: ParsedValue, rng: ReportRng) -> Outcome:
    """Planted: a value outside the domain is an error, before anything is stored."""
    if value.coercion == "moved":
        raise ValueError("outside the domain")
    return answer_one(connection, question, value, rng)


def hurry(connection: sqlite3.Connection, question: Question, value: ParsedValue, rng: ReportRng) -> Outcome:
    """Planted: a value that is missing takes longer, and the moment of sending is fixed after it."""
    late = 10 if value.coercion == "replaced" else 0
    return answer_one(connection, replace(question, not_before=question.not_before + late), value, rng)


def middle(connection: sqlite3.Connection, question: Question, value: ParsedValue, rng: ReportRng) -> Outcome:
    """Planted: a missing value is sent without noise."""
    receipt, sequence = answer_one(connection, question, value, rng)
    if value.coercion == "replaced":
        connection.execute("UPDATE outbox SET payload = CAST(substr(payload, 1, 40) || zeroblob(8) AS BLOB)")
    return receipt, sequence


def tell(connection: sqlite3.Connection, question: Question, value: ParsedValue, rng: ReportRng) -> Outcome:
    """Planted: the log says that a value was missing."""
    if value.coercion == "replaced":
        logging.getLogger("hush_client.privacy.answer").warning("no value")
    return answer_one(connection, question, value, rng)


@pytest.mark.parametrize("planted", [skip, fail, hurry, middle, tell])
def test_an_answer_that_a_value_decides_is_found(planted: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    with known_laws(monkeypatch):
        assert worst_ratio(laws("labels with another", planted)) is None


# ---- sticky tasks, given in which rounds the levels are equal

DAYS = 3


def sticky(domain: Domain, mechanism: str, levels: tuple[int, ...], rounds: int) -> Task:
    return Task(
        id="t",
        epsilon=Fraction(2),
        mechanism=mechanism,
        domain=domain,
        parameters=Parameters(levels=levels),
        rounds=rounds,
        repeat="sticky",
        round_every=timedelta(days=1),
        opens=NOW,
        payload=b"t",
    )


STICKY: dict[str, tuple[Task, list[object]]] = {
    "a number": (sticky(number(2), "multilevel", (1,), DAYS), [0, 1, 9, None]),
    "a bit": (sticky(BitDomain(), "randomized_response", (), DAYS), [True, 0, None, 7]),
}


def pattern_of(asked: Task, tree: Tree, values: tuple[object, ...]) -> tuple[int, ...]:
    """In which rounds the levels are equal, on the path that was taken: z, then the threshold, then the substitute."""
    *_, (threshold, steps), (substitute, _) = tree.made
    levels = []
    for value in values:
        (index,) = asked.domain.read(value).parts
        level, rest = divmod(substitute if index is None else index, steps)
        levels.append(level + (threshold < rest))
    return tuple(levels.index(level) for level in levels)


@pytest.mark.medium
@pytest.mark.parametrize("name", STICKY)
def test_sticky_answers_have_nearly_one_law_given_equal_levels(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, values = STICKY[name]
    days = [replace(question_of(asked), now=NOW + timedelta(days=day)) for day in range(DAYS)]
    shares: dict[tuple[int, ...], list[dict[Events, Decimal]]] = defaultdict(list)
    with known_laws(monkeypatch):
        for sequence in product(values, repeat=DAYS):
            laws: dict[tuple[int, ...], dict[Events, Decimal]] = defaultdict(lambda: defaultdict(Decimal))
            for events, tree in paths(list(zip(days, sequence, strict=True))):
                laws[pattern_of(asked, tree, sequence)][events] += tree.weight
            for pattern, law in laws.items():
                total = sum(law.values())
                shares[pattern].append({events: chance / total for events, chance in law.items()})
    for pattern, seen in shares.items():
        worst = worst_ratio(seen)
        assert worst is not None, pattern
        assert worst <= bound(asked.epsilon)
    assert {pattern for pattern in shares if len(set(pattern)) > 1}, "some sequences change"


def test_state_and_receipt_are_the_same_for_every_value(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, values = INSTANCES["multilevel"]
    with known_laws(monkeypatch):
        events = [event for value in values for event in law_of(question_of(asked), value)]
    assert len({(said, rows, log) for said, rows, _, log in events}) == 1


# ---- devices without a value

SPAN = NumberDomain(-3.0, 5.0, steps=8)
FOUR = CategoryDomain(("a", "b", "c", "d"))


def of_no_value(domain: Domain, mean: Callable[[int], Decimal]) -> Decimal:
    """The mean of something over the index that a device without a value answers with, by its own code."""
    total = Decimal(0)
    script: list[int] | None = []
    while script is not None:
        tree = Tree(script)
        one = mean(domain.complete(domain.read(None), tree).scalar)
        total += tree.weight * one
        script = tree.after()
    return total


def test_a_number_that_is_missing_counts_as_the_middle_of_the_range() -> None:
    mechanism = Multilevel(Fraction(1), 8, 3)

    def decoded(index: int) -> Decimal:
        units = [(body, mechanism.unit_value(Fraction(body[0]))) for body in mechanism.outputs()]
        return sum((mechanism.probability(b, index) * u.numerator / u.denominator for b, u in units), Decimal(0))

    middle = Decimal(-3) + 8 * of_no_value(SPAN, decoded)
    assert abs(middle - 1) < Decimal("1e-20")
    worst = max(abs(Decimal("0.01") * (middle - mu)) for mu in (Decimal(-3), Decimal(5)))
    assert replacement_bias(*SPAN.parts) == {"1%": pytest.approx(float(worst))}


def test_a_bit_that_is_missing_counts_as_a_half() -> None:
    mechanism = RandomizedResponse.from_epsilon(Fraction(1))
    zero, one = mechanism.probability_of_one

    def decoded(index: int) -> Decimal:
        share = (mechanism.probability((1,), index) * zero.denominator - zero.numerator) / zero.denominator
        return share * (one - zero).denominator / (one - zero).numerator

    assert abs(of_no_value(BitDomain(), decoded) - Decimal("0.5")) < Decimal("1e-20")
    assert replacement_bias(*BitDomain().parts) == {"1%": pytest.approx(0.005)}


def test_a_label_that_is_missing_counts_as_an_equal_part_of_each() -> None:
    mechanism = SubsetSelection(Fraction(1), 4, 2)
    q, p = mechanism.support
    for label in range(4):

        def decoded(index: int, label: int = label) -> Decimal:
            named = [body for body in mechanism.outputs() if body[0] >> label & 1]
            share = sum((mechanism.probability(body, index) for body in named), Decimal(0))
            return (share * q.denominator - q.numerator) / q.denominator * (p - q).denominator / (p - q).numerator

        assert abs(of_no_value(FOUR, decoded) - Decimal("0.25")) < Decimal("1e-20")
    assert replacement_bias(FOUR.parts[0]) == {"1%": pytest.approx(0.01 * 0.75)}


def test_results_say_how_far_missing_values_may_move_them() -> None:
    number = make_task({"id": "n", "epsilon": "1", "domain": {"kind": "number", "lower": 120, "upper": 220}})
    assert estimated(number, folded(number.randomizer, np.array([[7]])), 0.9).single.replacement_bias == {"1%": 0.5}
    parts = [{"name": name, "lower": 0, "upper": upper} for name, upper in (("x", 1), ("y", 10))]
    vector = make_task({"id": "v", "epsilon": "1", "domain": {"kind": "vector", "coordinates": parts}})
    found = estimated(vector, folded(vector.randomizer, np.array([[1, 0]])), 0.9)
    assert [one.replacement_bias for one in found.parts] == [{}, {"1%": pytest.approx(0.05)}]
    huge = VectorDomain((Coordinate(-8e307, 8e307, name="x"),)).parts[0]
    assert replacement_bias(huge) == {"1%": pytest.approx(8e305)}
