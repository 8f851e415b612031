"""Receive: classify each message by its topic, once, when it arrives."""

from collections.abc import Iterable
from typing import NamedTuple

from hush_aggregator.bus import Delivery
from hush_common.topics import task_of_report_topic, task_of_task_topic

__all__ = ["Messages", "ReportMessage", "TaskMessage", "receive"]


class TaskMessage(NamedTuple):
    """A message on the topic of a task.

    Args:
        task_id: the task in the topic.
        payload: its bytes, unchecked.
        number: by which it is acknowledged.
    """

    task_id: str
    payload: bytes
    number: int


class ReportMessage(NamedTuple):
    """A message on the topic of a report, or on an unknown one, which is refused as a report.

    Args:
        task_id: the task in the topic; None for an unknown topic.
        sender: the last level of the topic.
        payload: its bytes, unchecked.
        number: by which it is acknowledged.
    """

    task_id: str | None
    sender: str
    payload: bytes
    number: int


class Messages(NamedTuple):
    """A batch, in the order in which it came."""

    tasks: list[TaskMessage]
    reports: list[ReportMessage]


def receive(deliveries: Iterable[Delivery]) -> Messages:
    """Separate the tasks of a batch from its reports."""
    tasks: list[TaskMessage] = []
    reports: list[ReportMessage] = []
    add, make = reports.append, tuple.__new__
    for topic, payload, number, _ in deliveries:
        task_id = task_of_report_topic(topic)
        if task_id is None and (published := task_of_task_topic(topic)) is not None:
            tasks.append(TaskMessage(published, payload, number))
        else:
            add(make(ReportMessage, (task_id, topic.rpartition("/")[2], payload, number)))
    return Messages(tasks, reports)
