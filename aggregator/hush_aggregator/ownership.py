"""Ownership: of which tasks this store publishes task and estimate, so that no aggregator publishes over another's.

What is retained when the aggregator connects decides (`claims`), and the store keeps what was decided. Whoever does not
own a task counts it all the same, and publishes nothing of it until told to take it over. An owner publishes again what
another has overwritten, less and less often if that goes on, and yields to a claim that is above its own.
"""

import asyncio
import json
import logging
import re
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from hashlib import sha256
from typing import Any, NoReturn

from hush_aggregator.broker.session import Session
from hush_aggregator.concurrency import in_slices, run_all
from hush_aggregator.result import encode
from hush_aggregator.store.base import Origin, Owner, State, Store, TaskRow
from hush_aggregator.tasks.known import KnownTasks
from hush_common.task import digest_of
from hush_common.topics import estimate_topic, recall_topic, task_of_estimate_topic, task_of_task_topic, task_topic
from hush_common.untrusted import ESTIMATE, read_json

TAKE_OVER = "?"
"""What stands in `TaskRow.taken_from` once an operator wants it, until the aggregator has seen from whom."""

_STORE = re.compile(r"[0-9a-f]{32}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_HIGHEST = 2**53 - 1  # the last integer that every reader of JSON has
_MANY = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Claim:
    """What an estimate says of itself; whatever it leaves out is empty or 0.

    Args:
        store: identity of the store; empty if it names none, as before there was a name, or is no estimate at all.
        term: see above.
        taken_from: identity of the store before it, if it was taken over.
        digest: of its task, in hexadecimal digits.
        round: which round it is of.
        n: reports counted in it.
    """

    store: str = ""
    term: int = 0
    taken_from: str = ""
    digest: str = ""
    round: int = 0
    n: int = 0


class Verdict(Enum):
    """Whether a store owns what is published of a task, and if not, why: with what to do."""

    MINE = ""
    OTHERS_ESTIMATE = "the estimate there is that of another store, {there}"
    OTHERS_FIGURES = (
        "the estimate there names no store and is not made from this one: it has another digest, or more reports"
    )
    OTHERS_TASK = "another task is published under this id, digest {task}, where this store has {digest}"
    REMEMBERED = "it was that of another store, {there}, when it was seen last"
    UNSEEN = (
        "a message to hush/v1/estimates/… did not come back, so that nobody knows whose estimate is there; allow this "
        "user to write and to read hush/v1/estimates/+"
    )


def claim_of(payload: bytes) -> Claim:
    """What a message on the topic of an estimate claims; never raises, whatever it is."""
    try:
        document = read_json(payload, ESTIMATE)
    except ValueError:
        return Claim()
    if not isinstance(document, dict):
        return Claim()
    store, digest = document.get("store"), document.get("digest")
    term, taken_from = _count(document.get("term"), _HIGHEST), document.get("taken_from")
    named = "" if term is None else _name(store, _STORE)
    return Claim(
        named,
        (term or 0) if named else 0,
        _name(taken_from, _STORE),
        _name(digest, _DIGEST),
        _count(document.get("round"), _MANY) or 0,
        _count(document.get("n"), _MANY) or 0,
    )


def _name(value: object, legal: re.Pattern[str]) -> str:
    return value if isinstance(value, str) and legal.fullmatch(value) else ""


def _count(value: object, most: int) -> int | None:
    """0 where there is none, None where it is no count."""
    if value is None:
        return 0
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most else None


def outranks(one: Claim, other: Claim) -> bool:
    """Whether the store of `one` is the owner, and not that of `other`, where both believe to be."""
    return bool(one.store) and (one.term, other.store) > (other.term, one.store)


def judged(row: TaskRow, me: str, task: bytes | None, estimate: Claim | None, counted: int, *, seen: bool) -> Verdict:
    """Whether this store is the owner, from what is retained when the aggregator connects.

    Args:
        row: the task as the store has it.
        me: identity of the store.
        task: digest of what is retained on the topic of the task; None for nothing.
        estimate: what is retained on that of the estimate; None for nothing.
        counted: reports that this store has of the round of that estimate.
        seen: whether nothing means that nothing is there, and not that it must not be read.
    """
    own = row.digest.hex()
    if row.taken_from == TAKE_OVER:
        return Verdict.MINE
    if estimate is not None and estimate.store:
        return Verdict.MINE if (estimate.store, estimate.digest) == (me, own) else Verdict.OTHERS_ESTIMATE
    if estimate is not None:
        return Verdict.MINE if estimate.digest == own and counted >= estimate.n else Verdict.OTHERS_FIGURES
    if row.owner not in ("", me):
        return Verdict.REMEMBERED
    if task is not None and task != row.digest:
        return Verdict.OTHERS_TASK
    return Verdict.MINE if seen or row.owner == me else Verdict.UNSEEN


def signature(row: TaskRow, me: str, estimate: Claim | None) -> Claim:
    """What the estimates of an owner say from now on: see the module.

    Args:
        row: the task as the store has it.
        me: identity of the store.
        estimate: what is retained; None for nothing.
    """
    there = estimate or Claim()
    if row.taken_from == TAKE_OVER:
        others = [(claim.term, claim.store) for claim in (there, Claim(row.owner, row.term)) if claim.store != me]
        last, before = max(others, default=(0, ""))
        return Claim(me, min(max(last, there.term, row.term) + 1, _HIGHEST), before)
    established = row.owner == me or estimate is not None
    term = max(row.term, there.term, int(established))
    return Claim(me, term, row.taken_from if row.owner == me else "")


def signed(estimate: bytes, claim: Claim) -> bytes:
    """An estimate of this store, with the claim that it makes now."""
    document = json.loads(estimate)
    document.pop("taken_from", None)
    return encode({**document, **written(claim)})


def written(claim: Claim) -> Mapping[str, str | int]:
    """The fields of an estimate that make this claim."""
    fields: dict[str, str | int] = {"store": claim.store, "term": claim.term}
    return fields | ({"taken_from": claim.taken_from} if claim.taken_from else {})


_SHORTEST_S, _LONGEST_S = 1.0, 60.0
_QUIET_S = 600.0
_SENT = 16  # of what this store published lately may still be on its way back


@dataclass(slots=True)
class Standing:
    """What is known of a task.

    Attributes:
        task: digest of what is retained on the topic of the task; None for nothing.
        estimate: what is retained on that of the estimate; None for nothing.
        mine: what this store claims, if it is the owner; None if it is not, or that is not known yet.
        forged: whether the estimate there is not one that this store published on this connection.
        last: the estimate that it published last.
        told: what was said about it last.
        again_at: when it may be published again, in seconds of the event loop.
    """

    task: bytes | None = None
    estimate: Claim | None = None
    mine: Claim | None = None
    forged: bool = False
    last: bytes = b""
    told: str = ""
    again_at: float = 0.0
    _again_after: float = 0.0
    _sent: deque[bytes] = field(default_factory=lambda: deque(maxlen=_SENT))

    def sending(self, estimate: bytes) -> None:
        """This store publishes an estimate."""
        self.last = estimate
        self.forged = False
        self._sent.append(_fingerprint(estimate))

    def has_sent(self, estimate: bytes) -> bool:
        """Whether this store published these very bytes lately."""
        return _fingerprint(estimate) in self._sent

    def task_wrong(self, row: TaskRow) -> bool:
        """Whether what is retained on the topic of the task is not what its owner wants there."""
        if row.origin is Origin.BROKER:
            return False  # the publisher is responsible for it
        return self.task != row.digest if row.state is State.OPEN else self.task == row.digest

    def overwritten(self, now: float) -> bool:
        """Wait longer before the next time, up to a minute; return whether it is time to tell a person."""
        quiet = not self.again_at or now > self.again_at + _QUIET_S
        tell = quiet or self._again_after < _LONGEST_S <= 2 * self._again_after
        self._again_after = _SHORTEST_S if quiet else min(2 * self._again_after, _LONGEST_S)
        self.again_at = now + self._again_after
        return tell


def _fingerprint(payload: bytes) -> bytes:
    return sha256(payload).digest()[:16]


def shown(topic: str) -> str:
    """What to call a topic: whoever looks whether messages come back makes up a name each time."""
    return "hush/v1/estimates/+" if "/probe-" in topic else topic


class Book:
    """The store, as far as ownership goes.

    Args:
        store: keeps it.
        tasks: follow what is written.
        in_worker: runs a call in the store's thread.
    """

    def __init__(
        self, store: Store, tasks: KnownTasks, in_worker: Callable[[Callable[[], Any]], Awaitable[Any]]
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._in_worker = in_worker

    async def me(self) -> str:
        """The identity of the store that estimates bear."""
        identity: str = await self._in_worker(lambda: self._store.public_identity)
        return identity

    async def counted(self, rounds: Collection[tuple[bytes, int]]) -> dict[tuple[bytes, int], int]:
        """Reports counted of these rounds (digest, round)."""
        if not rounds:
            return {}

        def read() -> dict[tuple[bytes, int], int]:
            return {(digest, round_): self._store.tally(digest, round_).n for digest, round_ in rounds}

        counts: dict[tuple[bytes, int], int] = await self._in_worker(read)
        return counts

    async def note(self, notes: Collection[tuple[TaskRow, Claim]]) -> None:
        """Keep who owns these tasks, and since which term, as it follows from the rows: a take-over since then stays.

        In one transaction, whatever their number, after which the tasks are read once.
        """
        if not notes:
            return

        def write() -> None:
            self._store.set_owners(
                [Owner(row.id, claim.store, claim.term, claim.taken_from, row.taken_from) for row, claim in notes]
            )
            self._tasks.refresh()

        await self._in_worker(write)


_LOG = logging.getLogger("hush.aggregator")
_ECHO_S = 8.0


class Ownership:
    """Decides, task by task, and sees to it that what this store owns stays as it published it.

    Args:
        tasks: those counted.
        book: the store.
        settle_s: seconds to wait for retained messages of a broker that sends them apart from the others.
        gained: called with a task whose estimate is to be published from now on, and with what is retained there.
        on_estimate: called with each estimate that comes from elsewhere.
    """

    def __init__(
        self,
        tasks: KnownTasks,
        book: Book,
        *,
        settle_s: float,
        gained: Callable[[str, Claim | None], object],
        on_estimate: Callable[[bytes], object],
    ) -> None:
        self._tasks = tasks
        self._book = book
        self._settle_s = settle_s
        self._gained = gained
        self._on_estimate = on_estimate
        self._me = ""
        self._standings: dict[str, Standing] = {}
        self._new: set[str] = set()
        self._due: set[str] = set()
        self._wake = asyncio.Event()
        self._probe = ""
        self._echoed = asyncio.Event()
        self._told: set[str] = set()
        self.unconfirmed: dict[str, float] = {}  # topics of messages that did not come back (yet), since when
        self._current_until: Callable[[], float] = float

    # What the release of estimates asks

    def fields(self, task_id: str) -> Mapping[str, str | int] | None:
        """What an estimate says of whose it is; None if this store does not publish it."""
        standing = self._standings.get(task_id)
        return None if standing is None or standing.mine is None else written(standing.mine)

    def owns(self, task_id: str) -> bool:
        """Whether this store publishes of a task, as far as that is decided on this connection."""
        return self.fields(task_id) is not None

    def publishing(self, task_id: str, payload: bytes) -> None:
        """An estimate is about to be published."""
        self._standings[task_id].sending(payload)
        self._expect(estimate_topic(task_id))

    def unsent(self, topic: str) -> None:
        """A message was not sent after all: it does not come back, and a task is not there."""
        self.unconfirmed.pop(topic, None)
        if (standing := self._standings.get(task_of_task_topic(topic) or "")) is not None:
            standing.task = None

    # While there is a connection

    def look_at(self, task_ids: Iterable[str]) -> None:
        """Decide anew about these: they are new, or a command has changed them."""
        self._new |= set(task_ids)
        self._wake.set()

    async def serve(self, session: Session) -> NoReturn:
        """Decide, and see to what was overwritten, until cancelled or the connection is lost."""
        self._current_until = lambda: session.current_until
        self.begin()
        while True:
            await self.decide(session)
            due, self._due = self._due, set()
            await self._see_to(session, sorted(due))
            await self._wake.wait()
            self._wake.clear()

    def begin(self) -> None:
        """A new connection: whatever was retained before may be another thing by now."""
        self.unconfirmed.clear()
        kept = self._standings.items()
        self._standings = {task_id: Standing(last=standing.last, told=standing.told) for task_id, standing in kept}
        self.look_at(self._tasks.rows)

    async def decide(self, session: Session) -> None:
        """Decide about all that is new."""
        self._me = self._me or await self._book.me()
        while self._new:
            new, self._new = self._new, set()
            try:
                await self._decide(session, sorted(new))
            except BaseException:
                self._new |= new
                raise

    def _cares(self, row: TaskRow) -> bool:
        """A task that is forgotten matters as long as this store may have something at the broker."""
        return bool(row.payload) or row.owner == self._me

    async def _look(self, session: Session, task_ids: list[str]) -> bool:
        """See what is retained of these; return whether it could be seen, for which a message of one's own must."""
        topics = []
        async for task_id in in_slices(task_ids):
            topics += [task_topic(task_id), estimate_topic(task_id)]
        await session.look(topics, self._saw)
        await asyncio.sleep(self._settle_s)
        if not any(
            self._standings[task_id].estimate is None and not self._tasks.rows[task_id].owner for task_id in task_ids
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
        """In the event loop, at once, whatever is on the topics looked at."""
        self.unconfirmed.pop(topic, None)
        if (task_id := task_of_task_topic(topic)) is not None:
            if (standing := self._standings.get(task_id)) is not None:
                standing.task = digest_of(payload) if payload else None
        elif (task_id := task_of_estimate_topic(topic)) is not None:
            if task_id == self._probe:
                self._echoed.set()
                return
            if (standing := self._standings.get(task_id)) is not None:
                own = standing.has_sent(payload)
                if not own and payload:
                    self._on_estimate(payload)
                standing.estimate = claim_of(payload) if payload else None
                standing.forged = not own
        if task_id is not None and task_id in self._standings:
            self._due.add(task_id)
            self._wake.set()

    async def _decide(self, session: Session, task_ids: Sequence[str]) -> None:
        """Look at what is retained, judge all of these, keep in one transaction what was decided, and publish."""
        rows = self._tasks.rows
        here = []
        async for task_id in in_slices(task_ids):
            if task_id in rows and self._cares(rows[task_id]):
                here.append(task_id)
                if task_id not in self._standings:
                    self._standings[task_id] = Standing()
        if not here:
            return
        seen = await self._look(session, here)
        there = {task_id: self._standings[task_id].estimate for task_id in here}
        self._due.difference_update(here)  # what comes from now on is judged by `_see_to`
        gained = await self._judge(there, seen=seen)

        def calls() -> Iterator[Callable[[], Awaitable[None]]]:
            for task_id in here:
                yield partial(self._settle, session, task_id, gained=task_id in gained, there=there[task_id])

        await run_all(calls())

    async def _judge(self, there: Mapping[str, Claim | None], *, seen: bool) -> set[str]:
        """Judge whose these are, from the estimate that is retained; return those that are this store's from now on."""
        unsigned = {
            (row.digest, claim.round)
            for row, claim in ((self._tasks.rows[task_id], claim) for task_id, claim in there.items())
            if claim is not None and not claim.store
        }
        counted = await self._book.counted(unsigned)
        mine: dict[str, Claim] = {}
        notes: list[tuple[TaskRow, Claim | None]] = []
        async for task_id, claim in in_slices(there.items()):
            row, standing = self._tasks.rows[task_id], self._standings[task_id]
            if not row.payload or (standing.mine is not None and row.taken_from != TAKE_OVER):
                continue  # it is forgotten, or a command changed something else than whose it is
            n = counted.get((row.digest, claim.round), 0) if claim is not None else 0
            verdict = judged(row, self._me, standing.task, claim, n, seen=seen)
            if verdict is Verdict.MINE:
                mine[task_id] = signature(row, self._me, claim)
                notes.append((row, mine[task_id]))
            else:
                standing.mine = None
                notes.append((row, claim if claim is not None and claim.store else None))
                self._tell(row, standing, verdict)
        await self._note(notes)
        async for task_id, claim in in_slices(mine.items()):
            self._standings[task_id].mine, self._standings[task_id].told = claim, ""
        return set(mine)

    async def _settle(self, session: Session, task_id: str, *, gained: bool, there: Claim | None) -> None:
        """Publish of a task what is to be published now that it is decided."""
        row, standing = self._tasks.rows[task_id], self._standings[task_id]
        if not row.payload:
            await self._clear(session, row, standing)
            return
        if standing.mine is None:
            return
        await self._put_task(session, row, standing)
        if gained:
            if standing.last:
                standing.last = signed(standing.last, standing.mine)
                await self._put_estimate(session, task_id, standing)
            self._gained(task_id, there)

    async def _clear(self, session: Session, row: TaskRow, standing: Standing) -> None:
        """It is forgotten: so that the broker forgets it, too."""
        standing.mine, standing.last = None, b""
        if standing.task == row.digest:
            await session.publish(task_topic(row.id), b"", retain=True)
        if standing.estimate is not None and standing.estimate.store == self._me:
            await session.publish(recall_topic(row.id), b"", retain=True)  # whoever recalls looks at what it owns
            await session.publish(estimate_topic(row.id), b"", retain=True)  # last: it says whose all of it was

    # What was overwritten

    async def _see_to(self, session: Session, task_ids: Iterable[str]) -> None:
        """Yield to claims that are above this store's, and publish again what was overwritten."""
        notes: list[tuple[TaskRow, Claim | None]] = []
        again: list[Callable[[], Awaitable[None]]] = []
        async for task_id in in_slices(task_ids):
            row, standing = self._tasks.rows.get(task_id), self._standings[task_id]
            there = standing.estimate
            if row is None or task_id not in self._tasks:
                continue
            if standing.mine is None:  # that it is another's was known, but not whose: its first estimate says so
                if not row.owner and row.taken_from != TAKE_OVER and there is not None and there.store != self._me:
                    notes.append((row, there if there.store else None))
            elif there is not None and there.store != self._me and outranks(there, standing.mine):
                standing.mine = None
                notes.append((row, there))
                self._tell(row, standing, Verdict.OTHERS_ESTIMATE)
            elif self._is_overwritten(row, standing):
                again.append(partial(self._put_again, session, row, standing))
        await self._note(notes)
        await run_all(again)

    def _is_overwritten(self, row: TaskRow, standing: Standing) -> bool:
        """Whether something is to be published again now; where it is too early, it comes back later."""
        if not self._is_forged(standing) and not standing.task_wrong(row):
            return False
        loop, there = asyncio.get_running_loop(), standing.estimate
        if loop.time() < standing.again_at:
            loop.call_at(standing.again_at, self._come_back, row.id)
            return False
        if standing.overwritten(loop.time()):
            whose = f" by store {there.store}" if there is not None and there.store not in ("", self._me) else ""
            _LOG.warning(
                "task %s: what is published of it was overwritten%s: published again; stop whoever does that, or have "
                "that store take it over (hush task take-over)",
                row.id,
                whose,
            )
        return True

    @staticmethod
    def _is_forged(standing: Standing) -> bool:
        return bool(standing.last) and standing.forged

    async def _put_again(self, session: Session, row: TaskRow, standing: Standing) -> None:
        forged = self._is_forged(standing)
        await self._put_task(session, row, standing)
        if forged and standing.mine is not None:
            await self._put_estimate(session, row.id, standing)

    def _come_back(self, task_id: str) -> None:
        self._due.add(task_id)
        self._wake.set()

    async def _put_task(self, session: Session, row: TaskRow, standing: Standing) -> None:
        task = self._tasks.get(row.id)  # none where it was forgotten since the row was read
        if task is not None and standing.task_wrong(row):
            wanted = row.state is State.OPEN
            standing.task = row.digest if wanted else None
            self._expect(task_topic(row.id))
            await session.publish(task_topic(row.id), row.payload if wanted else b"", retain=True)

    async def _put_estimate(self, session: Session, task_id: str, standing: Standing) -> None:
        self.publishing(task_id, standing.last)
        await session.publish(estimate_topic(task_id), standing.last, retain=True)

    # What is kept, and told

    def _expect(self, topic: str) -> None:
        """A message to `topic` comes back, if this user may write and read there."""
        loop = asyncio.get_running_loop()
        self.unconfirmed[topic] = loop.time()
        if shown(topic) not in self._told:
            loop.call_later(_ECHO_S, self._miss, topic)

    def _miss(self, topic: str) -> None:
        """An acknowledgement says nothing about rights; that it comes back does. Behind a backlog it may come late."""
        since, name = self.unconfirmed.get(topic), shown(topic)
        if since is None or name in self._told:
            return
        if self._current_until() - since < _ECHO_S:
            asyncio.get_running_loop().call_later(_ECHO_S, self._miss, topic)
            return
        self._told.add(name)
        _LOG.error(
            "a message to %s was acknowledged, and did not come back: allow this user to write and to read it", name
        )

    async def _note(self, claims: Iterable[tuple[TaskRow, Claim | None]]) -> None:
        """Keep who owns these tasks; where nobody is known to, what was known before stays."""
        await self._book.note(
            [
                (row, claim if claim.store == self._me else replace(claim, taken_from=""))
                for row, claim in claims
                if claim is not None and (claim.store, claim.term) != (row.owner, row.term)
            ]
        )

    def _tell(self, row: TaskRow, standing: Standing, verdict: Verdict) -> None:
        """One line for each reason while the service runs."""
        there = standing.estimate.store if standing.estimate is not None else row.owner
        task = "" if standing.task is None else standing.task.hex()
        told = verdict.value.format(there=there, task=task, digest=row.digest.hex())
        if told == standing.told:
            return
        standing.told = told
        remedy = ""
        if verdict is not Verdict.UNSEEN:
            remedy = (
                "; stop this aggregator if that is a mistake, give the task another id, or, if this store is to "
                f"publish it from now on, run: hush task take-over {row.id} --store …"
            )
        _LOG.error("task %s: counted, and nothing is published of it: %s%s", row.id, told, remedy)
