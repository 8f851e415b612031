"""The references of a trusted collector: sensitivities by enumeration, calibrations by mpmath, draws by their law."""

import math
from collections import Counter
from fractions import Fraction
from itertools import product
from typing import get_args

import mpmath
import pytest

from hush_simulations.engines.experiment import SeededRng
from hush_tour.trusted_collector import gaussian, sensitivity
from hush_tour.trusted_collector.laplace import CentralLaplace, expected_largest, largest_with_probability

THIRD = Fraction(1, 3)


# ---- sensitivities


@pytest.mark.parametrize("neighbours", ["replace", "add or remove"])
def test_the_sensitivity_of_counts_is_what_enumeration_finds(
    neighbours: sensitivity.Neighbours,
) -> None:
    def adults(data: tuple[str, ...]) -> list[int]:
        return [sum(one == "b" for one in data)]

    def cells(data: tuple[str, ...]) -> list[int]:
        counts = Counter(data)
        return [counts[name] for name in "abc"]

    assert sensitivity.enumerated(adults, "abc", 3, neighbours) == sensitivity.count()
    assert sensitivity.enumerated(cells, "abc", 3, neighbours) == sensitivity.histogram(neighbours)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_sensitivity_of_means_is_what_enumeration_finds(n: int) -> None:
    ages = (Fraction(-2), Fraction(1), Fraction(5))

    def mean(data: tuple[Fraction, ...]) -> list[Fraction]:
        return [Fraction(sum(data)) / len(data)]

    def total(data: tuple[Fraction, ...]) -> list[Fraction]:
        return [Fraction(sum(data))]

    assert sensitivity.enumerated(mean, ages, n, "replace") == sensitivity.mean(ages[0], ages[-1], n)
    assert sensitivity.enumerated(mean, (Fraction(0), Fraction(1)), n, "replace") == sensitivity.proportion(n)
    for neighbours in get_args(sensitivity.Neighbours):
        expected = sensitivity.total(ages[0], ages[-1], neighbours)
        assert sensitivity.enumerated(total, ages, n, neighbours) == expected


def test_two_counts_of_the_same_records_have_sensitivity_2() -> None:
    people = tuple(product((False, True), repeat=2))  # of age, has read Don Quixote

    def both(data: tuple[tuple[bool, ...], ...]) -> list[int]:
        return [sum(one[place] for one in data) for place in (0, 1)]

    assert sensitivity.enumerated(both, people, 2, "replace") == sensitivity.combined([Fraction(1)] * 2) == 2


def test_a_mean_without_people_or_with_crossed_bounds_is_refused() -> None:
    with pytest.raises(ValueError, match="n"):
        sensitivity.mean(Fraction(0), Fraction(1), 0)
    with pytest.raises(ValueError, match="2"):
        sensitivity.mean(Fraction(2), Fraction(1), 5)


# ---- Laplace


def loss(mechanism: CentralLaplace, steps: int) -> float:
    """The largest log-ratio of the law of a release, for answers that many steps apart: enumerated over the grid."""
    scale = mechanism.scale / mechanism.step
    return max(abs(abs(k) - abs(k - steps)) / float(scale) for k in range(-50, 50))


@pytest.mark.medium
@pytest.mark.parametrize("step", [Fraction(1, 5), Fraction(3, 10)])
def test_rounding_to_the_grid_is_paid_for(step: Fraction) -> None:
    mechanism = CentralLaplace(Fraction(1), THIRD, step)
    answers = [Fraction(k, 40) for k in range(161)]
    farthest = max(abs(round(a / step) - round(b / step)) for a, b in product(answers, answers) if abs(a - b) <= 1)
    assert loss(mechanism, farthest) <= float(THIRD) * (1 + 1e-12)
    unpaid = CentralLaplace(step * (1 // step), THIRD, step, exact=True)  # as if answers were on the grid
    assert loss(unpaid, farthest) > float(THIRD) * (1 + 1e-12)


def test_answers_on_the_grid_cost_no_rounding() -> None:
    mechanism = CentralLaplace(Fraction(2), Fraction(1, 10), Fraction(1), exact=True)
    assert mechanism.steps == 2
    assert mechanism.scale == 20
    with pytest.raises(ValueError, match="1/2"):
        CentralLaplace(Fraction(1, 2), Fraction(1), Fraction(1), exact=True)
    with pytest.raises(ValueError, match="epsilon"):
        CentralLaplace(Fraction(1), Fraction(0), Fraction(1))


def test_the_variance_is_that_of_the_discrete_law() -> None:
    mechanism = CentralLaplace(Fraction(3), Fraction(1), Fraction(1), exact=True)
    q = mpmath.exp(-mpmath.mpf(1) / 3)
    assert mechanism.variance == pytest.approx(float(2 * q / (1 - q) ** 2), rel=1e-12)
    fine = CentralLaplace(Fraction(3), Fraction(1), Fraction(1, 1000), exact=True)
    assert fine.rmse == pytest.approx(math.sqrt(2) * 3, rel=1e-6)


@pytest.mark.medium
def test_releases_have_the_mean_and_the_variance_they_say() -> None:
    mechanism, rng = CentralLaplace(Fraction(1), Fraction(1), Fraction(1, 8), exact=True), SeededRng(7)
    drawn = [float(mechanism.release(Fraction(5, 2), rng)) for _ in range(20_000)]
    mean = sum(drawn) / len(drawn)
    variance = sum((x - mean) ** 2 for x in drawn) / len(drawn)
    assert mean == pytest.approx(2.5, abs=4.5 * mechanism.rmse / math.sqrt(len(drawn)))
    assert variance == pytest.approx(mechanism.variance, rel=4.5 * math.sqrt(5 / len(drawn)))  # kurtosis 6
    assert variance != pytest.approx(mechanism.variance / 2, rel=0.2)  # what b² for 2b² would be


def test_the_largest_of_many_noises_is_the_harmonic_number() -> None:
    exact = 20 * (mpmath.digamma(3144) + mpmath.euler)  # 20·H_3143
    assert expected_largest(20, 3143) == pytest.approx(float(exact), rel=1e-12)
    assert expected_largest(20, 3143) < 20 * (math.log(3143) + 1)
    assert largest_with_probability(20, 3143, math.exp(-2)) == pytest.approx(20 * (math.log(3143) + 2))


# ---- Gauss


def delta_by_mpmath(sigma: float, epsilon: float, sensitivity: float) -> float:
    """The integral of the positive part of p - e^epsilon·q, which is what delta is."""
    with mpmath.workdps(40):
        s, d, e = mpmath.mpf(sigma), mpmath.mpf(sensitivity), mpmath.mpf(epsilon)
        crossing = d / 2 - e * s**2 / d  # p > e^epsilon q to the left of it, p centred at 0 and q at d
        left = mpmath.ncdf(crossing / s) - mpmath.exp(e) * mpmath.ncdf((crossing - d) / s)
        return float(left)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-6), (0.5, 1e-9), (4.0, 1e-5), (0.0, 0.1)])
def test_the_analytic_calibration_gives_the_requested_delta(epsilon: float, delta: float) -> None:
    sigma = gaussian.analytic_sigma(epsilon, delta, 3.0)
    assert delta_by_mpmath(sigma, epsilon, 3.0) == pytest.approx(delta, rel=1e-6)
    assert gaussian.analytic_delta(sigma, epsilon, 3.0) <= delta
    assert delta_by_mpmath(sigma * 0.99, epsilon, 3.0) > delta * 1.01  # a smaller sigma does not do


def test_the_classical_calibration_is_larger_and_stays_in_its_range() -> None:
    for epsilon in (0.1, 0.5, 0.99):
        assert gaussian.classical_sigma(epsilon, 1e-6) > gaussian.analytic_sigma(epsilon, 1e-6)
    # beyond epsilon = 1 the formula without its condition would not be private: at 10 it is below what is needed
    unproved = math.sqrt(2 * math.log(1.25 / 1e-6)) / 10
    assert unproved < gaussian.analytic_sigma(10.0, 1e-6)
    for wrong in (1.0, 0.0):
        with pytest.raises(ValueError, match="epsilon"):
            gaussian.classical_sigma(wrong, 1e-6)
    for call in (gaussian.classical_sigma, gaussian.analytic_sigma):
        with pytest.raises(ValueError, match="delta"):
            call(0.5, 0.0)
    with pytest.raises(ValueError, match="51"):
        gaussian.analytic_sigma(51, 0.1)


def test_discrete_noise_has_the_delta_of_continuous_noise_on_a_fine_grid() -> None:
    sensitivity = 40
    sigma = gaussian.analytic_sigma(1.0, 1e-3, sensitivity)
    assert gaussian.discrete_delta(sigma**2, 1.0, sensitivity) == pytest.approx(1e-3, rel=1e-3)


def test_the_discrete_delta_is_the_positive_part_summed() -> None:
    variance, epsilon, apart = 6.0, 0.4, 2
    weights = {z: math.exp(-(z**2) / (2 * variance)) for z in range(-80, 81)}
    total = sum(weights.values())
    law = {z: weight / total for z, weight in weights.items()}
    positive = sum(max(0.0, law[z] - math.exp(epsilon) * law.get(z - apart, 0.0)) for z in law)
    assert gaussian.discrete_delta(variance, epsilon, apart) == pytest.approx(positive, rel=1e-12)


@pytest.mark.medium
@pytest.mark.parametrize("variance", [Fraction(1, 2), Fraction(7, 3), Fraction(30)])
def test_draws_of_discrete_gaussian_noise_have_its_law(variance: Fraction) -> None:
    rng, n = SeededRng(11), 20_000
    drawn = Counter(gaussian.discrete_gaussian(variance, rng) for _ in range(n))

    def chi_squared(law_variance: float) -> float:
        weights = {z: math.exp(-(z**2) / (2 * law_variance)) for z in range(-60, 61)}
        total = sum(weights.values())
        expected = {z: n * weight / total for z, weight in weights.items()}
        cells = [z for z, many in expected.items() if many >= 10]
        rest = n - sum(expected[z] for z in cells)
        outside = n - sum(drawn[z] for z in cells)
        score = sum((drawn[z] - expected[z]) ** 2 / expected[z] for z in cells)
        return (score + (outside - rest) ** 2 / max(rest, 1.0) - len(cells)) / math.sqrt(2 * len(cells))

    assert abs(chi_squared(float(variance))) < 5
    assert chi_squared(float(variance) * 1.1) > 5  # a tenth more variance must be seen
