"""One answer: the decision, the charge, the draw and the stored report, in one transaction.

The order is the privacy argument. Everything that can refuse stands before the draw; the draw, its charge and the
encoded report become durable together or not at all; the network sees only what is in the outbox.
"""

import sqlite3
from dataclasses import dataclass, field, replace
from datetime import datetime
from fractions import Fraction

from hush_client import ledger, outbox
from hush_client.policy import Policy
from hush_client.receipt import Reason, Receipt
from hush_common.codec import encode_frame
from hush_common.mechanisms.build import build
from hush_common.report import Report
from hush_common.rng import Rng
from hush_common.task import Task

__all__ = ["Question", "answer"]


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of one device now, and its private value, which no text made of this shows."""

    device: str
    task: Task
    value: object = field(repr=False)
    topic: str
    policy: Policy
    now: datetime


def answer(connection: sqlite3.Connection, question: Question, rng: Rng) -> tuple[Receipt, int | None]:
    """Answer a question inside an open transaction.

    Returns:
        The receipt (an answer that was stored is `"queued"`), and the sequence number of the stored report, if any.

    Raises:
        DomainError: the domain does not admit the value; nothing was drawn or written.
    """
    task, device = question.task, question.device
    round_ = task.current_round(question.now)
    receipt = Receipt(
        status="refused",
        reason=None,
        task=task.id,
        round=round_,
        epsilon=task.epsilon_per_round,
        spent=ledger.spent(connection, device, task.purpose),
        cap=question.policy.lifetime,
    )
    if ledger.pinned_digest(connection, device, task.id) not in (None, task.digest):
        return replace(receipt, reason=Reason.TASK_CHANGED), None
    if round_ is None:
        return replace(receipt, reason=Reason.NOT_OPEN), None
    first = ledger.find(connection, device, task.id, round_)
    if first is not None:
        return replace(receipt, status="already_answered", report_id=first.report_id.hex()), None
    reason = _over_limit(question.policy, task, receipt.spent)
    if reason is not None:
        return replace(receipt, reason=reason), None
    index = task.domain.index(question.value)
    report = Report.new(task.digest, round_, build(task).perturb(index.index, rng), rng)
    spent = ledger.charge(connection, _charge(question, report))
    sequence = outbox.put(connection, question.topic, encode_frame((report,)))
    stored = replace(receipt, status="queued", spent=spent, report_id=report.id.hex(), clamped=index.clamped)
    return stored, sequence


def _over_limit(policy: Policy, task: Task, spent: Fraction) -> Reason | None:
    if task.epsilon > policy.max_epsilon:
        return Reason.EPSILON_TOO_LARGE
    if spent + task.epsilon_per_round > policy.lifetime:
        return Reason.OVER_BUDGET
    return None


def _charge(question: Question, report: Report) -> ledger.Charge:
    task = question.task
    return ledger.Charge(
        device=question.device,
        task=task.id,
        round=report.round,
        digest=task.digest,
        purpose=task.purpose,
        mechanism=task.mechanism,
        epsilon=task.epsilon_per_round,
        report_id=report.id,
        charged_at=question.now,
    )
