"""Yes-or-no questions under several epsilons: bits, and each category of a subset. All categories at once.

Group c has n_c of N reports, each of which is decoded as in `finite`. The mean of all decoded reports weighs every
person alike; it is unbiased for both targets whoever chose which epsilon.

- "chernoff-berry-esseen" (`tilted`): at every n and confidence, for `reporters`, `population` and `enrolled`.
- "student-t" (population), "student-t-capped" (reporters) and "student-t-enrolled": where the mean is close to normal
  (`sample.is_normal`, which knows n, the channels and the confidence), as in `bounded_mean`.
- `anytime` and `anytime_population`: as in `bounded_mean`.

Standard errors. Reporters and `enrolled`: at the estimated mean moved into [0, 1]. Population: of each group at its
share of yes moved into [q, p]. `stderr_plug_in`: at the estimated mean for all three.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate import proportions
from hush_aggregator.estimate.batch import Batch
from hush_aggregator.estimate.diagnostics import finite_monitor, worst_case_bias, worst_verdict
from hush_aggregator.estimate.estimates import ANYTIME, ANYTIME_POPULATION, ENROLLED, POPULATION, REPORTERS, Estimate
from hush_aggregator.estimate.finite_channel import FiniteChannel, finite
from hush_aggregator.estimate.intervals.chernoff import Sizes, bands
from hush_aggregator.estimate.intervals.lattice import lattices, widened
from hush_aggregator.estimate.intervals.tilted import tilted_limits
from hush_aggregator.estimate.numerics.guard import attempt
from hush_aggregator.estimate.numerics.quantiles import student_quantile
from hush_aggregator.estimate.proportions import Proportions, each, each_interval, sampling_variance
from hush_aggregator.estimate.sample import is_normal
from hush_aggregator.estimate.units import around
from hush_aggregator.tally import Tally
from hush_common.mechanisms import Mechanism

__all__ = ["Part", "estimate", "pooled_proportions"]

Part: TypeAlias = tuple[Mechanism, Tally]

_Array: TypeAlias = NDArray[np.float64]
_Ends: TypeAlias = tuple[_Array, _Array]
_Parts: TypeAlias = Sequence[tuple[FiniteChannel, int, Sequence[int]]]
_Maker: TypeAlias = tuple[str, Callable[[], _Ends]]


def estimate(parts: Sequence[Part], confidence: float, *, enrolled: int | None = None) -> Estimate:
    """The proportion of ones and its error bars, of at least one report."""
    parts = [part for part in parts if part[1].n]
    if len(parts) == 1:
        ((mechanism, tally),) = parts
        return proportions.estimate(mechanism, tally, confidence, enrolled=enrolled)
    groups = [(finite(mechanism), tally.n, tally.moments[0]) for mechanism, tally in parts]
    found = pooled_proportions([(channel, n, [ones]) for channel, n, ones in groups], [confidence], enrolled=enrolled)
    n = sum(size for _, size, _ in groups)
    return Estimate(
        n=n,
        mean=found.mean[0],
        stderr=found.stderr[0],
        stderr_plug_in=found.stderr_plug_in[0],
        intervals=found.intervals[0][0],
        methods=found.methods,
        worst_case_bias=worst_case_bias(n, max(channel.reach for channel, _, _ in groups)),
        monitor=worst_verdict(finite_monitor(channel, (size - ones, ones)) for channel, size, ones in groups),
        failures=found.failures,
    )


def pooled_proportions(parts: _Parts, confidences: Sequence[float], *, enrolled: int | None = None) -> Proportions:
    """The share of those for whom it is true, of each question.

    Args:
        parts: channel, reports, and reported yes to each question, under each epsilon that at least one report has.
        confidences: of the intervals; every question gets them at each.
        enrolled: devices asked, of which those who reported are a random subset.
    """
    sizes = tuple((channel, size) for channel, size, _ in parts)
    n = sum(size for _, size in sizes)
    means = _means(parts, n)
    if enrolled is not None and n > enrolled:
        enrolled = None
    makers = _bands(sizes, means, confidences)
    variances = _variances(parts, means, n, enrolled)
    if all(is_normal(sizes, one) for one in confidences):
        makers |= {
            target: (f"student-t{suffix}", partial(_student, parts, means, variances[target], confidences, answered))
            for target, suffix, answered in (
                (REPORTERS, "-capped", 1.0),
                (POPULATION, "", 0.0),
                (ENROLLED, "-enrolled", n / (enrolled or n)),
            )
            if target in variances
        }
    else:
        name = "chernoff-berry-esseen"
        own, common = (partial(tilted_limits, sizes, means, confidences, whole=whole) for whole in (True, False))
        makers |= {target: (name, own if target == REPORTERS else common) for target in variances}
    failures: dict[str, str] = {}
    kept: dict[str, _Ends] = {}
    shared: dict[int, _Ends] = {}  # several targets may have one interval
    for target, (_, make) in makers.items():
        ends = shared.get(id(make)) or attempt(failures, target, make, lambda pair: pair)
        if ends is not None:
            shared[id(make)] = ends
            kept[target] = around(means, *ends)
    every, plug_in = np.arange(len(means)), _plug_in(sizes, means, n, enrolled)
    return Proportions(
        mean=means.tolist(),
        stderr=each(plug_in | {POPULATION: _sample_error(parts, n)}, every),
        stderr_plug_in=each(plug_in, every),
        intervals=[each_interval(kept, at, every) for at in range(len(confidences))],
        methods={target: makers[target][0] for target in kept},
        failures=failures,
    )


def _means(parts: _Parts, n: int) -> _Array:
    """Sums of exact integers over one unit a group; the groups are added as floats."""
    total = np.zeros(len(parts[0][2]))
    for channel, size, yes in parts:
        (no_at, yes_at), unit = channel.scaled
        total += [((size - count) * no_at + count * yes_at) / (unit * n) for count in yes]
    return total


def _bands(sizes: Sizes, means: _Array, confidences: Sequence[float]) -> dict[str, _Maker]:
    asked = Batch(bands)
    promised = {sampling: [asked.ask((sizes, one, sampling)) for one in confidences] for sampling in (False, True)}

    def ends(*, sampling: bool) -> _Ends:
        reach = np.array([answer() for answer in promised[sampling]])
        return means - reach[:, :1], means + reach[:, 1:]

    return {
        ANYTIME: (f"{REPORTERS}-chernoff-mixture", partial(ends, sampling=False)),
        ANYTIME_POPULATION: (f"{POPULATION}-chernoff-hoeffding-mixture", partial(ends, sampling=True)),
    }


def _variances(parts: _Parts, means: _Array, n: int, enrolled: int | None) -> dict[str, _Array]:
    """Of a report: the sample's, not below what noise there is at least; and less what is noise at most."""
    squares = np.zeros(len(means))
    for channel, size, yes in parts:
        count = np.array(yes, dtype=float)
        squares += (size - count) * (channel.a[0] - means) ** 2 + count * (channel.a[1] - means) ** 2
    least, most = (sum(size * bound for size, bound in _noises(parts, at)) / n for at in (min, max))
    sample = np.maximum(squares / max(n - 1, 1), least)
    beyond = np.maximum(sample - most, 0)
    found = {REPORTERS: sample - beyond, POPULATION: sample}
    return found if enrolled is None else found | {ENROLLED: sample - n / enrolled * beyond}


def _noises(parts: _Parts, bound: Callable[[Sequence[float]], float]) -> list[tuple[int, float]]:
    return [(size, float(bound(channel.noise.tolist()))) for channel, size, _ in parts]


def _student(parts: _Parts, means: _Array, variance: _Array, confidences: Sequence[float], answered: float) -> _Ends:
    sizes = tuple((channel, size) for channel, size, _ in parts)
    n = sum(size for _, size in sizes)
    quantiles = [student_quantile(n - 1, one) for one in confidences]
    deviation = np.sqrt(variance * n)
    shortest = min(quantiles) * float(deviation.min())
    found = lattices(sizes, shortest, seen=partial(_seen, parts), answered=answered)
    half = np.array([widened(t * deviation, t, found) for t in quantiles]) / n
    return means - half, means + half


def _seen(parts: _Parts) -> list[_Array]:
    yes = [(size, np.array(some, dtype=float)) for _, size, some in parts]
    return [np.stack((size - some, some), axis=1) for size, some in yes]


def _sample_error(parts: _Parts, n: int) -> _Array:
    people = np.zeros(len(parts[0][2]))
    for channel, size, yes in parts:
        (q, p), (no_q, no_p) = channel.p[:, 1], channel.p[:, 0]
        share = np.array(yes, dtype=float) / size
        people += size * np.clip(share, q, p) * np.clip(1 - share, no_p, no_q) * (channel.a[1] - channel.a[0]) ** 2
    return np.asarray(np.sqrt(people) / n)


def _plug_in(sizes: Sizes, means: _Array, n: int, enrolled: int | None) -> dict[str, _Array]:
    share = np.clip(means, 0, 1)
    none, all_ = (sum(size * float(channel.noise[at]) for channel, size in sizes) / n**2 for at in (0, -1))
    noise, spread = none + share * (all_ - none), share * (1 - share)
    found = {REPORTERS: np.sqrt(noise), POPULATION: np.sqrt(noise + spread / n)}
    if enrolled is not None:
        found[ENROLLED] = np.sqrt(noise + spread * sampling_variance(n, enrolled))
    return found
