"""The loop of background work that may fail and is then tried again."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NoReturn

from hush_aggregator.logs import fields
from hush_common.aio import cancellable
from hush_common.errors import StoreError

_LOG = logging.getLogger("hush.aggregator")


async def repeat(
    step: Callable[[], Awaitable[object]], pause: float | Callable[[], Awaitable[object]], *, failure: str, event: str
) -> NoReturn:
    """Await `step`, then the pause, again and again until cancelled; a store that fails is tried again.

    Args:
        step: may raise `StoreError`.
        pause: in seconds, or awaited in place of that.
        failure: what cannot be done then, for the log: one line for each outage of the store.
        event: the kind of that line.
    """
    is_logged = False
    while True:
        try:
            await cancellable(step(), StoreError)
            is_logged = False
        except StoreError as error:
            if not is_logged:
                _LOG.error("%s (%s); trying again", failure, error, extra=fields(event))
            is_logged = True
        await (pause() if callable(pause) else asyncio.sleep(pause))
