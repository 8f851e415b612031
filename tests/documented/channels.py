# ruff: noqa: E501, RUF001 - sentences of the document
"""Sections 4 to 7: bits, bounded reports, several epsilons, categories."""

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache
from math import exp, sqrt

import numpy as np
from covering.asked import about, holding
from covering.cells import law, switches
from covering.coins import finite_of
from covering.document import by_method
from covering.laws import coin_sum, outcomes
from covering.levels import NUMBER, middle
from covering.predicates import _hull
from covering.searched import KINDS, SEARCHED, STARTS
from documented.figures import computed, count, given, on_section, percent
from documented.noise import NOMINAL, raised
from mixtures import Mixture, Seen, exact
from numpy.typing import NDArray
from scipy import stats
from single_intervals import ends
from tools.coverage_grid import DOCUMENT

from hush import Task
from hush_aggregator.estimate import POPULATION, REPORTERS, estimate
from hush_aggregator.estimate.bounded_mean import _DOUBT, Group, rule
from hush_aggregator.estimate.finite_channel import FiniteChannel, finite
from hush_aggregator.estimate.intervals.inversion import _NODES
from hush_aggregator.estimate.proportions import MOST_INVERTED
from hush_aggregator.tally import Tally
from hush_common.mechanisms import Multilevel
from hush_common.mechanisms.multilevel import best_levels
from hush_common.task import make_task

MOST = 100_000
Law = NDArray[np.float64]
Z = float(stats.norm.isf((1 - NOMINAL) / 2))


def levels(epsilon: str) -> FiniteChannel:
    exact = Fraction(epsilon)
    return finite(Multilevel(exact, 1 << 20, best_levels(exact)))


@cache
def numbers(epsilon: str) -> Task:
    domain = {"kind": "number", "lower": 0.0, "upper": 1.0}
    return make_task({"id": "t", "epsilon": epsilon, "mechanism": "multilevel", "domain": domain})


@on_section("4")
def bits() -> Iterator[str]:
    pairs = [(e, exp(e) / (exp(e) - 1) ** 2, 2 / e**2) for e in (0.1, 1.0, 4.0)]
    forms = ((".1f", ".0f"), (".3f", ".0f"), (".4f", ".3f"))
    texts = [
        f"{computed(bit, form)} against {computed(number, other)} at {'ε = ' * (e < 1)}{given(f'{e:g}')}"
        for (e, bit, number), (form, other) in zip(pairs, forms, strict=True)
    ]
    yield f"its variance per report is {', '.join(texts)}."
    task = make_task({"id": "t", "domain": {"kind": "bit"}, "coins": {"truth": "0.5", "yes": "0.5"}})
    loss = computed(exp(float(task.epsilon)), ".0f")
    yield f"Fair coins give ln {loss}, and at ε = ln {loss} both forms are the same mechanism."
    epsilon, n = 1.0, 100
    yield (
        f"(Clipped alone, {percent(clipped(epsilon, n), 1)} of honest runs end as (0, 0): ε = {given(f'{epsilon:g}')}, n = {given(n)}, nobody has the trait.)"
    )


@on_section("4")
def certain() -> Iterator[str]:
    epsilon = 50
    task = make_task({"id": "t", "epsilon": str(epsilon), "domain": {"kind": "bit"}})
    assert estimate(task, Tally(100, (30,)), NOMINAL).intervals[REPORTERS] == (0.3, 0.3)
    yield f"An interval of one point is left where it is exact: at ε = {given(epsilon)} nobody lies."


def clipped(epsilon: float, n: int) -> float:
    """P(so few ones that even one true one is refused) if nobody has the trait."""
    truth = exp(epsilon) / (1 + exp(epsilon))
    one = coin_sum([(1, truth), (n - 1, 1 - truth)])
    few = int((np.cumsum(one.pmf) <= (1 - NOMINAL) / 2).sum()) + one.low - 1
    return float(stats.binom.cdf(few, n, 1 - truth))


def wald(epsilon: float, n: int) -> float:
    """Coverage of the usual normal interval at the worst proportion."""
    p1 = exp(epsilon) / (1 + exp(epsilon))
    p0, k = 1 - p1, np.arange(n + 1)
    share = k / n
    center, half = (share - p0) / (p1 - p0), Z * np.sqrt(share * (1 - share) / n) / (p1 - p0)
    ends = np.clip(np.concatenate((center - half, center + half)), 0, 1)
    grid = np.unique(np.clip(np.concatenate((ends - 1e-9, ends, ends + 1e-9, np.linspace(0, 1, 501))), 0, 1))
    law = stats.binom.pmf(k, n, p0 + grid[:, None] * (p1 - p0))
    return float((law * ((center - half <= grid[:, None]) & (grid[:, None] <= center + half))).sum(axis=1).min())


@on_section("4")
def wrong() -> Iterator[str]:
    texts = [f"{percent(wald(e, 5))} at ε = {given(f'{e:g}')}" for e in (0.5, 2.0, 4.0)]
    yield (
        f"For five bits the usual normal interval of nominal {given(95)} % covers, at the worst proportion, {', '.join(texts[:2])} and {texts[2]}."
    )


@cache
def score_from(epsilon: str, confidence: float) -> int:
    """The first n at which the score interval is used."""
    of = finite_of(numbers(epsilon))

    def method(n: int) -> str:
        return about(numbers(epsilon), middle(of, n), confidence).methods[POPULATION]

    return next(n for n in switches(method, MOST) if method(n) == "student-score")


def least_and_power() -> tuple[float, int]:
    """c where confidence is low, and the power of z with which it grows: from the switches that are used."""
    of = finite_of(numbers("2"))
    found = [score_from("2", confidence) * of.variances[0] / of.reach**2 for confidence in (0.5, 0.95, 0.999)]
    power = np.log(found[2] / found[1]) / np.log(stats.norm.isf(0.0005) / Z)
    assert abs(found[1] / found[0] - 1) < 0.01
    return found[0], round(float(power))


@on_section("4")
def switch() -> Iterator[str]:
    least, power = least_and_power()
    yield (
        f"{computed(_NODES)} terms at any n, to 10⁻⁹ of itself. The switch is c = {computed(least, '.0f')}·max(1, z/{computed(Z, '.2f')}){computed(raised(power))} for every approximate interval"
    )


@on_section("5")
def begins() -> Iterator[str]:
    starts = [score_from(epsilon, NOMINAL) for epsilon in ("2", "4", "8")]
    least, power = least_and_power()
    yield (
        f"c = {computed(least, '.0f')}·max(1, z/{computed(Z, '.2f')}){computed(raised(power))}. At {given(95)} % the score intervals begin at n = {count(starts[0])} (ε = {given(2)}), {count(starts[1])} ({given(4)}) and {count(starts[2])} ({given(8)}):"
    )


def student(of: FiniteChannel, n: int) -> float:
    """Coverage of the t-interval for n people at the lower bound."""
    rows = outcomes(n, len(of.a))
    mass = stats.multinomial.pmf(rows, n, of.p[0] / of.p[0].sum())
    center = rows @ of.a / n
    spread = np.sqrt(np.maximum(rows @ of.a**2 - n * center**2, 0) / (n - 1) / n)
    return float(mass @ (np.abs(center) <= stats.t.isf(0.025, n - 1) * spread + 1e-12))


@on_section("5")
def collapse() -> Iterator[str]:
    of = levels("4")
    few, more = (student(of, n) for n in (3, 30))
    yield (
        f"At ε = {given(4)} and G = {computed(len(of.a) - 1)} the t-interval then has no width and covers {percent(few)} of the time at n = {given(3)} and {percent(more)} at n = {given(30)}."
    )


@on_section("5")
def bets() -> Iterator[str]:
    n, of, task = 500, levels("4"), numbers("4")
    usual, bound = [], []
    for node in range(len(of.nodes)):
        counts = np.rint(n * of.p[node]).astype(int)
        counts[node] += n - counts.sum()
        spread = sqrt(counts @ (of.a - counts @ of.a / n) ** 2 / (n - 1) / n)
        one = about(task, Tally(n, tuple(counts.tolist())), NOMINAL)
        assert one.methods[POPULATION] == "betting"
        low, high = one.intervals[POPULATION]
        usual.append((high - low) / (2 * Z * spread))
        bound.append((high - low) / (2 * Z * sqrt(of.second_moment / n)))
    wide = f"{computed(min(usual), '.1f')} to {computed(max(usual), '.1f')}"
    yield (
        f"at ε = {given(4)} and n = {given(n)} it is {wide} times as wide as ±{computed(Z, '.2f')}·s/√n where all people sit on one level, and {computed(min(bound), '.2f')} to {computed(max(bound), '.2f')} times as wide as the bound by the largest variance."
    )
    yield f"large n: {wide} × too wide"


@on_section("5")
def on_noise() -> Iterator[str]:
    n, epsilons = 142, ("2", "4", "8")
    alike, apart = ([reporters_to_population(numbers(e), law, n) for e in epsilons] for law in (at_middle, at_bounds))
    yield (
        f"at {given(95)} % and n = {given(n)} it is {alike[0]} times as wide as that of the population at ε = {given(2)} where all people are on the middle level, {alike[1]} times at ε = {given(4)} and {alike[2]} times at ε = {given(8)}. With half of the people at either bound it is {apart[0]}, {apart[1]} and {apart[2]} times as wide."
    )


def at_middle(of: FiniteChannel) -> Law:
    return np.asarray(of.p[len(of.p) // 2])


def at_bounds(of: FiniteChannel) -> Law:
    return of.parted


def reporters_to_population(task: Task, law: Callable[[FiniteChannel], Law], n: int) -> str:
    """The ratio of the widths where each output comes as often as on average."""
    of = finite_of(task)
    counts = np.rint(n * law(of)).astype(int)
    counts[counts.argmax()] += n - counts.sum()
    groups = [Group(of, tuple(counts.tolist()))]
    assert rule(((of, n),), NOMINAL) == "chernoff-betting"
    widths = [high - low for low, high in (ends(groups, NOMINAL, target) for target in (REPORTERS, POPULATION))]
    return computed(widths[0] / widths[1], ".2f")


@on_section("5")
def score() -> Iterator[str]:
    """From the table of coverage.md by method."""
    least = by_method(DOCUMENT.read_text(encoding="utf-8"))
    claims = (0.95, 0.99, 0.999)
    found = [min(least[method][claim] for method in SCORES if claim in least[method]) for claim in claims]
    texts = [
        f"{computed(100 * share, f'.{digits}f')} % of nominal {given(f'{100 * claim:g}')} %"
        for share, claim, digits in zip(found, claims, (2, 2, 3), strict=True)
    ]
    yield f"s/√n where `student-score` applies at {given(100 * NOMINAL, '.0f')} %, s² not below min V"
    cells = STARTS * len(KINDS) * sum(map(len, SEARCHED.values()))
    yield (
        f"its coverage over the grid of [coverage.md](coverage.md) is at least {texts[0]}, {texts[1]} and {texts[2]}. Of that grid {computed(cells, '.0f')} cells were moved by a search"
    )


@on_section("5")
def corrected() -> Iterator[str]:
    first, second = student_capped("2", 160, 0.1326, 0.95), student_capped("1.56", 100, 0.95, 0.5)
    yield f"unless s² is more than {computed(_DOUBT, '.1f')} deviations below it"
    yield (
        f"Without them {given(160)} reports of the value {given(0.1326)} at ε = {given(2)} cover {percent(first, 1)} of nominal {given(95)} %, and {given(100)} of the value {given(0.95)} at ε = {given(1.56)} cover {percent(second, 1)} of nominal {given(50)} %."
    )


def student_capped(epsilon: str, n: int, value: float, confidence: float) -> float:
    """Coverage of the score interval for n people of one value, s² not above max V, and nothing else."""
    of = finite_of(make_task({"id": "t", "epsilon": epsilon, "mechanism": "multilevel", "domain": NUMBER}))
    rows = outcomes(n, len(of.a))
    mass = stats.multinomial.pmf(rows, n, law(of, value) / law(of, value).sum())
    center = rows @ of.a / n
    variance = np.clip((rows @ of.a**2 - n * center**2) / (n - 1), *of.variances)
    corners = np.array(_hull(of, 0.0))
    certain = np.interp(value, corners[:, 0], corners[:, 1])
    half = stats.t.isf((1 - confidence) / 2, n - 1) * np.sqrt(np.maximum(variance, certain) / n)
    return float(mass @ holding(center, center - half, center + half, value))


SCORES = ("student-score", "student-score-capped", "student-score-enrolled")


@on_section("6")
def tilted() -> Iterator[str]:
    task = make_task({"id": "t", "epsilon": "4", "offers": ["0.5", "4"], "domain": {"kind": "bit"}})
    truths = [exp(e) / (1 + exp(e)) for e in (0.5, 4.0)]
    ratios: dict[float, list[str]] = {}
    for confidence in (0.95, 0.5):
        for n in (100, 1000):
            sizes = (1, n - 1)
            ones = [round(size / 2) for size in sizes]
            one = estimate(task, Tally(n, (sizes[0], ones[0], sizes[1], ones[1])), confidence)
            assert one.methods[REPORTERS] == "chernoff-berry-esseen"
            low, high = one.intervals[REPORTERS]
            noise = sum(size * p * (1 - p) / (2 * p - 1) ** 2 for size, p in zip(sizes, truths, strict=True))
            ratio = (high - low) / (2 * stats.norm.isf((1 - confidence) / 2) * sqrt(noise) / n)
            ratios.setdefault(confidence, []).append(computed(ratio, ".2f"))
    yield (
        f"With one report under ε = {given(0.5)}, all others under {given(4)} and half of the people with the trait, `chernoff-berry-esseen` is for the reporters {' and '.join(ratios[0.95])} times as wide at {given(95)} % as a normal interval that knows the variances (n = {given(100)} and {given(1000)}), and {' and '.join(ratios[0.5])} times at {given(50)} %."
    )


@on_section("6")
def stepwise() -> Iterator[str]:
    """Exactly: over both counts."""
    half, shown = {0.0: 0.5, 1.0: 0.5}, []
    for few, confidence in ((16, 0.95), (19, 0.5)):
        shown.append(exact(Mixture("bit", ("0.1", "10"), (few, 1000), half, (half, half), confidence)))
    before, after, longer = ([f(one) for one in shown] for f in (uncorrected, covered, ratio))
    yield (
        f"t·s/√n alone covers {before[0]} of nominal {given(95)} % with {given(16)} reports under ε = {given(0.1)} and {given(1000)} under {given(10)}, half of the people with the trait, and {before[1]} of nominal {given(50)} % with {given(19)}."
    )
    yield f"In the two examples it covers {after[0]} and {after[1]}, and is {longer[0]} and {longer[1]} times as wide."


def uncorrected(seen: Seen) -> str:
    return percent(seen.uncorrected, 1)


def covered(seen: Seen) -> str:
    return percent(seen.coverage, 1)


def ratio(seen: Seen) -> str:
    return computed(seen.ratio, ".2f")


@on_section("7")
def inverted() -> Iterator[str]:
    last = next(k for k in (64, 128, 256) if method_of(k + 1) != method_of(k))
    assert (method_of(last), last) == ("binomial-inversion", MOST_INVERTED)
    yield f"`binomial-inversion` for the reporters (k ≤ {computed(last)}; `clopper-pearson-hoeffding` above)"
    labels, n = 20, 1000
    task = categories(4, labels)
    none = round(n * float(finite_of(task).p[0][1]))
    rest, others = n - none, labels - 1
    counts = (none, *(rest // others + (place < rest % others) for place in range(others)))
    fact = estimate(task, Tally(n, counts), NOMINAL).parts[0]
    q, p = (float(one) for one in finite_of(task).of_yes)
    assert sqrt(p * (1 - p) / n) / (p - q) > 3 * fact.stderr[REPORTERS]
    yield f"at ε = {given(4)} and k = {given(labels)} the largest deviation of a category is more than three times that of a category that nobody has."


def categories(epsilon: int, labels: int) -> Task:
    names = [f"c{place}" for place in range(labels)]
    return make_task({"id": "t", "epsilon": str(epsilon), "domain": {"kind": "category", "labels": names}})


def method_of(labels: int) -> str:
    return estimate(categories(20, labels), Tally(1, (1, *[0] * (labels - 1))), NOMINAL).parts[0].methods[REPORTERS]
