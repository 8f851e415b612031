# ruff: noqa: E501, RUF001 - sentences of the document
"""docs/tour.md, its errors: the figures of the slips in the teaching material, by formulas of their own."""

from collections.abc import Iterator
from functools import cache
from math import ceil, e, erf, exp, inf, log, pi, sqrt

from documented.figures import computed, count, given, on_section, percent
from scipy import integrate, special, stats

MEN, WOMEN = (178.0, 7.0), (162.0, 6.5)
"""Mean and deviation of a height in the notebook: half of each."""

COUNTIES = 3143
SAMPLED, MEAN_SAMPLED = 43.77, 12.22
"""What the notebook prints: a sampled sensitivity, and the mean of the sampled differences."""


def difference_below(d: float) -> float:
    """P(|x - x'| ≤ d) for the heights of two people: a quarter, a half, a quarter of normal variables, folded."""
    inside = 0.0
    for first, second in ((MEN, MEN), (MEN, WOMEN), (WOMEN, MEN), (WOMEN, WOMEN)):
        mean, scale = first[0] - second[0], sqrt(2 * (first[1] ** 2 + second[1] ** 2))
        inside += (erf((d - mean) / scale) - erf((-d - mean) / scale)) / 8
    return inside


@cache
def difference_moments() -> tuple[float, float]:
    """E|x - x'| and its deviation, integrated over the tail."""
    mean, _ = integrate.quad(lambda d: 1 - difference_below(d), 0, inf)
    square, _ = integrate.quad(lambda d: 2 * d * (1 - difference_below(d)), 0, inf)
    return mean, sqrt(square - mean**2)


def samples(gamma: float, branch: int) -> int:
    """Of a sampled sensitivity (Rubinstein and Aldà 2017); right is the branch -1 of Lambert's W, the notebook's is 1."""
    rho = exp(special.lambertw(-gamma / (2 * sqrt(e)), branch).real + 0.5)
    return ceil(log(1 / rho) / (2 * (gamma - rho) ** 2))


@on_section("Errors")
def notebook() -> Iterator[str]:
    mean, deviation = difference_moments()
    drawn, sampled, found = samples(0.05, 1), given(SAMPLED), given(MEAN_SAMPLED)
    median = difference_quantile(0.5 ** (1 / drawn))
    yield (
        f"E|x − x′| is {computed(mean, '.3f')} cm, and the sampled {sampled} and {found} are ordinary outputs (the "
        f"largest of {computed(drawn)} differences has median {computed(median, '.1f')}; "
        f"{percent(difference_below(SAMPLED) ** drawn)} of runs give less than {sampled})."
    )
    apart, short = 40, round(mean, 2)
    yield (
        f"{percent(1 - difference_below(short), 1)} of random pairs of people differ by more than "
        f"{computed(short, '.2f')} cm, and two people {given(apart)} cm apart lose {computed(apart / mean, '.1f')} ε. "
        f"Even {sampled} fails for {percent(1 - difference_below(SAMPLED), 2)} of pairs."
    )
    noise, few, many = 1, 500, 50_000
    errors = [100 * noise * sqrt(2 / n) for n in (few, many)]
    yield (
        f"Noise of {given(noise)} m is called useless for a mean. With {given(few)} people it leaves an error of "
        f"{computed(errors[0], '.1f')} cm, with {count(many)} of {computed(errors[1], '.2f')} cm."
    )
    yield f"is true of the mean difference ({found}), not of the sensitivity that is returned ({sampled})."
    heights = sqrt((MEN[1] ** 2 + WOMEN[1] ** 2) / 2 + (MEN[0] - WOMEN[0]) ** 2 / 4)
    yield (
        f"adds the deviation of heights ({computed(heights, '.2f')}) to a mean of differences, whose own deviation is "
        f"{computed(deviation, '.2f')}."
    )


def difference_quantile(probability: float) -> float:
    low, high = 0.0, 200.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if difference_below(middle) < probability else (low, middle)
    return low


@on_section("Errors")
def chapter() -> Iterator[str]:
    epsilon, sensitivity = 0.1, 2
    scale = sensitivity / epsilon
    harmonic = sum(1 / k for k in range(1, COUNTIES + 1))
    subscript = str(COUNTIES).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))
    yield (
        f"For the {given(COUNTIES)} counties at ε = {given(epsilon)} it gives {computed(scale, '.0f')} for one county "
        f"and at most {computed(scale * (log(COUNTIES) + 1), '.1f')} for the largest error; the exact expectation is "
        f"{computed(scale, '.0f')}·H{given(subscript)} = {computed(scale * harmonic, '.1f')}."
    )
    ones = (1, 1, 1, 1, 1)
    yield f"‖({', '.join(map(given, ones))})‖₁ is given as 6; it is {computed(sum(map(abs, ones)))}."
    replaced, added = sensitivities_of_a_histogram()
    yield (
        f"The sensitivity {computed(replaced)} of a histogram holds if a record is *replaced*; if one is added or "
        f"removed it is {computed(added)}."
    )
    error = 0.01
    central = sqrt(2) / (error * epsilon)
    answers = exp(epsilon) / (exp(epsilon) - 1) ** 2 / error**2
    local = 2 / (error * epsilon) ** 2
    yield (
        f"To reach an error of {given(error)} at ε = {given(epsilon)} the central Laplace mechanism needs "
        f"{count(central)} people, randomized response {count(answers)}, and *local* Laplace noise {count(local)}."
    )


def sensitivities_of_a_histogram() -> tuple[int, int]:
    """Largest ℓ₁ distance of the histograms of neighbours, by enumeration of all data sets of two records of two."""
    kinds = range(2)
    replaced = max(apart([a, b], [a, c]) for a in kinds for b in kinds for c in kinds)
    return replaced, max(apart([a, b], [a]) for a in kinds for b in kinds)


def apart(data: list[int], other: list[int]) -> int:
    return sum(abs(data.count(kind) - other.count(kind)) for kind in range(2))


@on_section("Errors")
def lecture() -> Iterator[str]:
    epsilon, n = 0.5, 3
    variance = float(stats.laplace(scale=1 / (epsilon * n)).var())
    factor = variance * epsilon**2 * n**2
    yield f"Lap(1/(εn)) has variance {computed(factor, '.0f')}/(ε²n²), not 1/(εn), nor 1/(ε²n²) as the risk is then given."
    yield f"b is a scale, not the variance ({computed(float(stats.laplace.var()), '.0f')}b²)."
    fair = (0.5 + 0.25) / 0.25
    yield f"At ε = ln {computed(fair, '.0f')} they are the same; it is only adjustable."
    yield f"E|x − x′| is {computed(closed_form(), '.3f')} cm"


def closed_form() -> float:
    """The notebook's own formula."""
    m = (MEN[0] - WOMEN[0]) / sqrt(2 * (MEN[1] ** 2 + WOMEN[1] ** 2))
    spread = sqrt(2 * (MEN[1] ** 2 + WOMEN[1] ** 2))
    return (MEN[1] + WOMEN[1] + spread * (exp(-(m**2)) + sqrt(pi) * m * erf(m))) / (2 * sqrt(pi))
