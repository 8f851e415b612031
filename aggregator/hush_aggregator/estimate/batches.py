"""Batches: the intervals of several samples, each kind computed for all samples at once."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TypeVar

from hush_aggregator.estimate.batch import Batch
from hush_aggregator.estimate.intervals.betting import Reports, betting_limits, half_as_often, noise_limits
from hush_aggregator.estimate.intervals.chernoff import Rates, Sizes, bands, chernoff_rates
from hush_aggregator.estimate.numerics.binomial import clopper_pearson_shares
from hush_aggregator.estimate.numerics.quantiles import student_quantiles

__all__ = ["Batches", "noise_bounds"]

_Pair = tuple[float, float]
_FEW = 4
_Q = TypeVar("_Q", bound=Hashable)
_A = TypeVar("_A")


def _remembered(solve: Callable[[Sequence[_Q]], Sequence[_A]]) -> Callable[[Sequence[_Q]], Sequence[_A]]:
    """The same, which knows the last answers: for what depends on how many reports there are, and not on what they say.

    Whoever estimates many samples of one size, as a sweep does, asks for the same each time. The many questions about a
    vector are not kept.
    """

    @lru_cache(maxsize=256)
    def known(asked: tuple[_Q, ...]) -> tuple[_A, ...]:
        return tuple(solve(asked))

    return lambda asked: known(tuple(asked)) if len(asked) <= _FEW else solve(asked)


_bands = _remembered(bands)
_rates: Callable[[Sequence[tuple[Sizes, float]]], Sequence[Rates]] = _remembered(chernoff_rates)
_students = _remembered(student_quantiles)


def noise_bounds(asked: Sequence[tuple[Sizes, float]]) -> Sequence[_Pair]:
    """`chernoffs`, which remembers."""
    return [(above, below) for above, below, _, _ in _rates(asked)]


def _noise_limits(asked: Sequence[tuple[Reports, float]]) -> list[_Pair]:
    sizes = [tuple((channel, sum(counts)) for channel, counts in reports) for reports, _ in asked]
    rates = _rates([(one, half_as_often(confidence)) for one, (_, confidence) in zip(sizes, asked, strict=True)])
    return noise_limits([(*one, bounds) for one, bounds in zip(asked, rates, strict=True)])


@dataclass(frozen=True)
class Batches:
    """Questions of every kind, by what answers them: `Batch.ask` first, and then what it gave."""

    betting: Batch[tuple[Reports, float], _Pair] = field(default_factory=partial(Batch, betting_limits))
    chernoff_betting: Batch[tuple[Reports, float], _Pair] = field(default_factory=partial(Batch, _noise_limits))
    chernoff: Batch[tuple[Sizes, float], _Pair] = field(default_factory=partial(Batch, noise_bounds))
    band: Batch[tuple[Sizes, float, bool], _Pair] = field(default_factory=partial(Batch, _bands))
    clopper_pearson: Batch[tuple[int, int, float], _Pair] = field(
        default_factory=partial(Batch, clopper_pearson_shares)
    )
    student: Batch[tuple[int, float], float] = field(default_factory=partial(Batch, _students))
