"""Events: one stream for all tasks, of documents as `hush results --json` has them, as they change."""

import json
import random
from collections.abc import AsyncIterator
from typing import Annotated, cast

from fastapi import APIRouter, Depends, Header, Request
from fastapi.responses import StreamingResponse
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event

from hush_aggregator.http.feed import Feed

__all__ = ["EVENTS_PATH", "router"]

EVENTS_PATH = "/v1/events"

_RETRY_MS = 2000
_PIECE = 32 * 1024

router: APIRouter = APIRouter(tags=["events"])


async def _followed(request: Request) -> AsyncIterator[Feed]:
    feed = cast("Feed", request.app.state.feed)
    with feed.followed():
        yield feed


class _Events(StreamingResponse):
    """A stream of events, each written in one piece.

    FastAPI's own response writes each anew for each stream, through three tasks: with 500 streams five times the
    processor time, which the intake in the same process would pay. The format is FastAPI's.
    """

    media_type = "text/event-stream"


@router.get(EVENTS_PATH, response_class=_Events)
async def get_events(
    feed: Annotated[Feed, Depends(_followed)],
    last_event_id: Annotated[str | None, Header(description="The id of the last event that was received.")] = None,
) -> _Events:
    """All tasks, then whatever changes: server-sent events.

    `state` comes first, and says that what was told before is to be forgotten; with the `Last-Event-ID` of a place
    that is still known it does not come, and only what has changed since does. `result` has the document of a task, as
    `hush results --json` has it, of its latest round; `removed` names a task that is gone. An id stands with the last
    event of those that belong together. A comment every 15 s shows that the stream lives.
    """
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}  # the second for proxies: pass it on at once
    return _Events(_written(feed, last_event_id), headers=headers)


async def _written(feed: Feed, place: str | None) -> AsyncIterator[bytes]:
    """The events as they are sent. What belongs together goes in one piece: with hundreds of streams a piece counts."""
    retry = _RETRY_MS + random.randrange(_RETRY_MS)  # noqa: S311 - so that not all come back at once
    piece = bytearray()
    async for change in feed.follow(place):
        if change is None:
            piece += KEEPALIVE_COMMENT
        elif not change.task:
            piece += format_sse_event(event="state", data_str='{"v":1}', id=change.place or None, retry=retry)
        else:
            name = "result" if change.document else "removed"
            data = change.document or json.dumps({"task": change.task})
            piece += format_sse_event(event=name, data_str=data, id=change.place or None)
        if change is None or change.place or len(piece) > _PIECE:
            yield bytes(piece)
            piece.clear()
