"""Many devices behind one connection and one state file, each with its own ledger."""

# ruff: noqa: ASYNC109 - a timeout here ends in a receipt or a message, not in TimeoutError
import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hush_client.answering import AnswerService, GatewayConfig, check_names, check_source
from hush_client.limits import CAPACITY, GATEWAY_BYTES, LONGEST_KEEP
from hush_client.policy import Policy
from hush_client.privacy.answer import FRAME_REPORTS
from hush_client.receipt import Receipt
from hush_client.sending.schedule import HOUR, Clock, RetentionPolicy, utc_now
from hush_client.sending.sender import Sender, SyncResult
from hush_client.sending.transport import Transport
from hush_client.source import OnMissing, ReceiptCallback, Source, SourceWorker, read_all
from hush_client.state.database import Lock, State
from hush_client.statement import Statement, read_statement
from hush_client.tasks import open_tasks
from hush_common.rng import ReportRng, SystemRng
from hush_common.task import Task
from hush_common.topics import ALL_TASKS

_LOG = logging.getLogger(__name__)


class BackgroundTasks:
    """What runs next to the application while a gateway is open."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run `work` until it ends by itself or `stop` is called."""
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(_log_error)
        self._tasks.append(task)

    async def stop(self) -> None:
        """Cancel everything, and wait until it has ended."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def check(self) -> None:
        """Raise the first mistake that ended a task."""
        for task in self._tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error


def _log_error(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        # Its name alone: a message of Python's might quote what it could not handle.
        _LOG.error("%s ended with an error (%s); close the client to see it", task.get_name(), type(error).__name__)


@dataclass(frozen=True, slots=True)
class Session:
    """An open gateway: its service, what runs in the background, and the (device, task) pairs that have a source."""

    service: AnswerService
    background: BackgroundTasks
    sources: set[tuple[str, str]] = field(default_factory=set)


@asynccontextmanager
async def open_session(
    config: GatewayConfig, transport: Transport, directory: Path, rng: ReportRng
) -> AsyncIterator[Session]:
    """Lock and open the state, and keep sending from it.

    Raises:
        StateError: the state cannot be opened or trusted, or another gateway is sending from it.
    """
    background = BackgroundTasks()
    async with AsyncExitStack() as stack:
        lock = await Lock.acquire(directory)
        stack.callback(lock.release)
        state = await State.open(directory)
        stack.push_async_callback(state.close)
        cache = await stack.enter_async_context(open_tasks(directory))
        stack.push_async_callback(background.stop)
        sender = Sender(transport, state, cache.registry, config.clock, config.retention)
        background.start(cache.run(), "hush-cache-tasks")
        background.start(sender.run(), f"hush-sender-{config.name}")
        yield Session(AnswerService(config, cache, state, sender, rng), background)
    background.check()


class Gateway:
    """Answers tasks for many devices. An async context manager; entering it opens the state and starts the sender.

    Args:
        transport: the way to the broker.
        name: the sender in the topics of its reports: the MQTT user where the broker's access rules ask for it.
        state: directory of the durable state; created if it does not exist.
        policy: the limits of each device.
        spread: seconds, 0 to a week. Each report waits a random time of at most `spread` before it is sent, so that
            the time of sending reveals neither how long the draw took (which depends on the noise) nor the order of
            the devices. One second hides a draw a thousand times over; a gateway does well to take minutes.
        capacity: most payloads that may wait for the broker, each a report or a frame of many. One more is refused as
            `Reason.OUTBOX_FULL` before anything is spent. Payloads that are too late to be counted do not count here.
        keep: seconds, 0 to a week. A report is kept for this long after the broker's acknowledgement, because a broker
            may lose it and an aggregator may ask for it again. Someone who takes over the aggregator within that time
            can also have reports sent again, and see from where. 0 keeps nothing, and loses what a broker loses.
        kept_bytes: most bytes that are kept this way; beyond it the oldest go, which `Statement.dropped` counts.
        recall_every: least seconds between two recalls of one task that the gateway follows.
        frame: most reports in one message, 1 to 256, of those that are made together (`report_many`).
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
        rng: ReportRng | None = None,
        clock: Clock = utc_now,
    ) -> None:
        retention = RetentionPolicy(name, keep, kept_bytes, recall_every)
        self._config = GatewayConfig(name, policy or Policy(), spread, capacity, clock, frame, retention)
        self._transport = transport
        self._directory = Path(state)
        self._rng = rng or SystemRng()
        self._session: Session | None = None
        self._end = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            opening = open_session(self._config, self._transport, self._directory, self._rng)
            self._session = await stack.enter_async_context(opening)
            self._end = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._session = None
        await self._end.aclose()

    async def report(
        self,
        device: str,
        task_id: str,
        value: object,
        *,
        timeout: float | None = 30.0,
        epsilon: Fraction | None = None,
    ) -> Receipt:
        """Answer the current round of a task for one device, at most once, and wait for the broker.

        You may cancel it at any time: the answer is either stored whole, and will be sent, or nothing happened. A
        later call for the same round returns its receipt, and waits for the broker, too.

        Whatever the value is, the answer is charged, stored and sent alike. A number outside the bounds counts as the
        nearer bound; without a usable value (None, NaN) an index is drawn uniformly over the domain. Only
        `receipt.value` tells the program. So call this where a value is missing, too: silence would reveal that.

        Args:
            device: whose answer and whose ledger; any text, never sent.
            task_id: id of a published task.
            value: the private value. It is perturbed here, and neither stored nor logged. Its type must not depend on
                the value: text instead of a number gives no answer.
            timeout: seconds to wait for the task and for the acknowledgement; None has no limit, 0 does not wait. If
                it is shorter than the spread, the receipt is mostly `"queued"`.
            epsilon: which total to take of those that the task offers; None takes the largest that the limits of the
                device allow. It is public, so choose it without regard to the value.

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
        service = self._opened().service
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
        told: ReceiptCallback | None = None,
    ) -> None:
        """Answer a task for one device from now on: once in each open round, until the gateway is closed.

        The source is called only when policy, ledger, outbox and the times of the task admit an answer; they are
        checked again in the transaction that stores it. The time of sending is fixed before the call. The source may
        be called several times until `source_timeout`; then the answer is drawn from what it returned. If it returned
        None, raised or was late, the answer is drawn from a uniform index: nothing is postponed, left out or logged.

        Args:
            device: whose answer and whose ledger.
            task_id: id of a task, which need not be published yet.
            source: returns the current value, or None. A plain function runs in its own thread; an `async def` must
                not block the loop.
            source_timeout: seconds, above 0 and at most a week, that it has in each round.
            absent: `"skip"` leaves a round out for now in which the source returned None, raised or was late. Use it
                only where absence reveals nothing about a person (a sensor without power): everybody sees who is
                silent.
            told: called in the event loop with the receipt of each round, whose `value` says how the value was used.
                It must not block, nor send that anywhere.

        Raises:
            TaskError: the id is not legal.
            ValueError: this device already answers this task from a source.
            TypeError: the source cannot be called, or `source_timeout` is not a number.
            OptionError: `source_timeout` or `absent` has an invalid value.
        """
        check_names((device,))
        check_source(source, source_timeout, absent)
        session = self._opened()
        service = session.service
        service.subscribe(task_id)
        if (device, task_id) in session.sources:
            raise ValueError(f"{task_id} is already answered from a source")
        worker = SourceWorker(
            task_id, source, device=device, source_timeout=source_timeout, service=service, absent=absent, told=told
        )
        service.tasks.hold(task_id)
        session.sources.add((device, task_id))
        session.background.start(worker.run(), f"hush-answer-{task_id}")

    async def task(self, task_id: str, *, timeout: float | None = 30.0) -> Task:
        """Return the task published under an id; wait for it if necessary.

        Raises:
            BrokerError: it is not known in time.
            TaskError: the id or what is published under it is not legal.
        """
        return await self._opened().service.task(task_id, timeout)

    def tasks(self) -> dict[str, Task]:
        """Return the tasks known now, by id: those that were asked for, and all of them once `on_task` was called.

        At most 1000 of them or 8 MiB are remembered: see `hush_client.tasks`. A closed gateway knows none.
        """
        return {} if self._session is None else self._session.service.tasks.tasks()

    @property
    def trouble(self) -> str:
        """Why there is no connection, in one line for a person; empty while there is one, or none was tried yet."""
        sender = None if self._session is None else self._session.service.sender
        return "" if sender is None or sender.connected else str(sender.trouble or "")

    def on_task(self, callback: Callable[[Task], object]) -> None:
        """Call `callback` with every task on the broker: those known now, and each one that is new or changed.

        It is called in the event loop and must not block. It decides nothing: a task that it ignores costs nothing.
        """
        if not callable(callback):
            raise TypeError(f"callback is a function of one task, not of type {type(callback).__name__}")
        service = self._opened().service
        service.tasks.listen(callback)
        service.sender.subscribe(ALL_TASKS)

    async def ledger(self, device: str) -> Statement:
        """Return what a device has spent, on what, and the highest certainty that an observer can reach.

        Raises:
            StateError: the state is damaged, or locked for long.
        """
        state = self._opened().service.state
        return await state.run(partial(read_statement, device=device, policy=self._config.policy))

    async def sync(self, *, timeout: float | None = 30.0) -> SyncResult:
        """Send what is due, and what an aggregator recalls of what earlier runs have kept: for short programs.

        It waits for the answers to its subscriptions and one second more, and until the broker has acknowledged what
        was due by then. What is due later goes with a later run, or while this one lasts.
        """
        sender, done = self._opened().service.sender, False
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await sender.sync()
                done = True
        return await sender.sync_result(done=done)

    async def flush(self, *, timeout: float | None = 30.0) -> bool:
        """Wait until the broker has all that is stored; return False if some of it still waits.

        That is when the time is over, or when nothing is left but what the broker does not take.
        """
        sender = self._opened().service.sender
        try:
            async with asyncio.timeout(timeout):
                return await sender.flush()
        except TimeoutError:
            return False

    def _opened(self) -> Session:
        if self._session is None:
            raise RuntimeError("the gateway is closed; use it inside `async with`")
        return self._session
