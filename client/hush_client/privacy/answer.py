"""Answer: decide, draw, charge the ledger and store the report, in one transaction.

The order is the privacy argument. `decide` fixes everything but the report, without a value: whether to answer, under
which offer, at what cost, when. `draw` makes the report from the decision, the value and randomness, and cannot refuse.
Its result is stored whatever it is: the draw, its charge and the encoded report become durable together or not at all,
and only what is in the outbox is ever sent.
"""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from fractions import Fraction
from typing import Literal

from hush_client.policy import Policy
from hush_client.privacy.decide import DecisionTime, SpendingHistory, decide
from hush_client.privacy.decision import Decision
from hush_client.privacy.draw import Drawn, draw
from hush_client.receipt import Receipt
from hush_client.sending.schedule import milliseconds
from hush_client.state import ledger, outbox
from hush_common.domain import ParsedValue
from hush_common.rng import ReportRng
from hush_common.task import Task
from hush_common.wire import Report, encode_frame

FRAME_REPORTS = 256
"""Most reports in one frame: 6168 bytes with one integer each, 2.1 million with the longest legal bodies."""

_NOTHING = Fraction(0)


@dataclass(frozen=True, slots=True)
class Question:
    """One round of one task, as any number of devices are asked. It has no value."""

    task: Task
    topic: str  # of the reports
    policy: Policy
    now: datetime  # aware
    epsilon: Fraction | None = None  # one of the task's offers; None takes the largest that the limits allow
    not_before: int = 0  # when the reports may be sent, in milliseconds since 1970
    delay: int = 0  # `not_before` less `now`, in milliseconds; chosen before any source is called
    capacity: int | None = None  # most payloads in the outbox, without those that are too late to be counted
    frame: int = FRAME_REPORTS  # most reports in one payload, from 1


Answer = tuple[Receipt, int | None]
"""A receipt (of a stored answer: `"queued"`), and the outbox entry of its report if that waits for the broker."""


def answer(
    connection: sqlite3.Connection, question: Question, values: Mapping[str, ParsedValue], rng: ReportRng
) -> dict[str, Answer]:
    """Answer a question for some devices inside an open transaction.

    The reports are ordered by their random ids, so that their order does not depend on that of the devices. Reports in
    one frame share an entry of the outbox; if a round was answered before, the entry is that of the earlier report.

    Raises:
        EpsilonError: the task does not offer the requested epsilon; nothing was drawn or written.
        StateError: the ledger or the memory of a sticky task is damaged; the caller rolls back.
    """
    room = _has_room(connection, question, len(values))
    answers: dict[str, Answer] = {}
    drawn: dict[str, tuple[Decision, Drawn]] = {}
    for device, value in values.items():
        receipt, decision, earlier = _decide(connection, question, device, room=room)
        answers[device] = receipt, earlier
        if decision is not None:
            drawn[device] = decision, draw(decision, value, rng)
    frames = _frames([made.report for _, made in drawn.values()], question.frame)
    numbered = enumerate(frames, start=outbox.next_sequence(connection) if frames else 0)
    sequences = {report.id: sequence for sequence, frame in numbered for report in frame}
    for device, (decision, made) in drawn.items():
        sequence = sequences[made.report.id]
        spent = _charge(connection, question, device, decision, made, sequence=sequence)
        answers[device] = answers[device][0].charged(spent, made.report.id, values[device].coercion), sequence
    closes = None if question.task.closes is None else milliseconds(question.task.closes)
    for frame in frames:
        payload, times = encode_frame(frame), {"not_before": question.not_before, "delay": question.delay}
        outbox.put(connection, question.topic, payload, closes=closes, **times)
    return answers


def admit(connection: sqlite3.Connection, question: Question, device: str) -> Receipt:
    """Return `"queued"`, or the refusal, before a source is called, inside an open transaction.

    An admitted task is pinned: no other task is answered under its id from now on, although nothing was charged.
    """
    receipt, decision, _ = _decide(connection, question, device, room=_has_room(connection, question, 1))
    if decision is not None:
        ledger.pin(connection, device, question.task.id, question.task.digest)
    return receipt


def _has_room(connection: sqlite3.Connection, question: Question, reports: int) -> bool:
    frames = -(-reports // question.frame)
    if question.capacity is None or outbox.count(connection) + frames <= question.capacity:
        return True
    return outbox.count_in_time(connection, milliseconds(question.now)) + frames <= question.capacity


def _decide(
    connection: sqlite3.Connection, question: Question, device: str, *, room: bool
) -> tuple[Receipt, Decision | None, int | None]:
    """Decide, and record a refusal. The last item is the outbox entry of an earlier answer that still waits."""
    task, history = question.task, _history(connection, question, device)
    time = DecisionTime(question.now, question.not_before, question.delay)
    receipt, decision = decide(task, question.policy, history, room, time, offer=question.epsilon)
    if receipt.reason is not None:
        about = device, task.id, receipt.round, receipt.reason, task.purpose, receipt.epsilon
        ledger.refuse(connection, ledger.RefusedAnswer(*about, refused_at=question.now))
    earlier = None
    if receipt.status == "already_answered" and receipt.round is not None:
        earlier = outbox.find(connection, device, task.id, receipt.round)
        receipt = receipt if earlier is None else replace(receipt, waiting=True)
    if decision is not None and task.memoized_mechanism is not None:
        memory = ledger.find_memory(connection, device, task.id, task.memoized_mechanism, answered=history.charged)
        decision = replace(decision, memory=memory)
    return receipt, decision, earlier


def _history(connection: sqlite3.Connection, question: Question, device: str) -> SpendingHistory:
    task, answered = question.task, None
    pinned = ledger.pinned(connection, device, task.id)
    if pinned == task.digest and (round_ := task.current_round(question.now)) is not None:
        answered = ledger.find(connection, device, task.id, round_)
    return SpendingHistory(
        pinned=pinned,
        charged=task.repeat == "sticky" and ledger.is_charged(connection, device, task.id),
        answered=None if answered is None else (answered.epsilon, answered.report_id),
        spent=ledger.spent(connection, device, task.purpose),
        spent_in_all=_NOTHING if question.policy.total is None else ledger.spent_in_all(connection, device),
    )


def _charge(
    connection: sqlite3.Connection, question: Question, device: str, decision: Decision, drawn: Drawn, *, sequence: int
) -> Fraction:
    """Charge the ledger, save the memory of a sticky task, and return the purpose's new total."""
    task = decision.task
    if drawn.memory is not None:
        ledger.keep_memory(connection, device, task.id, drawn.memory)
    about = device, task.id, decision.round, task.digest, task.purpose, task.mechanism
    kind: Literal["draw", "memo"] = "memo" if decision.repeats else "draw"
    charge = ledger.Charge(*about, decision.cost, drawn.report.id, question.now, sequence, kind)
    return ledger.charge(connection, charge)


def _frames(reports: list[Report], most: int) -> list[list[Report]]:
    reports.sort(key=lambda report: report.id)
    return [reports[start : start + most] for start in range(0, len(reports), most)]
