"""Recalls: ask devices to send retained reports again if the broker or the store may have lost some."""

# Nobody knows what was lost, and duplicates count once. So whenever an acknowledged message may be lost, this store's
# tasks are recalled. The recalls and the knowledge about the broker are stored in one transaction before anything is
# published: the evidence is forgotten only with its recall.
import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import NoReturn

from hush_aggregator.count.tasks import KnownTasks
from hush_aggregator.delivery.closing import Debounce
from hush_aggregator.delivery.ownership import OwnershipClaim
from hush_aggregator.delivery.session import BrokerSession, Publisher
from hush_aggregator.logs import fields
from hush_aggregator.store.base import BrokerMemory, Store, StoredRecall, StoreReader, TaskRow, TaskState, Worker
from hush_common.errors import printable
from hush_common.recall import KEPT_FOR, LONGEST_OVER, RECALL_ID_BYTES, Recall, encode_recall
from hush_common.task import CLOCK_SKEW, Task
from hush_common.topics import (
    ALL_RECALLS,
    BROKER_DROPPED,
    BROKER_RETAINED,
    BROKER_STORED,
    BROKER_UPTIME,
    BROKER_VERSION,
    recall_topic,
    task_of_recall_topic,
)

_LATE_S = 15  # an uptime that may be this old tells nothing about a broker that was as young
_ROUNDED_S = 2  # times are whole seconds
_TOLERANCE_S = 60
_DRIFT = 1e-4  # seconds that two clocks part in each second in which nobody compares them
_NOTE_EVERY_S = 600
_DIGITS = 15


class RecallReason(StrEnum):
    """Why reports are recalled."""

    SESSION = "the broker no longer has the session of this store"
    RESTART = "the broker has restarted"
    DROPPED = "the broker has dropped messages"
    UNKNOWN = "the broker does not report whether it has restarted since the last connection"
    BEHIND = "the broker holds an estimate of this store with more reports than the store has"
    RESTORED = "the store was put back from a backup"

    @property
    def doubtful(self) -> bool:
        """Whether it may come again and again without anything being lost."""
        return self in (RecallReason.DROPPED, RecallReason.UNKNOWN)


class BrokerRestartDetector:
    """Detects broker restarts and dropped messages from the broker's `$SYS` topics.

    A broker that was killed or restored from a snapshot has lost messages that it had acknowledged. MQTT does not
    report it, but the uptime shows the restart. The proof must hold however late a message is: behind a backlog of
    reports an uptime may be minutes old when it arrives.

    - One process never publishes a smaller uptime after a larger one.
    - The second uptime of a connection was published after that connection was opened (the first one is retained, and
      may be older). So a process with uptime u started at `since - u` or later, where `since` is the newest moment for
      which every message sent before it has arrived. That is a restart if the process of the last connection had
      started before.
    - A process that started at `now - u` or earlier, before the last moment at which the broker of the last connection
      was known to be alive, is that process: no restart.

    Within one process of hush these moments are from a monotonic clock. Across processes they are from the wall clock,
    which may have been set, so a minute of tolerance is added. If neither is proved (the broker was seconds old when it
    was last heard), the decision waits for an uptime that is not late; then it counts as a restart.

    Attributes:
        memory: what is known now, to be stored.
        evidence: for the last cause, in the log.
        is_unexplained: whether it is still unknown if the broker restarted before this connection.
    """

    def __init__(self, memory: BrokerMemory, now: Callable[[], float], elapsed: Callable[[], float]) -> None:
        self.memory: BrokerMemory = memory
        self.evidence: str = ""
        self._noted = memory
        self._now = now
        self._elapsed = elapsed
        self._alive: float | None = None  # by `elapsed`: the broker that is known was alive then
        self._started = 0.0  # by `elapsed`: it had started by then; of no meaning without `_alive`
        self._uptime = 0  # the last one of it
        self.is_unexplained: bool = False
        self._is_judged = True  # whether that is decided for the connection on which it is heard
        self._words = 0  # uptimes on that connection
        self._first = 0  # of these
        self._dropped: int | None = None  # what it said last

    @property
    def dropped(self) -> int | None:
        """How many messages it has dropped since it started; None if it has not reported that."""
        return self._dropped

    def remember(self, memory: BrokerMemory) -> None:
        """Continue with what another worker has stored of the broker; the session stays that of this one."""
        self._noted = replace(memory, session=self._noted.session)
        self.memory = replace(memory, session=self.memory.session)
        self._alive = None
        self._dropped = None

    def connected(self, *, resumed: bool) -> RecallReason | None:
        """Note that reports come over a new connection, to the session of before or to a new one."""
        missed = self.memory.session and not resumed
        self.is_unexplained = self.memory.session and resumed
        self.memory = replace(self.memory, session=True)
        if not missed:
            return None
        self._begin_anew()
        self.evidence = "there was a session, and the broker has made a new one"
        return RecallReason.SESSION

    def listening(self) -> None:
        """Note that what follows is heard on another connection than what came before."""
        self._words = 0
        self._is_judged = False

    def heard(self, topic: str, payload: bytes, since: float) -> RecallReason | None:
        """Read what the broker says of itself; what cannot be read says nothing.

        Args:
            topic: of `$SYS`.
            payload: unchecked bytes.
            since: by `elapsed`: everything has come that was sent before this moment.
        """
        number = natural_number(payload)
        if number is None:
            return None
        if topic == BROKER_UPTIME:
            return self._up_for(number, since)
        if topic == BROKER_DROPPED:
            return self._has_dropped(number)
        return None

    def alive(self, since: float) -> None:
        """Note that the broker that was heard was alive at this moment (by `elapsed`): it has answered since then."""
        if self._alive is not None and self._is_judged and since > self._alive:
            self._alive = since
            stored = int(self._now() - self._elapsed() + since)
            self.memory = replace(self.memory, alive=max(stored, self.memory.started or 0))

    @property
    def is_young(self) -> bool:
        """Whether the broker that is known has not been up for long: then each second counts that it is alive."""
        memory = self.memory
        return memory.alive is not None and memory.alive - (memory.started or 0) <= 2 * _LATE_S

    def silent(self) -> RecallReason | None:
        """Note that it had time to publish an uptime, and everything has come that it sent in that time."""
        if self._words or not self.is_unexplained:
            return None
        self.is_unexplained = False
        self.evidence = f"nothing comes on {BROKER_UPTIME}"
        return RecallReason.UNKNOWN

    def repaired(self) -> None:
        """Note that everything is recalled that was dropped until now."""
        if self._dropped is not None:
            self.memory = replace(self.memory, dropped=self._dropped)

    def noted(self, memory: BrokerMemory) -> None:
        """Note that this is stored."""
        self._noted = memory

    @property
    def news(self) -> bool:
        """Whether enough has changed to be stored: a few times in the life of a broker, then every ten minutes."""
        old, new = self._noted, self.memory
        if replace(old, alive=None, started=None) != replace(new, alive=None, started=None):
            return True
        if new.started is None or new.alive is None:
            return False
        if old.started is None or old.alive is None or abs(new.started - old.started) > 1:
            return True
        age = old.alive - old.started
        has_doubled = age <= 2 * _LATE_S and new.alive - new.started >= 2 * max(age, 1)
        return has_doubled or abs(new.alive - old.alive) >= _NOTE_EVERY_S

    def _up_for(self, uptime: int, since: float) -> RecallReason | None:
        elapsed = self._elapsed()
        self._words += 1
        if self._words == 1:
            self._first = uptime
        nothing_known = self._alive is None and self.memory.started is None
        is_other = False if self._is_judged or nothing_known else self._is_other(uptime, since, elapsed)
        if is_other is None:
            return None
        self._is_judged = True
        self.is_unexplained = False
        if is_other:
            self._begin_anew()
        started = elapsed - uptime
        self._started = min(started, self._started) if self._alive is not None else started
        self._alive = since
        self._uptime = uptime
        offset = self._now() - elapsed
        stored = int(offset + self._started)
        self.memory = replace(self.memory, started=stored, alive=max(int(offset + since), stored))
        return RecallReason.RESTART if is_other else None

    def _is_other(self, uptime: int, since: float, elapsed: float) -> bool | None:
        """Return whether it is another process than the one that is known; None if a later uptime has to tell."""
        alive, known, before, tolerance = self._known()
        offset = 0.0 if self._alive is not None else self._now() - elapsed
        latest = offset + elapsed - uptime
        is_new = self._words > 1 and uptime > self._first  # else it may be retained, and older than this connection
        earliest = offset + since - uptime if is_new else None
        ago = offset + elapsed - alive
        self.evidence = f"it is up for {uptime} s, and was up for {before} s already {ago:.0f} s ago"
        if uptime < (self._uptime - _ROUNDED_S if self._alive is not None else before - tolerance):
            return True
        if earliest is not None and (uptime < before - _ROUNDED_S or earliest > known + tolerance):
            return True
        if latest < alive and (self._alive is not None or latest >= known - tolerance):
            return False
        if earliest is None or elapsed - since > _LATE_S:
            return None
        return True

    def _known(self) -> tuple[float, float, int, float]:
        """When the broker was alive, by when it had started, its uptime then, and how well these can be compared."""
        if self._alive is not None:
            return self._alive, self._started, int(self._alive - self._started), _ROUNDED_S
        alive, started = self.memory.alive or 0, self.memory.started or 0
        return alive, started, alive - started, _TOLERANCE_S + _DRIFT * abs(self._now() - alive)

    def _has_dropped(self, count: int) -> RecallReason | None:
        self._dropped = count
        known = self.memory.dropped
        if known is None or count < known:
            self.memory = replace(self.memory, dropped=count)
        if known is None or count <= known:
            return None
        self.evidence = f"{count} dropped, {count - known} more than before"
        return RecallReason.DROPPED

    def _begin_anew(self) -> None:
        """Of another broker, or another life of this one, nothing is known yet."""
        self.memory = BrokerMemory(session=True)
        self._alive = None
        self._dropped = None


def natural_number(payload: bytes) -> int | None:
    """Return the natural number in front, as in `123` or `123 seconds`; None if there is none."""
    digits = payload[:64].partition(b" ")[0]
    return int(digits) if digits.isdigit() and len(digits) <= _DIGITS else None


SHORTEST_S = 60
"""Seconds over which a recall is spread at least."""
_PER_SECOND = 500
"""Reports that a recall brings each second, about: an aggregator on a small machine keeps up with that, and a broker's
queue too."""


def is_recallable(task: Task, row: TaskRow, now: datetime) -> bool:
    """Whether devices may still keep reports of a task that count."""
    return (
        row.state is not TaskState.CLOSED
        and not (task.opens is not None and task.opens - now > CLOCK_SKEW)
        and not (task.closes is not None and now - task.closes > CLOCK_SKEW)
    )


def new_recall(store: StoreReader, task: Task, now: datetime, expected: int = 0) -> StoredRecall:
    """A new recall of a task. Reads the store."""
    first, last = _round_at(task, now - KEPT_FOR), _round_at(task, now)
    kept = max(expected, store.counted_since(task.digest, first), (task.enrolled or 0) * (last - first + 1))
    over = min(max(SHORTEST_S, -(-kept // _PER_SECOND)), LONGEST_OVER)
    identifier = secrets.token_bytes(RECALL_ID_BYTES)
    return StoredRecall(Recall(task.id, task.digest, identifier, over), int(now.timestamp()))


def has_ended(row: StoredRecall, task: Task | None, now: datetime) -> bool:
    """Whether no device can have anything to send any more. One that is open when its task closes ends with it."""
    if task is None or task.digest != row.recall.digest:
        return True
    until = row.made + KEPT_FOR.total_seconds() + row.recall.spread
    if task.closes is not None and task.closes.timestamp() <= until:
        return False
    return now.timestamp() >= until


def is_kept(row: StoredRecall, task: Task) -> bool:
    """Whether a task counts for longer because of a recall: until `closes` + `Recall.grace`."""
    return not row.ended and task.closes is not None and row.recall.digest == task.digest


def _round_at(task: Task, moment: datetime) -> int:
    if task.opens is None or task.round_every is None or task.rounds == 1:
        return 0
    return min(max((moment.astimezone(UTC) - task.opens) // task.round_every, 0), task.rounds - 1)


_LOG = logging.getLogger("hush.aggregator")
_SILENT_AFTER_S = 5.0
_STEP_S = 0.5  # between two looks: a client that writes recalls gets one answer in that time
_LOOK_S = 60.0  # the clock may have been set
_ECHO_S = 5.0
_FIRST_WORDS_S = 0.1
_DOUBTFUL_EVERY_S = 3600
_MOST_READ = 10_000


class RecallManager:
    """Makes, publishes and ends the recalls of the tasks that this store owns."""

    def __init__(
        self,
        store: Store,
        tasks: KnownTasks,
        *,
        owns: Callable[[str], bool],
        work: Worker,
        clock: Callable[[], datetime],
        lease: Callable[[], object],
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._owns = owns
        self._lease = lease  # raises `LeaseLostError` if this worker may publish nothing
        self._work = work
        self._clock = clock
        self._detector = BrokerRestartDetector(BrokerMemory(), self._seconds, _elapsed)
        self._debounce = Debounce(_elapsed)
        self._me = ""
        self._restored = self._put_back = False  # whether that is still to be reacted to, and whether it ever was
        self._rows: dict[str, StoredRecall] = {}
        self._due: dict[str, RecallReason] = {}
        self._evidence: dict[RecallReason, str] = {}
        self._session: BrokerSession | None = None  # the last one
        self._quiet_since = 0.0  # since when the broker could have spoken of itself
        self._stored = self._retained = 0  # messages on the broker, as it says
        self.broker_version: str = ""
        self._published: dict[str, tuple[int, int, int | None]] = {}
        self._expected: dict[str, int] = {}
        self._said: dict[str, bytes] = {}  # what is retained, as far as was seen on this connection
        self._own: dict[str, set[bytes]] = {}  # what this store has published there; before this start, what was found
        self._read: set[bytes] = set()  # what was read in the store: another worker may publish it late
        self._sent: dict[str, float] = {}  # published, and not come back yet; when
        self._forbidden = False
        self._wake = asyncio.Event()
        self._making = asyncio.Lock()

    async def load(self) -> None:
        """Read what is stored, before the first connection."""
        self._me = await self._work(lambda: self._store.public_identity)
        self._detector = BrokerRestartDetector(await self._work(self._store.broker), self._seconds, _elapsed)
        await self.refresh()

    async def take_over(self) -> None:
        """Begin to publish in place of another worker, which has listened to the broker; `refresh` has to follow."""
        self._detector.remember(await self._work(self._store.broker))
        self._due = {task_id: cause for task_id, cause in self._due.items() if not cause.doubtful}
        self._published.clear()
        self._own.clear()

    async def refresh(self) -> None:
        """Read the recalls again: a command or another worker may have made or ended one."""
        rows = await self._work(self._store.recalls)
        self._rows = {row.recall.task: row for row in rows}
        read = {encode_recall(row.recall) for row in rows}
        self._read = read if len(self._read) > _MOST_READ else self._read | read
        restored = await self._work(lambda: self._store.restored)
        if restored and not self._restored:
            self._note(RecallReason.RESTORED)
            self._put_back = True
        self._restored = restored
        self._wake.set()

    @property
    def grace(self) -> Mapping[str, timedelta]:
        """How much longer than others the tasks with an open recall count after they close."""
        rows = ((task_id, row, self._tasks.get(task_id)) for task_id, row in self._rows.items())
        return {task_id: row.recall.grace for task_id, row, task in rows if task is not None and is_kept(row, task)}

    @property
    def dropped(self) -> int | None:
        """How many messages the broker says it has dropped since it started; None if it has not said."""
        return self._detector.dropped

    def on_acquired(self, task_id: str, there: OwnershipClaim | None, before: tuple[int, int] | None) -> None:
        """This store publishes of a task from now on, on this connection; `there` is the estimate that is retained.

        The store must have as many reports as that. If it is the estimate of this very store, it must have had them
        before (`before`: the latest round then, and its reports), when it could not publish anything yet: what has
        waited on the broker is counted by now, and would hide what is missing.
        """
        own = before is not None and there is not None and there.store == self._me
        if there is not None and not (own and self._put_back):  # which has recalled it already
            had = None
            if own and before is not None and there.round >= before[0]:
                had = before[1] if there.round == before[0] else 0
            self._published[task_id] = there.round, there.n, had
        self._wake.set()

    def unsent(self, topic: str) -> None:
        """A message was not sent after all: it does not come back."""
        self._sent.pop(task_of_recall_topic(topic) or "", None)

    @property
    def stored(self) -> int | None:
        """How many messages the broker holds for somebody, about, as it says; None if it does not."""
        return max(0, self._stored - self._retained) if self._stored else None

    async def connected(self, *, resumed: bool) -> None:
        """Note that reports come over a new connection, to the session of before or to a new one; store that."""
        if resumed and not self._detector.memory.session:
            _LOG.warning(
                "the broker has kept a session that this store never had: if the aggregator of another store left it "
                "under this user, what waited there comes here; give each its own user, and run hush task recall "
                "with the store of the other one"
            )
        self._quiet_since = _elapsed()
        self._note(self._detector.connected(resumed=resumed))
        await self._make()
        self._wake.set()

    async def serve(self, session: BrokerSession) -> NoReturn:
        """Listen to what the broker says of itself, and do what follows, until the connection is lost."""
        self._said.clear()
        self._sent.clear()
        self._detector.listening()
        self._session = session
        await self.refresh()
        await session.watch(partial(self._hear, session))
        await asyncio.sleep(_FIRST_WORDS_S)  # so that what is stored first is all that there is to know
        for task_id, payload in self._said.items():
            self._find(task_id, payload)
        self._quiet_since = max(self._quiet_since, _elapsed())
        while True:
            self._wake.clear()
            self._lease()  # else another worker may have reacted to what was heard
            self._detector.alive(session.current_until)
            if session.current_until - self._quiet_since >= _SILENT_AFTER_S:
                self._note(self._detector.silent())
            await self._compare()
            await self._make()
            await self._end()
            await self._publish(session)
            self._look_for_echoes(session.current_until)
            with suppress(TimeoutError):
                async with asyncio.timeout(_ECHO_S if self._waits_for_the_broker else _LOOK_S):
                    await self._wake.wait()
                    await asyncio.sleep(_STEP_S)

    async def close(self) -> None:
        """Store what is known of the broker: the next start compares with it."""
        if self._session is not None:
            self._detector.alive(self._session.current_until)
        memory = self._detector.memory
        await self._work(lambda: self._store.recall([], memory))

    @property
    def _waits_for_the_broker(self) -> bool:
        return self._detector.is_unexplained or self._detector.is_young or (bool(self._sent) and not self._forbidden)

    # What is heard

    def _hear(self, session: BrokerSession, topic: str, payload: bytes) -> None:
        """Handle a message of the broker or a recall."""
        task_id = task_of_recall_topic(topic)
        if topic == BROKER_VERSION:
            self.broker_version = printable(payload.decode(errors="replace")[:80])
        elif topic in (BROKER_STORED, BROKER_RETAINED):
            count = natural_number(payload) or 0
            self._stored, self._retained = (count, self._retained) if topic == BROKER_STORED else (self._stored, count)
        elif task_id is None:
            self._note(self._detector.heard(topic, payload, session.current_until))
            if self._detector.news:
                self._wake.set()
        elif task_id in self._tasks:
            self._said[task_id] = payload
            self._sent.pop(task_id, None)
            if self._put_back:  # however late what is retained comes
                self._find(task_id, payload)
            self._wake.set()

    def _find(self, task_id: str, payload: bytes) -> None:
        """A recall that is retained at the start may be this store's, from before a restore or a command."""
        self._own.setdefault(task_id, {payload})

    def _note(self, cause: RecallReason | None) -> None:
        """Note a reason to recall every task."""
        if cause is None:
            return
        self._evidence[cause] = self._detector.evidence
        for task_id in self._tasks:
            if not cause.doubtful or task_id not in self._due:
                self._due[task_id] = cause
        self._wake.set()

    async def _compare(self) -> None:
        """Recall tasks of which this store has fewer reports than it published: it was restored from a copy."""
        while self._published:
            task_id, (round_, n, had) = self._published.popitem()
            if task_id in self._tasks:
                if had is None:
                    had = (await self._work(partial(self._store.tally, self._tasks[task_id].digest, round_))).n
                if n > had:
                    self._due[task_id] = RecallReason.BEHIND
                    self._evidence[RecallReason.BEHIND] = f"{n} there, {had} here"
                    self._expected[task_id] = n

    # What follows

    async def _make(self) -> None:
        """Store the due recalls and the knowledge about the broker."""
        async with self._making:
            await self._make_alone()

    async def _make_alone(self) -> None:
        now = self._clock()
        ready = {task_id: cause for task_id, cause in self._due.items() if self._is_ready(task_id, cause, now)}
        gone = {task_id for task_id in self._due if not self._is_mine(task_id, now)}
        left = self._due.keys() - ready.keys() - gone
        if not any(self._due[task_id] is RecallReason.DROPPED for task_id in left):
            self._detector.repaired()
        reacted = self._restored and not left
        if ready or reacted or self._detector.news:
            memory = self._detector.memory
            tasks = [(self._tasks[task_id], self._expected.pop(task_id, 0)) for task_id in ready]

            def write() -> list[StoredRecall]:
                drawn = [new_recall(self._store, task, now, expected) for task, expected in tasks]
                rows = self._store.recall(drawn, memory)
                if reacted:
                    self._store.reacted_to_restoring()
                return rows

            for row in await self._work(write):
                self._rows[row.recall.task] = row
            self._detector.noted(memory)
            self._restored = self._restored and not reacted
        for task_id in gone | ready.keys():
            self._due.pop(task_id, None)
        for cause, count in Counter(ready.values()).items():
            which = f"task {next(iter(ready))}" if count == 1 else f"{count} tasks"
            evidence = self._evidence.get(cause, "")
            said = fields("recalled", reason=cause.name.lower(), count=count, evidence=evidence or None)
            _LOG.warning(
                "%s%s: %s recalled: devices send again what they have kept, and it counts once",
                cause,
                f" ({evidence})" if evidence else "",
                which,
                extra=said,
            )

    def _is_mine(self, task_id: str, now: datetime) -> bool:
        """Whether a task may be recalled now or once its owner is decided."""
        task, row = self._tasks.get(task_id), self._tasks.rows.get(task_id)
        return task is not None and row is not None and row.owner in ("", self._me) and is_recallable(task, row, now)

    def _is_ready(self, task_id: str, cause: RecallReason, now: datetime) -> bool:
        if not self._is_mine(task_id, now) or not (self._tasks.rows[task_id].owner or self._owns(task_id)):
            return False
        last = self._rows.get(task_id)
        return not (cause.doubtful and last and abs(now.timestamp() - last.made) < _DOUBTFUL_EVERY_S)

    async def _end(self) -> None:
        """End the recalls whose time is over."""
        now = self._clock()
        for task_id, row in list(self._rows.items()):
            over = has_ended(row, self._tasks.get(task_id), now)
            if not row.ended and self._debounce.holds(row.recall.id, now=over):
                ended = replace(row, ended=True)
                await self._work(partial(self._store.recall, [ended]))
                self._debounce.forget(row.recall.id)
                if self._rows.get(task_id) == row:  # and no command has made another meanwhile
                    self._rows[task_id] = ended

    async def _publish(self, session: Publisher) -> None:
        """Make the retained recalls match the store, overwriting foreign ones."""
        wanted = dict.fromkeys(self._said, b"")
        wanted |= {task_id: b"" if row.ended else encode_recall(row.recall) for task_id, row in self._rows.items()}
        for task_id, payload in wanted.items():
            if not self._owns(task_id):
                continue
            there = self._said.get(task_id)
            if there != payload:
                self._lease()  # another worker may have written it
                if there and there not in self._own.get(task_id, ()) and there not in self._read:
                    _LOG.warning(
                        "task %s: another client has written its recall; allow only this aggregator to write recalls",
                        task_id,
                    )
                self._own.setdefault(task_id, set()).add(payload)
                self._said[task_id] = payload  # before it is sent: what others write meanwhile comes after
                self._sent[task_id] = _elapsed()
                await session.publish(recall_topic(task_id), payload, retain=True)
            row = self._rows.get(task_id)
            if not payload and row is not None and row.ended:
                await self._work(partial(self._store.end_recall, row.recall))
                if self._rows.get(task_id) == row:
                    del self._rows[task_id]

    def _look_for_echoes(self, current_until: float) -> None:
        """An acknowledgement says nothing about rights; that a message comes back does."""
        late = [task_id for task_id, when in self._sent.items() if current_until - when >= _ECHO_S]
        if late and not self._forbidden:
            self._forbidden = True
            _LOG.error(
                "the recall of %s did not come back from the broker: allow this user to write and to read %s",
                late[0],
                ALL_RECALLS,
            )

    def _seconds(self) -> float:
        return self._clock().timestamp()


def _elapsed() -> float:
    return asyncio.get_running_loop().time()
