"""The desk of a gateway that is open: from a question to the outbox, and from there to the sender."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from hush_client.answer import Question, admit, answer_all
from hush_client.receipt import Receipt
from hush_client.schedule import milliseconds_to_wait
from hush_client.sender import Sender
from hush_client.state import State
from hush_client.terms import Terms
from hush_common.reading import Reading
from hush_common.rng import Rng
from hush_common.task import Task

__all__ = ["Desk"]


@dataclass(frozen=True, slots=True)
class Desk:
    """Where questions are decided, and answers stored.

    Args:
        terms: of the gateway.
        state: where the ledger and the outbox are.
        sender: is told what was stored, and when it is due.
        rng: where index, noise and id come from.
    """

    terms: Terms
    state: State
    sender: Sender
    rng: Rng

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

        def send(answers: list[tuple[Receipt, int | None]]) -> None:
            for sequence in {sequence for _, sequence in answers if sequence is not None}:
                self.sender.stored(sequence, due)

        return await self.state.run(partial(answer_all, asked=asked, rng=self.rng), after=send)
