"""Checks of refusals: what a device must not answer, and that a refusal does not last."""

from collections.abc import Mapping, Sequence
from fractions import Fraction

from hush_common.epsilon import decimal_text
from hush_common.task import Task
from hush_common.topics import task_of_report_topic
from hush_conform.checks.answers import silent
from hush_conform.checks.check import Check, CheckOutcome, Knowledge, together
from hush_conform.device import Device, Setup
from hush_conform.findings import Rule, RuleViolation
from hush_conform.reports import inspect
from hush_conform.tasks import Hostile, hostile, moment, task


async def _hostile(knowledge: Knowledge) -> CheckOutcome:
    count = len(hostile(task("conform-hostile")))
    size = min(knowledge.together, _MOST_TOGETHER)
    groups = [range(start, min(start + size, count)) for start in range(0, count, size)]
    faults = await together(knowledge.setup, [_some_refused(knowledge.setup, numbers) for numbers in groups])
    return CheckOutcome(faults, [f"{count} payloads; a legal task follows each, and is to be answered"])


async def _some_refused(setup: Setup, numbers: range) -> list[RuleViolation]:
    asked = {number: task(f"conform-hostile-{number}", purpose=f"conform {number}") for number in numbers}
    return await _refused_then(setup, [(hostile(legal)[number], legal) for number, legal in asked.items()])


_MOST_TOGETHER = 18
"""Payloads of one run: a program that one of them ends is found in a third of them."""


def _why(device: Device) -> str:
    return silent(device, "not answered").what


async def _limits(knowledge: Knowledge) -> CheckOutcome:
    setup = knowledge.setup
    cases = [_too_large(setup), _closed(setup), _not_open(setup), _budget(setup), _replaced(setup)]
    faults = await together(setup, cases)
    return CheckOutcome(faults, [f"limit of this device: epsilon {setup.max_epsilon}"])


async def _too_large(setup: Setup) -> list[RuleViolation]:
    """An epsilon just above the limit, then one within it."""
    above = decimal_text(Fraction(setup.max_epsilon) + Fraction(1, 1_000_000))
    costly = task("conform-epsilon", epsilon=above)
    case = Hostile(f"a task with epsilon {above}, above its limit of {setup.max_epsilon}", costly.payload)
    return await _refused_then(setup, [(case, task("conform-epsilon", epsilon="1"))])


async def _refused_then(setup: Setup, cases: Sequence[tuple[Hostile, Task]]) -> list[RuleViolation]:
    """Publish tasks that no device may answer, and then a legal one under the id of each."""
    legal = [one for _, one in cases]
    names = {one.id: case.name for case, one in cases}
    async with setup.device(*names) as device:
        for case, one in cases:
            device.publish(one.id, case.payload)
        if await device.run_idle(lambda: bool(device.reports)):
            answered = dict.fromkeys(task_of_report_topic(one.topic) or "" for one in device.reports)
            return [RuleViolation(Rule.REFUSES, f"answered {names.get(one, 'a task')}") for one in answered]
        for one in legal:
            device.publish(one.id, one.payload)
        for count in range(1, len(cases) + 1):
            if not await device.until(lambda: len(device.frames) >= count):  # noqa: B023 - is awaited here
                answered = dict.fromkeys(task_of_report_topic(one.topic) or "" for one in device.reports)
                silent_after = next(name for one, name in names.items() if one not in answered)
                words = f"after {silent_after}, a legal task under the same id: {_why(device)}"
                return [RuleViolation(Rule.RECOVERS, words)]
        return inspect(device, *legal)


async def _closed(setup: Setup) -> list[RuleViolation]:
    asked = task("conform-closed", opens=moment(-7200), closes=moment(-3600))
    async with setup.device(asked.id) as device:
        device.publish(asked.id, asked.payload)
        found = await device.run_idle(lambda: bool(device.reports))
        return [RuleViolation(Rule.REFUSES, "answered a task that closed an hour ago")] if found else []


async def _not_open(setup: Setup) -> list[RuleViolation]:
    asked = task("conform-early", opens=moment(3600), closes=moment(7200))
    async with setup.device(asked.id) as device:
        device.publish(asked.id, asked.payload)
        found = await device.run_idle(lambda: bool(device.reports))
        return [RuleViolation(Rule.REFUSES, "answered a task that opens in an hour")] if found else []


async def _budget(setup: Setup) -> list[RuleViolation]:
    """Two tasks with one purpose, which together exceed the limit."""
    half = decimal_text(Fraction(setup.max_epsilon) * Fraction(3, 5))
    first, second = (task(f"conform-budget-{number}", epsilon=half, purpose="conform budget") for number in (1, 2))
    async with setup.device(first.id) as device:
        device.publish(first.id, first.payload)
        if not await device.until_reports(1):
            return [silent(device, f"a task with epsilon {half}"), *inspect(device, first)]
        await device.broker.wait(lambda: not device.is_running, 0.5)
        await device.kill()
        device.tasks = (second.id,)
        device.publish(second.id, second.payload)
        await device.run_idle(lambda: len(device.frames) > 1)
        if len(device.frames) > 1:
            two = f"answered two tasks of one purpose with epsilon {half} each"
            return [RuleViolation(Rule.BUDGET, f"{two}, above its limit of {setup.max_epsilon}")]
        return inspect(device, first)


async def _replaced(setup: Setup) -> list[RuleViolation]:
    """Another task under the id of one that was answered; then the first one again."""
    first, other = task("conform-replaced"), task("conform-replaced", domain=_OTHER_BOUNDS, purpose="conform other")
    async with setup.device(first.id) as device:
        device.publish(first.id, first.payload)
        if not await device.until_reports(1):
            return [silent(device, "a legal task"), *inspect(device, first)]
        for when, payload in (
            ("another task under the id of one that was answered", other.payload),
            ("the same, after a restart", other.payload),
            ("the first task again", first.payload),
        ):
            device.publish(first.id, payload)
            await device.run_idle(lambda: len(device.frames) > 1)
            if len(device.frames) > 1:
                return [RuleViolation(Rule.PINNED, f"{when}: a second report was sent")]
            await device.kill()
        return inspect(device, first)


_OTHER_BOUNDS: Mapping[str, object] = {"kind": "number", "lower": 0.0, "upper": 10.0}

CHECKS = (
    Check(
        "hostile",
        "refuses malformed and illegal tasks, and then answers a legal one",
        _hostile,
        "an answer to one of these payloads, and a task that is not answered after one",
        "other payloads, and an answer that comes later than the wait for silence",
    ),
    Check(
        "limits",
        "refuses what is closed, not open, too costly or changed",
        _limits,
        "an answer above the limit or the budget, out of time, or to a replaced task",
        "an answer that comes later than the wait for silence",
    ),
)
