"""The aggregator: receive, decode, admit, commit, acknowledge, then release. Only this module knows the order."""

# Reports come over one connection. Tasks, estimates, recalls and the broker's own topics use a second one if possible,
# so that they do not wait behind a backlog of reports. Each connection is restored on its own. If a broker closes one
# connection of a user when another opens, everything uses one connection and waits for the backlog.
import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple, NoReturn, TypeVar, TypeVarTuple, Unpack, cast

from hush_aggregator.count.intake import (
    BacklogWatch,
    IntakeStatus,
    PendingReports,
    ReportMessage,
    TaskMessage,
    admit,
    decode,
    receive,
)
from hush_aggregator.count.store_thread import StoreThread
from hush_aggregator.count.tasks import KnownTasks, NoRoomError
from hush_aggregator.delivery.closing import StoreWatcher, TaskCloser
from hush_aggregator.delivery.ownership import Ownership, OwnershipClaim, shown
from hush_aggregator.delivery.recalls import RecallManager
from hush_aggregator.delivery.session import Broker, BrokerSession, OversizeGuard
from hush_aggregator.delivery.workers import LeaseKeeper, LeaseLostError, SharedSession, WorkerGroup, drain
from hush_aggregator.estimate.process import Estimator, ThreadEstimator
from hush_aggregator.estimate.result import Result, RoundCounts, utc_now
from hush_aggregator.logs import fields
from hush_aggregator.publish.home_assistant import Announcing
from hush_aggregator.publish.release import EstimatePublisher
from hush_aggregator.publish.results import ResultReader
from hush_aggregator.publish.retention import Retention
from hush_aggregator.publish.schedule import ReleaseSchedule, without
from hush_aggregator.publish.status import EstimateStatus
from hush_aggregator.publish.steps import StepRecorder
from hush_aggregator.store.base import CommitOutcome, Store, TaskCount
from hush_common.aio import Backoff, cancellable, run_to_completion, run_together
from hush_common.errors import BrokerError, FeatureMissingError, HushError, LoginRefusedError, StoreError, TaskError
from hush_common.task import Task
from hush_common.topics import (
    ALL_REPORTS,
    ALL_TASKS,
    Delivery,
    task_of_estimate_topic,
    task_of_report_topic,
    task_of_task_topic,
)
from hush_common.wire import FRAME_LIMIT

_LOG = logging.getLogger("hush.aggregator")
_STEADY_S = 5.0  # a connection that lasted this long was no failed attempt


class ReconnectLoop:
    """Reconnects. Logs each outage once.

    Args:
        name: of the connection, in the log.
        connect: serves one connection until it is lost; calls `connected` once it is open.
        login_s: seconds after which a login that is always refused is an error; None for never.
        unconfirmed: topics of messages that did not come back: the broker may have hung up on them.
    """

    def __init__(
        self,
        name: str,
        connect: Callable[[], Awaitable[None]],
        *,
        login_s: float | None,
        unconfirmed: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self._name = name
        self._connect = connect
        self._login_s = login_s
        self._unconfirmed = unconfirmed
        self._logged = ""
        self._refused_since: float | None = None
        self._is_connected = False
        self._lost_at: float | None = None
        self.connections: int = 0
        """Connections since the start."""

    @property
    def is_connected(self) -> bool:
        return self._is_connected

    def connected(self, where: str) -> None:
        """Note that there is a connection to `where`."""
        self._is_connected = True
        self._refused_since = None
        self.connections += 1
        said = fields("connected", count=self.connections)
        if self._lost_at is None:
            _LOG.info("%s: connected to %s", self._name, where, extra=said)
        else:
            away = asyncio.get_running_loop().time() - self._lost_at
            what = "%s: connected to %s again after %.0f s, connection %d since the start"
            _LOG.info(what, self._name, where, away, self.connections, extra=said)

    async def run(self) -> NoReturn:
        """Stay connected until cancelled; raise LoginRefusedError after `login_s` of refusals."""
        backoff, loop = Backoff(), asyncio.get_running_loop()
        self._lost_at = None
        while True:
            began = loop.time()
            try:
                await cancellable(self._connect(), BrokerError)
            except BrokerError as error:
                steady = loop.time() - began > _STEADY_S
                if steady:
                    backoff.reset()
                if self._is_connected:
                    self._lost_at = loop.time()
                    self._logged = ""  # the loss of each connection is logged
                self._look_at_login(error, loop.time())
                self._warn(error, again=backoff.longest, hint="" if steady else self._hint())
            finally:
                self._is_connected = False
            await asyncio.sleep(backoff.next())

    def _look_at_login(self, error: BrokerError, now: float) -> None:
        if not isinstance(error, LoginRefusedError) or self._login_s is None:
            return
        if self._refused_since is None:
            self._refused_since = now
        if now - self._refused_since >= self._login_s:
            raise LoginRefusedError(
                error.url,
                f"{error.message}; refused for {self._login_s:g} s, so hush stops (--login-timeout 0 never stops)",
                reason=error.reason,
            )

    def _hint(self) -> str:
        """Some brokers hang up on a forbidden message without a reason."""
        topics = ", ".join(sorted({shown(topic) for topic in self._unconfirmed()}))
        return f" (lost after messages to {topics}: may this user write and read there?)" if topics else ""

    def _warn(self, error: BrokerError, *, again: bool, hint: str) -> None:
        """Log an outage once, then each attempt once attempts are rare."""
        told = f"{error}{hint if self._is_connected else ''}"
        if again or told != self._logged:
            _LOG.warning("%s; retrying until it works", told, extra=fields("disconnected"))
        self._logged = told


T = TypeVar("T")
Ts = TypeVarTuple("Ts")


_CLASH_S = 2.0
_ATTEMPTS = 2
_TASKS_S = 2.0
_COUNTS_S = 1.0


class SeparateConnections(NamedTuple):
    """Two connections to one broker."""

    intake: Broker  # for reports; it has the persistent session
    # For everything else. Its session persists too: a broker that confuses the two must not end that of the intake.
    control: Broker


class _OneConnectionError(Exception):
    """The broker allows one connection only."""


async def _at_once() -> None:
    pass


class Aggregator:
    """Counts the reports that a broker delivers into a store, and releases estimates.

    Args:
        broker: the connection.
        store: opened by the caller, who closes it after `run` has returned; used in one worker thread.
        tasks: tasks of one's own: stored first, so that no other task takes their ids, and published retained.
        name: in log lines.
        confidence: nominal coverage of the intervals, inside (0, 1).
        estimator: computes the estimates, by default in a thread; with `ProcessEstimator` slow ones delay nothing.
        clock: the time, aware.
        on_commit: called in the event loop after each transaction, and about tasks with a release policy after each
            release instead; must not block.
        settle_s: how long, after connecting, a report may wait for the retained message of its task.
        ready: awaited before reports are counted; until then they are not acknowledged.
        any_task: whether to count every task that appears on the broker, and not only those of the store.
        on_estimate: called with each retained estimate that this aggregator did not publish.
        login_s: seconds after which a login that the broker refuses all the time is an error; None for never.
        announcing: tells Home Assistant of the tasks; None where there is none.
        on_published: called in the event loop with each result that was published; must not block.
        retention: how long reports are stored after the end of their round; None for as long as their task says.
        separate: two connections instead of one, as long as the broker lets both be; None for `broker` alone.
        group: the workers that count into this store, of which one publishes; needs `separate`. None for one alone.
        reports_per_message: how many reports a message may have; one with more is refused.
    """

    def __init__(
        self,
        broker: Broker,
        store: Store,
        *,
        tasks: Sequence[Task] = (),
        name: str = "aggregator",
        confidence: float = 0.95,
        estimator: Estimator | None = None,
        clock: Callable[[], datetime] = utc_now,
        on_commit: Callable[[CommitOutcome], None] | None = None,
        settle_s: float = 1.0,
        ready: Callable[[], Awaitable[None]] = _at_once,
        any_task: bool = False,
        on_estimate: Callable[[bytes], object] = len,
        login_s: float | None = None,
        announcing: Announcing | None = None,
        on_published: Callable[[Result], object] = id,
        retention: timedelta | None = None,
        separate: SeparateConnections | None = None,
        group: WorkerGroup | None = None,
        reports_per_message: int = FRAME_LIMIT,
    ) -> None:
        self._group, self._reports_per_message = group, reports_per_message
        self._lease = None if group is None else LeaseKeeper(group, self._in_worker, self._note_counts)
        self._broker, self._store, self._announcing = broker, store, announcing
        self._separate = separate
        self._tasks = KnownTasks(store, tasks)
        self._name, self._clock, self._settle_s = name, clock, settle_s
        self._on_commit, self._ready = on_commit, ready
        self._any_task = any_task
        self._patient = self._sees_tasks  # tasks come with the reports, and perhaps after the first of them
        # Latest round and its reports, of tasks not published yet: at the start, or when the lease was taken.
        self._before: dict[str, tuple[int, int]] = {}
        self._session: BrokerSession | None = None
        self._thread = StoreThread()
        estimator = estimator or ThreadEstimator()
        self._results = ResultReader(
            store, confidence=confidence, estimator=estimator, clock=clock, run=self._in_worker
        )
        self._ownership = Ownership(
            store,
            self._tasks,
            self._in_worker,
            settle_s=settle_s / 5,
            on_acquired=self._on_acquired,
            on_estimate=on_estimate,
            lease=self._current_lease,
        )
        self._publisher = EstimatePublisher(
            self._counted,
            estimator,
            confidence=confidence,
            clock=clock,
            owns=self._ownership.owns,
            sign=self._ownership.sign,
            rank=self._tasks.rank,
            on_published=self._published,
        )
        self._on_published = on_published
        self._steps = StepRecorder(store, work=self._in_worker, clock=clock)
        self._schedule = ReleaseSchedule(
            store, self._tasks, work=self._in_worker, clock=clock, on_release=self._on_release
        )
        self._recalls = RecallManager(
            store,
            self._tasks,
            owns=self._ownership.owns,
            work=self._in_worker,
            clock=clock,
            lease=self._current_lease,
        )
        self._closer = TaskCloser(
            store,
            self._tasks,
            grace=lambda: self._recalls.grace,
            work=self._in_worker,
            clock=clock,
            changed=self._closed,
        )
        self._retention = Retention(
            store, self._tasks, retention, work=self._in_worker, clock=clock, changed=self._closer.refresh
        )
        self._oversize_guard = OversizeGuard(self._unsent, self._again)
        self._alone = ReconnectLoop(name, self._connect, login_s=login_s, unconfirmed=self._unconfirmed)
        self._intake = ReconnectLoop(name, self._connect_intake, login_s=login_s)
        self._control = ReconnectLoop(
            f"{name}, control", self._connect_control, login_s=None, unconfirmed=self._unconfirmed
        )
        self._intake_is_open, self._tasks_arrived = asyncio.Event(), asyncio.Event()
        self._control_since = 0.0
        self._clashes = self._refusals = 0
        self._repeated = 0
        self._has_repeated = False
        self._backlog = BacklogWatch(lambda: self._recalls.stored)
        self._watch = StoreWatcher(partial(self._in_worker, store.changes))
        for refresh in (self._refresh, self._recalls.refresh, self._closer.refresh, self._schedule.refresh):
            self._watch.add_listener(refresh)

    @property
    def connected(self) -> bool:
        """Whether it is connected to its broker, so that reports come."""
        return self._alone.is_connected or self._intake.is_connected

    async def run(self) -> NoReturn:
        """Count until cancelled, through every loss of the connection.

        Cancelling finishes the batch at hand (commit, then acknowledge) and releases what is due before it returns.

        Raises:
            StoreError: the store failed; nothing of the batch at hand was counted or acknowledged.
            TaskError: a task of one's own contradicts one that is stored under its id.
            LoginRefusedError: see `login_s`.
        """
        await self._watch.begin()
        await self._in_worker(self._tasks.load)
        await self._in_worker(self._note_counts)
        await self._recalls.load()
        await self._closer.refresh()
        await self._schedule.refresh()
        works: dict[str, Coroutine[None, None, NoReturn]] = {
            "store": self._thread.run(),
            "connections": self._stay_connected(),
            "backlog": self._backlog.run(),
            "release-schedule": self._schedule.run(),
            "retention": self._retention.run(),
            "steps": self._steps.run(),
        }
        try:
            await run_together(works, least=_OneConnectionError)
        except HushError:
            with suppress(StoreError):  # the first error is the one to report
                await run_to_completion(self._close())
            raise
        except BaseException:
            await run_to_completion(self._close())
            raise

    async def _close(self) -> None:
        """Write the rest, and wait for the store's thread: the caller closes the store."""
        try:
            await self._publisher.close()
            await self._steps.close()
            await self._recalls.close()
        finally:
            await self._in_worker(int)

    async def _stay_connected(self) -> NoReturn:
        if self._separate is not None:
            with suppress(_OneConnectionError):
                await cancellable(self._run_separately(), _OneConnectionError)
        if self._group is not None:
            raise BrokerError(self._broker.name, "a worker needs two connections: give it a --control-user")
        await self._alone.run()

    async def _run_separately(self) -> NoReturn:
        """Use two connections, until the broker turns out to allow only one."""
        works = {"intake": self._intake.run()}
        if self._lease is None:
            works["control"] = self._control.run()
        else:
            works |= {"lease": self._lease.run(self._take_over), "watch": self._watch.run()}
        await run_together(works, least=_OneConnectionError)

    async def _take_over(self) -> NoReturn:
        """Publish in place of another worker: read what it has stored first, and forget what was published before."""
        self._ownership.forget()
        await self._publisher.begin_anew()
        await self._recalls.take_over()
        await self._watch.refresh()
        await self._control.run()

    async def estimate(self, task_id: str, round_: int = 0) -> Result:
        """The result of a round, from what is committed now.

        It is made now, however long that takes. If it fails, `failures` says so, and nothing is raised.

        Raises:
            TaskError: no such task or round.
            StoreError: the store cannot be read.
        """
        return await self._results.result(task_id, round_)

    @property
    def intake(self) -> IntakeStatus:
        """The state of the intake; read it in the event loop."""
        session = self._session
        return IntakeStatus(
            self._tasks.keys(),
            self.connected,
            session.waiting if session else 0,
            self._recalls.dropped,
            self._tasks.without_room,
            self._backlog.state,
            self._recalls.stored,
            {
                "intake": self._alone.connections + self._intake.connections,
                "control": self._alone.connections + self._control.connections,
            },
            self._repeated + (session.repeated if session else 0),
        )

    @property
    def estimates(self) -> EstimateStatus:
        """The state of the published estimates; read it in the event loop. Without the lease none is due here."""
        status = self._publisher.status
        return status if self._lease is None or self._lease.number is not None else replace(status, due=0, failed=0)

    @property
    def task_limit(self) -> str:
        """Why published tasks are not counted for lack of room; empty if none is."""
        return self._tasks.limit_reached

    @property
    def _sees_tasks(self) -> bool:
        """Whether the tasks come over the connection for reports, each before the first report that answers it.

        A worker that does not publish has no other connection.
        """
        return self._any_task or self._group is not None

    def _unconfirmed(self) -> Iterable[str]:
        return self._ownership.unconfirmed

    async def _connect(self) -> None:
        """Serve a connection for everything until it is lost."""
        async with self._broker.connect((ALL_TASKS, ALL_REPORTS)) as session:
            self._alone.connected(self._broker.name)
            async with self._counting(session):
                await self._serve(session, self._receive(session))

    async def _connect_intake(self) -> None:
        """Serve a connection for reports until it is lost."""
        broker = self._broker if self._separate is None else self._separate.intake
        reports = ALL_REPORTS if self._group is None else self._group.shared(ALL_REPORTS)
        async with broker.connect((ALL_TASKS, reports) if self._sees_tasks else (reports,)) as session:
            self._intake.connected(broker.name)
            self._intake_is_open.set()
            try:
                async with self._counting(session):
                    await self._wait_for_tasks()
                    try:
                        await self._receive(session)
                    except asyncio.CancelledError:
                        if self._lease is not None:
                            shared, receive = cast("SharedSession", session), self._receive(session)
                            await drain(shared, reports, receive, is_followed=self._lease.is_followed)
                        raise
            except BrokerError:
                await self._look_for_clash()
                raise
            finally:
                self._intake_is_open.clear()

    async def _connect_control(self) -> None:
        """Serve a connection for everything else until it is lost."""
        broker = self._broker if self._separate is None else self._separate.control
        await self._intake_is_open.wait()
        self._control_since = asyncio.get_running_loop().time()
        try:
            async with broker.connect(() if self._sees_tasks else (ALL_TASKS,)) as session:
                self._control.connected(broker.name)
                noting = asyncio.create_task(self._note_tasks(session), name="hush-note-tasks")
                try:
                    await self._serve(session, self._pass_by(session))
                finally:
                    noting.cancel()
        except BrokerError as error:
            is_refused = self._intake_is_open.is_set() and not self._control.connections
            if is_refused and not isinstance(error, FeatureMissingError):
                self._refusals += 1
                if self._refusals > _ATTEMPTS:
                    self._use_one(f"refuses a second connection ({error.message})")
            raise

    async def _note_tasks(self, session: BrokerSession) -> None:
        """Set an event once the retained tasks have arrived over a new connection."""
        since = asyncio.get_running_loop().time()
        while session.current_until < since or session.waiting:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(_TASKS_S / 100)
        self._tasks_arrived.set()

    async def _wait_for_tasks(self) -> None:
        """Wait for the retained tasks, briefly, so that reports for other stores are recognised."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_TASKS_S if self._group is None else 0):
                await self._tasks_arrived.wait()
        self._tasks_arrived.set()

    async def _look_for_clash(self) -> None:
        """Raise _OneConnectionError if the control connection ended the intake connection twice in a row."""
        soon = asyncio.get_running_loop().time() - self._control_since < _CLASH_S
        await asyncio.sleep(_CLASH_S / 4)  # a broker that is gone has lost the other one, too
        self._clashes = self._clashes + 1 if soon and self._control.is_connected else 0
        if self._clashes == _ATTEMPTS:
            self._use_one("closes one connection of this user when another opens (use_username_as_clientid)")

    def _use_one(self, why: str) -> NoReturn:
        _LOG.warning(
            "%s %s: from now on there is one, and estimates, tasks and recalls wait behind a backlog of reports; "
            "give them a user of their own with --control-user",
            self._broker.name,
            why,
            extra=fields("one_connection"),
        )
        raise _OneConnectionError

    @asynccontextmanager
    async def _counting(self, session: BrokerSession) -> AsyncIterator[None]:
        """Note the session over which reports come."""
        self._session = session
        try:
            await self._recalls.connected(resumed=session.resumed)
            yield
        finally:
            self._session = None
            self._note_repeated(session)
            self._repeated += session.repeated

    async def _serve(self, connection: BrokerSession, work: Coroutine[None, None, NoReturn]) -> NoReturn:
        """Publish and react until the connection or the lease is lost; `work` runs meanwhile."""
        leased = None if self._lease is None else self._lease.guard(connection)
        session = self._oversize_guard.guard(connection if leased is None else cast("BrokerSession", leased))
        works = {
            "receive": work,
            "ownership": self._ownership.serve(session),
            "release": self._publisher.serve(session),
            "recalls": self._recalls.serve(session),
            "closings": self._closer.serve(),
        }
        if self._announcing is not None:
            works["announcing"] = self._announcing.serve(session, self._tasks, self._ownership.owns)
        if self._lease is None:
            works["watch"] = self._watch.run()
        else:
            works["counts"] = self._watch_counts()
        try:
            await run_together(works, least=BrokerError)
        except asyncio.CancelledError:
            if leased is None or leased.is_leased:
                with suppress(LeaseLostError):  # another worker releases them
                    await self._publisher.release_last(session, first=partial(self._decide_last, session))
            raise
        except BrokerError:
            if leased is None or leased.is_leased:
                self._oversize_guard.lost()  # not with the lease: a worker that was stopped loses both
            raise

    async def _watch_counts(self) -> NoReturn:
        """Release the estimates of what other workers have counted."""
        version, known = -1, dict[str, TaskCount]()
        while True:
            there = await self._in_worker(self._store.version)
            if there != version:
                version = there
                counts = {count.id: count for count in await self._in_worker(self._store.counts)}
                changed = {task_id for task_id, count in counts.items() if known.get(task_id, count) != count}
                self._publisher.mark(changed & self._tasks.keys())
                known = counts
            await asyncio.sleep(_COUNTS_S)

    async def _decide_last(self, session: BrokerSession) -> None:
        await self._ownership.decide(session)
        await self._schedule.step()

    def _note_repeated(self, session: BrokerSession) -> None:
        """Log the first packet id that was in flight twice: acknowledged in order, nothing is lost by it."""
        if session.repeated and not self._has_repeated:
            self._has_repeated = True
            version = self._recalls.broker_version
            _LOG.warning(
                "%s has more messages in flight than there are packet ids%s; every one is counted, since they are "
                "acknowledged in order; update a mosquitto older than 2.0.13, and set max_inflight_messages 1000",
                self._broker.name,
                f" ({version})" if version else "",
                extra=fields("packet_ids_repeated", count=session.repeated),
            )

    async def _pass_by(self, session: BrokerSession) -> NoReturn:
        """Read the tasks that are published for other stores."""
        while True:
            deliveries = await session.batch()
            if any(task_of_report_topic(delivery.topic) for delivery in deliveries):
                self._use_one("gives one session to both connections of this user")  # not acknowledged, they come again
            for message in receive(deliveries).tasks:
                self._tasks.pass_by(message.task_id, message.payload)
                await asyncio.sleep(0)  # there may be thousands
            session.acknowledge([delivery.number for delivery in deliveries])

    async def _receive(self, session: BrokerSession) -> NoReturn:
        """Count batch after batch, the tasks of a batch before its reports."""
        pending = PendingReports(self._settle_s if self._patient else 0)
        self._patient = self._sees_tasks
        while True:
            with self._backlog.waiting():
                deliveries = await _batch(session, until=pending.until)
            tasks, reports = receive(deliveries)
            taken = time.perf_counter()
            known = len(self._tasks)
            for message in tasks:
                await self._take_in(session, message)
            ready = pending.sift(reports, self._tasks, extend=len(self._tasks) > known)
            if pending.overflowed and pending.settled:
                self._patient = False
                raise BrokerError(
                    self._broker.name, "too many reports of unknown tasks to hold; the broker will deliver them again"
                )
            if ready:
                await self._ready()
                await run_to_completion(self._count(session, ready, taken))
                self._note_repeated(session)

    async def _take_in(self, session: BrokerSession, message: TaskMessage) -> None:
        if not self._any_task:
            self._tasks.pass_by(message.task_id, message.payload)
        elif why := self._tasks.full(message.task_id, message.payload):
            self._tasks.pass_over(message.task_id, message.payload, why)
        else:
            return await run_to_completion(self._learn(session, message))
        session.acknowledge((message.number,))
        return await asyncio.sleep(0)  # there may be thousands

    async def _learn(self, session: BrokerSession, message: TaskMessage) -> None:
        if not self._tasks.has(message.task_id, message.payload):
            try:
                task = await self._in_worker(self._tasks.learn, message.task_id, message.payload)
            except NoRoomError:
                pass  # noted already
            except TaskError as error:
                self._tasks.tell_refused(message.task_id, str(error))
            else:
                self._ownership.look_at({task.id})
                said = fields("learned", task=task.id)
                _LOG.info("learned task %s, digest %s", task.id, task.digest.hex(), extra=said)
        session.acknowledge((message.number,))

    async def _count(self, session: BrokerSession, reports: list[ReportMessage], taken: float) -> None:
        """Decode, admit, commit; then, and only then, acknowledge."""
        outcome = await self._in_worker(self._commit, reports, self._clock(), self._recalls.grace)
        session.acknowledge([report.number for report in reports])
        if withheld := self._schedule.withheld(outcome.changed):
            self._schedule.mark(withheld)
            outcome = without(outcome, withheld)
        handled = outcome.accepted + sum(outcome.refused.values())
        self._backlog.add(handled)
        self._publisher.mark(set(outcome.changed & self._tasks.keys()))
        if self._on_commit is not None and (handled or outcome.foreign or not withheld):
            self._on_commit(replace(outcome, acknowledged_s=time.perf_counter() - taken))

    def _published(self, result: Result) -> None:
        self._steps.note(result)
        self._on_published(result)

    def _on_release(self, task_ids: set[str], outcome: CommitOutcome) -> None:
        self._publisher.mark(task_ids)
        if self._on_commit is not None:
            self._on_commit(outcome)

    def _commit(self, reports: list[ReportMessage], now: datetime, grace: Mapping[str, timedelta]) -> CommitOutcome:
        """Decode, admit and commit a batch, in the store's thread, as everything that changes the tasks."""
        others, is_without_room = self._tasks.others, self._tasks.is_without_room
        decoded = decode(reports, most=self._reports_per_message)
        admitted = admit(decoded, self._tasks, now, grace, others=others, is_without_room=is_without_room)
        began = time.perf_counter()
        outcome = self._store.commit(admitted.accepted, admitted.refused)
        senders = {**admitted.senders, **outcome.senders}
        return replace(outcome, senders=senders, foreign=admitted.foreign, commit_s=time.perf_counter() - began)

    async def _refresh(self) -> None:
        """Read the tasks again after another process changed them."""
        self._ownership.look_at(await self._in_worker(self._tasks.refreshed))

    def _on_acquired(self, task_id: str, there: OwnershipClaim | None) -> None:
        """Release a task's estimate; if the retained one has more reports, some were lost here."""
        if task_id in self._tasks:
            before = self._before.pop(task_id, None)
            unpublished = before is not None and (there is None or (there.round, there.n) != before)
            self._publisher.mark({task_id}, first=unpublished)
            self._recalls.on_acquired(task_id, there, before)

    def _note_counts(self) -> None:
        """Note what the store has, in its thread."""
        self._before = {one.id: (one.round, one.latest) for one in self._store.counts()}

    def _current_lease(self) -> int | None:
        return None if self._lease is None else self._lease.current()

    async def _closed(self, task_ids: set[str]) -> None:
        """Release final estimates, clear closed tasks and end their recalls."""
        self._publisher.mark(task_ids & self._tasks.keys())
        self._schedule.mark(task_ids)
        self._ownership.look_at(await self._in_worker(self._tasks.refreshed))
        await self._recalls.refresh()

    def _unsent(self, topic: str) -> None:
        """Note that a message was held back: it cannot come back."""
        self._ownership.unsent(topic)
        self._recalls.unsent(topic)

    def _again(self, topic: str) -> None:
        task_id = task_of_estimate_topic(topic) or task_of_task_topic(topic)
        if task_id is not None and task_id in self._tasks:
            self._publisher.mark({task_id})
            self._ownership.look_at({task_id})

    async def _counted(self, task_ids: Sequence[str]) -> list[RoundCounts]:
        return await self._results.latest([self._tasks[task_id] for task_id in task_ids if task_id in self._tasks])

    async def _in_worker(self, function: Callable[[Unpack[Ts]], T], *args: *Ts) -> T:
        return await self._thread.call(function, *args)


async def _batch(session: BrokerSession, until: float | None) -> list[Delivery]:
    """The next batch, or an empty one at the time `until`."""
    try:
        async with asyncio.timeout_at(until):
            return await session.batch()
    except TimeoutError:
        return []
