"""`hush serve`: the aggregator as a service."""

import asyncio
import gc
import logging
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from hush_aggregator.clock import CheckedClock
from hush_aggregator.commands.http_beside import HttpBeside
from hush_aggregator.commands.log_option import LogFormatOption
from hush_aggregator.commands.serve_settings import Settings
from hush_aggregator.home_assistant import PREFIX, Announcing
from hush_aggregator.known_tasks import check_files
from hush_aggregator.log_fields import fields
from hush_aggregator.logs import Log, LogFormat, logging_to
from hush_aggregator.mqtt import MqttBus
from hush_aggregator.open_broker import warn_if_open
from hush_aggregator.pipeline import Aggregator, Separate
from hush_aggregator.processes import InProcesses
from hush_aggregator.progress import Progress
from hush_aggregator.store import CommitOutcome, SqliteStore
from hush_aggregator.watch.over_http import HttpUrl
from hush_common.broker_url import LOGIN_FILE_HELP, USER_HELP, BrokerUrl, address
from hush_common.errors import OptionError, StoreError
from hush_common.task import Task, read_task
from hush_common.topics import status_topic

__all__ = ["app"]

_LOG = logging.getLogger("hush.aggregator")
_FORGET_S = 60.0
_STOP_S = 4.0

app: typer.Typer = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def serve(
    *,
    broker: Annotated[
        str, typer.Option(envvar="HUSH_BROKER", help="mqtt://[user[:password]@]host[:port], or mqtts:// for TLS.")
    ],
    store: Annotated[Path, typer.Option(envvar="HUSH_STORE", help="SQLite file of what is counted; made if missing.")],
    task: Annotated[
        list[Path] | None, typer.Option(envvar="HUSH_TASK", help="Task file to publish and count; may be repeated.")
    ] = None,
    name: Annotated[
        str, typer.Option(envvar="HUSH_NAME", help="Name at the broker; keep it: reports wait under it.")
    ] = "aggregator",
    confidence: Annotated[
        float, typer.Option(envvar="HUSH_CONFIDENCE", help="Confidence level of the intervals, between 0 and 1.")
    ] = 0.95,
    user: Annotated[str, typer.Option(help=USER_HELP)] = "",
    password_file: Annotated[Path | None, typer.Option(help=LOGIN_FILE_HELP)] = None,
    control_user: Annotated[
        str,
        typer.Option(
            envvar="HUSH_CONTROL_USER",
            help="Second user, for everything but reports; needed where a broker allows one connection a user.",
        ),
    ] = "",
    control_password_file: Annotated[
        Path | None, typer.Option(help="File whose first line is that user's password; else it is the same.")
    ] = None,
    login_timeout: Annotated[
        float, typer.Option(help="Seconds after which to give up if the login is refused all the time; 0 for never.")
    ] = 60.0,
    any_task: Annotated[
        bool, typer.Option("--any-task", help="Count every task that is published at the broker, not only those given.")
    ] = False,
    quota: Annotated[
        int | None, typer.Option(envvar="HUSH_QUOTA", help="Most reports of a round that count from one sender.")
    ] = None,
    gateway: Annotated[
        list[str] | None,
        typer.Option(envvar="HUSH_GATEWAY", help="NAME=M: M reports from this sender instead; may be repeated."),
    ] = None,
    accept_clock: Annotated[
        bool, typer.Option("--accept-clock", help="Trust the clock, even if this store has seen a later day.")
    ] = False,
    log_format: LogFormatOption = LogFormat.TEXT,
    http: Annotated[str, typer.Option(envvar="HUSH_HTTP", help="HOST:PORT to serve HTTP on, as 127.0.0.1:8080.")] = "",
    http_write: Annotated[
        bool, typer.Option("--http-write", help="Let whoever has the token give, withdraw and close tasks over HTTP.")
    ] = False,
    http_token_file: Annotated[
        Path | None, typer.Option(help="File whose first line is the token, or set HUSH_HTTP_TOKEN.")
    ] = None,
    http_open: Annotated[
        bool, typer.Option("--http-open", help="Let everybody read who reaches an address that others can reach.")
    ] = False,
    http_host: Annotated[
        list[str] | None, typer.Option(help="A further name under which HTTP is asked; may be repeated.")
    ] = None,
    http_trusted_proxy: Annotated[
        list[str] | None,
        typer.Option(help="Address or network of a proxy whose forwarded addresses count; may be repeated."),
    ] = None,
    home_assistant: Annotated[
        bool, typer.Option("--home-assistant", help="Announce each task to Home Assistant, as a device with sensors.")
    ] = False,
    home_assistant_prefix: Annotated[
        str, typer.Option(envvar="HUSH_HOME_ASSISTANT_PREFIX", help="Where Home Assistant looks for announcements.")
    ] = PREFIX,
    home_assistant_page: Annotated[
        str,
        typer.Option(
            envvar="HUSH_HOME_ASSISTANT_PAGE", help="Address of the page of this service, to which the devices link."
        ),
    ] = "",
) -> None:
    """Count the reports of tasks at a broker, and publish estimates with error bars.

    Counted are the tasks given here, and those of the store: of earlier starts, and of hush task publish.

    Runs until Ctrl-C or SIGTERM, and ends within five seconds then. Started again with the same store and name, it
    continues where it stopped: first it publishes the estimates that it had not published yet.
    """
    where = address(broker, {"user": user}, password_file)
    if control_password_file is not None and not control_user:
        raise OptionError("--control-password-file", "is for the user that --control-user names; give both, or none")
    control = address(broker, {"user": control_user or user}, control_password_file or password_file)
    settings = Settings.read(
        {"broker": where, "store": store, "tasks": tuple(task or ()), "name": name, "confidence": confidence}
        | {"quota": quota, "gateways": tuple(gateway or ()), "any_task": any_task, "login_timeout": login_timeout}
        | {"home_assistant": home_assistant_prefix if home_assistant else None}
        | {"page": str(HttpUrl(home_assistant_page, "--home-assistant-page")) if home_assistant_page else ""}
    )
    if settings.gateways and settings.quota is None:
        raise OptionError("--gateway", "a gateway has a quota of its own where others have one; give --quota too")
    tasks = {path: read_task(path) for path in settings.tasks}
    logging.getLogger("mqtt").setLevel(logging.CRITICAL)  # what paho has to say reaches a person as a BrokerError
    beside = HttpBeside(
        http,
        token_file=http_token_file,
        write=http_write,
        open_=http_open,
        hosts=tuple(http_host or ()),
        trusted_proxies=tuple(http_trusted_proxy or ()),
        store=store,
        confidence=confidence,
    )
    with logging_to(sys.stderr, log_format) as log:
        with beside, SqliteStore(settings.store, settings.limits) as opened, InProcesses() as estimator:
            check_files(opened, tasks)
            clock = CheckedClock(opened, accept=accept_clock)
            asyncio.run(_serve(settings, control, [*tasks.values()], (opened, clock), (estimator, beside, log)))
            clock.note()
        _LOG.info("stopped", extra=fields("stopped"))


def _buses(settings: Settings, control: BrokerUrl, store: SqliteStore) -> tuple[MqttBus, Separate]:
    """The broker, by one connection and by two, under client ids that nobody can guess.

    Who knows such an id can take what waits for it.
    """
    identifier = f"hush-aggregator-{settings.name}-{store.identity}"
    status = status_topic(settings.name)
    alone = MqttBus(settings.broker, identifier, status=status)
    intake = MqttBus(settings.broker, identifier, kept=True)
    return alone, Separate(intake, MqttBus(control, f"{identifier}-control", status=status, qos=0))


async def _forget(store: SqliteStore) -> NoReturn:
    """Delete what the quotas know of rounds that have closed."""
    while True:
        await asyncio.sleep(_FORGET_S)
        try:
            await asyncio.to_thread(store.forget_senders)
        except StoreError as error:
            _LOG.warning("%s", error)


async def _serve(
    settings: Settings,
    control: BrokerUrl,
    tasks: list[Task],
    kept: tuple[SqliteStore, CheckedClock],
    helpers: tuple[InProcesses, HttpBeside, Log],
) -> None:
    progress = Progress()
    store, clock = kept
    estimator, http, log = helpers
    http.begin(store)

    def committed(outcome: CommitOutcome) -> None:
        progress.add(outcome)
        http.add(outcome)

    is_frozen = False

    async def ready() -> None:
        nonlocal is_frozen
        if not is_frozen:  # the tasks are there, and stay: to look through them again and again takes 0.1 s each time
            is_frozen = True
            gc.collect()
            gc.freeze()
        await clock.right()

    announcing = None
    if settings.home_assistant is not None:
        status = status_topic(settings.name)
        announcing = Announcing(settings.home_assistant, status, store.public_identity, settings.page)
    bus, separate = _buses(settings, control, store)
    aggregator = Aggregator(
        bus,
        store,
        tasks=tasks,
        name=settings.name,
        confidence=settings.confidence,
        estimator=estimator,
        on_commit=committed,
        ready=ready,
        any_task=settings.any_task,
        on_estimate=clock.look_at,
        login_s=settings.login_timeout or None,
        announcing=announcing,
        separate=separate,
    )
    running = asyncio.create_task(aggregator.run(), name="hush-aggregator")
    loop = asyncio.get_running_loop()

    def stop() -> None:
        running.cancel()
        loop.call_later(_STOP_S, running.cancel)  # what waits for the broker then is given up

    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # Windows: Ctrl-C then ends in KeyboardInterrupt
            loop.add_signal_handler(number, stop)
    opened = warn_if_open(settings.broker, lambda: aggregator.connected)
    others = (progress.run(), clock.run(), _forget(store), http.run(aggregator), log.run(), opened)
    beside = [asyncio.create_task(work, name="hush-beside") for work in others]
    try:
        with suppress(asyncio.CancelledError):
            await running
    finally:
        for task in beside:
            task.cancel()
        await asyncio.wait(beside)
        progress.stop()
