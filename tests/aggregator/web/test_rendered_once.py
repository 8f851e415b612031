"""Pages, documents and estimates are made once for what is counted, whoever asks for them."""

import asyncio
import pickle
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import httpx
import numpy as np
import pytest
from http_world import HEIGHTS, WAY, asked, make_store

from hush import Task
from hush_aggregator import Estimate, SqliteStore
from hush_aggregator.estimate.mechanisms import fold
from hush_aggregator.estimation import EstimateInput, Failure, ThreadEstimator
from hush_aggregator.http import conditional
from hush_aggregator.http.page import pages
from hush_aggregator.http.page.rendered import RenderedPages
from hush_aggregator.http.service import Service, StoreService
from hush_aggregator.http.shared_estimates import KnownEstimator, SharingEstimator
from hush_aggregator.result import encode
from hush_aggregator.store import Accepted
from hush_aggregator.tally import Tally

LATEST = "/v1/tasks/heights/rounds/latest"
PAGES = ("/", "/tasks/heights", "/tasks/heights?round=0", "/tasks/way")
DOCUMENTS = (LATEST, "/v1/tasks/heights/rounds/all", "/v1/tasks/way/rounds/0")


class CountingEstimator(ThreadEstimator):
    """Knows what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    async def __call__(self, task: Task, tally: Tally, confidence: float) -> Estimate | Failure:
        self.asked.append((task.id, tally.n))
        return await super().__call__(task, tally, confidence)


P = ParamSpec("P")
R = TypeVar("R")


def noting(real: Callable[P, R], calls: list[Sequence[Any]]) -> Callable[P, R]:
    """The function, and the arguments of its calls."""

    def call(*of: P.args, **more: P.kwargs) -> R:
        calls.append(of)
        return real(*of, **more)

    return call


async def _all(client: httpx.AsyncClient, places: Sequence[str]) -> list[httpx.Response]:
    return list(await asyncio.gather(*(client.get(place) for place in places for _ in range(4))))


async def test_no_estimate_is_computed_twice_for_pages_documents_and_events(tmp_path: Path) -> None:
    estimator = CountingEstimator()
    path = make_store(tmp_path / "store")
    async with asked(Service(path, estimator=estimator)) as client:
        assert {answer.status_code for answer in await _all(client, [*PAGES, *DOCUMENTS])} == {200}
        feed = client._transport.app.state.feed  # type: ignore[attr-defined]
        events = feed.follow(None)
        assert {(await anext(events)).task for _ in range(3)} == {"", "heights", "way"}
        assert sorted(estimator.asked) == [("heights", 0), ("heights", 5), ("heights", 40), ("way", 7)]
        with SqliteStore(path) as store:
            store.close_task("way")  # nothing else is counted
        final = (await client.get("/v1/tasks/way/rounds/0")).json()
        assert final["final"]


async def test_readers_of_a_task_that_counts_share_its_next_estimate(tmp_path: Path) -> None:
    """However many ask while each read finds more reports, one estimate is made at a time, and none is too old."""
    path = make_store(tmp_path / "store")
    begun, free = asyncio.Event(), asyncio.Event()

    class Slow(CountingEstimator):
        async def __call__(self, task: Task, tally: Tally, confidence: float) -> Estimate | Failure:
            begun.set()
            await free.wait()
            return await super().__call__(task, tally, confidence)

    estimator = Slow()
    service = StoreService(path, estimator=estimator)
    first = asyncio.create_task(service.result(WAY))
    await begun.wait()  # it has read the store then
    with SqliteStore(path) as store:
        store.commit([Accepted(WAY, 0, np.frombuffer(b"x" * 16, dtype="V16"), np.array([[1]]))], {})
    others = [asyncio.create_task(service.result(WAY)) for _ in range(20)]
    await asyncio.sleep(0)
    others[3].cancel()
    free.set()
    assert (await first).n == 7
    assert {(await one).n for one in others if not one.cancelled() and one is not others[3]} == {8}
    assert estimator.asked == [("way", 7), ("way", 8)]
    assert not service._asking
    assert not service._making
    await service.close()


async def test_a_page_is_rendered_again_only_for_other_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rendered: list[Sequence[Any]] = []
    for name in ("render_index", "render_task"):
        monkeypatch.setattr(pages, name, noting(getattr(pages, name), rendered))
    monkeypatch.setattr(pages, "_minute", lambda _: datetime(2026, 1, 1, tzinfo=UTC))
    path = make_store(tmp_path / "store")
    async with asked(Service(path)) as client:
        await _all(client, DOCUMENTS)  # so that no page has to wait for an estimate
        before = await _all(client, PAGES)
        assert sorted(of[1] for of in rendered) == sorted(PAGES)
        with SqliteStore(path) as store:
            store.close_task("way")
        after = await _all(client, PAGES)
        assert sorted(of[1] for of in rendered) == sorted([*PAGES, "/", "/tasks/way"])
        changed = {old.url.path for old, new in zip(before, after, strict=True) if old.text != new.text}
        assert changed == {"/", "/tasks/way"}


async def test_a_document_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Sequence[Any]] = []
    monkeypatch.setattr("hush_aggregator.http.service.encode", noting(encode, written))
    async with asked(Service(make_store(tmp_path / "store"))) as client:
        first, *others = [answer.content for answer in await _all(client, [LATEST])]
        every = await client.get("/v1/tasks/heights/rounds/all")
        some = await client.get("/v1/tasks/heights/rounds/all?limit=1")
    assert set(others) == {first}
    assert sorted(one["round"] for (one,) in written if one.get("task") == "heights") == [0, 1, 2]
    assert every.json()["results"][-1] == httpx.Response(200, content=first).json()
    assert every.content == encode(every.json())  # still sorted, without spaces
    assert some.content == encode(some.json())
    assert some.json()["next"] == 1


async def test_a_body_is_compressed_once_for_all_who_ask_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compressed: list[Sequence[Any]] = []
    real = conditional._compress
    monkeypatch.setattr(conditional, "_compress", noting(real, compressed))
    bodies = conditional.CompressedBodies()
    asking = [asyncio.create_task(bodies.get("a", b"a" * 100_000)) for _ in range(20)]
    await asyncio.sleep(0)
    asking[0].cancel()  # the others still get it
    found = await asyncio.gather(*asking[1:])
    assert set(found) == {real(b"a" * 100_000)}
    assert len(compressed) == 1


def test_rendered_pages_have_a_limit_and_compare_objects_by_identity() -> None:
    made = RenderedPages(limit=10)
    thing = [1]
    assert made.get("/", ["x", thing], lambda: "first") == b"first"
    assert made.get("/", ["x", thing], lambda: "second") == b"first"
    assert made.get("/", ["x", [1]], lambda: "third") == b"third"
    assert made.get("/", ["x"], lambda: "fourth") == b"fourth"
    made.get("/other", [], lambda: "1234567")
    assert made.get("/", ["x"], lambda: "fifth") == b"fifth"


async def test_http_takes_the_estimate_of_the_intake_only_for_the_same_tally() -> None:
    theirs, own = CountingEstimator(), CountingEstimator()
    sharing, known = SharingEstimator(theirs), KnownEstimator(own)
    way = fold(WAY.randomizer, np.array([[1], [2], [2]]))
    tallies = [fold(HEIGHTS.randomizer, np.array([[1], [2], [last]])) for last in (3, 4)]
    inputs: list[EstimateInput] = [(HEIGHTS, tallies[0]), (WAY, way)]
    made: list[Estimate | Failure] = []
    await sharing.many(inputs, 0.95, made)
    assert sharing.changed.is_set()
    known.learn(pickle.loads(pickle.dumps(sharing.take())))  # noqa: S301 - what the channel does
    assert sharing.take() == []
    assert await known(HEIGHTS, tallies[0], 0.95) == made[0]
    assert await known(WAY, way, 0.95) == made[1]
    assert own.asked == []
    await known(HEIGHTS, tallies[1], 0.95)  # as many reports, but others
    assert own.asked == [("heights", 3)]
