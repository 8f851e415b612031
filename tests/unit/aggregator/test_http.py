"""HTTP of a store: the same documents as the commands, and problems that say what to do."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from hush_aggregator.commands import results
from hush_aggregator.http.app import create_app
from hush_aggregator.http.service import Service
from hush_aggregator.store import SqliteStore
from hush_common.task_file import make_task

HEIGHTS = make_task({"id": "heights", "epsilon": "3", "domain": {"kind": "number", "lower": 0.0, "upper": 1.0}})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "hush.sqlite3"
    with SqliteStore(path) as opened:
        opened.add_task(HEIGHTS)
    return path


@pytest.fixture
async def client(path: Path) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(Service(path))
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client,
    ):
        yield client


async def test_a_result_is_the_document_of_the_command(client: httpx.AsyncClient, path: Path) -> None:
    shown = await asyncio.to_thread(CliRunner().invoke, results.app, ["heights", "--store", str(path), "--json"])
    there = (await client.get("/v1/tasks/heights/rounds/latest")).json()
    assert {**json.loads(shown.stdout)["results"][0], "updated_at": ""} == {**there, "updated_at": ""}


async def test_a_task_is_served_as_it_is_published(client: httpx.AsyncClient) -> None:
    assert (await client.get("/v1/tasks/heights/document")).content == HEIGHTS.payload


async def test_what_is_not_there_is_a_problem(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/tasks/nothing")
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
    assert "GET /v1/tasks" in answer.json()["detail"]
