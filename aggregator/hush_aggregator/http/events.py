"""Events: one stream for all tasks, of documents as `hush results --json` has them, as they change."""

import random
from collections.abc import AsyncIterator
from typing import Annotated, cast

from fastapi import APIRouter, Depends, Header, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent

from hush_aggregator.http.feed import Feed
from hush_aggregator.http.problems import ProblemError

__all__ = ["MOST_STREAMS", "router"]

MOST_STREAMS = 600
"""Streams at the same time: the files that a process may have open are often 1024."""

_RETRY_MS = 2000

router: APIRouter = APIRouter(tags=["events"])


async def _followed(request: Request) -> AsyncIterator[Feed]:
    feed = cast("Feed", request.app.state.feed)
    if feed.followers >= MOST_STREAMS:
        raise ProblemError(503, f"{MOST_STREAMS} streams are open, and no more are served; come back later")
    with feed.followed():
        yield feed


@router.get("/v1/events", response_class=EventSourceResponse)
async def get_events(
    feed: Annotated[Feed, Depends(_followed)],
    last_event_id: Annotated[str | None, Header(description="The id of the last event that was received.")] = None,
) -> AsyncIterator[ServerSentEvent]:
    """All tasks, then whatever changes: server-sent events.

    `state` comes first, and says that what was told before is to be forgotten; with the `Last-Event-ID` of a place
    that is still known it does not come, and only what has changed since does. `result` has the document of a task, as
    `hush results --json` has it, of its latest round; `removed` names a task that is gone. An id stands with the last
    event of those that belong together. A comment every 15 s shows that the stream lives.
    """
    retry = _RETRY_MS + random.randrange(_RETRY_MS)  # noqa: S311 - so that not all come back at once
    async for change in feed.follow(last_event_id):
        place = change.place or None
        if not change.task:
            yield ServerSentEvent(event="state", data={"v": 1}, id=place, retry=retry)
        elif change.document:
            yield ServerSentEvent(event="result", raw_data=change.document, id=place)
        else:
            yield ServerSentEvent(event="removed", data={"task": change.task}, id=place)
