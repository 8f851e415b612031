"""`hush serve`: the aggregator as a service."""

import asyncio
import gc
import logging
import math
import re
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, NamedTuple, NoReturn, Self, cast

from hush_aggregator.aggregator import Aggregator, SeparateConnections
from hush_aggregator.commands.http import http_extra
from hush_aggregator.commands.options import HTTP, BrokerOption, ConfidenceOption, LogFormatOption
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
from hush_aggregator.web.options import HttpOptions
from hush_common.broker_url import BrokerUrl
from hush_common.errors import OptionError, TaskError
from hush_common.options import BROKER, Commands, Login, Option, Prefixed
from hush_common.task import LONGEST_POLICY, Task, parse_interval, read_task
from hush_common.topics import is_sender, status_topic

if TYPE_CHECKING:
    from hush_aggregator.ops.metrics import IntakeFigures, MetricValues
    from hush_aggregator.ops.service_metrics import ServiceValues
    from hush_aggregator.web.listen import HttpListener
    from hush_aggregator.web.shared_estimates import SharingEstimator


_DIGITS = 12
_LEVEL = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Gateway(NamedTuple):
    """How many reports of a round may come from one sender that speaks for many devices."""

    sender: str
    most: int

    @classmethod
    def parse(cls, text: str) -> "Gateway":
        """Parse `NAME=M`."""
        name, equals, number = text.partition("=")
        if not equals or not is_sender(name) or not number.isascii() or not number.isdecimal() or len(number) > _DIGITS:
            raise OptionError(
                "gateways",
                f"{text[:80]!r}: a gateway is given as NAME=M, its MQTT user and a whole number, as in kitchen=500",
            )
        return cls(name, int(number))


def _retention(text: str) -> timedelta:
    try:
        length = parse_interval(text, "retention")
    except TaskError:
        length = timedelta.max
    if length > LONGEST_POLICY:
        raise OptionError(
            "retention",
            f"is not a length of time; write a number and s, m, h, d or w, as in 30d, up to {LONGEST_POLICY.days}d",
        )
    return length


def _page(text: str) -> str:
    return str(HttpUrl(text, "--home-assistant-page")) if text else ""


def _check(setting: str, value: object, remedy: str, *, valid: bool) -> None:
    if not valid:
        raise OptionError(setting, f"{str(value)[:80]!r}: {remedy}")


HOME_ASSISTANT, WORKERS, WEBHOOK = "Home Assistant", "Several workers", "Webhook"
"""Groups of options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """The options of `hush serve`.

    Raises:
        OptionError: one cannot be used, or not with another; names the setting, its value and the remedy.
        StoreError: the address of the store is invalid.
    """

    broker: BrokerOption
    store: Annotated[
        str,
        Option(
            metavar="STORE",
            envvar="HUSH_STORE",
            help="What is counted: a SQLite file, or postgresql://…; made if missing.",
        ),
    ]
    task: Annotated[
        tuple[Path, ...], Option(envvar="HUSH_TASK", help="Task file to publish and count; may be repeated.")
    ] = ()
    name: Annotated[str, Option(envvar="HUSH_NAME", help="Name on the broker; keep it: reports wait under it.")] = (
        "aggregator"
    )
    confidence: ConfidenceOption = 0.95
    login: Login = field(default_factory=Login)
    control_user: Annotated[
        str,
        Option(
            group=BROKER,
            envvar="HUSH_CONTROL_USER",
            help="Second user, for everything but reports; needed where a broker allows one connection a user.",
        ),
    ] = ""
    control_password_file: Annotated[
        Path | None,
        Option(group=BROKER, help="File whose first line is that user's password; else it is the same."),
    ] = None
    login_timeout: Annotated[
        float,
        Option(
            group=BROKER,
            metavar="SECONDS",
            help="Seconds after which to give up if the login is refused all the time; 0 for never.",
        ),
    ] = 60.0
    any_task: Annotated[
        bool, Option("--any-task", help="Count every task that is published on the broker, not only those given.")
    ] = False
    quota: Annotated[
        int | None, Option(envvar="HUSH_QUOTA", help="Most reports of a round that count from one sender.")
    ] = None
    gateway: Annotated[
        tuple[Gateway, ...],
        Option(
            parser=Gateway.parse,
            metavar="NAME=M",
            envvar="HUSH_GATEWAY",
            help="NAME=M: M reports from this sender instead; may be repeated.",
        ),
    ] = ()
    retention: Annotated[
        timedelta | None,
        Option(
            parser=_retention,
            metavar="TIME",
            envvar="HUSH_RETENTION",
            help="How long to store reports once their round is over, as 30d; their sums stay. A task may say less.",
        ),
    ] = None
    accept_clock: Annotated[
        bool, Option("--accept-clock", help="Trust the clock, even if this store has seen a later day.")
    ] = False
    http: Annotated[
        str,
        Option(
            group=HTTP,
            metavar="ADDRESS",
            envvar="HUSH_HTTP",
            help="HOST:PORT to serve HTTP on, as 127.0.0.1:8080.",
        ),
    ] = ""
    http_options: Annotated[HttpOptions, Prefixed("http", HTTP)] = field(default_factory=HttpOptions)
    home_assistant: Annotated[
        bool,
        Option(
            "--home-assistant",
            group=HOME_ASSISTANT,
            help="Announce each task to Home Assistant, as a device with sensors.",
        ),
    ] = False
    home_assistant_prefix: Annotated[
        str,
        Option(
            group=HOME_ASSISTANT,
            metavar="TOPIC",
            envvar="HUSH_HOME_ASSISTANT_PREFIX",
            help="Where Home Assistant looks for announcements.",
        ),
    ] = PREFIX
    home_assistant_page: Annotated[
        str,
        Option(
            group=HOME_ASSISTANT,
            parser=_page,
            metavar="ADDRESS",
            envvar="HUSH_HOME_ASSISTANT_PAGE",
            help="Address of the page of this service, to which the devices link.",
        ),
    ] = ""
    group: Annotated[
        str,
        Option(
            group=WORKERS,
            envvar="HUSH_GROUP",
            help="Share the reports with other workers of this group; needs PostgreSQL.",
        ),
    ] = ""
    worker: Annotated[
        str, Option(group=WORKERS, envvar="HUSH_WORKER", help="The name of this worker in its group, such as 1.")
    ] = ""
    notify: Annotated[
        str,
        Option(
            group=WEBHOOK,
            metavar="URL",
            envvar="HUSH_NOTIFY",
            help="Address of a webhook to notify once an estimate is precise enough.",
        ),
    ] = ""
    notify_secret_file: Annotated[
        Path | None,
        Option(group=WEBHOOK, help="File whose first line is the secret that signs its events, whsec_…."),
    ] = None
    notify_precision: Annotated[
        tuple[str, ...],
        Option(
            group=WEBHOOK,
            metavar="TASK=VALUE",
            envvar="HUSH_NOTIFY_PRECISION",
            help="TASK=VALUE: notify once the estimate is known to ±VALUE, or to ±VALUE%; may be repeated.",
        ),
    ] = ()
    log_format: LogFormatOption = LogFormat.TEXT

    def __post_init__(self) -> None:
        if self.control_password_file is not None and not self.control_user:
            raise OptionError(
                "--control-password-file", "is for the user that --control-user names; give both, or none"
            )
        self._check_values()
        if isinstance(parse_store(self.store), Path):
            self._check_file(Path(self.store))
        if bool(self.group) != bool(self.worker):
            raise OptionError("--group", "and --worker belong together: each worker of a group has its own name")
        if self.group and isinstance(parse_store(self.store), Path):
            raise OptionError("--group", "needs a store that several can use; give --store postgresql://…")
        if self.gateway and self.quota is None:
            raise OptionError("--gateway", "a gateway's quota is an exception to that of others; give --quota too")
        for name in () if self.http else self.http_options.given:
            raise OptionError(
                f"--http-{name}", "is about HTTP; give the address to serve it on with --http, or leave this out"
            )

    def _check_values(self) -> None:
        length = "is not a length of time; write seconds, or 0 for no end"
        level = "is not a valid topic level for Home Assistant; use letters, digits, _ and - (at most 64)"
        word = "cannot name a group or a worker; use letters, digits and _ . - (at most 64)"
        _check(
            "name",
            self.name,
            "a name is part of a topic; use letters, digits and . _ @ : - (at most 128)",
            valid=is_sender(self.name),
        )
        _check(
            "confidence",
            self.confidence,
            "a confidence lies between 0 and 1, for example 0.95",
            valid=0 < self.confidence < 1,
        )
        _check("login_timeout", self.login_timeout, length, valid=0 <= self.login_timeout < math.inf)
        if self.home_assistant:
            prefix = self.home_assistant_prefix
            _check("home_assistant", prefix, level, valid=_LEVEL.fullmatch(prefix) is not None)
        for setting, value in (("group", self.group), ("worker", self.worker)):
            _check(setting, value, word, valid=not value or is_group(value))
        _check(
            "quota",
            self.quota,
            "a quota is at least 1; leave it out to count any number of reports of one sender",
            valid=self.quota is None or self.quota >= 1,
        )
        senders = [one.sender for one in self.gateway]
        if len(set(senders)) < len(senders):
            raise OptionError("gateways", "a gateway is given twice; leave one out")

    @staticmethod
    def _check_file(file: Path) -> None:
        try:
            is_directory, has_place = file.is_dir(), file.parent.is_dir()
        except OSError as error:
            reason = f"cannot be opened ({error.strerror}); name another file"
            raise OptionError("store", f"{str(file)[:80]!r}: {reason}") from error
        _check("store", file, "is a directory; name a file", valid=not is_directory)
        _check("store", file, f"the directory {file.parent} does not exist; create it", valid=has_place)

    @property
    def control_login(self) -> Login:
        """The login for everything but reports."""
        user, file = self.control_user or self.login.user, self.control_password_file or self.login.password_file
        return Login(user=user, password_file=file)

    @property
    def status_name(self) -> str:
        """What its status is published under: each worker has its own."""
        return f"{self.name}-{self.worker}" if self.worker else self.name

    @property
    def limits(self) -> Limits | None:
        """What a store enforces."""
        return None if self.quota is None else Limits(self.quota, dict(self.gateway))


_LOG = logging.getLogger("hush.aggregator")


class HttpServer:
    """HTTP where an address is given for it, else nothing. It listens once it is made; at its end it is closed.

    Raises:
        OptionError: it cannot be served as it is wanted.
        MissingExtraError: a package that it needs is not installed.
    """

    def __init__(self, options: ServeOptions, store: StoreAddress) -> None:
        self._log_format = options.log_format
        self._counting: IntakeFigures | None = None
        self._access: HttpListener | None = None
        self._made: SharingEstimator | None = None
        self._inside = ExitStack()
        if not options.http:
            return
        with http_extra("hush serve --http"):
            from hush_aggregator.web import app, listen  # noqa: PLC0415 - only where it is wanted
        self._create_app, self._serve_http = app.create_app, app.serve_http
        self._access = listen.HttpListener.open(
            options.http, options.http_options, store, options.confidence, option="--http", prefix="--http-"
        )

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


_FORGET_S = 60.0
_STOP_S = 4.0

app: Commands = Commands()


@app.command()
def serve(options: ServeOptions) -> None:
    """Count the reports of tasks at a broker, and publish estimates with error bars.

    Counted are the tasks given here, and those of the store: of earlier starts, and of hush task publish.

    Runs until Ctrl-C or SIGTERM, and ends within five seconds then. Started again with the same store and name, it
    continues where it stopped: first it publishes the estimates that it had not published yet.
    """
    brokers = options.login.at(options.broker), options.control_login.at(options.broker)
    tasks = {path: read_task(path) for path in options.task}
    logging.getLogger("mqtt").setLevel(logging.CRITICAL)  # what paho has to say reaches a person as a BrokerError
    address = parse_store(options.store)
    http = HttpServer(options, address)
    with logging_to(sys.stderr, options.log_format) as log:
        with (
            http,
            open_store(address, options.limits, options.worker or "1") as store,
            ProcessEstimator() as estimator,
        ):
            check_files(store, tasks)
            notifier = notifier_of(
                options.notify,
                options.notify_secret_file,
                options.notify_precision,
                address,
                store,
                tasks=tasks.values(),
            )
            clock = ClockCheck(store, accept=options.accept_clock)
            service = _Service(options, brokers, [*tasks.values()], store, clock, estimator, http, log, notifier)
            asyncio.run(service.run())
            clock.note()
        _LOG.info("stopped", extra=fields("stopped"))


async def _forget(store: ServedStore) -> NoReturn:
    """Delete what the quotas know of rounds that have closed."""
    forget = partial(asyncio.to_thread, store.forget_senders)
    await repeat(forget, _FORGET_S, failure="quotas of closed rounds cannot be deleted", event="forget_failed")


@dataclass(frozen=True, slots=True)
class _Service:
    """The aggregator, and what runs next to it."""

    options: ServeOptions
    brokers: tuple[BrokerUrl, BrokerUrl]  # for reports, and for everything else
    tasks: Sequence[Task]
    store: ServedStore
    clock: ClockCheck
    estimator: ProcessEstimator
    http: HttpServer
    log: Log
    notifier: Notifier | None

    async def run(self) -> None:
        """Run until SIGINT or SIGTERM; raise the error of a part that failed."""
        progress, certificate = Progress(), CertificateWatch(self.brokers[0])
        self.http.begin(self.store)
        aggregator = self._aggregator(progress)
        running = asyncio.create_task(aggregator.run(), name="hush-aggregator")
        serving = self.http.run(aggregator, partial(self._values, aggregator, certificate), certificate)
        answering = asyncio.create_task(serving, name="hush-http")
        loop = asyncio.get_running_loop()

        def stop() -> None:
            running.cancel()
            answering.cancel()  # both end at the same time
            loop.call_later(_STOP_S, running.cancel)  # what waits for the broker then is given up

        for number in (signal.SIGINT, signal.SIGTERM):
            with suppress(NotImplementedError):  # Windows: Ctrl-C then ends in KeyboardInterrupt
                loop.add_signal_handler(number, stop)
        opened = warn_if_open(self.brokers[0], lambda: aggregator.connected)
        others = [progress.run(), self.clock.run(), _forget(self.store), self.log.run(), opened]
        if self.notifier is not None:
            others.append(self.notifier.run())
        beside = [asyncio.create_task(work, name="hush-beside") for work in others]
        try:
            await _run_with(running, beside, stop)
        finally:
            await _end([answering, *beside])
            progress.stop()

    def _aggregator(self, progress: Progress) -> Aggregator:
        options, (alone, separate) = self.options, self._connections()
        announcing = group = None
        if options.home_assistant:
            status = status_topic(options.status_name)
            identity, page = self.store.public_identity, options.home_assistant_page
            announcing = Announcing(options.home_assistant_prefix, status, identity, page)
        if options.group:
            group = WorkerGroup(options.group, options.worker, cast("LeasedStore", self.store))

        def committed(outcome: CommitOutcome) -> None:
            progress.add(outcome)
            self.http.add(outcome)

        is_frozen = False

        async def ready() -> None:
            nonlocal is_frozen
            if not is_frozen:  # the tasks are there, and stay: to look through them takes 0.1 s each time
                is_frozen = True
                gc.collect()
                gc.freeze()
            await self.clock.wait_until_plausible()

        return Aggregator(
            alone,
            self.store,
            tasks=self.tasks,
            name=options.name,
            confidence=options.confidence,
            estimator=self.http.share(self.estimator),
            on_commit=committed,
            ready=ready,
            any_task=options.any_task,
            on_estimate=self.clock.look_at,
            login_s=options.login_timeout or None,
            announcing=announcing,
            on_published=id if self.notifier is None else self.notifier.published,
            retention=options.retention,
            separate=separate,
            group=group,
        )

    def _connections(self) -> tuple[MqttBroker, SeparateConnections]:
        """The broker, by one connection and by two, under client ids that nobody can guess.

        Who knows such an id can take what waits for it.
        """
        reports, control = self.brokers
        identifier = f"hush-aggregator-{self.options.name}-{self.store.identity}"
        status = status_topic(self.options.status_name)
        alone = MqttBroker(reports, identifier, status=status)
        by_intake = bool(self.options.group)  # a worker that does not publish has no other connection, and is online
        intake = MqttBroker(reports, identifier, kept=True, status=status if by_intake else None)
        control_status = None if by_intake else status
        second = MqttBroker(control, f"{identifier}-control", kept=True, status=control_status, qos=0)
        return alone, SeparateConnections(intake, second)

    def _values(self, aggregator: Aggregator, certificate: CertificateWatch) -> "ServiceValues":
        from hush_aggregator.ops.service_metrics import ServiceValues  # noqa: PLC0415 - prometheus_client is an extra

        waiting = None if self.notifier is None else self.notifier.waiting
        return ServiceValues.read(parse_store(self.options.store), aggregator.estimates, certificate.until, waiting)


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
