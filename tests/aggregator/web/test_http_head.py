"""HEAD: what GET answers, without its body, at every place; and connections that are used again."""

import asyncio
import re
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from http_world import BEARER, make_store, serving, writable
from waiting import until

from hush_aggregator.http.app import ROUTERS, create_app
from hush_aggregator.http.page.environment import assets
from hush_aggregator.http.security import BODY_LIMIT

PATIENCE_S = 60
VALUES = {"{task_id}": "heights", "{number}": "0", "{name}": assets()["hush.css"].address.rpartition("/")[2]}


def places() -> list[str]:
    """All that GET is for, with names that there are."""
    found = {"/v1/openapi.json", "/v1/tasks/nothing", "/nothing"}
    for router in ROUTERS:
        found |= {str(route.path) for route in router.routes if "GET" in route.methods}  # type: ignore[attr-defined]
    for name, value in VALUES.items():
        found = {place.replace(name, value) for place in found}
    return sorted(found - {"/v1/events"})


def told(answer: httpx.Response) -> dict[str, str]:
    """The headers, but for the time."""
    return {name: value for name, value in answer.headers.items() if name != "date"}


@pytest.mark.large
@pytest.mark.parametrize("encoding", ["gzip", "identity"])
@pytest.mark.parametrize("bearer", [BEARER, {}], ids=["token", "none"])
async def test_head_answers_with_the_status_and_the_headers_of_get(
    tmp_path: Path, bearer: dict[str, str], encoding: str
) -> None:
    app = create_app(writable(make_store(tmp_path / "hush.sqlite3")))
    app.state.metrics._exposition.text = lambda: b"the same each time"
    headers = {**bearer, "accept-encoding": encoding}
    async with (
        serving(app) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S, headers=headers) as client,
    ):
        for place in places():
            got, head = await client.get(place), await client.head(place)
            if told(head) != told(got):  # a page may say how old its figures are, in minutes
                got = await client.get(place)
            assert (head.status_code, head.content) == (got.status_code, b""), place
            assert told(head) == told(got), place
            size = str(got.num_bytes_downloaded)
            assert got.headers.get("content-length", size) == size, place
        assert (await client.head("/v1/tasks/heights/withdraw")).status_code == 405


async def test_head_of_what_has_no_end_ends_and_leaves_its_places(tmp_path: Path) -> None:
    app = create_app(writable(make_store(tmp_path / "hush.sqlite3")))
    async with (
        serving(app) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S, headers=BEARER) as client,
    ):
        for place, kind in (("/v1/events", "text/event-stream"), ("/v1/tasks/heights/reports.csv", "text/csv")):
            answer = await client.head(place)
            assert (answer.status_code, answer.content) == (200, b"")
            assert answer.headers["content-type"] == f"{kind}; charset=utf-8"
        await until(lambda: not (app.state.feed.followers or app.state.reading.exports._used))
        assert (app.state.feed.followers, app.state.reading.exports._used.total()) == (0, 0)


async def test_after_a_refusal_that_comes_before_the_body_the_connection_is_used_again(tmp_path: Path) -> None:
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
        for endless in (b"Transfer-Encoding: chunked", b"Expect: 100-continue"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write((head % 2).replace(b"Host", endless + b"\r\nHost"))
            assert b" 401 " in await read_answer(reader)
            assert await reader.read(1) == b"", endless
            writer.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head % 2 + b"x")
        assert b" 401 " in await read_answer(reader)
        with suppress(ConnectionError):  # the other half never comes
            assert await reader.read(1) == b""
        writer.close()


async def read_answer(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    (length,) = re.findall(rb"content-length: (\d+)", head.lower())
    await reader.readexactly(int(length))
    return head
