"""Many devices behind one connection and one state file, each with its own ledger; and answers from sources.

A source's code may raise, hang, end its thread or return nonsense, and all of it depends on the value. So a device
decides first and only then calls the source, and nothing but the report depends on the result. A source that is not
`async def` runs in its own daemon thread, which nobody joins: one that hangs delays no other source and no exit.
"""

# ruff: noqa: ASYNC109 - a timeout here ends in a receipt or a message, not in TimeoutError
import asyncio
import inspect
import logging
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar

from hush_client.limits import (
    CAPACITY,
    GATEWAY_BYTES,
    LONGEST_KEEP,
    check_process,
    check_seconds,
    check_type,
    not_a_sender,
)
from hush_client.policy import Policy
from hush_client.privacy.answer import FRAME_REPORTS, Answer, Question, admit, answer
from hush_client.receipt import Reason, Receipt
from hush_client.sending.schedule import (
    HOUR,
    LONGEST_SPREAD,
    Clock,
    RetentionPolicy,
    draw_delay,
    milliseconds,
    milliseconds_to_wait,
    utc_now,
)
from hush_client.sending.sender import Sender, SyncResult
from hush_client.sending.transport import Transport
from hush_client.state.database import DeviceState, Lock, store_policy
from hush_client.state.ledger import accounts
from hush_client.statement import Statement, read_statement
from hush_client.tasks import TaskCacheWriter, TaskRegistry, open_tasks
from hush_common.domain import Domain, ParsedValue
from hush_common.errors import BrokerError, OptionError, StateError, TaskError
from hush_common.rng import ReportRng, SystemRng
from hush_common.task import Task, is_task_id
from hush_common.topics import ALL_TASKS, Acknowledgement, is_sender, report_topic, task_topic

_T = TypeVar("_T")
_LOG = logging.getLogger(__name__)


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
    on_delivery: "ReceiptCallback | None" = None

    def __post_init__(self) -> None:
        check_type("name", self.name, str, 'text such as "house-4"')
        check_type("policy", self.policy, Policy, "a Policy")
        check_seconds("spread", self.spread)
        check_type("capacity", self.capacity, int, "a whole number")
        check_type("frame", self.frame, int, "a whole number of reports")
        check_seconds("keep", self.retention.keep)
        check_type("kept_bytes", self.retention.room, int, "a whole number of bytes")
        check_seconds("recall_every", self.retention.every)
        check_callback("on_delivery", self.on_delivery)
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
        """Return the question, with its time of sending; the delay starts after the `patience` ms of a source."""
        now = self.clock()
        delay = patience + draw_delay(self.spread, task, now + timedelta(milliseconds=patience))
        topic, not_before = report_topic(task.id, self.name), milliseconds(now) + delay
        return Question(task, topic, self.policy, now, epsilon, not_before, delay, self.capacity, self.frame)


def check_names(devices: Iterable[str]) -> None:
    if not all(devices):
        raise OptionError("device", "is empty; a device needs a name")


def check_callback(option: str, callback: object) -> None:
    """Raise TypeError unless a callback is None or a function that is not `async def`, which would never run."""
    if callback is None:
        return
    if not callable(callback):
        raise TypeError(f"{option} must be a function of one receipt, not of type {type(callback).__name__}")
    if inspect.iscoroutinefunction(callback):
        raise TypeError(f"{option} must not be `async def`; create a task in a plain function instead")


def check_source(source: object, source_timeout: float, absent: str, on_receipt: object = None) -> None:
    """Check the arguments of `Gateway.answer`.

    Raises:
        TypeError: the source or `on_receipt` cannot be called, or the timeout is not a number.
        OptionError: `source_timeout` or `absent` has an invalid value.
    """
    if not callable(source):
        raise TypeError(f"source must be a function without arguments, not of type {type(source).__name__}")
    check_callback("on_receipt", on_receipt)
    check_seconds("source_timeout", source_timeout)
    if not 0 < source_timeout <= LONGEST_SPREAD:
        raise OptionError("source_timeout", f"must be above 0 s and at most a week, got {source_timeout} s")
    if absent not in ("answer", "skip"):
        raise OptionError("absent", f"must be 'answer' or 'skip', got {str(absent)[:40]!r}")


class BackgroundTasks:
    """What runs next to the application while a gateway is open."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[None], None] = {}

    def start(self, work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
        """Run `work` until it ends by itself, is cancelled, or `stop` is called."""
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(self._end)
        self._tasks[task] = None
        return task

    async def stop(self) -> None:
        """Cancel everything, and wait until it has ended."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait([*self._tasks])

    def _end(self, task: "asyncio.Task[None]") -> None:
        if task.cancelled():
            del self._tasks[task]
        else:
            _log_error(task)

    def check(self) -> None:
        """Raise the first mistake that ended a task."""
        for task in self._tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error


def _log_error(task: asyncio.Task[None]) -> None:
    if (error := task.exception()) is not None:
        # Its name alone: a message of Python's might quote what it could not handle.
        _LOG.error("%s ended with an error (%s); close the client to see it", task.get_name(), type(error).__name__)


@dataclass(frozen=True, slots=True)
class AnswerService:
    """An open gateway: waits for tasks, decides questions, and stores answers for the sender."""

    config: GatewayConfig
    cache: TaskCacheWriter
    state: DeviceState
    sender: Sender
    rng: ReportRng
    background: BackgroundTasks = field(default_factory=BackgroundTasks)
    sources: dict[tuple[str, str], "asyncio.Task[None]"] = field(default_factory=dict)  # by device and task
    watched: set[str] = field(default_factory=set)  # tasks that have or had a source
    undelivered: dict[int, list[Receipt]] = field(default_factory=dict)  # by entry; only if somebody is called

    @property
    def tasks(self) -> TaskRegistry:
        return self.cache.registry

    def subscribe(self, task_id: str) -> str:
        """Subscribe to a task, and return its topic; TypeError or TaskError if the id is not legal."""
        if not isinstance(task_id, str):
            raise TypeError(f'a task id must be text, such as "heights", not of type {type(task_id).__name__}')
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
            if not self.sender.connected and (cached := self.tasks.last_known(task_id)) is not None:
                return cached
            raise self.sender.forbidden.get(topic) or self._unknown(task_id, topic) from None

    def _unknown(self, task_id: str, topic: str) -> BrokerError:
        sender = self.sender
        if sender.connected:
            what = "publish it, check the name, or let this user read"
            return BrokerError(sender.broker, f"no task {task_id!r} on this broker: {what} {topic}")
        trouble = sender.trouble.message if isinstance(sender.trouble, BrokerError) else None
        why = trouble or str(sender.trouble or "no connection yet; check the address, or wait longer")
        known = "was withdrawn" if self.tasks.is_withdrawn(task_id) else "is not known here"
        return BrokerError(
            sender.broker,
            f"{why}; task {task_id!r} {known}: this device cannot answer it before it has reached the broker once",
        )

    def watch(self, task_id: str) -> None:
        """From now on log why a task that has sources is not answered."""
        if task_id not in self.watched:
            self.watched.add(task_id)
            self.background.start(self._log_unanswered(task_id), f"hush-watch-{task_id}")

    async def _log_unanswered(self, task_id: str) -> None:
        """Log a reason once it has held for `_UNANSWERED` seconds, and not again before it changes."""
        logged = before = ""
        was_open = False
        while True:
            await asyncio.sleep(_UNANSWERED)
            why, text = await self._why_unanswered(task_id)
            if why and why == before and why != logged:
                logged = why
                _LOG.log(logging.INFO if was_open else logging.WARNING, "%s: not answered: %s", task_id, text)
            before = why
            if not why:
                logged, was_open = "", True

    async def _why_unanswered(self, task_id: str) -> tuple[str, str]:
        """Return why a task cannot be answered now, for a comparison and for a person; empty if it can."""
        try:
            task = await self.task(task_id, 0)
        except BrokerError as error:
            return f"unknown, {self.sender.connected}", str(error)
        except TaskError:
            return "", ""  # its workers log it
        return self._why_closed(task)

    def _why_closed(self, task: Task) -> tuple[str, str]:
        """Return why no round is open, for a comparison and for a person; empty if one is."""
        now = self.config.clock()
        if task.current_round(now) is not None:
            return "", ""
        is_early = task.opens is not None and now < task.opens
        reason, moment = (Reason.NOT_OPEN, task.opens) if is_early else (Reason.CLOSED, task.closes)
        times = [f"{one.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC" for one in (moment, now) if one is not None]
        since = "opens on" if is_early else "closed on"
        return reason, f"{reason.meaning} (it {since} {times[0]}; the clock of this device shows {times[-1]})"

    def due(self, question: Question) -> float:
        """Return when an answer is to be sent, by the sender's clock."""
        return self.sender.now() + question.delay / 1000

    async def store(self, question: Question, values: Mapping[str, ParsedValue], due: float) -> dict[str, Answer]:
        """Answer, and send what was stored from `due` on; see `hush_client.privacy.answer.answer`."""
        offline = not self.sender.connected

        def send(answers: dict[str, Answer]) -> None:
            if any(receipt.reason is None for receipt, _ in answers.values()):
                self.cache.note_answer(question.task.id)
            if self.config.on_delivery is not None:
                for receipt, entry in answers.values():
                    if receipt.status == "queued" and entry is not None:
                        self.undelivered.setdefault(entry, []).append(receipt)
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

    def acknowledged(self, sequence: int, ack: Acknowledgement) -> None:
        """Call `on_delivery` with the receipts of an entry that this run has stored."""
        receipts = [receipt.acknowledged(ack) for receipt in self.undelivered.get(sequence, ())]
        if any(receipt.status == "sent" for receipt in receipts):
            del self.undelivered[sequence]
        for receipt in receipts:
            call_safely(self.config.on_delivery, receipt)


def call_safely(callback: "ReceiptCallback | None", receipt: Receipt) -> None:
    """Call an application's callback: its mistake must end nothing, and is not logged: its text may hold the value."""
    if callback is not None:
        with suppress(Exception):
            callback(receipt)


Source = Callable[[], object] | Callable[[], Awaitable[object]]
"""Returns the current value, or None if there is none. One that is not async runs in a thread."""

OnMissing = Literal["answer", "skip"]  # what to do in a round in which a source had no value at all

ReceiptCallback = Callable[[Receipt], object]  # is called with the receipt of every answer

_PAUSE = 1.0  # seconds after which a source without a value is called again
_PLAIN = frozenset({type(None), bool, int, float, str, Decimal, Fraction})
_FIRST_RETRY = 60.0
_LONGEST_RETRY = 3600.0
_RECONNECTED = 10.0  # seconds for a new connection to bring the task again
_CLOCK_CHECK = 60.0  # seconds; the wall clock decides which round is open, and may be set at any time
_UNANSWERED = 30.0  # seconds for which a task is unknown, not open or closed before this is logged

_TEMPORARY = (Reason.OUTBOX_FULL, Reason.NOT_OPEN, Reason.CLOSED)
"""Refusals that end by themselves, or when the clock is set right; any other ends the round."""


class ValueSource:
    """A source, which is not called again while it is busy with an earlier call."""

    def __init__(self, source: Source) -> None:
        self.fault: str = ""
        """What was wrong with the last `read`, if it gave no usable value: see `Receipt.fault`."""
        self.is_wrong_type: bool = False
        """Whether that was the type of what the source returned, which no value should choose."""
        self._source = source
        self._busy = False
        self._late = False

    async def read(self, domain: Domain, seconds: float) -> ParsedValue | None:
        """Return the first usable value of the source, else the last that was read, else None. It never raises.

        A wrong type is a missing value. It may return before the `seconds` are over: the caller waits anyway.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        best, call = None, _LATE  # the last call that has returned
        while True:
            asking = asyncio.create_task(self._once(domain), name="hush-source")
            try:
                await asyncio.wait((asking,), timeout=max(deadline - loop.time(), 0))
            finally:
                asking.cancel()
            if asking.done():
                call = asking.result()
                best = call.reading or best
            left = deadline - loop.time()
            is_usable = best is not None and best.coercion != "replaced"
            if is_usable or left <= 0 or not asking.done():
                self.fault = "" if is_usable else call.fault
                self.is_wrong_type = call.is_wrong_type and not is_usable
                return best
            await asyncio.sleep(min(_PAUSE, left))

    async def _once(self, domain: Domain) -> "_SourceCall":
        """Call the source; if it fails, only the type of the error is kept: its message may hold the value."""
        if self._busy:
            return _LATE
        self._busy, self._late = True, False
        try:
            if inspect.iscoroutinefunction(self._source):
                return await self._awaited(self._source(), domain)
            call, rest = await run_aside(partial(self._called, domain))
            return call if rest is None else await self._awaited(rest, domain)
        except BaseException as error:  # noqa: BLE001 - our own cancellation, too: then nobody looks at the result
            self._late = True
            return _SourceCall(fault=f"the source raised {type(error).__name__}")

    def _called(self, domain: Domain) -> "tuple[_SourceCall, Awaitable[object] | None]":
        """In the thread: return the value, read here, where its methods may take their time; or what to await."""
        try:
            value = self._source()
            if self._late and inspect.iscoroutine(value):
                value.close()  # nobody will await it, and Python would say so
            return (_LATE, value) if inspect.isawaitable(value) else (_read_value(domain, value), None)
        finally:
            self._busy = False

    async def _awaited(self, value: Awaitable[object], domain: Domain) -> "_SourceCall":
        try:
            self._busy = True
            return _read_value(domain, await value)
        finally:
            self._busy = False


@dataclass(frozen=True, slots=True)
class _SourceCall:
    """What one call of a source returned, and what was wrong with it."""

    reading: ParsedValue | None = None
    fault: str = ""
    is_wrong_type: bool = False


_LATE = _SourceCall(fault="the source had not returned when its time was over (source_timeout)")


def _read_value(domain: Domain, value: object) -> _SourceCall:
    if value is None:
        return _SourceCall()
    try:
        return _SourceCall(domain.read(value))
    except TypeError as error:  # it names only the type
        return _SourceCall(domain.read(value, strict=False), f"the source returned a wrong type: {error}", True)


async def read_all(domain: Domain, values: Mapping[str, object]) -> dict[str, ParsedValue]:
    """Read each value, in a separate thread if values have their own methods; a TypeError names the device."""

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
    """Answers one task for one device from a source, for as long as the gateway is open; see `Gateway.answer`.

    Each round goes the same way, whatever the source does: decide, and fix the time of sending; call the source until
    its time is over; draw, store, and send at that time. So neither the log nor the state nor the network reveals
    whether there was a value, how late it came, or how it was used. A source whose result has a wrong type is logged,
    once in a process: that is a mistake of the program.
    """

    has_logged_type: ClassVar[bool] = False

    def __init__(
        self,
        task_id: str,
        source: Source,
        *,
        device: str,
        source_timeout: float,
        service: AnswerService,
        absent: OnMissing = "answer",
        on_receipt: ReceiptCallback | None = None,
    ) -> None:
        self._task_id = task_id
        self._source = ValueSource(source)
        self._device = device
        self._source_timeout = source_timeout
        self._service = service
        self._tasks = service.tasks
        self._clock = service.config.clock
        self._absent = absent
        self._on_receipt = on_receipt
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
        call_safely(self._on_receipt, receipt)

    async def _answer(self, task: Task) -> Receipt:
        loop = asyncio.get_running_loop()
        patience = milliseconds_to_wait(self._source_timeout, task, self._clock())
        question = self._service.config.question(task, patience=patience)
        due, until = self._service.due(question), loop.time() + patience / 1000
        receipt = await self._service.state.run(partial(admit, question=question, device=self._device))
        if receipt.status != "queued":
            return receipt
        reading = await self._source.read(task.domain, until - loop.time())
        await asyncio.sleep(until - loop.time())  # whenever the value came, if one came
        if not await self._is_current(task):
            raise _PostponedError("it was changed or withdrawn while its source was called")
        if reading is None and self._absent == "skip":
            raise _PostponedError("its source has no value, and such rounds are skipped")
        answers = await self._service.store(question, {self._device: reading or task.domain.nothing}, due)
        receipt = answers[self._device][0]
        if self._source.is_wrong_type and not SourceWorker.has_logged_type:
            SourceWorker.has_logged_type = True
            _LOG.warning("%s: %s; until then the answers are random (logged once)", task.id, self._source.fault)
        return replace(receipt, fault=self._source.fault) if self._source.fault else receipt

    async def _is_current(self, task: Task) -> bool:
        """Whether the task is unchanged; after a new connection, once the broker has sent it again."""
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
    """The answer was postponed, for a reason that depends on a source only where `absent` allows it."""


@asynccontextmanager
async def _open_service(
    config: GatewayConfig, transport: Transport, directory: Path, rng: ReportRng
) -> AsyncIterator[AnswerService]:
    """Lock and open the state, and keep sending from it; StateError as `Gateway` says."""
    background = BackgroundTasks()
    async with AsyncExitStack() as stack:
        lock = await Lock.acquire(directory)
        stack.callback(lock.release)
        state = await DeviceState.open(directory)
        stack.push_async_callback(state.close)
        await asyncio.to_thread(store_policy, directory, config.policy)
        cache = await stack.enter_async_context(open_tasks(directory))
        stack.push_async_callback(background.stop)
        sender = Sender(transport, state, cache.registry, config.clock, config.retention)
        service = AnswerService(config, cache, state, sender, rng, background)
        sender.on_acknowledgement = service.acknowledged
        background.start(cache.run(), "hush-cache-tasks")
        background.start(sender.run(), f"hush-sender-{config.name}")
        yield service
    background.check()


class Gateway:
    """Answers tasks for many devices. An async context manager; entering it opens the state and starts the sender.

    Args:
        transport: the way to the broker.
        name: the sender in the topics of its reports: the MQTT user if the broker's access rules require it.
        state: directory of the durable state; created if it does not exist.
        policy: the limits of each device.
        spread: seconds, 0 to a week. Each report waits a random time of at most `spread` before it is sent, so that
            the time of sending reveals neither how long the draw took (which depends on the noise) nor the order of
            the devices. One second hides a draw a thousand times over; a gateway does well to take minutes.
        capacity: most payloads that may wait for the broker, each a report or a frame of many. One more is refused as
            `Reason.OUTBOX_FULL` before anything is spent. Payloads that are too late to be counted do not count here.
        keep: seconds, 0 to a week. A report is kept for this long after the broker's acknowledgement, because a broker
            may lose it and an aggregator may request it again. An attacker who takes over the aggregator within that
            time can also have reports sent again, and see from where. 0 keeps nothing: what a broker loses is lost.
        kept_bytes: most bytes of kept reports; beyond it the oldest are deleted, which `Statement.dropped` counts.
        recall_every: least seconds between two recalls of one task that the gateway applies.
        frame: most reports in one message, 1 to 256, of those that are made together (`report_many`).
        on_delivery: called in the event loop with the receipt of each answer of this run when the broker has
            acknowledged it (`"sent"`), and each time that the broker reports not to have it (`"undelivered"`). It must
            not block.
        rng: source of the noise. Anything but the default is for experiments, and not private.
        clock: the current time, aware.

    Raises:
        OptionError: `name` cannot be part of a topic, or a number is out of range.
        StateError: (on entering) the state cannot be opened or trusted, or another gateway is sending from it.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        name: str,
        state: Path,
        policy: Policy | None = None,
        spread: float = 1.0,
        capacity: int = CAPACITY,
        keep: float = LONGEST_KEEP,
        kept_bytes: int = GATEWAY_BYTES,
        recall_every: float = HOUR,
        frame: int = FRAME_REPORTS,
        on_delivery: "ReceiptCallback | None" = None,
        rng: ReportRng | None = None,
        clock: Clock = utc_now,
    ) -> None:
        retention = RetentionPolicy(name, keep, kept_bytes, recall_every)
        self._config = GatewayConfig(name, policy or Policy(), spread, capacity, clock, frame, retention, on_delivery)
        self._transport = transport
        self._directory = Path(state)
        self._rng = rng or SystemRng()
        self._service: AnswerService | None = None
        self._process = 0
        self._end = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            opening = _open_service(self._config, self._transport, self._directory, self._rng)
            self._service = await stack.enter_async_context(opening)
            self._process = os.getpid()
            self._end = stack.pop_all()
        return self

    async def __aexit__(self, *error: object) -> None:
        self._service = None
        await self._end.aclose()

    async def report(
        self, device: str, task_id: str, value: object, *, timeout: float | None = 30.0, epsilon: Fraction | None = None
    ) -> Receipt:
        """Answer the current round of a task for one device, at most once, and wait for the broker.

        You may cancel it at any time: the answer is either stored whole, and will be sent, or nothing happened. A
        later call for the same round returns its receipt, and waits for the broker, too.

        Whatever the value is, the answer is charged, stored and sent alike. A number outside the bounds counts as the
        nearer bound; without a usable value (None, NaN) an index is drawn uniformly over the domain. Only
        `receipt.value` shows it. So call this also if a value is missing: silence would reveal that.

        Args:
            device: whose answer and whose ledger; any text, never sent.
            task_id: id of a published task.
            value: the private value. It is perturbed here, and neither stored nor logged. Its type must not depend on
                the value: text instead of a number raises TypeError, which gives no answer.
            timeout: seconds to wait for the task and for the acknowledgement; None has no limit, 0 does not wait. If
                it is shorter than the spread, the receipt is mostly `"queued"`.
            epsilon: one of the totals that the task offers; None takes the largest that the limits of the device
                allow. It is public, so choose it independently of the value.

        Raises:
            BrokerError: the task is not known in time: no connection, or nothing published under this id.
            TaskError: the id or what is published under it is not legal.
            EpsilonError: the task does not offer `epsilon`; nothing was spent.
            TypeError: the task never takes values of this type; nothing was decided, drawn or spent.
            StateError: the disk is full, or the state damaged; nothing was spent or sent.
        """
        answers = self.report_many(task_id, {device: value}, timeout=timeout, epsilon=epsilon)
        del value  # what follows waits for the network, and does not need it
        return (await answers)[device]

    async def report_many(
        self,
        task_id: str,
        values: Mapping[str, object],
        *,
        timeout: float | None = 30.0,
        epsilon: Fraction | None = None,
    ) -> dict[str, Receipt]:
        """Answer the current round of a task for many devices, each at most once; otherwise like `report`.

        All is stored in one transaction and sent in frames of up to `frame` reports, each in a random order.

        Args:
            task_id: id of a published task.
            values: the private value of each device, by its name; None for a device that has no value now.
            timeout: as in `report`.
            epsilon: as in `report`.

        Raises:
            TypeError: the task never takes values of this type; the error names the device. No device has answered.
        """
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        check_names(values)
        service = self._opened()
        task = await service.task(task_id, timeout)
        readings = await read_all(task.domain, values)
        del values
        question = self._config.question(task, epsilon)
        answers = await service.store(question, readings, service.due(question))  # counted from before the draw
        acks = {entry: service.sender.acknowledgement(entry) for _, entry in answers.values() if entry is not None}
        if acks:
            left = None if deadline is None else max(deadline - loop.time(), 0)
            await asyncio.wait(acks.values(), timeout=left)
        done = {entry: ack.result() for entry, ack in acks.items() if ack.done()}
        return {
            device: receipt if entry is None or (ack := done.get(entry)) is None else receipt.acknowledged(ack)
            for device, (receipt, entry) in answers.items()
        }

    def answer(
        self,
        device: str,
        task_id: str,
        source: Source,
        *,
        source_timeout: float = 10.0,
        absent: OnMissing = "answer",
        on_receipt: ReceiptCallback | None = None,
    ) -> None:
        """Answer a task for one device from now on: once in each open round, until the gateway is closed.

        The source is called only when policy, ledger, outbox and the times of the task admit an answer; they are
        checked again in the transaction that stores it. The time of sending is fixed before the call. The source may
        be called several times until `source_timeout`; then the answer is drawn from what it returned. If it returned
        None, raised or was late, the answer is drawn from a uniform index: nothing is postponed, left out or logged.
        Only a result of a wrong type is logged, once in a process.

        Args:
            device: whose answer and whose ledger.
            task_id: id of a task, which need not be published yet.
            source: returns the current value, or None. A plain function runs in its own thread; an `async def` must
                not block the loop.
            source_timeout: seconds, above 0 and at most a week, that it has in each round.
            absent: `"skip"` leaves a round out for now in which the source returned None, raised or was late. Use it
                only where absence reveals nothing about a person (a sensor without power): everybody sees who is
                silent.
            on_receipt: called in the event loop with the receipt of each round. Its `value` says how the value was
                used, and `fault` what was wrong with the source. It must not block, nor send these anywhere.

        Raises:
            TaskError: the id is not legal.
            ValueError: this device already answers this task from a source.
            TypeError: the source or `on_receipt` cannot be called, or `source_timeout` is not a number.
            OptionError: `source_timeout` or `absent` has an invalid value.
        """
        check_names((device,))
        check_source(source, source_timeout, absent, on_receipt)
        service = self._opened()
        service.subscribe(task_id)
        if (device, task_id) in service.sources:
            raise ValueError(f"{task_id} is already answered from a source")
        worker = SourceWorker(
            task_id,
            source,
            device=device,
            source_timeout=source_timeout,
            service=service,
            absent=absent,
            on_receipt=on_receipt,
        )
        service.tasks.hold(task_id)
        service.sources[device, task_id] = service.background.start(worker.run(), f"hush-answer-{task_id}")
        service.watch(task_id)

    def stop_answering(self, device: str, task_id: str) -> None:
        """Answer a task for a device no longer. A report that is stored is sent; nothing else is charged.

        When you call it must not depend on a value: everybody sees who is silent.

        Raises:
            ValueError: this device does not answer this task from a source.
        """
        service = self._opened()
        worker = service.sources.pop((device, task_id), None)
        if worker is None:
            raise ValueError(f"{task_id} is not answered from a source")
        worker.cancel()
        service.tasks.release(task_id)

    async def task(self, task_id: str, *, timeout: float | None = 30.0) -> Task:
        """Return the task published under an id; wait for it if necessary.

        Raises:
            BrokerError: it is not known in time.
            TaskError: the id or what is published under it is not legal.
        """
        return await self._opened().task(task_id, timeout)

    def tasks(self) -> dict[str, Task]:
        """Return the tasks known now, by id: the requested ones, and all of them once `on_task` was called.

        At most 1000 of them or 8 MiB are remembered: see `hush_client.tasks`. A closed gateway knows none.
        """
        return {} if self._service is None else self._opened().tasks.tasks()

    @property
    def trouble(self) -> str:
        """Why there is no connection, in one line for a person; empty while there is one, or none was tried yet."""
        sender = None if self._service is None else self._service.sender
        return "" if sender is None or sender.connected else str(sender.trouble or "")

    def on_task(self, callback: Callable[[Task], object]) -> None:
        """Call `callback` with every task on the broker: those known now, and each one that is new or changed.

        It is called in the event loop and must not block. It decides nothing: a task that it ignores costs nothing.
        """
        if not callable(callback):
            raise TypeError(f"callback must be a function of one task, not of type {type(callback).__name__}")
        service = self._opened()
        service.tasks.listen(callback)
        service.sender.subscribe(ALL_TASKS)

    async def devices(self) -> tuple[str, ...]:
        """Return the names of the devices that have spent something.

        Raises:
            StateError: the state is damaged, or locked for long.
        """
        return tuple(dict.fromkeys(account.device for account in await self._opened().state.run(accounts)))

    async def ledger(self, device: str) -> Statement:
        """Return what a device has spent, on what, and the highest certainty that an observer can reach.

        Raises:
            StateError: the state is damaged, or locked for long.
        """
        state = self._opened().state
        return await state.run(partial(read_statement, device=device, policy=self._config.policy))

    async def sync(self, *, timeout: float | None = 30.0) -> SyncResult:
        """Send what is due, and what an aggregator recalls of the reports of earlier runs: for short programs.

        It waits for the answers to its subscriptions and one second more, and until the broker has acknowledged what
        was due by then. What is due later is sent by a later run, or while the client stays open.
        """
        sender, done = self._opened().sender, False
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await sender.sync()
                done = True
        return await sender.sync_result(done=done)

    async def flush(self, *, timeout: float | None = 30.0) -> bool:
        """Wait until the broker has everything stored.

        Return False after the timeout, or once only reports that the broker refuses are left.
        """
        sender = self._opened().sender
        try:
            async with asyncio.timeout(timeout):
                return await sender.flush()
        except TimeoutError:
            return False

    def _opened(self) -> AnswerService:
        if self._service is None:
            raise RuntimeError("the gateway is closed; use it inside `async with`")
        check_process(self._process)
        return self._service
