"""Checks of a first answer, and of answers to every kind of value."""

import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hush_common.mqtt.codec import OLD
from hush_conform.checks.check import Check, CheckOutcome, Knowledge, name_value, together
from hush_conform.device import Device, Setup
from hush_conform.findings import Rule, RuleViolation
from hush_conform.reports import changed, inspect
from hush_conform.tasks import DOMAINS, VALUES, task, unusual

_CANARY = "173.62951"
"""A value that no program prints by chance."""
_MOST_SHOWN = 5


def silent(device: Device, when: str) -> RuleViolation:
    """Return the fault of a device that does not answer, with the last line that its program printed."""
    why = f"; it printed last: {words}" if (words := device.output.last_line()) else ""
    code = f", and ended with exit code {device.codes[-1]}" if device.codes else ""
    return RuleViolation(Rule.ANSWERS, f"{when}: no report within {device.setup.timeout:g} s{code}{why}")


_SHORT_RUN = 1.0
"""Seconds after its first report within which a program that ends by itself has ended."""


async def _answer(knowledge: Knowledge) -> CheckOutcome:
    """Measure how long an answer takes; then ask again, and over MQTT 3.1.1."""
    setup, asked = knowledge.setup, unusual(task("conform-answer"))
    async with setup.device(asked.id) as device:
        device.publish(asked.id, asked.payload)
        if not await device.until_reports(1):
            return CheckOutcome([silent(device, "a legal task"), *inspect(device, asked)])
        began = device.started
        knowledge.answers = device.reports[0].at - began
        setup.slowest = device.delay(asked.id)
        await device.broker.wait(lambda: not device.is_running, max(_SHORT_RUN, setup.silence))
        knowledge.lasts = None if device.is_running else time.monotonic() - began
        device.set_value("219")
        await device.kill()
        await device.run_idle(lambda: len(device.frames) > 1)
        faults = inspect(device, asked) + changed(device, "after a restart")
    faults += await _old_broker(setup)
    remark = f"first report {knowledge.answers:.2g} s after the start of the program"
    remark += "; it keeps running" if knowledge.lasts is None else f"; it ends after {knowledge.lasts:.2g} s"
    return CheckOutcome(list(dict.fromkeys(faults)), [remark])


async def _old_broker(setup: Setup) -> list[RuleViolation]:
    """A broker that knows only MQTT 3.1.1."""
    asked = task("conform-old")
    async with setup.device(asked.id) as device:
        device.broker.newest = OLD
        device.publish(asked.id, asked.payload)
        if not await device.until_reports(1):
            return [silent(device, "a broker that refuses MQTT 5"), *inspect(device, asked)]
        return inspect(device, asked)


async def _values(knowledge: Knowledge) -> CheckOutcome:
    """Answer each kind of value, and compare what an observer sees."""
    seen: list[_Seen] = []
    kinds = [kind for kind in DOMAINS if await _supports(knowledge, kind)]
    faults = await together(
        knowledge.setup,
        [_some_values(knowledge, kind, numbers, seen) for kind in kinds for numbers in _groups(knowledge, kind)],
    )
    for kind in kinds:
        faults += _compared(kind, [one for one in seen if one.kind == kind])
    faults += await _leaks(knowledge.setup)
    count = sum(len(VALUES[kind]) for kind in kinds)
    remark = (
        f"{count} values of {len(kinds)} kinds, one report each: a value that is silenced only sometimes may be missed"
    )
    return CheckOutcome(list(dict.fromkeys(faults)), [remark])


@dataclass(frozen=True, slots=True)
class _Seen:
    """What an observer sees of one answer."""

    kind: str
    value: str
    size: int
    code: int | None


async def _supports(knowledge: Knowledge, kind: str) -> bool:
    """Whether the program answers tasks of a kind of domain; it must answer all with one value, or none."""
    asked = task(f"conform-{kind}", domain=DOMAINS[kind])
    async with knowledge.setup.device(asked.id, value=VALUES[kind][0]) as device:
        device.publish(asked.id, asked.payload)
        found = await device.until_reports(1, knowledge.probing)
    (knowledge.supported if found else knowledge.missing).add(kind)
    return found


def _groups(knowledge: Knowledge, kind: str) -> list[range]:
    """Return the numbers of the values that one run of the program answers."""
    count, size = len(VALUES[kind]), knowledge.together
    return [range(start, min(start + size, count)) for start in range(0, count, size)]


async def _some_values(knowledge: Knowledge, kind: str, numbers: range, seen: list[_Seen]) -> list[RuleViolation]:
    """Publish one task after the other, each about another value."""
    setup = knowledge.setup
    asked = [task(f"conform-{kind}-{number}", domain=DOMAINS[kind]) for number in numbers]
    async with setup.device(*(one.id for one in asked)) as device:
        for place, (number, one) in enumerate(zip(numbers, asked, strict=True)):
            value = VALUES[kind][number]
            shown = name_value(value)
            device.set_value(value)
            device.publish(one.id, one.payload)
            if not await device.until(lambda: len(device.frames) > place):  # noqa: B023 - is awaited here
                return [silent(device, f"{shown} of a {kind}"), *inspect(device, *asked)]
            setup.slowest = max(setup.slowest, device.delay(one.id))
            if knowledge.lasts is not None:
                await device.broker.wait(lambda: not device.is_running, setup.timeout)
            code = device.codes[-1] if device.codes and knowledge.lasts is not None else None
            seen.append(_Seen(kind, shown, len(device.frames[place]), code))
        return inspect(device, *asked)


def _compared(kind: str, seen: Sequence[_Seen]) -> list[RuleViolation]:
    """Return what of an answer depends on the value."""
    faults = []
    if not seen:
        return []
    first = seen[0]
    for one in seen[1:]:
        between = f"of a {kind}: {first.value} and {one.value}"
        if one.size != first.size:
            faults.append(RuleViolation(Rule.SAME_SIZE, f"{between} have reports of {first.size} and {one.size} bytes"))
        if one.code != first.code:
            faults.append(RuleViolation(Rule.OUTPUT, f"{between} end with exit code {first.code} and {one.code}"))
    return faults[:_MOST_SHOWN]


async def _leaks(setup: Setup) -> list[RuleViolation]:
    """Look for a value in what the program prints and stores."""
    asked, faults = task("conform-leaks"), []
    async with setup.device(asked.id, value=_CANARY) as device:
        device.output.search = _FORMS
        device.publish(asked.id, asked.payload)
        await device.until_reports(1)
        await device.run_idle()
        await device.kill()
        if device.output.found:
            faults.append(RuleViolation(Rule.OUTPUT, f"it prints its value {_CANARY}"))
        stored = [path for path in sorted(device.state.rglob("*")) if path.is_file() and _holds(path)]
        faults += [
            RuleViolation(Rule.STATE, f"the file {path.name!r} of its state holds the value {_CANARY}")
            for path in stored
        ]
    return faults


_FORMS = (_CANARY.encode(), struct.pack("<d", float(_CANARY)), struct.pack(">d", float(_CANARY)))
"""The value as text and as binary64."""
_READ_BYTES = 1 << 20


def _holds(path: Path) -> bool:
    """Whether a file has the value; of a large one only a part is in memory at a time."""
    before = b""
    with path.open("rb") as file:
        while data := file.read(_READ_BYTES):
            if any(form in before + data for form in _FORMS):
                return True
            before = data[-max(map(len, _FORMS)) :]
    return False


CHECKS = (
    Check(
        "answers",
        "answers a task once: topic, QoS, digest, round, body",
        _answer,
        "a wrong topic, QoS, retain flag, frame, digest, round, body or client id, and a second answer after a restart",
        "faults that another task or another broker brings out",
    ),
    Check(
        "values",
        "answers whatever the value is, with messages of one size",
        _values,
        "a value of these that is silenced, changes size or exit code, or is printed or stored as text or binary64",
        "other values, a value that is silenced only sometimes, and other forms of a stored value",
    ),
)
