"""The page for daily use: when a figure was made, what to do without one, and words where numbers look wrong."""

import re
import secrets
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import httpx
import numpy as np
import page_tasks
import pytest
from http_world import asked

from hush import Task
from hush_aggregator import SqliteStore
from hush_aggregator.http.page import view
from hush_aggregator.http.service import Service
from hush_aggregator.store import Accepted
from hush_common.task import make_task

WAYS: dict[str, object] = {"kind": "category", "labels": ["bus", "car", "bicycle", "boat"]}


def task_of(task_id: str, domain: dict[str, object], **more: object) -> Task:
    return make_task({"id": task_id, "epsilon": "0.5", "domain": domain, **more})


def count_all_yes(store: SqliteStore, task: Task) -> None:
    """Everybody sends yes, without noise."""
    ids = np.frombuffer(secrets.token_bytes(16 * 4000), dtype="V16")
    store.commit([Accepted(task, 0, ids, np.ones((4000, 1), dtype=np.int64))], {})


def count_labels(store: SqliteStore, task: Task, reports: Sequence[int]) -> None:
    """So many reports name each label: of a bus alone, with the noise of the task, (355, 215, 215, 215)."""
    bodies = np.repeat([1, 2, 4, 8], reports).astype(np.int64)[:, None]
    ids = np.frombuffer(secrets.token_bytes(16 * len(bodies)), dtype="V16")
    store.commit([Accepted(task, 0, ids, bodies)], {})


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    with SqliteStore(tmp_path / "store") as store:
        for task in (
            task_of("quiet", {"kind": "bit"}),
            task_of("soon", {"kind": "bit"}, opens="2999-01-01T00:00:00Z"),
            task_of("nobody", {"kind": "bit"}),
            task_of("false", {"kind": "bit"}),
            task_of("ways", WAYS),
            task_of("fair", WAYS),
        ):
            store.add_task(task)
            if task.id == "false":
                count_all_yes(store, task)
            if task.id == "ways":
                count_labels(store, task, (1000, 0, 0, 0))
            if task.id == "fair":
                count_labels(store, task, (355, 220, 215, 210))
        store.close_task("nobody")
    async with asked(Service(tmp_path / "store")) as client:
        yield client


async def page(client: httpx.AsyncClient, path: str) -> str:
    answer = await client.get(path)
    assert answer.status_code == 200
    return " ".join(answer.text.split())


async def test_the_time_of_a_figure_is_next_to_it_and_not_only_for_experts(client: httpx.AsyncClient) -> None:
    text = await page(client, "/tasks/ways")
    document = (await client.get("/v1/tasks/ways/rounds/latest")).json()
    (shown,) = re.findall(r'<p class="from">.*?<time datetime="([^"]+)">', text)
    assert shown.replace("+00:00", "Z") == document["updated_at"]


@pytest.mark.parametrize(
    ("task_id", "words"),
    [
        ("quiet", "<code>hush report quiet VALUE --broker ADDRESS</code>"),
        ("soon", 'Devices answer from <time datetime="2999-01-01T00:00:00+00:00">'),
        ("nobody", "publish a task with a new id"),
    ],
)
async def test_a_task_without_reports_says_what_comes_next(client: httpx.AsyncClient, task_id: str, words: str) -> None:
    text = await page(client, f"/tasks/{task_id}")
    assert words in text
    others = {"quiet": "VALUE", "soon": "answer from", "nobody": "new id"}
    assert [name for name, word in others.items() if word in text] == [task_id]


@pytest.mark.parametrize(("task_id", "word"), [("ways", "below zero"), ("fair", "below zero: noise")])
async def test_a_share_below_zero_has_a_word_which_blames_noise_only_if_the_reports_look_right(
    client: httpx.AsyncClient, task_id: str, word: str
) -> None:
    text = await page(client, f"/tasks/{task_id}")
    document = (await client.get(f"/v1/tasks/{task_id}/rounds/latest")).json()
    shares = [one["frequency"] for one in document["categories"]]
    below = sum(share < 0 for share in shares)
    assert 0 < below < len(shares)
    assert text.count(f"<small>{word}</small>") == below


@pytest.mark.parametrize("cards", [24, 1], ids=["cards", "rows"])
async def test_reports_that_look_wrong_are_told_on_the_list_before_the_figure(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, cards: int
) -> None:
    monkeypatch.setattr(view, "CARDS", cards)
    text = await page(client, "/")
    assert ('<table class="list">' in text) == (cards == 1)
    assert text.count("Do not rely on this.") == 2  # of the two tasks whose reports have no noise
    entry = text[text.index('id="task-false"') :]
    assert entry.index("Do not rely on this.") < entry.index('data-figure="mean"')
    assert "Do not rely on this." in await page(client, "/tasks/false")


async def test_an_empty_list_says_how_a_task_gets_there(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "store"):
        pass
    async with asked(Service(tmp_path / "store")) as client:
        assert "hush task publish FILE" in await page(client, "/")


async def test_a_slow_estimate_shows_the_last_one_and_not_that_it_is_calculated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = page_tasks.TASKS[1]
    with SqliteStore(tmp_path / "store") as store:
        store.add_task(task)
        page_tasks.count(store, task, [True] * 50)
    async with asked(Service(tmp_path / "store")) as client:
        await client.get(f"/v1/tasks/{task.id}/rounds/latest")
        monkeypatch.setattr(view, "_PATIENCE_S", 0.0)  # nothing that has to be calculated is ready in time
        assert 'value="50"' in await page(client, "/")  # nothing new was counted: it is there at once
        with SqliteStore(tmp_path / "store") as store:
            page_tasks.count(store, task, [True] * 20)
        text = await page(client, "/")
        assert "Being calculated" not in text
        assert 'value="50"' in text
        with SqliteStore(tmp_path / "store") as store:
            store.close_task(task.id)  # the last estimate is not that of the closed task
        text = await page(client, "/")
        assert ("Being calculated" in text) or ('value="70"' in text)
