"""`hush http`: a store over HTTP, whether its aggregator runs or not."""

import asyncio
import logging
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from hush_aggregator.commands.task import StoreOption
from hush_aggregator.logs import LogFormat, fields, logging_to
from hush_common.errors import MissingExtraError, OptionError

LogFormatOption = Annotated[
    LogFormat,
    typer.Option(envvar="HUSH_LOG_FORMAT", help="Lines of text, or of JSON for programs; both say the same."),
]


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

ADMIN_HELP = "File with a line NAME TOKEN for each administrator: only they may write and read single reports."
AUDIT_HELP = "File to which each action of an administrator is appended, as a line of JSON."
FRAME_HELP = "Origin whose pages may show the page in a frame, as https://example.org; may be repeated."

app: typer.Typer = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def http(
    *,
    store: StoreOption,
    bind: Annotated[str, typer.Option(help="HOST:PORT to listen on.")] = "127.0.0.1:8080",
    write: Annotated[
        bool, typer.Option("--write", help="Let holders of the token publish, withdraw and close tasks.")
    ] = False,
    token_file: Annotated[
        Path | None, typer.Option(help="File whose first line is the token, or set HUSH_HTTP_TOKEN.")
    ] = None,
    open_: Annotated[
        bool,
        typer.Option("--open", help="Let everybody read who reaches an address that others can reach."),
    ] = False,
    host: Annotated[
        list[str] | None, typer.Option(help="A further name under which it is asked; may be repeated.")
    ] = None,
    trusted_proxy: Annotated[
        list[str] | None,
        typer.Option(help="Address or network of a proxy whose forwarded addresses count; may be repeated."),
    ] = None,
    admin_token_file: Annotated[Path | None, typer.Option(help=ADMIN_HELP)] = None,
    audit_log: Annotated[Path | None, typer.Option(help=AUDIT_HELP)] = None,
    root_path: Annotated[str, typer.Option(help="Path below which a proxy has all of it, such as /hush.")] = "",
    frame_ancestors: Annotated[list[str] | None, typer.Option(metavar="ORIGIN", help=FRAME_HELP)] = None,
    log_format: LogFormatOption = LogFormat.TEXT,
    confidence: Annotated[
        float, typer.Option(envvar="HUSH_CONFIDENCE", help="Confidence level of the intervals, between 0 and 1.")
    ] = 0.95,
) -> None:
    """Serve the tasks and results of a store over HTTP, whether its aggregator runs or not.

    It only reads, unless --write is given: then the aggregator of the store publishes what is added. Runs until
    Ctrl-C or SIGTERM.
    """
    with http_extra("hush http"):
        from hush_aggregator.web.app import create_app, serve_http  # noqa: PLC0415 - only where it is wanted
        from hush_aggregator.web.listen import HttpListener, HttpOptions  # noqa: PLC0415 - as above
    from hush_aggregator.estimate.process import ProcessEstimator  # noqa: PLC0415 - --help must not wait for numpy

    if not 0 < confidence < 1:
        raise OptionError("--confidence", f"{confidence:g} does not lie between 0 and 1")
    from hush_aggregator.store.location import parse_store  # noqa: PLC0415 - as above

    names = tuple(host or ()), tuple(trusted_proxy or ()), root_path
    options = HttpOptions(
        "--bind",
        bind,
        "--",
        token_file,
        write,
        open_,
        *names,
        admin_token_file=admin_token_file,
        audit_log=audit_log,
        frame_ancestors=tuple(frame_ancestors or ()),
    )
    access = HttpListener.open(options, parse_store(store), confidence)
    with logging_to(sys.stderr, log_format) as log, access.listener, ProcessEstimator() as estimator:
        service = replace(access.service, estimator=estimator)

        async def serve() -> None:
            running = asyncio.create_task(serve_http(create_app(service), access.listener))
            loop = asyncio.get_running_loop()
            for number in (signal.SIGINT, signal.SIGTERM):
                with suppress(NotImplementedError):  # Windows: Ctrl-C then ends in KeyboardInterrupt
                    loop.add_signal_handler(number, running.cancel)
            _LOG.info("HTTP on %s: %s", access.url, access.meaning, extra=fields("listening"))
            turning = asyncio.create_task(log.run())
            with suppress(asyncio.CancelledError):
                await running
            turning.cancel()

        asyncio.run(serve())
        _LOG.info("stopped", extra=fields("stopped"))
