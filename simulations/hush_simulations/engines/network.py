"""The connections of a simulation to its broker: for the aggregator, and for each gateway."""

import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from hush_aggregator.broker.mqtt import MqttBus
from hush_client.sending.mqtt import MqttTransport
from hush_client.sending.transport import Transport
from hush_common.broker_url import BrokerUrl
from hush_common.errors import BrokerError
from hush_common.task import Task
from hush_common.topics import is_sender, status_topic
from hush_simulations.brokers.choice import is_external, open_broker
from hush_simulations.brokers.memory import MemoryBroker
from hush_simulations.brokers.single_task import SingleTaskBus, tidy
from hush_simulations.engines.experiment import Experiment

__all__ = ["Network", "open_network"]

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
