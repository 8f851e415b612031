"""A sticky task on a device: charged and drawn once, answered from memory, and the ledger silent about the value."""

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import partial
from pathlib import Path

import pytest
from answers import RecordingRng, answer_one
from device_state import in_memory, opened_state
from heights import make_heights

from hush_client import Policy, Reason, Receipt
from hush_client.privacy.answer import Question
from hush_client.privacy.decision import Decision
from hush_client.privacy.draw import draw
from hush_client.state import ledger, outbox
from hush_common.errors import StateError
from hush_common.mechanisms.sticky import Memory
from hush_common.rng import SystemRng
from hush_common.task import decode_task
from hush_common.wire import Frame, decode

NOW = datetime(2026, 1, 1, tzinfo=UTC)
POLICY = Policy(sticky=True)
LOW, HIGH = 120.0, 220.0


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with in_memory() as connection:
        yield connection


def ask(day: int = 0, *, policy: Policy = POLICY, **changes: object) -> Question:
    document: dict[str, object] = {
        "rounds": 30,
        "round_every": "1d",
        "opens": "2026-01-01T00:00:00Z",
        "repeat": "sticky",
        "levels": 3,
    }
    task = decode_task(make_heights(**(document | changes)))
    return Question(task, "topic", policy, NOW + timedelta(days=day))


def give(
    connection: sqlite3.Connection,
    value: object,
    question: Question,
    rng: RecordingRng | None = None,
    device: str = "d",
) -> Receipt:
    reading = question.task.domain.read(value)
    return answer_one(connection, question, reading, rng or RecordingRng(), device=device)[0]


def bodies(connection: sqlite3.Connection) -> list[tuple[int, ...]]:
    frames = [decode(entry.payload) for entry in outbox.page(connection, after=0, limit=100)]
    return [report.body for frame in frames if isinstance(frame, Frame) for report in frame.reports]


def test_only_the_first_sticky_answer_is_charged(connection: sqlite3.Connection) -> None:
    first = give(connection, LOW, ask())
    assert (first.status, first.epsilon, first.spent) == ("queued", Fraction(1), Fraction(1))
    for day in range(1, 30):
        rng = RecordingRng()
        receipt = give(connection, LOW, ask(day), rng)
        assert (receipt.status, receipt.epsilon, receipt.spent) == ("queued", Fraction(0), Fraction(1))
        assert rng.draws == 1  # the id of the report
    charges = ledger.charges(connection, "d", "workplaces")
    assert [charge.kind for charge in charges] == ["draw"] + ["memo"] * 29
    assert sum(charge.epsilon for charge in charges) == 1
    assert len({charge.report_id for charge in charges}) == 30
    assert len(set(bodies(connection))) == 1


def test_a_level_that_was_met_before_has_the_report_of_before(connection: sqlite3.Connection) -> None:
    give(connection, LOW, ask())
    connection.execute("UPDATE memory SET reports = '[3, 1, 1, 2]'")
    for day, value in enumerate((LOW, HIGH, LOW, HIGH, LOW), start=1):
        give(connection, value, ask(day))
    assert bodies(connection)[1:] == [(3,), (2,), (3,), (2,), (3,)]


def test_the_threshold_decides_the_level_between_two(connection: sqlite3.Connection) -> None:
    give(connection, LOW, ask())
    steps = 1 << 20
    for day, threshold in enumerate((0, steps // 2 - 1, steps // 2, steps - 1), start=1):
        connection.execute("UPDATE memory SET threshold = ?, reports = '[0, 1, 2, 3]'", (threshold,))
        give(connection, 170.0, ask(day))  # the middle of the range lies half way from level 1 to level 2
    assert bodies(connection)[1:] == [(2,), (2,), (1,), (1,)]


def test_the_ledger_and_the_draws_are_the_same_whatever_the_values_are(connection: sqlite3.Connection) -> None:
    told = []
    for device, values in (("calm", [170.0] * 4), ("wild", [LOW, HIGH, 170.0, 199.0])):
        rng = RecordingRng()
        receipts = [
            replace(give(connection, value, ask(day), rng, device), report_id=None) for day, value in enumerate(values)
        ]
        charges = ledger.charges(connection, device, "workplaces")
        first = charges[0].sequence or 0
        charges = [replace(c, device="", report_id=b"", sequence=(c.sequence or 0) - first) for c in charges]
        told.append((receipts, charges, rng.draws))
    assert told[0] == told[1]


def test_sticky_tasks_need_a_policy_that_allows_them(connection: sqlite3.Connection) -> None:
    rng = RecordingRng()
    receipt = give(connection, LOW, ask(policy=Policy()), rng)
    assert (receipt.status, receipt.reason) == ("refused", Reason.CHANGES_SHOW)
    assert (rng.draws, outbox.count(connection)) == (0, 0)
    assert [entry.reason for entry in ledger.refusals(connection)] == ["changes_show"]


def test_a_cap_applies_to_the_first_sticky_answer_only(connection: sqlite3.Connection) -> None:
    tight = replace(POLICY, lifetime=Fraction(1), total=Fraction(1))
    assert give(connection, LOW, ask(policy=replace(tight, lifetime=Fraction(99, 100)))).reason is Reason.OVER_BUDGET
    statuses = {give(connection, value, ask(day, policy=tight)).status for day, value in enumerate((LOW, HIGH) * 5)}
    assert statuses == {"queued"}
    assert give(connection, LOW, ask(20, policy=replace(POLICY, max_epsilon=Fraction(1, 2)))).status == "refused"


def test_a_task_that_turned_sticky_under_the_same_id_is_another_task(connection: sqlite3.Connection) -> None:
    give(connection, LOW, ask(repeat="fresh", mechanism="multilevel"))
    assert give(connection, LOW, ask(1)).reason is Reason.TASK_CHANGED


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM memory",
        "UPDATE memory SET threshold = -1",
        "UPDATE memory SET threshold = 1048576",
        "UPDATE memory SET threshold = 'x'",
        "UPDATE memory SET threshold = 0.5",
        "UPDATE memory SET reports = '[0, 1, 2]'",
        "UPDATE memory SET reports = '[0, 1, 2, 4]'",
        "UPDATE memory SET reports = '[0, 1, 2, true]'",
        "UPDATE memory SET reports = '7'",
        "UPDATE memory SET reports = '['",
        "UPDATE memory SET reports = x'00'",
        "UPDATE memory SET substitute = -1",
        "UPDATE memory SET substitute = 1048577",
        "UPDATE memory SET substitute = 'x'",
        "UPDATE memory SET substitute = NULL",
        "DELETE FROM charge",
    ],
)
def test_a_memory_that_does_not_fit_the_ledger_stops_the_device(connection: sqlite3.Connection, damage: str) -> None:
    give(connection, LOW, ask())
    assert connection.execute(damage).rowcount == 1
    rng = RecordingRng()
    with pytest.raises(StateError, match="second"):
        give(connection, LOW, ask(1), rng)
    assert rng.draws == 0
    assert outbox.count(connection) == 1


def test_a_missing_value_has_the_same_report_in_every_round(connection: sqlite3.Connection) -> None:
    for day in range(10):
        rng = RecordingRng()
        receipt = give(connection, None, ask(day), rng)
        assert (receipt.status, receipt.value) == ("queued", "replaced")
        assert rng.draws == (7 if day == 0 else 1)  # four levels, threshold, substitute, id; then the id
    assert len(set(bodies(connection))) == 1
    connection.execute("UPDATE memory SET threshold = 0, reports = '[0, 1, 2, 3]', substitute = 1048576")
    give(connection, None, ask(10))
    assert bodies(connection)[-1] == (3,)


def test_a_second_memory_is_never_written_over_the_first(connection: sqlite3.Connection) -> None:
    give(connection, LOW, ask())
    with pytest.raises(sqlite3.IntegrityError):
        ledger.keep_memory(connection, "d", "heights", Memory(0, (0, 1, 2, 3), 5))


def test_a_bit_has_two_reports_to_remember(connection: sqlite3.Connection) -> None:
    for day in range(8):
        give(connection, day % 2 == 0, ask(day, domain={"kind": "bit"}, levels=[]))
    sent = bodies(connection)
    assert sent == sent[:2] * 4
    assert ledger.spent(connection, "d", "workplaces") == 1


async def test_the_memory_outlives_a_restart(tmp_path: Path) -> None:
    for day in range(4):
        question, value = ask(day), (LOW, HIGH)[day % 2]
        read = question.task.domain.read(value)
        async with opened_state(tmp_path) as state:
            await state.run(partial(answer_one, question=question, value=read, rng=SystemRng()))
            memories = await state.run(lambda c: c.execute("SELECT count(*) FROM memory").fetchone())
            sent = await state.run(bodies)
        assert memories == (1,)
    assert sent == sent[:2] * 2


def test_no_text_shows_the_memory(connection: sqlite3.Connection) -> None:
    question, memory = ask(), Memory(77, (1, 0, 1, 2), 88)
    decision = Decision(question.task, 0, 0, Fraction(1), repeats=True, memory=memory, not_before=0, delay=0)
    drawn = draw(decision, question.task.domain.read(LOW), SystemRng())
    shown = repr(decision) + repr(drawn) + repr(memory) + repr(give(connection, LOW, ask()))
    assert not any(part in shown for part in ("memory=", "77", "88"))
