"""The terms on which a gateway answers: everything about a question but the device and its value."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from fractions import Fraction

from hush_client.answer import FRAME_REPORTS, Question
from hush_client.limits import LONGEST_KEEP, check_number, check_type, not_a_sender
from hush_client.policy import Policy
from hush_client.sending.keeping import Keeping
from hush_client.sending.schedule import LONGEST_SPREAD, Clock, draw_delay, milliseconds
from hush_common.errors import OptionError, TaskError
from hush_common.task import Task, is_task_id
from hush_common.topics import is_sender, report_topic, task_topic

__all__ = ["Terms", "check_names", "check_source", "topic_of"]


@dataclass(frozen=True, slots=True)
class Terms:
    """What `Gateway` says of its arguments.

    Raises:
        TypeError: an argument of the wrong type.
        OptionError: `name` cannot be part of a topic, or a number out of range.
    """

    name: str
    policy: Policy
    spread: float
    capacity: int
    clock: Clock
    frame: int = FRAME_REPORTS
    keeping: Keeping = field(default_factory=Keeping)

    def __post_init__(self) -> None:
        check_type("name", self.name, str, 'text such as "house-4"')
        check_type("policy", self.policy, Policy, "a Policy")
        check_number("spread", self.spread)
        check_type("capacity", self.capacity, int, "a whole number")
        check_type("frame", self.frame, int, "a whole number of reports")
        check_number("keep", self.keeping.keep)
        check_type("kept_bytes", self.keeping.room, int, "a whole number of bytes")
        check_number("recall_every", self.keeping.every)
        if not is_sender(self.name):
            raise not_a_sender("name", self.name)
        if not 0 <= self.spread <= LONGEST_SPREAD:
            raise OptionError(
                "spread", f"{self.spread} s is outside 0 to {LONGEST_SPREAD:.0f} s (a week); name one inside"
            )
        if self.capacity < 1:
            raise OptionError("capacity", f"{self.capacity} holds no report; name a positive number")
        if not 1 <= self.frame <= FRAME_REPORTS:
            raise OptionError("frame", f"{self.frame} is outside 1 to {FRAME_REPORTS} reports; name a number inside")
        if not 0 <= self.keeping.keep <= LONGEST_KEEP:
            raise OptionError(
                "keep", f"{self.keeping.keep} s is outside 0 to {LONGEST_KEEP:.0f} s (a week); name one inside"
            )
        if self.keeping.room < 0:
            raise OptionError("kept_bytes", f"{self.keeping.room} is below 0; name a number of bytes, or 0")
        if not 0 <= self.keeping.every <= LONGEST_KEEP:
            raise OptionError(
                "recall_every", f"{self.keeping.every} s is outside 0 to {LONGEST_KEEP:.0f} s (a week); name one inside"
            )

    def question(self, task: Task, epsilon: Fraction | None = None, *, device: str = "", patience: int = 0) -> Question:
        """What is asked now, and when an answer may leave; nobody has been asked for a value yet.

        Args:
            task: what is asked.
            epsilon: which of its offers to take, or None.
            device: whose answer it is to be.
            patience: milliseconds that a source has for its value; the delay runs from their end.
        """
        now = self.clock()
        delay = patience + draw_delay(self.spread, task, now + timedelta(milliseconds=patience))
        return Question(
            device=device,
            task=task,
            topic=report_topic(task.id, self.name),
            policy=self.policy,
            now=now,
            epsilon=epsilon,
            not_before=milliseconds(now) + delay,
            delay=delay,
            capacity=self.capacity,
            frame=self.frame,
        )


def check_names(devices: Iterable[str]) -> None:
    if not all(devices):
        raise OptionError("device", "is empty; a device needs a name")


def check_source(source: object, source_timeout: float, absent: str) -> None:
    """What `answer` is told of a source.

    Raises:
        TypeError: the source cannot be called, or the timeout is no number.
        OptionError: `source_timeout` or `absent` is outside what it can be.
    """
    if not callable(source):
        raise TypeError(f"source is a function without arguments, not of type {type(source).__name__}")
    check_number("source_timeout", source_timeout)
    if not 0 < source_timeout <= LONGEST_SPREAD:
        raise OptionError("source_timeout", f"{source_timeout} s is not above 0 and at most a week; name one that is")
    if absent not in ("answer", "skip"):
        raise OptionError("absent", f"{str(absent)[:40]!r} is neither 'answer' nor 'skip'; write one of them")


def topic_of(task_id: str) -> str:
    """The topic of a task.

    Raises:
        TypeError: it is no text.
        TaskError: it is no id.
    """
    if not isinstance(task_id, str):
        raise TypeError(f'the id of a task is text, such as "heights", not of type {type(task_id).__name__}')
    if not is_task_id(task_id):
        raise TaskError("id", f"{task_id[:80]!r} is not a task id; use a-z, 0-9 and -, at most 64")
    return task_topic(task_id)
