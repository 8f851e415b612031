"""Decide: whether a device answers, under which offer, at what cost, in which round, and when the report is sent.

No value is in scope here, no source of values, and not even the type of one: a decision depends on public facts and on
what the device has spent. `hush_client.privacy.draw` is the other half of the argument; a test reads both signatures.
"""

from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

from hush_client.policy import Policy
from hush_client.privacy.decision import Decision
from hush_client.receipt import Reason, Receipt
from hush_common.epsilon import decimal_text
from hush_common.errors import EpsilonError
from hush_common.task import Task

_NOTHING = Fraction(0)


@dataclass(frozen=True, slots=True)
class DecisionTime:
    """The time of a decision, and the time of sending that follows from it."""

    now: datetime  # aware
    not_before: int = 0  # when the report may be sent, in milliseconds since 1970
    delay: int = 0  # `not_before` less `now`, in milliseconds


@dataclass(frozen=True, slots=True)
class SpendingHistory:
    """What the ledger of one device says about a task and its purpose. Nothing in it depends on a value."""

    pinned: bytes | None = None  # digest of the task that was admitted or answered under this id, if any
    charged: bool = False  # whether a sticky task was charged
    answered: tuple[Fraction, bytes] | None = None  # epsilon and report id of the answer to the open round, if any
    spent: Fraction = _NOTHING  # on the task's purpose
    spent_in_all: Fraction = _NOTHING  # on all purposes, if the policy limits that


def decide(
    task: Task,
    policy: Policy,
    history: SpendingHistory,
    room: bool,
    time: DecisionTime,
    *,
    offer: Fraction | None = None,
) -> tuple[Receipt, Decision | None]:
    """Decide whether a device answers now, and how.

    Args:
        task: what is asked.
        policy: the limits of the device.
        history: what it has spent and answered.
        room: whether the outbox has room for one more report.
        time: of the decision.
        offer: one of the task's epsilons; None takes the largest that the limits allow.

    Returns:
        The receipt, with the spending before it; and the decision if the receipt is `"queued"`.

    Raises:
        EpsilonError: the task does not offer that epsilon.
    """
    round_ = task.current_round(time.now)
    repeats = task.repeat == "sticky" and history.charged
    place, cost, reason = _choose(task, policy, offer, (history.spent, history.spent_in_all), repeats=repeats)
    receipt = Receipt("queued", None, task.id, round_, cost, history.spent, policy.lifetime)
    if history.pinned not in (None, task.digest):
        return receipt.refused(Reason.TASK_CHANGED), None
    if round_ is None:
        early = task.opens is not None and time.now < task.opens
        return receipt.refused(*((Reason.NOT_OPEN, task.opens) if early else (Reason.CLOSED, task.closes))), None
    if history.answered is not None:
        return receipt.repeated(*history.answered), None
    if reason is None and not room:
        reason = Reason.OUTBOX_FULL
    if reason is not None:
        return receipt.refused(reason), None
    return receipt, Decision(task, round_, place, cost, repeats, not_before=time.not_before, delay=time.delay)


def _cost(task: Task, total: Fraction, *, repeats: bool) -> Fraction:
    """Return what one answer costs. A sticky task is charged in full at once: later charges would depend on values."""
    if task.repeat == "sticky":
        return _NOTHING if repeats else total
    return total if task.rounds == 1 else total / task.rounds


def _choose(
    task: Task, policy: Policy, asked: Fraction | None, spent: tuple[Fraction, Fraction], *, repeats: bool
) -> tuple[int, Fraction, Reason | None]:
    """Return the index of the offer, the cost of one answer, and why even the smallest epsilon exceeds the limits.

    `spent` is on the purpose, and on all purposes; `repeats` says whether the answer was paid for before.
    """
    totals = task.offers or (task.epsilon,)
    candidates = range(len(totals))
    if asked is not None:
        if asked not in totals:
            texts = " or ".join(map(decimal_text, totals))
            raise EpsilonError("epsilon", f"{task.id} does not offer {decimal_text(Fraction(asked))}; choose {texts}")
        candidates = range(totals.index(asked), totals.index(asked) + 1)
    if task.repeat == "sticky" and not policy.sticky:
        return candidates[0], _cost(task, totals[candidates[0]], repeats=repeats), Reason.CHANGES_SHOW
    cost, reason = _NOTHING, None
    for place in reversed(candidates):  # ends with the smallest if none fits
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
