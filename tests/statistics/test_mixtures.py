"""Several epsilons: few noisy reports beside many precise ones, found by search; and random mixtures of all sizes."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from covering.cells import BAR
from covering.predicates import Runs, student_halves
from mixtures import CELLS, RUNS, Mixture, exact, look, mixture, standard_errors

from hush_aggregator.estimate import POPULATION, REPORTERS, estimate
from hush_aggregator.tally import Tally

TARGETS = (REPORTERS, POPULATION)
EXACT_RUNS = 20_000
HALF = {0.0: 0.5, 1.0: 0.5}
FEW = range(1, 101)
WIDER = 1.02
LONGEST = 1.5
SAMPLE = (3, 25, 43, 60, 65, 82, 120, 127, 142, 163, 183, 187, 207, 238, 276, 278, 313, 328, 336, 338, 375, 385)
"""Mixtures of which some are in every run: those that were widened most or were worst, and a few others."""
WIDER_FOR_BOTH = (67, 120, 127, 142, 187, 313, 336, 338, 375, 385)
WIDER_FOR_REPORTERS = (3, 43, 256, 330)
NAMED = {*product(WIDER_FOR_BOTH, TARGETS), *product(WIDER_FOR_REPORTERS, (REPORTERS,))}
"""Where the rule without the correction holds for these values, and the interval is more than 2 % wider.

The points of the lattice are farther apart than 2 % of the interval, and where they lie depends on values that nobody
knows. So the correction is for the worst position.

- `SHORT`, and mixture 256: with other values at the same n the other rule covers less than it claims, even 2 % wider.
- The others: a search over values found none. Of so few reports Student's quantile and the exact law of the noise leave
  more than the expansion knows: in mixture 120 the least coverage of the other rule over all bits is 0.9517 (exactly).
"""
SHORT = {
    (142, POPULATION): (0.175, 2),
    (313, POPULATION): (0.0, 4),
    (338, POPULATION): (0.15, 3),
    (338, REPORTERS): (0.85, 1),
}
"""The share of ones among the people under the first epsilons, and how many epsilons; the others keep their values."""


def pair(  # noqa: PLR0917 - one cell
    kind: str, epsilons: tuple[str, str], few: int, many: int, confidence: float, upper: float = 0.5
) -> Mixture:
    """`few` reports under the first, of whom a share `upper` holds 1; of the others half do."""
    first = {0.0: 1 - upper, 1.0: upper}
    return Mixture(kind, epsilons, (few, many), HALF, (first, HALF), confidence)


def worst(kind: str, epsilons: tuple[str, str], many: int, confidence: float) -> tuple[float, float, Mixture] | None:
    """Of all numbers of noisy reports, and some of those who hold 1: the least coverage, exactly.

    None where the method is valid at every n for all of them.
    """
    found = []
    for few, upper in product(FEW, (0.0, 0.25, 0.5, 1.0)):
        one = pair(kind, epsilons, few, many, confidence, upper)
        if one.methods[REPORTERS] == "student-t-capped":
            seen = exact(one)
            found.append((seen.coverage, seen.uncorrected, one))
    return min(found, key=lambda each: each[0], default=None)


PAIRS = (
    *(
        ("bit", (first, second), many)
        for first, second, many in product(("0.01", "0.1", "0.5", "2"), ("4", "8", "12"), (20, 300, 1000))
    ),
    ("category", ("0.1", "4"), 300),
    ("bit", ("0.1", "1"), 20),
    ("bit", ("0.1", "0.2"), 30),
    ("bit", ("0.1", "0.15"), 40),
)
KNOWN = (
    (("0.1", "10"), 16, 0.95, 0.9236), (("0.1", "10"), 15, 0.8, 0.7919), (("0.1", "10"), 19, 0.5, 0.356),
)  # fmt: skip


@pytest.mark.parametrize(("epsilons", "few", "confidence", "before"), KNOWN)
def test_few_noisy_reports_beside_many_precise_ones_are_covered(
    epsilons: tuple[str, str], few: int, confidence: float, before: float
) -> None:
    """Exactly, and the rule without the correction covers what it did."""
    seen = exact(pair("bit", epsilons, few, 1000, confidence))
    assert seen.uncorrected == pytest.approx(before, abs=3e-4)
    assert seen.coverage >= confidence
    assert seen.ratio <= LONGEST


def test_the_published_interval_is_the_corrected_one() -> None:
    one = pair("bit", ("0.1", "10"), 16, 1000, 0.95)
    given = estimate(one.offered.task, Tally(1016, (16, 8, 1000, 500)), 0.95)
    low, high = given.intervals[REPORTERS]
    counts = [np.array([[8.0, 8.0]]), np.array([[500.0, 500.0]])]
    (half,) = student_halves(Runs.of(one.offered.channels, counts, whole=True), 0.95, 1.0)
    assert given.methods[REPORTERS] == "student-t-capped"
    assert (high - low) / 2 == pytest.approx(half)
    assert half == pytest.approx(
        4 * float(np.diff(one.offered.channels[0].a).max()) / 1016, rel=0.03
    )  # four steps, not 3.92


@pytest.mark.large
def test_the_worst_number_of_noisy_reports_found_by_search_is_covered() -> None:
    found = worst("bit", ("0.1", "10"), 1000, 0.95)
    assert found is not None
    coverage, _, one = found
    assert standard_errors(coverage, 0.95, EXACT_RUNS) >= BAR, one


def test_the_search_finds_the_rule_without_the_correction() -> None:
    """The twin: at its worst number of reports it is far below what it claims."""
    least = min(exact(pair("bit", ("0.1", "10"), few, 1000, 0.5)).uncorrected for few in (16, 17, 18, 19, 20))
    assert standard_errors(least, 0.5, EXACT_RUNS) < 10 * BAR


@pytest.mark.large
@pytest.mark.parametrize("place", SAMPLE)
def test_random_mixtures_are_covered(place: int) -> None:
    one = mixture(place)
    for target in TARGETS:
        seen = look(one, target)
        assert standard_errors(seen.coverage, one.confidence, RUNS) >= BAR, (target, seen, one)
        assert seen.ratio <= LONGEST


def test_the_rule_without_the_correction_is_found_among_the_mixtures() -> None:
    below = [
        place
        for place in SAMPLE
        if standard_errors(look(mixture(place), REPORTERS).uncorrected, mixture(place).confidence, RUNS) < BAR
    ]
    assert len(below) >= 3


@pytest.mark.soak
@pytest.mark.parametrize(("kind", "epsilons", "many"), PAIRS)
@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.95])
def test_of_every_pair_the_worst_number_found_by_search_is_covered(
    kind: str, epsilons: tuple[str, str], many: int, confidence: float
) -> None:
    """A category needs more: it has the normal interval only where its joint one, at a higher confidence, is normal."""
    found = worst(kind, epsilons, many, confidence)
    assert (found is None) is (kind == "category" and confidence > 0.9)
    if found is not None:
        coverage, _, one = found
        assert standard_errors(coverage, confidence, EXACT_RUNS) >= BAR, (coverage, one)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_no_mixture_of_four_hundred_is_below_its_claim_and_only_named_ones_are_wider() -> None:
    below, wider = [], set()
    for place, target in product(range(CELLS), TARGETS):
        one = mixture(place)
        seen = look(one, target)
        if standard_errors(seen.coverage, one.confidence, RUNS) < BAR or seen.ratio > LONGEST:
            below.append((place, target, seen))
        if seen.ratio > WIDER and standard_errors(seen.uncorrected, one.confidence, RUNS) >= BAR:
            wider.add((place, target))
    assert not below
    assert wider == NAMED


@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("place", "target"), SHORT)
def test_without_the_correction_and_two_percent_wider_it_is_too_short_with_other_values(
    place: int, target: str
) -> None:
    one, (share, first) = mixture(place), SHORT[place, target]
    values = {0.0: 1 - share, 1.0: share}
    other = replace(one, common=values, each=(*[values] * first, *one.each[first:]))
    seen = [look(other, target, 100_000, (part, 5), stretched=WIDER) for part in range(6)]
    assert standard_errors(float(np.mean([s.uncorrected for s in seen])), one.confidence, 600_000) < -3
    assert np.mean([s.coverage for s in seen]) > one.confidence


def test_mixture_256_needs_its_correction() -> None:
    """Exactly: with 84 of 130 and all of 30 people who hold 1, and an interval that is 2 % wider."""
    one = mixture(256)
    seen = exact(replace(one, each=({0.0: 46 / 130, 1.0: 84 / 130}, {1.0: 1.0})), stretched=WIDER)
    assert seen.uncorrected < 0.947 < one.confidence <= seen.coverage
