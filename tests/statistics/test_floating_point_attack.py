"""Noise added in floating point gives the value away: the attack of Mironov (2012) on numpy's Laplace, and on ours."""

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from hush_attacks.floating_point import VALUES, possible_for_numpy, verdicts
from hush_common.domain import NumberDomain
from hush_common.epsilon import certified_exp
from hush_common.mechanisms import Laplace
from hush_common.rng import Rng

Seeded = Callable[[int], Rng]

EPSILON = Fraction(1, 10)
SCALE = 10.0

DOMAIN = NumberDomain(0.0, 1.0)
OURS = Laplace(EPSILON, DOMAIN.steps)


def possible(y: float, x: int) -> bool:
    return possible_for_numpy(y, x, SCALE)


def our_reports(seeded: Seeded, count: int) -> list[tuple[int, int]]:
    """Value and reported integer of `count` devices of each value, drawn by the sampler of the client."""
    rng = seeded(40)
    return [(x, OURS.perturb(DOMAIN.index(x).scalar, rng)[0]) for x in VALUES for _ in range(count)]


def test_three_naive_reports_in_four_give_their_value_away_with_certainty() -> None:
    rng = np.random.RandomState(41)  # numpy.random.laplace is this generator's
    reports = [(x, x + float(rng.laplace(0, 1 / 0.1))) for x in VALUES for _ in range(2000)]
    right, wrong = verdicts(reports, possible)
    assert right >= 0.75 * len(reports)
    assert wrong == 0


def identified(reports: list[tuple[int, int]], probability: Callable[[int, int], Decimal]) -> int:
    """How many reports (value, k) only one index can have led to, for who knows the whole table."""
    ends = (0, DOMAIN.steps)
    return sum(1 for _, k in reports if sum(probability(k, index) > 0 for index in ends) == 1)


def test_none_of_our_reports_excludes_a_value(seeded: Seeded) -> None:
    reports = our_reports(seeded, 200)
    assert identified(reports, lambda k, i: OURS.probability((k,), i)) == 0
    bound = certified_exp(EPSILON)[1] * (1 + Fraction(1, 10**50))  # the table has 60 digits
    for _, k in reports:
        odds = Fraction(OURS.probability((k,), 0)) / Fraction(OURS.probability((k,), DOMAIN.steps))
        assert 1 / bound <= odds <= bound


def test_noise_that_ends_at_a_distance_from_the_value_would_exclude_some(seeded: Seeded) -> None:
    reach = 3 * DOMAIN.steps  # wrong on purpose: the noise, not the report, is confined

    def probability(k: int, index: int) -> Decimal:
        return OURS.probability((k,), index) if abs(k - index) <= reach else Decimal(0)

    confined = [(x, k) for x, k in our_reports(seeded, 500) if abs(k - x * DOMAIN.steps) <= reach]
    assert identified(confined, probability) > 0


def test_the_same_attack_on_our_reports_is_a_guess(seeded: Seeded) -> None:
    """The attack still speaks, since some floats happen to be among numpy's, but it is as often wrong as right.

    A verdict depends on the report alone, so P(right) ≤ e^epsilon·P(wrong), and its share of right ones is at most
    e^epsilon/(1 + e^epsilon) = 52.5 % up to chance (six standard deviations are granted; the naive share is 100 %).
    """
    reports = [(x, float(DOMAIN.value_of(k))) for x, k in our_reports(seeded, 2000)]
    right, wrong = verdicts(reports, possible)
    spoken = right + wrong
    most = math.exp(0.1) / (1 + math.exp(0.1))
    assert spoken > 1000
    assert right / spoken <= most + 6 * math.sqrt(most * (1 - most) / spoken)


@pytest.mark.parametrize("index", [0, DOMAIN.steps])
def test_every_integer_of_the_window_is_possible_under_every_value(index: int) -> None:
    window = OURS.window
    samples = [-window, -window + 1, -1, 0, 1, DOMAIN.steps // 2, DOMAIN.steps, window, DOMAIN.steps + window]
    assert all(OURS.probability((k,), index) > 0 for k in samples)
