"""Batches: the intervals of several samples, each kind computed for all samples at once."""

from dataclasses import dataclass, field
from functools import partial

from hush_aggregator.estimate.batch import Batch
from hush_aggregator.estimate.intervals.betting import Reports, betting_limits
from hush_aggregator.estimate.intervals.chernoff import Sizes, bands, chernoffs
from hush_aggregator.estimate.numerics.binomial import clopper_pearson_shares
from hush_aggregator.estimate.numerics.quantiles import student_quantiles

__all__ = ["Batches"]

_Pair = tuple[float, float]


@dataclass(frozen=True)
class Batches:
    """Questions of every kind, by what answers them: `Batch.ask` first, and then what it gave."""

    betting: Batch[tuple[Reports, float], _Pair] = field(default_factory=partial(Batch, betting_limits))
    chernoff: Batch[tuple[Sizes, float], _Pair] = field(default_factory=partial(Batch, chernoffs))
    band: Batch[tuple[Sizes, float, bool], _Pair] = field(default_factory=partial(Batch, bands))
    clopper_pearson: Batch[tuple[int, int, float], _Pair] = field(
        default_factory=partial(Batch, clopper_pearson_shares)
    )
    student: Batch[tuple[int, float], float] = field(default_factory=partial(Batch, student_quantiles))
