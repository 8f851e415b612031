"""Checks of a task with rounds: one report in each, whatever happens between them."""

import asyncio
import math
import time
from collections.abc import Sequence
from datetime import UTC, datetime

from hush_common.task import Task
from hush_simulations.conformance.checks.check import Check, CheckOutcome, Knowledge
from hush_simulations.conformance.device import Device
from hush_simulations.conformance.findings import Rule, RuleViolation
from hush_simulations.conformance.reports import frame_of, inspect
from hush_simulations.conformance.tasks import moment, task

_ROUNDS = 4
_SHORTEST = 2
"""Seconds of a round, at least."""


async def _rounds(knowledge: Knowledge) -> CheckOutcome:
    """Ask in short rounds; kill the program after each odd one, and ask again within the round."""
    every = max(_SHORTEST, math.ceil(2.5 * knowledge.answers + 1.5 * (knowledge.lasts or 0)))
    opens = moment(knowledge.setup.slowest + 2)
    asked = task("conform-rounds", epsilon="2", rounds=_ROUNDS, round_every=f"{every}s", opens=opens)
    async with knowledge.setup.device(asked.id) as device:
        device.publish(asked.id, asked.payload)
        faults = await _before(device, asked)
        for round_ in range(_ROUNDS):
            ends = _until_round(asked, round_ + 1)
            if not await _in_round(device, round_, ends - 0.1) and round_ == 1 and not device.reports:
                printed = f"; it printed last: {words}" if (words := device.last_words()) else ""
                return CheckOutcome(faults, [f"asked {_ROUNDS} rounds of {every} s{printed}"], is_supported=False)
        faults += inspect(device, asked, rounds=range(_ROUNDS)) + _counted(device)
    return CheckOutcome(faults, [f"{_ROUNDS} rounds of {every} s, killed in every other one"])


async def _before(device: Device, asked: Task) -> list[RuleViolation]:
    """Start before the first round opens."""
    await device.start()
    await device.broker.wait(lambda: bool(device.reports), _until_round(asked, 0) - 0.05)
    early = bool(device.reports)
    await asyncio.sleep(max(_until_round(asked, 0), 0))
    return [RuleViolation(Rule.REFUSES, "answered a task before it opened")] if early else []


async def _in_round(device: Device, round_: int, seconds: float) -> bool:
    """Run the program until it answers a round, ask again with another value, and wait for the end of the round."""
    ends = time.monotonic() + seconds
    found = await device.until(lambda: round_ in _answered(device), seconds)
    device.set_value("121" if round_ % 2 else "219")
    if found and round_ % 2:
        await device.broker.wait(lambda: False, min(0.1, max(ends - time.monotonic(), 0)))
        await device.kill()
    while (left := ends - time.monotonic()) > 0:
        if found and not device.is_running:
            await device.start()
        await device.broker.wait(lambda: not device.is_running, left)
        await asyncio.sleep(min(0.2, max(ends - time.monotonic(), 0)))
    return found


def _answered(device: Device) -> Sequence[int]:
    frames = [frame_of(one) for one in device.reports]
    return [frame.round for frame in frames if frame is not None]


def _counted(device: Device) -> list[RuleViolation]:
    """Return a fault for each round without a report, and with more than one."""
    rounds: dict[int, set[bytes]] = {}
    for one in device.reports:
        frame = frame_of(one)
        if frame is not None:
            rounds.setdefault(frame.round, set()).add(one.payload)
    faults = []
    for round_ in range(_ROUNDS):
        found = len(rounds.get(round_, ()))
        if found > 1:
            faults.append(
                RuleViolation(Rule.CHARGED_ONCE, f"answered round {round_} {found} times, with different reports")
            )
        if not found:
            faults.append(RuleViolation(Rule.ROUNDS, f"did not answer round {round_} of {_ROUNDS}"))
    return faults


def _until_round(asked: Task, round_: int) -> float:
    """Return the seconds until a round opens; negative if it has."""
    opens = asked.round_opens(round_)
    return 0.0 if opens is None else (opens - datetime.now(UTC)).total_seconds()


CHECKS = (Check("rounds", "answers each round once", _rounds),)
