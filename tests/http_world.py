"""A store over HTTP in the process of a test."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from fastapi import FastAPI
from servers import free_port
from virtual_time import VirtualLoop

from hush import Task
from hush_aggregator import SqliteStore
from hush_aggregator.store import UNKNOWN, Accepted
from hush_aggregator.web.app import create_app, serve_http
from hush_aggregator.web.listen import Address, bind
from hush_aggregator.web.service import Service, StoreService, Token
from hush_common.errors import StoreError
from hush_common.task import make_task
from hush_common.wire import Refusal

__all__ = [
    "BEARER",
    "DRAFT",
    "HEIGHTS",
    "TOKEN",
    "WAY",
    "Client",
    "Service",
    "Token",
    "asked",
    "bearer",
    "count_bodies",
    "kind_of",
    "make_store",
    "serving",
    "writable",
]

TOKEN = "5f1d7a9c3e8b2046d1f0a7c6e5b4938271605f4e3d2c1b0a"  # noqa: S105 - of tests
DAILY = {"rounds": 3, "round_every": "1d", "opens": "2026-01-01T00:00:00Z"}
DRAFT = {"id": "heights", "epsilon": "3", "domain": {"kind": "number", "lower": 0.0, "upper": 1.0}, **DAILY}
HEIGHTS = make_task(DRAFT)
WAY = make_task({"id": "way", "epsilon": "1", "domain": {"kind": "category", "labels": ["bus", "car"]}})


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


BEARER = bearer(TOKEN)


def make_store(path: Path) -> Path:
    """A store with reports of two tasks, and refusals."""
    with SqliteStore(path) as opened:
        for task, round_, reports in ((HEIGHTS, 0, 40), (HEIGHTS, 2, 5), (WAY, 0, 7)):
            opened.add_task(task)
            count_bodies(opened, task, [place % (2 if task is WAY else 1000) + 1 for place in range(reports)], round_)
            opened.commit([], {(task.id, Refusal.CLOSED): 1})
        opened.commit([], {(UNKNOWN, Refusal.UNKNOWN_TASK): 4})
    return path


def count_bodies(opened: SqliteStore, task: Task, bodies: Sequence[int], round_: int = 0) -> None:
    """Count a report with each of these integers."""
    ids = np.frombuffer(secrets.token_bytes(16 * len(bodies)), dtype="V16")
    opened.commit([Accepted(task, round_, ids, np.array(bodies, dtype=np.int64)[:, None])], {})


class Client(httpx.AsyncClient):
    """A client of an application in this process."""

    def __init__(self, app: FastAPI, address: str = "127.0.0.1") -> None:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False, client=(address, 1))
        super().__init__(transport=transport, base_url="http://localhost")
        self.app = app

    async def document(self, path: str, **headers: str) -> Any:  # noqa: ANN401 - JSON
        """The document at a path that has one."""
        answer = await self.get(path, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def page(self, path: str) -> str:
        """The HTML at a path, with single spaces."""
        answer = await self.get(path)
        assert answer.status_code == 200, answer.text
        return " ".join(answer.text.split())


@asynccontextmanager
async def asked(service: Service) -> AsyncIterator[Client]:
    """A client of a service, as on the same machine. Pages wait in vain for no estimate."""
    app = create_app(service)
    async with app.router.lifespan_context(app), Client(app) as client:
        if not isinstance(asyncio.get_running_loop(), VirtualLoop):  # there, each is ready in time
            await _estimate_all(app.state.reading)
        yield client


async def _estimate_all(reading: StoreService) -> None:
    with suppress(StoreError):
        for row in await reading.run(lambda store: store.task_rows()):
            await reading.result(reading.task(row.digest, row.payload))


@asynccontextmanager
async def serving(app: FastAPI) -> AsyncIterator[int]:
    """The port of a server."""
    port = free_port()
    running = asyncio.create_task(serve_http(app, bind("--http", Address("127.0.0.1", port))))
    try:
        yield port
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


def writable(path: Path) -> Service:
    """A service of that store, which whoever has the token may write."""
    return Service(path, token=Token(TOKEN), write=True)


def kind_of(answer: httpx.Response) -> str:
    """The kind of a problem, whose document agrees with the answer."""
    document = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert document["status"] == answer.status_code
    assert document["title"]
    assert document["detail"]
    place, _, name = document["type"].partition("#")
    assert place == "/v1/problems"
    return str(name)
