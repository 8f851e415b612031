"""`hush watch`: a task as its reports arrive."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, NoReturn, TypeAlias

from hush_aggregator.commands.options import BrokerOption, Id, ReaderToken
from hush_aggregator.commands.results import show_results
from hush_aggregator.ops.watch.source import HttpUrl, watch_broker, watch_http
from hush_aggregator.ops.watch.terminal import (
    Display,
    Event,
    EventKind,
    WatchedTask,
    is_interactive,
    line_display,
    live_display,
)
from hush_common.errors import BrokerError, OptionError, TaskError
from hush_common.options import Commands, Login, Option
from hush_common.task import is_task_id

_Listen: TypeAlias = Callable[[Callable[[Event], object]], Coroutine[Any, Any, NoReturn]]

_RETAINED_WITHIN_S = 1.0
_GONE_AFTER_S = 5.0

app: Commands = Commands()


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    task: Id
    broker: BrokerOption = ""
    http: Annotated[
        str,
        Option(metavar="ADDRESS", help="Instead of a broker: `hush serve --http` or `hush http`, as http://HOST:PORT."),
    ] = ""
    as_json: Annotated[bool, Option("--json", help="Print each result as a line of JSON.")] = False
    login: Login
    token: ReaderToken

    def source(self) -> tuple[_Listen, str]:
        """Return what reads the events of the task, and its name for messages."""
        if self.http:
            url = HttpUrl(self.http)
            return partial(watch_http, url, self.task, self.token.read()), str(url)
        if self.broker:
            where = self.login.at(self.broker)
            return partial(watch_broker, where, self.task), str(where)
        raise OptionError("--broker", "name a broker, or with --http a service that publishes the estimates")


@app.command()
def watch(options: WatchOptions) -> None:
    """Watch a task as its reports arrive, until its result is final or Ctrl-C.

    The intervals hold at any time, however often you look. A terminal shows a picture that is redrawn in place; a pipe
    gets a line for each change. The end is the final result, as hush results prints it.
    """
    if not is_task_id(options.task):
        raise TaskError("task", f"{options.task[:80]!r} is not a valid task id")
    listen, name = options.source()
    live = is_interactive() and not options.as_json
    showing = live_display() if live else nullcontext(line_display(as_json=options.as_json))
    watched = WatchedTask(options.task)
    with showing as show:
        asyncio.run(_watch(watched, show, listen, name))
    if not options.as_json:
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
