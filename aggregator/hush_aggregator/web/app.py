"""The application with its endpoints and error handlers, and the server that runs it."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from http import HTTPStatus
from typing import cast

import uvicorn
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route

from hush_aggregator.count.tasks import ClosedError, NoRoundError, TakenError, UnknownError
from hush_aggregator.web import api
from hush_aggregator.web.conditional import Conditional
from hush_aggregator.web.connection import ACCEPTED_AT_ONCE, Connection, Connections
from hush_aggregator.web.feed import ChangeFeed, event_routes
from hush_aggregator.web.latency import LatencyMiddleware, RequestLatency
from hush_aggregator.web.listen import BACKLOG
from hush_aggregator.web.page.creating import creating_routes
from hush_aggregator.web.page.pages import compile_templates, page_routes
from hush_aggregator.web.page.rendered import RenderedPages
from hush_aggregator.web.page.view import TaskViews
from hush_aggregator.web.schemas import DescribedApp
from hush_aggregator.web.security import HEAD_LIMIT, Guard
from hush_aggregator.web.service import ProblemError, ProblemType, Service, StoreService
from hush_common.errors import StoreError, TaskError

ROUTERS: tuple[APIRouter, ...] = (
    api.health_routes,
    api.task_routes,
    api.result_routes,
    api.change_routes,
    api.export_routes,
    event_routes,
    api.metrics_routes,
    api.problem_routes,
    page_routes,
    creating_routes,
)


def create_app(service: Service) -> FastAPI:
    """Return the application that serves `service`. Its lifespan closes what it has opened."""
    reading = StoreService(service.store, service.confidence, service.estimator)
    feed = ChangeFeed(reading)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        preparing = asyncio.create_task(reading.prepare(), name="hush-prepare")
        await asyncio.sleep(0)  # a process for estimates starts meanwhile
        compile_templates()
        _build_routes(app)
        looking = asyncio.create_task(feed.run(), name="hush-feed")
        try:
            yield
        finally:
            looking.cancel()
            preparing.cancel()
            await asyncio.wait({looking, preparing})
            await reading.close()

    app = DescribedApp(
        title="hush",
        version="1",
        summary="Statistics from devices without the devices' values.",
        description="HEAD works wherever GET does: with the same status and headers, without a body.",
        openapi_url="/v1/openapi.json",
        servers=[{"url": service.root_path}] if service.root_path else None,
        docs_url=None,  # its pages load files from other hosts
        redoc_url=None,
        redirect_slashes=False,
        # Never report requests, whatever the environment says. Earlier versions have no telemetry.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
        lifespan=lifespan,
    )
    latency = RequestLatency()
    app.add_middleware(Conditional)
    app.add_middleware(Guard, service=service)
    app.add_middleware(LatencyMiddleware, latency=latency)  # the outermost
    app.state.service = service
    app.state.reading = reading
    app.state.feed = feed
    app.state.views = TaskViews(reading)
    app.state.pages = RenderedPages()
    app.state.metrics = api.Metrics(feed, service, latency)
    for router in ROUTERS:
        app.include_router(router)
    app.add_exception_handler(ProblemError, _problem_error)
    app.add_exception_handler(StoreError, _store_error)
    app.add_exception_handler(TaskError, _task_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    return app


def _build_routes(app: FastAPI) -> None:
    """Match a request with all routes: FastAPI builds each when it is first matched, a tenth of a second in all."""
    scope = {"type": "http", "method": "GET", "path": "/nowhere", "root_path": "", "headers": []}
    for route in app.routes:
        route.matches(scope)


async def _problem_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, ProblemError)  # noqa: S101 - for the type checker
    return error.answer


async def _store_error(_: Request, error: Exception) -> Response:
    return ProblemError(ProblemType.STORE_UNAVAILABLE, str(error)).answer


async def _task_error(_: Request, error: Exception) -> Response:
    match error:
        case UnknownError():
            return ProblemError(ProblemType.UNKNOWN_TASK, "unknown task; GET /v1/tasks lists the tasks").answer
        case NoRoundError():
            return ProblemError(ProblemType.UNKNOWN_ROUND, str(error)).answer
        case TakenError(digest=digest, there=there):
            return ProblemError(
                ProblemType.TASK_EXISTS, str(error), members={"digest": digest.hex(), "there": there.hex()}
            ).answer
        case ClosedError():
            return ProblemError(ProblemType.TASK_CLOSED, str(error)).answer
        case _:
            return ProblemError(ProblemType.INVALID_TASK, str(error)).answer


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - for the type checker
    match error.status_code:
        case 404:
            return ProblemError(ProblemType.UNKNOWN_PATH, "unknown path; GET /v1/openapi.json lists the paths").answer
        case 405:
            detail = f"{request.method[:20]} is not allowed here; the header Allow lists the methods that are"
            return ProblemError(
                ProblemType.WRONG_METHOD, detail, headers={"Allow": ", ".join(sorted(_methods(request)))}
            ).answer
        case status:
            return ProblemError(HTTPStatus(status), str(error.detail), headers=dict(error.headers or {})).answer


def _methods(request: Request) -> set[str]:
    """Return the methods of all endpoints at a path; the framework names those of the first."""
    found: set[str] = set()
    for route in [route for router in ROUTERS for route in router.routes]:
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            found |= route.methods or set()
    return found | ({"HEAD"} if "GET" in found else set())


async def _validation_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - for the type checker
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return ProblemError(
        ProblemType.INVALID_PARAMETER, f"{where}: {first['msg']}; GET /v1/openapi.json describes the parameters"
    ).answer


_GRACE_S = 1


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the owner of the event loop."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept few connections in one turn, with the same backlog."""
        await super().startup(sockets)
        for one in sockets or []:
            one.listen(BACKLOG)

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second."""
        if counter % 10 == 0:
            now = asyncio.get_running_loop().time()
            for connection in list(self.server_state.connections):
                if isinstance(connection, Connection):
                    connection.check(now)
        return await super().on_tick(counter)


async def serve_http(app: FastAPI, listener: socket.socket) -> None:
    """Answer requests until cancelled, then finish pending ones within a second, even if cancelled again.

    Closes the socket.
    """
    for name in (
        "uvicorn.error",
        "uvicorn.access",
        "uvicorn.asgi",
    ):  # no log of requests: their times and contents are private
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    trusted = app.state.service.trusted_proxies
    config = uvicorn.Config(
        app,
        loop="asyncio",
        http=cast("type[Connection]", partial(Connection, connections=Connections(trusted))),
        h11_max_incomplete_event_size=HEAD_LIMIT,
        ws="none",
        lifespan="off",  # uvicorn would end the process if it fails
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=ACCEPTED_AT_ONCE,
        timeout_graceful_shutdown=_GRACE_S,
    )
    server = _Server(config)
    with listener:
        async with app.router.lifespan_context(app):
            running = asyncio.create_task(server.serve(sockets=[listener]), name="hush-http")
            try:
                await asyncio.shield(running)
            finally:
                app.state.feed.end()  # streams of events do not end by themselves
                server.should_exit = True
                while not running.done():
                    with suppress(asyncio.CancelledError):
                        await asyncio.wait({running})
