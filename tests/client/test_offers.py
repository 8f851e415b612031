"""Where a task offers several epsilons, the limits of the device choose, or the person; never the value."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

import pytest
from answers import RecordingRng, answer_one
from heights import make_heights
from scripted_broker import ScriptedBroker

from hush_client import Gateway, Policy, Reason, Receipt
from hush_client.privacy.answer import Question
from hush_client.state import ledger, outbox
from hush_common.errors import EpsilonError
from hush_common.task import decode_task
from hush_common.topics import task_topic
from hush_common.wire import Frame, decode

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OFFERED: dict[str, object] = {"epsilon": "2", "offers": ["0.5", "1", "2"]}
DAILY: dict[str, object] = {"rounds": 2, "round_every": "1d", "opens": "2026-01-01T00:00:00Z"}


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.executescript(ledger.SCHEMA + outbox.SCHEMA)
        yield connection


def ask(*, policy: Policy | None = None, epsilon: Fraction | None = None, daily: bool = False) -> Question:
    task = decode_task(make_heights(**OFFERED, **(DAILY if daily else {})))
    return Question(task, "reports/heights/d", policy or Policy(), NOW, epsilon)


def give(
    connection: sqlite3.Connection, question: Question, value: object = 172.0, device: str = "d"
) -> tuple[Receipt, int | None]:
    """The receipt, and the offer that the stored report names."""
    reading = question.task.domain.read(value)
    receipt, sequence = answer_one(connection, question, reading, RecordingRng(), device=device)
    if sequence is None:
        return receipt, None
    frame = decode(outbox.page(connection, after=sequence - 1, limit=1)[0].payload)
    assert isinstance(frame, Frame)
    assert question.task.randomizer.admits(frame.reports[0].body)
    return receipt, frame.reports[0].body[0]


@pytest.mark.parametrize(
    ("max_epsilon", "lifetime", "offer", "cost"),
    [("4", "4", 2, "2"), ("1", "4", 1, "1"), ("1.9", "4", 1, "1"), ("4", "0.7", 0, "0.5"), ("0.5", "0.5", 0, "0.5")],
)
def test_the_dearest_offer_within_the_limits_is_taken_and_charged(
    connection: sqlite3.Connection, max_epsilon: str, lifetime: str, offer: int, cost: str
) -> None:
    policy = Policy(Fraction(max_epsilon), Fraction(lifetime))
    receipt, named = give(connection, ask(policy=policy))
    assert (receipt.status, named, receipt.epsilon, receipt.spent) == ("queued", offer, Fraction(cost), Fraction(cost))
    assert [charge.epsilon for charge in ledger.charges(connection, "d", "workplaces")] == [Fraction(cost)]


@pytest.mark.parametrize(
    ("policy", "reason"),
    [(Policy(Fraction(2, 5)), Reason.EPSILON_TOO_LARGE), (Policy(lifetime=Fraction(2, 5)), Reason.OVER_BUDGET)],
)
def test_a_device_that_no_offer_suits_refuses_and_names_the_cheapest(
    connection: sqlite3.Connection, policy: Policy, reason: Reason
) -> None:
    receipt, named = give(connection, ask(policy=policy))
    assert (receipt.status, receipt.reason, receipt.epsilon, named) == ("refused", reason, Fraction(1, 2), None)


def test_the_value_has_no_part_in_the_choice(connection: sqlite3.Connection) -> None:
    for value, device in ((120.0, "a"), (170.0, "b"), (1e9, "c"), (None, "d")):
        _, named = give(connection, ask(policy=Policy(Fraction(1))), value, device)
        assert named == 1


def test_an_epsilon_that_is_not_offered_is_refused(connection: sqlite3.Connection) -> None:
    for value in (172.0, None):
        with pytest.raises(EpsilonError, match=r"does not offer 3; choose 0\.5 or 1 or 2"):
            give(connection, ask(epsilon=Fraction(3)), value)
    assert ledger.accounts(connection) == []


def test_the_epsilon_asked_for_is_taken_even_if_a_dearer_one_is_admitted(connection: sqlite3.Connection) -> None:
    receipt, named = give(connection, ask(epsilon=Fraction(1)))
    assert (receipt.status, named, receipt.spent) == ("queued", 1, Fraction(1))


def test_the_epsilon_asked_for_does_not_lift_the_limits(connection: sqlite3.Connection) -> None:
    receipt, named = give(connection, ask(epsilon=Fraction(2), policy=Policy(Fraction(1))))
    assert (receipt.status, receipt.reason, receipt.epsilon) == ("refused", Reason.EPSILON_TOO_LARGE, Fraction(2))
    assert named is None


def test_a_task_with_one_epsilon_offers_that_one_alone(connection: sqlite3.Connection) -> None:
    task = decode_task(make_heights())
    question = Question(task, "reports/heights/d", Policy(), NOW, Fraction(1))
    reading = task.domain.read(172.0)
    assert answer_one(connection, question, reading, RecordingRng())[0].status == "queued"
    with pytest.raises(EpsilonError, match="does not offer 2; choose 1"):
        answer_one(connection, replace(question, epsilon=Fraction(2)), reading, RecordingRng(), device="e")


def test_each_round_costs_its_part_of_the_offer_and_may_take_another(connection: sqlite3.Connection) -> None:
    first, named = give(connection, ask(daily=True))
    assert (named, first.epsilon) == (2, Fraction(1))
    later = replace(ask(epsilon=Fraction(1, 2), daily=True), now=datetime(2026, 1, 2, tzinfo=UTC))
    second, named = give(connection, later)
    assert (named, second.epsilon, second.spent) == (0, Fraction(1, 4), Fraction(5, 4))


def test_a_round_that_was_answered_tells_what_that_answer_cost(connection: sqlite3.Connection) -> None:
    give(connection, ask(epsilon=Fraction(1, 2)))
    receipt, named = give(connection, ask())
    assert (receipt.status, receipt.epsilon, receipt.spent) == ("already_answered", Fraction(1, 2), Fraction(1, 2))
    assert named == 0, "of the first answer, which still waits"


async def test_a_gateway_passes_the_choice_on(tmp_path: Path) -> None:
    broker = ScriptedBroker(retained={task_topic("heights"): make_heights(**OFFERED)})
    async with Gateway(broker, name="gateway", state=tmp_path, spread=0) as gateway:
        receipts = [
            await gateway.report("a", "heights", 172.0),
            await gateway.report("b", "heights", 172.0, epsilon=Fraction(1, 2)),
        ]
        with pytest.raises(EpsilonError):
            await gateway.report("c", "heights", 172.0, epsilon=Fraction(3))
    assert [(receipt.status, receipt.epsilon) for receipt in receipts] == [("sent", 2), ("sent", Fraction(1, 2))]
