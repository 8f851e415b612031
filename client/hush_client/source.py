"""Answers from a source: in each round that is open, decided first, and only then is anybody asked for a value."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Literal

from hush_client.asking import Asker, Source
from hush_client.desk import Desk
from hush_client.receipt import Reason, Receipt
from hush_common.errors import StateError, TaskError
from hush_common.task import Task

__all__ = ["Absent", "Answering", "Told"]

_LOG = logging.getLogger(__name__)

Absent = Literal["answer", "skip"]
"""What becomes of a round in which a source had nothing at all to give."""

Told = Callable[[Receipt], object]
"""Is told of every answer, in memory."""

_FIRST_RETRY = 60.0
_LONGEST_RETRY = 3600.0
_AGAIN = 10.0  # seconds, for a connection that was made anew to bring the task again
_LOOK = 60.0  # the clock of the wall decides which round is open, and may be set at any time

_PASSING = (Reason.OUTBOX_FULL, Reason.NOT_OPEN, Reason.CLOSED)
"""Refusals that end by themselves, or when the clock is set right; any other is the last word on this round."""


class Answering:
    """One source of one device for one task, for as long as the gateway is open.

    Each round goes the same way, whatever the source does: decide, and fix when the report will leave; ask, and ask
    again, until the time of the source is over; draw, store, and send at the moment that was fixed. So neither the log
    nor what is stored nor the network tells whether there was a value, how late it came, or what became of it.

    Args:
        task_id: which task; it need not be published yet.
        source: where its values come from.
        device: whose answer it is.
        source_timeout: seconds that the source has in each round.
        desk: where the question is decided, before the source is asked, and the answer stored.
        absent: `"skip"` leaves a round out in which the source gave None or failed: a choice of who makes the device.
        told: called with each receipt.
    """

    def __init__(
        self,
        task_id: str,
        source: Source,
        *,
        device: str,
        source_timeout: float,
        desk: Desk,
        absent: Absent = "answer",
        told: Told | None = None,
    ) -> None:
        self._task_id = task_id
        self._asker = Asker(source)
        self._device = device
        self._source_timeout = source_timeout
        self._desk = desk
        self._catalogue = desk.catalogue
        self._clock = desk.terms.clock
        self._absent = absent
        self._told = told
        self._settled: tuple[bytes, int] | None = None
        self._tried: tuple[bytes, int] | None = None
        self._retry = _FIRST_RETRY
        self._retry_at = 0.0

    async def run(self) -> None:
        """Answer round after round until cancelled."""
        complaint: TaskError | None = None
        while True:
            version = self._catalogue.version
            try:
                task = await self._catalogue.wait(self._task_id)
            except TaskError as error:
                if error is not complaint:
                    _LOG.warning("%s: cannot be answered: %s", self._task_id, error)
                complaint = error
                await self._catalogue.change(version)
                continue
            round_ = task.current_round(self._clock())
            if round_ is not None and self._is_time((task.digest, round_)):
                await self._attempt(task, round_)
            await self._catalogue.change(version, self._pause(task, round_))

    def _is_time(self, question: tuple[bytes, int]) -> bool:
        if question == self._settled:
            return False
        if question != self._tried:  # a new round or a new task does not wait for the pace of the one before
            self._tried, self._retry, self._retry_at = question, _FIRST_RETRY, 0.0
        return asyncio.get_running_loop().time() >= self._retry_at

    async def _attempt(self, task: Task, round_: int) -> None:
        try:
            receipt = await self._answer(task)
        except (StateError, _NotNowError) as error:
            self._try_later(str(error))
            return
        if receipt.reason in _PASSING:
            self._try_later(f"refused: {receipt.meaning}")
            return
        self._settled = task.digest, round_
        outcome = receipt.status if receipt.reason is None else f"refused: {receipt.meaning}"
        _LOG.info("%s, round %d: %s", task.id, round_, outcome)
        if self._told is not None:
            _tell(self._told, receipt)

    async def _answer(self, task: Task) -> Receipt:
        loop = asyncio.get_running_loop()
        question, patience, due = self._desk.ask_a_source(task, self._device, self._source_timeout)
        until = loop.time() + patience
        receipt = await self._desk.admit(question)
        if receipt.status != "queued":
            return receipt
        reading = await self._asker.ask(task.domain, until - loop.time())
        await asyncio.sleep(until - loop.time())  # whenever the value came, if one came
        if not await self._stands(task):
            raise _NotNowError("it was changed or withdrawn while its source was asked")
        if reading is None and self._absent == "skip":
            raise _NotNowError("its source has no value, and such rounds are to be skipped")
        ((receipt, _),) = await self._desk.store([(question, reading or task.domain.nothing)], due)
        return receipt

    async def _stands(self, task: Task) -> bool:
        """Whether the task may still be answered; after a new connection, once the broker has sent it again."""
        with suppress(TimeoutError, TaskError):
            async with asyncio.timeout(_AGAIN):
                return await self._catalogue.wait(task.id) is task
        return False

    def _try_later(self, why: str) -> None:
        _LOG.warning("%s: not answered yet: %s; trying again in %.0f s", self._task_id, why, self._retry)
        self._retry_at = asyncio.get_running_loop().time() + self._retry
        self._retry = min(2 * self._retry, _LONGEST_RETRY)

    def _pause(self, task: Task, round_: int | None) -> float:
        """Seconds until something may be to do."""
        now = self._clock()
        upcoming = 0 if round_ is None else round_ + 1
        opens = task.round_opens(upcoming) if upcoming < task.rounds else None
        pause = _LOOK
        if opens is not None and opens > now:  # else it is always open, or closed for good
            pause = min(opens - now, timedelta(seconds=_LOOK)).total_seconds()
        if round_ is not None and (task.digest, round_) != self._settled:
            pause = min(pause, self._retry_at - asyncio.get_running_loop().time())
        return max(pause, 0.01)


class _NotNowError(Exception):
    """An answer that was admitted is not given now, and why: because of a source only where `absent` says so."""


def _tell(told: Told, receipt: Receipt) -> None:
    try:
        told(receipt)
    except Exception:  # noqa: BLE001 - an application's mistake must end nothing; its message may hold the value
        return
