"""Ownership: of which tasks this store publishes task and estimate, so that no aggregator publishes over another's.

What is retained when the aggregator connects decides (`claims`), and the store keeps what was decided. Whoever does not
own a task counts it all the same, and publishes nothing of it until told to take it over. An owner publishes again what
another has overwritten, less and less often if that goes on, and yields to a claim that is above its own.
"""

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import NoReturn, Protocol

from hush_aggregator.bus import Session
from hush_aggregator.claims import TAKE_OVER, Claim, Verdict, claim_of, judged, outranks, signature, written
from hush_aggregator.known_tasks import KnownTasks
from hush_aggregator.store.base import Origin, State, TaskRow
from hush_common.task import digest_of
from hush_common.topics import estimate_topic, task_of_estimate_topic, task_of_task_topic, task_topic

__all__ = ["Book", "Ownership"]

_LOG = logging.getLogger("hush.aggregator")
_ECHO_S = 3.0
_SHORTEST_S, _LONGEST_S, _QUIET_S = 1.0, 60.0, 600.0


class Book(Protocol):
    """The store, as far as ownership goes; awaited in its thread."""

    async def me(self) -> str:
        """The identity of the store that estimates bear."""
        ...

    async def counted(self, digest: bytes, round_: int) -> int:
        """Reports counted of a round."""
        ...

    async def note(self, task_id: str, claim: Claim) -> None:
        """Keep who owns a task, and since which term."""
        ...


@dataclass(slots=True)
class _Standing:
    """What is known of a task on this connection.

    Attributes:
        task: digest of what is retained on the topic of the task; None for nothing.
        estimate: what is retained on that of the estimate; None for nothing.
        mine: what this store claims, if it is the owner; None if it is not, or that is not known yet.
        forged: whether the estimate there is not one that this store published on this connection.
        last: the estimate published last, and digests of the last few, for these come back.
    """

    task: bytes | None = None
    estimate: Claim | None = None
    mine: Claim | None = None
    forged: bool = False
    last: bytes = b""
    sent: deque[bytes] = field(default_factory=lambda: deque(maxlen=16))
    told: str = ""
    again_at: float = 0.0
    again_after: float = 0.0


class Ownership:
    """Decides, task by task, and sees to it that what this store owns stays as it published it.

    Args:
        tasks: those counted.
        book: the store.
        settle_s: seconds to wait for retained messages of a broker that sends them apart from the others.
        gained: called with the ids of tasks whose estimates are to be published from now on.
        on_estimate: called with each estimate that comes from elsewhere.
    """

    def __init__(
        self,
        tasks: KnownTasks,
        book: Book,
        *,
        settle_s: float,
        gained: Callable[[set[str]], object],
        on_estimate: Callable[[bytes], object],
    ) -> None:
        self._tasks = tasks
        self._book = book
        self._settle_s = settle_s
        self._gained = gained
        self._on_estimate = on_estimate
        self._me = ""
        self._standings: dict[str, _Standing] = {}
        self._new: set[str] = set()
        self._due: set[str] = set()
        self._wake = asyncio.Event()
        self._probe = ""
        self._echoed = asyncio.Event()
        self._told: set[str] = set()
        self.unconfirmed: dict[str, None] = {}  # topics of messages that did not come back (yet)

    # What the release of estimates asks

    def fields(self, task_id: str) -> Mapping[str, str | int] | None:
        """What an estimate says of whose it is; None if this store does not publish it."""
        standing = self._standings.get(task_id)
        return None if standing is None or standing.mine is None else written(standing.mine)

    def publishing(self, task_id: str, payload: bytes) -> None:
        """An estimate is about to be published."""
        standing = self._standings[task_id]
        standing.last = payload
        standing.forged = False
        standing.sent.append(_fingerprint(payload))
        self._expect(estimate_topic(task_id))

    def retained(self, task_id: str) -> Claim | None:
        """The estimate that the broker keeps of a task, as far as was seen."""
        standing = self._standings.get(task_id)
        return None if standing is None else standing.estimate

    # While there is a connection

    def look_at(self, task_ids: Iterable[str]) -> None:
        """Decide anew about these: they are new, or a command has changed them."""
        self._new |= set(task_ids)
        self._wake.set()

    async def serve(self, session: Session) -> NoReturn:
        """Decide, and see to what was overwritten, until cancelled or the connection is lost."""
        self.begin()
        while True:
            await self.decide(session)
            due, self._due = self._due, set()
            for task_id in sorted(due):
                await self._see_to(session, task_id)
            await self._wake.wait()
            self._wake.clear()

    def begin(self) -> None:
        """A new connection: whatever was retained before may be another thing by now."""
        self.unconfirmed.clear()
        kept = {task_id: standing.last for task_id, standing in self._standings.items()}
        self._standings = {task_id: _Standing(last=last) for task_id, last in kept.items()}
        self.look_at(self._tasks)

    async def decide(self, session: Session) -> None:
        """Decide about all that is new."""
        while self._new:
            new, self._new = self._new, set()
            here = [task_id for task_id in sorted(new) if task_id in self._tasks]
            for task_id in here:
                self._standings.setdefault(task_id, _Standing())
            if not here:
                continue
            self._me = self._me or await self._book.me()
            seen = await self._look(session, here)
            for task_id in here:
                await self._decide(session, task_id, seen=seen)

    async def _look(self, session: Session, task_ids: list[str]) -> bool:
        """See what is retained of these; return whether it could be seen, for which a message of one's own must."""
        self._echoed.clear()
        self._probe = f"probe-{secrets.token_hex(8)}"
        probe = estimate_topic(self._probe)
        topics = [topic for task_id in task_ids for topic in (task_topic(task_id), estimate_topic(task_id))]
        await session.look([*topics, probe], self._saw)
        self._expect(probe)
        await session.publish(probe, b"probe")
        try:
            async with asyncio.timeout(_ECHO_S):
                await self._echoed.wait()
        except TimeoutError:
            return False
        await asyncio.sleep(self._settle_s)
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
                own = _fingerprint(payload) in standing.sent
                if not own and payload:
                    self._on_estimate(payload)
                standing.estimate = claim_of(payload) if payload else None
                standing.forged = not own
        if task_id is not None and task_id in self._standings:
            self._due.add(task_id)
            self._wake.set()

    async def _decide(self, session: Session, task_id: str, *, seen: bool) -> None:
        row, standing = self._tasks.rows[task_id], self._standings[task_id]
        if standing.mine is not None and row.taken_from != TAKE_OVER:  # what a command changed is not whose it is
            await self._put_task(session, row, standing)
            return
        there = standing.estimate
        counted = 0 if there is None or there.store else await self._book.counted(row.digest, there.round)
        verdict = judged(row, self._me, standing.task, there, counted, seen=seen)
        if verdict is not Verdict.MINE:
            standing.mine = None
            await self._note(row, there if there is not None and there.store else None)
            self._tell(row, standing, verdict)
            return
        standing.mine = signature(row, self._me, there)
        await self._note(row, standing.mine)
        self._due.discard(task_id)
        await self._put_task(session, row, standing)
        if standing.last:
            await self._put_estimate(session, task_id, standing)
        self._gained({task_id})

    # What was overwritten

    async def _see_to(self, session: Session, task_id: str) -> None:
        row, standing = self._tasks.rows.get(task_id), self._standings[task_id]
        if row is None or standing.mine is None or task_id not in self._tasks:
            return
        there = standing.estimate
        if there is not None and there.store != self._me and outranks(there, standing.mine):
            standing.mine = None
            await self._note(row, there)
            self._tell(row, standing, Verdict.OTHERS_ESTIMATE)
            return
        estimate = bool(standing.last) and standing.forged
        if not estimate and not self._task_wrong(row, standing):
            return
        now = asyncio.get_running_loop().time()
        if now < standing.again_at:
            asyncio.get_running_loop().call_at(standing.again_at, self._come_back, task_id)
            return
        quiet = now > standing.again_at + _QUIET_S
        standing.again_after = _SHORTEST_S if quiet else min(2 * standing.again_after, _LONGEST_S)
        standing.again_at = now + standing.again_after
        if quiet or standing.again_after == _LONGEST_S:
            whose = f" by store {there.store}" if there is not None and there.store else ""
            _LOG.warning(
                "task %s: what is published of it was overwritten%s: published again; stop whoever does that, or have "
                "that store take it over (hush task take-over)",
                task_id,
                whose,
            )
        await self._put_task(session, row, standing)
        if estimate:
            await self._put_estimate(session, task_id, standing)

    def _come_back(self, task_id: str) -> None:
        self._due.add(task_id)
        self._wake.set()

    def _task_wrong(self, row: TaskRow, standing: _Standing) -> bool:
        """Whether what is retained on the topic of the task is not what its owner wants there."""
        if row.origin is Origin.BROKER or self._tasks[row.id].legacy:
            return False  # whoever published it sees to it; and nobody answers 'refuse' any more
        return standing.task != row.digest if row.state is State.OPEN else standing.task == row.digest

    async def _put_task(self, session: Session, row: TaskRow, standing: _Standing) -> None:
        if self._task_wrong(row, standing):
            wanted = row.state is State.OPEN
            standing.task = row.digest if wanted else None
            self._expect(task_topic(row.id))
            await session.publish(task_topic(row.id), row.payload if wanted else b"", retain=True)

    async def _put_estimate(self, session: Session, task_id: str, standing: _Standing) -> None:
        self.publishing(task_id, standing.last)
        await session.publish(estimate_topic(task_id), standing.last, retain=True)

    # What is kept, and told

    def _expect(self, topic: str) -> None:
        """A message to `topic` comes back, if this user may write and read there."""
        self.unconfirmed[topic] = None
        if topic not in self._told:
            asyncio.get_running_loop().call_later(_ECHO_S, self._miss, topic)

    def _miss(self, topic: str) -> None:
        """An acknowledgement says nothing about rights; that it comes back does."""
        if topic in self.unconfirmed and topic not in self._told:
            self._told.add(topic)
            _LOG.error(
                "a message to %s was acknowledged, and did not come back: allow this user to write and to read it",
                topic if self._probe not in topic else "hush/v1/estimates/+",
            )

    async def _note(self, row: TaskRow, claim: Claim | None) -> None:
        """Keep who owns it; where nobody is known to, what was known before stays."""
        if claim is not None and (claim.store, claim.term) != (row.owner, row.term):
            mine = claim.store == self._me
            await self._book.note(row.id, claim if mine else replace(claim, taken_from=""))

    def _tell(self, row: TaskRow, standing: _Standing, verdict: Verdict) -> None:
        """One line for each reason while the service runs."""
        there = standing.estimate.store if standing.estimate is not None else row.owner
        task = "" if standing.task is None else standing.task.hex()
        told = verdict.value.format(there=there, task=task, digest=row.digest.hex())
        if told == standing.told:
            return
        standing.told = told
        remedy = "" if verdict is Verdict.UNSEEN else (
            "; stop this aggregator if that is a mistake, give the task another id, or, if this store is to publish "
            f"from now on, run: hush task take-over {row.id} --store …"
        )
        _LOG.error("task %s: counted, and nothing is published of it: %s%s", row.id, told, remedy)


def _fingerprint(payload: bytes) -> bytes:
    return sha256(payload).digest()[:16]


