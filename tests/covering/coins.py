"""Two outputs: bits, two levels, one category. Exact: the counts that cover, and the law of the count."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from math import sqrt

import numpy as np
from covering.cells import SIZES, SLACK, VALUES, Cell, law, shares, sizes
from covering.laws import Window, answered_sum, coin_sum
from scipy import stats
from single_intervals import FiniteChannel, finite

from hush import Task
from hush_aggregator.estimate import POPULATION, REPORTERS, estimate
from hush_aggregator.estimate.estimates import ENROLLED
from hush_aggregator.estimate.tally import Tally
from hush_common.mechanisms import Multilevel, RandomizedResponse, SubsetSelection, Vector
from hush_common.task import make_task

__all__ = ["bits", "categories", "covering", "enrolled_bits", "finite_of", "two_coins", "two_levels"]

Limits = Mapping[str, tuple[float, float]]
Given = tuple[Limits, Mapping[str, str]]
"""Intervals and methods."""
Asked = Callable[[int, float, int], Given]
"""Of n reports at a confidence, of which k were the upper output."""

EVERY_COUNT = 64
MOST = 1_000_000
MOST_ENROLLED = 20_000
NUMBER = {"kind": "number", "lower": 0.0, "upper": 1.0}


def finite_of(task: Task) -> FiniteChannel:
    """The channel of a task, of one coordinate or of one category."""
    mechanism = task.randomizer
    if isinstance(mechanism, Vector):
        mechanism = mechanism.part
    if not isinstance(mechanism, Multilevel | RandomizedResponse | SubsetSelection) and mechanism.name != "table":
        raise TypeError(mechanism)
    return finite(mechanism)


def covering(
    limits: Callable[[int], tuple[float, float]], n: int, truth: float, guess: tuple[float, float]
) -> tuple[int, int]:
    """The first and the last count of {0, …, n} whose interval holds the truth. Limits rise with the count."""

    def first(accepts: Callable[[int], bool], start: float) -> int:
        """The least count that is accepted; n + 1 if none is."""
        low, high, stride = -1, n + 1, max(int(sqrt(n)) // 8, 1)
        at = min(max(round(start), 0), n)
        while high - low > 1:
            low, high, step = (low, at, -stride) if accepts(at) else (at, high, stride)
            at, stride = at + step, 2 * stride
            if not low < at < high:
                at = (low + high) // 2
        return high

    least = first(lambda k: limits(k)[1] + SLACK >= truth, guess[0])
    most = first(lambda k: limits(k)[0] - SLACK > truth, guess[1]) - 1
    return least, most


def coin_cells(
    mechanism: str,
    row: str,
    n: int,
    confidence: float,
    *,
    of: FiniteChannel,
    asked: Asked,
    kind: str,
    claimed: float | None = None,
    enrolled: int | None = None,
) -> Iterator[Cell]:
    """All distributions at one size. The people of `reporters` and of `enrolled` are fixed."""
    claimed = confidence if claimed is None else claimed
    known = cache(partial(asked, n, confidence))
    methods = known(0)[1]
    z = float(stats.norm.isf((1 - claimed) / 2))
    for name, values in VALUES.items():
        if kind != "number" and any(x not in (0.0, 1.0) for x in values):
            continue
        for target, truth, window in laws(of, n, values, enrolled):
            k = window.low + np.arange(len(window.pmf))
            center = float(window.pmf @ k)
            spread = z * sqrt(max(float(window.pmf @ (k - center) ** 2), 0.25))
            coverage = covered(limits_for(known, target), n, truth, window, (center - spread, center + spread))
            yield Cell(mechanism, target, row, n, claimed, name, methods[target], coverage, exact=True)


def laws(
    of: FiniteChannel, n: int, values: dict[float, float], enrolled: int | None
) -> Iterator[tuple[str, float, Window]]:
    """Each target with its truth and the law of the count."""
    chance = {x: float(law(of, x)[1]) for x in values}
    if enrolled is not None:
        everyone = shares(enrolled, values)
        yield ENROLLED, mean(everyone), answered_sum([(count, chance[x]) for x, count in everyone.items()], n)
        return
    people = shares(n, values)
    yield REPORTERS, mean(people), coin_sum([(count, chance[x]) for x, count in people.items()])
    yield POPULATION, mean(values), coin_sum([(n, sum(chance[x] * w for x, w in values.items()))])


def mean(people: dict[float, int] | dict[float, float]) -> float:
    return sum(x * count for x, count in people.items()) / sum(people.values())


def limits_for(known: Callable[[int], Given], target: str) -> Callable[[int], tuple[float, float]]:
    return lambda k: known(k)[0][target]


def covered(
    limits: Callable[[int], tuple[float, float]], n: int, truth: float, window: Window, guess: tuple[float, float]
) -> float:
    """The probability of the counts whose interval holds the truth."""
    if n <= EVERY_COUNT:
        hit = [
            limits(window.low + k)[0] - SLACK <= truth <= limits(window.low + k)[1] + SLACK
            for k in range(len(window.pmf))
        ]
        return float(window.pmf @ hit)
    least, most = covering(limits, n, truth, guess)
    return float(window.pmf[max(least - window.low, 0) : max(most + 1 - window.low, 0)].sum())


def answer(task: Task, n: int, confidence: float, moments: tuple[int, ...]) -> Given:
    given = estimate(task, Tally(n, moments), confidence)
    return given.intervals, given.methods


def both(methods: Mapping[str, str]) -> tuple[str | None, ...]:
    return tuple(methods.get(target) for target in (REPORTERS, POPULATION))


def bits(epsilon: str, confidence: float) -> Iterator[Cell]:
    task = make_task({"id": "t", "epsilon": epsilon, "domain": {"kind": "bit"}})
    yield from _bits(task, "randomized_response", epsilon, confidence)


def two_coins(truth: str, yes: str, confidence: float) -> Iterator[Cell]:
    """Coins that treat the two bits differently."""
    task = make_task({"id": "t", "domain": {"kind": "bit"}, "coins": {"truth": truth, "yes": yes}})
    yield from _bits(task, "two coins", f"truth {truth}, yes {yes}", confidence)


def _bits(task: Task, mechanism: str, row: str, confidence: float) -> Iterator[Cell]:
    def asked(n: int, confidence: float, k: int) -> Given:
        return answer(task, n, confidence, (k,))

    for n in sizes(lambda n: both(asked(n, confidence, n // 2)[1]), MOST):
        yield from coin_cells(mechanism, row, n, confidence, of=finite_of(task), asked=asked, kind="bit")


def enrolled_bits(epsilon: str, confidence: float) -> Iterator[Cell]:
    """Half of those enrolled answer."""
    document = {"id": "t", "epsilon": epsilon, "domain": {"kind": "bit"}}

    def asked(n: int, confidence: float, k: int) -> Given:
        return answer(make_task(document | {"enrolled": 2 * n}), n, confidence, (k,))

    of = finite_of(make_task(document))
    for n in sizes(lambda n: asked(n, confidence, n // 2)[1][ENROLLED], MOST_ENROLLED):
        yield from coin_cells(
            "randomized_response", epsilon, n, confidence, of=of, asked=asked, kind="bit", enrolled=2 * n
        )


def two_levels(epsilon: str, confidence: float) -> Iterator[Cell]:
    task = make_task({"id": "t", "epsilon": epsilon, "mechanism": "multilevel", "domain": NUMBER})

    def asked(n: int, confidence: float, k: int) -> Given:
        return answer(task, n, confidence, (n - k, k))

    for n in sizes(lambda n: both(asked(n, confidence, n // 2)[1]), MOST):
        yield from coin_cells("multilevel", epsilon, n, confidence, of=finite_of(task), asked=asked, kind="number")


def categories(epsilon: str, labels: int, confidence: float, *, joint: bool) -> Iterator[Cell]:
    """One category; each joint interval is one at 1 - alpha/k."""
    names = [f"c{place}" for place in range(labels)]
    task = make_task({"id": "t", "epsilon": epsilon, "domain": {"kind": "category", "labels": names}})
    mechanism = task.randomizer
    if not isinstance(mechanism, SubsetSelection):
        raise TypeError(mechanism)
    size = mechanism.size

    def asked(n: int, confidence: float, k: int) -> Given:
        rest, others = n * size - k, labels - 1
        counts = (k, *(rest // others + (place < rest % others) for place in range(others)))
        given = estimate(task, Tally(n, counts), confidence)
        return given.parts[0].joint_intervals if joint else given.parts[0].intervals, given.parts[0].methods

    name = f"subset_selection, {labels} categories" + (", each joint interval" if joint else "")
    claimed = 1 - (1 - confidence) / labels if joint else None
    for n in sizes(lambda n: both(asked(n, confidence, n * size // labels)[1]), MOST, (*SIZES, 10_001)):
        if n > 1 or size < labels:
            yield from coin_cells(
                name, epsilon, n, confidence, of=finite_of(task), asked=asked, kind="category", claimed=claimed
            )
