"""`hush gateway`: answer tasks for sensors that publish their values on a broker, each with its own ledger."""

import asyncio
import logging
import signal
import sys
from collections import Counter
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from hush_client.commands.options import (
    BrokerOptions,
    DeviceOptions,
    Keep,
    PolicyOptions,
    Spread,
    check_seconds,
)
from hush_client.commands.report import name_state, verified
from hush_client.gateway import Gateway
from hush_client.limits import LONGEST_KEEP
from hush_client.policy import Policy
from hush_client.receipt import Receipt
from hush_client.sending.mqtt import MqttTransport
from hush_client.sending.schedule import utc_now
from hush_client.sensor_list import LIST_NAME, Admission, Participation, SensorKey, SensorList
from hush_client.sensor_messages import OPPOSITES, WORDS, SensorField
from hush_client.sensors import SensorReader, check_filter
from hush_client.state.database import make_private, state_directory
from hush_common.broker_url import BrokerUrl, address
from hush_common.domain import Domain
from hush_common.errors import BrokerError, OptionError, TaskError, printable
from hush_common.formatting import whole
from hush_common.options import LOGIN_FILE_HELP, Commands, Option
from hush_common.task import is_task_id
from hush_common.terminal import Column, Row, Sentence, Table, note, show
from hush_common.topics import matches

app: Commands = Commands()

_SUMMARY_S = 10.0
_SILENCE_S = 60.0
_MOST_SENSORS = 1000
_LONGEST_S = 100 * 365 * 24 * 3600.0
_A_MONTH_S = 30 * 24 * 3600.0
_EVENTS = (
    "Confirm no key that is sent only on an event (an alarm, an action, a low battery): that the sensor takes part "
    "would reveal the event."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayOptions:
    topic: Annotated[
        tuple[str, ...], Option(metavar="FILTER", help="Topics of the sensors, such as 'zigbee2mqtt/+'; repeatable.")
    ]
    task: Annotated[tuple[str, ...], Option(metavar="TASK", help="Id of a task to answer; repeatable.")]
    field: Annotated[
        tuple[str, ...],
        Option(
            metavar="PATH",
            help="Key of the value in a JSON message, as temperature or AM2301.Temperature; the whole message if not "
            "given. Once for all tasks, or once for each, in their order. Commas separate the coordinates of a vector.",
        ),
    ] = ()
    take_part: Annotated[
        tuple[str, ...],
        Option(
            metavar="TOPIC",
            help="A sensor that takes part, a filter, or 'all' with the key; repeatable. It is stored: give it once.",
        ),
    ] = ()
    exclude: Annotated[tuple[str, ...], Option(metavar="FILTER", help="Topics that take no part; repeatable.")] = ()
    source: Annotated[
        str, Option(metavar="ADDRESS", envvar="HUSH_SOURCE", help="Broker of the sensors, as --broker.")
    ] = "mqtt://localhost"
    source_user: Annotated[str, Option(help="User name on the broker of the sensors.")] = ""
    source_password_file: Annotated[Path | None, Option(help=LOGIN_FILE_HELP)] = None
    yes: Annotated[
        str,
        Option(
            metavar="TEXT",
            help="The only value that means yes, for a yes/no task: a text, number or true/false.",
        ),
    ] = ""
    no: Annotated[
        str, Option(metavar="TEXT", help="The only value that means no; if not given, the opposite of --yes.")
    ] = ""
    max_age: Annotated[float, Option(metavar="SECONDS", min=1, help="How long a value of a sensor is current.")] = (
        3600.0
    )
    time_field: Annotated[
        str,
        Option(metavar="PATH", help="Key of the time in a message, as last_seen: then retained values count."),
    ] = ""
    forget_after: Annotated[
        float,
        Option(
            metavar="SECONDS", min=1, help="A sensor that sends nothing for so long takes no part until it does again."
        ),
    ] = _A_MONTH_S
    wait: Annotated[float, Option(metavar="SECONDS", min=0.1, help="How long to wait in each round for a value.")] = (
        10.0
    )
    absent: Annotated[
        str,
        Option(
            metavar="HOW",
            help="A sensor without a value: answer with a random value, or skip the round. Skip only where absence "
            "reveals nothing about a person, as of a sensor without power.",
        ),
    ] = "answer"
    most_sensors: Annotated[
        int, Option(min=1, help="Most sensors that are listed by themselves; those that you confirm always are.")
    ] = _MOST_SENSORS
    check: Annotated[
        bool,
        Option("--check", help="List the sensors, which take part and which have a value; answer and store nothing."),
    ] = False
    where: BrokerOptions
    limits: PolicyOptions
    device: DeviceOptions
    spread: Spread = 60.0
    keep: Keep = LONGEST_KEEP

    def __post_init__(self) -> None:
        for option in ("spread", "wait", "max_age", "forget_after"):
            check_seconds(f"--{option.replace('_', '-')}", getattr(self, option))
        if self.absent not in ("answer", "skip"):
            raise OptionError("--absent", "must be answer or skip")
        for option, filters in (("topic", self.topic), ("take-part", self.take_part), ("exclude", self.exclude)):
            for one in filters:
                check_filter(one, f"--{option}")


@dataclass(frozen=True, slots=True)
class _Order:
    """The options, and what was read from them."""

    options: GatewayOptions
    source: BrokerUrl
    fields: Mapping[str, SensorField]  # by task
    broker: BrokerUrl
    state: Path
    policy: Policy


@app.command()
def gateway(options: GatewayOptions) -> None:
    """Answer tasks for sensors that speak MQTT, in each round, each sensor with its own ledger, until it is stopped.

    The values stay on the broker of the sensors and in memory; reports go to the broker of the aggregator. A sensor is
    a candidate once a live message has the key, and takes part once you confirm it: with --take-part, or in sensors.txt
    in the state directory. Do not confirm a key that is sent only on an event.
    """
    order = _Order(
        options,
        address(options.source, {"user": options.source_user}, options.source_password_file),
        _fields(options.task, options.field or ("",), _words(options.yes, options.no)),
        options.where.address(),
        state_directory(options.device.state),
        options.limits.policy(),
    )
    name_state(options.device.state)
    with _warnings_on_stderr():
        asyncio.run(_until_stopped(_check(order) if options.check else _run(order)))


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
    """Return the words for yes and no; of one word alone, the other is its opposite."""
    if not (yes or no):
        return WORDS
    opposites = {**OPPOSITES, **{no: yes for yes, no in OPPOSITES.items()}}
    yes, no = yes.strip().casefold(), no.strip().casefold()
    yes, no = yes or opposites.get(no, "on"), no or opposites.get(yes, "off")
    if yes == no:
        raise OptionError("--no", "is the same word as --yes; write two different ones")
    return {no: False, yes: True}


def _fields(tasks: Sequence[str], paths: Sequence[str], words: Mapping[str, bool]) -> dict[str, SensorField]:
    for one in tasks:
        if not is_task_id(one):
            raise OptionError("--task", "is not a task id; use a-z, 0-9 and -, at most 64")  # perhaps an address
    if len(paths) not in (1, len(tasks)):
        raise OptionError("--field", f"is given {len(paths)} times for {len(tasks)} tasks; write it once, or for each")
    if len(set(tasks)) < len(tasks):
        raise OptionError("--task", "names a task twice; write each once")
    paths = [*paths] if len(paths) == len(tasks) else [paths[0]] * len(tasks)
    for path in paths:
        if not path.isprintable():
            raise OptionError("--field", "has a character that is not printable; write the key as the messages have it")
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
        if receipt.status == "already_answered":
            outcome = "answered before"
        self._found.setdefault(where, Counter())[outcome] += 1
        self._new.add(where)

    def print(self) -> None:
        """Print the rounds that have changed."""
        for where in sorted(self._new, key=str):
            counts = ", ".join(f"{whole(number)} {outcome}" for outcome, number in self._found[where].items())
            note(f"{where[0]}, round {where[1]}: {counts}")
        self._new.clear()
        while len(self._found) > 100:  # noqa: PLR2004 - tasks times the rounds that may still change
            self._found.pop(next(iter(self._found)))


def _confirmed(order: _Order) -> list[str]:
    """Return the sensors that take part."""
    return ["#" if one == "all" else one for one in order.options.take_part]


async def _list(order: _Order, opened: Gateway) -> SensorList:
    """Read the list of sensors."""
    admission = Admission(
        confirmed=_confirmed(order),
        excluded=order.options.exclude,
        read=order.options.topic,
        keys={field.key for field in order.fields.values()},
        most=order.options.most_sensors,
        forget_after=timedelta(seconds=min(order.options.forget_after, _LONGEST_S)),
        had_answered=frozenset(await opened.devices()),
    )
    return SensorList(order.state / LIST_NAME, admission, utc_now)


def _asked(order: _Order, sensors: SensorList) -> dict[SensorKey, Participation]:
    """Return whether each topic takes part, for the keys of this run: the list may have others."""
    keys = {field.key for field in order.fields.values()}
    return {key: one for key, one in sensors.all().items() if key[0] in keys}


def _unheard(order: _Order, asked: Mapping[SensorKey, Participation]) -> list[str]:
    """Return a line for each --take-part that no topic matches: it may be misspelt."""
    return [
        f"--take-part {one}: no message came on it; check the topic, and that --topic matches it"
        for one in _confirmed(order)
        if one != "#" and not any(matches(one, topic) for _, topic in asked)
    ]


class _Answers:
    """Answers for the sensors that take part, and prints which do."""

    def __init__(self, order: _Order, opened: Gateway, sensors: SensorList) -> None:
        self._order, self._opened, self._sensors = order, opened, sensors
        self._rounds = _Rounds()
        self._answered: set[SensorKey] = set()
        self._printed: dict[SensorKey, Participation] = {}
        self._mismatched: set[str] = set()  # tasks that no message can have a value for
        self._is_crowded = False
        self._waited = 0.0
        self.reader = SensorReader(
            order.source,
            order.options.topic,
            [*order.fields.values()],
            sensors,
            max_age=order.options.max_age,
            time_field=order.options.time_field,
            on_change=self.update,
        )

    def update(self) -> None:
        """Store the list if it has changed, and only then answer for those that take part."""
        if not self._sensors.is_changed or not self._sensors.save():
            return
        self._sensors.is_changed = False
        all_asked = _asked(self._order, self._sensors)
        wanted = {key for key, one in all_asked.items() if one is Participation.TAKES_PART}
        for field, topic in sorted(wanted - self._answered):
            for task in self._tasks(field):
                self._start(topic, task)
        for field, topic in self._answered - wanted:
            for task in self._tasks(field):
                self._opened.stop_answering(topic, task)
        self._answered = wanted

    def drop_mismatched(self) -> None:
        """Stop answering tasks that no message can have a value for, instead of answering at random; print which."""
        known = self._opened.tasks()
        for task, field in self._order.fields.items():
            why = field.mismatch(known[task].domain) if task in known and task not in self._mismatched else ""
            if not why:
                continue
            for of, topic in self._answered:
                if of == field.key:
                    self._opened.stop_answering(topic, task)
            self._mismatched.add(task)
            note(f"{task}: not answered: --field {field.key} {why}; correct it, and start the gateway again")

    async def keep_up(self) -> None:
        """Follow the clock and the changes of a person, and print what is new, until cancelled.

        Raises:
            StateError: the list of sensors cannot be stored, or a person has made a mistake in it.
        """
        while True:
            await asyncio.sleep(_SUMMARY_S)
            self.drop_mismatched()
            self._sensors.read()
            self._sensors.is_changed = True  # a sensor may have been silent for too long
            self.update()
            self._print_sensors()
            await self._print_silence()
            self._rounds.print()

    def print_start(self, name: str) -> None:
        counts = Counter(_asked(self._order, self._sensors).values())
        taking, waiting = whole(counts[Participation.TAKES_PART]), whole(counts[Participation.WAITS])
        sensors = f"sensors that take part: {taking}; that wait for your yes in {self._sensors.path}: {waiting}"
        note(f"gateway {name}, for {' and '.join(self._order.fields)}: {sensors}")

    def _start(self, topic: str, task: str) -> None:
        self._opened.answer(
            topic,
            task,
            partial(_current, self.reader, self._opened, topic, task, self._order.fields[task]),
            source_timeout=self._order.options.wait,
            absent="skip" if self._order.options.absent == "skip" else "answer",
            on_receipt=self._rounds.add,
        )

    def _tasks(self, field: str) -> list[str]:
        fields = self._order.fields.items()
        return [task for task, one in fields if one.key == field and task not in self._mismatched]

    def _print_sensors(self) -> None:
        for key, one in _asked(self._order, self._sensors).items():
            if self._printed.get(key) is one:
                continue
            self._printed[key] = one
            field, topic = key
            tasks = " and ".join(self._tasks(field))
            if not tasks:
                continue
            if one is Participation.TAKES_PART:
                note(f"{topic} takes part in {tasks}")
            else:
                note(f"{topic} takes no part in {tasks}: {one.explain(field)}")
        if self._sensors.is_crowded and not self._is_crowded:
            self._is_crowded = True
            note("more topics match than hush follows; name those of sensors only (--topic)")

    async def _print_silence(self) -> None:
        """Print, once, filters and topics without a message, and unknown tasks; the client logs those it answers."""
        before, self._waited = self._waited, self._waited + _SUMMARY_S
        if not before < _SILENCE_S <= self._waited:
            return
        for one in self.reader.silent:
            what = f"no message came on {one} from {self._order.source} in {_SILENCE_S:g} s"
            note(f"{what}; check --topic, and that the user may read it")
        for line in _unheard(self._order, _asked(self._order, self._sensors)):
            note(line)
        for task in () if self._answered else self._order.fields:
            try:
                await self._opened.task(task, timeout=1)
            except (BrokerError, TaskError) as error:
                note(f"{task}: not answered: {error}")


async def _run(order: _Order) -> None:
    device = await verified(order.state, order.options.device.device)
    name = order.broker.user or device
    async with Gateway(
        MqttTransport(order.broker, name),
        name=name,
        state=order.state,
        policy=order.policy,
        spread=order.options.spread,
        keep=order.options.keep,
    ) as opened:
        answers = _Answers(order, opened, await _list(order, opened))
        answers.print_start(name)
        answers.drop_mismatched()  # of tasks that are stored
        answers.update()
        keeping = asyncio.create_task(answers.keep_up(), name="hush-sensor-list")
        reading = asyncio.create_task(answers.reader.run(), name="hush-sensors")
        try:
            await asyncio.wait((keeping, reading), return_when=asyncio.FIRST_COMPLETED)
        finally:
            keeping.cancel()
            reading.cancel()
        for ended in (keeping, reading):
            if ended.done():
                ended.result()


async def _current(reader: SensorReader, opened: Gateway, topic: str, task: str, field: SensorField) -> object:
    """Return the current value of a sensor, or None."""
    known = opened.tasks().get(task)
    return None if known is None else reader.current(topic, field, known.domain)


async def _check(order: _Order) -> None:
    """Print which sensors speak within the time to wait, and for which tasks they have a value. No value is printed."""
    make_private(order.state)
    device = await verified(order.state, order.options.device.device)
    name = order.broker.user or device
    async with Gateway(MqttTransport(order.broker, name), name=name, state=order.state, policy=order.policy) as opened:
        sensors = await _list(order, opened)
        fields = [*order.fields.values()]
        reader = SensorReader(
            order.source,
            order.options.topic,
            fields,
            sensors,
            max_age=order.options.max_age,
            time_field=order.options.time_field,
        )
        reading = asyncio.create_task(reader.run(), name="hush-sensors")
        try:
            domains = {one: (await opened.task(one, timeout=order.options.wait)).domain for one in order.fields}
            for task, field in order.fields.items():
                if why := field.mismatch(domains[task]):
                    raise OptionError("--field", f"{field.key} {why}; correct it for {task}")
            await asyncio.sleep(order.options.wait)
        finally:
            reading.cancel()
            await asyncio.wait({reading})
        asked = _asked(order, sensors)
        rows = [_checked(key, reader, order.fields, domains, sensors) for key in sorted(asked)]
    _print_check(order, rows, Counter(asked.values()))
    for line in _unheard(order, asked):
        note(line)
    if len(reader.silent) == len(order.options.topic):
        what = f"no message came on {order.options.topic[0]} from {order.source} in {order.options.wait:g} s"
        raise OptionError("--topic", f"{what}; correct it, or wait longer for sensors that send rarely (--wait)")


def _print_check(order: _Order, rows: Sequence[Row], counts: Counter[Participation]) -> None:
    if rows:
        columns = [Column("sensor"), *(Column(one) for one in order.fields), Column("takes part")]
        show([Table(columns, rows), Sentence("")])
    taking = counts[Participation.TAKES_PART]
    listened = (
        f"Listened for {order.options.wait:g} s. Topics: {whole(len(rows))}; sensors that take part: {whole(taking)}."
    )
    show([Sentence(f"{listened} Nothing was answered.", indent=0)])
    if counts[Participation.WAITS]:
        show(
            [
                Sentence(
                    "Confirm a candidate with --take-part TOPIC. Or start the gateway without --check, and write yes "
                    f"in {order.state / LIST_NAME}.",
                    indent=0,
                )
            ]
        )
        show([Sentence(_EVENTS, indent=0)])


def _checked(
    key: SensorKey,
    reader: SensorReader,
    fields: Mapping[str, SensorField],
    domains: Mapping[str, Domain],
    sensors: SensorList,
) -> Row:
    of, topic = key
    cells = []
    for task, field in fields.items():
        if field.key == of:
            reading = domains[task].read(reader.current(topic, field, domains[task]), strict=False)
            cells.append({"used": "usable", "moved": "beyond the bounds", "replaced": "no value"}[reading.coercion])
        else:
            cells.append("")
    one = sensors.participation(*key)
    return Row([topic, *cells, "yes" if one is Participation.TAKES_PART else f"no: {one.explain(of)}"])
