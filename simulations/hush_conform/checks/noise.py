"""Checks of the noise: its law for each mechanism, whatever the value is, and the ids of reports."""

import asyncio
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import floor, log

from hush_common.domain import Domain
from hush_common.formatting import significant, whole
from hush_common.mechanisms import Mechanism, Offers
from hush_common.rng import SystemRng
from hush_common.task import Task
from hush_conform.checks.answers import silent
from hush_conform.checks.check import Check, CheckOutcome, Knowledge, name_value
from hush_conform.findings import Rule, RuleViolation
from hush_conform.law import FALSE_ALARM, Body, Comparison, compare, divergence, views
from hush_conform.pace import StarvedError
from hush_conform.reports import frame_of, inspect
from hush_conform.scale import TWICE, judge_scale
from hush_conform.tasks import LAWS, SampledLaw, task
from hush_simulations.auditing.audit import audit, views_of_mechanism

_PILOT = 2_000
_TIMES_AS_MANY, _FEWEST, _MOST = 20, 2_000, 400_000
"""Draws of the reference: a multiple of the sample, within limits."""
_OF_UNKNOWN = 60
"""Reports about a value that a device replaces by a uniform one: they show nothing of epsilon, but gross errors."""
_SURE = 0.9
"""The probability of finding twice the epsilon, below which a pass does not claim it."""
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
    """The reports about some values under one law."""

    law: SampledLaw
    asked: Task
    wanted: Mapping[str | None, int]  # of each value
    bodies: dict[str | None, list[Body]]
    seconds: float = 0.0  # that the devices have used
    started: Counter[str | None] = field(default_factory=Counter)
    faults: list[RuleViolation] = field(default_factory=list)

    @classmethod
    def of(cls, law: SampledLaw, samples: int | None) -> "_Sample":
        asked = task(f"conform-law-{law.name.replace('_', '-')}", **law.fields)
        counts = {
            value: law.samples if known_index(asked.domain, value) is not None else _OF_UNKNOWN for value in law.values
        }
        wanted = counts if samples is None else dict.fromkeys(law.values, samples)
        return cls(law, asked, wanted, {value: [] for value in law.values})

    def next_value(self) -> tuple[str | None, int]:
        """Return the value with the smallest share of its reports so far, and how many are wanted of it."""

        def share(value: str | None) -> tuple[float, int]:
            return self.started[value] / max(self.wanted[value], 1), SystemRng().randbelow(1 << 20)

        value = min(self.bodies, key=share)
        return value, self.wanted[value] - self.started[value]

    def fresh(self, number: int) -> Task:
        """Return a new task with the same law, and with its own purpose."""
        return task(f"{self.asked.id}-{number}", **self.law.fields)


def known_index(domain: Domain, value: str | None) -> int | tuple[int, ...] | None:
    """Return the index that a device reports about; None if it draws one, because a part of the value is missing."""
    parsed = None if value is None else domain.parse(value)
    return None if parsed is None or None in domain.read(parsed).parts else domain.index(parsed).index


async def _noise(knowledge: Knowledge) -> CheckOutcome:
    """Sample each law that the program has, for an equal share of the time."""
    outcome, left = CheckOutcome(), knowledge.seconds * knowledge.setup.jobs
    laws = [law for law in LAWS if not knowledge.laws or law.name in knowledge.laws]
    for number, law in enumerate(laws):
        sample = _Sample.of(law, knowledge.samples)
        share = left / (len(laws) - number)
        if not await _one_run(knowledge, sample, *sample.next_value(), share):
            knowledge.missing.add(law.name)
            outcome.remarks.append(f"{law.name} is not supported")
            continue
        knowledge.supported.add(law.name)
        await _draw(knowledge, sample, share)
        left -= sample.seconds
        faults, remark, is_judged = await asyncio.to_thread(_judge, sample)
        outcome.faults += faults
        outcome.remarks.append(remark)
        outcome.is_judged = outcome.is_judged and is_judged
        if outcome.faults and knowledge.setup.stops:
            break
    outcome.faults = list(dict.fromkeys(outcome.faults))
    outcome.is_supported = any(law.name in knowledge.supported for law in laws)
    return outcome


async def _draw(knowledge: Knowledge, sample: _Sample, seconds: float) -> None:
    """Let devices answer until there are enough reports of each value, or they have used their time."""

    async def work() -> None:
        while sample.seconds < seconds and not sample.faults:
            value, lack = sample.next_value()
            if lack <= 0:
                return
            with suppress(StarvedError):  # the sample is smaller
                await _one_run(knowledge, sample, value, lack, seconds)

    async with asyncio.TaskGroup() as group:
        for _ in range(knowledge.setup.jobs):
            group.create_task(work(), name="conform-sample")


async def _one_run(knowledge: Knowledge, sample: _Sample, value: str | None, lack: int, seconds: float) -> bool:
    """Let a new device answer tasks about one value; return whether it answers any, if it is the first."""
    setup, first = knowledge.setup, sum(sample.started.values())
    count = min(lack, setup.batch, _MOST_TOGETHER)
    sample.started[value] += count
    asked = [sample.fresh(number) for number in range(first, first + count)]
    async with setup.device(*(one.id for one in asked), value=value) as device:
        for one in asked:
            device.publish(one.id, one.payload)
        if not first and not await device.until_reports(1, knowledge.probing):
            return False
        while len(device.frames) < count and sample.seconds < seconds:
            before, used = len(device.frames), device.broker.pace.used
            try:
                answers = await device.until(lambda: len(device.frames) > before)  # noqa: B023 - is awaited here
            finally:
                sample.seconds += device.broker.pace.used - used
            if not answers:
                some = f"{before} of {count} tasks with {sample.law.name} about {name_value(value)} answered, then"
                sample.faults.append(silent(device, some))
                break
        sample.faults += inspect(device, *asked)
        frames = {one.payload: frame_of(one) for one in device.reports}
        bodies = [report.body for frame in frames.values() if frame for report in frame.reports]
        sample.bodies[value] += filter(sample.asked.randomizer.admits, bodies)  # `inspect` reports the others
        return True


def _judge(sample: _Sample) -> tuple[list[RuleViolation], str, bool]:
    """Compare a sample with the law of each value, and with the epsilon; return whether there was enough of it."""
    part, samples = _of_one_offer(sample)
    domain = sample.asked.domain
    name, faults, seen = sample.law.name, list(dict.fromkeys(sample.faults)), list[float]()
    for value, bodies in samples.items():
        if len(bodies) >= _FEWEST_TESTED:
            compared = _compared(domain, part, value, bodies)
            seen.append(compared.visible)
            if compared.deviation:
                faults.append(RuleViolation(Rule.LAW, f"{name}, {name_value(value)}: {compared.deviation}"))
    visible = max(seen) if len(seen) == len(samples) else 1.0
    remark = f"{name}: {_counted(samples, sample.wanted)} reports"
    if visible > _GROSS:
        remark += f" in {significant(sample.seconds, 2)} s of its devices, too few to judge; "
        remark += "give more time with --seconds, or use --batch"
    else:
        remark += f"; a share that is wrong by {significant(visible, 2, scale=100)} points would be found"
    known = [(index, bodies) for value, bodies in samples.items() if (index := known_index(domain, value)) is not None]
    scale = judge_scale(part, known)
    if scale.found is not None:
        words = "twice" if scale.found == TWICE else "half"
        what = f"{name}: the noise is that of {words} the epsilon of the task, {significant(float(part.epsilon))}"
        faults.append(RuleViolation(Rule.EPSILON if scale.found == TWICE else Rule.LAW, what))
    if scale.power >= _SURE:
        remark += f"; noise for twice the epsilon would be found with probability {_floor(scale.power)}"
    else:
        remark += "; noise for twice the epsilon would be missed: give more time with --seconds"
    audited = _audited(domain, part, list(samples.values()))
    if audited is not None:
        declared = float(part.epsilon)
        if audited > declared:
            words = f"{name}: epsilon is at least {significant(audited)}, where the task says {significant(declared)}"
            faults.append(RuleViolation(Rule.EPSILON, words))
        remark += f"; epsilon is at least {significant(audited, 2)} of {significant(declared)}"
    return faults, remark, visible <= _GROSS


def _counted(samples: Mapping[str | None, Sequence[Body]], wanted: Mapping[str | None, int]) -> str:
    found, asked = sum(map(len, samples.values())), sum(wanted.values())
    return f"{whole(found)} of {whole(asked)}" if found < asked else whole(found)


def _floor(share: float) -> str:
    """Return a probability rounded down to hundredths, and not above 0.99: it is approximate."""
    return f"{min(floor(100 * share), 99) / 100:g}"


def _of_one_offer(sample: _Sample) -> tuple[Mechanism, Mapping[str | None, Sequence[Body]]]:
    """Return the mechanism of the offer that most reports took, and their bodies under it."""
    randomizer = sample.asked.randomizer
    if not isinstance(randomizer, Offers):
        return randomizer, sample.bodies
    taken = Counter(body[0] for bodies in sample.bodies.values() for body in bodies)
    most = max(range(len(randomizer.parts)), key=lambda offer: taken[offer])
    return randomizer.parts[most], {
        value: [body[1:] for body in bodies if body[0] == most] for value, bodies in sample.bodies.items()
    }


def _compared(domain: Domain, part: Mechanism, value: str | None, bodies: Sequence[Body]) -> Comparison:
    """Compare reports about a value with draws of hush's own mechanism."""
    rng, reading = SystemRng(), domain.nothing if value is None else domain.read(domain.parse(value))
    count = min(max(_TIMES_AS_MANY * len(bodies), _FEWEST), _MOST)
    drawn = [part.perturb(domain.complete(reading, rng).index, rng) for _ in range(_PILOT + count)]
    return compare(bodies, drawn[_PILOT:], drawn[:_PILOT], views(part, domain))


def _audited(domain: Domain, part: Mechanism, samples: Sequence[Sequence[Body]]) -> float | None:
    """Return the lower bound of epsilon from the first two values; None if there are too few reports.

    A fair coin says of each report of which value the next one is taken, so that the coins are independent.
    """
    pools = [iter(bodies) for bodies in samples[:2]]
    sides, reports, coins = list[int](), list[object](), SystemRng()
    with suppress(StopIteration):
        while True:
            side = coins.randbelow(2)
            reports.append(next(pools[side]))
            sides.append(side)
    if len(sides) < _FEWEST_AUDITED:
        return None
    return audit(sides, reports, views_of_mechanism(part, domain), 1 - FALSE_ALARM).bound


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
    needed = math.ceil(_limit() / log(2))
    is_judged = len(ids) >= needed
    remark = f"{len(ids)} ids" if is_judged else f"{len(ids)} of {needed} ids that are needed to judge their bits"
    return CheckOutcome(faults, [remark], is_judged=is_judged)


def _limit() -> float:
    return log(2 * 128 / FALSE_ALARM)


def _biased(ids: Sequence[bytes]) -> list[int]:
    """Return the bits that are set too often or too seldom, with a false alarm of 10^-9 in all together."""
    limit = _limit()
    numbers = [int.from_bytes(one, "big") for one in ids]
    found = []
    for bit in range(128):
        share = sum(number >> bit & 1 for number in numbers) / max(len(numbers), 1)
        if len(numbers) * divergence(share, 0.5) > limit:
            found.append(bit)
    return found


CHECKS = (
    Check(
        "noise",
        "follows the law of each mechanism, and gives away no more than epsilon",
        _noise,
        "noise of the wrong law, as the line of each mechanism states",
        "a smaller error, a leak in one report of thousands, at other values, or at another epsilon",
    ),
    Check(
        "ids",
        "draws the id of each report at random",
        _ids,
        "an id that comes twice, and more than 8 fixed bits",
        "ids that follow from each other or from a weak seed",
    ),
)
