"""ETag, 304 and gzip: the same answer, in fewer bytes, and to nobody who could measure what is in it."""

import asyncio
import gzip
import hashlib
import html
import re
from pathlib import Path

import httpx
import page_tasks
import pytest
from http_world import BEARER, TOKEN, asked, make_store, serving

from hush_aggregator import SqliteStore
from hush_aggregator.http.app import create_app
from hush_aggregator.http.conditional import CompressedBodies, takes_gzip
from hush_aggregator.http.page.environment import assets
from hush_aggregator.http.service import Service, Token
from hush_common.task import make_task

PLAIN = {"Accept-Encoding": "identity"}
LATEST = "/v1/tasks/heights/rounds/latest"
ALIKE = [f"category number {number}" for number in range(1024)]
RANDOM = [hashlib.sha256(b"%d" % number).hexdigest()[:20] for number in range(1024)]
LONG = [hashlib.shake_256(b"%d" % number).hexdigest(50) if number < 256 else str(number) for number in range(1024)]
"""As much text on one page as a task can have."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("conditional") / "hush.sqlite")


async def test_an_answer_is_sent_again_only_after_a_change(tmp_path: Path) -> None:
    path = make_store(tmp_path / "hush.sqlite")
    async with asked(Service(path)) as client:
        first = await client.get(LATEST)
        known = {"If-None-Match": f'"other", W/{first.headers["etag"]}'}
        same = await client.get(LATEST, headers=known)
        assert (same.status_code, same.content) == (304, b"")
        for name in ("etag", "vary", "cache-control", "x-content-type-options"):
            assert same.headers[name] == first.headers[name]
        assert not {"content-type", "content-length", "content-encoding"} & same.headers.keys()
        with SqliteStore(path) as store:
            store.close_task("heights")
        fresh = await client.get(LATEST, headers=known)
    assert fresh.status_code == 200
    assert fresh.headers["etag"] != first.headers["etag"]
    assert "closed" not in first.json()
    assert fresh.json()["closed"]


async def test_a_tag_names_bytes_so_that_each_encoding_has_its_own(path: Path) -> None:
    async with asked(Service(path)) as client:
        packed, plain = await client.get("/v1/openapi.json"), await client.get("/v1/openapi.json", headers=PLAIN)
        assert packed.headers["content-encoding"] == "gzip"
        assert "content-encoding" not in plain.headers
        assert packed.content == plain.content
        assert int(packed.headers["content-length"]) < int(plain.headers["content-length"]) // 4
        assert packed.headers["etag"] != plain.headers["etag"]
        crossed = {**PLAIN, "If-None-Match": packed.headers["etag"]}
        assert (await client.get("/v1/openapi.json", headers=crossed)).status_code == 200
        everything = {"If-None-Match": "*"}
        assert (await client.get("/v1/openapi.json", headers=everything)).status_code == 304


async def test_head_has_the_headers_of_get(path: Path) -> None:
    async with asked(Service(path)) as client:
        for headers in ({}, PLAIN):
            got, head = [await client.request(method, "/tasks/heights", headers=headers) for method in ("GET", "HEAD")]
            for name in ("etag", "content-length", "vary", "cache-control"):
                assert head.headers[name] == got.headers[name]


async def test_no_answer_to_another_site_is_compressed(path: Path) -> None:
    """The page contains its address: its compressed length would tell how well a guess in it fits the figures."""
    link = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    async with asked(Service(path)) as client:
        for site in ("cross-site", "same-site"):
            answer = await client.get("/tasks/heights?guess=bus", headers={**link, "Sec-Fetch-Site": site})
            assert "guess=bus" in answer.text
            assert "content-encoding" not in answer.headers
        for site in ("none", "same-origin"):
            answer = await client.get("/tasks/heights", headers={**link, "Sec-Fetch-Site": site})
            assert answer.headers["content-encoding"] == "gzip"


async def test_streams_problems_and_short_answers_are_not_compressed(path: Path) -> None:
    async with asked(Service(path, token=Token(TOKEN))) as client:
        for place, tagged in (("/healthz", True), ("/tasks/unknown", False), ("/v1/tasks/heights/reports.csv", False)):
            answer = await client.get(place, headers=BEARER)
            assert "content-encoding" not in answer.headers, place
            assert ("etag" in answer.headers) is tagged, place


async def test_what_needs_a_token_is_stored_nowhere(path: Path) -> None:
    async with asked(Service(path, token=Token(TOKEN), guarded=True)) as client:
        first = await client.get(LATEST, headers=BEARER)
        assert first.headers["cache-control"] == "no-store"
        known = {"If-None-Match": first.headers["etag"]}
        assert (await client.get(LATEST, headers={**BEARER, **known})).status_code == 304
        assert (await client.get(LATEST, headers=known)).status_code == 401


async def test_assets_are_compressed_and_stay_immutable(path: Path) -> None:
    async with asked(Service(path)) as client:
        answer = await client.get(assets()["hush.css"].address)
    assert answer.content == assets()["hush.css"].body
    assert answer.headers["content-encoding"] == "gzip"
    assert "immutable" in answer.headers["cache-control"]


@pytest.mark.large
@pytest.mark.parametrize("labels", [ALIKE, RANDOM, LONG], ids=["alike", "random", "long"])
async def test_a_page_of_1024_categories_takes_less_than_40_kb_on_the_wire(tmp_path: Path, labels: list[str]) -> None:
    many = make_task({"id": "many", "epsilon": "4", "domain": {"kind": "category", "labels": labels}})
    with SqliteStore(tmp_path / "hush.sqlite") as store:
        store.add_task(many)
        page_tasks.count(store, many, [labels[number % len(labels)] for number in range(10_000)])
    shown = set[str]()
    async with serving(create_app(Service(tmp_path / "hush.sqlite"))) as port:
        place = "/tasks/many"
        while place:
            sent, page = await _over_the_wire(port, place)
            assert sent < 40_000, place
            shown |= {label for label in labels if label in page}
            following = re.search(r'href="([^"#]*)#find" rel="next"', page)
            place = html.unescape(following[1]) if following else ""
    assert shown == set(labels)


async def _over_the_wire(port: int, place: str) -> tuple[int, str]:
    """The bytes of a compressed answer with its head, and the page in it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"GET {place} HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n"
    writer.write(head.encode())
    sent = await reader.read()
    writer.close()
    head, _, body = (part.decode("latin-1") for part in sent.partition(b"\r\n\r\n"))
    assert "200 OK" in head
    return len(sent), gzip.decompress(body.encode("latin-1")).decode()


@pytest.mark.parametrize(
    ("accepted", "taken"),
    [
        ("gzip", True),
        ("br, GZIP ; q=0.5", True),
        ("*", True),
        ("gzip;q=0, *", False),
        ("gzip;q=0.000", False),
        ("gzip;q=2", False),
        ("gzip;level=9", False),
        ("identity", False),
        ("x-gzip", False),
        ("", False),
    ],
)
def test_gzip_is_for_clients_that_take_it(accepted: str, taken: bool) -> None:
    assert takes_gzip(httpx.Headers({"accept-encoding": accepted})) is taken
    assert not takes_gzip({})


async def test_compressed_bodies_are_made_once_and_take_little_memory() -> None:
    bodies = CompressedBodies(limit=100)
    first = await bodies.get("a", b"a" * 50_000)
    assert await bodies.get("a", b"") is first  # only the tag counts
    assert len(first) > 50
    await bodies.get("b", b"b" * 50_000)
    assert gzip.decompress(await bodies.get("a", b"other")) == b"other"  # it was dropped
