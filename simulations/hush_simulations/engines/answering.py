"""Answering: all devices of a simulation, through the gateways that they share, never too many under way."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from hush_client.gateway import Gateway
from hush_client.receipt import Receipt
from hush_common.task import Task
from hush_simulations.engines.attendance import Answers
from hush_simulations.engines.experiment import Experiment

__all__ = ["Answering"]

_CONCURRENT = 2000  # answers under way at once, from the first draw to the commit: bounds queues at every station
_GROUPS = 2  # of devices, at each gateway: one is drawn while another is on its way


@dataclass(frozen=True, slots=True)
class _Asked:
    """A round: its number, what its devices do, and whether nobody else is to be asked."""

    round: int
    answers: Answers
    stop: asyncio.Event


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

    async def all(
        self, round_: int, queues: Sequence[tuple[Gateway, Iterator[int]]], answers: Answers, stop: asyncio.Event
    ) -> None:
        """Ask the devices of each gateway, all gateways at the same time, until all have answered or `stop` is set."""
        # Devices that choose among offers are asked one by one: those of one call have one epsilon.
        largest = 1 if self._experiment.choices else max(1, _CONCURRENT // (_GROUPS * len(queues)))
        groups = _GROUPS if largest > 1 else -(-_CONCURRENT // len(queues))
        asked = _Asked(round_, answers, stop)
        async with asyncio.TaskGroup() as group:
            for position, (gateway, devices) in enumerate(queues):
                for worker in range(groups):
                    asking = self._ask(asked, gateway, devices, largest)
                    group.create_task(asking, name=f"hush-devices-{position}-{worker}")

    async def _ask(self, asked: "_Asked", gateway: Gateway, devices: Iterator[int], largest: int) -> None:
        answers = asked.answers
        while True:
            places = await self._take_places(largest)
            group = [] if asked.stop.is_set() else list(islice(devices, places))
            self.release(places - len(group))
            if not group:
                return
            for device, receipt in zip(group, await self._report(asked.round, gateway, group), strict=True):
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

    async def _report(self, round_: int, gateway: Gateway, group: Sequence[int]) -> list[Receipt]:
        experiment, choices = self._experiment, self._experiment.choices
        receipts = await gateway.report_many(
            self._task.id,
            {f"device-{device}": experiment.value(device, round_) for device in group},
            timeout=None,
            epsilon=self._task.offers[choices[group[0]]] if choices else None,
        )
        return list(receipts.values())
