"""The exact law of a whole tally: every sum of it jointly, from the probability table of the device."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate.mechanisms import analysis_of
from hush_common.mechanisms import Mechanism

__all__ = ["Sums", "counted", "law_of_tally", "of_devices"]

Sums = tuple[int, ...]
Input = int | tuple[int, ...]
_DIGITS = 60


def law_of_tally(mechanism: Mechanism, indices: Sequence[Input]) -> dict[Sums, float]:
    """The probability of each tally of one report from each of a few devices, by convolution."""
    analysis = analysis_of(mechanism)
    columns = analysis.columns(mechanism)
    law: dict[Sums, Fraction] = {(0,) * columns: Fraction(1)}
    bodies = list(mechanism.outputs())
    adding = [analysis.fold(mechanism, np.array([body], dtype=np.int64)) for body in bodies]
    for index in indices:
        table = [Fraction(mechanism.probability(body, index, _DIGITS)) for body in bodies]
        after: Counter[Sums] = Counter()
        for sums, p in law.items():
            for more, q in zip(adding, table, strict=True):
                after[tuple(a + b for a, b in zip(sums, more, strict=True))] += p * q  # type: ignore[assignment]
        law = dict(after)  # type: ignore[arg-type]
    return {sums: float(p) for sums, p in law.items()}


def counted(law: Mapping[Sums, float], tallies: Iterable[Sums], least: float) -> tuple[list[int], list[float]]:
    """How often each possible tally came, and its probability; those less probable than `least` together.

    Raises:
        KeyError: a tally that is impossible.
    """
    found = Counter(tallies)
    if impossible := found.keys() - law.keys():
        raise KeyError(f"impossible: {min(impossible)}")
    frequent = [sums for sums, p in law.items() if p >= least]
    counts, probabilities = [found[sums] for sums in frequent], [law[sums] for sums in frequent]
    rest = 1 - sum(probabilities)
    if rest >= least:
        return [*counts, found.total() - sum(counts)], [*probabilities, rest]
    return counts, [p / sum(probabilities) for p in probabilities]


def of_devices(mechanism: Mechanism, bodies: NDArray[np.int64]) -> list[Sums]:
    """The tally of each trial; bodies of shape (trials, devices, width)."""
    analysis = analysis_of(mechanism)
    return [analysis.fold(mechanism, trial) for trial in bodies]
