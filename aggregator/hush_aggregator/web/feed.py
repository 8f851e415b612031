"""The stream of changes: the current results of all tasks, read once for all followers, as server-sent events.

A follower has only a cursor in the order of changes: a slow one gets the newest document of each task that has changed
since, once, and uses no memory meanwhile. The name of a cursor outlives the process: it is a sum over the documents. A
client that returns with a known cursor misses nothing and gets nothing twice; with another one it gets everything.

Without followers the store is read twice a minute.
"""

import asyncio
import hashlib
import json
import logging
import random
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, NamedTuple, NoReturn, cast

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import StreamingResponse
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event

from hush_aggregator.estimate.result import encode, utc_now
from hush_aggregator.store import TaskCount
from hush_aggregator.store.base import StoreReader
from hush_aggregator.web.service import StoreService
from hush_common.errors import StoreError
from hush_common.task import Task
from hush_common.wire import Refusal

_LOG = logging.getLogger("hush.aggregator")
_READ_EVERY_S = 1.0  # at most once a second, so that polling cannot reveal when a report arrived
_NOTIFY_EVERY_S = 0.1
_FIRST_READ_S = 1.0  # after the start, if nobody follows: the first page does not compete with a hundred estimates
_UNWATCHED_S = 30.0  # between two reads without followers
_CONCURRENT = 2  # documents: a request for a single one does not wait for a thousand
_CURSORS = 4096  # that are remembered by name
_FIRST_S = 2.0
_IDLE_S = 15.0


class FeedEvent(NamedTuple):
    """A change for a follower."""

    task: str  # empty if the follower must forget all earlier events
    document: str  # JSON on one line; empty for a deleted task
    cursor: str  # its name after this event; empty if more events belong to the same change


class Overview(NamedTuple):
    """What one read of the store has found."""

    version: tuple[str, int]  # of the store: its name, and how often it was written
    counts: Mapping[str, TaskCount]
    refused: Mapping[Refusal, int]


@dataclass(slots=True)
class _Entry:
    """A task: its document, a hash of it without its time, and its place in the order of changes."""

    document: str
    hash: int
    at: int


class ChangeFeed:
    """The documents and their followers. `run` keeps the documents up to date."""

    def __init__(self, reading: StoreService, *, clock: Callable[[], datetime] = utc_now) -> None:
        self._reading = reading
        self._clock = clock
        self._found: Overview | None = None
        self._read_at = 0.0
        self._turn = asyncio.Lock()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()  # in the order of their last change
        self._tasks: dict[str, Task] = {}
        self._made_of: dict[str, tuple[TaskCount, bool]] = {}
        self._making: dict[str, asyncio.Task[None]] = {}
        self._concurrent = asyncio.Semaphore(_CONCURRENT)
        self._at = 0  # the last change
        self._sum = 0  # of all hashes: exclusive or, so that the order does not matter
        self._cursors: OrderedDict[str, int] = OrderedDict()
        self._changed = asyncio.Event()
        self._ready = asyncio.Event()
        self._arrived = asyncio.Event()
        self._ended = False
        self._error = ""
        self.followers: int = 0

    async def run(self) -> NoReturn:
        """Read the store again and again, until cancelled."""
        telling = asyncio.create_task(self._notify(), name="hush-feed-tell")
        try:
            await self._wait_for_follower(_FIRST_READ_S)
            while True:
                with suppress(StoreError):
                    await self.overview()
                await asyncio.sleep(self._read_at + _READ_EVERY_S - asyncio.get_running_loop().time())
                if not self.followers:
                    self._arrived.clear()
                    await self._wait_for_follower(_UNWATCHED_S)
        finally:
            for task in (telling, *self._making.values()):
                task.cancel()
            await asyncio.wait({telling, *self._making.values()})

    async def _wait_for_follower(self, most_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(most_s):
                await self._arrived.wait()

    def end(self) -> None:
        """End all streams."""
        self._ended = True
        self._changed.set()
        self._ready.set()

    async def overview(self) -> Overview:
        """Return what is in the store, at most a second old, and start updating outdated documents."""
        elapsed = asyncio.get_running_loop().time
        async with self._turn:
            if self._found is None or elapsed() - self._read_at >= _READ_EVERY_S:
                self._read_at = elapsed()
                self._found = await self._read_store()
            return self._found

    async def _read_store(self) -> Overview:
        before = self._found
        try:
            found = await self._reading.run(lambda store: _overview(store, before))
        except StoreError as error:
            if str(error) != self._error:
                self._error = str(error)
                _LOG.warning("%s", error)
            raise
        self._error = ""
        now = self._clock()
        for task_id in self._made_of.keys() - found.counts.keys():
            self._remove(task_id)
        for task_id, count in found.counts.items():
            task = self._tasks.get(task_id)
            state = count, task is not None and task.closes is not None and now >= task.closes
            if self._made_of.get(task_id) != state and task_id not in self._making:  # otherwise a later read
                self._made_of[task_id] = state
                self._making[task_id] = asyncio.create_task(self._make(count), name="hush-feed-make")
        if not self._making:
            self._ready.set()
        return found

    async def follow(self, cursor: str | None, task: str | None = None) -> AsyncIterator[FeedEvent | None]:
        """Yield what has changed since a cursor, then each change until the service ends; None after 15 s without one.

        An unknown cursor yields everything. With the id of a task, only its changes are yielded.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_S):
                await self._ready.wait()
        self._cursor()  # the current one may be known from an earlier process
        at = self._cursors.get(cursor or "", -1)
        if at < 0:
            at = 0
            yield FeedEvent("", "", "" if self._since(0, task) else self._cursor())
        elapsed = asyncio.get_running_loop().time
        yielded_at = elapsed()
        while not self._ended:
            changed = self._changed  # before reading, so that no change is missed
            target, name = self._at, self._cursor()
            due = self._since(at, task)
            if due:
                yielded_at = elapsed()
            for task_id in due:
                document = self._entries[task_id].document  # the newest, not that of the time of the change
                yield FeedEvent(task_id, document, name if task_id == due[-1] else "")
            at = target
            while not changed.is_set():
                try:
                    async with asyncio.timeout_at(yielded_at + _IDLE_S):  # changes of other tasks do not count
                        await changed.wait()
                except TimeoutError:
                    yielded_at = elapsed()
                    yield None

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Count a follower while the block runs. The store is read at once."""
        self.followers += 1
        self._arrived.set()
        try:
            yield
        finally:
            self.followers -= 1

    def _since(self, at: int, task: str | None = None) -> list[str]:
        """Return the tasks that have changed after a place, the oldest change first; with `task`, only that one."""
        if task is not None:
            return [task] if task in self._entries and self._entries[task].at > at else []
        found = []
        for task_id in reversed(self._entries):
            if self._entries[task_id].at <= at:
                break
            found.append(task_id)
        return found[::-1]

    async def _make(self, count: TaskCount) -> None:
        try:
            async with self._concurrent:
                task = await self._task(count)
                if task is None:
                    return
                result = await self._reading.result(task)
        except StoreError:
            self._made_of.pop(count.id, None)  # the next read tries again
            return
        finally:
            del self._making[count.id]
        document = result.to_document()
        fixed = {name: value for name, value in document.items() if name != "updated_at"}
        if task.id in self._made_of:  # otherwise it was deleted meanwhile
            self._put(task.id, self._reading.document(result).decode(), _hash(task.id, encode(fixed)))

    async def _task(self, count: TaskCount) -> Task | None:
        """Return the published task; None if it was deleted meanwhile."""
        known = self._tasks.get(count.id)
        if known is None or known.digest != count.digest:  # the store may be another one

            def read(store: StoreReader) -> Task | None:
                payload = store.task(count.id)
                return None if payload is None else self._reading.task(count.digest, payload)

            task = await self._reading.run(read)
            if task is None:
                return None
            self._tasks[count.id] = task
        return self._tasks[count.id]

    def _put(self, task_id: str, document: str, hash_: int) -> None:
        before = self._entries.get(task_id)
        if before is not None and before.hash == hash_:
            return
        self._at += 1
        self._sum ^= hash_ ^ (0 if before is None else before.hash)
        self._entries[task_id] = _Entry(document, hash_, self._at)
        self._entries.move_to_end(task_id)

    def _remove(self, task_id: str) -> None:
        """Leave an entry without a document, so that followers learn that the task is gone."""
        del self._made_of[task_id]
        self._tasks.pop(task_id, None)
        if task_id in self._entries:
            self._put(task_id, "", 0)

    async def _notify(self) -> NoReturn:
        """Wake the followers at regular times: a change does not wake them, and many changes wake them once."""
        at = 0
        while True:
            await asyncio.sleep(_NOTIFY_EVERY_S)
            if self._found is not None and not self._making:
                self._ready.set()
            if self._at != at and not self._ended:
                at = self._at
                self._changed.set()
                self._changed = asyncio.Event()

    def _cursor(self) -> str:
        """Return the name of the current cursor, and remember it."""
        name = f"{self._sum:016x}"  # not the version of the store, which counts its transactions
        self._cursors[name] = self._at
        self._cursors.move_to_end(name)
        while len(self._cursors) > _CURSORS:
            self._cursors.popitem(last=False)
        return name


def _overview(store: StoreReader, before: Overview | None) -> Overview:
    """Return what is in the store, read again only if it was written since `before`. In the thread of the store."""
    version = store.public_identity, store.version()
    if before is not None and before.version == version:
        return before
    return Overview(version, {count.id: count for count in store.counts()}, store.refused())


def _hash(task_id: str, document: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(document, digest_size=8, key=task_id.encode()[:64]).digest())


EVENTS_PATH = "/v1/events"

_RETRY_MS = 2000
_PIECE = 32 * 1024

event_routes: APIRouter = APIRouter(tags=["events"])


async def _followed(request: Request) -> AsyncIterator[ChangeFeed]:
    feed = cast("ChangeFeed", request.app.state.feed)
    with feed.followed():
        yield feed


class _Events(StreamingResponse):
    """A stream of events, each written in one piece.

    FastAPI's own response encodes each event again for each stream, through three tasks: with 500 streams that takes
    five times the processor time, which the intake in the same process would lack. The format is FastAPI's.
    """

    media_type = "text/event-stream"


@event_routes.get(EVENTS_PATH, response_class=_Events)
async def get_events(
    feed: Annotated[ChangeFeed, Depends(_followed)],
    last_event_id: Annotated[
        str | None, Header(description="The id of the last event that the client received.")
    ] = None,
    task: Annotated[
        str | None,
        Query(description="Only the events of this task; left out: all.", pattern=r"^[a-z0-9][a-z0-9-]{0,63}$"),
    ] = None,
) -> _Events:
    """All tasks, then each change: server-sent events.

    `state` is first: forget all earlier events. With a known `Last-Event-ID` it is left out, and only what has changed
    since follows. `result` has the document of a task, as in `hush results --json`, of its latest round; `removed`
    names a deleted task. The last event of those that belong together has an id. A comment every 15 s shows that the
    stream is alive.
    """
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}  # the second tells proxies not to buffer
    return _Events(_encoded(feed, last_event_id, task), headers=headers)


async def _encoded(feed: ChangeFeed, cursor: str | None, task: str | None) -> AsyncIterator[bytes]:
    """Yield the bytes of events. Events that belong together are one piece, which is faster."""
    retry = _RETRY_MS + random.randrange(_RETRY_MS)  # noqa: S311 - so that clients do not return all at once
    piece = bytearray()
    async for change in feed.follow(cursor, task):
        if change is None:
            piece += KEEPALIVE_COMMENT
        elif not change.task:
            piece += format_sse_event(event="state", data_str='{"v":1}', id=change.cursor or None, retry=retry)
        else:
            name = "result" if change.document else "removed"
            data = change.document or json.dumps({"task": change.task})
            piece += format_sse_event(event=name, data_str=data, id=change.cursor or None)
        if change is None or change.cursor or len(piece) > _PIECE:
            yield bytes(piece)
            piece.clear()
