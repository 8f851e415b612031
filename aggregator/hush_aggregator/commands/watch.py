"""`hush watch`: a task as its reports arrive."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeAlias

import typer

from hush_aggregator.commands.results import show_results
from hush_aggregator.commands.task import Id
from hush_aggregator.watch.source import TOKEN_VARIABLE, HttpUrl, watch_http
from hush_aggregator.watch.terminal import Heard, News, Show, Watched, as_json, drawn, is_drawn, lines
from hush_common.broker_url import LOGIN_FILE_HELP, USER_HELP, BrokerUrl, address, password_in
from hush_common.errors import BrokerError, OptionError, TaskError
from hush_common.task import is_task_id

_Listen: TypeAlias = Callable[[Callable[[Heard], object]], Coroutine[Any, Any, NoReturn]]

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
    http: Annotated[str, typer.Option(help="Ask `hush serve --http` or `hush http` instead: http://HOST:PORT.")] = "",
    as_json_: Annotated[bool, typer.Option("--json", help="Print each result as a line of JSON.")] = False,
    user: Annotated[str, typer.Option(help=USER_HELP)] = "",
    password_file: Annotated[Path | None, typer.Option(help=LOGIN_FILE_HELP)] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="With --http: file whose first line is the token, or set HUSH_HTTP_TOKEN.")
    ] = None,
) -> None:
    """Watch a task as its reports arrive, until its result is final or Ctrl-C.

    The bands may be watched: they hold at every look. On a terminal the view is drawn again in its place, in a pipe
    there is a line for each change. The end is the final result, as hush results prints it.
    """
    if not is_task_id(task):
        raise TaskError("task", f"{task[:80]!r} is no name of a task")
    if http:
        listen, name = _service(task, http, token_file)
    elif broker:
        listen, name = _broker(task, address(broker, {"user": user}, password_file))
    else:
        raise OptionError("--broker", "name a broker, or with --http a service that publishes the estimates")
    showing = as_json() if as_json_ else drawn() if is_drawn() else lines()
    watched = Watched(task)
    with showing as show:
        asyncio.run(_watch(watched, show, listen, name))
    if not as_json_:
        show_results([watched.result])


def _service(task: str, http: str, token_file: Path | None) -> tuple[_Listen, str]:
    """What listens to a task, and what to call where it is."""
    url = HttpUrl(http)
    token = os.environ.get(TOKEN_VARIABLE, "") if token_file is None else password_in(token_file, "--token-file")
    return partial(watch_http, url, task, token), str(url)


def _broker(task: str, where: BrokerUrl) -> tuple[_Listen, str]:
    from hush_aggregator.watch.source import watch_broker  # noqa: PLC0415 - HTTP needs no MQTT

    return partial(watch_broker, where, task), str(where)


async def _watch(watched: Watched, show: Show, listen: _Listen, name: str) -> None:
    """Until nothing more can come.

    Raises:
        BrokerError: the source is not there, or has nothing of this task, or no longer.
    """
    news: asyncio.Queue[Heard] = asyncio.Queue()
    listening = asyncio.create_task(listen(news.put_nowait), name="hush-watch")
    there, seen = False, False
    try:
        while not watched.is_over:
            patience = (_GONE_AFTER_S if seen else _RETAINED_WITHIN_S) if there and watched.nothing else None
            heard = await _next(news, listening, patience)
            if heard is None:
                gone = "has no task and no estimate" + (" any more: it was forgotten" if seen else "")
                raise BrokerError(name, f"{gone} of this name ({watched.id}), or this user may not read them")
            there = heard.news is not News.LOST if heard.news in (News.THERE, News.LOST) else there
            if watched.hear(heard):
                seen = seen or not watched.nothing
                show(watched)
    finally:
        listening.cancel()
        await asyncio.wait({listening})


async def _next(
    news: "asyncio.Queue[Heard]", listening: "asyncio.Task[NoReturn]", patience: float | None
) -> Heard | None:
    """What comes next; None if nothing does for so many seconds. What ends the listening is raised."""
    getting = asyncio.create_task(news.get(), name="hush-watch-next")
    try:
        await asyncio.wait({getting, listening}, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        if getting.done():
            return getting.result()
        if listening.done():
            listening.result()
        return None
    finally:
        getting.cancel()
