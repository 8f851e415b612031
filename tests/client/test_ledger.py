"""The arithmetic of the ledger, and the limits that are enforced in the transaction of the charge.

Where a task offers several epsilons, the limits of the device choose, or the person; never the value.
"""

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import pytest
from answers import RecordingRng, answer_one
from device_state import in_memory
from heights import make_heights

from hush_client import Policy, Reason, Receipt
from hush_client.privacy.answer import Question
from hush_client.state import ledger, outbox
from hush_client.state.ledger import Account
from hush_common.errors import EpsilonError, StateError
from hush_common.task import decode_task
from hush_common.wire import Frame, decode

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with in_memory() as connection:
        yield connection


def ask(*, policy: Policy | None = None, **changes: object) -> Question:
    return Question(decode_task(make_heights(**changes)), "reports/heights/d", policy or Policy(), NOW)


def give(
    connection: sqlite3.Connection,
    question: Question,
    rng: RecordingRng | None = None,
    value: object = 172.0,
    device: str = "d",
) -> Receipt:
    reading = question.task.domain.read(value)
    return answer_one(connection, question, reading, rng or RecordingRng(), device=device)[0]


def test_ten_answers_of_a_tenth_fill_a_budget_of_one_exactly(connection: sqlite3.Connection) -> None:
    policy = Policy(lifetime=Fraction(1))
    receipts = [give(connection, ask(id=f"t{i}", epsilon="0.1", policy=policy)) for i in range(11)]
    assert [receipt.status for receipt in receipts] == ["queued"] * 10 + ["refused"]
    assert receipts[9].spent == receipts[10].spent == receipts[10].cap == 1
    assert 0.1 + 0.2 != 0.3  # what floats would have made of it


def test_a_third_is_kept_exactly(connection: sqlite3.Connection) -> None:
    question = ask(rounds=3, round_every="1d", opens="2026-01-01T00:00:00Z")
    for day in (1, 2, 3):
        receipt = give(connection, replace(question, now=datetime(2026, 1, day, tzinfo=UTC)))
        assert receipt.spent == Fraction(day, 3)
    assert connection.execute("SELECT DISTINCT epsilon FROM charge").fetchall() == [("1/3",)]
    assert ledger.spent(connection, "d", "workplaces") == 1


def test_budgets_are_kept_per_device_and_purpose(connection: sqlite3.Connection) -> None:
    policy = Policy(lifetime=Fraction(1))
    assert give(connection, ask(policy=policy)).status == "queued"
    assert give(connection, ask(policy=policy, id="b")).reason is Reason.OVER_BUDGET
    assert give(connection, ask(policy=policy, id="b", purpose="other")).status == "queued"
    assert give(connection, ask(policy=policy, id="b"), device="e").status == "queued"
    accounts = [("d", "other"), ("d", "workplaces"), ("e", "workplaces")]
    assert ledger.accounts(connection) == [Account(device, purpose, Fraction(1)) for device, purpose in accounts]


def test_a_total_bounds_all_purposes_together(connection: sqlite3.Connection) -> None:
    def status(purpose: str, total: Fraction | None) -> Reason | str:
        receipt = give(connection, ask(id=purpose, purpose=purpose, policy=Policy(total=total)))
        return receipt.reason or receipt.status

    assert status("a", Fraction(2)) == status("b", Fraction(2)) == "queued"
    assert status("c", Fraction(2)) is Reason.OVER_TOTAL
    assert status("c", Fraction(5, 2)) is Reason.OVER_TOTAL
    assert status("c", None) == "queued"
    assert ledger.spent_in_all(connection, "d") == 3
    assert give(connection, ask(policy=Policy(total=Fraction(1))), device="e").status == "queued"


def test_a_refusal_is_kept_once_for_each_task_round_and_reason(connection: sqlite3.Connection) -> None:
    daily = ask(rounds=2, round_every="1d", opens="2026-01-01T00:00:00Z", policy=Policy(lifetime=Fraction(1, 4)))
    early = datetime(2025, 12, 31, tzinfo=UTC)
    for now in (NOW, early, NOW + timedelta(days=1), NOW + timedelta(hours=25), early, NOW + timedelta(hours=1)):
        give(connection, replace(daily, now=now))
    kept = ledger.refusals(connection)
    assert [(entry.round, entry.reason, entry.refused_at) for entry in kept] == [
        (None, "not_open", early),
        (0, "over_budget", NOW),
        (1, "over_budget", NOW + timedelta(days=1)),
    ]
    assert {(entry.device, entry.task, entry.purpose, entry.epsilon) for entry in kept} == {
        ("d", "heights", "workplaces", Fraction(1, 2))
    }
    give(connection, replace(daily, policy=Policy(max_epsilon=Fraction(0))))
    assert len(ledger.refusals(connection)) == 4


def test_refusals_and_charges_are_told_oldest_first(connection: sqlite3.Connection) -> None:
    for day, task in ((2, "a"), (0, "c"), (1, "b")):
        now = NOW + timedelta(days=day)
        give(connection, replace(ask(id=task), now=now))
        give(
            connection,
            replace(ask(id=task, purpose="other", epsilon="2"), now=now, policy=Policy(lifetime=Fraction(1))),
        )
    assert [entry.task for entry in ledger.charges(connection, "d", "workplaces")] == ["c", "b", "a"]
    assert [entry.task for entry in ledger.refusals(connection)] == ["c", "b", "a"]


def test_reports_that_are_sent_again_are_counted_and_cost_nothing(connection: sqlite3.Connection) -> None:
    for name in ("a", "b"):
        give(connection, ask(id=name))
    sequences = {entry.task: entry.sequence or 0 for entry in ledger.charges(connection, "d", "workplaces")}
    ledger.resent(connection, dict.fromkeys(sequences.values(), 1))
    ledger.resent(connection, {sequences["a"]: 1})
    found = ledger.charges(connection, "d", "workplaces")
    assert {entry.task: entry.resends for entry in found} == {"a": 2, "b": 1}
    assert ledger.spent(connection, "d", "workplaces") == 2


@pytest.mark.parametrize("text", ["", "one", "1/0", "-1/1", "nan", b"1"])
def test_a_ledger_with_an_amount_that_is_none_stops_the_device(connection: sqlite3.Connection, text: object) -> None:
    give(connection, ask())
    connection.execute("UPDATE account SET spent = ?", (text,))
    rng = RecordingRng()
    with pytest.raises(StateError, match="damaged"):
        give(connection, ask(id="b"), rng)
    with pytest.raises(StateError, match="damaged"):
        give(connection, ask(id="b", purpose="other", policy=Policy(total=Fraction(4))), rng)
    assert rng.draws == 0
    assert outbox.count(connection) == 1


def test_a_clock_that_jumps_opens_nothing_twice_and_resets_nothing(connection: sqlite3.Connection) -> None:
    daily = ask(rounds=4, round_every="1d", opens="2026-01-01T00:00:00Z", policy=Policy(lifetime=Fraction(3, 4)))
    days = [0, 2, 0, -400, 1, 2, 40_000, 3, 0, 1, 2]
    receipts = [give(connection, replace(daily, now=NOW + timedelta(days=day))) for day in days]
    assert [receipt.round for receipt in receipts if receipt.status == "queued"] == [0, 2, 1]
    assert [receipt.reason for receipt in receipts if receipt.status == "refused"] == [
        Reason.NOT_OPEN,
        Reason.OVER_BUDGET,
        Reason.OVER_BUDGET,
    ]
    assert ledger.spent(connection, "d", "workplaces") == Fraction(3, 4)
    assert outbox.count(connection) == 3


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        (ask(epsilon="4.000001"), Reason.EPSILON_TOO_LARGE),
        (ask(policy=Policy(max_epsilon=Fraction(9, 10))), Reason.EPSILON_TOO_LARGE),
        (ask(policy=Policy(lifetime=Fraction(9, 10))), Reason.OVER_BUDGET),
        (ask(opens="2026-01-01T00:00:01Z"), Reason.NOT_OPEN),
        (ask(closes="2026-01-01T00:00:00Z"), Reason.CLOSED),
        (ask(epsilon="5", rounds=10, round_every="1d", opens="2026-01-01T00:00:00Z"), Reason.EPSILON_TOO_LARGE),
    ],
)
def test_a_refusal_draws_nothing_and_spends_nothing(
    connection: sqlite3.Connection, question: Question, reason: Reason
) -> None:
    rng = RecordingRng()
    receipt = give(connection, question, rng)
    assert (receipt.status, receipt.reason) == ("refused", reason)
    assert (receipt.spent, receipt.report_id) == (Fraction(0), None)
    assert reason.meaning
    assert rng.draws == 0
    assert ledger.accounts(connection) == []
    assert outbox.count(connection) == 0


def test_a_changed_task_under_the_same_id_is_refused(connection: sqlite3.Connection) -> None:
    give(connection, ask())
    rng = RecordingRng()
    receipt = give(connection, ask(epsilon="0.5"), rng)
    assert receipt.reason is Reason.TASK_CHANGED
    assert receipt.spent == 1
    assert rng.draws == 0
    assert give(connection, ask(epsilon="0.5"), device="e").status == "queued"  # which has not answered the first one


def test_a_second_answer_in_a_round_is_the_first_one(connection: sqlite3.Connection) -> None:
    first, rng = give(connection, ask()), RecordingRng()
    for value in (172.0, 130.0, None):
        for question in (ask(), ask(policy=Policy(Fraction(0), Fraction(0)))):
            second = give(connection, question, rng, value)
            cap = question.policy.lifetime
            assert second == replace(first, status="already_answered", cap=cap, value=None, waiting=True)
    assert rng.draws == 0
    assert outbox.count(connection) == 1


def test_what_is_stored_is_the_report_that_the_ledger_names(connection: sqlite3.Connection) -> None:
    question = ask()
    receipt, sequence = answer_one(connection, question, question.task.domain.read(999), RecordingRng())
    (entry,) = outbox.page(connection, after=0, limit=10)
    frame = decode(entry.payload)
    assert isinstance(frame, Frame)
    assert (entry.sequence, entry.topic) == (sequence, "reports/heights/d")
    assert receipt.report_id == frame.reports[0].id.hex()
    assert receipt.value == "moved"


def test_what_became_of_a_value_is_in_no_text_of_it(connection: sqlite3.Connection) -> None:
    for device, value in (("a", 172.0), ("b", 999.0), ("c", None)):
        question = ask()
        reading = question.task.domain.read(value)
        receipt = give(connection, question, value=value, device=device)
        assert repr(reading) == "ParsedValue()"
        assert "value" not in repr(receipt)
        assert "fault" not in repr(receipt)


def test_a_limit_may_be_a_fraction_an_integer_or_text_as_tasks_have_it() -> None:
    limits = Policy("0.1", 3, "1e-3", sticky=True)
    assert limits == Policy(Fraction(1, 10), Fraction(3), Fraction(1, 1000), sticky=True)
    assert [type(limit) for limit in (limits.max_epsilon, limits.lifetime, limits.total)] == [Fraction] * 3
    assert replace(limits, lifetime=Fraction(2)) == Policy("0.1", 2, "1e-3", sticky=True)
    assert Policy() == Policy(4, 4, None, sticky=False)


@pytest.mark.parametrize(
    ("question", "words"),
    [
        (ask(opens="2026-01-01T01:00:00+01:00", closes="2026-01-02T00:00:00Z"), ""),
        (ask(opens="2026-01-01T01:00:01Z"), "2026-01-01 01:00:01 UTC"),
        (ask(closes="2025-12-31T23:00:00-01:00"), "2026-01-01 00:00:00 UTC"),
        (ask(epsilon="5"), "costs more"),
    ],
)
def test_a_refused_receipt_says_why_and_of_an_early_or_late_task_when(
    connection: sqlite3.Connection, question: Question, words: str
) -> None:
    meaning = give(connection, question).meaning
    assert words in meaning
    assert bool(words) == bool(meaning)


def test_an_acknowledgement_that_comes_late_cannot_delete_another_report(connection: sqlite3.Connection) -> None:
    first = outbox.put(connection, "t", b"first")
    outbox.delete(connection, [first])
    second = outbox.put(connection, "t", b"second")
    outbox.delete(connection, [first])
    assert [entry.sequence for entry in outbox.page(connection, after=0, limit=10)] == [second]


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM account",
        "DELETE FROM charge",
        "UPDATE account SET spent = '2/1'",
        "UPDATE account SET purpose = 'another'",
        "UPDATE charge SET epsilon = '999/1000'",
    ],
)
def test_an_account_must_be_the_sum_of_its_charges(connection: sqlite3.Connection, damage: str) -> None:
    for task, epsilon in (("a", "0.3"), ("b", "0.7")):
        give(connection, ask(id=task, epsilon=epsilon))
    (account,) = ledger.accounts(connection)
    charges = ledger.charges(connection, "d", "workplaces")
    assert account.spent == sum(charge.epsilon for charge in charges) == 1
    ledger.verify(connection)
    connection.execute(damage)
    with pytest.raises(StateError, match="'d'"):
        ledger.verify(connection)


@pytest.mark.parametrize("limit", [0.5, True, [1], -1, Fraction(-1, 2), "1/2", "", "1e999999999", "1" * 90])
def test_a_limit_must_be_exact_and_not_negative(limit: Any) -> None:  # noqa: ANN401
    for name in ("max_epsilon", "lifetime", "total"):
        with pytest.raises(EpsilonError) as raised:
            Policy(**{name: limit})
        assert str(raised.value).startswith(f"{name}: ")
        assert (repr(limit)[:40] if isinstance(limit, str) else str(limit)) in str(raised.value)


def offer(
    connection: sqlite3.Connection,
    *,
    epsilon: Fraction | None = None,
    policy: Policy | None = None,
    value: object = 172.0,
    device: str = "d",
    day: int = 0,
) -> tuple[Receipt, int | None]:
    """The receipt for a task that offers three epsilons, and the offer that the stored report names."""
    daily = {"rounds": 2, "round_every": "1d", "opens": "2026-01-01T00:00:00Z"} if day else {}
    task = decode_task(make_heights(epsilon="2", offers=["0.5", "1", "2"], **daily))
    now = NOW + timedelta(days=max(0, day - 1))
    question = Question(task, "reports/heights/d", policy or Policy(), now, epsilon)
    receipt, sequence = answer_one(connection, question, task.domain.read(value), RecordingRng(), device=device)
    if sequence is None:
        return receipt, None
    frame = decode(outbox.page(connection, after=sequence - 1, limit=1)[0].payload)
    assert isinstance(frame, Frame)
    assert task.randomizer.admits(frame.reports[0].body)
    return receipt, frame.reports[0].body[0]


@pytest.mark.parametrize(
    ("max_epsilon", "lifetime", "place", "cost"),
    [("4", "4", 2, "2"), ("1", "4", 1, "1"), ("1.9", "4", 1, "1"), ("4", "0.7", 0, "0.5"), ("0.5", "0.5", 0, "0.5")],
)
def test_the_dearest_offer_within_the_limits_is_taken(
    connection: sqlite3.Connection, max_epsilon: str, lifetime: str, place: int, cost: str
) -> None:
    policy = Policy(max_epsilon, lifetime)
    for device, value in (("d", 120.0), ("e", 1e9), ("f", None)):
        receipt, named = offer(connection, policy=policy, value=value, device=device)
        assert (receipt.status, named, receipt.epsilon) == ("queued", place, Fraction(cost))
        assert [charge.epsilon for charge in ledger.charges(connection, device, "workplaces")] == [Fraction(cost)]


@pytest.mark.parametrize(
    ("policy", "reason"),
    [(Policy("0.4"), Reason.EPSILON_TOO_LARGE), (Policy(lifetime="0.4"), Reason.OVER_BUDGET)],
)
def test_a_device_that_no_offer_suits_names_the_cheapest(
    connection: sqlite3.Connection, policy: Policy, reason: Reason
) -> None:
    receipt, named = offer(connection, policy=policy)
    assert (receipt.status, receipt.reason, receipt.epsilon, named) == ("refused", reason, Fraction(1, 2), None)


def test_only_an_offered_epsilon_can_be_chosen(connection: sqlite3.Connection) -> None:
    for value in (172.0, None):
        with pytest.raises(EpsilonError, match=r"3.* 0\.5 .*1 .*2"):
            offer(connection, epsilon=Fraction(3), value=value)
    assert ledger.accounts(connection) == []
    with pytest.raises(EpsilonError, match=r"2.* 1"):
        give(connection, replace(ask(), epsilon=Fraction(2)))
    assert give(connection, replace(ask(), epsilon=Fraction(1)), device="e").status == "queued"


def test_a_chosen_epsilon_is_taken_within_the_limits(connection: sqlite3.Connection) -> None:
    receipt, named = offer(connection, epsilon=Fraction(1))
    assert (receipt.status, named, receipt.spent) == ("queued", 1, Fraction(1))
    receipt, named = offer(connection, epsilon=Fraction(2), policy=Policy(1), device="e")
    assert (receipt.status, receipt.reason, receipt.epsilon) == ("refused", Reason.EPSILON_TOO_LARGE, Fraction(2))
    assert named is None


def test_each_round_costs_its_part_of_an_offer(connection: sqlite3.Connection) -> None:
    first, named = offer(connection, day=1)
    assert (named, first.epsilon) == (2, Fraction(1))
    second, named = offer(connection, epsilon=Fraction(1, 2), day=2)
    assert (named, second.epsilon, second.spent) == (0, Fraction(1, 4), Fraction(5, 4))
    again, named = offer(connection, day=2)
    assert (again.status, again.epsilon, again.spent) == ("already_answered", Fraction(1, 4), Fraction(5, 4))
    assert named == 0, "that of the first answer, which still waits"


def test_entries_near_and_far_come_in_the_order_asked_for(connection: sqlite3.Connection) -> None:
    for _ in range(300):
        outbox.put(connection, "t", b"report")
    outbox.delete(connection, [2])
    for wanted in ([3, 1, 2], [300, 2, 1]):
        fetched = outbox.fetch(connection, wanted)
        assert [entry.sequence for entry in fetched] == [number for number in wanted if number != 2]
