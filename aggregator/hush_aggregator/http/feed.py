"""Feed: the documents of all tasks as they stand, kept up to date by one look at the store for all who follow.

A follower has a place in the order of changes, and nothing else: whoever is slow gets the newest document of each task
that has changed since, once, and takes no memory meanwhile. Places have names that outlive the process: the version of
the store, and a sum over the documents. Whoever comes back with a name that is known misses nothing and gets nothing
twice; with any other everything.

While nobody follows, changes are looked for twice a minute: that is enough for whoever comes.
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

from fastapi import APIRouter, Depends, Header, Request
from fastapi.responses import StreamingResponse
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event

from hush_aggregator.http.service import Reading
from hush_aggregator.result import encode
from hush_aggregator.result_reader import utc_now
from hush_aggregator.store import TaskCount
from hush_aggregator.store.base import StoreReader
from hush_common.errors import StoreError
from hush_common.task import Task
from hush_common.wire import Refusal

_LOG = logging.getLogger("hush.aggregator")
_LOOK_EVERY_S = 1.0  # and never more often, whoever asks: as estimates are released, so that no moment is told better
_TELL_EVERY_S = 0.1
_UNWATCHED_S = 30.0  # between two looks while nobody follows
_AT_ONCE = 2  # documents: whoever asks for a single one does not wait for a thousand
_KNOWN = 4096  # places that are remembered by name
_FIRST_S = 2.0
_IDLE_S = 15.0


class Change(NamedTuple):
    """What a follower is told.

    Args:
        task: whose document is another one; empty where everything that was told before is to be forgotten.
        document: JSON on one line; empty for a task that is gone.
        place: the name of the place that is reached with this change; empty where more belongs to it.
    """

    task: str
    document: str
    place: str


class Overview(NamedTuple):
    """What one look at the store has found.

    Args:
        version: of the store: its name, and how often it was written.
        counts: by task.
        refused: by reason.
    """

    version: tuple[str, int]
    counts: Mapping[str, TaskCount]
    refused: Mapping[Refusal, int]


@dataclass(slots=True)
class _Entry:
    """A task: its document, a hash of all that counts of it, and the place in the order of changes."""

    document: str
    hash: int
    at: int


class Feed:
    """Documents, and who follows them. `run` keeps them up to date.

    Args:
        reading: the store.
        clock: the time, aware.
    """

    def __init__(self, reading: Reading, *, clock: Callable[[], datetime] = utc_now) -> None:
        self._reading = reading
        self._clock = clock
        self._found: Overview | None = None
        self._looked_at = 0.0
        self._turn = asyncio.Lock()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()  # in the order of their last change
        self._tasks: dict[str, Task] = {}
        self._made_of: dict[str, tuple[TaskCount, bool]] = {}
        self._making: dict[str, asyncio.Task[None]] = {}
        self._few = asyncio.Semaphore(_AT_ONCE)
        self._at = 0  # the last change
        self._sum = 0  # of all hashes: exclusive or, so that the order does not matter
        self._places: OrderedDict[str, int] = OrderedDict()
        self._told = asyncio.Event()
        self._settled = asyncio.Event()
        self._come = asyncio.Event()
        self._ended = False
        self._trouble = ""
        self.followers: int = 0

    async def run(self) -> NoReturn:
        """Look at the store, until cancelled."""
        telling = asyncio.create_task(self._tell(), name="hush-feed-tell")
        try:
            while True:
                with suppress(StoreError):
                    await self.overview()
                await asyncio.sleep(self._looked_at + _LOOK_EVERY_S - asyncio.get_running_loop().time())
                if not self.followers:
                    self._come.clear()
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_UNWATCHED_S):
                            await self._come.wait()
        finally:
            for task in (telling, *self._making.values()):
                task.cancel()
            await asyncio.wait({telling, *self._making.values()})

    def end(self) -> None:
        """Let all who follow go."""
        self._ended = True
        self._told.set()
        self._settled.set()

    async def overview(self) -> Overview:
        """Look at the store, unless it was looked at within a second; documents that are out of date are made then.

        Raises:
            StoreError: it cannot be read.
        """
        elapsed = asyncio.get_running_loop().time
        async with self._turn:
            if self._found is None or elapsed() - self._looked_at >= _LOOK_EVERY_S:
                self._looked_at = elapsed()
                self._found = await self._looked()
            return self._found

    async def _looked(self) -> Overview:
        before = self._found
        try:
            found = await self._reading.run(lambda store: _look(store, before))
        except StoreError as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                _LOG.warning("%s", error)
            raise
        self._trouble = ""
        now = self._clock()
        for task_id in self._made_of.keys() - found.counts.keys():
            self._remove(task_id)
        for task_id, count in found.counts.items():
            task = self._tasks.get(task_id)
            state = count, task is not None and task.closes is not None and now >= task.closes
            if self._made_of.get(task_id) != state and task_id not in self._making:  # else a later look
                self._made_of[task_id] = state
                self._making[task_id] = asyncio.create_task(self._make(count), name="hush-feed-make")
        if not self._making:
            self._settled.set()
        return found

    async def follow(self, place: str | None) -> AsyncIterator[Change | None]:
        """What has changed since a place, then whatever changes, until the service ends; None after 15 s without.

        Args:
            place: its name; of one that is not known everything is told.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_S):
                await self._settled.wait()
        self._place()  # the one of now may be that of a process before this
        at = self._places.get(place or "", -1)
        if at < 0:
            at = 0
            yield Change("", "", "" if self._entries else self._place())
        while not self._ended:
            told = self._told  # before looking, so that nothing slips by
            target, name = self._at, self._place()
            due = self._since(at)
            for task_id in due:
                document = self._entries[task_id].document  # as it is by then, and not as it was when it was found
                yield Change(task_id, document, name if task_id == due[-1] else "")
            at = target
            while not told.is_set():
                try:
                    async with asyncio.timeout(_IDLE_S):
                        await told.wait()
                except TimeoutError:
                    yield None

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Somebody follows for the length of the block: changes are looked for at once."""
        self.followers += 1
        self._come.set()
        try:
            yield
        finally:
            self.followers -= 1

    def _since(self, at: int) -> list[str]:
        """Tasks that have changed after a place, the oldest change first."""
        found = []
        for task_id in reversed(self._entries):
            if self._entries[task_id].at <= at:
                break
            found.append(task_id)
        return found[::-1]

    async def _make(self, count: TaskCount) -> None:
        try:
            async with self._few:
                task = await self._task(count)
                if task is None:
                    return
                result = await self._reading.result(task)
        except StoreError:
            self._made_of.pop(count.id, None)  # the next look tries again
            return
        finally:
            del self._making[count.id]
        document = result.to_document()
        fixed = {name: value for name, value in document.items() if name != "updated_at"}
        if task.id in self._made_of:  # else it was forgotten meanwhile
            self._put(task.id, encode(document).decode(), _hash(task.id, encode(fixed)))

    async def _task(self, count: TaskCount) -> Task | None:
        """The task as it is asked; None if it was forgotten meanwhile."""
        known = self._tasks.get(count.id)
        if known is None or known.digest != count.digest:  # another store may be in its place

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
        """It stays as an entry without a document: those who have it are to hear that it is gone."""
        del self._made_of[task_id]
        self._tasks.pop(task_id, None)
        if task_id in self._entries:
            self._put(task_id, "", 0)

    async def _tell(self) -> NoReturn:
        """Wake the followers at times of its own: a change alone wakes nobody, and many wake them once."""
        at = 0
        while True:
            await asyncio.sleep(_TELL_EVERY_S)
            if self._found is not None and not self._making:
                self._settled.set()
            if self._at != at and not self._ended:
                at = self._at
                self._told.set()
                self._told = asyncio.Event()

    def _place(self) -> str:
        """The name of the place of now, which is remembered."""
        name = f"{self._found.version[1] if self._found else 0}-{self._sum:016x}"
        self._places[name] = self._at
        self._places.move_to_end(name)
        while len(self._places) > _KNOWN:
            self._places.popitem(last=False)
        return name


def _look(store: StoreReader, before: Overview | None) -> Overview:
    """What is in the store, read anew only if it was written since `before`. In the thread of the store."""
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


async def _followed(request: Request) -> AsyncIterator[Feed]:
    feed = cast("Feed", request.app.state.feed)
    with feed.followed():
        yield feed


class _Events(StreamingResponse):
    """A stream of events, each written in one piece.

    FastAPI's own response writes each anew for each stream, through three tasks: with 500 streams five times the
    processor time, which the intake in the same process would pay. The format is FastAPI's.
    """

    media_type = "text/event-stream"


@event_routes.get(EVENTS_PATH, response_class=_Events)
async def get_events(
    feed: Annotated[Feed, Depends(_followed)],
    last_event_id: Annotated[str | None, Header(description="The id of the last event that was received.")] = None,
) -> _Events:
    """All tasks, then whatever changes: server-sent events.

    `state` comes first, and says that what was told before is to be forgotten; with the `Last-Event-ID` of a place
    that is still known it does not come, and only what has changed since does. `result` has the document of a task, as
    `hush results --json` has it, of its latest round; `removed` names a task that is gone. An id stands with the last
    event of those that belong together. A comment every 15 s shows that the stream lives.
    """
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}  # the second for proxies: pass it on at once
    return _Events(_written(feed, last_event_id), headers=headers)


async def _written(feed: Feed, place: str | None) -> AsyncIterator[bytes]:
    """The events as they are sent. What belongs together goes in one piece: with hundreds of streams a piece counts."""
    retry = _RETRY_MS + random.randrange(_RETRY_MS)  # noqa: S311 - so that not all come back at once
    piece = bytearray()
    async for change in feed.follow(place):
        if change is None:
            piece += KEEPALIVE_COMMENT
        elif not change.task:
            piece += format_sse_event(event="state", data_str='{"v":1}', id=change.place or None, retry=retry)
        else:
            name = "result" if change.document else "removed"
            data = change.document or json.dumps({"task": change.task})
            piece += format_sse_event(event=name, data_str=data, id=change.place or None)
        if change is None or change.place or len(piece) > _PIECE:
            yield bytes(piece)
            piece.clear()
