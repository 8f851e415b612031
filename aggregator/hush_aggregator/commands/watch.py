"""`hush watch`: a task as its reports arrive."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeAlias

import typer

from hush_aggregator.commands.results import show_results
from hush_aggregator.commands.task import Id
from hush_aggregator.ops.watch.source import TOKEN_VARIABLE, HttpUrl, watch_broker, watch_http
from hush_aggregator.ops.watch.terminal import (
    Display,
    Event,
    EventKind,
    WatchedTask,
    is_interactive,
    line_display,
    live_display,
)
from hush_common.broker_url import LOGIN_FILE_HELP, USER_HELP, address, password_in
from hush_common.errors import BrokerError, OptionError, TaskError
from hush_common.task import is_task_id

_Listen: TypeAlias = Callable[[Callable[[Event], object]], Coroutine[Any, Any, NoReturn]]

_RETAINED_WITHIN_S = 1.0
_GONE_AFTER_S = 5.0

app: typer.Typer = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def watch(
    task: Id,
    *,
    broker: Annotated[
        str, typer.Option(envvar="HUSH_BROKER", help="mqtt://[user[:password]@]host[:port], or mqtts:// for TLS.")
    ] = "",
    http: Annotated[
        str, typer.Option(help="Instead of a broker: `hush serve --http` or `hush http`, as http://HOST:PORT.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print each result as a line of JSON.")] = False,
    user: Annotated[str, typer.Option(help=USER_HELP)] = "",
    password_file: Annotated[Path | None, typer.Option(help=LOGIN_FILE_HELP)] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="With --http: file whose first line is the token, or set HUSH_HTTP_TOKEN.")
    ] = None,
) -> None:
    """Watch a task as its reports arrive, until its result is final or Ctrl-C.

    The intervals hold at any time, however often you look. A terminal shows a picture that is redrawn in place; a pipe
    gets a line for each change. The end is the final result, as hush results prints it.
    """
    if not is_task_id(task):
        raise TaskError("task", f"{task[:80]!r} is not a valid task id")
    if http:
        url = HttpUrl(http)
        token = os.environ.get(TOKEN_VARIABLE, "") if token_file is None else password_in(token_file, "--token-file")
        listen, name = partial(watch_http, url, task, token), str(url)
    elif broker:
        where = address(broker, {"user": user}, password_file)
        listen, name = partial(watch_broker, where, task), str(where)
    else:
        raise OptionError("--broker", "name a broker, or with --http a service that publishes the estimates")
    live = is_interactive() and not as_json
    showing = live_display() if live else nullcontext(line_display(as_json=as_json))
    watched = WatchedTask(task)
    with showing as show:
        asyncio.run(_watch(watched, show, listen, name))
    if not as_json:
        show_results([watched.result])


async def _watch(watched: WatchedTask, show: Display, listen: _Listen, name: str) -> None:
    """Show the task until nothing more can come; raise BrokerError if the source does not have it."""
    events: asyncio.Queue[Event] = asyncio.Queue()
    listening = asyncio.create_task(listen(events.put_nowait), name="hush-watch")
    is_connected, seen = False, False
    try:
        while not watched.is_over:
            patience = (_GONE_AFTER_S if seen else _RETAINED_WITHIN_S) if is_connected and watched.nothing else None
            event = await _next(events, listening, patience)
            if event is None:
                gone = "no longer has a task or an estimate" if seen else "has neither a task nor an estimate"
                raise BrokerError(name, f"{gone} named {watched.id}, or this user may not read them")
            if event.kind in (EventKind.CONNECTED, EventKind.LOST):
                is_connected = event.kind is EventKind.CONNECTED
            if watched.update(event):
                seen = seen or not watched.nothing
                show(watched)
    finally:
        listening.cancel()
        await asyncio.wait({listening})


async def _next(
    events: "asyncio.Queue[Event]", listening: "asyncio.Task[NoReturn]", patience: float | None
) -> Event | None:
    """The next event; None after `patience` seconds without one. Raises what ended the listening."""
    getting = asyncio.create_task(events.get(), name="hush-watch-next")
    try:
        await asyncio.wait({getting, listening}, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        if getting.done():
            return getting.result()
        if listening.done():
            listening.result()
        return None
    finally:
        getting.cancel()
