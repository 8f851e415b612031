"""The MQTT topics, and the messages that a broker delivers.

hush/v1/tasks/{task}                retained task JSON, written by the administrator
hush/v1/reports/{task}/{sender}     frames, QoS 1; {sender} is the MQTT user, or the device
hush/v1/recalls/{task}              retained recall JSON, written by the aggregator
hush/v1/estimates/{task}            retained estimate JSON, written by the aggregator
hush/v1/status/{aggregator}         retained, with last will
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

_ROOT = "hush/v1"
ALL_TASKS = f"{_ROOT}/tasks/+"
ALL_REPORTS = f"{_ROOT}/reports/+/+"
ALL_ESTIMATES = f"{_ROOT}/estimates/+"
ALL_RECALLS = f"{_ROOT}/recalls/+"

# Of mosquitto, all retained
BROKER_UPTIME = "$SYS/broker/uptime"  # `123 seconds`, now and every few seconds
BROKER_DROPPED = "$SYS/broker/publish/messages/dropped"  # messages that no queue had room for, since it started
BROKER_STORED = "$SYS/broker/store/messages/count"  # messages that it stores: retained and queued ones
BROKER_RETAINED = "$SYS/broker/retained messages/count"  # the retained ones among them
BROKER_VERSION = "$SYS/broker/version"  # `mosquitto version 2.0.11`

_SENDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@:-]{0,127}")


def is_sender(name: str) -> bool:
    """Whether `name` may be one level of a topic: letters, digits and `._@:-`, at most 128 of them."""
    return _SENDER.fullmatch(name) is not None


def task_topic(task_id: str) -> str:
    return f"{_ROOT}/tasks/{task_id}"


def report_topic(task_id: str, sender: str) -> str:
    if not is_sender(sender):
        raise ValueError(f"{sender!r} cannot be part of a topic; use letters, digits and . _ @ : - (at most 128)")
    return f"{_ROOT}/reports/{task_id}/{sender}"


def estimate_topic(task_id: str) -> str:
    return f"{_ROOT}/estimates/{task_id}"


def recall_topic(task_id: str) -> str:
    return f"{_ROOT}/recalls/{task_id}"


def status_topic(aggregator: str) -> str:
    return f"{_ROOT}/status/{aggregator}"


def task_of_task_topic(topic: str) -> str | None:
    """Return the task id in a task topic, or None for any other topic."""
    return _below(f"{_ROOT}/tasks", topic)


def task_of_recall_topic(topic: str) -> str | None:
    """Return the task id in a recall topic, or None for any other topic."""
    return _below(f"{_ROOT}/recalls", topic)


def task_of_estimate_topic(topic: str) -> str | None:
    """Return the task id in the topic of an estimate, or None for any other topic."""
    return _below(f"{_ROOT}/estimates", topic)


def task_of_report_topic(topic: str) -> str | None:
    """Return the task id in a report topic, or None for any other topic."""
    match topic.split("/"):
        case ["hush", "v1", "reports", task_id, _]:
            return task_id
    return None


def matches(wanted: str, topic: str) -> bool:
    """Whether a topic filter, with `+` for one level and `#` for the rest, matches `topic`."""
    if "+" not in wanted and "#" not in wanted:
        return wanted == topic
    levels = topic.split("/")
    for position, level in enumerate(wanted.split("/")):
        if level == "#":
            return True
        if position >= len(levels) or level not in ("+", levels[position]):
            return False
    return len(wanted.split("/")) == len(levels)


def _below(parent: str, topic: str) -> str | None:
    """Return the last level of a topic, or None if it is not directly below `parent`."""
    head, _, last = topic.rpartition("/")
    return last if head == parent else None


class Source(Protocol):
    """The connection of a message, to which its acknowledgement goes."""

    def acknowledge(self, numbers: Iterable[int]) -> None:
        """Acknowledge the messages with these numbers (`Delivery.number`); does nothing once the connection is lost."""
        ...


BATCH_LIMIT = 4096
"""Most messages that are received, counted and acknowledged together."""


class Delivery(NamedTuple):
    """One message, unchecked."""

    topic: str  # empty if it is invalid: not text, or with a wildcard in it
    payload: bytes
    number: int = 0  # in the order of receipt on its connection, from 1; 0 if it needs no acknowledgement
    source: Source | None = None  # None if it needs no acknowledgement
    retained: bool = False  # whether the broker had stored it before the subscription: nobody knows when it was sent

    def ack(self) -> None:
        """Acknowledge this message; for many messages `Source.acknowledge` is quicker."""
        if self.source is not None:
            self.source.acknowledge((self.number,))


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """The broker's answer to a publication."""

    reason: int = 0  # the reason code; MQTT 3.1.1 has none: then it is 0, success
    can_refuse: bool = False  # whether the broker could have sent another one: MQTT 5
