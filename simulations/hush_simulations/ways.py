"""The ways of a simulation to its broker: for the aggregator, and for each gateway."""

import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from hush_aggregator.intake import MqttBus
from hush_client.link import Transport
from hush_client.transport import MqttTransport
from hush_common.broker_url import BrokerUrl
from hush_common.errors import BrokerError
from hush_common.task import Task
from hush_common.topics import is_sender, status_topic
from hush_simulations.brokers import is_external, open_broker
from hush_simulations.memory import MemoryBroker
from hush_simulations.plan import Plan
from hush_simulations.watched import WatchedBus, tidy

__all__ = ["Ways", "open_ways"]

_HEAD = 40  # of a task id, which may be 64 long: the rest makes it unique on a broker of others


@dataclass(frozen=True, slots=True)
class Ways:
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
    bus: WatchedBus
    transport: Callable[[int], Transport]
    sender: Callable[[int], str]


@asynccontextmanager
async def open_ways(plan: Plan, directory: Path) -> AsyncIterator[Ways]:
    """Start the broker of a plan, or find the one that runs; leave nothing behind on it.

    Raises:
        TaskError: the question is no legal task.
        BrokerError: the broker cannot be started, or its user cannot be part of a topic.
    """
    name = f"simulation-{secrets.token_hex(4)}"
    if plan.engine == "memory":
        memory, task = MemoryBroker(), plan.scenario.task()
        yield Ways(task, name, WatchedBus(memory.bus(name), task.id), lambda _: memory.transport(), _gateway)
        return
    task = _task(plan, name)
    identifier = f"hush-{name}"
    async with open_broker(plan.broker, directory) as url:
        bus, sender = WatchedBus(MqttBus(url, identifier, status=status_topic(name)), task.id), _sender(url)
        try:
            yield Ways(task, name, bus, lambda number: MqttTransport(url, _gateway(number)), sender)
        finally:
            if is_external(plan.broker):
                await tidy(url, identifier, task.id, name)


def _task(plan: Plan, name: str) -> Task:
    """The task, on a broker of others under an id of this run alone."""
    task = plan.scenario.task()
    if not is_external(plan.broker):
        return task
    return replace(plan.scenario, document={**plan.scenario.document, "id": f"{task.id[:_HEAD]}-{name}"}).task()


def _gateway(number: int) -> str:
    return f"gateway-{number}"


def _sender(url: BrokerUrl) -> Callable[[int], str]:
    user = url.user
    if user is not None and not is_sender(user):
        raise BrokerError(str(url), "this user cannot be part of a topic; use letters, digits and . _ @ : -")
    return _gateway if user is None else lambda _: user
