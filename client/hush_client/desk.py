"""The answering side of an open gateway: from a task to a question, the outbox and the sender."""
# ruff: noqa: ASYNC109 - a timeout here ends in a message, not in TimeoutError

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from hush_client.answer import Question, admit, answer_all
from hush_client.catalogue import Catalogue
from hush_client.receipt import Receipt
from hush_client.sending.schedule import milliseconds_to_wait
from hush_client.sending.sender import Sender
from hush_client.shelving import Shelving
from hush_client.state.database import State
from hush_client.terms import Terms, topic_of
from hush_common.domain import Reading
from hush_common.errors import BrokerError
from hush_common.rng import ReportRng
from hush_common.task import Task

__all__ = ["Desk"]


@dataclass(frozen=True, slots=True)
class Desk:
    """Where tasks are asked for, questions are decided, and answers stored.

    Args:
        terms: of the gateway.
        shelving: keeps the tasks.
        state: where the ledger and the outbox are.
        sender: is told what was stored, and when it is due.
        rng: where index, noise and id come from.
    """

    terms: Terms
    shelving: Shelving
    state: State
    sender: Sender
    rng: ReportRng

    @property
    def catalogue(self) -> Catalogue:
        """The tasks."""
        return self.shelving.catalogue

    def want(self, task_id: str) -> str:
        """See to it that the broker sends a task; its topic.

        Raises:
            TaskError: the id is none.
        """
        topic = topic_of(task_id)
        self.sender.want(topic, again=self.catalogue.may_have_forgotten(task_id))
        return topic

    async def task(self, task_id: str, timeout: float | None) -> Task:
        """The task published under an id; see `Gateway.task`."""
        topic = self.want(task_id)
        try:
            async with asyncio.timeout(timeout):
                return await self.catalogue.wait(task_id)
        except TimeoutError:
            kept = None if self.sender.connected else self.catalogue.remembered(task_id)
            if kept is not None:
                return kept
            raise self.sender.forbidden.get(topic) or self._unknown(task_id) from None

    def _unknown(self, task_id: str) -> BrokerError:
        """Why a task is not known."""
        sender = self.sender
        if sender.connected:
            return BrokerError(sender.broker, f"no task {task_id!r} on this broker: publish it, or check the name")
        trouble = sender.trouble.message if isinstance(sender.trouble, BrokerError) else None
        why = trouble or str(sender.trouble or "no connection yet; check the address, or wait longer")
        known = "was withdrawn" if self.catalogue.withdrawn(task_id) else "is not kept here"
        return BrokerError(
            sender.broker,
            f"{why}; task {task_id!r} {known}, so this device cannot answer it before it has reached the broker once",
        )

    def ask_a_source(self, task: Task, device: str, seconds: float) -> tuple[Question, float, float]:
        """What is asked now, how many seconds its source has, and the moment of sending, which is after those."""
        patience = milliseconds_to_wait(seconds, task, self.terms.clock())
        question = self.terms.question(task, device=device, patience=patience)
        return question, patience / 1000, self.due(question)

    def due(self, question: Question) -> float:
        """The moment at which an answer is to be sent, by the clock of the sender."""
        return self.sender.now() + question.delay / 1000

    async def admit(self, question: Question) -> Receipt:
        """Decide alone; see `hush_client.answer.admit`."""
        return await self.state.run(partial(admit, question=question))

    async def store(self, asked: Sequence[tuple[Question, Reading]], due: float) -> list[tuple[Receipt, int | None]]:
        """Answer, and send what was stored from `due` on; see `hush_client.answer.answer_all`."""
        offline = not self.sender.connected

        def send(answers: list[tuple[Receipt, int | None]]) -> None:
            for (question, _), (receipt, _) in zip(asked, answers, strict=True):
                if receipt.reason is None:
                    self.shelving.answered(question.task.id)
            new = {sequence for receipt, sequence in answers if receipt.status == "queued" and sequence is not None}
            for sequence in new:
                self.sender.stored(sequence, due)

        answers = await self.state.run(partial(answer_all, asked=asked, rng=self.rng), after=send)
        if not offline:
            return answers
        return [
            (replace(receipt, offline=True) if receipt.status == "queued" else receipt, sequence)
            for receipt, sequence in answers
        ]
