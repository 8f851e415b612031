"""A broker that records every message, and real devices that use it."""

from hush_client import Client, Policy
from hush_common.task import Task
from hush_common.topics import task_topic
from hush_common.wire import Frame, Report, decode
from hush_simulations.brokers.memory import MemoryBroker


class OverheardBroker(MemoryBroker):
    """A broker in memory that stores every message of a device, in the order of arrival.

    Attributes:
        messages: topic and payload of each.
    """

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[tuple[str, bytes]] = []

    def deliver(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        if not retain:
            self.messages.append((topic, payload))
        super().deliver(topic, payload, retain=retain)

    def publish(self, task: Task) -> None:
        """Publish a task, as an administrator does."""
        self.deliver(task_topic(task.id), task.payload, retain=True)

    def reports(self, task: Task) -> list[tuple[str, Report]]:
        """Return the reports of a task with their senders, including resends."""
        found = []
        for topic, payload in self.messages:
            frame = decode(payload)
            if isinstance(frame, Frame) and frame.digest == task.report_digest:
                found += [(topic.rpartition("/")[2], report) for report in frame.reports]
        return found


def device(broker: MemoryBroker, name: str, directory: str, policy: Policy) -> Client:
    """Return a real device on this broker, which sends at once."""
    return Client("mqtt://memory", device=name, state=directory, transport=broker.transport(), policy=policy, spread=0)
