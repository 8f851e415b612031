"""A gateway: many devices behind one connection and one state file, each with a ledger of its own."""
# ruff: noqa: ASYNC109 - a timeout here ends in a receipt or a message, not in TimeoutError

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from hush_client.answer import FRAME_REPORTS
from hush_client.asking import Source, read_all
from hush_client.limits import CAPACITY, GATEWAY_BYTES, LONGEST_KEEP
from hush_client.policy import Policy
from hush_client.receipt import Receipt
from hush_client.sending.keeping import HOUR, Keeping
from hush_client.sending.schedule import Clock, utc_now
from hush_client.sending.synced import Synced
from hush_client.sending.transport import Transport
from hush_client.session import Session, open_session
from hush_client.source import Absent, Answering, Told
from hush_client.statement import Statement, read_statement
from hush_client.terms import Terms, check_names, check_source
from hush_common.rng import ReportRng, SystemRng
from hush_common.task import Task
from hush_common.topics import ALL_TASKS

__all__ = ["Gateway"]


class Gateway:
    """Answers tasks for many devices. An async context manager; entering it opens the state and starts the sender.

    Args:
        transport: the way to the broker.
        name: the sender in the topics of its reports: the MQTT user where the broker's access rules ask for it.
        state: directory of the durable state; made if need be.
        policy: the limits of each device.
        spread: seconds, 0 to a week: each report waits a random time of up to so long before it is sent, so that the
            time of sending tells neither how long the draw took (which depends on the noise) nor in which order the
            devices were asked. One second hides a draw a thousand times over; a gateway does well to take minutes.
        capacity: most payloads that may wait for the broker, each a report or a frame of many. One more is refused as
            `Reason.OUTBOX_FULL` before anything is spent; what is too late to be counted stays, but takes no room.
        keep: seconds, 0 to a week: so long a report is kept after the broker's acknowledgement, for a broker may forget
            it, and an aggregator ask for it once more. So far back, too, somebody who takes over the aggregator later
            can have reports sent again, and see from where. 0 keeps nothing, and loses what a broker forgets.
        kept_bytes: most bytes that are kept so; then the oldest go, which `Statement.dropped` counts.
        recall_every: seconds that pass at least between two recalls of a task that are obeyed.
        frame: most reports that leave in one message, 1 to 256, of those that are made together (`report_many`).
        rng: where the noise comes from. Anything but the default is for experiments, and not private.
        clock: the current time, aware.

    Raises:
        OptionError: `name` cannot be part of a topic, or `spread`, `capacity` or `keep` out of range.
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
        self._terms = Terms(
            name, policy or Policy(), spread, capacity, clock, frame, Keeping(name, keep, kept_bytes, recall_every)
        )
        self._transport = transport
        self._directory = Path(state)
        self._rng = rng or SystemRng()
        self._session: Session | None = None
        self._end = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            opening = open_session(self._terms, self._transport, self._directory, self._rng)
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

        Cancelling it is safe at any time: the answer is either stored whole, and will be sent, or nothing happened. A
        later call for the same round returns its receipt, and waits for the broker, too.

        Whatever the value is, the answer is charged, stored and sent alike: a number beyond the bounds counts as the
        nearer one, and where there is no usable value (None, NaN) an index is drawn uniformly over the domain.
        `receipt.value` tells the program alone. So call this where a value is missing, too: silence would tell.

        Args:
            device: whose answer and whose ledger; any text, never sent.
            task_id: id of a published task.
            value: the private value. It is perturbed here, and neither stored nor logged. Do not let it choose its
                type: where text is passed for a number, there is no answer.
            timeout: seconds to wait for the task and for the acknowledgement; None waits for ever, 0 not at all. Where
                it is shorter than the spread, the receipt mostly says `"queued"`.
            epsilon: which total to take of those that the task offers; None takes the largest that the limits of the
                device allow. Choose it without regard to the value: which one it was is public.

        Raises:
            BrokerError: the task is not known in time: no connection, or nothing published under this id.
            TaskError: the id is none, or what is published under it is no legal task.
            EpsilonError: the task does not offer `epsilon`; nothing was spent.
            TypeError: the value is of a type that the task never takes; nothing was decided, drawn or spent.
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
        """Answer the current round of a task for many devices, each at most once: as `report` in all else.

        All is stored in one transaction and leaves in frames of up to `frame` reports, each in a random order.

        Args:
            task_id: id of a published task.
            values: the private value of each device, by its name; None for one that has none now.
            timeout: as `report` has it.
            epsilon: as `report` has it.

        Raises:
            TypeError: a value is of a type that the task never takes; it names the device. Nobody has answered.
        """
        deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
        check_names(values)
        desk = self._opened().desk
        task = await desk.task(task_id, timeout)
        readings = await read_all(task.domain, values)
        del values
        question = self._terms.question(task, epsilon)
        asked = [(question.of(device), reading) for device, reading in readings.items()]
        answers = await desk.store(asked, desk.due(question))  # counted from before the draw
        stored = dict(zip(readings, answers, strict=True))
        told = {sequence: waiter for _, sequence in answers if (waiter := desk.sender.acknowledgement(sequence))}
        if told:
            left = None if deadline is None else max(deadline - asyncio.get_running_loop().time(), 0)
            await asyncio.wait(told.values(), timeout=left)
        said = {sequence: waiter.result() for sequence, waiter in told.items() if waiter.done()}
        return {
            device: receipt if (answer := said.get(sequence)) is None else receipt.acknowledged(answer)
            for device, (receipt, sequence) in stored.items()
        }

    def answer(
        self,
        device: str,
        task_id: str,
        source: Source,
        *,
        source_timeout: float = 10.0,
        absent: Absent = "answer",
        told: Told | None = None,
    ) -> None:
        """Answer a task for one device from now on: once in each round that is open, until the gateway is closed.

        The source is asked only when policy, ledger, outbox and the times of the task admit an answer; they are
        checked again in the transaction that stores it. The moment of sending is fixed before that: the source may be
        asked again and again until `source_timeout`, then the answer is drawn from what it gave. Where it gave None,
        raised or was late, that is from a uniform index: nothing is postponed, left out or logged.

        Args:
            device: whose answer and whose ledger.
            task_id: id of a task, which need not be published yet.
            source: gives the private value of now, or None. One that is no `async def` runs in a thread of its own; one
                that is must not block the loop.
            source_timeout: seconds, above 0 and up to a week, that it has in each round.
            absent: `"skip"` leaves a round out for now in which the source gave None, raised or was late. Only for one
                whose absence tells nothing about a person (a sensor without power): everybody sees who is silent.
            told: called in the event loop with the receipt of each round, whose `value` says what became of it. It
                must not block, nor send that anywhere.

        Raises:
            TaskError: the id is none.
            ValueError: this device answers this task from a source already.
            TypeError: the source cannot be called, or `source_timeout` is no number.
            OptionError: `source_timeout` or `absent` is outside what it can be.
        """
        check_names((device,))
        check_source(source, source_timeout, absent)
        session = self._opened()
        session.desk.want(task_id)
        if (device, task_id) in session.sources:
            raise ValueError(f"{task_id} is already answered from a source")
        answering = Answering(
            task_id, source, device=device, source_timeout=source_timeout, desk=session.desk, absent=absent, told=told
        )
        session.desk.catalogue.hold(task_id)
        session.sources.add((device, task_id))
        session.background.start(answering.run(), f"hush-answer-{task_id}")

    async def task(self, task_id: str, *, timeout: float | None = 30.0) -> Task:
        """The task published under an id, waiting for it if need be.

        Raises:
            BrokerError: it is not known in time.
            TaskError: the id is none, or what is published under it is no legal task.
        """
        return await self._opened().desk.task(task_id, timeout)

    def tasks(self) -> dict[str, Task]:
        """The tasks known now, by id: those that were asked for, and all of them where `on_task` was called.

        At most 1000 of them or 8 MiB as they came are remembered: see `hush_client.catalogue`. None are known while the
        gateway is closed.
        """
        return {} if self._session is None else self._session.desk.catalogue.tasks()

    @property
    def trouble(self) -> str:
        """Why there is no connection, in one line for a person; nothing while there is one, or none was tried yet."""
        sender = None if self._session is None else self._session.desk.sender
        return "" if sender is None or sender.connected else str(sender.trouble or "")

    def on_task(self, callback: Callable[[Task], object]) -> None:
        """Call `callback` with every task on the broker: those known now, and each one that is new or changed.

        It is called in the event loop and must not block. It decides nothing: a task that it ignores costs nothing.
        """
        if not callable(callback):
            raise TypeError(f"callback is a function of one task, not of type {type(callback).__name__}")
        desk = self._opened().desk
        desk.catalogue.listen(callback)
        desk.sender.want(ALL_TASKS)

    async def ledger(self, device: str) -> Statement:
        """What a device has spent, on what, and how sure an observer can be at most.

        Raises:
            StateError: the state is damaged, or locked for long.
        """
        state = self._opened().desk.state
        return await state.run(partial(read_statement, device=device, policy=self._terms.policy))

    async def sync(self, *, timeout: float | None = 30.0) -> Synced:
        """Hear whether what earlier runs have kept is asked for again, and send what is due now: for short programs.

        It waits for the answer to the subscriptions and one second more, and until the broker has acknowledged what was
        due by then. What is due later goes with a later run, or while this one lasts.
        """
        sender, done = self._opened().desk.sender, False
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await sender.sync()
                done = True
        return await sender.synced(done=done)

    async def flush(self, *, timeout: float | None = 30.0) -> bool:
        """Wait until the broker has all that is stored; False if some of it still waits in the end.

        That is when the time is over, or when nothing is left but what the broker does not take.
        """
        sender = self._opened().desk.sender
        try:
            async with asyncio.timeout(timeout):
                return await sender.flush()
        except TimeoutError:
            return False

    def _opened(self) -> Session:
        if self._session is None:
            raise RuntimeError("the gateway is closed; use it inside `async with`")
        return self._session
