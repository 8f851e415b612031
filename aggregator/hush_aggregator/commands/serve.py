"""`hush serve`: the aggregator as a service."""

import asyncio
import gc
import logging
import math
import re
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, ClassVar, NoReturn, Self, cast

import typer
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, InstanceOf, ValidationError

from hush_aggregator.aggregator import Aggregator, SeparateConnections
from hush_aggregator.commands.http import ADMIN_HELP, AUDIT_HELP, FRAME_HELP, LogFormatOption, http_extra
from hush_aggregator.count.intake import IntakeStatus, Progress
from hush_aggregator.count.tasks import check_files
from hush_aggregator.delivery.certificate import CertificateWatch
from hush_aggregator.delivery.closing import ClockCheck
from hush_aggregator.delivery.mqtt import MqttBroker, warn_if_open
from hush_aggregator.delivery.workers import LeasedStore, WorkerGroup, is_group
from hush_aggregator.estimate.process import Estimator, ProcessEstimator
from hush_aggregator.logs import Log, LogFormat, fields, logging_to
from hush_aggregator.ops.watch.source import HttpUrl
from hush_aggregator.periodic import repeat
from hush_aggregator.publish.home_assistant import PREFIX, Announcing
from hush_aggregator.publish.webhook import Notifier, notifier_of
from hush_aggregator.store import Limits
from hush_aggregator.store.base import CommitOutcome, ServedStore
from hush_aggregator.store.location import StoreAddress, open_store, parse_store
from hush_aggregator.store.postgres_url import PostgresUrl
from hush_common.broker_url import LOGIN_FILE_HELP, USER_HELP, BrokerUrl, address
from hush_common.errors import OptionError, TaskError
from hush_common.task import LONGEST_POLICY, Task, parse_interval, read_task
from hush_common.topics import is_sender, status_topic

if TYPE_CHECKING:
    from hush_aggregator.ops.metrics import IntakeFigures, MetricValues
    from hush_aggregator.ops.service_metrics import ServiceValues
    from hush_aggregator.web.listen import HttpListener
    from hush_aggregator.web.shared_estimates import SharingEstimator


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


def _length(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        length = parse_interval(value, "retention")
    except TaskError:
        length = timedelta.max
    if length > LONGEST_POLICY:
        raise ValueError(
            f"is not a length of time; write a number and s, m, h, d or w, as in 30d, up to {LONGEST_POLICY.days}d"
        )
    return length


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


def _group(value: str) -> str:
    if value and not is_group(value):
        raise ValueError("is no name of a group or a worker; use letters, digits and _ . - (at most 64)")
    return value


def _store(value: object) -> StoreAddress:
    address = parse_store(value) if isinstance(value, str) else value
    if not isinstance(address, StoreAddress):
        raise ValueError("is neither a file nor the address of a database")  # noqa: TRY004 - for pydantic
    return _file(address) if isinstance(address, Path) else address


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
    # made if missing; text is parsed
    store: Annotated[InstanceOf[Path] | InstanceOf[PostgresUrl], BeforeValidator(_store)]
    tasks: tuple[Path, ...] = ()  # task files to publish and to count
    # names this aggregator on the broker: one name, one store
    name: Annotated[str, AfterValidator(_name)] = "aggregator"
    confidence: Annotated[float, AfterValidator(_confidence)] = 0.95  # nominal coverage of the intervals, inside (0, 1)
    # seconds after which a login that is refused all the time ends the service; 0 for never
    login_timeout: Annotated[float, AfterValidator(_seconds)] = 60.0
    any_task: bool = False  # whether to count every task that appears on the broker
    # prefix under which tasks are announced to Home Assistant; None for not at all
    home_assistant: Annotated[str, AfterValidator(_prefix)] | None = None
    group: Annotated[str, AfterValidator(_group)] = ""  # of workers that share the reports; empty for one alone
    worker: Annotated[str, AfterValidator(_group)] = ""  # the name of this one in its group
    page: str = ""  # the address of the page, to which their devices link; empty for none
    # how long reports are stored after the end of their round; None for as long as their task says; text is parsed
    retention: Annotated[timedelta | None, BeforeValidator(_length)] = None
    # how many reports of a round one sender may have counted; None for any number
    quota: Annotated[int, AfterValidator(_quota)] | None = None
    # how many instead, by the names of senders that speak for many devices; text is parsed
    gateways: Annotated[dict[str, int], BeforeValidator(_gateways)] = {}

    def check_group(self) -> None:
        """Raise OptionError where the options of workers do not fit together."""
        if bool(self.group) != bool(self.worker):
            raise OptionError("--group", "and --worker belong together: each worker of a group has its own name")
        if self.group and isinstance(self.store, Path):
            raise OptionError("--group", "needs a store that several can use; give --store postgresql://…")

    @property
    def status_name(self) -> str:
        """What its status is published under: each worker has its own."""
        return f"{self.name}-{self.worker}" if self.worker else self.name

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
            silent = name in {"broker", "retention"} or first["type"] in {
                "missing",
                "extra_forbidden",
            }  # perhaps a password
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
        root_path: str = "",
        admin_token_file: Path | None = None,
        audit_log: Path | None = None,
        frame_ancestors: tuple[str, ...] = (),
        store: StoreAddress,
        confidence: float,
        log_format: LogFormat,
    ) -> None:
        self._log_format = log_format
        self._counting: IntakeFigures | None = None
        self._access: HttpListener | None = None
        self._made: SharingEstimator | None = None
        self._inside = ExitStack()
        if not address:
            _need_none(
                {"--http-token-file": token_file, "--http-write": write, "--http-open": open_, "--http-host": hosts}
                | {"--http-trusted-proxy": trusted_proxies, "--http-root-path": root_path}
                | {"--http-admin-token-file": admin_token_file, "--http-audit-log": audit_log}
                | {"--http-frame-ancestors": frame_ancestors}
            )
            return
        with http_extra("hush serve --http"):
            from hush_aggregator.web import app, listen  # noqa: PLC0415 - only where it is wanted
        self._create_app, self._serve_http = app.create_app, app.serve_http
        more = trusted_proxies, root_path, admin_token_file, audit_log, frame_ancestors
        options = listen.HttpOptions("--http", address, "--http-", token_file, write, open_, hosts, *more)
        self._access = listen.HttpListener.open(options, store, confidence)

    def __enter__(self) -> Self:
        if self._access is not None:
            self._inside.enter_context(self._access.listener)
            if sys.platform == "win32":
                self._estimator = self._inside.enter_context(ProcessEstimator())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._inside.close()

    def share(self, estimator: Estimator) -> Estimator:
        """Return an estimator for the intake whose estimates the process of HTTP has, too."""
        if self._access is None or sys.platform == "win32":
            return estimator
        from hush_aggregator.web.shared_estimates import SharingEstimator  # noqa: PLC0415 - only where it is wanted

        self._made = SharingEstimator(estimator)
        return self._made

    def begin(self, store: ServedStore) -> None:
        """Go on from what is counted, before anything is counted here."""
        if self._access is not None:
            from hush_aggregator.ops.metrics import IntakeFigures  # noqa: PLC0415 - prometheus_client is an extra

            accepted = {count.id: count.counted for count in store.counts()}
            self._counting = IntakeFigures(accepted, store.refused())

    def add(self, outcome: CommitOutcome) -> None:
        """A batch was committed and acknowledged."""
        if self._counting is not None:
            self._counting.add(outcome)

    async def run(
        self, aggregator: "Aggregator", read: "Callable[[], ServiceValues]", certificate: CertificateWatch
    ) -> None:
        """Answer until cancelled. Logs errors, and raises none.

        Args:
            aggregator: that counts.
            read: returns the state of the service, for its metrics.
            certificate: of the broker; watched meanwhile.
        """
        if self._access is None or self._counting is None:
            return
        watching = asyncio.create_task(certificate.run(), name="hush-certificate")
        _LOG.info("HTTP on %s: %s", self._access.url, self._access.meaning, extra=fields("listening"))
        try:
            live = _Live(aggregator, self._counting, read)
            if sys.platform == "win32":  # which cannot hand a socket to another process
                service = replace(self._access.service, estimator=self._estimator, live=live)
                await self._serve_http(self._create_app(service), self._access.listener)
            else:
                from hush_aggregator.web.process import HttpProcess  # noqa: PLC0415 - only where it is wanted

                service, made = self._access.service, self._made
                await HttpProcess(self._access.listener, service, live, self._log_format, made).run()
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not stop the intake
            _LOG.error(
                "HTTP has ended (%s), and reports are counted all the same",
                type(error).__name__,
                extra=fields("http_ended"),
            )
        finally:
            watching.cancel()


class _Live:
    """The aggregator as HTTP sees it, with what was counted of it."""

    def __init__(
        self, aggregator: "Aggregator", counting: "IntakeFigures", read: "Callable[[], ServiceValues]"
    ) -> None:
        self._aggregator = aggregator
        self._counting = counting
        self._read = read

    @property
    def intake(self) -> IntakeStatus:
        return self._aggregator.intake

    @property
    def silent_s(self) -> float:
        return 0.0

    @property
    def task_limit(self) -> str:
        return self._aggregator.task_limit

    def figures(self) -> "MetricValues":
        return replace(self._counting.figures(self._aggregator.intake), service=self._read())


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
    store: Annotated[
        str,
        typer.Option(envvar="HUSH_STORE", help="What is counted: a SQLite file, or postgresql://…; made if missing."),
    ],
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
    retention: Annotated[
        str | None,
        typer.Option(
            envvar="HUSH_RETENTION",
            help="How long to store reports once their round is over, as 30d; their sums stay. A task may say less.",
        ),
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
    http_admin_token_file: Annotated[Path | None, typer.Option(help=ADMIN_HELP)] = None,
    http_audit_log: Annotated[Path | None, typer.Option(help=AUDIT_HELP)] = None,
    http_root_path: Annotated[str, typer.Option(help="Path below which a proxy has all of it, such as /hush.")] = "",
    http_frame_ancestors: Annotated[list[str] | None, typer.Option(metavar="ORIGIN", help=FRAME_HELP)] = None,
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
    group: Annotated[
        str,
        typer.Option(envvar="HUSH_GROUP", help="Share the reports with other workers of this group; needs PostgreSQL."),
    ] = "",
    worker: Annotated[
        str, typer.Option(envvar="HUSH_WORKER", help="The name of this worker in its group, such as 1.")
    ] = "",
    notify: Annotated[
        str,
        typer.Option(envvar="HUSH_NOTIFY", help="Address of a webhook to notify once an estimate is precise enough."),
    ] = "",
    notify_secret_file: Annotated[
        Path | None, typer.Option(help="File whose first line is the secret that signs its events, whsec_….")
    ] = None,
    notify_precision: Annotated[
        list[str] | None,
        typer.Option(
            envvar="HUSH_NOTIFY_PRECISION",
            help="TASK=VALUE: notify once the estimate is known to ±VALUE, or to ±VALUE%; may be repeated.",
        ),
    ] = None,
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
        | {"retention": retention}
        | {"home_assistant": home_assistant_prefix if home_assistant else None}
        | {"page": str(HttpUrl(home_assistant_page, "--home-assistant-page")) if home_assistant_page else ""}
        | {"group": group, "worker": worker}
    )
    settings.check_group()
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
        root_path=http_root_path,
        admin_token_file=http_admin_token_file,
        audit_log=http_audit_log,
        frame_ancestors=tuple(http_frame_ancestors or ()),
        store=settings.store,
        confidence=confidence,
        log_format=log_format,
    )
    with logging_to(sys.stderr, log_format) as log:
        with (
            beside,
            open_store(settings.store, settings.limits, settings.worker or "1") as opened,
            ProcessEstimator() as estimator,
        ):
            check_files(opened, tasks)
            goals = notify_precision or ()
            notifier = notifier_of(notify, notify_secret_file, goals, settings.store, opened, tasks=tasks.values())
            clock = ClockCheck(opened, accept=accept_clock)
            helpers = estimator, beside, log, notifier
            asyncio.run(_serve(settings, control, [*tasks.values()], (opened, clock), helpers))
            clock.note()
        _LOG.info("stopped", extra=fields("stopped"))


def _buses(settings: Settings, control: BrokerUrl, store: ServedStore) -> tuple[MqttBroker, SeparateConnections]:
    """The broker, by one connection and by two, under client ids that nobody can guess.

    Who knows such an id can take what waits for it.
    """
    identifier = f"hush-aggregator-{settings.name}-{store.identity}"
    status = status_topic(settings.status_name)
    alone = MqttBroker(settings.broker, identifier, status=status)
    by_intake = bool(settings.group)  # a worker that does not publish has no other connection, and is online
    intake = MqttBroker(settings.broker, identifier, kept=True, status=status if by_intake else None)
    control_status = None if by_intake else status
    second = MqttBroker(control, f"{identifier}-control", kept=True, status=control_status, qos=0)
    return alone, SeparateConnections(intake, second)


async def _forget(store: ServedStore) -> NoReturn:
    """Delete what the quotas know of rounds that have closed."""
    forget = partial(asyncio.to_thread, store.forget_senders)
    await repeat(forget, _FORGET_S, failure="quotas of closed rounds cannot be deleted", event="forget_failed")


async def _serve(
    settings: Settings,
    control: BrokerUrl,
    tasks: list[Task],
    kept: tuple[ServedStore, ClockCheck],
    helpers: tuple[ProcessEstimator, HttpServer, Log, Notifier | None],
) -> None:
    progress = Progress()
    store, clock = kept
    estimator, http, log, notifier = helpers
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
        status = status_topic(settings.status_name)
        announcing = Announcing(settings.home_assistant, status, store.public_identity, settings.page)
    bus, separate = _buses(settings, control, store)
    aggregator = Aggregator(
        bus,
        store,
        tasks=tasks,
        name=settings.name,
        confidence=settings.confidence,
        estimator=http.share(estimator),
        on_commit=committed,
        ready=ready,
        any_task=settings.any_task,
        on_estimate=clock.look_at,
        login_s=settings.login_timeout or None,
        announcing=announcing,
        on_published=id if notifier is None else notifier.published,
        retention=settings.retention,
        separate=separate,
        group=WorkerGroup(settings.group, settings.worker, cast("LeasedStore", store)) if settings.group else None,
    )
    running = asyncio.create_task(aggregator.run(), name="hush-aggregator")
    loop = asyncio.get_running_loop()

    def stop() -> None:
        running.cancel()
        answering.cancel()  # both end at the same time
        loop.call_later(_STOP_S, running.cancel)  # what waits for the broker then is given up

    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # Windows: Ctrl-C then ends in KeyboardInterrupt
            loop.add_signal_handler(number, stop)
    opened = warn_if_open(settings.broker, lambda: aggregator.connected)
    certificate = CertificateWatch(settings.broker)

    def read() -> "ServiceValues":
        from hush_aggregator.ops.service_metrics import ServiceValues  # noqa: PLC0415 - prometheus_client is an extra

        waiting = None if notifier is None else notifier.waiting
        return ServiceValues.read(settings.store, aggregator.estimates, certificate.until, waiting)

    answering = asyncio.create_task(http.run(aggregator, read, certificate), name="hush-http")
    others = [progress.run(), clock.run(), _forget(store), log.run(), opened]
    if notifier is not None:
        others.append(notifier.run())
    beside = [asyncio.create_task(work, name="hush-beside") for work in others]
    try:
        await _run_with(running, beside, stop)
    finally:
        await _end([answering, *beside])
        progress.stop()


async def _run_with(
    running: "asyncio.Task[NoReturn]", beside: "Sequence[asyncio.Task[None]]", stop: Callable[[], object]
) -> None:
    """Wait for the end of the service, and stop it if a task next to it fails; raise the first error."""

    def stop_if_failed(task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and task.exception() is not None:
            stop()

    for one in beside:
        one.add_done_callback(stop_if_failed)
    with suppress(asyncio.CancelledError):
        await running
    for one in beside:
        if one.done() and not one.cancelled():
            one.result()


async def _end(tasks: "Sequence[asyncio.Task[None]]") -> None:
    for task in tasks:
        if not task.cancelling():  # a second time would interrupt its end
            task.cancel()
    await asyncio.wait(tasks)
