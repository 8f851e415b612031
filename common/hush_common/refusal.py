"""Why a report is not counted: values, counted per reason, never exceptions."""

from enum import StrEnum

__all__ = ["Refusal"]


class Refusal(StrEnum):
    """Reasons for which an aggregator refuses a report. The report is acknowledged, counted here, and not stored."""

    MALFORMED = "malformed"
    UNKNOWN_VERSION = "unknown_version"
    UNKNOWN_TASK = "unknown_task"
    TASK_LIMIT = "task_limit"
    BAD_SENDER = "bad_sender"
    WRONG_TOPIC = "wrong_topic"
    WRONG_DIGEST = "wrong_digest"
    UNKNOWN_ROUND = "unknown_round"
    NOT_OPEN = "not_open"
    CLOSED = "closed"
    OUT_OF_RANGE = "out_of_range"
    DUPLICATE = "duplicate"
    QUOTA = "quota"

    @property
    def meaning(self) -> str:
        """One line for a person."""
        return _MEANING[self]


_MEANING = {
    Refusal.MALFORMED: "the payload is not a frame or a JSON report of this protocol",
    Refusal.UNKNOWN_VERSION: "the payload declares a version of the protocol that this aggregator does not speak",
    Refusal.UNKNOWN_TASK: "no task of that name was published",
    Refusal.TASK_LIMIT: "its task is published, and there was no room for one more task found at the broker",
    Refusal.BAD_SENDER: "the sender in its topic is not 1 to 128 of A-Z a-z 0-9 . _ @ : -, a letter or digit first",
    Refusal.WRONG_TOPIC: "the report names another task than the topic it came on",
    Refusal.WRONG_DIGEST: "the report answers another version of the task (other bounds, another epsilon)",
    Refusal.UNKNOWN_ROUND: "the task has no such round",
    Refusal.NOT_OPEN: "the task, or the round, has not opened yet",
    Refusal.CLOSED: "the task is closed",
    Refusal.OUT_OF_RANGE: "no device that follows the mechanism can produce this body",
    Refusal.DUPLICATE: "a report of this id is counted already",
    Refusal.QUOTA: "its sender has had as many reports counted in this round as one sender may",
}
