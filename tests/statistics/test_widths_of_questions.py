"""Bits, categories and units: each error and half-width against an independent computation, as in `test_widths`."""

from fractions import Fraction
from math import sqrt

import numpy as np
import pytest
from scipy import stats
from single_intervals import betting_interval

from hush_aggregator.estimate import ENROLLED, POPULATION, REPORTERS, estimate, proportions
from hush_aggregator.estimate.bounded_mean import Group
from hush_aggregator.estimate.bounded_mean import estimate as bounded
from hush_aggregator.estimate.diagnostics import finite_monitors
from hush_aggregator.estimate.finite_channel import FiniteChannel, finite
from hush_aggregator.estimate.intervals.betting import betting_limits
from hush_aggregator.estimate.intervals.lattice import lattices, widened
from hush_aggregator.estimate.intervals.sampling import HOEFFDING, POPOVICIU, finite_spread, noise_and_sampling
from hush_aggregator.estimate.intervals.tilted import tilted_limits
from hush_aggregator.estimate.mechanisms import fold, vector
from hush_aggregator.estimate.numerics.guard import underflow
from hush_aggregator.estimate.proportions import pooled_proportions
from hush_aggregator.estimate.units import Units
from hush_aggregator.tally import Tally
from hush_common.domain import VectorDomain
from hush_common.mechanisms import Multilevel, Offers, RandomizedResponse, Vector
from hush_common.task import make_task

TARGETS = (REPORTERS, POPULATION, ENROLLED)
# One of two coins, so that its noise is not the same for yes and no.
LOPSIDED = RandomizedResponse.from_coins(Fraction(2), Fraction(1, 2), Fraction(3, 10))
OPTIMAL = RandomizedResponse.from_epsilon(Fraction(2))


def chances(of: FiniteChannel) -> tuple[float, float]:
    """Of a reported yes, where it is false and where it is true."""
    return float(of.rows[0][1]), float(of.rows[1][1])


@pytest.mark.parametrize("many", [1, 40])
def test_errors_and_normal_intervals_of_pooled_questions_are_those_of_their_reports(many: int) -> None:
    """The shares lie on both sides of what is possible."""
    parts = [
        (finite(LOPSIDED), 40 * many, [0, 12 * many, 40 * many]),
        (finite(OPTIMAL), 60 * many, [60 * many, 20 * many, 31 * many]),
    ]
    n, asked = 100 * many, 250 * many
    left = (asked - n) / (asked - 1) / n
    given = pooled_proportions(parts, [0.95], enrolled=asked)
    assert not given.failures
    for place in range(3):
        people = none = all_ = largest = smallest = mean = 0.0
        reports: list[float] = []
        for of, size, yes in parts:
            q, p = chances(of)
            w, share, weight = 1 / (p - q), min(max(yes[place] / size, q), p), size / n**2
            people += weight * share * (1 - share) * w**2
            variances = q * (1 - q) * w**2, p * (1 - p) * w**2
            none, all_ = none + weight * variances[0], all_ + weight * variances[1]
            largest, smallest = largest + weight * max(variances), smallest + weight * min(variances)
            reports += [-q * w] * (size - yes[place]) + [(1 - q) * w] * yes[place]
        mean = float(np.mean(reports))
        assert given.mean[place] == pytest.approx(mean)
        held = min(max(mean, 0), 1)
        noise, spread = none + held * (all_ - none), held * (1 - held)
        errors = sqrt(noise), sqrt(people), sqrt(noise + spread * left)
        assert given.stderr[place] == pytest.approx(dict(zip(TARGETS, errors, strict=True)))
        errors = sqrt(noise), sqrt(noise + spread / n), sqrt(noise + spread * left)
        assert given.stderr_plug_in[place] == pytest.approx(dict(zip(TARGETS, errors, strict=True)))
        if many == 1:
            continue
        sample = max(float(np.var(reports, ddof=1)) / n, smallest)
        beyond = max(sample - largest, 0)
        t, seen = stats.t.ppf(0.975, n - 1), [np.array([[size - yes[place], yes[place]]]) for _, size, yes in parts]
        for target, square, answered in zip(
            TARGETS, (sample - beyond, sample, sample - n / asked * beyond), (1.0, 0.0, n / asked), strict=True
        ):
            smooth, sizes = t * sqrt(square) * n, tuple((of, size) for of, size, _ in parts)
            found = lattices(sizes, smooth, seen=lambda counts=seen: counts, answered=answered)  # type: ignore[misc]
            half, outside = float(widened(np.array([smooth]), t, found)[0]) / n, mean - held
            assert half == pytest.approx(t * sqrt(square), rel=1e-3)
            low, high = mean - half - max(outside, 0), mean + half - min(outside, 0)
            assert given.intervals[0][place][target] == pytest.approx((max(low, 0), min(high, 1)), rel=1e-9)


@pytest.mark.parametrize("mechanism", [LOPSIDED, OPTIMAL])
@pytest.mark.parametrize("ones", [0, 31, 62, 200])
def test_errors_of_a_bit_are_those_of_its_reports(mechanism: RandomizedResponse, ones: int) -> None:
    n, asked = 200, 300
    q, p = chances(finite(mechanism))
    w, left = 1 / (p - q), (asked - n) / (asked - 1) / n
    given = proportions.estimate_alone(mechanism, Tally(n, (ones,)), 0.95, enrolled=asked)
    mean, share = (ones / n - q) * w, min(max(ones / n, q), p)
    people = share * (1 - share) * w**2 / n
    assert given.mean == pytest.approx(mean, abs=1e-12)
    held = min(max(mean, 0), 1)
    noise = (q * (1 - q) + held * (p * (1 - p) - q * (1 - q))) * w**2 / n
    errors = sqrt(noise), sqrt(people), sqrt(noise + held * (1 - held) * left)
    assert given.stderr == pytest.approx(dict(zip(TARGETS, errors, strict=True)))
    assert given.single.stderr_plug_in == pytest.approx(dict(zip(TARGETS, errors, strict=True)))


def test_outputs_are_too_many_or_too_few_beyond_four_deviations_of_their_extreme_chances() -> None:
    of, n = finite(Multilevel(Fraction(1), 1 << 20, 4)), 20_000
    lie, truth = float(of.rows[0][1]), float(of.rows[0][0])
    z = stats.norm.isf(6.3e-5 / 2)
    most = int(np.floor(n * truth + z * sqrt(n * truth * (1 - truth)) + z))
    least = int(np.ceil(n * lie - z * sqrt(n * lie * (1 - lie))))
    for count, verdict in ((most, "ok"), (most + 1, "outliers"), (least, "ok"), (least - 1, "too_little_noise")):
        others = np.full(4, (n - count) // 4)
        others[0] += n - count - others.sum()
        assert least <= others.min() <= others.max() <= most
        assert finite_monitors(of, np.array([[count, *others]])) == [verdict]


def test_a_sampling_error_is_added_as_a_normal_one_only_where_noise_is_half_its_largest_jump() -> None:
    for noise, confidence, method in (
        (0.51, 0.95, POPOVICIU),
        (0.5, 0.9, POPOVICIU),
        (0.49, 0.95, HOEFFDING),
        (0.51, 0.89, HOEFFDING),
    ):
        scale = sqrt(noise / 2 / 30) * 0.2  # of each of 30 reports, in units of a jump of 0.2
        half, said = noise_and_sampling(((scale, 30),), (0.01, 0.002), 0.2, confidence)
        assert said == method
        assert half > 0


def test_an_underflow_without_a_listed_reason_is_an_error_of_hush() -> None:
    with pytest.raises(LookupError, match="no reason is listed"), underflow("somewhere"):
        pass


def test_a_coordinate_is_moved_by_the_farthest_report_under_any_epsilon() -> None:
    parts = [{"name": name, "lower": -5.0, "upper": 5.0} for name in "xy"]
    asked = [
        make_task({"id": "t", "epsilon": epsilon, "domain": {"kind": "vector", "coordinates": parts}})
        for epsilon in ("2", "0.5")
    ]
    given, reach = [], 0.0
    for task in asked:
        one = task.randomizer
        assert isinstance(one, Vector)
        given.append((one, Tally(100, (50 * one.sampled, *[0] * one.levels) * 2)))
        reach = max(reach, *(float(abs(a - x)) for a in finite(one.part).positions for x in (0, 1)))
    domain = asked[0].domain
    assert isinstance(domain, VectorDomain)
    found = vector.estimate_coordinates(given, domain, 0.95)
    for fact in found.parts:
        bias = {name: min(lied / fact.n, 1.0) * reach * 10 for name, lied in (("1", 1), ("1%", 2), ("5%", 10))}
        assert fact.worst_case_bias == pytest.approx(bias)


@pytest.mark.parametrize(("n", "k", "confidence"), [(100, 50, 0.05), (100, 0, 0.5), (4, 4, 0.5), (100, 50, 0.95)])
def test_the_limits_of_unequal_coins_are_a_report_away_from_the_count(n: int, k: int, confidence: float) -> None:
    of = finite(Multilevel(Fraction(1), 1 << 20, 1))
    q, p = chances(of)
    tail = (1 - confidence) / 2
    low = stats.beta.ppf(tail, k, n - k + 1) if k else 0.0
    high = stats.beta.isf(tail, k + 1, n - k) if k < n else 1.0
    ends = [(end - q) / (p - q) for end in (min(low, (k - 1) / n), max(high, (k + 1) / n))]
    mean = (k / n - q) / (p - q)
    outside = mean - min(max(mean, 0), 1)
    expected = max(ends[0] - max(outside, 0), 0), min(ends[1] - min(outside, 0), 1)
    given = bounded([Group(of, (n - k, k))], Units(), confidence)
    assert given.intervals[REPORTERS] == pytest.approx(expected, rel=1e-8, abs=1e-12)


def test_many_questions_at_once_have_nearly_the_limits_of_each() -> None:
    sizes = [(finite(RandomizedResponse.from_epsilon(Fraction(epsilon))), 500) for epsilon in ("1/2", "2")]
    centers = np.linspace(-0.05, 1.05, 89)
    for whole in (False, True):
        low, high = tilted_limits(sizes, centers, [0.95], whole=whole)
        for place in (0, 5, 20, 44, 70, 88):
            alone = tilted_limits(sizes, centers[place : place + 1], [0.95], whole=whole)
            width = float(alone[1][0, 0] - alone[0][0, 0])
            assert low[0, place] == pytest.approx(alone[0][0, 0], abs=width * 1e-3)
            assert high[0, place] == pytest.approx(alone[1][0, 0], abs=width * 1e-3)


@pytest.mark.parametrize(("n", "enrolled"), [(1, 1), (1, 2), (3, 4), (40, 50), (2, 1000), (999, 1000)])
def test_the_spread_of_a_subset_is_serflings_and_the_exact_variance_of_a_half(n: int, enrolled: int) -> None:
    proxy, variance = finite_spread(n, enrolled)
    g = (enrolled - n) / enrolled
    serfling = min(1 - (n - 1) / enrolled, g * (n + 1) / n) if n < enrolled else 0  # Bardenet and Maillard 2015
    assert proxy == pytest.approx(serfling / 4 / n)
    assert variance == pytest.approx(g * enrolled / (enrolled - 1) / 4 / n if n < enrolled else 0)


@pytest.mark.parametrize("epsilon", [None, ["1", "2"]])
def test_the_estimate_of_a_number_is_in_its_units(epsilon: list[str] | None) -> None:
    document: dict[str, object] = {"id": "t", "epsilon": "2", "mechanism": "multilevel"}
    if epsilon:
        document["offers"] = epsilon
    unit = make_task(document | {"domain": {"kind": "number", "lower": 0.0, "upper": 1.0}})
    wide = make_task(document | {"domain": {"kind": "number", "lower": -20.0, "upper": 60.0}})
    of = unit.randomizer.parts if isinstance(unit.randomizer, Offers) else (unit.randomizer,)
    bodies = [(*((place,) if epsilon else ()), i % 2) for place in range(len(of)) for i in range(60)]
    tally = fold(unit.randomizer, np.array(bodies, dtype=np.int64))
    given, expected = estimate(wide, tally, 0.9), estimate(unit, tally, 0.9)
    assert given.mean is not None
    assert expected.mean is not None
    assert given.mean == pytest.approx(80 * expected.mean - 20)
    assert given.intervals.keys() == expected.intervals.keys()
    for target, (low, high) in expected.intervals.items():
        assert given.intervals[target] == pytest.approx((80 * low - 20, 80 * high - 20))
        assert given.stderr.get(target, 0) == pytest.approx(80 * expected.stderr.get(target, 0))


def test_many_samples_at_once_have_the_betting_intervals_of_each() -> None:
    of = finite(Multilevel(Fraction(2), 1 << 20, 3))
    counts = [(9, 0, 1, 10), (20, 0, 0, 0), (5, 0, 5, 10)]
    for row, ends in zip(counts, betting_limits([(((of, row),), 0.95) for row in counts]), strict=True):
        assert ends == pytest.approx(betting_interval([(of, row)], 0.95), abs=1e-9)
