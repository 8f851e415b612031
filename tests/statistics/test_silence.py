"""A value never decides whether a device answers: by its signatures, and by following every draw for every value.

Small instances of every kind (at most 8 grid steps, 5 labels, 2 coordinates), every pair of values, legal or not: the
law of everything that leaves the device differs by at most e^epsilon, and nothing can happen under one value alone.
"""

import inspect
import logging
import math
import sqlite3
from collections import defaultdict
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import product
from threading import Thread
from typing import get_type_hints

import pytest
from answers import answer_one
from silence import NOW, Answer, Event, Events, Tree, known_laws, law_of, paths, question_of, worst_ratio

from hush import Task
from hush_client import Policy, Receipt
from hush_client.privacy import decide as decide_module
from hush_client.privacy import draw as draw_module
from hush_client.privacy.answer import Question
from hush_client.privacy.decide import DecisionTime, SpendingHistory, decide
from hush_client.privacy.decision import Decision
from hush_client.privacy.draw import Drawn, draw
from hush_common.domain import BitDomain, CategoryDomain, Coordinate, Domain, NumberDomain, ParsedValue, VectorDomain
from hush_common.mechanisms.parameters import ChannelTable, Parameters
from hush_common.rng import ReportRng

# ---- the signatures


def test_what_decides_has_no_value_in_scope_and_what_draws_has_nothing_else() -> None:
    deciding, drawing = get_type_hints(decide), get_type_hints(draw)
    assert deciding == {
        "task": Task,
        "policy": Policy,
        "history": SpendingHistory,
        "room": bool,
        "time": DecisionTime,
        "offer": Fraction | None,
        "return": tuple[Receipt, Decision | None],
    }
    assert drawing == {"decision": Decision, "value": ParsedValue, "randomness": ReportRng, "return": Drawn}
    assert get_type_hints(Question).keys() >= {"task", "policy", "now"}
    assert not {object, ParsedValue} & set(get_type_hints(Question).values())


def test_neither_module_can_reach_what_the_other_one_sees() -> None:
    decides, draws = vars(decide_module), vars(draw_module)
    assert not {"ParsedValue", "Domain", "ReportRng", "perturb", "draw", "Report", "Source"} & decides.keys()
    assert not {"Policy", "SpendingHistory", "Clock", "datetime", "time", "sqlite3", "outbox", "ledger"} & draws.keys()
    assert not [name for name, thing in draws.items() if inspect.ismodule(thing)]
    assert not {object, ParsedValue, ReportRng} & set(get_type_hints(SpendingHistory).values())


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


@pytest.mark.large
@pytest.mark.parametrize("name", INSTANCES)
def test_everything_that_leaves_a_device_has_nearly_the_same_law_for_any_two_values(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, _ = INSTANCES[name]
    with known_laws(monkeypatch):
        worst = worst_ratio(laws(name))
        refused = laws(name, policy=Policy(max_epsilon=Fraction(0)))
    assert worst is not None, "something happens under one value alone"
    assert 1 < worst <= bound(asked.epsilon)
    assert all(law == refused[0] for law in refused), "and a refusal is the same, whatever the value is"


def skip(
    connection: sqlite3.Connection, question: Question, value: ParsedValue, rng: ReportRng
) -> tuple[Receipt, int | None]:
    """Planted: nothing is said where there is no value."""
    if value.coercion == "replaced":
        return Receipt("refused", None, question.task.id, 0, Fraction(0), Fraction(0), Fraction(0)), None
    return answer_one(connection, question, value, rng)


def fail(
    connection: sqlite3.Connection, question: Question, value: ParsedValue, rng: ReportRng
) -> tuple[Receipt, int | None]:
    """Planted: a value outside the domain is an error, before anything is stored."""
    if value.coercion == "moved":
        raise ValueError("outside the domain")
    return answer_one(connection, question, value, rng)


def hurry(
    connection: sqlite3.Connection, question: Question, value: ParsedValue, rng: ReportRng
) -> tuple[Receipt, int | None]:
    """Planted: a value that is missing takes longer, and the moment of sending is fixed after it."""
    late = 10 if value.coercion == "replaced" else 0
    return answer_one(connection, replace(question, not_before=question.not_before + late), value, rng)


def middle(
    connection: sqlite3.Connection, question: Question, value: ParsedValue, rng: ReportRng
) -> tuple[Receipt, int | None]:
    """Planted: a missing value is sent without noise."""
    receipt, sequence = answer_one(connection, question, value, rng)
    if value.coercion == "replaced":
        connection.execute("UPDATE outbox SET payload = CAST(substr(payload, 1, 40) || zeroblob(8) AS BLOB)")
    return receipt, sequence


def tell(
    connection: sqlite3.Connection, question: Question, value: ParsedValue, rng: ReportRng
) -> tuple[Receipt, int | None]:
    """Planted: the log says that a value was missing."""
    if value.coercion == "replaced":
        logging.getLogger("hush_client.privacy.answer").warning("no value")
    return answer_one(connection, question, value, rng)


@pytest.mark.parametrize("planted", [skip, fail, hurry, middle, tell])
def test_an_answer_that_a_value_decides_is_found(planted: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    with known_laws(monkeypatch):
        assert worst_ratio(laws("labels with another", planted)) is None


def test_what_others_log_meanwhile_is_no_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a loop that an earlier test left behind does, when it is collected under one value alone."""
    said = []

    def collected(
        connection: sqlite3.Connection, question: Question, value: ParsedValue, rng: ReportRng
    ) -> tuple[Receipt, int | None]:
        if value.coercion == "replaced":
            said.append(value)
            logging.getLogger("asyncio").error("Task was destroyed but it is pending!")
            other = Thread(target=logging.getLogger("hush_client.sending.sender").warning, args=("not connected",))
            other.start()
            other.join()
        return answer_one(connection, question, value, rng)

    with known_laws(monkeypatch):
        assert worst_ratio(laws("labels with another", collected)) is not None
    assert said


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


@pytest.mark.large
@pytest.mark.parametrize("name", STICKY)
def test_sticky_answers_have_nearly_the_same_law_given_the_rounds_of_equal_levels(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_the_state_and_the_receipt_of_a_device_are_the_same_for_every_value(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, values = INSTANCES["multilevel"]
    with known_laws(monkeypatch):
        events = [event for value in values for event in law_of(question_of(asked), value)]
    assert len({(said, rows, log) for said, rows, _, log in events}) == 1
