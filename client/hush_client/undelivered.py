"""Why the broker does not have a report that it was sent, as far as MQTT 5 tells."""

from enum import StrEnum

from hush_common.topics import Acknowledgement

__all__ = ["Undelivered"]

_NO = 0x80
"""From this reason code on, the broker says no."""


class Undelivered(StrEnum):
    """Why the broker does not have a report that it was sent. The charge stands; the same bytes are sent again."""

    FORBIDDEN = "forbidden"
    NO_SUBSCRIBER = "no_subscriber"
    OVER_QUOTA = "over_quota"
    TOO_LARGE = "too_large"
    INVALID = "invalid"
    REFUSED = "refused"

    @property
    def meaning(self) -> str:
        """One line for a person."""
        return _MEANING[self]

    @classmethod
    def of(cls, answer: Acknowledgement) -> "Undelivered | None":
        """What an acknowledgement says, by its reason code; None where the broker has the report."""
        found = _REASON_CODES.get(answer.reason)
        return cls.REFUSED if found is None and answer.reason >= _NO else found


_REASON_CODES = {
    0x10: Undelivered.NO_SUBSCRIBER,
    0x87: Undelivered.FORBIDDEN,
    0x95: Undelivered.TOO_LARGE,
    0x97: Undelivered.OVER_QUOTA,
    0x99: Undelivered.INVALID,
}

_MEANING = {
    Undelivered.FORBIDDEN: "the broker's access rules forbid it; correct them, or the user and the name of this device",
    Undelivered.NO_SUBSCRIBER: "nobody has ever subscribed to such reports; start the aggregator, or name its broker",
    Undelivered.OVER_QUOTA: "the broker says that a quota is used up; raise its limits",
    Undelivered.TOO_LARGE: "it is longer than the broker takes; raise its limit of packets or messages",
    Undelivered.INVALID: "the broker does not take payloads of this form; correct its rules",
    Undelivered.REFUSED: "the broker refuses it and does not say why; its log may",
}
