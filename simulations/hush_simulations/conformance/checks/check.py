"""What every check gets and returns."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from hush_simulations.conformance.device import Setup
from hush_simulations.conformance.findings import Fault, Status


@dataclass
class Knowledge:
    """What earlier checks have learned about the program."""

    setup: Setup
    samples: int = 200  # reports of each value for the law of the noise
    seconds: float = 60.0  # for the samples of all mechanisms together
    answers: float = 1.0  # seconds from the start of the program to its first report
    lasts: float | None = None  # seconds of a whole run of a program that ends by itself
    supported: set[str] = field(default_factory=set)  # optional parts that it has
    missing: set[str] = field(default_factory=set)  # and those that it does not have
    ids: list[bytes] = field(default_factory=list)  # of all reports, each once


@dataclass
class Outcome:
    """What a check found."""

    faults: list[Fault] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    is_supported: bool = True

    @property
    def status(self) -> Status:
        if self.faults:
            return "failed"
        return "passed" if self.is_supported else "not supported"


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    title: str  # what a device does that passes it
    run: Callable[[Knowledge], Awaitable[Outcome]]


async def together(cases: Iterable[Awaitable[list[Fault]]]) -> list[Fault]:
    """Run cases at the same time, as many as there is room for; return all faults, each once."""
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(_awaited(case), name="conform-case") for case in cases]
    return list(dict.fromkeys(fault for case in running for fault in case.result()))


async def _awaited(case: Awaitable[list[Fault]]) -> list[Fault]:
    return await case
