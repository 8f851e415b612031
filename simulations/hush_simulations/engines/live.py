"""The live engine: real gateways, a real aggregator and a broker, on one question, until every report is counted.

Nothing is skipped: each device charges its ledger and stores its report before the first byte is sent, every report
is one MQTT message, and the aggregator commits it to SQLite before it is acknowledged. The `memory` engine has no
sockets, and its gateways send the reports of many devices in one message, as real ones may.
"""

import asyncio
import random
import secrets
import tempfile
import time
from array import array
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.aggregator import Aggregator
from hush_aggregator.delivery.session import Broker, BrokerSession
from hush_aggregator.estimate.result import Result
from hush_aggregator.store.base import CommitOutcome
from hush_aggregator.store.sqlite import SqliteStore
from hush_client.gateway import Gateway
from hush_client.policy import Policy
from hush_client.privacy.answer import FRAME_REPORTS
from hush_client.receipt import Receipt
from hush_client.sending.transport import Transport
from hush_common.broker_url import BrokerUrl
from hush_common.errors import BrokerError, HushError, flatten_group
from hush_common.rng import ReportRng, SystemRng
from hush_common.task import Task
from hush_common.topics import ALL_REPORTS, ALL_TASKS, estimate_topic, is_sender, report_topic, status_topic, task_topic
from hush_common.wire import Report, encode_frame
from hush_simulations.brokers.choice import is_external, open_broker
from hush_simulations.brokers.faulty import Fate, FaultyTransport
from hush_simulations.brokers.memory import MemoryBroker
from hush_simulations.engines.experiment import (
    ABSENT,
    Experiment,
    Outcome,
    RoundOutcome,
    SeededRng,
    count_handled,
    read_received,
)
from hush_simulations.scenarios.behaviour import Faults, Liars, as_numbers, truthful_count

_TIDY_SECONDS = 10.0


class SingleTaskBroker:
    """A bus for one task only, which knows whether it is connected.

    With a whole bus, a simulation on a shared broker would collect reports of other tasks, and publish estimates from
    the part of them that it saw.

    Attributes:
        attempted: set once the first attempt to connect has ended, either way.
        connected: set while there is a connection.
        troubled: set while there is none, from the first failure on.
        trouble: why the last attempt or connection ended, or None.
    """

    def __init__(self, bus: Broker, task_id: str) -> None:
        self.attempted: asyncio.Event = asyncio.Event()
        self.connected: asyncio.Event = asyncio.Event()
        self.troubled: asyncio.Event = asyncio.Event()
        self.trouble: BrokerError | None = None
        self._bus = bus
        self._own = {
            ALL_TASKS: task_topic(task_id),
            ALL_REPORTS: report_topic(task_id, "sender").removesuffix("sender") + "+",
        }

    @property
    def name(self) -> str:
        return self._bus.name

    @asynccontextmanager
    async def connect(self, filters: Sequence[str]) -> AsyncIterator[BrokerSession]:
        try:
            async with self._bus.connect([self._own.get(wanted, wanted) for wanted in filters]) as session:
                self.trouble = None
                self.troubled.clear()
                self.connected.set()
                self.attempted.set()
                yield session
        except BrokerError as error:
            self.trouble = error
            self.troubled.set()
            self.attempted.set()
            raise
        finally:
            self.connected.clear()


async def _tidy(bus: Broker, task_id: str, aggregator: str) -> None:
    """Clear the retained messages of a simulation and the session of its aggregator; do nothing if that fails.

    The bus has the client id of the aggregator: connecting once with a clean session ends its persistent one.
    """
    topics = (task_topic(task_id), estimate_topic(task_id), status_topic(aggregator))
    with suppress(BrokerError, TimeoutError):
        async with asyncio.timeout(_TIDY_SECONDS), bus.connect(()) as session:
            for topic in topics:
                await session.publish(topic, b"", retain=True)


_PATIENCE_SECONDS = 10.0  # the embedded broker sometimes loses an answer
_HEAD = 40  # characters of a task id; the remaining 24 make it unique on a shared broker


@dataclass(frozen=True, slots=True)
class Network:
    """How the aggregator and the gateways connect to the broker."""

    task: Task  # the question, under an id that is free on that broker
    aggregator: str  # a name that no other aggregator there has
    bus: SingleTaskBroker  # for the aggregator
    transport: Callable[[int], Transport]  # for the gateway of a number
    # The name in the topics of that gateway: the user of its login, since access rules name users.
    sender: Callable[[int], str]


@asynccontextmanager
async def open_network(experiment: Experiment, directory: Path) -> AsyncIterator[Network]:
    """Start or find the broker of an experiment, and leave nothing on it; raise BrokerError if that fails."""
    name = f"simulation-{secrets.token_hex(4)}"
    if experiment.engine == "memory":
        memory, task = MemoryBroker(), experiment.task
        yield Network(task, name, SingleTaskBroker(memory.bus(name), task.id), lambda _: memory.transport(), _gateway)
        return
    from hush_aggregator.delivery.mqtt import MqttBroker  # noqa: PLC0415 - aiomqtt and paho, which the engine "memory" does not need
    from hush_client.sending.mqtt import MqttTransport  # noqa: PLC0415

    task = _task(experiment, name)
    identifier = f"hush-{name}"
    async with open_broker(experiment.broker, directory) as url:
        bus = MqttBroker(url, identifier, status=status_topic(name), patience=_PATIENCE_SECONDS)
        sender = _sender(url)
        try:
            single = SingleTaskBroker(bus, task.id)
            yield Network(task, name, single, lambda number: MqttTransport(url, _gateway(number)), sender)
        finally:
            if is_external(experiment.broker):
                await _tidy(MqttBroker(url, identifier), task.id, name)


def _task(experiment: Experiment, name: str) -> Task:
    """The task, on a shared broker under an id of this run."""
    task = experiment.task
    if not is_external(experiment.broker):
        return task
    return experiment.scenario.asking(id=f"{task.id[:_HEAD]}-{name}").task()


def _gateway(number: int) -> str:
    return f"gateway-{number}"


def _sender(url: BrokerUrl) -> Callable[[int], str]:
    user = url.user
    if user is not None and not is_sender(user):
        raise BrokerError(str(url), "this user cannot be part of a topic; use letters, digits and . _ @ : -")
    return _gateway if user is None else lambda _: user


_LATENESS_SECONDS = 0.05


@dataclass(slots=True)
class FaultDraws:
    """The faults of reports under a topic, drawn for each publication; `forgotten` counts acknowledged losses."""

    faults: Faults
    topic: str
    seed: int
    forgotten: int = field(default=0, init=False)
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(f"{self.seed}/1")  # noqa: S311 - faults of the network are not secret

    def around(self, transport: Transport) -> Transport:
        """Return the transport with faults."""
        if not self.faults:
            return transport
        return FaultyTransport(transport, self._fate, lambda: _LATENESS_SECONDS)

    def _fate(self, topic: str, payload: bytes) -> Fate:  # noqa: ARG002 - a fault ignores the content
        if not topic.startswith(self.topic):
            return Fate.GOOD
        draw = self._random.random()
        for fate in (Fate.LOST, Fate.CUT, Fate.LATE, Fate.TWICE, Fate.REORDERED, Fate.FORGOTTEN):
            share: float = getattr(self.faults, fate.name.lower())
            if draw < share:
                self.forgotten += fate is Fate.FORGOTTEN
                return fate
            draw -= share
        return Fate.GOOD


def _forged(task: Task, round_: int, some: Liars, value: object, rng: ReportRng) -> Iterator[bytes]:
    """Return what one liar with a true value publishes in a round; of several epsilons it takes the largest."""
    claimed, copies, different = (value, 1 + some.reports, 1) if some.lie == "replay" else (some.value, 1, some.reports)
    for _ in range(different):
        report = Report.new(task.report_digest, round_, _body(task, some, claimed, rng), rng)
        for _ in range(copies):
            yield encode_frame((report,))


def _body(task: Task, some: Liars, claimed: object, rng: ReportRng) -> tuple[int, ...]:
    if some.lie == "edge":
        from hush_simulations.engines.bulk.laws import extreme_body  # noqa: PLC0415 - few scenarios have such liars

        return extreme_body(task.randomizer)
    index = task.domain.complete(task.domain.read(claimed), rng)
    return task.perturb(index, rng, max(len(task.offers) - 1, 0))


class VirtualClock:
    """A clock for client and aggregator: the current time and an offset, with which it begins at `start`."""

    def __init__(self, start: datetime | None = None) -> None:
        self._offset = timedelta(0) if start is None else start - datetime.now(UTC)

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self._offset

    def turn_to(self, moment: datetime) -> None:
        """Move the clock forward to `moment` (aware); it never goes back."""
        self._offset = max(self._offset, moment - datetime.now(UTC))


_REFUSING, _SHOCKS, _DROPPING = 2, 3, 4  # streams of a seed; 1 chooses epsilons


@dataclass(slots=True)
class Answers:
    """The answers of a round: devices that reported, values clamped to the domain, and others by their reason."""

    reporters: "array[int]" = field(default_factory=lambda: array("q"))
    clamped: int = 0
    declined: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Attendance:
    """Which honest devices answer, as the panel of the scenario says. Liars always do."""

    refusing: NDArray[np.bool_]  # devices that never answer, shape (devices,)
    # Probability that a device answers in a round, shape (rounds, devices); None if all do.
    present: NDArray[np.float64] | None
    seed: int = field(repr=False)  # of the draws of each round

    @classmethod
    def of(cls, experiment: Experiment, truthful: int) -> Self:
        """Return that of the first `truthful` devices."""
        scenario, domain, seed = experiment.scenario, experiment.task.domain, experiment.seed or 0
        panel, names = scenario.panel, scenario.groups
        groups = np.array(experiment.groups[:truthful] if names else [0] * truthful, dtype=np.int64)
        refusing = np.zeros(truthful, dtype=bool)
        if panel.nonresponse:
            numbers = as_numbers(domain, experiment.values[:truthful])
            chances = panel.refusing(domain, numbers, groups, names)
            refusing = np.random.default_rng([seed, _REFUSING]).random(truthful) < chances
        present = None
        if panel.dropout.share:
            shocks = np.random.default_rng([seed, _SHOCKS])
            present = panel.dropout.present(experiment.task.rounds, 1, max(len(names), 1), shocks)[:, 0, groups]
        return cls(refusing, present, seed)

    def away(self, round_: int) -> frozenset[int]:
        """Return the devices that do not answer."""
        missing = self.refusing
        if self.present is not None:
            draws = np.random.default_rng([self.seed, _DROPPING, round_]).random(len(missing))
            missing = missing | (draws >= self.present[round_])
        return frozenset(np.nonzero(missing)[0].tolist())


_CONCURRENT = 2000  # answers in flight, from the first draw to the commit: bounds every queue
_GROUPS = 2  # of devices, at each gateway: one is drawn while another is sent


class DevicePool:
    """Lets devices answer, several of one gateway together.

    That does not change their reports: a gateway draws for its devices one after the other. `declined` is called with
    the number of answers that devices declined.
    """

    def __init__(
        self, experiment: Experiment, task: Task, stop: asyncio.Event, declined: Callable[[int], None]
    ) -> None:
        self._experiment, self._task, self._stop, self._declined = experiment, task, stop, declined
        self._places = asyncio.Semaphore(_CONCURRENT)

    def release(self, answers: int) -> None:
        """Make room for as many answers."""
        for _ in range(answers):
            self._places.release()

    async def ask_all(self, round_: int, queues: Sequence[tuple[Gateway, Iterator[int]]], answers: Answers) -> None:
        """Ask the devices of each gateway, all gateways at the same time, until all have answered or it is stopped."""
        # Devices that choose among offers are asked individually: those of one call have one epsilon.
        largest = 1 if self._experiment.choices else max(1, _CONCURRENT // (_GROUPS * len(queues)))
        groups = _GROUPS if largest > 1 else -(-_CONCURRENT // len(queues))
        async with asyncio.TaskGroup() as group:
            for position, (gateway, devices) in enumerate(queues):
                for worker in range(groups):
                    asking = self._ask(round_, gateway, devices, largest, answers)
                    group.create_task(asking, name=f"hush-devices-{position}-{worker}")

    async def _ask(self, round_: int, gateway: Gateway, devices: Iterator[int], largest: int, answers: Answers) -> None:
        while True:
            places = await self._take_places(largest)
            group = [] if self._stop.is_set() else list(islice(devices, places))
            self.release(places - len(group))
            if not group:
                return
            for device, receipt in zip(group, await self._report(round_, gateway, group), strict=True):
                if receipt.reason is None:
                    answers.reporters.append(device)
                    answers.clamped += receipt.value == "moved"
                else:
                    answers.declined[receipt.reason] += 1
                    self._declined(1)

    async def _take_places(self, most: int) -> int:
        """Wait for one place, and take the free ones: a task that held some and waited for more could wait for ever."""
        await self._places.acquire()
        taken = 1
        while taken < most and not self._places.locked():
            await self._places.acquire()
            taken += 1
        return taken

    async def _report(self, round_: int, gateway: Gateway, group: Sequence[int]) -> list[Receipt]:
        experiment, choices = self._experiment, self._experiment.choices
        receipts = await gateway.report_many(
            self._task.id,
            {f"device-{device}": experiment.value(device, round_) for device in group},
            timeout=None,
            epsilon=self._task.offers[choices[group[0]]] if choices else None,
        )
        return list(receipts.values())


Progress = Callable[[int], None]
"""Called with the number of answers that are counted, refused or declined so far, whenever it changes."""

Watch = Callable[[Result], None]
"""Called with the aggregator's result a few times per second while reports arrive: its `anytime` intervals may
be watched, and no others."""

_FIRST_LOOK_S, _LOOK_EVERY_S = 0.1, 0.25
_LOOK_SHARE = 0.2  # of the time, at most: an estimate of many categories takes long
_GRACE_SECONDS = 5.0  # without a connection before the run is given up
_STALL_SECONDS = 15.0  # without a counted report: the missing ones are lost
_PAUSES = 10  # in which such a time is waited: one in which the whole machine slept, however long, is only one of them


async def simulate(
    experiment: Experiment,
    on_progress: Progress | None = None,
    on_look: Watch | None = None,
    stop: asyncio.Event | None = None,
) -> Outcome:
    """Run an experiment to its end, or until `stop` is set: then no further device is asked, but what was sent counts.

    Raises:
        BrokerError: no broker, a login refused, or a connection that stays lost.
        StateError: a device cannot write its state (a full disk).
        StoreError: the aggregator cannot write its store.
    """
    with tempfile.TemporaryDirectory(prefix="hush-simulation-", ignore_cleanup_errors=True) as directory:
        try:
            async with open_network(experiment, Path(directory)) as network:
                return await _Run(
                    experiment,
                    network,
                    Path(directory),
                    stop=stop or asyncio.Event(),
                    on_progress=on_progress or (lambda _: None),
                    on_look=on_look,
                ).run()
        except BaseExceptionGroup as errors:
            raise _reason(errors) from errors


class _Run:
    """One run: asks the devices, waits until their reports are counted, and gives up when they are not."""

    def __init__(
        self,
        experiment: Experiment,
        network: Network,
        directory: Path,
        *,
        stop: asyncio.Event,
        on_progress: Progress,
        on_look: Watch | None,
    ) -> None:
        self._experiment = experiment
        self._network = network
        self._directory = directory
        self._on_progress = on_progress
        self._on_look = on_look
        self._clock = VirtualClock(network.task.opens)
        self._counted = 0  # reports that the aggregator accepted or refused, without redeliveries
        self._settled = 0  # these, and answers that their devices declined
        self._moved = asyncio.Event()
        self._devices = DevicePool(experiment, network.task, stop, self._settle)
        # Over a network each report is a separate message, as of devices with a connection each; with faults too, which
        # are drawn for each message.
        alone = experiment.engine != "memory" or experiment.scenario.faults
        self._frame = 1 if alone else FRAME_REPORTS
        self._stop = stop
        scenario = experiment.scenario
        self._faults = FaultDraws(scenario.faults, report_topic(network.task.id, "x")[:-1], experiment.seed or 0)
        self._patience = _STALL_SECONDS * (8 if scenario.faults.lost + scenario.faults.cut else 1)  # links back off
        self._truthful = truthful_count(len(experiment.values), scenario.liars)
        self._attendance = Attendance.of(experiment, self._truthful)

    async def run(self) -> Outcome:
        store = await asyncio.to_thread(SqliteStore, self._directory / "aggregator.sqlite")
        try:
            rounds = await self._with_aggregator(store)
        finally:
            await asyncio.to_thread(store.close)
        return Outcome(self._network.task, tuple(rounds), stopped=self._stop.is_set())

    async def _with_aggregator(self, store: SqliteStore) -> list[RoundOutcome]:
        aggregator = Aggregator(
            self._network.bus,
            store,
            tasks=(self._network.task,),
            name=self._network.aggregator,
            confidence=self._experiment.confidence,
            clock=self._clock,
            on_commit=self._commit,
        )
        async with asyncio.TaskGroup() as group:
            running = group.create_task(aggregator.run(), name="hush-aggregator")
            watching = group.create_task(self._watch_connection(), name="hush-watch-connection")
            async with AsyncExitStack() as stack:
                gateways = [await stack.enter_async_context(self._gateway(number)) for number in self._numbers()]
                rounds = [await self._round(0, gateways, aggregator, store)]
                for number in range(1, self._network.task.rounds):
                    if self._stop.is_set():
                        break
                    rounds.append(await self._round(number, gateways, aggregator, store))
            watching.cancel()
            running.cancel()
        return rounds

    def _numbers(self) -> range:
        return range(self._experiment.gateways)

    def _gateway(self, number: int) -> Gateway:
        seed = self._experiment.noise_seed
        limit = max(Policy().max_epsilon, self._network.task.epsilon)
        return Gateway(
            self._faults.around(self._network.transport(number)),
            name=self._network.sender(number),
            state=self._directory / f"gateway-{number}",
            # A real device refuses a large epsilon; a simulation shows its effect.
            policy=Policy(max_epsilon=limit, lifetime=limit, sticky=True),
            frame=self._frame,
            spread=0,  # the time of sending reveals nothing here
            rng=None if seed is None else SeededRng(seed, number),
            clock=self._clock,
        )

    async def _round(
        self, number: int, gateways: Sequence[Gateway], aggregator: Aggregator, store: SqliteStore
    ) -> RoundOutcome:
        if (opens := self._network.task.round_opens(number)) is not None:
            self._clock.turn_to(opens)
        before, began = self._counted, time.perf_counter()
        answers = Answers()
        async with asyncio.TaskGroup() as group:
            looking = group.create_task(self._look(aggregator, number), name="hush-look")
            async with asyncio.TaskGroup() as answering:
                watching = answering.create_task(self._watch_progress(), name="hush-watch-progress")
                await self._answer_all(number, gateways, answers)
                lies = await self._lie(number, answers)
                watching.cancel()
            await self._count(before + len(answers.reporters) + lies - self._faults.forgotten)
            looking.cancel()
        elapsed = time.perf_counter() - began
        result = await aggregator.estimate(self._network.task.id, number)
        received = await asyncio.to_thread(read_received, store, self._network.task, number)
        count = len(answers.reporters)
        everybody = range(len(self._experiment.values))
        reporters = everybody if count == len(everybody) else tuple(sorted(answers.reporters))
        return RoundOutcome(result, reporters, answers.clamped, answers.declined, elapsed, received)

    async def _answer_all(self, round_: int, gateways: Sequence[Gateway], answers: Answers) -> None:
        if away := self._attendance.away(round_):
            answers.declined[ABSENT] += len(away)
            self._moved_on(len(away))
        truthful = self._truthful
        queues = [
            (gateway, (device for device in range(position, truthful, len(gateways)) if device not in away))
            for position, gateway in enumerate(gateways)
        ]
        await self._devices.ask_all(round_, queues, answers)

    async def _lie(self, round_: int, answers: Answers) -> int:
        """Publish what the liars, the last devices, send; return their different reports above one each."""
        experiment, task = self._experiment, self._network.task
        clients, number = len(experiment.values), experiment.gateways
        devices = range(self._truthful, clients)
        answers.reporters.extend(devices)
        if not devices:
            return 0
        rng = SystemRng() if experiment.noise_seed is None else SeededRng(experiment.noise_seed, number)
        topic = report_topic(task.id, self._network.sender(number))
        liars = [some for some in experiment.scenario.liars for _ in range(some.among(clients))]
        different = 0
        async with self._network.transport(number).connect() as link:  # without faults
            for device, some in zip(devices, liars, strict=False):
                for payload in _forged(task, round_, some, experiment.value(device, round_), rng):
                    await link.publish(topic, payload)
                different += 0 if some.lie == "replay" else some.reports - 1
        return different

    async def _look(self, aggregator: Aggregator, number: int) -> None:
        """Show the estimate repeatedly, rarely enough to slow nothing down."""
        if self._on_look is None:
            return
        counted = -1
        pause = _FIRST_LOOK_S
        while True:
            await asyncio.sleep(pause)
            pause = _LOOK_EVERY_S
            if self._counted == counted:
                continue
            counted, began = self._counted, time.perf_counter()
            self._on_look(await aggregator.estimate(self._network.task.id, number))
            pause = max(_LOOK_EVERY_S, (time.perf_counter() - began) / _LOOK_SHARE)

    def _commit(self, outcome: CommitOutcome) -> None:
        handled = count_handled(outcome.accepted, outcome.refused)
        self._counted += handled
        self._settle(handled)

    def _settle(self, answers: int) -> None:
        """Note that as many answers are counted or declined."""
        self._devices.release(answers)
        self._moved_on(answers)

    def _moved_on(self, answers: int) -> None:
        self._settled += answers
        self._moved.set()
        self._on_progress(self._settled)

    async def _count(self, expected: int) -> None:
        """Wait until the aggregator has handled that number of reports, or nothing arrives any more."""
        while self._counted < expected:
            if not await self._moves():
                return

    async def _moves(self) -> bool:
        """Whether an answer is settled before patience ends."""
        before, rest = self._settled, _PAUSES
        while self._settled == before and rest:
            rest -= not await _is_set(self._moved, self._patience / _PAUSES)
            self._moved.clear()
        return self._settled > before

    async def _watch_progress(self) -> None:
        """Raise if devices wait for ever, as when the broker admits the aggregator and not them."""
        while await self._moves():
            pass
        raise BrokerError(
            self._network.bus.name,
            f"no report came through for {self._patience:.0f} s, {self._counted} were counted; see its log",
        )

    async def _watch_connection(self) -> None:
        """Raise if the broker is unreachable, at first or for several seconds."""
        bus = self._network.bus
        await bus.attempted.wait()
        if bus.trouble is not None:
            raise bus.trouble
        while True:
            await bus.troubled.wait()
            rest = _PAUSES
            while not await _is_set(bus.connected, _GRACE_SECONDS / _PAUSES):
                rest -= 1
                if not rest:
                    raise BrokerError(
                        bus.name, f"vanished after {self._counted} reports were counted; start it, and run again"
                    ) from bus.trouble


async def _is_set(event: asyncio.Event, seconds: float) -> bool:
    """Whether the event is set before that time has passed."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


def _reason(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error that is meant for a person; a group without one is a bug and is returned itself."""
    return next((error for error in flatten_group(errors) if isinstance(error, HushError)), errors)
