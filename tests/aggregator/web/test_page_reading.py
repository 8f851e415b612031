"""What the page reads: little, by indexes, however many tasks there are; and it waits for no slow estimate."""

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import httpx
import page_tasks
import pytest
from page_server import served

from hush import Task
from hush_aggregator import SqliteReader, SqliteStore
from hush_aggregator.estimation import Estimator, Failure, ThreadEstimator
from hush_aggregator.http.page import view as page_view
from hush_aggregator.http.page.environment import assets
from hush_aggregator.http.page.view import LISTED, ListedState, ListOrder, TaskSearch, TaskStatus, TaskViews
from hush_aggregator.http.service import StoreService
from hush_aggregator.store.base import TaskState
from hush_aggregator.tally import Tally
from hush_common.task import make_task
from hush_common.wire import Refusal

NOW = datetime(2026, 6, 1, tzinfo=UTC)
ROUNDS = {"rounds": 40, "round_every": "1d", "opens": "2026-01-01T00:00:00Z"}


def bits(number: int) -> list[Task]:
    return [make_task({"id": f"t{place:03}", "epsilon": "1", "domain": {"kind": "bit"}}) for place in range(number)]


@asynccontextmanager
async def views(path: Path, estimator: Estimator | None = None) -> AsyncIterator[TaskViews]:
    reading = StoreService(path, estimator=estimator)
    try:
        yield TaskViews(reading)
    finally:
        await reading.close()


async def statements(path: Path, tasks: int) -> list[str]:
    """What is asked of a store of so many tasks for one page."""
    with SqliteStore(path) as store:
        for task in bits(tasks):
            store.add_task(task)
    asked: list[str] = []
    async with views(path) as there:
        await there.some(TaskSearch(), NOW)
        with SqliteStore(path) as store:
            store.commit([], {("t000", Refusal.DUPLICATE): 1})
        await there.reading.run(lambda store: cast("SqliteReader", store)._connection.set_trace_callback(asked.append))
        await there.some(TaskSearch(), NOW)
    return asked


async def test_what_is_asked_of_the_store_does_not_grow_with_the_tasks_and_is_found_by_indexes(tmp_path: Path) -> None:
    few, many = await statements(tmp_path / "few", LISTED + 9), await statements(tmp_path / "many", 3 * LISTED)
    assert len(few) == len(many)
    with SqliteStore(tmp_path / "many") as store:
        plans = [
            step[3]
            for one in set(many)
            if one.startswith("SELECT")
            for step in store._connection.execute(f"EXPLAIN QUERY PLAN {one}").fetchall()
        ]
    assert plans
    scans = {plan for plan in plans if plan.startswith("SCAN")}
    assert scans <= {"SCAN task", "SCAN broker", "SCAN identity", "SCAN CONSTANT ROW"}  # the list once; one row


async def test_a_list_is_read_once_until_the_store_changes_or_a_task_closes(tmp_path: Path) -> None:
    closing = make_task({"id": "c", "epsilon": "1", "domain": {"kind": "bit"}, "closes": "2026-06-01T00:00:30Z"})
    with SqliteStore(tmp_path / "store") as store:
        for task in (*bits(3), closing):
            store.add_task(task)
            page_tasks.count(store, task, [True] * 3)
    asked: list[str] = []

    async def read(seconds: int) -> tuple[bool, int, bool]:
        """Whether the tasks were read; reports of the first one, and whether the closing one is over."""
        asked.clear()
        found = (await there.some(TaskSearch(), NOW + timedelta(seconds=seconds))).views
        by_id = {view.task.id: view for view in found}
        is_read = any("FROM task ORDER BY id" in " ".join(one.split()) for one in asked)
        return is_read, by_id["t000"].n, by_id["c"].status is TaskStatus.CLOSING

    async with views(tmp_path / "store") as there:
        await there.reading.run(lambda store: cast("SqliteReader", store)._connection.set_trace_callback(asked.append))
        assert await read(0) == (True, 3, False)
        assert await read(29) == (False, 3, False)
        assert await read(30) == (True, 3, True)
        assert await read(31) == (False, 3, True)
        assert await read(2) == (True, 3, False)  # the clock was put back
        with SqliteStore(tmp_path / "store") as store:
            page_tasks.count(store, bits(1)[0], [True] * 4)
        assert await read(3) == (True, 7, False)


async def test_pages_have_all_tasks_once_and_those_that_are_over_come_last(tmp_path: Path) -> None:
    tasks = bits(2 * LISTED + 1)
    with SqliteStore(tmp_path / "store") as store:
        for task in tasks:
            store.add_task(task)
        store.close_task("t000")
        page_tasks.count(store, tasks[1], [True] * 3)
    async with views(tmp_path / "store") as there:
        pages = [await there.some(TaskSearch(page=page), NOW) for page in (1, 2, 3, 99)]
    found = [view.task.id for page in pages[:3] for view in page.views]
    assert found == [*(task.id for task in tasks[1:]), "t000"]
    assert pages[3].views == pages[2].views
    assert {(page.total, page.found, page.pages, page.dropped) for page in pages} == {(len(tasks), len(tasks), 3, 0)}
    assert [page.page for page in pages] == [1, 2, 3, 3]
    assert pages[2].views[0].status is TaskStatus.FINAL
    assert [view.n for view in pages[0].views[:2]] == [3, 0]


async def listed(there: TaskViews, **search: object) -> list[str]:
    found = await there.some(TaskSearch(**search), NOW)  # type: ignore[arg-type]
    assert found.found == len(found.views)
    return [view.task.id for view in found.views]


async def test_tasks_are_found_by_their_words_and_state_and_sorted(tmp_path: Path) -> None:
    words: tuple[dict[str, object], ...] = (
        {"id": "heights", "title": "Größe", "purpose": "Better BUSES"},
        {"id": "a-bus"},
        {"id": "z", "title": "Ways"},
    )
    tasks = [make_task({"epsilon": "1", "domain": {"kind": "bit"}} | one) for one in words]
    with SqliteStore(tmp_path / "store") as store:
        for task in tasks:
            store.add_task(task)
        page_tasks.count(store, tasks[2], [True] * 3)
        page_tasks.count(store, tasks[0], [True] * 2)
        store.close_task("a-bus")
        store.set_state("z", TaskState.WITHDRAWN)
    async with views(tmp_path / "store") as there:
        assert await listed(there) == ["heights", "z", "a-bus"]
        assert await listed(there, text=" bus ") == ["heights", "a-bus"]
        assert await listed(there, text="GRÖSSE") == ["heights"]
        assert await listed(there, text="epsilon") == []  # words of the task, not of its document
        assert await listed(there, order=ListOrder.NAME) == ["a-bus", "heights", "z"]  # a-bus, größe, ways
        assert await listed(there, order=ListOrder.REPORTS) == ["z", "heights", "a-bus"]
        assert await listed(there, state=ListedState.OPEN) == ["heights"]
        assert await listed(there, state=ListedState.WITHDRAWN) == ["z"]
        assert await listed(there, state=ListedState.ENDED) == ["a-bus"]
        assert await listed(there, state=ListedState.ENDED, text="ways") == []


async def test_a_slow_estimate_is_waited_for_by_nobody_and_there_when_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_view, "_PATIENCE_S", 0.01)
    ready = asyncio.Event()

    class Slow(ThreadEstimator):
        async def __call__(self, task: Task, tally: Tally, confidence: float) -> object | Failure:  # type: ignore[override]
            await ready.wait()
            return await super().__call__(task, tally, confidence)

    task = bits(1)[0]
    with SqliteStore(tmp_path / "store") as store:
        store.add_task(task)
        page_tasks.count(store, task, [True] * 7)
    async with views(tmp_path / "store", cast("Estimator", Slow())) as there:
        (view,) = (await there.some(TaskSearch(), NOW)).views
        assert (view.result, view.n) == (None, 7)
        ready.set()
        while view.result is None:
            (view,) = (await there.some(TaskSearch(), NOW)).views
        assert (view.result.n, view.n) == (7, 7)


async def test_a_page_of_a_task_has_its_last_rounds_and_any_round_that_is_asked_for(tmp_path: Path) -> None:
    task = make_task({"id": "t", "epsilon": "40", "domain": {"kind": "bit"}, **ROUNDS})
    with SqliteStore(tmp_path / "store") as store:
        store.add_task(task)
        for round_ in (0, 29):
            page_tasks.count(store, task, [True] * 5, round_)
    async with views(tmp_path / "store") as there:
        latest, first = await there.one("t", None, NOW), await there.one("t", 0, NOW)
        assert latest is not None
        assert first is not None
        assert (latest.round, first.round, latest.latest, first.latest) == (29, 0, 29, 29)
        assert [one.round for one in latest.rounds] == list(range(6, 30))
        assert await there.one("t", 40, NOW) is None
        assert await there.one("other", None, NOW) is None


@pytest.mark.parametrize("where", ["/tasks/none", "/tasks/..%2f..%2fetc", "/tasks/%3Cscript%3E", "/assets/none.css"])
def test_what_is_not_there_is_not_there(where: str, tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "store"), served(tmp_path / "store") as address:
        answer = httpx.get(f"{address}{where}", timeout=60)
    assert answer.status_code == 404
    assert "<script>" not in answer.text


def test_a_store_that_is_not_there_is_told_to_people_without_its_place(tmp_path: Path) -> None:
    with served(tmp_path / "store") as address:
        for where in ("/", "/tasks/t"):
            answer = httpx.get(f"{address}{where}", timeout=60)
            assert (answer.status_code, answer.headers["content-type"]) == (503, "text/html; charset=utf-8")
            assert "cannot be read right now" in answer.text
            assert str(tmp_path) not in answer.text


def test_assets_are_what_they_say_under_names_that_change_with_them(tmp_path: Path) -> None:
    kinds = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
    with SqliteStore(tmp_path / "store"), served(tmp_path / "store") as address:
        for name, asset in assets().items():
            answer = httpx.get(f"{address}{asset.address}", timeout=60)
            assert answer.headers["content-type"] == kinds[name.partition(".")[2]]
            assert "immutable" in answer.headers["cache-control"]
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert hashlib.sha256(answer.content).hexdigest()[:12] in asset.address
        page = httpx.get(address, timeout=60)
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]
    assert page.headers["cache-control"] == "private, no-cache"
    assert not re.search(r"<style|<script>|style=|\bon[a-z]+=|https?://", page.text)
    assert sum(len(asset.body) for asset in assets().values()) < 30_000
