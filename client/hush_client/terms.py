"""The terms on which a gateway answers: all of a question but the device and its value."""

from dataclasses import dataclass
from fractions import Fraction

from hush_client.answer import Question
from hush_client.policy import Policy
from hush_client.schedule import LONGEST_SPREAD, Clock, draw_delay, milliseconds
from hush_common.task import Task
from hush_common.topics import is_sender, report_topic

__all__ = ["CAPACITY", "Terms"]

CAPACITY = 10_000


@dataclass(frozen=True, slots=True)
class Terms:
    """What `Gateway` says of its arguments.

    Raises:
        ValueError: `name` cannot be part of a topic, or `spread` or `capacity` out of range.
    """

    name: str
    policy: Policy
    spread: float
    capacity: int
    clock: Clock

    def __post_init__(self) -> None:
        if not is_sender(self.name):
            raise ValueError(
                f"{self.name!r} cannot be part of a topic; use letters, digits and . _ @ : - (at most 128)"
            )
        if not 0 <= self.spread <= LONGEST_SPREAD:
            raise ValueError(
                f"a spread of {self.spread} s is outside 0 to {LONGEST_SPREAD:.0f} s (a week); name one inside"
            )
        if self.capacity < 1:
            raise ValueError(f"a capacity of {self.capacity} holds no report; name a positive number")

    def question(self, task: Task, epsilon: Fraction | None = None, *, device: str = "") -> Question:
        """What is asked now, and when an answer may leave; the value is to come."""
        now = self.clock()
        delay = draw_delay(self.spread, task, now)
        return Question(
            device=device,
            task=task,
            value=None,
            topic=report_topic(task.id, self.name),
            policy=self.policy,
            now=now,
            epsilon=epsilon,
            not_before=milliseconds(now) + delay,
            delay=delay,
            capacity=self.capacity,
        )
