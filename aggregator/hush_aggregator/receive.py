"""Receive: classify each message by its topic, once, when it arrives."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from hush_aggregator.bus import Delivery
from hush_common.topics import task_of_report_topic, task_of_task_topic

__all__ = ["Messages", "ReportMessage", "TaskMessage", "receive"]


class TaskMessage(NamedTuple):
    """A message on the topic of a task.

    Args:
        task_id: the task in the topic.
        payload: its bytes, whatever they are.
        ack: sends the broker's acknowledgement.
    """

    task_id: str
    payload: bytes
    ack: Callable[[], object]


class ReportMessage(NamedTuple):
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
    ack: Callable[[], object]


class Messages(NamedTuple):
    """A batch, in the order in which it came."""

    tasks: list[TaskMessage]
    reports: list[ReportMessage]


def receive(deliveries: Iterable[Delivery]) -> Messages:
    """Tell the tasks of a batch from its reports. What many messages share, a topic, is read once."""
    found, topics = Messages([], []), dict[str, tuple[str | None, str | None, str]]()
    for topic, payload, ack in ((delivery.topic, delivery.payload, delivery.ack) for delivery in deliveries):
        if topic not in topics:
            topics[topic] = task_of_task_topic(topic), task_of_report_topic(topic), topic.rpartition("/")[2]
        published, answered, sender = topics[topic]
        if published is not None:
            found.tasks.append(TaskMessage(published, payload, ack))
        else:
            found.reports.append(ReportMessage(answered, sender, payload, ack))
    return found
