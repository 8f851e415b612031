"""`hush http`: a store over HTTP, whether its aggregator runs or not."""

import asyncio
import logging
import signal
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from hush_aggregator.commands.options import ConfidenceOption, LogFormatOption, StoreOption, check_confidence
from hush_aggregator.logs import Log, LogFormat, fields, logging_to
from hush_aggregator.web.options import HttpOptions
from hush_common.errors import MissingExtraError
from hush_common.options import Commands, Option

if TYPE_CHECKING:
    from hush_aggregator.web.listen import HttpListener


@contextmanager
def http_extra(what: str) -> Iterator[None]:
    """Turn a failed import of HTTP into a MissingExtraError that names what to install for `what`."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("hush"):
            raise
        raise MissingExtraError(
            f"{what} needs {error.name}, which comes with hush-ldp[service]; "
            "in a clone of hush, run: pip install '.[service]'"
        ) from error


_LOG = logging.getLogger("hush.aggregator")

app: Commands = Commands()


@app.command()
def http(
    *,
    store: StoreOption,
    bind: Annotated[str, Option(metavar="HOST:PORT", help="HOST:PORT to listen on.")] = "127.0.0.1:8080",
    options: HttpOptions,
    log_format: LogFormatOption = LogFormat.TEXT,
    confidence: ConfidenceOption = 0.95,
) -> None:
    """Serve the tasks and results of a store over HTTP, whether its aggregator runs or not.

    It only reads, unless --write is given: then the aggregator of the store publishes what is added. Runs until
    Ctrl-C or SIGTERM.
    """
    with http_extra("hush http"):
        from hush_aggregator.web.app import create_app, serve_http  # noqa: PLC0415 - only where it is wanted
        from hush_aggregator.web.listen import HttpListener  # noqa: PLC0415 - as above
    from hush_aggregator.estimate.process import ProcessEstimator  # noqa: PLC0415 - --help must not wait for numpy
    from hush_aggregator.store.location import parse_store  # noqa: PLC0415 - as above

    check_confidence(confidence)
    access = HttpListener.open(bind, options, parse_store(store), confidence)
    with logging_to(sys.stderr, log_format) as log, access.listener, ProcessEstimator() as estimator:
        app = create_app(replace(access.service, estimator=estimator))
        asyncio.run(_until_stopped(serve_http(app, access.listener), access, log))
        _LOG.info("stopped", extra=fields("stopped"))


async def _until_stopped(serving: Coroutine[Any, Any, None], access: "HttpListener", log: Log) -> None:
    running = asyncio.create_task(serving)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # Windows: Ctrl-C then ends in KeyboardInterrupt
            loop.add_signal_handler(number, running.cancel)
    _LOG.info("HTTP on %s: %s", access.url, access.meaning, extra=fields("listening"))
    turning = asyncio.create_task(log.run())
    with suppress(asyncio.CancelledError):
        await running
    turning.cancel()
