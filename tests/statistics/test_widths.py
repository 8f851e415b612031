"""Every bar is as long as its formula says: each length against an independent computation, to 1e-6 or better.

That an interval covers says nothing of one that is too wide. Nothing of hush's arithmetic is used here but what a
channel is: its positions and probabilities, as exact fractions.
"""

from fractions import Fraction
from itertools import combinations, pairwise, product
from math import exp, log, pi, sqrt

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import optimize, stats
from single_intervals import (
    RATES,
    FiniteChannel,
    Group,
    Units,
    band,
    betting_interval,
    bounded,
    finite,
    mixture_deviation,
    score_interval,
)

from hush import Task
from hush_aggregator.estimate import ANYTIME, ANYTIME_POPULATION, ENROLLED, POPULATION, REPORTERS, estimate
from hush_aggregator.estimate.diagnostics import finite_monitors, manski, variance_monitor, worst_case_bias
from hush_aggregator.estimate.intervals.anytime import symmetric_mixture_deviation
from hush_aggregator.estimate.intervals.sampling import HOEFFDING, POPOVICIU, finite_spread, noise_and_sampling
from hush_aggregator.estimate.intervals.tilted import tilted_limits
from hush_aggregator.estimate.mechanisms import fold, vector
from hush_aggregator.estimate.tally import Tally
from hush_common.domain import VectorDomain
from hush_common.mechanisms import Multilevel, Offers, RandomizedResponse, Vector
from hush_common.mechanisms.multilevel import best_levels
from hush_common.task import make_task

Array = NDArray[np.float64]


def levels(epsilon: str, count: int | None = None) -> FiniteChannel:
    exact = Fraction(epsilon)
    return finite(Multilevel(exact, 1 << 20, count or best_levels(exact)))


def coin(epsilon: str) -> FiniteChannel:
    return finite(RandomizedResponse.from_epsilon(Fraction(epsilon)))


def lopsided() -> FiniteChannel:
    """A channel whose noise is not the same on both sides, nor at its nodes."""
    rows = ((3, 2, 1), (1, 2, 1), (1, 1, 4))
    law = [[Fraction(w, sum(row)) for w in row] for row in rows]
    # positions with E[a | x_j] = x_j
    (a, b, c), (d, e, f), (g, h, i) = law
    det = a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g)
    half = Fraction(1, 2)
    x = (half * (c * h - b * i) + (b * f - c * e)) / det
    y = (half * (a * i - c * g) + (c * d - a * f)) / det
    z = (half * (b * g - a * h) + (a * e - b * d)) / det
    return FiniteChannel((x, y, z), tuple(tuple(row) for row in law))


CHANNELS = {
    "coin": coin("1"),
    "two levels": levels("1", 1),
    "three levels": levels("1.5", 2),
    "many": levels("6"),
    "lopsided": lopsided(),
    "some never": FiniteChannel(  # an output that one end never gives, and one that nobody does
        tuple(Fraction(a, 2) for a in (3, -1, 1, 9)),
        tuple(tuple(Fraction(w, 2) for w in row) for row in ((0, 1, 1, 0), (1, 0, 1, 0))),
    ),
}


def laws(of: FiniteChannel, points: int) -> tuple[Array, Array, Array]:
    """Values, the law of the output at each, and the positions of the outputs: by interpolation between the rows."""
    x = np.linspace(0, 1, points)
    rows = np.array([[float(p) for p in row] for row in of.rows])
    nodes = np.linspace(0, 1, len(rows))
    law = np.array([np.interp(x, nodes, column) for column in rows.T]).T
    return x, law, np.array([float(a) for a in of.positions])


@pytest.mark.parametrize("of", CHANNELS.values(), ids=CHANNELS)
def test_the_variances_of_a_channel_are_those_of_its_laws(of: FiniteChannel) -> None:
    x, law, a = laws(of, 40 * len(of.rows) * 7 + 1)
    assert law @ a == pytest.approx(x, abs=1e-12)
    variance = law @ a**2 - x**2
    assert of.variances == pytest.approx((variance.min(), variance.max()), rel=1e-4)
    assert of.variances[1] >= variance.max() * (1 - 1e-12)
    assert of.second_moment == pytest.approx((law @ (a - 0.5) ** 2).max(), rel=1e-9)
    seen = law.max(axis=0) > 0
    assert of.reach == pytest.approx(np.abs(a[seen] - x[:, None]).max(), rel=1e-12)
    order = np.argsort(a[seen])
    assert np.array(of.extremes) == pytest.approx(np.array((law.min(axis=0), law.max(axis=0)))[:, seen][:, order])


@pytest.mark.parametrize("of", CHANNELS.values(), ids=CHANNELS)
def test_the_noise_exponent_is_the_largest_over_the_values(of: FiniteChannel) -> None:
    x, law, a = laws(of, 4001)
    for rate in (0.01, 0.5, 2.0, -0.01, -0.5, -2.0, 8 / of.reach):
        slow = (np.log(law @ np.exp(rate * a)) - rate * x).max()
        assert of.noise_exponent(np.array([rate]))[0] == pytest.approx(slow, rel=1e-5, abs=1e-12)
        assert of.noise_exponent(np.array([rate]))[0] >= slow - 1e-12


@pytest.mark.parametrize(("n", "confidence", "unit"), [(1, 0.5, 1.0), (40, 0.95, 1e-5), (10**7, 1 - 1e-9, 1e6)])
def test_a_mixture_reaches_its_threshold_just_where_the_band_ends(n: int, confidence: float, unit: float) -> None:
    assert pytest.approx([2 ** (-k / 2) for k in range(25)]) == RATES
    rates = 0.95 * RATES
    psi = -n * np.log1p(-(rates**2))
    rates = rates / unit  # of what is summed: the deviation has it, too
    alpha = mpmath.mpf(1) - confidence
    pairs = [(mpmath.mpf(r), mpmath.mpf(e)) for r, e in zip(rates.tolist(), psi.tolist(), strict=True)]

    def one_sided(d: float) -> mpmath.mpf:
        return mpmath.fsum(mpmath.exp(r * d - e) for r, e in pairs) / len(pairs) * alpha / 2

    def two_sided(d: float) -> mpmath.mpf:
        return mpmath.fsum(mpmath.cosh(r * d) * mpmath.exp(-e) for r, e in pairs) / len(pairs) * alpha

    for deviation, mixture in ((mixture_deviation, one_sided), (symmetric_mixture_deviation, two_sided)):
        d = deviation(rates, psi, confidence)
        assert mixture(d) >= 1 - 1e-9
        assert mixture(d * (1 - 1e-10)) < 1


@pytest.mark.parametrize("sampling", [False, True])
def test_a_band_adds_the_exponents_of_all_reports(*, sampling: bool) -> None:
    sizes = ((CHANNELS["lopsided"], 30), (coin("2"), 70))
    fastest = 4 / max(abs(float(a) - x) for of, _ in sizes for a in of.positions for x in (0, 1))
    for sign, end in zip((1, -1), band(sizes, 0.9, sampling=sampling), strict=True):
        rates = fastest * 2.0 ** (-np.arange(25) / 2)
        psi = 100 * rates**2 / 8 * sampling
        for of, n in sizes:
            x, law, a = laws(of, 2001)
            psi = psi + n * np.array([(np.log(law @ np.exp(sign * r * a)) - sign * r * x).max() for r in rates])
        root = optimize.brentq(
            lambda d, rates=rates, psi=psi: np.logaddexp.reduce(rates * d - psi) - log(500), 1e-9, 1e4
        )
        assert end == pytest.approx(root / 100, rel=1e-5)


GROUPS = (
    [Group(CHANNELS["three levels"], (300, 500, 400))],
    [Group(CHANNELS["three levels"], (3, 50, 4))],
    [Group(CHANNELS["lopsided"], (900, 1200, 1500))],
    [Group(coin("1"), (400, 600)), Group(coin("2"), (700, 100))],
    [Group(coin("1"), (4, 6)), Group(coin("2"), (7, 1))],
    [Group(CHANNELS["three levels"], (300, 500, 400)), Group(coin("2"), (900, 900)), Group(coin("3"), (0, 0))],
)
SPAN = Units(Fraction(-10), Fraction(30))


@pytest.mark.medium
@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("groups", GROUPS)
def test_errors_and_normal_intervals_are_those_of_the_reports(groups: list[Group], *, sampled: bool) -> None:
    of = [group.channel for group in groups for _ in range(sum(group.counts))]
    reports = np.concatenate([np.repeat([float(a) for a in g.channel.positions], g.counts) for g in groups])
    n, mean = len(reports), reports.mean()
    noise = np.array([true_variances(one) for one in of])
    least, most = noise.mean(axis=0)
    square = max(reports.var(ddof=1), least)
    capped = min(square, most)
    is_normal = least * n >= 12 * max(reach(one) for one in of) ** 2
    largest = np.mean([true_second_moment(one) for one in of])
    error = sqrt((square if is_normal else largest) / n)
    enrolled, g = 2 * n, 0.5
    given = bounded(groups, SPAN, 0.95, sampled=sampled, enrolled=enrolled)
    assert given.n == n
    assert not given.all_failures
    assert given.mean == pytest.approx(40 * mean - 10)
    reporters = error if sampled else sqrt(most / n)
    assert given.stderr[REPORTERS] == pytest.approx(40 * reporters, rel=1e-6)
    assert given.stderr[POPULATION] == pytest.approx(40 * error, rel=1e-6)
    assert given.stderr[ENROLLED] == pytest.approx(40 * sqrt((reporters**2 + error**2) / 2), rel=1e-6)
    alone = square if sampled else capped
    assert given.single.stderr_plug_in[REPORTERS] == pytest.approx(40 * sqrt(alone / n), rel=1e-6)
    assert given.single.stderr_plug_in[POPULATION] == pytest.approx(40 * sqrt(square / n), rel=1e-6)
    part = square - g * max(square - most, 0)
    assert given.single.stderr_plug_in[ENROLLED] == pytest.approx(40 * sqrt(part / n), rel=1e-6)
    if len(groups) > 1 and is_normal:
        t = stats.t.ppf(0.975, n - 1)
        for target, variance in ((REPORTERS, alone), (POPULATION, square), (ENROLLED, part)):
            low, high = given.intervals[target]
            smooth = 40 * t * sqrt(variance / n)
            assert smooth * (1 - 1e-9) <= (high - low) / 2 <= smooth * 1.01, "as far as lattices need it"
            assert (low + high) / 2 == pytest.approx(40 * mean - 10, rel=1e-6)
            assert given.methods[target].startswith("student-t")
    elif not is_normal:
        assert not any("student" in method for method in given.methods.values())
    assert given.methods[ANYTIME].startswith("population" if sampled else "reporters")
    assert (ANYTIME_POPULATION in given.methods) == (not sampled)


def true_variances(of: FiniteChannel) -> tuple[float, float]:
    """By calculus: on each cell the variance is a parabola with second derivative -2."""
    a = np.array([float(x) for x in of.positions])
    rows = np.array([[float(p) for p in row] for row in of.rows])
    nodes = np.linspace(0, 1, len(rows))
    ends = rows @ a**2 - nodes**2
    most = ends.max()
    for (x0, v0), (x1, v1) in pairwise(zip(nodes.tolist(), ends.tolist(), strict=True)):
        # v(x) = v0 + b·u - u^2 with u = x - x0
        b = (v1 - v0) / (x1 - x0) + (x1 - x0)
        u = min(max(b / 2, 0), x1 - x0)
        most = max(most, v0 + b * u - u**2)
    return float(ends.min()), float(most)


def true_second_moment(of: FiniteChannel) -> float:
    return max(
        float(sum(p * (a - Fraction(1, 2)) ** 2 for p, a in zip(row, of.positions, strict=True))) for row in of.rows
    )


def reach(of: FiniteChannel) -> float:
    return max(abs(float(a) - x) for a in of.positions for x in (0, 1))


@pytest.mark.parametrize("sampling", [0.3, 1.0])
@pytest.mark.parametrize("name", ["many", "lopsided"])
def test_the_score_interval_ends_where_the_distance_is_too_large(name: str, sampling: float) -> None:
    of, n = CHANNELS[name], 60
    t = stats.t.ppf(0.975, n - 1)
    least, chords = true_variances(of)[0], floors(of, sampling)
    for center, variance in ((0.3, 0.0), (0.02, 0.0), (0.5, 3 * least), (1.2, 0.1)):

        def excess(mu: float, center: float = center, variance: float = variance) -> float:
            floor = min(y + slope * (mu - x) for x, z, y, slope in chords if x <= mu <= z) - sampling * mu**2
            return (mu - center) ** 2 - t**2 * max(variance, least, floor) / n

        ends = [center - t * sqrt(max(variance, least) / n), center + t * sqrt(max(variance, least) / n)]
        grid = np.linspace(0, 1, 241).tolist()
        for x, y in pairwise(grid):
            if (excess(x) > 0) != (excess(y) > 0):
                root = optimize.brentq(excess, x, y, xtol=1e-13)
                ends = [min(ends[0], root), max(ends[1], root)]
        for edge in (0.0, 1.0):
            if excess(edge) <= 0:
                ends = [min(ends[0], edge), max(ends[1], edge)]
        given = score_interval(of, n, center, variance, 0.95, sampling=sampling)
        assert given == pytest.approx(tuple(ends), abs=1e-9)


def floors(of: FiniteChannel, sampling: float) -> list[tuple[float, float, float, float]]:
    """Of each pair of nodes the chord below which no mixture of the two lies: from, to, height and slope."""
    a = np.array([float(x) for x in of.positions])
    rows = np.array([[float(p) for p in row] for row in of.rows])
    nodes = np.linspace(0, 1, len(rows))
    second = rows @ a**2 - nodes**2 + sampling * nodes**2
    points = list(zip(nodes.tolist(), second.tolist(), strict=True))
    return [(x, z, y, (w - y) / (z - x)) for (x, y), (z, w) in combinations(points, 2)]


@pytest.mark.parametrize("confidence", [0.6, 0.9999])
@pytest.mark.parametrize("counts", [(9, 3, 4), (0, 12, 0), (150, 20, 30)])
def test_bets_end_where_their_wealth_is_enough(counts: tuple[int, int, int], confidence: float) -> None:
    of, other = CHANNELS["lopsided"], coin("1")
    reports = [(of, counts), (other, (5, 2))]
    a = np.concatenate([[float(x) for x in one.positions] for one, _ in reports])
    seen = np.concatenate([counts for _, counts in reports])
    n = seen.sum()
    least = sum(true_variances(one)[0] * sum(counts) for one, counts in reports) / n
    most = sum(true_second_moment(one) * sum(counts) for one, counts in reports) / n
    variances = [least * (most / least) ** (k / 4) for k in range(5)]
    shares = [v**0.35 for v in variances]

    def wealth(mu: float, sign: int) -> float:
        y = sign * a
        total = 0.0
        for v, share in zip(variances, shares, strict=True):
            bet = min(sqrt(2 * log(10 / (1 - confidence)) / (n * v)), 0.9 / (sign * mu - y.min()))
            total += share / sum(shares) * exp(float(np.log1p(bet * (y - sign * mu)) @ seen))
        return total * (1 - confidence) / 2

    low, high = betting_interval(reports, confidence)
    for end, sign in ((low, 1), (high, -1)):
        if abs(end - (a.min() if sign > 0 else a.max())) > 1e-9:
            assert wealth(end - sign * 1e-7, sign) > 1 > wealth(end + sign * 1e-7, sign)
        else:
            assert wealth(end + sign * 1e-6, sign) < 1


Ends = tuple[float, float, float, float]  # the chance of a yes and of a no, for the value 0 and for 1


def refused(ends: list[Ends], n: list[int], at: float, rate: float, k: float, *, whole: bool) -> float:
    """The largest mean that Chernoff's bound with Berry and Esseen's factor refuses at one rate and k."""
    above, variances = 0.0, []
    for (q, no_q, p, no_p), size in zip(ends, n, strict=True):
        w = 1 / (p - q)
        none, all_ = (
            log(no * exp(-rate * w * q) + yes * exp(rate * w * (1 - q))) for yes, no in ((q, no_q), (p, no_p))
        )
        above += size * max(none, all_ - k)
        shares = [(yes * exp(rate * w), no) for yes, no in ((q, no_q), (p, no_p))]
        of_each = [yes * no / (yes + no) ** 2 for yes, no in shares]
        straddles = shares[0][0] < shares[0][1] and shares[1][0] > shares[1][1]
        most = 0.25 if straddles else max(of_each)
        variances.append((size * w**2 * min(of_each), size * w**2 * most, w * (1 - 2 * min(of_each))))
    ratio = max(
        sum(v * third for v, (_, _, third) in zip(chosen, variances, strict=True)) / sum(chosen) ** 1.5
        for chosen in product(*((least, most) for least, most, _ in variances))
    )
    least = sum(one[0] for one in variances)
    factor = min(0.0, log(1 / (rate * sqrt(2 * pi * least)) + 1.12 * ratio))
    y = (rate * at * sum(n) - above - log(40) - factor) / sum(n)
    return y / k if whole else float(np.expm1(np.clip(y, -1, k)) / np.expm1(k))


def slopes(ends: list[Ends], rate: float) -> list[float]:
    return [
        log((no_p + p * exp(rate / (p - q))) / (no_q + q * exp(rate / (p - q))))
        for q, no_q, p, no_p in ends
        if rate / (p - q) < 60
    ]


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("center", [0.0, 0.6])
@pytest.mark.parametrize("sizes", [{"0.5": 40, "2": 60}, {"1": 2000, "3": 300}])
def test_the_tilted_limit_is_hardly_inside_the_best_of_all_rates(
    sizes: dict[str, int], center: float, *, whole: bool
) -> None:
    channels = [(coin(epsilon), n) for epsilon, n in sizes.items()]
    lower, upper = tilted_limits(channels, np.array([center]), [0.95], whole=whole)
    found = [
        (float(one.rows[0][1]), float(one.rows[0][0]), float(one.rows[1][1]), float(one.rows[1][0]))
        for one, _ in channels
    ]
    mirrored = [(no_p, p, no_q, q) for q, no_q, p, no_p in found]
    n = list(sizes.values())
    for ends, at, limit in ((found, center, lower[0, 0]), (mirrored, 1 - center, 1 - upper[0, 0])):
        best = max(
            refused(ends, n, at, rate, k, whole=whole)
            for rate in np.geomspace(1e-3, 60, 400).tolist()
            for k in slopes(ends, rate)
        )
        if best > 0:  # below, the limit is clipped
            assert abs(limit - best) < 5e-4 * (at - best)  # which are on grids, each of its own


def test_liars_and_silence_move_a_mean_as_far_as_their_share() -> None:
    assert worst_case_bias(50, 3.0) == pytest.approx({"1": 0.06, "1%": 0.03, "5%": 0.15})
    assert worst_case_bias(50, 3.0, of=200) == pytest.approx({"1": 0.06, "1%": 0.12, "5%": 0.6})
    assert worst_case_bias(2, 3.0, of=400) == pytest.approx({"1": 1.5, "1%": 3.0, "5%": 3.0})
    assert manski(30, 40, (2.0, 4.0), -10.0, 30.0) == pytest.approx((0.75 * 2 - 0.25 * 10, 0.75 * 4 + 0.25 * 30))
    assert manski(50, 40, (2.0, 4.0), -10.0, 30.0) == (2.0, 4.0)


@pytest.mark.parametrize("n", [100, 400, 10_000])
def test_the_monitor_of_a_variance_speaks_at_four_deviations(n: int) -> None:
    slack = 4 * sqrt(5 / n)
    low, high = 2 * (1 - slack), (2 + 9 / 4) * (1 + slack)
    said = [variance_monitor(n, at * edge, 2.0, 3.0) for edge in (low, high) for at in (1 - 1e-9, 1 + 1e-9)]
    expected = ["too_little_noise" if low > 0 else "ok", "ok", "ok", "outliers"]
    assert said == expected
    assert variance_monitor(99, 1e9, 2.0, 3.0) is None


def test_the_monitor_of_outputs_speaks_at_four_deviations() -> None:
    of, n = coin("1"), 10_000
    q, p = (float(row[1]) for row in (of.rows[0], of.rows[-1]))
    for questions in (1, 500):
        z = stats.norm.isf(6.3e-5 / questions / 2)
        few, many = n * q - z * sqrt(n * q * (1 - q)), n * p + z * sqrt(n * p * (1 - p)) + z
        for ones, verdict in (
            (int(np.floor(few)), "too_little_noise"),
            (int(np.ceil(few)), "ok"),
            (n // 2, "ok"),
            (int(np.floor(n - few)), "ok"),
            (int(np.floor(n - few)) + 1, "too_little_noise"),
        ):
            counts = np.tile([n - n // 2, n // 2], (questions, 1))
            counts[0] = n - ones, ones
            assert finite_monitors(of, counts)[0] == verdict
        assert many > n - few  # of a coin, too many ones are too few zeros first
    assert finite_monitors(of, np.array([[50, 49]])) == []
    assert finite_monitors(of, np.array([[50, 50]])) == ["ok"]


def thirds(kind: str) -> tuple[Task, Tally]:
    """A question of three parts, and 300 reports to it."""
    if kind == "category":
        asked = make_task({"id": "t", "epsilon": "2", "domain": {"kind": kind, "labels": ["a", "b", "c"]}})
        return asked, Tally(300, (150, 90, 60))
    parts = [{"name": name, "lower": 0.0, "upper": 1.0} for name in "xyz"]
    asked = make_task({"id": "t", "epsilon": "2", "domain": {"kind": kind, "coordinates": parts}})
    assert isinstance(asked.randomizer, Vector)
    each = (70 * asked.randomizer.sampled, *[0] * (asked.randomizer.levels - 1), 30 * asked.randomizer.sampled)
    return asked, Tally(300, each * 3)


@pytest.mark.parametrize("kind", ["category", "vector"])
def test_joint_intervals_are_those_of_a_third_of_the_error(kind: str) -> None:
    asked, tally = thirds(kind)
    for confidence, single in ((0.85, 0.95), (1 - 2**-53, 1 - 2**-53)):
        given, alone = estimate(asked, tally, confidence), estimate(asked, tally, single)
        assert not given.all_failures
        for place in range(3):
            fact, other = (of.parts[place] for of in (given, alone))
            assert not fact.failures
            assert fact.joint_intervals.keys() == fact.intervals.keys()
            for target, interval in fact.joint_intervals.items():
                assert interval == pytest.approx(other.intervals[target], rel=1e-9)


@pytest.mark.parametrize(("enrolled", "given"), [(None, False), (299, False), (300, True), (10_000, True)])
def test_those_enrolled_have_an_interval_where_no_more_answered(enrolled: int | None, *, given: bool) -> None:
    bit = {"id": "t", "epsilon": "1", "domain": {"kind": "bit"}, "enrolled": enrolled}
    number = bit | {"domain": {"kind": "number", "lower": 0.0, "upper": 1.0}, "mechanism": "multilevel"}
    for document in (bit, number):
        asked = make_task({key: value for key, value in document.items() if value is not None})
        one = asked.randomizer
        width = one.levels + 1 if isinstance(one, Multilevel) else 1
        tally = Tally(300, (100,)) if width == 1 else Tally(300, (100, *[0] * (width - 2), 200))
        assert (ENROLLED in estimate(asked, tally, 0.95).intervals) == given


def test_a_sampling_error_counts_as_normal_where_noise_smooths_it() -> None:
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
    q, p = float(of.rows[0][1]), float(of.rows[1][1])
    tail = (1 - confidence) / 2
    low = stats.beta.ppf(tail, k, n - k + 1) if k else 0.0
    high = stats.beta.isf(tail, k + 1, n - k) if k < n else 1.0
    ends = [(end - q) / (p - q) for end in (min(low, (k - 1) / n), max(high, (k + 1) / n))]
    mean = (k / n - q) / (p - q)
    outside = mean - min(max(mean, 0), 1)
    expected = max(ends[0] - max(outside, 0), 0), min(ends[1] - min(outside, 0), 1)
    given = bounded([Group(of, (n - k, k))], Units(), confidence)
    assert given.intervals[REPORTERS] == pytest.approx(expected, rel=1e-8, abs=1e-12)


@pytest.mark.parametrize(("n", "enrolled"), [(1, 1), (1, 2), (3, 4), (40, 50), (2, 1000), (999, 1000)])
def test_the_spread_of_a_subset_is_serflings_and_its_exact_variance(n: int, enrolled: int) -> None:
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
