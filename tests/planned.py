"""Samples of the people that a plan is for, and the error bars that hush prints for them."""

from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
from numpy.typing import NDArray

from hush import Task
from hush_aggregator.estimate import estimate
from hush_aggregator.estimate.finite_channel import KEPT, FiniteChannel, finite
from hush_aggregator.estimate.mechanisms import columns
from hush_aggregator.estimate.proportions import proportions
from hush_aggregator.tally import Tally
from hush_common.mechanisms import Laplace, Offers, RandomizedResponse, SubsetSelection, Vector
from hush_simulations.planning.plan import TOLERANCE

Array = NDArray[np.float64]

POPULATIONS: dict[str, Callable[[Array], Array]] = {
    "half at either bound": lambda x: np.where((x == 0) | (x == 1), 0.5, 0.0),
    "spread evenly": lambda x: np.full(len(x), 1 / len(x)),
    "all in the middle": lambda x: np.where(np.abs(x - 0.5) == np.abs(x - 0.5).min(), 1.0, 0.0),
    "all at a bound": lambda x: np.where(x == 0, 1.0, 0.0),
    "one in twenty far away": lambda x: np.where(x == 1, 0.05, np.where(x == 0, 0.95, 0.0)),
    "a third above": lambda x: np.where(x == 1, 1 / 3, np.where(x == 0, 2 / 3, 0.0)),
    "nearly all have it": lambda x: np.where(x == 1, 0.93, np.where(x == 0, 0.07, 0.0)),
}
"""Shares of the levels of a mechanism, given their positions on the unit interval."""


def half_widths(task: Task, n: int, confidence: float, shares: Array, *, runs: int, seed: int) -> dict[str, Array]:
    """Half the length of the intervals of `runs` samples of n people, by target.

    Args:
        task: of the unit interval.
        n: reports.
        confidence: of the intervals.
        shares: of the people at each level, see `levels`.
        runs: how many samples.
        seed: of the draws.
    """

    @cache
    def lengths(sums: tuple[int, ...]) -> dict[str, float]:
        result = estimate(task, Tally(n, sums), confidence)
        intervals = result.parts[0].intervals
        return {target: (intervals[target][1] - intervals[target][0]) / 2 for target in ("reporters", "population")}

    found = [lengths(sums) for sums in _samples(task, n, shares / shares.sum(), runs, np.random.default_rng(seed))]
    return {target: np.array([one[target] for one in found]) for target in ("reporters", "population")}


def longer(task: Task, n: int, confidence: float, target: str, *, share: float, error: float) -> float:
    """The probability that the interval of a share is longer than planned by more than `TOLERANCE`, of every count.

    The larger one of two laws: n people drawn from a population of which this share has it, and n of whom it has it.
    """
    no, yes = map(float, _channel(task).of_yes)
    counts, alike = list(range(n + 1)), len(task.domain.parts)
    made = proportions(_channel(task).of_yes, n, counts, [confidence], alike=alike).intervals[0]
    halves = np.array([(high - low) / 2 for low, high in (one[target] for one in made)])
    who = round(n * share)
    laws = [no + share * (yes - no)] * n, [no] * (n - who) + [yes] * who
    return max(float(_of_coins(law)[halves > (1 + TOLERANCE) * error].sum()) for law in laws)


def _of_coins(chances: list[float]) -> Array:
    """The law of the sum, one coin after the other."""
    law = np.ones(1)
    for chance in chances:
        law = np.convolve(law, (1 - chance, chance))
    return law


def levels(task: Task) -> Array:
    """The positions between which a mechanism rounds at random; of Laplace noise the bounds and the middle."""
    return np.linspace(0, 1, 3) if isinstance(task.randomizer, Laplace) else _channel(task).nodes


def kept(halves: Array, error: float, slack: float = 1 + TOLERANCE) -> float:
    """In which share of the samples an error bar was as short as planned."""
    return float((halves <= slack * error).mean())


def fewest_kept(runs: int) -> float:
    """The share of samples kept below which a plan that keeps `KEPT` of them falls in one of 10^9 tests (Bernstein)."""
    t = np.log(1e9) / runs
    return KEPT - float(t / 3 + np.sqrt(t**2 / 9 + 2 * KEPT * (1 - KEPT) * t))


def _channel(task: Task) -> FiniteChannel:
    mechanism = task.randomizer
    assert not isinstance(mechanism, Offers)
    return finite(mechanism.part if isinstance(mechanism, Vector) else mechanism)


def _samples(task: Task, n: int, shares: Array, runs: int, rng: np.random.Generator) -> Iterator[tuple[int, ...]]:
    mechanism = task.randomizer
    if isinstance(mechanism, Laplace):
        yield from (_laplace(mechanism, n, shares, rng) for _ in range(runs))
        return
    channel = _channel(task)
    law = shares @ channel.p
    drawn = np.full(runs, n)
    if isinstance(mechanism, Vector):
        drawn = rng.binomial(n, mechanism.sampled / mechanism.coordinates, runs)
    for counts, own in zip(rng.multinomial(drawn, law / law.sum()).tolist(), drawn.tolist(), strict=True):
        if isinstance(mechanism, Vector):
            rest = [0] * (columns(mechanism) - len(counts))
            if rest:
                rest[0] = n * mechanism.sampled - own
            yield (*counts, *rest)
        elif isinstance(mechanism, RandomizedResponse):
            yield (counts[-1],)
        elif isinstance(mechanism, SubsetSelection):
            each, more = divmod(n * mechanism.size - counts[-1], mechanism.categories - 1)
            yield (counts[-1], *(each + (place < more) for place in range(mechanism.categories - 1)))
        else:
            yield tuple(dict(zip(channel.used, counts, strict=True)).get(y, 0) for y in range(columns(mechanism)))


def _laplace(mechanism: Laplace, n: int, shares: Array, rng: np.random.Generator) -> tuple[int, ...]:
    """At 2^20 steps the discrete law is the continuous one to 1e-12."""
    values = rng.choice(np.linspace(0, mechanism.steps, 3), n, p=shares)
    reports = np.rint(values + rng.laplace(0, float(mechanism.scale), n))
    total = int(reports.sum())
    return (total, int((reports**2).sum()), *((total, 0) * ((columns(mechanism) - 2) // 2)))
