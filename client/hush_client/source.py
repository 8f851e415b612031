"""Answers from a source of values: decide first, and only then call the source. Whatever it does, nothing else changes.

What an application's code may do (raise, hang, end the thread, return nonsense) depends on the value. So a source that
is not `async def` runs in its own thread, which nobody waits for: a shared thread would keep the broker's address, or
another device's source, waiting behind one that hangs; and one that Python joins would keep the process.
"""

import asyncio
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Literal, TypeVar

from hush_client.answering import AnswerService
from hush_client.receipt import Reason, Receipt
from hush_common.domain import Domain, ParsedValue
from hush_common.errors import StateError, TaskError
from hush_common.task import Task

Source = Callable[[], object] | Callable[[], Awaitable[object]]
"""Returns the current value, or None if there is none. One that is not async runs in a thread."""

OnMissing = Literal["answer", "skip"]
"""What to do in a round in which a source had no value at all."""

ReceiptCallback = Callable[[Receipt], object]
"""Is called with the receipt of every answer."""


_T = TypeVar("_T")
_LOG = logging.getLogger(__name__)

_PAUSE = 1.0  # seconds after which a source without a value is called again
_PLAIN = frozenset({type(None), bool, int, float, str, Decimal, Fraction})
_FIRST_RETRY = 60.0
_LONGEST_RETRY = 3600.0
_RECONNECTED = 10.0  # seconds for a new connection to bring the task again
_CLOCK_CHECK = 60.0  # seconds; the wall clock decides which round is open, and may be set at any time

_TEMPORARY = (Reason.OUTBOX_FULL, Reason.NOT_OPEN, Reason.CLOSED)
"""Refusals that end by themselves, or when the clock is set right; any other ends the round."""


class ValueSource:
    """A source, and whether it is still busy with an earlier call: then it is not called again."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._busy = False
        self._late = False

    async def read(self, domain: Domain, seconds: float) -> ParsedValue | None:
        """Return the first usable value of the source, else the last that was read, else None. It never raises.

        It may return early: the caller waits for the end of the time all the same.

        Args:
            domain: reads what the source returns; a wrong type is no value.
            seconds: how long the source has, from now; whatever it still does afterwards is ignored.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        best: ParsedValue | None = None
        while True:
            asking = asyncio.create_task(self._once(domain), name="hush-source")
            try:
                await asyncio.wait((asking,), timeout=max(deadline - loop.time(), 0))
            finally:
                asking.cancel()
            if not asking.done():
                return best
            best = asking.result() or best
            left = deadline - loop.time()
            if (best is not None and best.coercion != "replaced") or left <= 0:
                return best
            await asyncio.sleep(min(_PAUSE, left))

    async def _once(self, domain: Domain) -> ParsedValue | None:
        """Return the current value; None if there is none or the source fails: its message may hold the value."""
        if self._busy:
            return None
        self._busy, self._late = True, False
        try:
            if inspect.iscoroutinefunction(self._source):
                return await self._awaited(self._source(), domain)
            reading, rest = await run_aside(partial(self._called, domain))
            return reading if rest is None else await self._awaited(rest, domain)
        except BaseException:  # noqa: BLE001 - our own cancellation, too: then nobody looks at the result
            self._late = True
            return None

    def _called(self, domain: Domain) -> tuple[ParsedValue | None, Awaitable[object] | None]:
        """In the thread: return the value, read here, where its methods may take their time; or what to await."""
        try:
            value = self._source()
            if self._late and inspect.iscoroutine(value):
                value.close()  # nobody will await it, and Python would say so
            return (None, value) if inspect.isawaitable(value) else (_read_value(domain, value), None)
        finally:
            self._busy = False

    async def _awaited(self, value: Awaitable[object], domain: Domain) -> ParsedValue | None:
        try:
            self._busy = True
            return _read_value(domain, await value)
        finally:
            self._busy = False


def _read_value(domain: Domain, value: object) -> ParsedValue | None:
    return None if value is None else domain.read(value, strict=False)


async def read_all(domain: Domain, values: Mapping[str, object]) -> dict[str, ParsedValue]:
    """Read each value; in a separate thread if values have methods of their own.

    Raises:
        TypeError: the domain never takes values of this type; it names the device.
    """

    def read() -> dict[str, ParsedValue]:
        readings = {}
        for device, value in values.items():
            try:
                readings[device] = domain.read(value)
            except TypeError as error:
                raise TypeError(f"device {device!r}: {error}" if len(values) > 1 else str(error)) from None
        return readings

    return read() if all(map(_is_plain, values.values())) else await run_aside(read)


def _is_plain(value: object) -> bool:
    """Whether nothing but Python's own code runs when it is read."""
    if type(value) in (list, tuple):
        return all(type(part) in _PLAIN for part in value)  # type: ignore[attr-defined]  # a sequence
    return type(value) in _PLAIN


async def run_aside(function: Callable[[], _T]) -> _T:
    """Call a function in its own thread, which is abandoned if nobody waits for it any more."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_T] = loop.create_future()

    def finish(result: _T | None, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]  # the function's

    def run() -> None:
        result, error = None, None
        try:
            result = function()
        except BaseException as raised:  # noqa: BLE001 - handed to the caller
            error = raised if isinstance(raised, Exception) else RuntimeError(type(raised).__name__)
        try:
            loop.call_soon_threadsafe(finish, result, error)
        except RuntimeError:  # the loop is closed: nobody waits
            return

    threading.Thread(target=run, name="hush-aside", daemon=True).start()
    return await done


class SourceWorker:
    """Answers one task for one device from a source, for as long as the gateway is open.

    Each round goes the same way, whatever the source does: decide, and fix when the report will leave; call the source
    until its time is over; draw, store, and send at the time that was fixed. So neither the log nor the state nor the
    network tells whether there was a value, how late it came, or how it was used.

    Args:
        task_id: which task; it need not be published yet.
        source: returns the values.
        device: whose answer it is.
        source_timeout: seconds that the source has in each round.
        service: decides before the source is called, and stores the answer.
        absent: `"skip"` leaves a round out in which the source returned None or failed.
        told: called with each receipt.
    """

    def __init__(
        self,
        task_id: str,
        source: Source,
        *,
        device: str,
        source_timeout: float,
        service: AnswerService,
        absent: OnMissing = "answer",
        told: ReceiptCallback | None = None,
    ) -> None:
        self._task_id = task_id
        self._source = ValueSource(source)
        self._device = device
        self._source_timeout = source_timeout
        self._service = service
        self._tasks = service.tasks
        self._clock = service.config.clock
        self._absent = absent
        self._told = told
        self._finished: tuple[bytes, int] | None = None
        self._tried: tuple[bytes, int] | None = None
        self._retry = _FIRST_RETRY
        self._retry_at = 0.0

    async def run(self) -> None:
        """Answer round after round until cancelled."""
        complaint: TaskError | None = None
        while True:
            version = self._tasks.version
            try:
                task = await self._tasks.wait(self._task_id)
            except TaskError as error:
                if error is not complaint:
                    _LOG.warning("%s: cannot be answered: %s", self._task_id, error)
                complaint = error
                await self._tasks.change(version)
                continue
            round_ = task.current_round(self._clock())
            if round_ is not None and self._is_time((task.digest, round_)):
                await self._attempt(task, round_)
            await self._tasks.change(version, self._pause(task, round_))

    def _is_time(self, question: tuple[bytes, int]) -> bool:
        if question == self._finished:
            return False
        if question != self._tried:  # a new round or a new task does not wait for the pace of the one before
            self._tried, self._retry, self._retry_at = question, _FIRST_RETRY, 0.0
        return asyncio.get_running_loop().time() >= self._retry_at

    async def _attempt(self, task: Task, round_: int) -> None:
        try:
            receipt = await self._answer(task)
        except (StateError, _PostponedError) as error:
            self._try_later(str(error))
            return
        if receipt.reason in _TEMPORARY:
            self._try_later(f"refused: {receipt.meaning}")
            return
        self._finished = task.digest, round_
        outcome = receipt.status if receipt.reason is None else f"refused: {receipt.meaning}"
        _LOG.info("%s, round %d: %s", task.id, round_, outcome)
        if self._told is not None:
            with suppress(Exception):  # an application's mistake must end nothing; its message may hold the value
                self._told(receipt)

    async def _answer(self, task: Task) -> Receipt:
        loop = asyncio.get_running_loop()
        question, patience, due = self._service.ask_a_source(task, self._source_timeout)
        until = loop.time() + patience
        receipt = await self._service.admit(question, self._device)
        if receipt.status != "queued":
            return receipt
        reading = await self._source.read(task.domain, until - loop.time())
        await asyncio.sleep(until - loop.time())  # whenever the value came, if one came
        if not await self._is_current(task):
            raise _PostponedError("it was changed or withdrawn while its source was asked")
        if reading is None and self._absent == "skip":
            raise _PostponedError("its source has no value, and such rounds are to be skipped")
        answers = await self._service.store(question, {self._device: reading or task.domain.nothing}, due)
        return answers[self._device][0]

    async def _is_current(self, task: Task) -> bool:
        """Whether the task may still be answered; after a new connection, once the broker has sent it again."""
        with suppress(TimeoutError, TaskError):
            async with asyncio.timeout(_RECONNECTED):
                return await self._tasks.wait(task.id) is task
        return False

    def _try_later(self, why: str) -> None:
        _LOG.warning("%s: not answered yet: %s; trying again in %.0f s", self._task_id, why, self._retry)
        self._retry_at = asyncio.get_running_loop().time() + self._retry
        self._retry = min(2 * self._retry, _LONGEST_RETRY)

    def _pause(self, task: Task, round_: int | None) -> float:
        """Return the seconds until there may be something to do."""
        now = self._clock()
        upcoming = 0 if round_ is None else round_ + 1
        opens = task.round_opens(upcoming) if upcoming < task.rounds else None
        pause = _CLOCK_CHECK
        if opens is not None and opens > now:  # else it is always open, or closed permanently
            pause = min(opens - now, timedelta(seconds=_CLOCK_CHECK)).total_seconds()
        if round_ is not None and (task.digest, round_) != self._finished:
            pause = min(pause, self._retry_at - asyncio.get_running_loop().time())
        return max(pause, 0.01)


class _PostponedError(Exception):
    """The answer was postponed; carries the reason, which depends on a source only where `absent` allows it."""
