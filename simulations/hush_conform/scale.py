"""Whether reports have the noise of twice or half the epsilon: a likelihood ratio, with a false alarm of at most 10^-9.

Let P be the law of a report about a known value, and Q_t the law P^t, normalized over all reports. Q_2 is the noise for
twice the epsilon, where P has two probabilities (randomized response, a set of categories, a level), and for discrete
Laplace noise; Q_1/2 that for half of it. For n independent reports

    E = 1/2·Π Q_2(y_i)/P(y_i) + 1/2·Π Q_1/2(y_i)/P(y_i)

has the mean 1 under P, so that P(E ≥ 10^9) ≤ 10^-9 (Markov), whatever the values are; and by Ville's inequality this
holds for the largest E on the way, too, so that a sample may end when somebody likes. The reports about all values
count together, which a comparison of shares cannot do: it finds twice the epsilon with a fifth of the reports.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import islice
from math import exp, inf, log, sqrt
from statistics import NormalDist, fmean, pvariance
from typing import Any, NamedTuple

from hush_common.mechanisms import Mechanism
from hush_common.rng import SystemRng
from hush_conform.law import FALSE_ALARM, Body

TWICE, HALF = Fraction(2), Fraction(1, 2)

_MOST_OUTPUTS = 10_000
"""Reports that are enumerated. A mechanism with more, `laplace`, is made again: epsilon is its only parameter."""
_DRAWS = 1_000
_DIGITS = 20
_NEEDED = log(2 / FALSE_ALARM)
"""The logarithm that one of the two products must reach."""

Index = int | tuple[int, ...]


class _Power(NamedTuple):
    """Mean and variance of the logarithm of one factor, if the noise is wrong."""

    mean: float
    variance: float


@dataclass(frozen=True, slots=True)
class ScaleVerdict:
    """What the reports say of their noise."""

    found: Fraction | None  # by how much epsilon is multiplied; None if it may be right
    power: float  # the probability with which so many reports show twice the epsilon


def judge_scale(part: Mechanism, samples: Sequence[tuple[Index, Sequence[Body]]]) -> ScaleVerdict:
    """Judge reports that `part` admits, with the index that each of them is about."""
    sums, needed, expected, variance = dict.fromkeys((TWICE, HALF), 0.0), _NEEDED, 0.0, 0.0
    for index, bodies in samples:
        laws = _Laws(part, index)
        for factor in sums:
            sums[factor] += sum(laws.log_ratio(body, factor) for body in bodies)
        power = laws.power
        expected += len(bodies) * power.mean
        variance += len(bodies) * power.variance
    largest = max(sums, key=lambda factor: sums[factor])
    sure = (expected - needed) / sqrt(variance) if variance else -inf
    return ScaleVerdict(largest if sums[largest] >= needed else None, NormalDist().cdf(sure) if sure > -inf else 0.0)


class _Laws:
    """The law of reports about one value, and those with noise for another epsilon."""

    def __init__(self, part: Mechanism, index: Index) -> None:
        self._part, self._index = part, index
        self._others: Mapping[Fraction, Mechanism] = {}
        self._logs: dict[Fraction, dict[Body, float]] = {}
        outputs = list(islice(part.outputs(), _MOST_OUTPUTS + 1))
        if len(outputs) > _MOST_OUTPUTS:
            # mypy: every mechanism is a dataclass
            self._others = {by: replace(part, epsilon=part.epsilon * by) for by in (TWICE, HALF)}  # type: ignore[type-var]
            return
        self._right = {body: _probability(part, body, index) for body in outputs}
        for by in (TWICE, HALF):
            raised = {body: share ** float(by) for body, share in self._right.items() if share}
            unit = sum(raised.values())
            self._logs[by] = {body: log(share / unit / self._right[body]) for body, share in raised.items()}

    def log_ratio(self, body: Body, by: Fraction) -> float:
        """Ln Q(body)/P(body)."""
        if self._others:
            other = _probability(self._others[by], body, self._index)
            return log(other / _probability(self._part, body, self._index)) if other else -inf
        return self._logs[by].get(body, inf)

    @cached_property
    def power(self) -> _Power:
        """Of a factor of the product for twice the epsilon."""
        if self._others:
            rng, other = SystemRng(), self._others[TWICE]
            logs = [self.log_ratio(other.perturb(self._index, rng), TWICE) for _ in range(_DRAWS)]
            return _Power(fmean(logs), pvariance(logs))
        logs_, right = self._logs[TWICE], self._right
        shares = {body: right[body] * exp(one) for body, one in logs_.items()}
        mean = sum(shares[body] * one for body, one in logs_.items())
        return _Power(mean, sum(shares[body] * (one - mean) ** 2 for body, one in logs_.items()))


def _probability(part: Mechanism, body: Body, index: Any) -> float:  # noqa: ANN401 - as the mechanism takes it
    return float(part.probability(body, index, _DIGITS))
