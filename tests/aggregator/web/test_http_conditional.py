"""ETag, 304, gzip and HEAD: the same answer in fewer bytes, and to nobody who could measure what is in it."""

import asyncio
import gzip
import hashlib
import html
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from http_world import BEARER, TOKEN, Client, Service, Token, asked, make_store, serving, writable
from page_tasks import count

from hush_aggregator import SqliteStore
from hush_aggregator.web.app import ROUTERS, create_app
from hush_aggregator.web.conditional import CompressedBodies
from hush_aggregator.web.page.environment import assets
from hush_common.task import make_task

pytestmark = pytest.mark.virtual_time

LATEST = "/v1/tasks/heights/rounds/latest"
LARGE = "/v1/openapi.json"


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    async with asked(writable(make_store(tmp_path / "hush.sqlite"))) as client:
        yield client


@pytest.mark.medium
async def test_an_answer_is_sent_again_only_after_a_change(client: Client, tmp_path: Path) -> None:
    first = await client.get(LATEST)
    known = {"If-None-Match": f'"other", W/{first.headers["etag"]}'}
    same = await client.get(LATEST, headers=known)
    assert (same.status_code, same.content) == (304, b"")
    for name in ("etag", "vary", "cache-control", "x-content-type-options"):
        assert same.headers[name] == first.headers[name]
    assert not {"content-type", "content-length", "content-encoding"} & same.headers.keys()
    with SqliteStore(tmp_path / "hush.sqlite") as store:
        store.close_task("heights")
    fresh = await client.get(LATEST, headers=known)
    assert (fresh.status_code, fresh.json()["closed"]) == (200, True)
    assert fresh.headers["etag"] != first.headers["etag"]


@pytest.mark.medium
async def test_each_encoding_of_an_answer_has_its_own_tag(client: Client) -> None:
    packed, plain = [await client.get(LARGE, headers={"Accept-Encoding": one}) for one in ("gzip", "identity")]
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert packed.content == plain.content
    assert int(packed.headers["content-length"]) < int(plain.headers["content-length"]) // 4
    crossed = {"Accept-Encoding": "identity", "If-None-Match": packed.headers["etag"]}
    assert (await client.get(LARGE, headers=crossed)).status_code == 200
    assert (await client.get(LARGE, headers={"If-None-Match": "*"})).status_code == 304


@pytest.mark.medium
async def test_gzip_is_for_clients_that_accept_it(client: Client) -> None:
    taken = ["gzip", "br, GZIP ; q=0.5", "*"]
    refused = ["gzip;q=0, *", "gzip;q=0.000", "gzip;q=2", "gzip;level=9", "identity", "x-gzip", ""]
    for accepted in taken + refused:
        answer = await client.get(LARGE, headers={"Accept-Encoding": accepted})
        assert ("content-encoding" in answer.headers) is (accepted in taken), accepted
    css = assets()["hush.css"]
    answer = await client.get(css.address)
    assert (answer.content, answer.headers["content-encoding"]) == (css.body, "gzip")
    assert "immutable" in answer.headers["cache-control"]


@pytest.mark.medium
async def test_no_answer_to_another_site_is_compressed(client: Client) -> None:
    """The page contains its address: its compressed length would show how well a guess in it fits the figures."""
    link = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    for site, packed in (("cross-site", False), ("same-site", False), ("none", True), ("same-origin", True)):
        answer = await client.get("/tasks/heights?guess=bus", headers={**link, "Sec-Fetch-Site": site})
        assert "guess=bus" in answer.text
        assert ("content-encoding" in answer.headers) is packed, site


async def test_answers_that_need_a_token_are_stored_nowhere(tmp_path: Path) -> None:
    async with asked(Service(make_store(tmp_path / "s"), token=Token(TOKEN), guarded=True)) as client:
        first = await client.get(LATEST, headers=BEARER)
        assert first.headers["cache-control"] == "no-store"
        known = {"If-None-Match": first.headers["etag"]}
        assert (await client.get(LATEST, headers={**BEARER, **known})).status_code == 304
        assert (await client.get(LATEST, headers=known)).status_code == 401


def places() -> list[str]:
    """Each path that GET has, with names that exist."""
    found = {LARGE, "/v1/tasks/nothing", "/nothing"}
    for router in ROUTERS:
        found |= {str(route.path) for route in router.routes if "GET" in route.methods}  # type: ignore[attr-defined]
    style = assets()["hush.css"].address.rpartition("/")[2]
    values = {"{task_id}": "heights", "{number}": "0", "{name}": style}
    for name, value in values.items():
        found = {place.replace(name, value) for place in found}
    return sorted(found - {"/v1/events", "/metrics"})  # a stream; and figures that count the requests


@pytest.mark.medium
@pytest.mark.parametrize("encoding", ["gzip", "identity"])
async def test_head_has_the_status_and_headers_of_get_and_no_body(client: Client, encoding: str) -> None:
    for headers in ({**BEARER, "Accept-Encoding": encoding}, {"Accept-Encoding": encoding}):
        for place in places():
            got, head = [await client.request(method, place, headers=headers) for method in ("GET", "HEAD")]
            assert (head.status_code, head.content) == (got.status_code, b""), place
            assert head.headers == got.headers, place
    assert (await client.head("/v1/tasks/heights/withdraw")).status_code == 405


@pytest.mark.medium
async def test_head_of_a_stream_ends_and_releases_its_place(client: Client) -> None:
    for place, kind in (("/v1/events", "text/event-stream"), ("/v1/tasks/heights/reports.csv", "text/csv")):
        for _ in range(3):  # more than there are places for exports
            answer = await client.head(place, headers=BEARER)
            assert (answer.status_code, answer.content) == (200, b"")
            assert answer.headers["content-type"] == f"{kind}; charset=utf-8"
    assert client.app.state.feed.followers == 0


async def test_compressed_bodies_are_made_once_within_a_limit() -> None:
    bodies = CompressedBodies(limit=100)
    first, second = await asyncio.gather(bodies.get("a", b"a" * 50_000), bodies.get("a", b"a" * 50_000))
    assert first is second
    assert await bodies.get("a", b"") is first  # only the tag counts
    assert len(first) > 50
    await bodies.get("b", b"b" * 50_000)
    assert gzip.decompress(await bodies.get("a", b"other")) == b"other"  # it was dropped


ALIKE = [f"category number {number}" for number in range(1024)]
LONG = [hashlib.shake_256(b"%d" % number).hexdigest(50) if number < 256 else str(number) for number in range(1024)]
"""As much text on one page as a task can have."""


@pytest.mark.large
@pytest.mark.virtual_time(False)
@pytest.mark.parametrize("labels", [ALIKE, LONG], ids=["alike", "long"])
async def test_a_page_of_1024_categories_is_below_40_kb_on_the_wire(tmp_path: Path, labels: list[str]) -> None:
    many = make_task({"id": "many", "epsilon": "4", "domain": {"kind": "category", "labels": labels}})
    with SqliteStore(tmp_path / "hush.sqlite") as store:
        store.add_task(many)
        count(store, many, [labels[number % len(labels)] for number in range(10_000)])
    shown = set[str]()
    async with serving(create_app(Service(tmp_path / "hush.sqlite"))) as port:
        await _over_the_wire(port, "/v1/tasks/many/rounds/latest")  # a page does not wait long for an estimate
        place = "/tasks/many"
        while place:
            sent, page = await _over_the_wire(port, place)
            assert sent < 40_000, place
            shown |= {label for label in labels if label in page}
            following = re.search(r'href="([^"#]*)#find" rel="next"', page)
            place = html.unescape(following[1]) if following else ""
    assert shown == set(labels)


async def _over_the_wire(port: int, place: str) -> tuple[int, str]:
    """The bytes of a compressed answer with its head, and its body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"GET {place} HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n"
    writer.write(head.encode())
    sent = await reader.read()
    writer.close()
    head, _, body = (part.decode("latin-1") for part in sent.partition(b"\r\n\r\n"))
    assert "200 OK" in head
    return len(sent), gzip.decompress(body.encode("latin-1")).decode()
