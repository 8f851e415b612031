"""`hush conform` tells noise for twice the epsilon from the right noise, for every law that it samples. Fixed seeds."""

from dataclasses import replace
from fractions import Fraction
from math import log

import pytest

from hush_common.mechanisms import Mechanism, Offers
from hush_conform.checks.noise import known_index
from hush_conform.law import FALSE_ALARM
from hush_conform.scale import HALF, TWICE, ScaleVerdict, judge_scale
from hush_conform.tasks import LAWS, SampledLaw, task
from hush_simulations.engines.experiment import SeededRng

pytestmark = pytest.mark.medium

RUNS = 20


def part_of(law: SampledLaw) -> Mechanism:
    randomizer = task("scale", **law.fields).randomizer
    return randomizer.parts[-1] if isinstance(randomizer, Offers) else randomizer


def judged(law: SampledLaw, seed: int, factor: Fraction) -> ScaleVerdict:
    """A sample of the default size, each of whose reports has a probability that is raised to a power.

    Drawn by rejection from the mechanism itself: a body of probability p is kept with probability (p/p_max)^(f - 1).
    A power below 1 keeps it with (p_min/p)^(1 - f).
    """
    domain, part, rng = task("scale", **law.fields).domain, part_of(law), SeededRng(seed)
    samples = []
    for index in (known_index(domain, value) for value in law.values):
        if index is None:
            continue
        bodies = list[tuple[int, ...]]()
        while len(bodies) < law.samples:
            body = part.perturb(index, rng)  # of a number, a label, or a vector
            if rng.randbelow(1 << 53) < keep(part, body, index, factor) * (1 << 53):
                bodies.append(body)
        samples.append((index, bodies))
    return judge_scale(part, samples)


def keep(part: Mechanism, body: tuple[int, ...], index: int | tuple[int, ...], factor: Fraction) -> float:
    if factor == 1:
        return 1.0
    here = float(part.probability(body, index, 20))
    if part.name == "laplace":
        assert isinstance(index, int)
        return here / float(part.probability((index,), index, 20))
    every = [float(part.probability(one, index, 20)) for one in part.outputs()]
    return here / max(every) if factor == TWICE else (min(every) / here) ** 0.5


@pytest.mark.large
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_twice_the_epsilon_is_found_in_19_of_20_samples(law: SampledLaw) -> None:
    verdicts = [judged(law, seed, TWICE) for seed in range(RUNS)]
    assert sum(verdict.found == TWICE for verdict in verdicts) >= RUNS - 1
    assert min(verdict.power for verdict in verdicts) >= 0.97


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_right_noise_and_few_reports_accuse_nobody(law: SampledLaw) -> None:
    assert [judged(law, seed, Fraction(1)).found for seed in range(3)] == [None] * 3
    few = judged(replace(law, samples=1), 1, TWICE)
    assert (few.found, few.power < 0.01) == (None, True)


@pytest.mark.parametrize("law", [law for law in LAWS if "laplace" not in law.fields.values()], ids=lambda law: law.name)
def test_half_the_epsilon_is_found_too(law: SampledLaw) -> None:
    more = replace(law, samples=6 * law.samples)
    assert judged(more, 1, HALF).found == HALF


@pytest.mark.parametrize("law", [law for law in LAWS if "laplace" not in law.fields.values()], ids=lambda law: law.name)
def test_under_the_right_law_the_evidence_has_the_mean_one(law: SampledLaw) -> None:
    """By enumeration: then it reaches 10^9 with probability 10^-9 at most, by Markov's inequality."""
    domain, part = task("scale", **law.fields).domain, part_of(law)
    for value in law.values:
        if (index := known_index(domain, value)) is None:
            continue
        right = {body: float(part.probability(body, index, 20)) for body in part.outputs()}
        for power in (2, 0.5):
            unit = sum(share**power for share in right.values())
            ratios = {body: share ** (power - 1) / unit for body, share in right.items()}
            assert sum(right[body] * ratio for body, ratio in ratios.items()) == pytest.approx(1)
            least = needed(ratios)
            times = [body for body, ratio in ratios.items() if ratio == max(ratios.values())][:1] * least
            assert judge_scale(part, [(index, times)]).found is not None
            assert judge_scale(part, [(index, times[:-1])]).found is None


def needed(ratios: dict[tuple[int, ...], float]) -> int:
    """How many reports of the largest ratio reach the limit, of 10^9 for each of two laws."""
    return int(log(2 / FALSE_ALARM) / log(max(ratios.values()))) + 1
