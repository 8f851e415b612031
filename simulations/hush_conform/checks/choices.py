"""Checks of what a device chooses once: one of several epsilons, and the memory of a sticky task."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from fractions import Fraction

from hush_common.epsilon import decimal_text
from hush_common.task import Task
from hush_conform.checks.answers import silent
from hush_conform.checks.check import Check, CheckOutcome, Knowledge, together
from hush_conform.device import Device, Setup
from hush_conform.findings import Rule, RuleViolation
from hush_conform.pace import Patience
from hush_conform.reports import body_of, frame_of, inspect
from hush_conform.tasks import moment, task

_VALUES = ("172.5", "1e9", None)
"""A value within the bounds, one beyond them, and none."""
_OFFERS = 3


async def _offers(knowledge: Knowledge) -> CheckOutcome:
    """Offer several epsilons: within the limit, above it, and after a part of the budget is spent."""
    setup, taken = knowledge.setup, dict[str | None, int]()
    limit = Fraction(setup.max_epsilon)
    within = task("conform-offers", epsilon=decimal_text(limit), offers=_texts(limit / 4, limit / 2, limit))
    async with setup.device(within.id, value=_VALUES[0]) as device:
        device.publish(within.id, within.payload)
        if not await device.until_reports(1, knowledge.probing):
            return CheckOutcome(is_supported=False)
        faults = inspect(device, within)
        taken[_VALUES[0]] = _offer(device)
    others = [_taken(setup, within, value, taken) for value in _VALUES[1:]]
    faults += await together(setup, [*others, _charged(setup, limit), _left(setup, limit)])
    if len(set(taken.values())) > 1:
        shown = ", ".join(decimal_text(within.offers[offer]) for offer in taken.values())
        faults.append(RuleViolation(Rule.OFFER, f"took epsilon {shown} for a value within the bounds, beyond and none"))
    first = decimal_text(within.offers[taken[_VALUES[0]]])
    return CheckOutcome(list(dict.fromkeys(faults)), [f"it took epsilon {first} of a limit of {decimal_text(limit)}"])


def _texts(*offers: Fraction) -> list[str]:
    return [decimal_text(offer) for offer in offers]


def _offer(device: Device) -> int:
    """Return the number of the offer in the first report; the last one if it has none, which `inspect` reports."""
    body = body_of(device.reports[0])
    return body[0] if body and 0 <= body[0] < _OFFERS else _OFFERS - 1


async def _taken(setup: Setup, asked: Task, value: str | None, taken: dict[str | None, int]) -> list[RuleViolation]:
    async with setup.device(asked.id, value=value) as device:
        device.publish(asked.id, asked.payload)
        if not await device.until_reports(1):
            return [silent(device, "a task with several epsilons"), *inspect(device, asked)]
        taken[value] = _offer(device)
        return inspect(device, asked)


async def _charged(setup: Setup, limit: Fraction) -> list[RuleViolation]:
    """Offer one epsilon within the limit and one above it; then ask for all that is left of the budget."""
    first, second = limit / 4, 2 * limit
    offered = task("conform-above", epsilon=decimal_text(second), offers=_texts(first, second), purpose="conform above")
    rest = task("conform-rest", epsilon=decimal_text(limit - first), purpose=offered.purpose)
    async with setup.device(offered.id) as device:
        if faults := await _took_first(device, offered, f"offered {decimal_text(first)} and {decimal_text(second)}"):
            return faults
        await _next(device, rest)
        if not await device.until_reports(2):
            what = f"took epsilon {decimal_text(first)}; a task of the same purpose with the rest of its budget"
            return [silent(device, what)]
        return inspect(device, offered, rest)


async def _left(setup: Setup, limit: Fraction) -> list[RuleViolation]:
    """Spend three quarters of the budget; then offer a quarter and a half of it."""
    spent = task("conform-spent", epsilon=decimal_text(limit * 3 / 4), purpose="conform left")
    offered = task(
        "conform-left", epsilon=decimal_text(limit / 2), offers=_texts(limit / 4, limit / 2), purpose=spent.purpose
    )
    async with setup.device(spent.id) as device:
        device.publish(spent.id, spent.payload)
        if not await device.until_reports(1):
            return [silent(device, "a legal task"), *inspect(device, spent)]
        await _next(device, offered)
        when = (
            f"offered {_texts(limit / 4)[0]} and {_texts(limit / 2)[0]} after {decimal_text(spent.epsilon)} was spent"
        )
        return await _took_first(device, offered, when, earlier=1) or inspect(device, spent, offered)


async def _next(device: Device, asked: Task) -> None:
    """Ask another task, after the program has recorded what it did."""
    await device.broker.wait(lambda: not device.is_running, 0.5)
    await device.kill()
    device.tasks = (asked.id,)
    device.publish(asked.id, asked.payload)


async def _took_first(device: Device, offered: Task, when: str, earlier: int = 0) -> list[RuleViolation]:
    """Return a fault if a device does not take the smallest offer, which is the only one within its limits."""
    device.publish(offered.id, offered.payload)
    if not await device.until_reports(earlier + 1):
        return [silent(device, when), *inspect(device, offered)]
    body = body_of(device.reports[earlier])
    if body and body[0]:
        limits = f"above its limit of {device.setup.max_epsilon}"
        return [RuleViolation(Rule.OFFER, f"{when}: it took the larger one, {limits}")]
    return []


_DRAWS = 9
"""Of the memory of the sticky task: G + 1. Two draws are equal with probability 0.11."""
_SEEN, _TRIED = 3, 6
"""Rounds that are to be answered, and rounds that are asked."""


async def _sticky(knowledge: Knowledge) -> CheckOutcome:
    """Ask a sticky task about a value that does not change, and start the program again between its rounds."""
    seen = list[int]()
    cases = [_constant(knowledge, number, value, seen) for number, value in enumerate(_VALUES)]
    faults = await together(knowledge.setup, cases)
    if not seen and not faults:
        return CheckOutcome(is_supported=False)
    remark = f"{'/'.join(map(str, seen))} rounds about values that do not change"
    is_judged = len(seen) == len(_VALUES) and min(seen) > 1
    return CheckOutcome(faults, [remark if is_judged else f"{remark}, too few to judge"], is_judged=is_judged)


async def _constant(knowledge: Knowledge, number: int, value: str | None, seen: list[int]) -> list[RuleViolation]:
    setup, every = knowledge.setup, max(2, math.ceil(2 * knowledge.answers + 1.5 * (knowledge.lasts or 0)))
    asked = task(
        f"conform-sticky-{number}",
        epsilon=setup.max_epsilon,
        mechanism="multilevel",
        levels=_DRAWS - 1,
        repeat="sticky",
        rounds=_DRAWS + 1,
        round_every=f"{every}s",
        opens=moment(0),
    )
    async with setup.device(asked.id, value=value) as device:
        device.publish(asked.id, asked.payload)
        if not await device.until_reports(1, knowledge.probing):
            return []
        answered, faults = await _rounds_of(device, asked, every), inspect(device, asked, rounds=range(_TRIED + 2))
        bodies = list(dict.fromkeys(answered.values()))
        if len(bodies) > 1:
            about = "no value" if value is None else "one value"
            what = f"about {about}: {len(bodies)} different reports in {len(answered)} rounds"
            faults.append(RuleViolation(Rule.MEMORY, what))
        seen.append(len(answered))
        return faults or await _all_charged(device, asked)


async def _rounds_of(device: Device, asked: Task, every: float) -> dict[int, Sequence[int]]:
    """Run the program until it has answered some rounds; return the bodies by round."""

    def answered() -> dict[int, Sequence[int]]:
        frames = [frame for one in device.reports if (frame := frame_of(one)) is not None]
        return {frame.round: frame.reports[0].body for frame in frames}

    ends = Patience(device.broker.pace, _TRIED * every, by_clock=True)
    while len(answered()) < _SEEN and ends.left > 0:
        await device.broker.wait(lambda: not device.is_running, 0.2)
        await device.kill()
        now = asked.current_round(datetime.now(UTC))
        if now in answered():
            await device.broker.wait(lambda: asked.current_round(datetime.now(UTC)) != now, ends)  # noqa: B023 - awaited here
        count = len(answered())
        await device.until(lambda: len(answered()) > count, ends)  # noqa: B023 - is awaited here
    return answered()


async def _all_charged(device: Device, asked: Task) -> list[RuleViolation]:
    """Ask another task of the purpose of a sticky one, which has cost all of the budget."""
    more = task("conform-after-sticky", epsilon="1", purpose=asked.purpose)
    await _next(device, more)
    if not await device.run_idle(lambda: any(one.topic == device.topic(more.id) for one in device.reports)):
        return []
    both = f"a sticky task of epsilon {device.setup.max_epsilon}, all of its budget, and one more of its purpose"
    return [RuleViolation(Rule.BUDGET, f"{both} were answered")]


CHECKS = (
    Check(
        "offers",
        "takes one of several epsilons, within its limits",
        _offers,
        "a choice above the limits or the budget, or one that these values change",
        "a choice that depends on another value",
    ),
    Check(
        "sticky",
        "draws the memory of a sticky task once",
        _sticky,
        "a memory that is drawn again, and a charge that is not for all rounds",
        "a memory that changes after these rounds, or with another value",
    ),
)
