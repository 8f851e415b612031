"""Answering: all devices of a simulation, through the gateways that they share, never too many under way."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from hush_client.gateway import Gateway
from hush_client.receipt import Receipt
from hush_common.task import Task
from hush_simulations.engines.experiment import Experiment

__all__ = ["Answering", "Answers"]

_CONCURRENT = 2000  # answers under way at once, from the first draw to the commit: bounds queues at every station
_GROUPS = 2  # of devices, at each gateway: one is drawn while another is on its way


@dataclass(slots=True)
class Answers:
    """What devices of one round did.

    Attributes:
        reporters: positions of those that sent a report.
        clamped: how many of them had to move their value into the domain.
        declined: how many sent nothing, by their reason.
    """

    reporters: list[int] = field(default_factory=list)
    clamped: int = 0
    declined: Counter[str] = field(default_factory=Counter)


class Answering:
    """Lets devices answer: some of one gateway together, as its devices do that ask it at the same time.

    Which ones makes no difference to what they draw: a gateway draws for one device after the other, in their order.

    Args:
        experiment: values, and choices where there are any.
        task: what is asked.
        declined: told how many answers more were declined.
    """

    def __init__(self, experiment: Experiment, task: Task, declined: Callable[[int], None]) -> None:
        self._experiment, self._task, self._declined = experiment, task, declined
        self._places = asyncio.Semaphore(_CONCURRENT)

    def release(self, answers: int) -> None:
        """So many answers need nothing more: make room for others."""
        for _ in range(answers):
            self._places.release()

    async def all(self, gateways: Sequence[Gateway], devices: int, answers: Answers, stop: asyncio.Event) -> None:
        """Ask the first of the devices, those of all gateways at the same time, until all have answered or `stop`."""
        # Devices that choose among offers are asked one by one: those of one call have one epsilon.
        largest = 1 if self._experiment.choices else max(1, _CONCURRENT // (_GROUPS * len(gateways)))
        groups = _GROUPS if largest > 1 else -(-_CONCURRENT // len(gateways))
        async with asyncio.TaskGroup() as group:
            for position, gateway in enumerate(gateways):
                waiting = range(position, devices, len(gateways))
                queue = iter(waiting)
                for worker in range(min(len(waiting), groups)):
                    asking = self._ask(gateway, queue, largest, answers, stop)
                    group.create_task(asking, name=f"hush-devices-{position}-{worker}")

    async def _ask(
        self, gateway: Gateway, queue: Iterator[int], largest: int, answers: Answers, stop: asyncio.Event
    ) -> None:
        while True:
            places = await self._take_places(largest)
            group = [] if stop.is_set() else list(islice(queue, places))
            self.release(places - len(group))
            if not group:
                return
            for device, receipt in zip(group, await self._report(gateway, group), strict=True):
                if receipt.reason is None:
                    answers.reporters.append(device)
                    answers.clamped += receipt.value == "moved"
                else:
                    answers.declined[receipt.reason] += 1
                    self._declined(1)

    async def _take_places(self, most: int) -> int:
        """Wait for one, and take what else is free: whoever held some and waited for more could wait for ever."""
        await self._places.acquire()
        taken = 1
        while taken < most and not self._places.locked():
            await self._places.acquire()
            taken += 1
        return taken

    async def _report(self, gateway: Gateway, group: Sequence[int]) -> list[Receipt]:
        values, choices = self._experiment.values, self._experiment.choices
        receipts = await gateway.report_many(
            self._task.id,
            {f"device-{device}": values[device] for device in group},
            timeout=None,
            epsilon=self._task.offers[choices[group[0]]] if choices else None,
        )
        return list(receipts.values())
