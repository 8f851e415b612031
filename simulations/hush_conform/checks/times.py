"""Checks of the times of sending: no value may decide when a device sends."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from itertools import combinations

from hush_common.formatting import significant
from hush_common.rng import SystemRng
from hush_conform.checks.answers import silent
from hush_conform.checks.check import Check, CheckOutcome, Knowledge
from hush_conform.device import Setup
from hush_conform.findings import Rule, RuleViolation
from hush_conform.law import differ
from hush_conform.pace import StarvedError
from hush_conform.reports import inspect
from hush_conform.tasks import task

_KINDS: dict[str, str | None] = {
    "a value within the bounds": "171.4",
    "a value beyond them": "1e300",
    "text that is not a number": "none",
    "no value": None,
}
_PAIRS = tuple(combinations(_KINDS, 2))
_EACH = 32
_FEWEST = 20
"""Delays of a kind, below which not even the largest difference is found."""
_SHORTEST_S, _LONGEST_S = 0.001, 60.0
"""Between these a difference is searched that would be found."""


async def _times(knowledge: Knowledge) -> CheckOutcome:
    """Measure the time from the task to the report, of each kind of value in random order, and compare them."""
    setup = knowledge.setup
    delays: dict[str, list[float]] = {kind: [] for kind in _KINDS}
    waiting = [kind for kind in _KINDS for _ in range(_EACH)]
    order = [waiting.pop(SystemRng().randbelow(len(waiting))) for _ in range(len(waiting))]
    faults = list[RuleViolation]()

    async def work() -> None:
        while order and not faults:
            some = [order.pop() for _ in range(min(setup.batch, len(order)))]
            with suppress(StarvedError):
                faults.extend(await _measured(setup, some, len(order), delays))

    async with asyncio.TaskGroup() as group:
        for _ in range(setup.jobs):
            group.create_task(work(), name="conform-time")
    for first, second in _PAIRS:
        faults += _compared(first, second, delays)
    is_judged = min(map(len, delays.values())) >= _FEWEST
    return CheckOutcome(list(dict.fromkeys(faults)), [_power(delays)], is_judged=is_judged)


async def _measured(
    setup: Setup, kinds: Sequence[str], number: int, delays: dict[str, list[float]]
) -> list[RuleViolation]:
    """Publish one task after the other to one run of the program, each about another value."""
    asked = [task(f"conform-time-{number}-{place}") for place in range(len(kinds))]
    async with setup.device(*(one.id for one in asked)) as device:
        for place, (kind, one) in enumerate(zip(kinds, asked, strict=True)):
            device.set_value(_KINDS[kind])
            device.publish(one.id, one.payload)
            if not await device.until(lambda: len(device.frames) > place):  # noqa: B023 - is awaited here
                return [silent(device, "a legal task"), *inspect(device, *asked)]
            delays[kind].append(device.delay(one.id))
        return inspect(device, *asked)


def _compared(first: str, second: str, delays: dict[str, list[float]]) -> list[RuleViolation]:
    if not delays[first] or not delays[second]:
        return []
    found = differ(delays[first], delays[second], comparisons=len(_PAIRS))
    if found is None:
        return []
    limit, one, other = found
    words = f"{_share(one)} of the reports about {first} and {_share(other)} of those about {second}"
    return [RuleViolation(Rule.TIMES, f"{words} came within {significant(1000 * limit, 2)} ms")]


def _share(share: float) -> str:
    return f"{significant(share, 2, scale=100)} %"


def _power(delays: dict[str, list[float]]) -> str:
    """Return what would have been found: reports about one of the values that come later than the others."""
    counts = "/".join(str(len(some)) for some in delays.values())
    if min(map(len, delays.values())) < _FEWEST:
        return f"{counts} of {_EACH} delays of each kind, too few to judge"
    later = max(_least_found(delays[kind], delays[other]) for pair in _PAIRS for kind, other in (pair, pair[::-1]))
    shown = significant(1000 * later, 2)
    return f"{counts} delays; if the reports about one of the values came {shown} ms later, that would be found"


def _least_found(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the seconds by which the second delays must be longer to be found, rounded up by at most a tenth."""
    later = _SHORTEST_S
    while later < _LONGEST_S and not differ(first, [one + later for one in second], comparisons=len(_PAIRS)):
        later *= 1.1
    return later


CHECKS = (
    Check(
        "times",
        "sends at a time that does not depend on the value",
        _times,
        "a time that depends on one of the four values, as the line in numbers states",
        "a difference at other values, or a smaller one",
    ),
)
