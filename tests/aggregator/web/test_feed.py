"""The feed of events: everything at first, then what has changed, whoever is slow, and wherever one comes back."""

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
from hush_aggregator.http import feed as module
from hush_aggregator.http import service
from hush_aggregator.http.feed import ChangeFeed, FeedEvent
from hush_aggregator.http.service import StoreService
from hush_aggregator.store import Accepted, SqliteEditor
from hush_common.task import make_task

CLOSES = datetime(2040, 1, 1, tzinfo=UTC)
BIT = {"epsilon": "1", "domain": {"kind": "bit"}}
A, B = (make_task({"id": name, **BIT, "closes": CLOSES.isoformat()}) for name in "ab")


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_READ_EVERY_S", 0.01)
    monkeypatch.setattr(module, "_NOTIFY_EVERY_S", 0.01)


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
    """Takes changes one by one."""

    def __init__(self, feed: ChangeFeed, place: str | None = None, task: str | None = None) -> None:
        self._inside = feed.followed()
        self._inside.__enter__()
        self._changes = feed.follow(place, task)

    async def next(self) -> FeedEvent:
        async with asyncio.timeout(60):
            while (change := await anext(self._changes)) is None:
                pass
            return change

    async def until_place(self) -> list[FeedEvent]:
        """All that belong together."""
        found = [await self.next()]
        while not found[-1].cursor:
            found.append(await self.next())
        return found

    async def until(self, **wanted: int) -> str:
        """Changes until these tasks have so many reports; the last place."""
        place, known = "", dict[str, int]()
        while not (place and wanted.items() <= known.items()):
            change = await self.next()
            if change.task and change.document:
                known[change.task] = json.loads(change.document)["n"]
            place = change.cursor
        return place

    async def leave(self) -> None:
        await self._changes.aclose()  # type: ignore[attr-defined]  # a generator
        self._inside.__exit__(None, None, None)


@asynccontextmanager
async def running(path: Path, clock: Clock | None = None) -> AsyncIterator[ChangeFeed]:
    store = StoreService(path)
    feed = ChangeFeed(store, clock=clock or Clock())
    work = asyncio.create_task(feed.run())
    try:
        yield feed
    finally:
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work
        await store.close()


def count(store: SqliteStore, task: Task, *numbers: int) -> None:
    ids = np.frombuffer(b"".join(number.to_bytes(16, "big") for number in numbers), dtype="V16")
    store.commit([Accepted(task, 0, ids, np.ones((len(numbers), 1), dtype=np.int64))], {})


async def test_everything_comes_first_then_what_changes(path: Path, store: SqliteStore) -> None:
    count(store, A, 1, 2)
    async with running(path) as feed:
        follower = Follower(feed)
        begin, *rest = await follower.until_place()
        assert begin == FeedEvent("", "", "")
        assert {change.task: json.loads(change.document)["n"] for change in rest} == {"a": 2, "b": 0}
        count(store, B, 1)
        (change,) = await follower.until_place()
        assert (change.task, json.loads(change.document)["n"]) == ("b", 1)
        assert change.cursor != rest[-1].cursor
        await follower.leave()


async def test_who_comes_back_gets_what_was_missed_and_no_more(path: Path, store: SqliteStore) -> None:
    async with running(path) as feed:
        first = Follower(feed)
        place = (await first.until_place())[-1].cursor
        count(store, B, 1)
        await first.until(b=1)
        count(store, B, 2)
        await first.until(b=2)
        again = Follower(feed, place)
        assert [(change.task, json.loads(change.document)["n"]) for change in await again.until_place()] == [("b", 2)]
        await first.leave()
        await again.leave()


async def test_a_follower_of_one_task_gets_its_changes_only(path: Path, store: SqliteStore) -> None:
    async with running(path) as feed:
        everything, one = Follower(feed), Follower(feed, task="b")
        begin, document = await one.until_place()
        assert (begin, document.task) == (FeedEvent("", "", ""), "b")
        await everything.until_place()
        count(store, A, 1)
        await everything.until(a=1)
        count(store, B, 1, 2)
        (change,) = await one.until_place()
        assert (change.task, json.loads(change.document)["n"]) == ("b", 2)
        again = Follower(feed, document.cursor, "b")
        assert await again.until_place() == [change]
        unknown = Follower(feed, task="c")
        (begin,) = await unknown.until_place()
        assert begin == FeedEvent("", "", begin.cursor)
        for follower in (everything, one, again, unknown):
            await follower.leave()


async def test_changes_of_other_tasks_do_not_silence_the_stream_of_one(
    path: Path, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_IDLE_S", 1.0)
    async with running(path) as feed, asyncio.timeout(60):
        with feed.followed():
            changes = feed.follow(None, "b")
            assert [(await anext(changes)).task for _ in range(2)] == ["", "b"]  # type: ignore[union-attr]
            number = during = 0
            while during < 4:  # where the machine was busy with other work, once more
                idle, before = asyncio.ensure_future(anext(changes)), number
                while not idle.done():
                    number += 1
                    count(store, A, number)
                    await asyncio.sleep(0.05)
                assert await idle is None
                during = number - before
            await changes.aclose()  # type: ignore[attr-defined]  # a generator


@pytest.mark.parametrize("place", ["", "7-00", "99999999999999999999-1", "x" * 10_000, "\N{SNOWMAN}"])
async def test_a_place_that_is_not_known_gets_everything(path: Path, store: SqliteStore, place: str) -> None:
    count(store, A, 1)
    async with running(path) as feed:
        follower = Follower(feed, place)
        changes = await follower.until_place()
        assert changes[0].task == ""
        assert {change.task for change in changes[1:]} == {"a", "b"}
        await follower.leave()


async def test_places_outlive_the_process(path: Path, store: SqliteStore) -> None:
    places = []
    for number in range(2):
        async with running(path) as feed:
            follower = Follower(feed)
            places.append((await follower.until_place())[-1].cursor)
            await follower.leave()
        if not number:
            async with running(path) as feed:  # another process, the same store
                follower = Follower(feed, places[0])
                waiting = asyncio.create_task(follower.next())
                await asyncio.sleep(0.2)
                assert not waiting.done()  # nothing has changed
                count(store, A, 1)
                change = await waiting
                assert (change.task, json.loads(change.document)["n"]) == ("a", 1)
                await follower.leave()
    assert places[0] != places[1]


async def test_a_slow_follower_gets_the_newest_of_each_task_once(path: Path, store: SqliteStore) -> None:
    async with running(path) as feed:
        slow, quick = Follower(feed), Follower(feed)
        await slow.until_place()
        for number in range(1, 6):
            count(store, A, number)
            await quick.until(a=number)
        changes = await slow.until_place()
        assert [(change.task, json.loads(change.document)["n"]) for change in changes] == [("a", 5)]
        await slow.leave()
        await quick.leave()


async def test_followers_share_one_look_at_the_store(path: Path, store: SqliteStore) -> None:
    looks = 0
    async with running(path) as feed:
        inner = feed._read_store

        async def looked() -> module.Overview:
            nonlocal looks
            looks += 1
            return await inner()

        feed._read_store = looked  # type: ignore[method-assign]
        followers = [Follower(feed) for _ in range(50)]
        for follower in followers:
            await follower.until_place()
        looks = 0
        count(store, A, 1)
        await asyncio.gather(*(follower.until(a=1) for follower in followers))
        assert looks < 25  # each of them has followed the same looks
        for follower in followers:
            await follower.leave()


@pytest.mark.usefixtures("store")
async def test_a_task_that_is_forgotten_is_told_once(path: Path) -> None:
    async with running(path) as feed:
        follower = Follower(feed)
        await follower.until_place()
        with SqliteEditor(path) as editor:
            editor.forget("a")
        changes = [await follower.next()]
        while changes[-1].document:  # it is closed first, which its document says
            changes.append(await follower.next())
        assert changes[-1].task == "a"
        fresh = Follower(feed)
        assert {change.task for change in await fresh.until_place() if change.document} == {"b"}
        await follower.leave()
        await fresh.leave()


@pytest.mark.usefixtures("store")
async def test_a_task_that_closes_by_the_clock_alone_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(service, "utc_now", clock)
    async with running(path, clock) as feed:
        follower = Follower(feed)
        before = (await follower.until_place())[-1].cursor
        clock.now = CLOSES
        changes = await follower.until_place()
        assert {change.task for change in changes} <= {"a", "b"}
        assert all(json.loads(change.document)["closed"] for change in changes)
        assert changes[-1].cursor != before
        await follower.leave()


@pytest.mark.usefixtures("store")
async def test_followers_leave_when_the_service_ends(path: Path) -> None:
    async with running(path) as feed:
        follower = Follower(feed)
        await follower.until_place()
        feed.end()
        with pytest.raises(StopAsyncIteration):
            await follower.next()


async def test_a_store_that_comes_later_is_told(path: Path) -> None:
    async with running(path) as feed:
        follower = Follower(feed)
        waiting = asyncio.create_task(follower.until(a=0))
        with SqliteStore(path) as store:
            store.add_task(A)
            assert await waiting
        await follower.leave()


@pytest.mark.usefixtures("store")
async def test_where_nothing_changes_something_shows_that_the_stream_lives(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_IDLE_S", 0.02)
    async with running(path) as feed:
        follower = Follower(feed)
        await follower.until_place()
        async with asyncio.timeout(60):
            assert await anext(follower._changes) is None
        await follower.leave()
