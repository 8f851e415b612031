"""The service of a store, in a thread of a test."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hush_aggregator.estimate.process import Estimator
from hush_aggregator.web.app import create_app, serve_http
from hush_aggregator.web.listen import Address, bind
from hush_aggregator.web.service import Service

__all__ = ["served"]


@contextmanager
def served(store: Path, estimator: Estimator | None = None) -> Iterator[str]:
    """The service of a store, at the address that is given, without a slash at its end."""
    listener = bind("--http", Address("127.0.0.1", 0))
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    loop = asyncio.new_event_loop()
    serving = loop.create_task(serve_http(create_app(Service(store, estimator=estimator)), listener))
    thread = threading.Thread(target=_run, args=(loop, serving), daemon=True)
    thread.start()
    try:
        yield address
    finally:
        loop.call_soon_threadsafe(serving.cancel)
        thread.join(30)
        assert not thread.is_alive()


def _run(loop: asyncio.AbstractEventLoop, serving: asyncio.Task[None]) -> None:
    asyncio.set_event_loop(loop)
    with suppress(asyncio.CancelledError):
        loop.run_until_complete(serving)
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
