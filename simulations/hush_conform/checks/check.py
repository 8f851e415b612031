"""What every check gets and returns."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, field

from hush_conform.device import Setup
from hush_conform.findings import RuleViolation, Status
from hush_conform.pace import StarvedError

_PROBE = 3.0


@dataclass
class Knowledge:
    """What earlier checks have learned about the program."""

    setup: Setup
    samples: int | None = None  # reports of each value for the law of the noise; None: as many as each law needs
    seconds: float = 300.0  # for the samples of all laws together, that devices can use
    laws: Collection[str] = ()  # that are sampled; all of them if there are none
    answers: float = 1.0  # seconds from the start of the program to its first report
    lasts: float | None = None  # seconds of a whole run of a program that ends by itself
    supported: set[str] = field(default_factory=set)  # optional parts that it has
    missing: set[str] = field(default_factory=set)  # and those that it does not have

    @property
    def together(self) -> int:
        """Tasks that one run answers: more than one only of a program that keeps running, which has no exit code."""
        return self.setup.batch if self.lasts is None else 1

    @property
    def probing(self) -> float:
        """Seconds without a report after which a device does not support a kind of task."""
        return min(max(_PROBE, 3 * self.answers), self.setup.timeout)


@dataclass
class CheckOutcome:
    """What a check found."""

    faults: list[RuleViolation] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    is_supported: bool = True
    is_judged: bool = True  # whether there was enough to see

    @property
    def status(self) -> Status:
        if self.faults:
            return "failed"
        if not self.is_supported:
            return "not supported"
        return "passed" if self.is_judged else "not judged"


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    title: str  # what a device does that passes it
    run: Callable[[Knowledge], Awaitable[CheckOutcome]]
    finds: str  # what it would have found, where the remarks do not say it in numbers
    misses: str  # what it would not have found


async def together(setup: Setup, cases: Iterable[Awaitable[list[RuleViolation]]]) -> list[RuleViolation]:
    """Run cases at the same time, as many as there is room for; return all faults, each once.

    If the first fault is enough, the other cases are stopped when it is found.

    Raises:
        StarvedError: a case could not be judged, and the others found nothing.
    """
    running = [asyncio.create_task(_awaited(case), name="conform-case") for case in cases]
    faults, starved = dict[RuleViolation, None](), list[StarvedError]()
    try:
        for case in asyncio.as_completed(running):
            try:
                faults |= dict.fromkeys(await case)
            except StarvedError as error:
                starved.append(error)
            if faults and setup.stops:
                break
    finally:
        for one in running:
            one.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    if starved and not faults:
        raise starved[0]
    return list(faults)


async def _awaited(case: Awaitable[list[RuleViolation]]) -> list[RuleViolation]:
    return await case


def name_value(value: str | None) -> str:
    """Return words for a value that a device was given."""
    return "no value" if value is None else f"the value {value[:20]!r}"
