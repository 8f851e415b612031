"""Checks of a task with rounds: one report in each, whatever happens between them."""

import asyncio
import math
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from hush_common.task import Task
from hush_common.topics import task_topic
from hush_conform.broker import Publication
from hush_conform.checks.check import Check, CheckOutcome, Knowledge
from hush_conform.device import Device, Setup
from hush_conform.findings import Rule, RuleViolation
from hush_conform.pace import TICK, Patience
from hush_conform.reports import frame_of, inspect
from hush_conform.tasks import moment, task

_ROUNDS = 4
_SHORTEST = 2
"""Seconds of a round, at least."""
_TIMES_AS_LONG = (1, 3, 9)
_MOST_LOST = 0.25
"""Share of a round in which a program could not run, above which its silence is not judged."""


async def _rounds(knowledge: Knowledge) -> CheckOutcome:
    """Ask in short rounds; in longer ones if the machine was too slow for them."""
    every = max(_SHORTEST, math.ceil(2.5 * knowledge.answers + 1.5 * (knowledge.lasts or 0)))
    lead = math.ceil(knowledge.answers + knowledge.setup.silence) + 1
    for times in _TIMES_AS_LONG:
        outcome = await _asked(knowledge.setup, times * every, times * lead)
        if outcome.is_judged:
            break
    return outcome


async def _asked(setup: Setup, every: int, lead: int) -> CheckOutcome:
    """Ask in rounds of some seconds; kill the program after each odd one, and ask again within the round."""
    asked = task("conform-rounds", epsilon="2", rounds=_ROUNDS, round_every=f"{every}s", opens=moment(lead))
    about = f"{_ROUNDS} rounds of {every} s"
    async with setup.device(asked.id) as device:
        device.publish(asked.id, asked.payload)
        faults, is_judged = await _before(device, asked)
        for round_ in range(_ROUNDS):
            found, share = await _in_round(device, round_, _until_round(asked, round_ + 1) - 0.1)
            is_judged = is_judged and (found or share < _MOST_LOST)
            if round_ == 1 and not device.reports and is_judged:
                printed = f"; it printed last: {words}" if (words := device.output.last_line()) else ""
                return CheckOutcome(faults, [f"asked {about}{printed}"], is_supported=False)
        faults += inspect(device, asked, rounds=range(_ROUNDS))
        faults += [fault for fault in _counted(device) if is_judged or fault.rule is not Rule.ROUNDS]
    if faults or is_judged:
        return CheckOutcome(faults, [f"{about}, killed in every other one"])
    return CheckOutcome([], [f"{about}: the program got too little of the machine; try again"], is_judged=False)


async def _before(device: Device, asked: Task) -> tuple[list[RuleViolation], bool]:
    """Start before the first round opens; return also whether an answer would have been seen."""
    await device.start()
    topic, silence = task_topic(asked.id), device.setup.silence

    def moment_before() -> Patience:
        return Patience(device.broker.pace, _until_round(asked, 0) - 0.05, by_clock=True)

    await device.broker.wait(lambda: bool(device.reports) or topic in device.broker.delivered, moment_before())
    before = device.broker.pace.used
    await device.broker.wait(lambda: bool(device.reports), moment_before())
    seen, early = device.broker.pace.used - before, _is_early(device.reports, _until_round(asked, 0))
    await asyncio.sleep(max(_until_round(asked, 0), 0))
    faults = [RuleViolation(Rule.REFUSES, "answered a task before it opened")] if early else []
    return faults, early or not device.is_running or seen >= silence


def _is_early(reports: Iterable[Publication], opens_in: float) -> bool:
    """Return whether a report arrived before the opening. On a busy machine this is called after it."""
    opens = time.monotonic() + opens_in
    return any(one.at < opens for one in reports)


async def _in_round(device: Device, round_: int, seconds: float) -> tuple[bool, float]:
    """Run the program until it answers a round, ask again with another value, and wait for the end of the round.

    Returns:
        Whether it answered, and which share of the time until then it could not use.
    """
    ends, pace = Patience(device.broker.pace, seconds, by_clock=True), device.broker.pace
    lost, used = pace.lost, pace.used
    found = await device.until(lambda: round_ in _answered(device), ends)
    share = (pace.lost - lost) / max(pace.lost - lost + pace.used - used, TICK)
    device.set_value("121" if round_ % 2 else "219")
    if found and round_ % 2:
        await asyncio.sleep(0.1)
        await device.kill()
    while ends.left > 0:
        if found and not device.is_running:
            await device.start()
        await device.broker.wait(lambda: not device.is_running, ends)
        await asyncio.sleep(min(0.2, max(ends.left, 0)))
        ends.spend()
    return found, share


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
            faults.append(RuleViolation(Rule.CHARGED_ONCE, f"answered round {round_} with {found} different reports"))
        if not found:
            faults.append(RuleViolation(Rule.ROUNDS, f"did not answer round {round_} of {_ROUNDS}"))
    return faults


def _until_round(asked: Task, round_: int) -> float:
    """Return the seconds until a round opens; negative if it has."""
    opens = asked.round_opens(round_)
    return 0.0 if opens is None else (opens - datetime.now(UTC)).total_seconds()


CHECKS = (
    Check(
        "rounds",
        "answers each round once",
        _rounds,
        "a round that is answered early, twice or not at all, with these kills",
        "faults of later rounds, and of clocks that are set",
    ),
)
