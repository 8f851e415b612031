"""How long requests take until their answer begins, by the class of its status."""

import time
from collections.abc import Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hush_aggregator.ops.metrics import SECONDS, Histogram

_CLASSES = ("2xx", "3xx", "4xx", "5xx")


class RequestLatency:
    """Latencies of requests, in seconds, by the class of the status."""

    def __init__(self) -> None:
        self._histograms = {name: Histogram(SECONDS) for name in _CLASSES}

    @property
    def histograms(self) -> Mapping[str, Histogram]:
        """A histogram for each class: `2xx`, `3xx`, `4xx` and `5xx`."""
        return self._histograms

    def add(self, status: int, seconds: float) -> None:
        """Note an answer that began after so many seconds."""
        self._histograms.get(f"{status // 100}xx", self._histograms["5xx"]).add(seconds)


class LatencyMiddleware:
    """Middleware that measures every request, up to the begin of its answer."""

    def __init__(self, app: ASGIApp, latency: RequestLatency) -> None:
        self._app = app
        self._latency = latency

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()

        async def measured(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._latency.add(message["status"], time.perf_counter() - began)
            await send(message)

        await self._app(scope, receive, measured if scope["type"] == "http" else send)
