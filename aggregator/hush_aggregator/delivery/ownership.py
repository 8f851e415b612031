"""Ownership: decides which store publishes a task and its estimate."""

# An estimate names the store that it was made from (`store`), and how that store came to publish it: `term` is 0 where
# no store had published one, 1 or more once that store was confirmed as the owner, and one more than the last whenever
# another store takes the task over, which names the last one (`taken_from`). If two stores both believe that they are
# the owner, the higher term wins, and of equal terms the smaller name. Both see the same, so exactly one yields.
#
# A store that does not own a task counts it all the same and publishes nothing of it. An owner publishes again what
# another client overwrote, less and less often, and yields to a claim that outranks its own.

import asyncio
import json
import logging
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from hashlib import sha256
from typing import NoReturn

from hush_aggregator.count.tasks import KnownTasks
from hush_aggregator.delivery.session import BrokerSession
from hush_aggregator.estimate.result import HIGHEST_TERM, encode, read_result
from hush_aggregator.store.base import Origin, Owner, Store, TaskRow, TaskState, Worker
from hush_common.aio import in_slices, run_all
from hush_common.task import digest_of
from hush_common.topics import estimate_topic, recall_topic, task_of_estimate_topic, task_of_task_topic, task_topic

TAKE_OVER = "?"
"""The value of `TaskRow.taken_from` after `hush task take-over`, until the aggregator knows the previous owner."""


@dataclass(frozen=True, slots=True)
class OwnershipClaim:
    """What an estimate says about its origin; a missing or invalid field is empty or 0."""

    store: str = ""  # identity of the store; empty also if the message is not an estimate
    term: int = 0
    taken_from: str = ""  # identity of the previous owner
    digest: str = ""  # of the task, hexadecimal
    round: int = 0
    n: int = 0  # reports counted
    lease: int | None = None  # under which it was published, by one worker of several

    @property
    def fields(self) -> Mapping[str, str | int]:
        """The fields of an estimate that make this claim."""
        fields: dict[str, str | int] = {"store": self.store, "term": self.term}
        return fields | ({"taken_from": self.taken_from} if self.taken_from else {})


class OwnershipDecision(Enum):
    """Whether this store owns a task, and if not, why."""

    MINE = ""
    OTHERS_ESTIMATE = "the published estimate is from another store, {there}"
    UNSIGNED = "the published estimate does not name a store: another program wrote it"
    OTHERS_TASK = "another task is published under this id, digest {task}; this store has digest {digest}"
    REMEMBERED = "another store, {there}, published it when it was seen last"
    UNSEEN = (
        "a test message to hush/v1/estimates/… did not come back, so the owner is unknown; allow this user to write "
        "and to read hush/v1/estimates/+"
    )


def claim_of(payload: bytes) -> OwnershipClaim:
    """Return the claim of a message on the topic of an estimate; an empty claim if it is not valid."""
    found = read_result(payload)
    if found is None:
        return OwnershipClaim()
    store = "" if found.term is None else found.store
    term = (found.term or 0) if store else 0
    return OwnershipClaim(store, term, found.taken_from, found.digest, found.round, found.estimate.n, found.lease)


def outranks(one: OwnershipClaim, other: OwnershipClaim) -> bool:
    """Whether the store of `one` is the owner if both claim to be."""
    return bool(one.store) and (one.term, other.store) > (other.term, one.store)


def decide_owner(
    row: TaskRow, me: str, task: bytes | None, estimate: OwnershipClaim | None, *, is_readable: bool
) -> OwnershipDecision:
    """Decide whether this store (`me`) is the owner, from the digest of the retained task and the retained claim.

    `is_readable` says whether a missing estimate means that none is retained, and not that it cannot be read.
    """
    if row.taken_from == TAKE_OVER:
        return OwnershipDecision.MINE
    if estimate is not None:
        if not estimate.store:
            return OwnershipDecision.UNSIGNED
        is_own = (estimate.store, estimate.digest) == (me, row.digest.hex())
        return OwnershipDecision.MINE if is_own else OwnershipDecision.OTHERS_ESTIMATE
    if row.owner not in ("", me):
        return OwnershipDecision.REMEMBERED
    if task is not None and task != row.digest:
        return OwnershipDecision.OTHERS_TASK
    return OwnershipDecision.MINE if is_readable or row.owner == me else OwnershipDecision.UNSEEN


def next_claim(row: TaskRow, me: str, estimate: OwnershipClaim | None) -> OwnershipClaim:
    """Return the claim that this store's estimates make from now on; `estimate` is the retained one, if any."""
    there = estimate or OwnershipClaim()
    if row.taken_from == TAKE_OVER:
        others = [
            (claim.term, claim.store) for claim in (there, OwnershipClaim(row.owner, row.term)) if claim.store != me
        ]
        last, before = max(others, default=(0, ""))
        return OwnershipClaim(me, min(max(last, there.term, row.term) + 1, HIGHEST_TERM), before)
    established = row.owner == me or estimate is not None
    term = max(row.term, there.term, int(established))
    return OwnershipClaim(me, term, row.taken_from if row.owner == me else "")


_SHORTEST_S, _LONGEST_S = 1.0, 60.0
_QUIET_S = 600.0
_SENT = 16  # of what this store published lately may still be on its way back


@dataclass(slots=True)
class PublicationState:
    """What is known about the retained messages of a task."""

    task: bytes | None = None  # digest of the retained task; None if there is none
    estimate: OwnershipClaim | None = None  # claim of the retained estimate; None if there is none
    mine: OwnershipClaim | None = None  # this store's claim, if it is the owner
    rival: OwnershipClaim | None = None  # highest claim of another store since the last look at them
    forged: bool = False  # whether the retained estimate is not from this store and connection
    last: bytes = b""  # the last estimate that this store published
    logged: str = ""  # the last decision logged
    again_at: float = 0.0  # when it may be published again (event loop time)
    _again_after: float = 0.0
    _sent: deque[bytes] = field(default_factory=lambda: deque(maxlen=_SENT))

    def sign(self, document: Mapping[str, object], lease: int | None = None) -> bytes:
        """Return an estimate with this store's claim, which is about to be published."""
        assert self.mine is not None  # noqa: S101 - for the type checker: the caller checks
        unsigned = {name: value for name, value in document.items() if name not in ("taken_from", "lease")}
        self.last = encode({**unsigned, **self.mine.fields, **({} if lease is None else {"lease": lease})})
        self.forged = False
        self._sent.append(_fingerprint(self.last))
        return self.last

    @property
    def is_overwritten(self) -> bool:
        return bool(self.last) and self.forged

    def has_sent(self, estimate: bytes) -> bool:
        """Whether this store recently published exactly these bytes."""
        return _fingerprint(estimate) in self._sent

    def needs_task(self, row: TaskRow) -> bool:
        """Whether the owner has to publish or clear the task."""
        if row.origin is Origin.BROKER:
            return False  # the publisher is responsible for it
        return self.task != row.digest if row.state is TaskState.OPEN else self.task == row.digest

    @property
    def is_first(self) -> bool:
        """Whether it was published again once, after a while in which that was not necessary."""
        return self._again_after == _SHORTEST_S

    def back_off(self, now: float) -> bool:
        """Double the wait before the next publication, up to a minute; return whether to log it."""
        quiet = not self.again_at or now > self.again_at + _QUIET_S
        tell = quiet or self._again_after < _LONGEST_S <= 2 * self._again_after
        self._again_after = _SHORTEST_S if quiet else min(2 * self._again_after, _LONGEST_S)
        self.again_at = now + self._again_after
        return tell


def _fingerprint(payload: bytes) -> bytes:
    return sha256(payload).digest()[:16]


def shown(topic: str) -> str:
    """Return a topic as messages show it: probes have random names."""
    return "hush/v1/estimates/+" if "/probe-" in topic else topic


_LOG = logging.getLogger("hush.aggregator")
_ECHO_S = 8.0


class Ownership:
    """Decides task by task, and keeps the retained messages of this store's tasks as it published them.

    Args:
        settle_s: seconds to wait for retained messages of a broker that sends them after the others.
        on_acquired: called with a task that this store publishes from now on, and with the retained claim.
        on_estimate: called with each estimate of another store.
        lease: returns the number of the lease under which this worker of several publishes, None for one alone;
            raises `LeaseLostError` if this worker may publish nothing.
    """

    def __init__(
        self,
        store: Store,
        tasks: KnownTasks,
        in_worker: Worker,
        *,
        settle_s: float,
        on_acquired: Callable[[str, OwnershipClaim | None], object],
        on_estimate: Callable[[bytes], object],
        lease: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._lease = lease
        self._store = store
        self._tasks = tasks
        self._in_worker = in_worker
        self._settle_s = settle_s
        self._on_acquired = on_acquired
        self._on_estimate = on_estimate
        self._me = ""
        self._states: dict[str, PublicationState] = {}
        self._new: set[str] = set()
        self._due: set[str] = set()
        self._wake = asyncio.Event()
        self._probe = ""
        self._echoed = asyncio.Event()
        self._logged: set[str] = set()
        self.unconfirmed: dict[str, float] = {}  # topics of messages that did not come back (yet), since when
        self._current_until: Callable[[], float] = float

    def forget(self) -> None:
        """Forget what was decided and published: another worker may have published since."""
        self._states.clear()
        self._due.clear()

    def owns(self, task_id: str) -> bool:
        """Whether this store publishes the task, as far as that is decided on this connection."""
        state = self._states.get(task_id)
        return state is not None and state.mine is not None

    def sign(self, task_id: str, document: Mapping[str, object]) -> bytes | None:
        """Return the estimate to publish now; None if this store does not publish the task."""
        state = self._states.get(task_id)
        if state is None or state.mine is None:
            return None
        lease = self._lease()
        self._expect(estimate_topic(task_id))
        return state.sign(document, lease)

    def unsent(self, topic: str) -> None:
        """Note that a message was not sent: it does not come back, and a task is not retained."""
        self.unconfirmed.pop(topic, None)
        if (state := self._states.get(task_of_task_topic(topic) or "")) is not None:
            state.task = None

    # While there is a connection

    def look_at(self, task_ids: Iterable[str]) -> None:
        """Decide again about tasks that are new, or that a command changed."""
        self._new |= set(task_ids)
        self._wake.set()

    async def serve(self, session: BrokerSession) -> NoReturn:
        """Decide, and restore what was overwritten, until cancelled or the connection is lost."""
        self._current_until = lambda: session.current_until
        self.begin()
        while True:
            await self.decide(session)
            due, self._due = self._due, set()
            await self._restore(session, sorted(due))
            await self._wake.wait()
            self._wake.clear()

    def begin(self) -> None:
        """Forget what was retained on the last connection."""
        self.unconfirmed.clear()
        kept = self._states.items()
        self._states = {task_id: PublicationState(last=state.last, logged=state.logged) for task_id, state in kept}
        self.look_at(self._tasks.rows)

    async def decide(self, session: BrokerSession) -> None:
        """Decide about the new tasks."""
        self._me = self._me or await self._in_worker(lambda: self._store.public_identity)
        while self._new:
            new, self._new = self._new, set()
            try:
                await self._decide(session, sorted(new))
            except BaseException:
                self._new |= new
                raise

    async def _look(self, session: BrokerSession, task_ids: list[str]) -> bool:
        """Read the retained messages. Return False if they cannot be read: a probe does not come back."""
        topics = []
        async for task_id in in_slices(task_ids):
            topics += [task_topic(task_id), estimate_topic(task_id)]
        await session.look(topics, self._saw)
        await asyncio.sleep(self._settle_s)
        if not any(
            self._states[task_id].estimate is None and not self._tasks.rows[task_id].owner for task_id in task_ids
        ):
            return True  # there is no need to know: something is there, or was
        self._echoed.clear()
        self._probe = f"probe-{secrets.token_hex(8)}"
        probe = estimate_topic(self._probe)
        await session.look([probe], self._saw)
        self._expect(probe)
        await session.publish(probe, encode({"v": 1, "task": self._probe, "probe": True}))
        since = asyncio.get_running_loop().time()
        while not self._echoed.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(_ECHO_S):
                    await self._echoed.wait()
            if not self._echoed.is_set() and session.current_until - since >= _ECHO_S:
                return False
        return True

    def _saw(self, topic: str, payload: bytes) -> None:
        """Note a message on the topic of a task or an estimate."""
        self.unconfirmed.pop(topic, None)
        if (task_id := task_of_task_topic(topic)) is not None:
            if (state := self._states.get(task_id)) is not None:
                state.task = digest_of(payload) if payload else None
        elif (task_id := task_of_estimate_topic(topic)) is not None:
            if task_id == self._probe:
                self._echoed.set()
                return
            if (state := self._states.get(task_id)) is not None:
                own = state.has_sent(payload)
                if not own and payload:
                    self._on_estimate(payload)
                claim = claim_of(payload)
                state.estimate = claim if payload else None
                state.forged = not own
                if claim.store not in ("", self._me) and (state.rival is None or outranks(claim, state.rival)):
                    state.rival = claim  # this store's next estimate may hide it before anything looks at it
        if task_id is not None and task_id in self._states:
            self._due.add(task_id)
            self._wake.set()

    async def _decide(self, session: BrokerSession, task_ids: Sequence[str]) -> None:
        """Read the retained messages, decide, store the decisions in one transaction, and publish."""
        rows = self._tasks.rows
        here = []
        async for task_id in in_slices(task_ids):
            row = rows.get(task_id)
            if row is not None and (row.payload or row.owner == self._me):  # a forgotten task has to be cleared
                here.append(task_id)
                if task_id not in self._states:
                    self._states[task_id] = PublicationState()
        if not here:
            return
        is_readable = await self._look(session, here)
        self._lease()  # else another worker may have published what was read
        there = {task_id: self._states[task_id].estimate for task_id in here}
        self._due.difference_update(here)  # later messages are for `_restore`
        gained = await self._decide_all(there, is_readable=is_readable)

        def calls() -> Iterator[Callable[[], Awaitable[None]]]:
            for task_id in here:
                yield partial(self._settle, session, task_id, gained=task_id in gained, there=there[task_id])

        await run_all(calls())

    async def _decide_all(self, there: Mapping[str, OwnershipClaim | None], *, is_readable: bool) -> set[str]:
        """Decide from the retained estimates; return the tasks that this store publishes from now on."""
        mine: dict[str, OwnershipClaim] = {}
        notes: list[tuple[TaskRow, OwnershipClaim | None]] = []
        async for task_id, claim in in_slices(there.items()):
            row, state = self._tasks.rows[task_id], self._states[task_id]
            if not row.payload or (state.mine is not None and row.taken_from != TAKE_OVER):
                continue  # it is forgotten, or a command changed something other than its owner
            decision = decide_owner(row, self._me, state.task, claim, is_readable=is_readable)
            if decision is OwnershipDecision.MINE:
                mine[task_id] = next_claim(row, self._me, claim)
                notes.append((row, mine[task_id]))
            else:
                state.mine = None
                notes.append((row, claim if claim is not None and claim.store else None))
                self._log(row, state, decision)
        await self._note(notes)
        async for task_id, claim in in_slices(mine.items()):
            self._states[task_id].mine, self._states[task_id].logged = claim, ""
        return set(mine)

    async def _settle(
        self, session: BrokerSession, task_id: str, *, gained: bool, there: OwnershipClaim | None
    ) -> None:
        """Publish the task if this store owns it, or clear it if it is forgotten."""
        row, state = self._tasks.rows[task_id], self._states[task_id]
        if not row.payload:
            await self._clear(session, row, state)
            return
        if state.mine is None:
            return
        await self._put_task(session, row, state)
        if gained:
            if state.last:
                await self._put_estimate(session, task_id, state)
            self._on_acquired(task_id, there)

    async def _clear(self, session: BrokerSession, row: TaskRow, state: PublicationState) -> None:
        """Clear the retained messages of a forgotten task."""
        state.mine, state.last = None, b""
        if state.task == row.digest:
            await session.publish(task_topic(row.id), b"", retain=True)
        if state.estimate is not None and state.estimate.store == self._me:
            await session.publish(recall_topic(row.id), b"", retain=True)  # recalls only looks at owned tasks
            await session.publish(estimate_topic(row.id), b"", retain=True)  # last: it names the owner

    # What was overwritten

    async def _restore(self, session: BrokerSession, task_ids: Iterable[str]) -> None:
        """Yield to claims that outrank this store's, and publish again what was overwritten."""
        notes: list[tuple[TaskRow, OwnershipClaim | None]] = []
        again: list[Callable[[], Awaitable[None]]] = []
        async for task_id in in_slices(task_ids):
            row, state = self._tasks.rows.get(task_id), self._states[task_id]
            there, rival, state.rival = state.estimate, state.rival, None
            if row is None or task_id not in self._tasks:
                continue
            if state.mine is None:  # another store owns it; its first estimate shows which
                if not row.owner and row.taken_from != TAKE_OVER and there is not None and there.store != self._me:
                    notes.append((row, there if there.store else None))
            elif rival is not None and outranks(rival, state.mine):
                state.mine = None
                notes.append((row, rival))
                self._log(row, state, OwnershipDecision.OTHERS_ESTIMATE, rival.store)
            elif self._is_overwritten(row, state):
                again.append(partial(self._put_again, session, row, state))
        await self._note(notes)
        await run_all(again)

    def _is_overwritten(self, row: TaskRow, state: PublicationState) -> bool:
        """Whether to publish again now; if it is too early, this schedules another look."""
        if not state.is_overwritten and not state.needs_task(row):
            return False
        loop, there, lease = asyncio.get_running_loop(), state.estimate, self._lease()
        if loop.time() < state.again_at:
            loop.call_at(state.again_at, self._come_back, row.id)
            return False
        if state.back_off(loop.time()):
            self._log_overwritten(row, state, there or OwnershipClaim(), lease)
        return True

    def _log_overwritten(self, row: TaskRow, state: PublicationState, there: OwnershipClaim, lease: int | None) -> None:
        """Log who overwrote a message: what a worker had on its way comes once, what a client forges comes again."""
        is_late = there.store == self._me and lease is not None and there.lease is not None and there.lease < lease
        if is_late and state.is_first and not state.needs_task(row):
            what = "task %s: an estimate of lease %d came late and replaced that of lease %d; republished"
            _LOG.info(what, row.id, there.lease, lease)
            return
        whose = f" by store {there.store}" if there.store not in ("", self._me) else ""
        _LOG.warning(
            "task %s: another client overwrote its messages%s; republished. Stop that client, or run hush task "
            "take-over with its store",
            row.id,
            whose,
        )

    async def _put_again(self, session: BrokerSession, row: TaskRow, state: PublicationState) -> None:
        forged = state.is_overwritten
        await self._put_task(session, row, state)
        if forged and state.mine is not None:
            await self._put_estimate(session, row.id, state)

    def _come_back(self, task_id: str) -> None:
        self._due.add(task_id)
        self._wake.set()

    async def _put_task(self, session: BrokerSession, row: TaskRow, state: PublicationState) -> None:
        task = self._tasks.get(row.id)  # none where it was forgotten since the row was read
        if task is not None and state.needs_task(row):
            wanted = row.state is TaskState.OPEN
            state.task = row.digest if wanted else None
            self._expect(task_topic(row.id))
            await session.publish(task_topic(row.id), row.payload if wanted else b"", retain=True)

    async def _put_estimate(self, session: BrokerSession, task_id: str, state: PublicationState) -> None:
        if (payload := self.sign(task_id, json.loads(state.last))) is not None:
            await session.publish(estimate_topic(task_id), payload, retain=True)

    # What is stored and logged

    def _expect(self, topic: str) -> None:
        """Wait for a message to come back, as it does if this user may write and read there."""
        loop = asyncio.get_running_loop()
        self.unconfirmed[topic] = loop.time()
        if shown(topic) not in self._logged:
            loop.call_later(_ECHO_S, self._miss, topic)

    def _miss(self, topic: str) -> None:
        """Log a message that did not come back; behind a backlog it may be late."""
        since, name = self.unconfirmed.get(topic), shown(topic)
        if since is None or name in self._logged:
            return
        if self._current_until() - since < _ECHO_S:
            asyncio.get_running_loop().call_later(_ECHO_S, self._miss, topic)
            return
        self._logged.add(name)
        _LOG.error(
            "a message to %s was acknowledged and did not come back: allow this user to write and to read it", name
        )

    async def _note(self, claims: Iterable[tuple[TaskRow, OwnershipClaim | None]]) -> None:
        """Store who owns these tasks, in one transaction; an unknown owner changes nothing."""
        owners = [
            Owner(row.id, claim.store, claim.term, claim.taken_from if claim.store == self._me else "", row.taken_from)
            for row, claim in claims
            if claim is not None and (claim.store, claim.term) != (row.owner, row.term)
        ]
        if not owners:
            return

        def write() -> None:
            self._store.set_owners(owners)
            self._tasks.refresh()

        await self._in_worker(write)

    def _log(self, row: TaskRow, state: PublicationState, decision: OwnershipDecision, there: str = "") -> None:
        """Log why this store does not publish a task, once for each reason."""
        there = there or (state.estimate.store if state.estimate is not None else row.owner)
        task = "" if state.task is None else state.task.hex()
        reason = decision.value.format(there=there, task=task, digest=row.digest.hex())
        if reason == state.logged:
            return
        state.logged = reason
        remedy = ""
        if decision is not OwnershipDecision.UNSEEN:
            remedy = (
                "; if that is a mistake, stop this aggregator or choose another task id; to publish it from this store "
                f"from now on, run: hush task take-over {row.id} --store …"
            )
        _LOG.error("task %s: counted, but not published: %s%s", row.id, reason, remedy)
