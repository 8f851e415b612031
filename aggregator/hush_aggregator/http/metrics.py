"""Metrics over HTTP: the text that Prometheus asks for."""

from importlib.metadata import version
from typing import cast

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse

from hush_aggregator.http.feed import Feed
from hush_aggregator.http.service import Live
from hush_aggregator.metrics.exposition import CONTENT_TYPE, Exposition
from hush_aggregator.metrics.figures import StoreFigures

__all__ = ["Metrics", "router"]

router: APIRouter = APIRouter(tags=["metrics"])


class Metrics:
    """The metrics of an intake in the same process, or of a store alone.

    Args:
        feed: knows the store.
        live: the aggregator beside it; None where there is none.
    """

    def __init__(self, feed: Feed, live: Live | None) -> None:
        self._feed = feed
        self._alone = live is None
        self._stored = StoreFigures()
        figures = self._stored.figures if live is None else live.figures
        self._exposition = Exposition(figures, version("hush-ldp"))

    async def text(self) -> bytes:
        """The metrics of now, of at most a second ago.

        Raises:
            StoreError: the store cannot be read.
        """
        if self._alone:
            found = await self._feed.overview()
            self._stored.look_at(found.counts.values(), found.refused)
        return self._exposition.text()


@router.get("/metrics", response_class=PlainTextResponse)
async def get_metrics(request: Request) -> Response:
    """Counts by task and by reason, and how the intake does, in the text format of Prometheus."""
    metrics = cast("Metrics", request.app.state.metrics)
    return Response(await metrics.text(), media_type=CONTENT_TYPE, headers={"cache-control": "no-store"})
