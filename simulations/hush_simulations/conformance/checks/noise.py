"""Checks of the noise: its law for each mechanism, whatever the value is, and the ids of reports."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import log

from hush_common.domain import read_domain
from hush_common.formatting import significant, whole
from hush_common.mechanisms import Mechanism, Offers
from hush_common.mechanisms.registry import fitting
from hush_common.rng import SystemRng
from hush_common.task import Task
from hush_simulations.auditing.audit import audit, views_of_mechanism
from hush_simulations.conformance.checks.answers import silent
from hush_simulations.conformance.checks.check import Check, CheckOutcome, Knowledge
from hush_simulations.conformance.device import Setup
from hush_simulations.conformance.findings import Rule, RuleViolation
from hush_simulations.conformance.law import FALSE_ALARM, Body, Comparison, compare, divergence, views
from hush_simulations.conformance.reports import frame_of, inspect
from hush_simulations.conformance.tasks import DOMAINS, EXTREMES, task

_PILOT = 4_000
_TIMES_AS_MANY, _FEWEST, _MOST = 20, 20_000, 400_000
"""Draws of the reference: a multiple of the sample, within limits."""
_FEWEST_AUDITED = 200
"""Reports below which a lower bound of epsilon says nothing."""
_FEWEST_TESTED = 10
_MOST_TOGETHER = 64
"""Tasks of one run, so that each value gets its share of the time."""
_GROSS = 0.5
"""A share of one half cannot be wrong by more: a sample that shows no less is too small."""
_FIXED_BITS = 8
"""Bits of an id that may be fixed: a UUID has six of them."""


@dataclass
class _Sample:
    """The reports about some values under one mechanism."""

    kind: str
    asked: Task
    bodies: dict[str | None, list[Body]]
    started: Counter[str | None] = field(default_factory=Counter)
    faults: list[RuleViolation] = field(default_factory=list)

    def next_value(self, wanted: int) -> tuple[str | None, int]:
        """Return the value with the fewest reports so far, and how many are wanted of it."""
        value = min(self.bodies, key=lambda one: (self.started[one], SystemRng().randbelow(1 << 20)))
        return value, wanted - self.started[value]


async def _noise(knowledge: Knowledge) -> CheckOutcome:
    """Sample each mechanism that the program has, for an equal share of the time."""
    outcome = CheckOutcome()
    mechanisms = [(kind, part.name) for kind, domain in DOMAINS.items() for part in fitting(read_domain(domain))]
    ends = time.monotonic() + knowledge.seconds
    for number, (kind, name) in enumerate(mechanisms):
        asked = task(f"conform-{name.replace('_', '-')}", domain=DOMAINS[kind], mechanism=name)
        if not await _is_answered(knowledge, asked, kind):
            knowledge.missing.add(name)
            outcome.remarks.append(f"{name} is not supported")
            continue
        knowledge.supported.add(name)
        left = (ends - time.monotonic()) / (len(mechanisms) - number)
        sample = _Sample(kind, asked, {value: [] for value in EXTREMES[kind]})
        await _draw(knowledge, sample, left)
        faults, remark, is_judged = await asyncio.to_thread(_judge, sample)
        outcome.faults += faults
        outcome.remarks.append(remark)
        outcome.is_judged = outcome.is_judged and is_judged
        if outcome.faults and knowledge.setup.stops:
            break
    outcome.faults = list(dict.fromkeys(outcome.faults))
    outcome.is_supported = any(name in knowledge.supported for _, name in mechanisms)
    return outcome


async def _is_answered(knowledge: Knowledge, asked: Task, kind: str) -> bool:
    async with knowledge.setup.device(asked.id, value=EXTREMES[kind][0]) as device:
        device.publish(asked.id, asked.payload)
        return await device.until_reports(1, knowledge.probing)


async def _draw(knowledge: Knowledge, sample: _Sample, seconds: float) -> None:
    """Let devices answer until there are enough reports of each value, or the time is over."""
    ends = time.monotonic() + seconds

    async def work() -> None:
        while time.monotonic() < ends and not sample.faults:
            value, lack = sample.next_value(knowledge.samples)
            if lack <= 0:
                return
            await _one_run(knowledge.setup, sample, value, min(lack, knowledge.setup.batch, _MOST_TOGETHER), ends)

    async with asyncio.TaskGroup() as group:
        for _ in range(knowledge.setup.jobs):
            group.create_task(work(), name="conform-sample")


async def _one_run(setup: Setup, sample: _Sample, value: str | None, count: int, ends: float) -> None:
    """Let a new device answer tasks about one value."""
    first = sum(sample.started.values())
    sample.started[value] += count
    asked = [_fresh(sample, number) for number in range(first, first + count)]
    async with setup.device(*(one.id for one in asked), value=value) as device:
        for one in asked:
            device.publish(one.id, one.payload)
        while len(device.frames) < count and time.monotonic() < ends:
            before = len(device.frames)
            if not await device.until(lambda: len(device.frames) > before):  # noqa: B023 - is awaited here
                about = "no value" if value is None else f"the value {value!r}"
                some = f"{before} of {count} tasks with {sample.asked.mechanism} about {about} answered, then"
                sample.faults.append(silent(device, some))
                break
        sample.faults += inspect(device, *asked)
        frames = {one.payload: frame_of(one) for one in device.reports}
        sample.bodies[value] += [report.body for frame in frames.values() if frame for report in frame.reports]


def _fresh(sample: _Sample, number: int) -> Task:
    """Return a new task like that of a sample, with its own purpose."""
    return task(f"{sample.asked.id}-{number}", domain=DOMAINS[sample.kind], mechanism=sample.asked.mechanism)


def _judge(sample: _Sample) -> tuple[list[RuleViolation], str, bool]:
    """Compare a sample with the law of each value, and with the epsilon; return whether there was enough of it."""
    asked, faults = sample.asked, list(dict.fromkeys(sample.faults))
    name, seen = asked.mechanism, 1.0
    for value, bodies in sample.bodies.items():
        if not faults and len(bodies) >= _FEWEST_TESTED:
            compared = _compared(asked, value, bodies)
            seen = min(seen, compared.visible)
            if compared.deviation:
                about = "no value" if value is None else f"the value {value!r}"
                faults.append(RuleViolation(Rule.LAW, f"{name}, {about}: {compared.deviation}"))
    counts = sorted({len(bodies) for bodies in sample.bodies.values()})
    shown = whole(counts[0]) if len(counts) == 1 else f"{whole(counts[0])} to {whole(counts[-1])}"
    remark = f"{name}: {shown} reports of each of {len(sample.bodies)} values"
    if seen > _GROSS:
        remark += ", too few to judge; give more time with --seconds, or use --batch"
    else:
        remark += f"; a share that is wrong by {significant(seen, 2, scale=100)} points would be found"
    audited = _audited(sample)
    if audited is not None:
        declared = float(asked.epsilon)
        if audited > declared:
            words = f"{name}: epsilon is at least {significant(audited)}, where the task says {significant(declared)}"
            faults.append(RuleViolation(Rule.EPSILON, words))
        remark += f"; epsilon is at least {significant(audited, 2)} of {significant(declared)}"
    return faults, remark, seen <= _GROSS


def _compared(asked: Task, value: str | None, bodies: Sequence[Body]) -> Comparison:
    """Compare reports about a value with draws of hush's own mechanism."""
    domain, rng, part = asked.domain, SystemRng(), _part(asked)
    reading = domain.nothing if value is None else domain.read(domain.parse(value))
    count = min(max(_TIMES_AS_MANY * len(bodies), _FEWEST), _MOST)
    drawn = [asked.perturb(domain.complete(reading, rng), rng, 0) for _ in range(_PILOT + count)]
    return compare(bodies, drawn[_PILOT:], drawn[:_PILOT], views(part, domain))


def _part(asked: Task) -> Mechanism:
    """Return the mechanism of a task with one epsilon."""
    return asked.randomizer.parts[0] if isinstance(asked.randomizer, Offers) else asked.randomizer


def _audited(sample: _Sample) -> float | None:
    """Return the lower bound of epsilon from the first two values; None if there are too few reports.

    A fair coin says of each report of which value the next one is taken, so that the coins are independent.
    """
    pools = [iter(bodies) for bodies in list(sample.bodies.values())[:2]]
    sides, reports, coins = list[int](), list[object](), SystemRng()
    with suppress(StopIteration):
        while True:
            side = coins.randbelow(2)
            reports.append(next(pools[side]))
            sides.append(side)
    if len(sides) < _FEWEST_AUDITED:
        return None
    looks = views_of_mechanism(_part(sample.asked), sample.asked.domain)
    return audit(sides, reports, looks, 1 - FALSE_ALARM).bound


async def _ids(knowledge: Knowledge) -> CheckOutcome:
    """Look at the ids of all reports of this run."""
    ids = knowledge.setup.ids
    again = len(ids) - len(set(ids))
    faults = (
        [RuleViolation(Rule.FRESH_IDS, f"{again} of {len(ids)} reports have the id of another one")] if again else []
    )
    biased = 0 if again else len(_biased(ids))
    if biased > _FIXED_BITS:
        faults.append(RuleViolation(Rule.FRESH_IDS, f"{biased} of 128 bits of an id are not random"))
    return CheckOutcome(faults, [f"{len(ids)} ids"])


def _biased(ids: Sequence[bytes]) -> list[int]:
    """Return the bits that are set too often or too seldom, with a false alarm of 10^-9 in all together."""
    limit = log(2 * 128 / FALSE_ALARM)
    numbers = [int.from_bytes(one, "big") for one in ids]
    found = []
    for bit in range(128):
        share = sum(number >> bit & 1 for number in numbers) / max(len(numbers), 1)
        if len(numbers) * divergence(share, 0.5) > limit:
            found.append(bit)
    return found


CHECKS = (
    Check("noise", "follows the law of each mechanism, and gives away no more than epsilon", _noise),
    Check("ids", "draws the id of each report at random", _ids),
)
