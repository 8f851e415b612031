"""The rules that a device can break, and what a run has found."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal, Self

Status = Literal["passed", "failed", "not supported", "not judged", "not run"]


class Rule(Enum):
    """What every device must do. The name is for programs; why it matters and what to do are for people."""

    why: str
    remedy: str

    def __new__(cls, why: str, remedy: str) -> Self:
        found = object.__new__(cls)
        found._value_ = len(cls.__members__)
        found.why, found.remedy = why, remedy
        return found

    ANSWERS = (
        "a silent device is not counted, and silence that depends on the value reveals it",
        "decide without the value whether to answer; then answer with any value, also a missing one",
    )
    MQTT = (
        "brokers end such a connection, or behave differently",
        "follow the MQTT standard; docs/wire.md, The connection",
    )
    TOPIC = (
        "the aggregator does not count reports under other topics, and access rules forbid them",
        "publish to hush/v1/reports/{task}/{sender} and nothing else",
    )
    QOS = (
        "at QoS 0 a report may be lost after epsilon was spent; at QoS 2 some brokers refuse it",
        "publish reports at QoS 1",
    )
    RETAINED = (
        "the broker shows a retained report to everybody who connects later, with its sender",
        "publish reports with the retain flag off",
    )
    FRAME = (
        "the aggregator refuses the report, and its epsilon is lost",
        "encode reports as docs/wire.md, Reports, describes",
    )
    DIGEST = (
        "the aggregator refuses a report that answers another task as wrong_digest",
        "hash the payload of the task exactly as it was received, never a document that was written again",
    )
    ROUND = (
        "the aggregator counts the report in another round, or refuses it",
        "compute the round from opens, round_every and the clock when the device decides",
    )
    BODY = (
        "no device that follows the mechanism can send it: the aggregator refuses it as out_of_range",
        "implement the mechanism as docs/wire.md describes, and compare it with tests/vectors",
    )
    SAME_BYTES = (
        "two draws of one value reveal more than epsilon, and a second id is counted a second time",
        "store the encoded report, and send the stored bytes again until the broker acknowledges them",
    )
    RESENT = (
        "a report that the broker does not have is lost, although its epsilon is spent",
        "send the stored report again on the next connection, and at the next start, until it is acknowledged",
    )
    CHARGED_ONCE = (
        "a second answer to one round reveals more than the ledger says, and counts twice",
        "store the charge and the report in one transaction, before the first byte is sent; read it at every start",
    )
    ROUNDS = (
        "a round without its report misses the device; a round with two counts it twice",
        "answer each open round exactly once, with its own charge",
    )
    REFUSES = (
        "anyone who may write to the topic of a task could make the device give away more than its owner allows",
        "read tasks strictly, check limits and times, and refuse before any value is read; docs/wire.md, Task",
    )
    RECOVERS = (
        "anyone who publishes one invalid task could silence every device under its id",
        "remember nothing about a task that is refused, and read the next message on its topic",
    )
    PINNED = (
        "whoever replaces a task could ask for the same value again, with another epsilon or other bounds",
        "store the digest of a task when it is admitted, and refuse every other payload under its id",
    )
    BUDGET = (
        "many small tasks together would reveal the value",
        "sum the charges of each purpose, and refuse what exceeds the limit",
    )
    OFFER = (
        "an offer above the limit costs more than the owner allows, and one chosen by the value reveals it",
        "take the largest offer that fits the limits and what is left of the budget, before the value is read",
    )
    MEMORY = (
        "each new draw about one value reveals more than epsilon, which covers one memory",
        "draw the memory once, store it with the charge, and answer every round from it; docs/wire.md, Sticky answers",
    )
    RECALLED = (
        "a report that a broker lost after its acknowledgement is missing, although its epsilon is spent",
        "keep the bytes after the acknowledgement and send them again when a recall asks; docs/wire.md, Recalls",
    )
    RECALL_LIMITS = (
        "anyone who may write recalls could make the device send without end, or to no purpose",
        "serve a recall once, with its digest, and one recall of a task in an hour; ignore invalid ones",
    )
    SPREAD = (
        "all devices at once overload the broker that has just lost their reports",
        "send each report at its own time, uniform over the time of the recall; docs/wire.md, Recalls",
    )
    SAME_SIZE = (
        "the size of a message is visible to everybody on the network",
        "send the binary frame, whose length depends on the task alone",
    )
    TIMES = (
        "the time of a message is visible to everybody on the network",
        "fix the time of sending before the value is read, and wait for it",
    )
    OUTPUT = (
        "logs, mails of cron and exit codes are read by others",
        "print nothing that depends on the value, and end with the same code",
    )
    STATE = (
        "whoever reads the disk later learns the value",
        "store the encoded report, never the value",
    )
    LAW = (
        "estimates are biased, or epsilon is not what the task says",
        "implement the mechanism with integers as docs/wire.md describes, and compare it with tests/vectors",
    )
    EPSILON = (
        "the device gives away more than its owner agreed to",
        "implement the mechanism with integers as docs/wire.md describes, and compare it with tests/vectors",
    )
    FRESH_IDS = (
        "the aggregator counts two reports with one id once; ids that can be guessed let others suppress a report",
        "draw 16 bytes from the operating system's randomness for each report",
    )


@dataclass(frozen=True, slots=True)
class RuleViolation:
    """A rule that the device broke."""

    rule: Rule
    what: str  # one line, about what was observed

    def to_document(self) -> dict[str, str]:
        name = self.rule.name.lower()
        return {"rule": name, "what": self.what, "why": self.rule.why, "remedy": self.rule.remedy}


@dataclass(frozen=True, slots=True)
class CheckVerdict:
    """The result of one check."""

    check: str  # its name
    title: str  # what a device that passes it does
    status: Status
    faults: tuple[RuleViolation, ...] = ()
    remarks: tuple[str, ...] = ()  # what was measured
    seconds: float = 0.0
    finds: str = ""  # what it would have found
    misses: str = ""  # what a pass does not show

    def to_document(self) -> dict[str, object]:
        document: dict[str, object] = {"check": self.check, "title": self.title, "status": self.status}
        document |= {"faults": [fault.to_document() for fault in self.faults], "remarks": list(self.remarks)}
        return document | {"finds": self.finds, "misses": self.misses, "seconds": round(self.seconds, 2)}


@dataclass(frozen=True, slots=True)
class Conformance:
    """The result of a run."""

    program: str  # its name; its arguments may hold a password
    findings: tuple[CheckVerdict, ...]
    missing: tuple[str, ...] = ()  # what was required and is not supported

    @property
    def passed(self) -> bool:
        failed = any(finding.status == "failed" for finding in self.findings)
        return not failed and not self.missing and any(finding.status == "passed" for finding in self.findings)

    @property
    def faults(self) -> Sequence[RuleViolation]:
        return [fault for finding in self.findings for fault in finding.faults]

    def to_document(self) -> dict[str, object]:
        return {
            "v": 1,
            "program": self.program,
            "passed": self.passed,
            "missing": list(self.missing),
            "findings": [finding.to_document() for finding in self.findings],
        }
