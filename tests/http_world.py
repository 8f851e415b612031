"""A store over HTTP in the process of a test."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx
import numpy as np
from fastapi import FastAPI
from servers import free_port

from hush import Task
from hush_aggregator import SqliteStore
from hush_aggregator.http.app import create_app, serve_http
from hush_aggregator.http.listen import Address, bind
from hush_aggregator.http.service import Service, Token
from hush_aggregator.store import UNKNOWN, Accepted
from hush_common.task import make_task
from hush_common.wire import Refusal

__all__ = ["BEARER", "DRAFT", "HEIGHTS", "TOKEN", "WAY", "asked", "make_store", "serving", "writable"]

TOKEN = "5f1d7a9c3e8b2046d1f0a7c6e5b4938271605f4e3d2c1b0a"  # noqa: S105 - of tests
BEARER = {"Authorization": f"Bearer {TOKEN}"}
DAILY = {"rounds": 3, "round_every": "1d", "opens": "2026-01-01T00:00:00Z"}
DRAFT = {"id": "heights", "epsilon": "3", "domain": {"kind": "number", "lower": 0.0, "upper": 1.0}, **DAILY}
HEIGHTS = make_task(DRAFT)
WAY = make_task({"id": "way", "epsilon": "1", "domain": {"kind": "category", "labels": ["bus", "car"]}})


def make_store(path: Path) -> Path:
    """A store with reports of two tasks, and refusals."""
    with SqliteStore(path) as opened:
        for task in (HEIGHTS, WAY):
            opened.add_task(task)
        _count(opened, HEIGHTS, 0, 40)
        _count(opened, HEIGHTS, 2, 5)
        _count(opened, WAY, 0, 7)
        opened.commit([], {(UNKNOWN, Refusal.UNKNOWN_TASK): 4})
    return path


def _count(opened: SqliteStore, task: Task, round_: int, reports: int) -> None:
    ids = np.frombuffer(secrets.token_bytes(16 * reports), dtype="V16")
    bodies = np.arange(reports, dtype=np.int64)[:, None] % (2 if task is WAY else 1000) + 1
    opened.commit([Accepted(task, round_, ids, bodies)], {(task.id, Refusal.CLOSED): 1})


@asynccontextmanager
async def asked(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    """Whoever asks a service, as from the same machine."""
    app = create_app(service)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client,
    ):
        yield client


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
