"""How the aggregator, the gateways (with faults) and the liars of a simulation connect to its broker."""

import asyncio
import random
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from hush_aggregator.broker.session import Broker, BrokerSession
from hush_client.sending.transport import Transport
from hush_common.broker_url import BrokerUrl
from hush_common.errors import BrokerError
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
    """How the aggregator and the gateways connect to the broker.

    Args:
        task: the question, under an id that is free on that broker.
        aggregator: a name that no other aggregator there has.
        bus: for the aggregator.
        transport: for the gateway of a number.
        sender: the name in the topics of that gateway: the user of its login, since access rules name users.
    """

    task: Task
    aggregator: str
    bus: SingleTaskBus
    transport: Callable[[int], Transport]
    sender: Callable[[int], str]


@asynccontextmanager
async def open_network(experiment: Experiment, directory: Path) -> AsyncIterator[Network]:
    """Start the broker of an experiment, or connect to the running one; leave nothing on it.

    Raises:
        BrokerError: the broker cannot be started, or its user cannot be part of a topic.
    """
    name = f"simulation-{secrets.token_hex(4)}"
    if experiment.engine == "memory":
        memory, task = MemoryBroker(), experiment.task
        yield Network(task, name, SingleTaskBus(memory.bus(name), task.id), lambda _: memory.transport(), _gateway)
        return
    from hush_aggregator.broker.mqtt import MqttBroker  # noqa: PLC0415 - aiomqtt and paho, which the engine "memory" does not need
    from hush_client.sending.mqtt import MqttTransport  # noqa: PLC0415

    task = _task(experiment, name)
    identifier = f"hush-{name}"
    async with open_broker(experiment.broker, directory) as url:
        bus = MqttBroker(url, identifier, status=status_topic(name), patience=_PATIENCE_SECONDS)
        sender = _sender(url)
        try:
            single = SingleTaskBus(bus, task.id)
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
class Trouble:
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
    """Publish what all liars, the last of the devices, send in a round; return their different reports above one each.

    `values` are the true ones of all devices.
    """
    device, different = truthful_count(len(values), liars), 0
    async with transport.connect() as link:
        for some in liars:
            for _ in range(some.among(len(values))):
                for payload in _forged(task, round_, some, values[device], rng):
                    await link.publish(topic, payload)
                different += 0 if some.lie == "replay" else some.reports - 1
                device += 1
    return different


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
