"""Answers: the decision, the draw, the charge and the stored report, in one transaction.

The order is the privacy argument. `decide` says all that can be said without a value: whether, which offer, at what
cost, when. `draw` makes the report of the decision, the value and randomness, and cannot refuse. What it returns is
stored whatever it is; the draw, its charge and the encoded report become durable together or not at all; the network
sees only what is in the outbox.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from fractions import Fraction

from hush_client.book import Book
from hush_client.decide import Moment, decide
from hush_client.decision import Decision
from hush_client.draw import Drawn, draw
from hush_client.policy import Policy
from hush_client.receipt import Receipt
from hush_client.sending.schedule import milliseconds
from hush_client.state import ledger, outbox, pins, sticky
from hush_common.domain import Reading
from hush_common.rng import ReportRng
from hush_common.task import Task
from hush_common.wire import Report, encode_frame

__all__ = ["FRAME_REPORTS", "Question", "admit", "answer", "answer_all"]

FRAME_REPORTS = 256
"""Most reports of one frame: of one integer each it has 6168 bytes, and with the longest legal bodies 2.1 million."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of one device now. The value is no part of it.

    Args:
        device: whose answer it is.
        task: what is asked.
        topic: where the report goes.
        policy: the limits of the device.
        now: the time, aware.
        epsilon: which of the task's offers to take; None takes the largest that the limits allow.
        not_before: when the report may be sent, in milliseconds since 1970.
        delay: how far that is from `now`, in milliseconds; chosen before any value is asked for.
        capacity: most payloads that the outbox may hold, those aside that nobody counts any more; None sets no bound.
        frame: most reports of one payload, 1 to `FRAME_REPORTS`.
    """

    device: str
    task: Task
    topic: str
    policy: Policy
    now: datetime
    epsilon: Fraction | None = None
    not_before: int = 0
    delay: int = 0
    capacity: int | None = None
    frame: int = FRAME_REPORTS

    def of(self, device: str) -> "Question":
        """The same of another device."""
        return Question(
            device,
            self.task,
            self.topic,
            self.policy,
            self.now,
            self.epsilon,
            self.not_before,
            self.delay,
            self.capacity,
            self.frame,
        )


def answer(
    connection: sqlite3.Connection, question: Question, value: Reading, rng: ReportRng
) -> tuple[Receipt, int | None]:
    """Answer a question inside an open transaction.

    Returns:
        The receipt (an answer that was stored is `"queued"`), and the sequence number of its report, if that waits for
        the broker: of the one that was stored now, or of the one by which the round was answered before.

    Raises:
        EpsilonError: the task does not offer the epsilon that was asked for; nothing was drawn or written.
        StateError: the ledger or the memory of a sticky task is damaged; likewise.
    """
    return answer_all(connection, ((question, value),), rng)[0]


def answer_all(
    connection: sqlite3.Connection, asked: Sequence[tuple[Question, Reading]], rng: ReportRng
) -> list[tuple[Receipt, int | None]]:
    """Answer one round of one task for many devices, in frames of many reports, inside an open transaction.

    The order of the reports is that of their random ids, so that it tells nothing of the order of the devices.

    Args:
        connection: inside a transaction.
        asked: of different devices, the same in all but device and value.
        rng: where the noise comes from.

    Returns:
        As `answer`, for each question; reports of one frame have one sequence number.

    Raises:
        EpsilonError: as `answer`.
        StateError: as `answer`; the caller undoes the transaction.
    """
    if not asked:
        return []
    first, _ = asked[0]
    room = _has_room(connection, first, len(asked))
    answers: list[tuple[Receipt, int | None]] = []
    drawn: list[tuple[int, Decision, Drawn]] = []
    for place, (question, value) in enumerate(asked):
        receipt, decision = _decided(connection, question, room=room)
        answers.append((receipt, _earlier(connection, question.device, receipt) if receipt.waiting else None))
        if decision is not None:
            drawn.append((place, decision, draw(decision, value, rng)))
    frames = _frames([made.report for _, _, made in drawn], first.frame)
    numbered = enumerate(frames, start=outbox.next_sequence(connection))
    sequences = {report.id: sequence for sequence, frame in numbered for report in frame}
    for place, decision, made in drawn:
        (question, value), (receipt, _) = asked[place], answers[place]
        sequence = sequences[made.report.id]
        spent = _keep(connection, question, decision, made, sequence)
        answers[place] = receipt.charged(spent, made.report.id, value.became), sequence
    closes = None if first.task.closes is None else milliseconds(first.task.closes)
    for frame in frames:
        outbox.put(
            connection,
            first.topic,
            encode_frame(frame),
            not_before=first.not_before,
            delay=first.delay,
            closes=closes,
        )
    return answers


def admit(connection: sqlite3.Connection, question: Question) -> Receipt:
    """Decide alone, before anybody is asked for a value, inside an open transaction.

    A task that is admitted is pinned: from now on no other one is answered under its id, though nothing was charged.

    Returns:
        `"queued"`: an answer will be stored, unless something comes between. Else why not.
    """
    receipt, decision = _decided(connection, question, room=_has_room(connection, question, 1))
    if decision is not None:
        pins.pin(connection, question.device, question.task.id, question.task.digest)
    return receipt


def _has_room(connection: sqlite3.Connection, question: Question, reports: int) -> bool:
    frames = -(-reports // question.frame)
    if question.capacity is None or outbox.count(connection) + frames <= question.capacity:
        return True
    return outbox.count_in_time(connection, milliseconds(question.now)) + frames <= question.capacity


def _decided(connection: sqlite3.Connection, question: Question, *, room: bool) -> tuple[Receipt, Decision | None]:
    """Decide, and write down a refusal."""
    moment = Moment(question.now, question.not_before, question.delay)
    book = Book(connection, question.device)
    receipt, decision = decide(question.task, question.policy, book, room, moment, offer=question.epsilon)
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
    if _earlier(connection, question.device, receipt) is not None:
        receipt = replace(receipt, waiting=True)
    return receipt, decision


def _earlier(connection: sqlite3.Connection, device: str, receipt: Receipt) -> int | None:
    """Where the report waits by which the round was answered before; None where none does."""
    if receipt.status != "already_answered" or receipt.round is None:
        return None
    return outbox.find(connection, device, receipt.task, receipt.round)


def _keep(
    connection: sqlite3.Connection, question: Question, decision: Decision, drawn: Drawn, sequence: int
) -> Fraction:
    """Charge what was drawn, and keep what later rounds repeat; what was spent on the purpose by now."""
    task = decision.task
    if drawn.memory is not None:
        sticky.keep(connection, question.device, task.id, drawn.memory)
    charge = ledger.Charge(
        device=question.device,
        task=task.id,
        round=decision.round,
        digest=task.digest,
        purpose=task.purpose,
        mechanism=task.mechanism,
        epsilon=decision.cost,
        report_id=drawn.report.id,
        charged_at=question.now,
        sequence=sequence,
        kind="memo" if decision.repeats else "draw",
    )
    return ledger.charge(connection, charge)


def _frames(reports: list[Report], most: int) -> list[list[Report]]:
    """Which reports are sent together."""
    reports.sort(key=lambda report: report.id)
    return [reports[start : start + most] for start in range(0, len(reports), most)]
