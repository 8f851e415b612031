"""Receipt: the result of an answer, and why."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fractions import Fraction
from typing import Literal

from hush_common.domain import Coercion
from hush_common.errors import ExplainedEnum
from hush_common.topics import Acknowledgement

_FIRST_REFUSAL = 0x80  # reason codes from here on are refusals


class Undelivered(ExplainedEnum):
    """Why the broker does not have a report that it was sent. The charge remains; the same bytes are sent again."""

    FORBIDDEN = "forbidden", "the broker's access rules forbid it; correct them, or this device's user and name"
    NO_SUBSCRIBER = "no_subscriber", "no client has subscribed to such reports; start the aggregator or name its broker"
    OVER_QUOTA = "over_quota", "a quota of the broker is used up; raise its limits"
    TOO_LARGE = "too_large", "it is longer than the broker accepts; raise its limit of packets or messages"
    INVALID = "invalid", "the broker does not accept payloads of this form; correct its rules"
    REFUSED = "refused", "the broker refuses it without a reason; read its log"

    @classmethod
    def of(cls, answer: Acknowledgement) -> "Undelivered | None":
        """Return the meaning of a reason code; None if the broker has the report."""
        found = _REASON_CODES.get(answer.reason)
        return cls.REFUSED if found is None and answer.reason >= _FIRST_REFUSAL else found


_REASON_CODES = {
    0x10: Undelivered.NO_SUBSCRIBER,
    0x87: Undelivered.FORBIDDEN,
    0x95: Undelivered.TOO_LARGE,
    0x97: Undelivered.OVER_QUOTA,
    0x99: Undelivered.INVALID,
}


Status = Literal["sent", "queued", "undelivered", "already_answered", "refused"]


class Reason(ExplainedEnum):
    """Why a device refuses to answer, never because of a value. Nothing is drawn, spent or sent."""

    EPSILON_TOO_LARGE = "epsilon_too_large", "the task costs more than this device allows a single task"
    OVER_BUDGET = "over_budget", "the answer would exceed this device's lifetime budget for the task's purpose"
    OVER_TOTAL = "over_total", "the answer would exceed this device's lifetime budget for all purposes together"
    CHANGES_SHOW = (
        "changes_show",
        "its repeated answer reveals when the value changes, which this device does not allow",
    )
    TASK_CHANGED = "task_changed", "this device has answered a different task under the same id"
    NOT_OPEN = "not_open", "the task has not opened yet"
    CLOSED = "closed", "the task is closed"
    OUTBOX_FULL = "outbox_full", "too many reports wait for the broker; check the connection and answer later"


_CAVEAT = "a client has subscribed to such reports; the broker does not say whether it is the aggregator"
_CAVEAT_OLD = "over MQTT 3.1.1 a broker also acknowledges what its rules forbid, and what no client receives"


@dataclass(frozen=True, slots=True)
class Receipt:
    """The result of an answer, and why."""

    #: `"sent"`: the broker has acknowledged it; `caveat` says what that leaves open. `"queued"`: it is charged and
    #: stored, and will be sent (also after a restart). `"undelivered"`: it is charged, stored and sent, but the broker
    #: does not have it; it is sent again, at least every hour. `"already_answered"`: the round has its answer, which
    #: this describes; nothing new was drawn or spent, and `waiting` says whether the broker has it. `"refused"`:
    #: nothing was drawn, spent or sent.
    status: Status
    reason: Reason | Undelivered | None  #: why it was refused, or why the broker does not have it; else None
    task: str  #: id of the task
    round: int | None  #: the round that was answered; None if none is open
    epsilon: Fraction  #: what the answer costs; if refused, what the cheapest offer would have cost
    spent: Fraction  #: what this device has spent on the task's purpose, with this answer
    cap: Fraction  #: the most it may ever spend on that purpose
    #: The 32 hexadecimal digits under which the aggregator counts the report; None if refused.
    report_id: str | None = None
    #: How the value of this call was used: `"used"`; `"moved"` into the domain; `"replaced"` by a uniform draw, because
    #: it was not usable (`hush_common.domain`). None if nothing was answered now. It reveals something about the value,
    #: so hush neither stores, sends, logs nor shows it. Do not do that either.
    value: Coercion | None = field(default=None, repr=False)
    moment: datetime | None = None  #: when the task opens, if it has not; when it closed, if it has (aware); else None
    offline: bool = False  #: whether the answer was given without a connection, to the task as cached here
    #: Of an acknowledged one, whether the broker could have refused it (MQTT 5); else None.
    can_refuse: bool | None = None
    #: Of a round that was answered before, whether its report still waits for the broker. It is sent again; if the
    #: broker refused it since the client was opened, `reason` says why.
    waiting: bool = False
    #: What was wrong with the source of this answer, in one line for its programmer: a wrong type, an exception, a time
    #: that was too short. Empty if nothing was, or there is no source. It names types only; as `value`, it reveals
    #: something about the value.
    fault: str = field(default="", repr=False)

    @property
    def meaning(self) -> str:
        """Why it was refused or is undelivered, in one line for a person; else empty."""
        if self.reason is None or self.moment is None:
            return "" if self.reason is None else self.reason.meaning
        since = "; it opens on" if self.reason is Reason.NOT_OPEN else ", since"
        return f"{self.reason.meaning}{since} {self.moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"

    def refused(self, reason: Reason, moment: datetime | None = None) -> "Receipt":
        return replace(self, status="refused", reason=reason, moment=moment)

    def repeated(self, epsilon: Fraction, report_id: bytes) -> "Receipt":
        return replace(self, status="already_answered", epsilon=epsilon, report_id=report_id.hex())

    def charged(self, spent: Fraction, report_id: bytes, value: Coercion) -> "Receipt":
        """Add the budget spent and the report id to a queued receipt."""
        about = self.status, self.reason, self.task, self.round, self.epsilon  # `replace` takes three times as long,
        return Receipt(*about, spent, self.cap, report_id.hex(), value)  # and this is for every report

    def acknowledged(self, answer: Acknowledgement) -> "Receipt":
        """Add the broker's acknowledgement."""
        why = Undelivered.of(answer)
        if self.status == "already_answered":
            return replace(self, reason=why, can_refuse=answer.can_refuse, waiting=why is not None)
        about = self.task, self.round, self.epsilon, self.spent, self.cap, self.report_id, self.value, self.moment
        status: Status = "sent" if why is None else "undelivered"
        return Receipt(status, why, *about, self.offline, answer.can_refuse, self.waiting)  # as quick as in `charged`

    @property
    def caveat(self) -> str:
        """What the broker's acknowledgement leaves open, in one line for a person; empty without one.

        A device cannot learn whether its report was counted: such a query would link the report to the device.
        """
        if self.status != "sent":
            return ""
        return _CAVEAT if self.can_refuse else _CAVEAT_OLD
