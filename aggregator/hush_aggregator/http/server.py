"""The server: uvicorn as one task of an event loop, which neither handles signals nor ends the process."""

import asyncio
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import cast

import uvicorn
from fastapi import FastAPI

from hush_aggregator.http.address import BACKLOG
from hush_aggregator.http.connection import ACCEPTED_AT_ONCE, Connection, Connections
from hush_aggregator.http.guard import HEAD_LIMIT

__all__ = ["serve_http"]

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
