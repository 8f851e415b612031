"""The stream of events as a browser gets it, from a real server."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from servers import free_port

from hush_aggregator import SqliteStore
from hush_aggregator.http.app import create_app, serve_http
from hush_aggregator.http.feed import ChangeFeed
from hush_aggregator.http.listen import Address, bind
from hush_aggregator.http.service import Service
from hush_common.task import make_task

HEIGHTS = make_task({"id": "heights", "epsilon": "3", "domain": {"kind": "number", "lower": 0.0, "upper": 1.0}})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "hush.sqlite3"
    with SqliteStore(path) as opened:
        opened.add_task(HEIGHTS)
    return path


@asynccontextmanager
async def serving(path: Path) -> AsyncIterator[tuple[httpx.AsyncClient, "asyncio.Task[None]", ChangeFeed]]:
    port = free_port()
    app = create_app(Service(path))
    listener = bind("--http", Address.parse("--http", f"127.0.0.1:{port}"))
    running = asyncio.create_task(serve_http(app, listener))
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            yield client, running, app.state.feed
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def event(lines: AsyncIterator[str]) -> dict[str, str]:
    """The next event, field by field."""
    found: dict[str, str] = {}
    async for line in lines:
        if not line and found:
            return found
        name, _, value = line.partition(": ")
        if name:
            found[name] = value
    raise AssertionError("the stream has ended")


async def test_an_event_has_the_document_of_the_command(path: Path) -> None:
    async with serving(path) as (client, _, _), client.stream("GET", "/v1/events") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert "no-cache" in stream.headers["cache-control"] or "no-store" in stream.headers["cache-control"]
        lines = stream.aiter_lines()
        state, result = await event(lines), await event(lines)
        assert (state["event"], json.loads(state["data"])) == ("state", {"v": 1})
        assert 1000 <= int(state["retry"]) <= 5000
        document = json.loads(result["data"])
        assert (result["event"], document["task"]) == ("result", "heights")
        there = (await client.get("/v1/tasks/heights/rounds/latest")).json()
        assert document == there
        async with client.stream("GET", "/v1/events", headers={"Last-Event-ID": result["id"]}) as again:
            waiting = asyncio.ensure_future(event(again.aiter_lines()))
            with SqliteStore(path) as store:
                await asyncio.to_thread(store.close_task, "heights")
            assert json.loads((await waiting)["data"])["final"]


async def test_a_stream_of_one_task_is_asked_for_by_its_id(path: Path) -> None:
    async with serving(path) as (client, _, _):
        page = await client.get("/tasks/heights")
        assert 'data-events="/v1/events?task=heights"' in page.text
        async with client.stream("GET", "/v1/events?task=heights") as stream:
            lines = stream.aiter_lines()
            assert [(await event(lines))["event"] for _ in range(2)] == ["state", "result"]
        refused = await client.get("/v1/events?task=Heights")
        assert refused.json()["type"].endswith("#invalid-parameter")


async def test_streams_end_with_the_service(path: Path) -> None:
    async with serving(path) as (client, running, _), client.stream("GET", "/v1/events") as stream:
        lines = stream.aiter_lines()
        await event(lines)
        running.cancel()
        async with asyncio.timeout(60):
            assert [line async for line in lines][-1:] in ([], [""])  # it ends, and is not cut


async def test_a_service_that_is_ended_twice_ends_its_streams_and_closes_its_socket_last(path: Path) -> None:
    async with serving(path) as (client, running, _), client.stream("GET", "/v1/events") as stream:
        lines = stream.aiter_lines()
        await event(lines)
        (server,) = (task for task in asyncio.all_tasks() if task.get_name() == "hush-http")
        for _ in range(2):
            running.cancel()
            for _ in range(3):
                await asyncio.sleep(0)
        async with asyncio.timeout(60):
            assert [line async for line in lines][-1:] in ([], [""])  # it ends, and is not cut
            await asyncio.wait({running, server})
        assert running.cancelled()
        assert server.exception() is None


async def test_a_stream_that_its_reader_has_left_is_noticed(path: Path) -> None:
    async with serving(path) as (client, _, feed):
        async with client.stream("GET", "/v1/events") as stream:
            await event(stream.aiter_lines())
            assert feed.followers == 1
        async with asyncio.timeout(60):
            while feed.followers:  # noqa: ASYNC110 - nobody is told
                await asyncio.sleep(0.01)


async def test_metrics_of_a_store_come_from_what_is_counted(path: Path) -> None:
    async with serving(path) as (client, _, _):
        answer = await client.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    assert [(one.labels, one.value) for one in families["hush_reports_accepted"].samples] == [({"task": "heights"}, 0)]
