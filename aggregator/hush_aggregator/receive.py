"""Receive: what each message is, by its topic: decided once, when it comes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from hush_aggregator.bus import Delivery
from hush_common.topics import task_of_report_topic, task_of_task_topic

__all__ = ["Messages", "ReportMessage", "TaskMessage", "receive"]


@dataclass(frozen=True, slots=True)
class TaskMessage:
    """A message on the topic of a task.

    Args:
        task_id: the task in the topic.
        payload: its bytes, whatever they are.
        ack: sends the broker's acknowledgement.
    """

    task_id: str
    payload: bytes
    ack: Callable[[], object] = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class ReportMessage:
    """A message on the topic of a report, or on one that is none of ours and is refused as a report.

    Args:
        task_id: the task in the topic; None for a topic that is none of ours.
        sender: the last level of the topic.
        payload: its bytes, whatever they are.
        ack: sends the broker's acknowledgement.
    """

    task_id: str | None
    sender: str
    payload: bytes
    ack: Callable[[], object] = field(repr=False, compare=False)


class Messages(NamedTuple):
    """A batch, in the order in which it came."""

    tasks: list[TaskMessage]
    reports: list[ReportMessage]


def receive(deliveries: Iterable[Delivery]) -> Messages:
    """Tell the tasks of a batch from its reports."""
    tasks, reports = [], []
    for delivery in deliveries:
        task_id = task_of_task_topic(delivery.topic)
        if task_id is not None:
            tasks.append(TaskMessage(task_id, delivery.payload, delivery.ack))
        else:
            sender = delivery.topic.rpartition("/")[2]
            answered = task_of_report_topic(delivery.topic)
            reports.append(ReportMessage(answered, sender, delivery.payload, delivery.ack))
    return Messages(tasks, reports)
