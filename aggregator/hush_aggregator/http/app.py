"""The application: its endpoints, in one list, and what is done around each of them."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from http import HTTPStatus
from typing import cast

import uvicorn
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route

from hush_aggregator.http import api
from hush_aggregator.http.connection import ACCEPTED_AT_ONCE, Connection, Connections
from hush_aggregator.http.feed import Feed, event_routes
from hush_aggregator.http.listen import BACKLOG
from hush_aggregator.http.page.pages import page_routes
from hush_aggregator.http.page.view import Views
from hush_aggregator.http.schemas import Described
from hush_aggregator.http.security import HEAD_LIMIT, Guard
from hush_aggregator.http.service import Kind, ProblemError, Reading, Service, problem
from hush_aggregator.tasks.changes import ClosedError, NoRoundError, TakenError, UnknownError
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

    app = Described(
        title="hush",
        version="1",
        summary="Statistics from devices without the devices' values.",
        description="Wherever GET is described, HEAD answers too: with the same status and headers, without a body.",
        openapi_url="/v1/openapi.json",
        docs_url=None,  # its pages load from other hosts
        redoc_url=None,
        redirect_slashes=False,
        # Nobody is told when something was asked, whatever stands in the environment. Earlier versions have none of it.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
        lifespan=lifespan,
    )
    app.add_middleware(Guard, service=service)
    app.state.service = service
    app.state.reading = reading
    app.state.feed = feed
    app.state.views = Views(reading)
    app.state.metrics = api.Metrics(feed, service.live)
    for router in ROUTERS:
        app.include_router(router)
    app.add_exception_handler(ProblemError, _told)
    app.add_exception_handler(StoreError, _no_store)
    app.add_exception_handler(TaskError, _no_task)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    return app


async def _told(_: Request, error: Exception) -> Response:
    assert isinstance(error, ProblemError)  # noqa: S101 - for the type checker
    return error.answer


async def _no_store(_: Request, error: Exception) -> Response:
    return problem(Kind.STORE_UNAVAILABLE, str(error))


async def _no_task(_: Request, error: Exception) -> Response:
    match error:
        case UnknownError():
            return problem(Kind.UNKNOWN_TASK, "there is no such task here; GET /v1/tasks lists those that there are")
        case NoRoundError():
            return problem(Kind.UNKNOWN_ROUND, str(error))
        case TakenError(digest=digest, there=there):
            return problem(Kind.TASK_EXISTS, str(error), members={"digest": digest.hex(), "there": there.hex()})
        case ClosedError():
            return problem(Kind.TASK_CLOSED, str(error))
        case _:
            return problem(Kind.INVALID_TASK, str(error))


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - for the type checker
    match error.status_code:
        case 404:
            return problem(Kind.UNKNOWN_PATH, "there is nothing here; GET /v1/openapi.json lists what there is")
        case 405:
            detail = f"{request.method[:20]} is not for this place; the header Allow says what is"
            return problem(Kind.WRONG_METHOD, detail, headers={"Allow": ", ".join(sorted(_methods(request)))})
        case status:
            return problem(HTTPStatus(status), str(error.detail), headers=dict(error.headers or {}))


def _methods(request: Request) -> set[str]:
    """Of all endpoints at a place; the framework names those of the first."""
    found: set[str] = set()
    for route in [route for router in ROUTERS for route in router.routes]:
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            found |= route.methods or set()
    return found | ({"HEAD"} if "GET" in found else set())


async def _invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - for the type checker
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return problem(Kind.INVALID_PARAMETER, f"{where}: {first['msg']}; GET /v1/openapi.json says what fits there")


_GRACE_S = 1


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to whoever runs the event loop."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept few connections at once, while as many wait as before."""
        await super().startup(sockets)
        for one in sockets or []:
            one.listen(BACKLOG)

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second."""
        if counter % 10 == 0:
            now = asyncio.get_running_loop().time()
            for connection in list(self.server_state.connections):
                if isinstance(connection, Connection):
                    connection.look(now)
        return await super().on_tick(counter)


async def serve_http(app: FastAPI, listener: socket.socket) -> None:
    """Answer requests until cancelled, then finish those under way within a second. Closes the socket."""
    for name in ("uvicorn.error", "uvicorn.access", "uvicorn.asgi"):  # neither times of requests, nor what they break
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    trusted = app.state.service.trusted_proxies
    config = uvicorn.Config(
        app,
        loop="asyncio",
        http=cast("type[Connection]", partial(Connection, connections=Connections(trusted))),
        h11_max_incomplete_event_size=HEAD_LIMIT,
        ws="none",
        lifespan="off",  # uvicorn would end the process where it fails
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
                app.state.feed.end()  # a stream of events has no end of its own
                server.should_exit = True
                await asyncio.wait({running})
