"""From a task to a stored answer: the settings of a gateway, and the service that its calls and sources share."""
# ruff: noqa: ASYNC109 - a timeout here ends in a message, not in TimeoutError

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from fractions import Fraction
from functools import partial

from hush_client.limits import LONGEST_KEEP, check_number, check_type, not_a_sender
from hush_client.policy import Policy
from hush_client.privacy.answer import FRAME_REPORTS, Answer, Question, admit, answer
from hush_client.receipt import Receipt
from hush_client.sending.schedule import (
    LONGEST_SPREAD,
    Clock,
    RetentionPolicy,
    draw_delay,
    milliseconds,
    milliseconds_to_wait,
)
from hush_client.sending.sender import Sender
from hush_client.state.database import State
from hush_client.tasks import TaskCacheWriter, TaskRegistry
from hush_common.domain import ParsedValue
from hush_common.errors import BrokerError, OptionError, TaskError
from hush_common.rng import ReportRng
from hush_common.task import Task, is_task_id
from hush_common.topics import is_sender, report_topic, task_topic


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """The arguments of `Gateway`, checked.

    Raises:
        TypeError: an argument has the wrong type.
        OptionError: `name` cannot be part of a topic, or a number is out of range.
    """

    name: str
    policy: Policy
    spread: float
    capacity: int
    clock: Clock
    frame: int = FRAME_REPORTS
    retention: RetentionPolicy = field(default_factory=RetentionPolicy)

    def __post_init__(self) -> None:
        check_type("name", self.name, str, 'text such as "house-4"')
        check_type("policy", self.policy, Policy, "a Policy")
        check_number("spread", self.spread)
        check_type("capacity", self.capacity, int, "a whole number")
        check_type("frame", self.frame, int, "a whole number of reports")
        check_number("keep", self.retention.keep)
        check_type("kept_bytes", self.retention.room, int, "a whole number of bytes")
        check_number("recall_every", self.retention.every)
        if not is_sender(self.name):
            raise not_a_sender("name", self.name)
        if self.capacity < 1:
            raise OptionError("capacity", f"must be at least 1, got {self.capacity}")
        if not 1 <= self.frame <= FRAME_REPORTS:
            raise OptionError("frame", f"must be between 1 and {FRAME_REPORTS} reports, got {self.frame}")
        if self.retention.room < 0:
            raise OptionError("kept_bytes", f"must be 0 or more, got {self.retention.room}")
        for option, seconds, most in (
            ("spread", self.spread, LONGEST_SPREAD),
            ("keep", self.retention.keep, LONGEST_KEEP),
            ("recall_every", self.retention.every, LONGEST_KEEP),
        ):
            if not 0 <= seconds <= most:
                raise OptionError(option, f"must be between 0 and {most:.0f} s (a week), got {seconds} s")

    def question(self, task: Task, epsilon: Fraction | None = None, *, patience: int = 0) -> Question:
        """Return what is asked now and when an answer may leave, before any source is asked for a value.

        Args:
            task: what is asked.
            epsilon: which of its offers to take, or None.
            patience: milliseconds that a source has for its value; the delay runs from their end.
        """
        now = self.clock()
        delay = patience + draw_delay(self.spread, task, now + timedelta(milliseconds=patience))
        return Question(
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
    """Check the arguments of `Gateway.answer`.

    Raises:
        TypeError: the source cannot be called, or the timeout is not a number.
        OptionError: `source_timeout` or `absent` has an invalid value.
    """
    if not callable(source):
        raise TypeError(f"source is a function without arguments, not of type {type(source).__name__}")
    check_number("source_timeout", source_timeout)
    if not 0 < source_timeout <= LONGEST_SPREAD:
        raise OptionError("source_timeout", f"must be above 0 s and at most a week, got {source_timeout} s")
    if absent not in ("answer", "skip"):
        raise OptionError("absent", f"must be 'answer' or 'skip', got {str(absent)[:40]!r}")


@dataclass(frozen=True, slots=True)
class AnswerService:
    """Waits for tasks, decides questions, and stores answers for the sender."""

    config: GatewayConfig
    cache: TaskCacheWriter
    state: State
    sender: Sender
    rng: ReportRng

    @property
    def tasks(self) -> TaskRegistry:
        return self.cache.registry

    def subscribe(self, task_id: str) -> str:
        """Subscribe to a task, and return its topic.

        Raises:
            TypeError: the id is not text.
            TaskError: the id is not legal.
        """
        if not isinstance(task_id, str):
            raise TypeError(f'the id of a task is text, such as "heights", not of type {type(task_id).__name__}')
        if not is_task_id(task_id):
            raise TaskError("id", f"{task_id[:80]!r} is not a task id; use a-z, 0-9 and -, at most 64")
        topic = task_topic(task_id)
        self.sender.subscribe(topic, again=self.tasks.may_have_forgotten(task_id))
        return topic

    async def task(self, task_id: str, timeout: float | None) -> Task:
        """Wait for the task that is published under an id; see `Gateway.task`."""
        topic = self.subscribe(task_id)
        try:
            async with asyncio.timeout(timeout):
                return await self.tasks.wait(task_id)
        except TimeoutError:
            kept = None if self.sender.connected else self.tasks.last_known(task_id)
            if kept is not None:
                return kept
            raise self.sender.forbidden.get(topic) or self._unknown(task_id) from None

    def _unknown(self, task_id: str) -> BrokerError:
        sender = self.sender
        if sender.connected:
            return BrokerError(sender.broker, f"no task {task_id!r} on this broker: publish it, or check the name")
        trouble = sender.trouble.message if isinstance(sender.trouble, BrokerError) else None
        why = trouble or str(sender.trouble or "no connection yet; check the address, or wait longer")
        known = "was withdrawn" if self.tasks.is_withdrawn(task_id) else "is not known here"
        return BrokerError(
            sender.broker,
            f"{why}; task {task_id!r} {known}, so this device cannot answer it before it has reached the broker once",
        )

    def ask_a_source(self, task: Task, seconds: float) -> tuple[Question, float, float]:
        """Return what is asked now, the seconds that its source has, and the time of sending, which is after those."""
        patience = milliseconds_to_wait(seconds, task, self.config.clock())
        question = self.config.question(task, patience=patience)
        return question, patience / 1000, self.due(question)

    def due(self, question: Question) -> float:
        """Return when an answer is to be sent, by the sender's clock."""
        return self.sender.now() + question.delay / 1000

    async def admit(self, question: Question, device: str) -> Receipt:
        """Decide without answering; see `hush_client.privacy.answer.admit`."""
        return await self.state.run(partial(admit, question=question, device=device))

    async def store(self, question: Question, values: Mapping[str, ParsedValue], due: float) -> dict[str, Answer]:
        """Answer, and send what was stored from `due` on; see `hush_client.privacy.answer.answer`."""
        offline = not self.sender.connected

        def send(answers: dict[str, Answer]) -> None:
            if any(receipt.reason is None for receipt, _ in answers.values()):
                self.cache.note_answer(question.task.id)
            for sequence in {entry for receipt, entry in answers.values() if receipt.status == "queued"}:
                if sequence is not None:
                    self.sender.send(sequence, due)

        job = partial(answer, question=question, values=values, rng=self.rng)
        answers = await self.state.run(job, after=send)
        if not offline:
            return answers
        return {
            device: (replace(receipt, offline=True) if receipt.status == "queued" else receipt, sequence)
            for device, (receipt, sequence) in answers.items()
        }
