"""HEAD: what GET answers, without its body, at every place."""

import asyncio
from pathlib import Path

import httpx
import pytest
from http_world import BEARER, make_store, serving, writable

from hush_aggregator.http.app import ROUTERS, create_app
from hush_aggregator.http.page.pages import assets

PATIENCE_S = 30
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


@pytest.mark.parametrize("bearer", [BEARER, {}], ids=["token", "none"])
async def test_head_answers_with_the_status_and_the_headers_of_get(tmp_path: Path, bearer: dict[str, str]) -> None:
    app = create_app(writable(make_store(tmp_path / "hush.sqlite3")))
    app.state.metrics._exposition.text = lambda: b"the same each time"
    async with (
        serving(app) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S, headers=bearer) as client,
    ):
        for place in places():
            got, head = await client.get(place), await client.head(place)
            assert (head.status_code, head.content) == (got.status_code, b""), place
            assert told(head) == told(got), place
            assert got.headers.get("content-length", str(len(got.content))) == str(len(got.content)), place
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
        for _ in range(1000):
            if not (app.state.feed.followers or app.state.reading.exports._used):
                break
            await asyncio.sleep(0.01)
        assert (app.state.feed.followers, app.state.reading.exports._used.total()) == (0, 0)
