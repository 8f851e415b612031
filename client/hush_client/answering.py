"""Answers from a source: in each round that is open, the value is asked for once, and only when it may be answered."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta

from hush_client.catalogue import Catalogue
from hush_client.receipt import Reason, Receipt
from hush_client.schedule import Clock
from hush_common.errors import DomainError, StateError, TaskError
from hush_common.task import Task

__all__ = ["Answering", "Source"]

_LOG = logging.getLogger(__name__)

Source = Callable[[], object] | Callable[[], Awaitable[object]]
"""Gives the value of now, or None where there is none. One that is not async runs in a worker thread."""

_FIRST_RETRY = 60.0
_LONGEST_RETRY = 3600.0
_LOOK = 60.0  # the clock of the wall decides which round is open, and may be set at any time

_PASSING = (Reason.OUTBOX_FULL, Reason.NOT_OPEN)
"""Refusals that end by themselves; any other is the last word on this round."""


class Answering:
    """One source of one device for one task, for as long as the gateway is open.

    A round is settled by an answer or by a refusal that nothing ends. A source that fails or has no value is asked
    again after a minute, and then ever more rarely; the log says so, and never what the value was.

    Args:
        task_id: which task; it need not be published yet.
        source: where its values come from.
        preview: why an answer would not be stored now; None if it would.
        store: answers, unless something has come between.
        catalogue: the tasks.
        clock: the clock of the wall.
    """

    def __init__(
        self,
        task_id: str,
        source: Source,
        *,
        preview: Callable[[Task], Awaitable[Receipt | None]],
        store: Callable[[Task, object], Awaitable[tuple[Receipt, int | None]]],
        catalogue: Catalogue,
        clock: Clock,
    ) -> None:
        self._task_id = task_id
        self._source = source
        self._preview = preview
        self._store = store
        self._catalogue = catalogue
        self._clock = clock
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
            receipt = await self._preview(task) or await self._ask(task)
        except (DomainError, StateError, _NoValueError) as error:
            self._try_later(str(error))
            return
        if receipt.reason in _PASSING:
            self._try_later(f"refused: {receipt.reason.meaning}")
            return
        self._settled = task.digest, round_
        outcome = receipt.status if receipt.reason is None else f"refused: {receipt.reason.meaning}"
        _LOG.info("%s, round %d: %s", task.id, round_, outcome)

    async def _ask(self, task: Task) -> Receipt:
        try:
            value = await _value(self._source)
        except Exception as error:  # noqa: BLE001 - whatever an application raises; see below
            # Neither the message nor the chain: what a source says may hold the value.
            raise _NoValueError(f"its source raised {type(error).__name__}") from None
        if value is None:
            raise _NoValueError("its source has no value")
        if self._catalogue.tasks().get(task.id) is not task:
            raise _NoValueError("it was changed or withdrawn while its source was asked")
        receipt, _ = await self._store(task, value)
        return receipt

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


class _NoValueError(Exception):
    """There is nothing to answer with now; the message says why, and holds no value."""


async def _value(source: Source) -> object:
    if inspect.iscoroutinefunction(source):
        return await source()
    value = await asyncio.to_thread(source)
    return await value if inspect.isawaitable(value) else value
