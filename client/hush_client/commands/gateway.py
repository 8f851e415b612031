"""`hush gateway`: answer tasks for sensors that publish their values on a broker, each with its own ledger."""

import asyncio
import logging
import signal
import sys
from collections import Counter
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from hush_client.commands.report import (
    Broker,
    Ca,
    Cert,
    Device,
    Keep,
    Key,
    Lifetime,
    MaxEpsilon,
    PasswordFile,
    StateDirectory,
    Sticky,
    Total,
    User,
    check_device,
    check_seconds,
    name_state,
    read_policy,
    verified,
)
from hush_client.gateway import Gateway
from hush_client.limits import LONGEST_KEEP
from hush_client.policy import Policy
from hush_client.receipt import Receipt
from hush_client.sending.mqtt import MqttTransport
from hush_client.sending.schedule import LONGEST_SPREAD
from hush_client.sensors import WORDS, SensorField, SensorList, SensorReader, check_filter
from hush_client.state.database import make_private, state_directory
from hush_common.broker_url import LOGIN_FILE_HELP, BrokerUrl, address
from hush_common.domain import Domain
from hush_common.errors import OptionError, printable
from hush_common.formatting import whole
from hush_common.task import is_task_id
from hush_common.terminal import Column, Row, Sentence, Table, note, show

app: typer.Typer = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

_LIST_NAME = "sensors.txt"
_SUMMARY_S = 10.0
_MOST_SENSORS = 1000


@dataclass(frozen=True, slots=True)
class _Order:
    source: BrokerUrl
    filters: Sequence[str]
    fields: Mapping[str, SensorField]  # by task
    broker: BrokerUrl
    device: str
    state: Path
    policy: Policy
    spread: float
    keep: float
    wait: float
    max_age: float
    absent: Literal["answer", "skip"]
    most: int


@app.command()
def gateway(
    *,
    topic: Annotated[
        list[str], typer.Option(metavar="FILTER", help="Topics of the sensors, such as 'zigbee2mqtt/+'; repeatable.")
    ],
    task: Annotated[list[str], typer.Option(metavar="TASK", help="Id of a task to answer; repeatable.")],
    field: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH",
            help="Key of the value in a JSON message, as temperature or AM2301.Temperature; the whole message if not "
            "given. Once for all tasks, or once for each, in their order. Commas separate the coordinates of a vector.",
        ),
    ] = None,
    source: Annotated[
        str,
        typer.Option(metavar="ADDRESS", envvar="HUSH_SOURCE", help="Broker of the sensors, as --broker."),
    ] = "mqtt://localhost",
    source_user: Annotated[str, typer.Option(metavar="NAME", help="User name on the broker of the sensors.")] = "",
    source_password_file: Annotated[Path | None, typer.Option(metavar="FILE", help=LOGIN_FILE_HELP)] = None,
    yes_text: Annotated[
        str, typer.Option("--yes", metavar="TEXT", help="Text that means yes, for a yes/no task; ON if not given.")
    ] = "",
    no_text: Annotated[str, typer.Option("--no", metavar="TEXT", help="Text that means no; OFF if not given.")] = "",
    max_age: Annotated[
        float, typer.Option(metavar="SECONDS", min=1, help="How long a message of a sensor is current.")
    ] = 3600.0,
    wait: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0.1, help="How long to wait in each round for a value."),
    ] = 10.0,
    absent: Annotated[
        str,
        typer.Option(
            metavar="HOW",
            help="A sensor without a value: answer with a random value, or skip the round. Skip only where absence "
            "reveals nothing about a person, as of a sensor without power.",
        ),
    ] = "answer",
    most_sensors: Annotated[int, typer.Option(min=1, help="Most sensors that take part.")] = _MOST_SENSORS,
    check: Annotated[
        bool, typer.Option("--check", help="List the sensors, and which have a value for the tasks; answer nothing.")
    ] = False,
    broker: Broker = "mqtt://localhost",
    user: User = "",
    password_file: PasswordFile = None,
    ca: Ca = "",
    cert: Cert = "",
    key: Key = "",
    device: Device = "",
    state: StateDirectory = None,
    spread: Annotated[
        float,
        typer.Option(
            min=0,
            max=LONGEST_SPREAD,
            help="Longest random delay before sending, in seconds, so that the time of sending reveals nothing.",
        ),
    ] = 60.0,
    max_epsilon: MaxEpsilon = "4",
    lifetime: Lifetime = "4",
    total: Total = "",
    sticky: Sticky = False,
    keep: Keep = LONGEST_KEEP,
) -> None:
    """Answer tasks for sensors that speak MQTT, in each round, each sensor with its own ledger, until it is stopped.

    The values stay on the broker of the sensors and in memory; reports go to the broker of the aggregator. A sensor
    takes part from its first message on. The names of those that do are in sensors.txt in the state directory.
    """
    check_device(device)
    for option, seconds in (("--spread", spread), ("--wait", wait), ("--max-age", max_age)):
        check_seconds(option, seconds)
    if absent not in ("answer", "skip"):
        raise OptionError("--absent", "must be answer or skip")
    for one in topic:
        check_filter(one)
    order = _Order(
        address(source, {"user": source_user}, source_password_file),
        topic,
        _fields(task, field or [""], _words(yes_text, no_text)),
        address(broker, {"user": user, "ca": ca, "cert": cert, "key": key}, password_file),
        device,
        state_directory(state),
        read_policy(max_epsilon, lifetime, total, sticky=sticky),
        spread,
        keep,
        wait,
        max_age,
        "skip" if absent == "skip" else "answer",
        most_sensors,
    )
    name_state(state)
    with _warnings_on_stderr():
        asyncio.run(_until_stopped(_check(order) if check else _run(order)))


@contextmanager
def _warnings_on_stderr() -> Iterator[None]:
    """Print the warnings of the client as lines of the command."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Printable("hush: %(message)s"))
    handler.setLevel(logging.WARNING)
    logger = logging.getLogger("hush_client")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class _Printable(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def _words(yes: str, no: str) -> Mapping[str, bool]:
    if not (yes or no):
        return WORDS
    return {(no or "off").casefold(): False, (yes or "on").casefold(): True}


def _fields(tasks: Sequence[str], paths: Sequence[str], words: Mapping[str, bool]) -> dict[str, SensorField]:
    for one in tasks:
        if not is_task_id(one):
            raise OptionError("--task", "is not a task id; use a-z, 0-9 and -, at most 64")  # perhaps an address
    if len(paths) not in (1, len(tasks)):
        raise OptionError("--field", f"is given {len(paths)} times for {len(tasks)} tasks; write it once, or for each")
    if len(set(tasks)) < len(tasks):
        raise OptionError("--task", "names a task twice; write each once")
    paths = [*paths] if len(paths) == len(tasks) else [paths[0]] * len(tasks)
    return {one: SensorField(path, words) for one, path in zip(tasks, paths, strict=True)}


async def _until_stopped(work: Coroutine[Any, Any, None]) -> None:
    running = asyncio.create_task(work, name="hush-gateway")
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # Windows: Ctrl-C then ends in KeyboardInterrupt
            loop.add_signal_handler(number, running.cancel)
    with suppress(asyncio.CancelledError):
        await running
        return
    note("stopped; what waits is sent at the next start")


class _Rounds:
    """How many sensors have answered each round, for a line now and then."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, int | None], Counter[str]] = {}
        self._new: set[tuple[str, int | None]] = set()

    def add(self, receipt: Receipt) -> None:
        where = receipt.task, receipt.round
        outcome = "answered" if receipt.reason is None else f"refused ({receipt.meaning})"
        self._found.setdefault(where, Counter())[outcome] += 1
        self._new.add(where)

    async def print(self) -> None:
        while True:
            await asyncio.sleep(_SUMMARY_S)
            for where in sorted(self._new, key=str):
                counts = ", ".join(f"{whole(number)} {outcome}" for outcome, number in self._found[where].items())
                note(f"{where[0]}, round {where[1]}: {counts}")
            self._new.clear()
            while len(self._found) > 100:  # noqa: PLR2004 - tasks times the rounds that may still change
                self._found.pop(next(iter(self._found)))


async def _run(order: _Order) -> None:
    device = await verified(order.state, order.device)
    sensors, rounds = SensorList(order.state / _LIST_NAME, order.most), _Rounds()
    name = order.broker.user or device
    async with Gateway(
        MqttTransport(order.broker, name),
        name=name,
        state=order.state,
        policy=order.policy,
        spread=order.spread,
        keep=order.keep,
    ) as opened:

        def start(topic: str) -> None:
            for task, field in order.fields.items():
                opened.answer(
                    topic,
                    task,
                    partial(_current, reader, opened, topic, task, field),
                    source_timeout=order.wait,
                    absent=order.absent,
                    on_receipt=rounds.add,
                )

        reader = SensorReader(order.source, order.filters, sensors, max_age=order.max_age, on_new=start)
        for topic in sensors.topics:
            start(topic)
        tasks, known = " and ".join(order.fields), whole(len(sensors.topics))
        note(f"gateway {name}: {known} known sensors; answering {tasks}")
        printing = asyncio.create_task(rounds.print(), name="hush-rounds")
        try:
            await reader.run()
        finally:
            printing.cancel()


async def _current(reader: SensorReader, opened: Gateway, topic: str, task: str, field: SensorField) -> object:
    """Return the current value of a sensor, or None."""
    payload, known = reader.newest(topic), opened.tasks().get(task)
    return None if payload is None or known is None else field.read(payload, known.domain)


async def _check(order: _Order) -> None:
    """Print which sensors speak within the time to wait, and for which tasks they have a value. No value is printed."""
    make_private(order.state)
    spoken = _Spoken()
    reader = SensorReader(order.source, order.filters, spoken, max_age=order.max_age)
    device = await verified(order.state, order.device)
    name = order.broker.user or device
    async with Gateway(MqttTransport(order.broker, name), name=name, state=order.state, policy=order.policy) as opened:
        reading = asyncio.create_task(reader.run(), name="hush-sensors")
        try:
            domains = {one: (await opened.task(one, timeout=order.wait)).domain for one in order.fields}
            await asyncio.sleep(order.wait)
        finally:
            reading.cancel()
            await asyncio.wait({reading})
        rows = [_checked(topic, reader, order.fields, domains) for topic in sorted(spoken.topics)]
    if rows:
        show([Table([Column("sensor"), *(Column(one) for one in order.fields)], rows), Sentence("")])
    heard = f"{whole(len(rows))} {'sensor' if len(rows) == 1 else 'sensors'} in {order.wait:g} s. Nothing was answered."
    show([Sentence(heard, indent=0)])
    if not rows:
        raise OptionError("--topic", f"no message came on {order.filters[0]} from {order.source} in {order.wait:g} s")


class _Spoken(SensorList):
    """The sensors that a check has heard; they are not stored."""

    def __init__(self) -> None:
        self.topics = []

    def add(self, topics: Iterable[str]) -> list[str]:
        new = [topic for topic in dict.fromkeys(topics) if topic not in self.topics]
        self.topics += new
        return new


def _checked(topic: str, reader: SensorReader, fields: Mapping[str, SensorField], domains: Mapping[str, Domain]) -> Row:
    payload = reader.newest(topic) or b""
    cells = []
    for task, field in fields.items():
        domain = domains[task]
        reading = domain.read(field.read(payload, domain), strict=False)
        cells.append({"used": "usable", "moved": "beyond the bounds", "replaced": "no value"}[reading.coercion])
    return Row([topic, *cells])
