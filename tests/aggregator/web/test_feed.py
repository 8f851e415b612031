"""The feed of events: everything first, then changes, for slow followers and those that return."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from hush import Task
from hush_aggregator import SqliteStore
from hush_aggregator.store import Accepted, SqliteEditor
from hush_aggregator.web.feed import ChangeFeed, FeedEvent
from hush_aggregator.web.service import StoreService
from hush_common.task import make_task

pytestmark = pytest.mark.virtual_time

CLOSES = datetime(2040, 1, 1, tzinfo=UTC)
BIT = {"epsilon": "1", "domain": {"kind": "bit"}}
A, B = (make_task({"id": name, **BIT, "closes": CLOSES.isoformat()}) for name in "ab")
IDLE_S = 15


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "hush.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    with SqliteStore(path) as store:
        store.add_task(A)
        store.add_task(B)
        yield store


class Clock:
    def __init__(self) -> None:
        self.now = CLOSES - timedelta(days=1)

    def __call__(self) -> datetime:
        return self.now


class Follower:
    """Takes one change after the other."""

    def __init__(self, feed: ChangeFeed, cursor: str | None = None, task: str | None = None) -> None:
        self._inside = feed.followed()
        self._inside.__enter__()
        self.changes = feed.follow(cursor, task)

    async def next(self) -> FeedEvent:
        while (change := await anext(self.changes)) is None:
            pass
        return change

    async def group(self) -> list[FeedEvent]:
        """All changes that belong together."""
        found = [await self.next()]
        while not found[-1].cursor:
            found.append(await self.next())
        return found

    async def counts(self) -> dict[str, int]:
        """The reports of each task of the next group."""
        return {one.task: json.loads(one.document)["n"] for one in await self.group() if one.document}

    async def leave(self) -> None:
        await self.changes.aclose()  # type: ignore[attr-defined]  # a generator
        self._inside.__exit__(None, None, None)


@asynccontextmanager
async def running(path: Path, clock: Clock | None = None) -> AsyncIterator[ChangeFeed]:
    service = StoreService(path)
    feed = ChangeFeed(service, clock=clock or Clock())
    work = asyncio.create_task(feed.run())
    try:
        yield feed
    finally:
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work
        await service.close()


def count(store: SqliteStore, task: Task, *numbers: int) -> None:
    ids = np.frombuffer(b"".join(number.to_bytes(16, "big") for number in numbers), dtype="V16")
    store.commit([Accepted(task, 0, ids, np.ones((len(numbers), 1), dtype=np.int64))], {})


async def test_everything_comes_first_then_each_change(path: Path, store: SqliteStore) -> None:
    count(store, A, 1, 2)
    async with running(path) as feed:
        follower = Follower(feed)
        begin, *rest = await follower.group()
        assert begin == FeedEvent("", "", "")
        assert {change.task: json.loads(change.document)["n"] for change in rest} == {"a": 2, "b": 0}
        count(store, B, 1)
        (change,) = await follower.group()
        assert (change.task, json.loads(change.document)["n"]) == ("b", 1)
        assert change.cursor != rest[-1].cursor
        await follower.leave()


async def test_a_returning_follower_gets_only_what_it_missed(path: Path, store: SqliteStore) -> None:
    async with running(path) as feed:
        first = Follower(feed)
        cursor = (await first.group())[-1].cursor
        for number in (1, 2):
            count(store, B, number)
            assert await first.counts() == {"b": number}
        again = Follower(feed, cursor)
        assert await again.counts() == {"b": 2}
        await first.leave()
        await again.leave()


async def test_a_follower_of_one_task_gets_its_changes_alone(path: Path, store: SqliteStore) -> None:
    async with running(path) as feed:
        everything, one = Follower(feed), Follower(feed, task="b")
        begin, document = await one.group()
        assert (begin, document.task) == (FeedEvent("", "", ""), "b")
        await everything.group()
        count(store, A, 1)
        assert await everything.counts() == {"a": 1}
        count(store, B, 1, 2)
        assert await one.counts() == {"b": 2}
        again = Follower(feed, document.cursor, "b")
        assert await again.counts() == {"b": 2}
        unknown = Follower(feed, task="c")
        (begin,) = await unknown.group()
        assert begin == FeedEvent("", "", begin.cursor)
        for follower in (everything, one, again, unknown):
            await follower.leave()


@pytest.mark.medium
async def test_a_stream_without_events_shows_that_it_is_open(path: Path, store: SqliteStore) -> None:
    """Every fifteen seconds, also while another task changes."""
    async with running(path) as feed:
        for task in (None, "b"):
            follower = Follower(feed, task=task)
            await follower.group()
            begun = asyncio.get_running_loop().time()
            idle = asyncio.ensure_future(anext(follower.changes))
            if task:
                for number in range(1, IDLE_S):
                    count(store, A, number)
                    await asyncio.sleep(1)
            assert await idle is None
            assert asyncio.get_running_loop().time() - begun == pytest.approx(IDLE_S, abs=0.2)
            await follower.leave()


@pytest.mark.parametrize("cursor", ["", "7-00", "99999999999999999999-1", "x" * 10_000, "\N{SNOWMAN}"])
async def test_an_unknown_cursor_gets_everything(path: Path, store: SqliteStore, cursor: str) -> None:
    count(store, A, 1)
    async with running(path) as feed:
        follower = Follower(feed, cursor)
        assert next(change.task for change in await follower.group()) == ""
        await follower.leave()
        follower = Follower(feed, cursor)
        assert await follower.counts() == {"a": 1, "b": 0}
        await follower.leave()


async def test_a_cursor_outlives_the_process(path: Path, store: SqliteStore) -> None:
    async with running(path) as feed:
        follower = Follower(feed)
        cursor = (await follower.group())[-1].cursor
        await follower.leave()
    async with running(path) as feed:  # another process, the same store
        follower = Follower(feed, cursor)
        assert await anext(follower.changes) is None  # nothing has changed for fifteen seconds
        count(store, A, 1)
        (change,) = await follower.group()
        assert (change.task, json.loads(change.document)["n"]) == ("a", 1)
        assert change.cursor != cursor
        await follower.leave()


async def test_a_slow_follower_gets_the_newest_of_each_task_once(path: Path, store: SqliteStore) -> None:
    async with running(path) as feed:
        slow, quick = Follower(feed), Follower(feed)
        await slow.group()
        await quick.group()
        for number in range(1, 6):
            count(store, A, number)
            assert await quick.counts() == {"a": number}
        assert await slow.counts() == {"a": 5}
        await slow.leave()
        await quick.leave()


async def test_the_store_is_read_once_a_second_for_all_followers(path: Path, store: SqliteStore) -> None:
    """So how often somebody asks does not reveal when a report came."""
    reads: list[float] = []

    class Counting(StoreService):
        async def run(self, function: object) -> object:  # type: ignore[override]  # of any result
            reads.append(asyncio.get_running_loop().time())
            return await super().run(function)  # type: ignore[arg-type]

    service = Counting(path)
    feed = ChangeFeed(service, clock=Clock())
    work = asyncio.create_task(feed.run())
    followers = [Follower(feed) for _ in range(50)]
    for follower in followers:
        await follower.group()
    reads.clear()
    await asyncio.sleep(10)
    assert len(reads) == pytest.approx(10, abs=1)
    count(store, A, 1)
    assert await asyncio.gather(*(follower.counts() for follower in followers)) == [{"a": 1}] * 50
    for follower in followers:
        await follower.leave()
    reads.clear()
    await asyncio.sleep(300)
    assert len(reads) == pytest.approx(10, abs=2)  # twice a minute while nobody follows
    work.cancel()
    await asyncio.wait({work})
    await service.close()


@pytest.mark.usefixtures("store")
async def test_a_deleted_task_is_announced_once(path: Path) -> None:
    async with running(path) as feed:
        follower = Follower(feed)
        await follower.group()
        with SqliteEditor(path) as editor:
            editor.forget("a")
        changes = [await follower.next()]
        while changes[-1].document:  # it is closed first, which its document says
            changes.append(await follower.next())
        assert changes[-1].task == "a"
        fresh = Follower(feed)
        assert await fresh.counts() == {"b": 0}
        await follower.leave()
        await fresh.leave()


@pytest.mark.usefixtures("store")
async def test_a_task_that_closes_by_the_clock_is_announced(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("hush_aggregator.web.service.utc_now", clock)
    async with running(path, clock) as feed:
        follower = Follower(feed)
        before = (await follower.group())[-1].cursor
        clock.now = CLOSES
        changes = await follower.group()
        assert {change.task for change in changes} <= {"a", "b"}
        assert all(json.loads(change.document)["closed"] for change in changes)
        assert changes[-1].cursor != before
        await follower.leave()
