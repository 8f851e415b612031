"""How the aggregator, the gateways (with faults) and the liars of a simulation reach its broker."""

import asyncio
import random
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from hush_aggregator.broker.session import Bus, Session
from hush_client.sending.transport import Transport
from hush_common.broker_url import BrokerUrl
from hush_common.errors import BrokerError
from hush_common.mechanisms import Mechanism, Offers, perturb
from hush_common.rng import ReportRng
from hush_common.task import Task
from hush_common.topics import ALL_REPORTS, ALL_TASKS, estimate_topic, is_sender, report_topic, status_topic, task_topic
from hush_common.wire import Report, encode_frame
from hush_simulations.brokers.choice import is_external, open_broker
from hush_simulations.brokers.faulty import Fate, FaultyTransport
from hush_simulations.brokers.memory import MemoryBroker
from hush_simulations.engines.experiment import Experiment
from hush_simulations.scenarios.behaviour import Faults, Liars, truthful_count
from hush_simulations.scenarios.population import Value

_TIDY_SECONDS = 10.0


class SingleTaskBus:
    """A bus that serves one task only, and remembers whether it is connected.

    Without the first, a simulation on a shared broker would collect everybody's reports and publish estimates made of
    whatever part of them it saw.

    Args:
        bus: the bus itself.
        task_id: the task of the simulation.

    Attributes:
        attempted: set once the first attempt to connect has ended, either way.
        connected: set while there is a connection.
        troubled: set while there is none, from the first failure on.
        trouble: why the last attempt or connection ended, or None.
    """

    def __init__(self, bus: Bus, task_id: str) -> None:
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
    async def connect(self, filters: Sequence[str]) -> AsyncIterator[Session]:
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


async def tidy(bus: Bus, task_id: str, aggregator: str) -> None:
    """Clear the retained messages of a simulation and the session of its aggregator; do nothing if that fails.

    Args:
        bus: the broker, under the client id of the aggregator; connecting once with a clean session ends its
            persistent one.
        task_id: the task of the simulation.
        aggregator: the aggregator's name in its status topic.
    """
    topics = (task_topic(task_id), estimate_topic(task_id), status_topic(aggregator))
    with suppress(BrokerError, TimeoutError):
        async with asyncio.timeout(_TIDY_SECONDS), bus.connect(()) as session:
            for topic in topics:
                await session.publish(topic, b"", retain=True)


_PATIENCE_SECONDS = 10.0  # the embedded broker now and then forgets an answer
_HEAD = 40  # of a task id, which may be 64 long: the rest makes it unique on a broker of others


@dataclass(frozen=True, slots=True)
class Network:
    """How everybody reaches the broker.

    Args:
        task: what is asked, under an id that is free on that broker.
        aggregator: a name that no other aggregator there has.
        bus: for the aggregator.
        transport: for the gateway of a number.
        sender: what stands in the topics of that gateway: the user it logs in as, since access rules name users.
    """

    task: Task
    aggregator: str
    bus: SingleTaskBus
    transport: Callable[[int], Transport]
    sender: Callable[[int], str]


@asynccontextmanager
async def open_network(experiment: Experiment, directory: Path) -> AsyncIterator[Network]:
    """Start the broker of an experiment, or find the one that runs; leave nothing behind on it.

    Raises:
        BrokerError: the broker cannot be started, or its user cannot be part of a topic.
    """
    name = f"simulation-{secrets.token_hex(4)}"
    if experiment.engine == "memory":
        memory, task = MemoryBroker(), experiment.task
        yield Network(task, name, SingleTaskBus(memory.bus(name), task.id), lambda _: memory.transport(), _gateway)
        return
    from hush_aggregator.broker.mqtt import MqttBus  # noqa: PLC0415 - aiomqtt and paho, which the engine "memory" does not need
    from hush_client.sending.mqtt import MqttTransport  # noqa: PLC0415

    task = _task(experiment, name)
    identifier = f"hush-{name}"
    async with open_broker(experiment.broker, directory) as url:
        bus = MqttBus(url, identifier, status=status_topic(name), patience=_PATIENCE_SECONDS)
        sender = _sender(url)
        try:
            single = SingleTaskBus(bus, task.id)
            yield Network(task, name, single, lambda number: MqttTransport(url, _gateway(number)), sender)
        finally:
            if is_external(experiment.broker):
                await tidy(MqttBus(url, identifier), task.id, name)


def _task(experiment: Experiment, name: str) -> Task:
    """The task, on a broker of others under an id of this run alone."""
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
_SEED_OF_FAULTS = 1


@dataclass(slots=True)
class Trouble:
    """What goes wrong, drawn for each publication.

    Args:
        faults: how often.
        topic: of reports; nothing else is disturbed.
        seed: of the draws.

    Attributes:
        forgotten: payloads that were acknowledged, and forgotten.
    """

    faults: Faults
    topic: str
    seed: int
    forgotten: int = field(default=0, init=False)
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(f"{self.seed}/{_SEED_OF_FAULTS}")  # noqa: S311 - of the weather, not of a device

    def around(self, transport: Transport) -> Transport:
        """The same way, with faults."""
        if not self.faults:
            return transport
        return FaultyTransport(transport, self._fate, lambda: _LATENESS_SECONDS)

    def _fate(self, topic: str, payload: bytes) -> Fate:  # noqa: ARG002 - whatever is in it
        if not topic.startswith(self.topic):
            return Fate.GOOD
        draw = self._random.random()
        for share, fate in (
            (self.faults.lost, Fate.LOST),
            (self.faults.cut, Fate.CUT),
            (self.faults.late, Fate.LATE),
            (self.faults.twice, Fate.TWICE),
            (self.faults.reordered, Fate.REORDERED),
            (self.faults.forgotten, Fate.FORGOTTEN),
        ):
            if draw < share:
                self.forgotten += fate is Fate.FORGOTTEN
                return fate
            draw -= share
        return Fate.GOOD


async def publish_lies(
    transport: Transport,
    topic: str,
    task: Task,
    round_: int,
    *,
    liars: tuple[Liars, ...],
    values: Sequence[Value],
    rng: ReportRng,
) -> int:
    """Publish what all liars send in a round.

    Args:
        transport: the way to the broker.
        topic: of their reports.
        task: what is asked.
        round_: which round.
        liars: by kind; together the last of the devices.
        values: the true ones of all devices.
        rng: of noise and ids.

    Returns:
        How many different reports that is beyond one for each liar.
    """
    device, different = truthful_count(len(values), liars), 0
    async with transport.connect() as link:
        for some in liars:
            for _ in range(some.among(len(values))):
                for payload in forged(task, round_, some, values[device], rng):
                    await link.publish(topic, payload)
                different += 0 if some.lie == "replay" else some.reports - 1
                device += 1
    return different


def forged(task: Task, round_: int, some: Liars, value: object, rng: ReportRng) -> Iterator[bytes]:
    """What one liar publishes in a round.

    Args:
        task: what is asked; of several epsilons the liar takes the dearest.
        round_: which round.
        some: its kind.
        value: its true one.
        rng: of noise and ids.
    """
    told = value if some.lie == "replay" else some.value
    if some.lie == "replay":
        copies, different = 1 + some.reports, 1
    else:
        copies, different = 1, some.reports
    for _ in range(different):
        report = Report.new(task.report_digest, round_, _body(task, some, told, rng), rng)
        for _ in range(copies):
            yield encode_frame((report,))


def _body(task: Task, some: Liars, told: object, rng: ReportRng) -> tuple[int, ...]:
    randomizer = task.randomizer
    if some.lie == "edge":
        from hush_simulations.engines.bulk.laws import law_of  # noqa: PLC0415 - few scenarios have such liars

        dearest: Mechanism = randomizer.parts[-1] if isinstance(randomizer, Offers) else randomizer
        body = law_of(dearest).extreme_body(dearest)
        return (len(randomizer.parts) - 1, *body) if isinstance(randomizer, Offers) else body
    index = task.domain.complete(task.domain.read(told), rng)
    return perturb(randomizer, index, rng, max(len(task.offers) - 1, 0))
