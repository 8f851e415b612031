"""Answers: the decision, the charge, the draw and the stored report, in one transaction.

The order is the privacy argument. Everything that can refuse stands before the draw; the draw, its charge and the
encoded report become durable together or not at all; the network sees only what is in the outbox.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from fractions import Fraction

from hush_client import ledger, memory, outbox
from hush_client.policy import Policy
from hush_client.receipt import Reason, Receipt
from hush_common.codec import encode_frame
from hush_common.domain import Index
from hush_common.epsilon import decimal_text
from hush_common.errors import DomainError, EpsilonError
from hush_common.mechanisms import perturb
from hush_common.mechanisms.sticky import Memory
from hush_common.report import Report
from hush_common.rng import Rng
from hush_common.task import Task

__all__ = ["FRAME_REPORTS", "Question", "answer", "answer_all", "preview"]

FRAME_REPORTS = 256
"""Most reports of one frame: of one integer each it has 6160 bytes, and with the longest legal bodies 2.1 million."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of one device now, and its private value, which no text made of this shows.

    Args:
        device: whose answer it is.
        task: what is asked.
        value: the private value.
        topic: where the report goes.
        policy: the limits of the device.
        now: the time, aware.
        epsilon: which of the task's offers to take; None takes the dearest that the limits admit.
        not_before: when the report may be sent, in milliseconds since 1970.
        delay: how far that is from `now`, in milliseconds; chosen without regard to the value.
        capacity: most payloads that the outbox may hold; None sets no bound.
    """

    device: str
    task: Task
    value: object = field(repr=False)
    topic: str
    policy: Policy
    now: datetime
    epsilon: Fraction | None = None
    not_before: int = 0
    delay: int = 0
    capacity: int | None = None


def answer(connection: sqlite3.Connection, question: Question, rng: Rng) -> tuple[Receipt, int | None]:
    """Answer a question inside an open transaction.

    Returns:
        The receipt (an answer that was stored is `"queued"`), and the sequence number of the stored report, if any.

    Raises:
        DomainError: the domain does not admit the value; nothing was drawn or written.
        EpsilonError: the task does not offer the epsilon that was asked for; likewise.
        StateError: the ledger or the memory of a sticky task is damaged; likewise.
    """
    return answer_all(connection, (question,), rng)[0]


def answer_all(
    connection: sqlite3.Connection, questions: Sequence[Question], rng: Rng
) -> list[tuple[Receipt, int | None]]:
    """Answer one round of one task for many devices, in frames of many reports, inside an open transaction.

    The order of the reports is that of their random ids, so that it tells nothing of the order of the devices.

    Args:
        connection: inside a transaction.
        questions: of different devices, the same in all but device and value.
        rng: where the noise comes from.

    Returns:
        As `answer`, for each question; reports of one frame have one sequence number.

    Raises:
        DomainError: as `answer`, for the first device whose value it is; the caller undoes the transaction.
    """
    if not questions:
        return []
    first = questions[0]
    frames = -(-len(questions) // FRAME_REPORTS)
    room = first.capacity is None or outbox.count(connection) + frames <= first.capacity
    drawn = []
    for question in questions:
        try:
            drawn.append(_draw(connection, question, rng, room=room))
        except DomainError as error:
            if len(questions) == 1:
                raise
            raise DomainError(f"device {question.device!r}: {error}") from error
    reports = sorted((report for _, report in drawn if report is not None), key=lambda report: report.id)
    sequences: dict[bytes, int] = {}
    for start in range(0, len(reports), FRAME_REPORTS):
        frame = reports[start : start + FRAME_REPORTS]
        payload = encode_frame(frame)
        sequence = outbox.put(connection, first.topic, payload, not_before=first.not_before, delay=first.delay)
        sequences |= dict.fromkeys((report.id for report in frame), sequence)
    return [(receipt, None if report is None else sequences[report.id]) for receipt, report in drawn]


def _draw(connection: sqlite3.Connection, question: Question, rng: Rng, *, room: bool) -> tuple[Receipt, Report | None]:
    """Decide, charge and draw; the report is yet to be stored."""
    task, device = question.task, question.device
    round_ = task.current_round(question.now)
    spent = ledger.spent(connection, device, task.purpose)
    pinned = ledger.pinned_digest(connection, device, task.id)
    paid = pinned is not None and task.repeat == "sticky"
    in_all = Fraction(0) if question.policy.total is None else ledger.spent_in_all(connection, device)
    offer, reason = _choose(question, spent, in_all, paid=paid)
    cost = _cost(task, _totals(task)[offer], paid=paid)
    receipt = Receipt(
        status="refused",
        reason=None,
        task=task.id,
        round=round_,
        epsilon=cost,
        spent=spent,
        cap=question.policy.lifetime,
    )
    if pinned not in (None, task.digest):
        return _refused(connection, question, replace(receipt, reason=Reason.TASK_CHANGED)), None
    if round_ is None:
        return _refused(connection, question, replace(receipt, reason=Reason.NOT_OPEN)), None
    first = ledger.find(connection, device, task.id, round_)
    if first is not None:
        known = replace(receipt, status="already_answered", epsilon=first.epsilon, report_id=first.report_id.hex())
        return known, None
    if reason is not None:
        return _refused(connection, question, replace(receipt, reason=reason)), None
    if not room:
        return _refused(connection, question, replace(receipt, reason=Reason.OUTBOX_FULL)), None
    index = task.domain.index(question.value)
    body = _body(connection, question, index, rng, offer=offer, paid=paid)
    report = Report.new(task.digest, round_, body, rng)
    spent = ledger.charge(connection, _charge(question, report, cost, paid=paid))
    stored = replace(receipt, status="queued", spent=spent, report_id=report.id.hex(), clamped=index.clamped)
    return stored, report


def preview(connection: sqlite3.Connection, question: Question) -> Receipt | None:
    """What `answer` would say before it looks at the value: a refusal, or the answer of before; None if it would draw.

    It is the same code, asked with a value that no domain admits and with no randomness, so that the two cannot differ.
    """
    try:
        receipt, _ = answer(connection, replace(question, value=None), _NoRng())
    except DomainError:
        return None
    return receipt


class _NoRng:
    """The randomness of a preview: there is none."""

    def randbelow(self, n: int, /) -> int:
        raise AssertionError(f"a preview drew below {n}")

    def token_bytes(self, count: int, /) -> bytes:
        raise AssertionError(f"a preview drew {count} bytes")


def _body(
    connection: sqlite3.Connection, question: Question, index: Index, rng: Rng, *, offer: int, paid: bool
) -> tuple[int, ...]:
    """A fresh draw, or what the memory of a sticky task has for this value: it is drawn whole before the first answer.

    Raises:
        StateError: the memory is not what the ledger says.
    """
    task, device = question.task, question.device
    if (mechanism := task.levelled) is None:
        return perturb(task.randomizer, index, rng, offer)
    known = memory.find(connection, device, task.id, mechanism, answered=paid)
    if known is None:
        known = Memory.draw(mechanism, rng)
        memory.keep(connection, device, task.id, known)
    return known.body(mechanism, index.scalar)


def _refused(connection: sqlite3.Connection, question: Question, receipt: Receipt) -> Receipt:
    """Write down that and why nobody answers; what the value is has no part in either."""
    if receipt.reason is not None:
        entry = ledger.Refused(
            device=question.device,
            task=receipt.task,
            round=receipt.round,
            reason=receipt.reason,
            purpose=question.task.purpose,
            epsilon=receipt.epsilon,
            refused_at=question.now,
        )
        ledger.refuse(connection, entry)
    return receipt


def _totals(task: Task) -> tuple[Fraction, ...]:
    return task.offers or (task.epsilon,)


def _cost(task: Task, total: Fraction, *, paid: bool) -> Fraction:
    """What one answer costs. A sticky task costs all of it at first: later, what was spent would tell of the value."""
    if task.repeat == "sticky":
        return Fraction(0) if paid else total
    return total / task.rounds


def _choose(question: Question, spent: Fraction, in_all: Fraction, *, paid: bool) -> tuple[int, Reason | None]:
    """The number of the offer, and why even that one is too dear. The value has no part in it: privacy rests on that.

    Raises:
        EpsilonError: the task does not offer the epsilon that was asked for.
    """
    task, asked, policy = question.task, question.epsilon, question.policy
    totals = _totals(task)
    candidates = range(len(totals))
    if asked is not None:
        if asked not in totals:
            texts = " or ".join(map(decimal_text, totals))
            raise EpsilonError("epsilon", f"{task.id} does not offer {decimal_text(Fraction(asked))}; choose {texts}")
        candidates = range(totals.index(asked), totals.index(asked) + 1)
    if task.repeat == "sticky" and not policy.sticky:
        return candidates[0], Reason.CHANGES_SHOW
    reason = None
    for offer in reversed(candidates):
        cost = _cost(task, totals[offer], paid=paid)
        reason = _over_limit(policy, totals[offer], spent + cost, in_all + cost)
        if reason is None:
            return offer, None
    return candidates[0], reason


def _over_limit(policy: Policy, total: Fraction, spent: Fraction, in_all: Fraction) -> Reason | None:
    if total > policy.max_epsilon:
        return Reason.EPSILON_TOO_LARGE
    if spent > policy.lifetime:
        return Reason.OVER_BUDGET
    if policy.total is not None and in_all > policy.total:
        return Reason.OVER_TOTAL
    return None


def _charge(question: Question, report: Report, cost: Fraction, *, paid: bool) -> ledger.Charge:
    task = question.task
    return ledger.Charge(
        device=question.device,
        task=task.id,
        round=report.round,
        digest=task.digest,
        purpose=task.purpose,
        mechanism=task.mechanism,
        epsilon=cost,
        report_id=report.id,
        charged_at=question.now,
        kind="memo" if paid else "draw",
    )
