"""The server in a process of its own kind: connections, and streams of events as a browser reads them."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx
import pytest
from http_world import HEIGHTS, Service, make_store, serving, writable
from waiting import PATIENCE_S, until

from hush_aggregator import SqliteStore
from hush_aggregator.web.app import create_app, serve_http
from hush_aggregator.web.feed import ChangeFeed
from hush_aggregator.web.listen import Address, bind
from hush_aggregator.web.security import BODY_LIMIT

pytestmark = [pytest.mark.medium, pytest.mark.face]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "hush.sqlite3"
    with SqliteStore(path) as opened:
        opened.add_task(HEIGHTS)
    return path


@asynccontextmanager
async def served(path: Path) -> AsyncIterator[tuple[httpx.AsyncClient, "asyncio.Task[None]", ChangeFeed]]:
    app = create_app(Service(path))
    listener = bind("--http", Address("127.0.0.1", 0))
    running = asyncio.create_task(serve_http(app, listener))
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        async with httpx.AsyncClient(base_url=address, timeout=PATIENCE_S) as client:
            yield client, running, app.state.feed
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def event(lines: AsyncIterator[str]) -> dict[str, str]:
    """The next event, by the names of its fields."""
    found: dict[str, str] = {}
    async for line in lines:
        if not line and found:
            return found
        name, _, value = line.partition(": ")
        if name:
            found[name] = value
    raise AssertionError("the stream has ended")


async def test_a_stream_has_the_documents_and_continues_by_its_last_id(path: Path) -> None:
    async with served(path) as (client, _, _), client.stream("GET", "/v1/events") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert stream.headers["cache-control"] == "no-store"
        lines = stream.aiter_lines()
        state, result = await event(lines), await event(lines)
        assert (state["event"], json.loads(state["data"])) == ("state", {"v": 1})
        assert 1000 <= int(state["retry"]) <= 5000
        assert result["event"] == "result"
        assert json.loads(result["data"]) == (await client.get("/v1/tasks/heights/rounds/latest")).json()
        async with client.stream("GET", "/v1/events", headers={"Last-Event-ID": result["id"]}) as again:
            waiting = asyncio.ensure_future(event(again.aiter_lines()))
            with SqliteStore(path) as store:
                await asyncio.to_thread(store.close_task, "heights")
            assert json.loads((await waiting)["data"])["final"]


async def test_a_stream_of_one_task_is_requested_by_its_id(path: Path) -> None:
    async with served(path) as (client, _, feed):
        assert "/v1/events?task=heights" in (await client.get("/tasks/heights")).text
        async with client.stream("GET", "/v1/events?task=heights") as stream:
            lines = stream.aiter_lines()
            assert [(await event(lines))["event"] for _ in range(2)] == ["state", "result"]
            assert feed.followers == 1
        await until(lambda: not feed.followers)  # its reader has left
        refused = await client.get("/v1/events?task=Heights")
        assert refused.json()["type"].endswith("#invalid-parameter")


@pytest.mark.parametrize("times", [1, 2])
async def test_streams_end_with_the_service_also_if_it_is_ended_twice(path: Path, times: int) -> None:
    async with served(path) as (client, running, _), client.stream("GET", "/v1/events") as stream:
        lines = stream.aiter_lines()
        await event(lines)
        (server,) = (task for task in asyncio.all_tasks() if task.get_name() == "hush-http")
        for _ in range(times):
            running.cancel()
            for _ in range(3):
                await asyncio.sleep(0)
        async with asyncio.timeout(PATIENCE_S):
            assert [line async for line in lines][-1:] in ([], [""])  # it ends, and is not cut
            await asyncio.wait({running, server})
        assert running.cancelled()
        assert server.exception() is None


async def test_a_connection_is_used_again_after_an_early_refusal(tmp_path: Path) -> None:
    """As a proxy does, which would answer the next request with 502."""
    app = create_app(writable(make_store(tmp_path / "hush.sqlite3")))
    head = b"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    async with serving(app) as port, asyncio.timeout(PATIENCE_S):
        for length, is_used_again in ((2, True), (BODY_LIMIT, True), (BODY_LIMIT + 1, False)):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(head % length)
            assert (b" 401 " if is_used_again else b" 413 ") in await read_answer(reader)
            writer.write(b"x" * length + head % 0)
            if is_used_again:
                assert b" 401 " in await read_answer(reader), length
            else:
                assert await reader.read(1) == b"", length
            writer.close()
        for endless in (b"Transfer-Encoding: chunked", b"Expect: 100-continue", b""):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write((head % 2).replace(b"Host", endless + b"\r\nHost") if endless else head % 2 + b"x")
            assert b" 401 " in await read_answer(reader)
            with suppress(ConnectionError):  # the other half of the body never comes
                assert await reader.read(1) == b"", endless
            writer.close()


async def read_answer(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    (length,) = re.findall(rb"content-length: (\d+)", head.lower())
    await reader.readexactly(int(length))
    return head


async def test_a_request_that_is_not_http_has_its_problem(path: Path) -> None:
    async with serving(create_app(Service(path))) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\x16\x03\x01 hello\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), PATIENCE_S)
        writer.close()
    assert b"400" in answer.splitlines()[0]
    assert b"#not-http" in answer
