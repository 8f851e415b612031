"""Decide: whether a device answers, under which offer, at what cost, in which round, and when the report leaves.

No value is in scope here, no source of values, and not even the type of one: what stands in this module depends on
what everybody may know, and on what the device has spent. That is the other half of the argument in
`hush_client.draw`; a test reads both signatures.
"""

from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from typing import Protocol

from hush_client.decision import Decision
from hush_client.policy import Policy
from hush_client.receipt import Reason, Receipt
from hush_common.epsilon import decimal_text
from hush_common.errors import EpsilonError
from hush_common.mechanisms.mechanism import Levelled
from hush_common.mechanisms.sticky import Memory
from hush_common.task import Task

__all__ = ["Answered", "Ledger", "Moment", "decide"]


_NOTHING = Fraction(0)


@dataclass(frozen=True, slots=True)
class Moment:
    """The time of a decision, and what it fixes of the time of sending.

    Args:
        now: aware.
        not_before: when the report may be sent, in milliseconds since 1970.
        delay: how far that is from `now`, in milliseconds.
    """

    now: datetime
    not_before: int = 0
    delay: int = 0


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer that was given before: its cost, and the id of its report."""

    epsilon: Fraction
    report_id: bytes


class Ledger(Protocol):
    """What one device remembers, as far as a decision asks for it. Nothing in it depends on a value."""

    def pinned(self, task: str, /) -> bytes | None:
        """The digest of the task that was admitted or answered under this id."""
        ...

    def paid(self, task: str, /) -> bool:
        """Whether anything was ever charged for it."""
        ...

    def answered(self, task: str, round_: int, /) -> Answered | None: ...

    def spent(self, purpose: str, /) -> Fraction: ...

    def spent_in_all(self) -> Fraction: ...

    def memory(self, task: str, mechanism: Levelled, /) -> Memory | None:
        """That of a sticky task, or None before its first answer.

        Raises:
            StateError: it is not what the ledger says.
        """
        ...


def decide(
    task: Task, policy: Policy, ledger: Ledger, room: bool, clock: Moment, *, offer: Fraction | None = None
) -> tuple[Receipt, Decision | None]:
    """Whether a device answers now, and how.

    Args:
        task: what is asked.
        policy: the limits of the device.
        ledger: what it has spent and answered.
        room: whether the outbox has room for one more report.
        clock: the time.
        offer: which of the task's epsilons to take; None takes the largest that the limits allow.

    Returns:
        The receipt, and the decision unless the receipt says `"refused"` or `"already_answered"`; else the receipt
        says `"queued"`, and what has been spent before.

    Raises:
        EpsilonError: the task does not offer that epsilon.
        StateError: the ledger, or the memory of a sticky task, is damaged.
    """
    round_ = task.current_round(clock.now)
    spent, pinned = ledger.spent(task.purpose), ledger.pinned(task.id)
    repeats = task.repeat == "sticky" and ledger.paid(task.id)
    in_all = _NOTHING if policy.total is None else ledger.spent_in_all()
    place, cost, reason = _choose(task, policy, offer, (spent, in_all), repeats=repeats)
    receipt = Receipt("queued", None, task.id, round_, cost, spent, policy.lifetime)
    if pinned not in (None, task.digest):
        return receipt.refused(Reason.TASK_CHANGED), None
    if round_ is None:
        early = task.opens is not None and clock.now < task.opens
        return receipt.refused(*((Reason.NOT_OPEN, task.opens) if early else (Reason.CLOSED, task.closes))), None
    first = None if pinned is None else ledger.answered(task.id, round_)  # whoever answered is bound to the task
    if first is not None:
        return receipt.repeated(first.epsilon, first.report_id), None
    if reason is None and not room:
        reason = Reason.OUTBOX_FULL
    if reason is not None:
        return receipt.refused(reason), None
    mechanism = task.levelled
    memory = None if mechanism is None else ledger.memory(task.id, mechanism)
    return receipt, Decision(task, round_, place, cost, repeats, memory, not_before=clock.not_before, delay=clock.delay)


def _totals(task: Task) -> tuple[Fraction, ...]:
    return task.offers or (task.epsilon,)


def _cost(task: Task, total: Fraction, *, repeats: bool) -> Fraction:
    """What one answer costs. A sticky task costs all of it at first: later, what was spent would tell of the value."""
    if task.repeat == "sticky":
        return _NOTHING if repeats else total
    return total if task.rounds == 1 else total / task.rounds


def _choose(
    task: Task, policy: Policy, asked: Fraction | None, spent: tuple[Fraction, Fraction], *, repeats: bool
) -> tuple[int, Fraction, Reason | None]:
    """The number of the offer, what one answer costs under it, and why even that one is too dear.

    Args:
        task: what is asked.
        policy: the limits of the device.
        asked: the epsilon that was asked for, if one was.
        spent: on the purpose, and on all purposes.
        repeats: whether the answer was paid for before.

    Raises:
        EpsilonError: the task does not offer the epsilon that was asked for.
    """
    totals = _totals(task)
    candidates = range(len(totals))
    if asked is not None:
        if asked not in totals:
            texts = " or ".join(map(decimal_text, totals))
            raise EpsilonError("epsilon", f"{task.id} does not offer {decimal_text(Fraction(asked))}; choose {texts}")
        candidates = range(totals.index(asked), totals.index(asked) + 1)
    if task.repeat == "sticky" and not policy.sticky:
        return candidates[0], _cost(task, totals[candidates[0]], repeats=repeats), Reason.CHANGES_SHOW
    cost, reason = _NOTHING, None
    for place in reversed(candidates):  # the last one looked at is the first offer, if none will do
        cost = _cost(task, totals[place], repeats=repeats)
        reason = _over_limit(policy, totals[place], spent, cost)
        if reason is None:
            return place, cost, None
    return candidates[0], cost, reason


def _over_limit(policy: Policy, total: Fraction, spent: tuple[Fraction, Fraction], cost: Fraction) -> Reason | None:
    if total > policy.max_epsilon:
        return Reason.EPSILON_TOO_LARGE
    if (spent[0] + cost if spent[0] else cost) > policy.lifetime:
        return Reason.OVER_BUDGET
    if policy.total is not None and spent[1] + cost > policy.total:
        return Reason.OVER_TOTAL
    return None
