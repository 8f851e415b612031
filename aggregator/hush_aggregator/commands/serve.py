"""`hush serve`: the aggregator as a service."""

import asyncio
import gc
import logging
import math
import re
import signal
import sys
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, ClassVar, NoReturn, Self

import typer
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, InstanceOf, ValidationError

from hush_aggregator.aggregator import Aggregator, SeparateConnections
from hush_aggregator.broker.mqtt import MqttBroker, warn_if_open
from hush_aggregator.closing import ClockCheck
from hush_aggregator.commands.http import LogFormatOption, http_extra
from hush_aggregator.estimation import ProcessEstimator
from hush_aggregator.home_assistant import PREFIX, Announcing
from hush_aggregator.intake import IntakeStatus, Progress
from hush_aggregator.logs import Log, LogFormat, fields, logging_to
from hush_aggregator.store import Limits, SqliteStore
from hush_aggregator.store.base import CommitOutcome
from hush_aggregator.tasks import check_files
from hush_aggregator.watch.source import HttpUrl
from hush_common.broker_url import LOGIN_FILE_HELP, USER_HELP, BrokerUrl, address
from hush_common.errors import OptionError, StoreError
from hush_common.task import Task, read_task
from hush_common.topics import is_sender, status_topic

if TYPE_CHECKING:
    from hush_aggregator.http.listen import HttpListener
    from hush_aggregator.metrics import IntakeFigures, MetricValues


_DIGITS = 12
_LEVEL = re.compile(r"[A-Za-z0-9_-]{1,64}")


def _broker(value: object) -> object:
    return BrokerUrl.parse(value) if isinstance(value, str) else value


def _name(value: str) -> str:
    if not is_sender(value):
        raise ValueError("a name is part of a topic; use letters, digits and . _ @ : - (at most 128)")
    return value


def _gateways(value: object) -> object:
    """`NAME=M`, for each gateway: how many reports of a round may come from it."""
    if not isinstance(value, tuple):
        return value
    found: dict[str, int] = {}
    for text in value:
        name, equals, number = text.partition("=")
        if not equals or not is_sender(name) or not number.isascii() or not number.isdecimal() or len(number) > _DIGITS:
            raise ValueError("a gateway is given as NAME=M, its MQTT user and a whole number, as in kitchen=500")
        if name in found:
            raise ValueError("a gateway is given twice; leave one out")
        found[name] = int(number)
    return found


def _quota(value: int) -> int:
    if value < 1:
        raise ValueError("a quota is at least 1; leave it out to count any number of reports of one sender")
    return value


def _confidence(value: float) -> float:
    if not 0 < value < 1:
        raise ValueError("a confidence lies between 0 and 1, for example 0.95")
    return value


def _seconds(value: float) -> float:
    if not 0 <= value < math.inf:
        raise ValueError("is not a length of time; write seconds, or 0 for no end")
    return value


def _prefix(value: str) -> str:
    if not _LEVEL.fullmatch(value):
        raise ValueError("is not a valid topic level for Home Assistant; use letters, digits, _ and - (at most 64)")
    return value


def _file(value: Path) -> Path:
    try:
        is_directory, has_place = value.is_dir(), value.parent.is_dir()
    except OSError as error:
        raise ValueError(f"cannot be opened ({error.strerror}); name another file") from error
    if is_directory:
        raise ValueError("is a directory; name a file")
    if not has_place:
        raise ValueError(f"the directory {value.parent} does not exist; create it")
    return value


class Settings(BaseModel):
    """Settings of `hush serve`."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True)

    broker: Annotated[InstanceOf[BrokerUrl], BeforeValidator(_broker)]  # where reports come from; text is parsed
    store: Annotated[Path, AfterValidator(_file)]  # the SQLite file, created if missing
    tasks: tuple[Path, ...] = ()  # task files to publish and to count
    # names this aggregator on the broker: one name, one store
    name: Annotated[str, AfterValidator(_name)] = "aggregator"
    confidence: Annotated[float, AfterValidator(_confidence)] = 0.95  # nominal coverage of the intervals, inside (0, 1)
    # seconds after which a login that is refused all the time ends the service; 0 for never
    login_timeout: Annotated[float, AfterValidator(_seconds)] = 60.0
    any_task: bool = False  # whether to count every task that appears on the broker
    # prefix under which tasks are announced to Home Assistant; None for not at all
    home_assistant: Annotated[str, AfterValidator(_prefix)] | None = None
    page: str = ""  # the address of the page, to which their devices link; empty for none
    # how many reports of a round one sender may have counted; None for any number
    quota: Annotated[int, AfterValidator(_quota)] | None = None
    # how many instead, by the names of senders that speak for many devices; text is parsed
    gateways: Annotated[dict[str, int], BeforeValidator(_gateways)] = {}

    @property
    def limits(self) -> Limits | None:
        """What a store enforces."""
        return None if self.quota is None else Limits(self.quota, self.gateways)

    @classmethod
    def read(cls, values: Mapping[str, object]) -> "Settings":
        """Validate `values`.

        Raises:
            OptionError: naming the setting, its value, and the remedy.
            BrokerError: the address of the broker is none.
        """
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            name = ".".join(str(part) for part in first["loc"])
            message = str(first.get("ctx", {}).get("error", first["msg"]))
            silent = name == "broker" or first["type"] in {"missing", "extra_forbidden"}  # a password may stand in it
            value = "" if silent else f"{str(first['input'])[:80]!r}: "
            raise OptionError(name, f"{value}{message}") from error


_LOG = logging.getLogger("hush.aggregator")


class HttpServer:
    """HTTP where an address is given for it, else nothing. It listens once it is made; at its end it is closed.

    Raises:
        OptionError: it cannot be served as it is wanted.
        MissingExtraError: a package that it needs is not installed.
    """

    def __init__(
        self,
        address: str,
        *,
        token_file: Path | None,
        write: bool,
        open_: bool,
        hosts: tuple[str, ...],
        trusted_proxies: tuple[str, ...] = (),
        store: Path,
        confidence: float,
    ) -> None:
        self._counting: IntakeFigures | None = None
        self._access: HttpListener | None = None
        self._inside = ExitStack()
        if not address:
            _need_none(
                {"--http-token-file": token_file, "--http-write": write, "--http-open": open_, "--http-host": hosts}
                | {"--http-trusted-proxy": trusted_proxies}
            )
            return
        with http_extra("hush serve --http"):
            from hush_aggregator.http import app, listen  # noqa: PLC0415 - only where it is wanted
        self._create_app, self._serve_http = app.create_app, app.serve_http
        options = listen.HttpOptions("--http", address, "--http-", token_file, write, open_, hosts, trusted_proxies)
        self._access = listen.HttpListener.open(options, store, confidence)

    def __enter__(self) -> Self:
        if self._access is not None:
            self._inside.enter_context(self._access.listener)
            self._estimator = self._inside.enter_context(ProcessEstimator())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._inside.close()

    def begin(self, store: "SqliteStore") -> None:
        """Go on from what is counted, before anything is counted here."""
        if self._access is not None:
            from hush_aggregator.metrics import IntakeFigures  # noqa: PLC0415 - prometheus_client is an extra

            accepted = {count.id: count.counted for count in store.counts()}
            self._counting = IntakeFigures(accepted, store.refused())

    def add(self, outcome: CommitOutcome) -> None:
        """A batch was committed and acknowledged."""
        if self._counting is not None:
            self._counting.add(outcome)

    async def run(self, aggregator: "Aggregator") -> None:
        """Answer until cancelled. Logs errors, and raises none."""
        if self._access is None or self._counting is None:
            return
        _LOG.info("HTTP on %s: %s", self._access.url, self._access.meaning, extra=fields("listening"))
        try:
            live = _Live(aggregator, self._counting)
            service = replace(self._access.service, estimator=self._estimator, live=live)
            await self._serve_http(self._create_app(service), self._access.listener)
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not stop the intake
            _LOG.error(
                "HTTP has ended (%s), and reports are counted all the same",
                type(error).__name__,
                extra=fields("http_ended"),
            )


class _Live:
    """The aggregator as HTTP sees it, with what was counted of it."""

    def __init__(self, aggregator: "Aggregator", counting: "IntakeFigures") -> None:
        self._aggregator = aggregator
        self._counting = counting

    @property
    def intake(self) -> IntakeStatus:
        return self._aggregator.intake

    @property
    def task_limit(self) -> str:
        return self._aggregator.task_limit

    def figures(self) -> "MetricValues":
        return self._counting.figures(self._aggregator.intake)


def _need_none(given: Mapping[str, object]) -> None:
    for option, value in given.items():
        if value:
            raise OptionError(option, "is about HTTP; give the address to serve it on with --http, or leave this out")


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
        str, typer.Option(envvar="HUSH_NAME", help="Name on the broker; keep it: reports wait under it.")
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
        bool, typer.Option("--any-task", help="Count every task that is published on the broker, not only those given.")
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
        bool, typer.Option("--http-write", help="Let holders of the token publish, withdraw and close tasks over HTTP.")
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
        raise OptionError("--gateway", "a gateway's quota is an exception to that of others; give --quota too")
    tasks = {path: read_task(path) for path in settings.tasks}
    logging.getLogger("mqtt").setLevel(logging.CRITICAL)  # what paho has to say reaches a person as a BrokerError
    beside = HttpServer(
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
        with beside, SqliteStore(settings.store, settings.limits) as opened, ProcessEstimator() as estimator:
            check_files(opened, tasks)
            clock = ClockCheck(opened, accept=accept_clock)
            asyncio.run(_serve(settings, control, [*tasks.values()], (opened, clock), (estimator, beside, log)))
            clock.note()
        _LOG.info("stopped", extra=fields("stopped"))


def _buses(settings: Settings, control: BrokerUrl, store: SqliteStore) -> tuple[MqttBroker, SeparateConnections]:
    """The broker, by one connection and by two, under client ids that nobody can guess.

    Who knows such an id can take what waits for it.
    """
    identifier = f"hush-aggregator-{settings.name}-{store.identity}"
    status = status_topic(settings.name)
    alone = MqttBroker(settings.broker, identifier, status=status)
    intake = MqttBroker(settings.broker, identifier, kept=True)
    return alone, SeparateConnections(intake, MqttBroker(control, f"{identifier}-control", status=status, qos=0))


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
    kept: tuple[SqliteStore, ClockCheck],
    helpers: tuple[ProcessEstimator, HttpServer, Log],
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
        await clock.wait_until_plausible()

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
