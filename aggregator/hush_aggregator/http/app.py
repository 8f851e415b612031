"""The application: its endpoints, in one list, and what is done around each of them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from hush_aggregator.http import events, health, metrics, results, tasks
from hush_aggregator.http.feed import Feed
from hush_aggregator.http.page import router as page
from hush_aggregator.http.problems import ProblemError, problem
from hush_aggregator.http.reading import Reading
from hush_aggregator.http.service import Service
from hush_common.errors import StoreError

__all__ = ["create_app"]

ROUTERS: tuple[APIRouter, ...] = (
    health.router,
    tasks.router,
    results.router,
    events.router,
    metrics.router,
    page.router,
)


def create_app(service: Service) -> FastAPI:
    """The application that serves `service`; whoever runs it enters its lifespan, which closes what it has opened."""
    reading = Reading(service.store, service.confidence, service.estimator)

    feed = Feed(reading)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        looking = asyncio.create_task(feed.run(), name="hush-feed")
        try:
            yield
        finally:
            looking.cancel()
            await asyncio.wait({looking})
            await reading.close()

    app = FastAPI(
        title="hush",
        version="1",
        summary="Statistics from devices without the devices' values.",
        openapi_url="/v1/openapi.json",
        docs_url=None,  # its pages load from other hosts
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    app.state.service = service
    app.state.reading = reading
    app.state.feed = feed
    app.state.metrics = metrics.Metrics(feed, service.live)
    for router in ROUTERS:
        app.include_router(router)
    app.add_exception_handler(ProblemError, _told)
    app.add_exception_handler(StoreError, _no_store)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    return app


async def _told(_: Request, error: Exception) -> Response:
    assert isinstance(error, ProblemError)  # noqa: S101 - for the type checker
    return error.answer


async def _no_store(_: Request, error: Exception) -> Response:
    return problem(503, str(error))


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - for the type checker
    details = {
        404: "there is nothing here; GET /v1/openapi.json lists what there is",
        405: f"{request.method[:20]} is not for this place; the header Allow says what is",
    }
    return problem(
        error.status_code, details.get(error.status_code, str(error.detail)), headers=dict(error.headers or {})
    )


async def _invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - for the type checker
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return problem(422, f"{where}: {first['msg']}; GET /v1/openapi.json says what fits there")
