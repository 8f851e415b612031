"""Noise and sampling together: how far a mean of Laplace reports lies from the population mean.

A linear estimate errs by Z + S: Z the sum of Laplace noise of known scales, S the sampling error of values in a
bounded range, independent of each other. Of S two things are known whatever the values are: its variance is at most V,
and E e^(lS) ≤ e^(l^2 W/2) for every l. For weights a_i of independent people V = W = R^2·Σ a_i^2/4 (Popoviciu 1935;
Hoeffding 1963).

**Theorem** (`hoeffding`; at every n, confidence and distribution). Let T(t) = P(Z > t) and λ(t) = -(log T)'(t). Then

    P(Z + S > h) ≤ alpha/2 and P(Z + S < -h) ≤ alpha/2, h = min over t of t + (log(2/alpha) + log T(t))/λ(t) + λ(t)·W/2.

Proof. Laplace densities are log-concave, hence so are their convolutions and T: the tangent of log T at t lies above
it, T(z) ≤ T(t)·e^(-λ(t)(z - t)) for all z. Given S, P(Z > h - S) ≤ T(t)·e^(-λ(t)(h - t))·e^(λ(t)S), and the mean of
the last factor is at most e^(λ(t)^2 W/2). Set the product to alpha/2. Z is symmetric, and -S obeys the same bound.  □

No exponential of that rate lies closer above T: the bound is never above that of Chernoff, which takes E
e^(λZ)·e^(-λz) instead. The derivative of h(t) is λ'(t)·(W/2 - (log(2/alpha) + log T(t))/λ(t)^2): the least h is where
log(2/alpha) + log T(t) = λ(t)^2·W/2, of which the left side falls and the right one rises. Without sampling error it
is the quantile of Z.

**Popoviciu**: sqrt(q^2 + z^2·V), q the exact quantile of |Z|. As if S were normal: shorter where S weighs much. It is
taken from confidence 0.9 on where the variance of Z is at least half the square of the largest jump that one value can
make in the estimate, so that noise smooths the steps of S. There it covers at least as often as it says, but for
0.0013 at most (exact sums over two-valued populations, which spread most; `test_population_intervals.py`). Elsewhere
it does not: at ε = 8 and n = 1 it covers 15 % at confidence 0.5.

**Student's t** needs a mean of reports close to normal. Its two-sided error is 2φ(z)·z·(z^4 + 2z^2 - 3)·gamma^2/(18n)
to first order (Edgeworth; Hall 1992, section 2.6), gamma the skewness of a report. No values give a report of noise
variance v a squared skewness above 4R^2/(27v): with values of variance s it is at most s^2/(s + v)^3 in units of R,
largest at s = 2v. Hence n must be so large that this error is at most alpha/16; and at least 100; and n ≥ 3ε^2, which
leaves at most 1/40 of gamma^2 in the mean.

**Finite populations.** Of N devices a random subset of n answers, with equal weights. S has variance at most
R^2/4·(N - n)/(n(N - 1)), and W = R^2·F/(4n), F = min(1 - (n - 1)/N, (1 - n/N)(1 + 1/n)). The first is Serfling's
(1974); the second is the first said of the N - n devices that did not answer, whose mean errs by -n/(N - n) times as
much (Bardenet and Maillard 2015). At n = N both are 0.
"""

from functools import lru_cache
from math import exp, log, pi, sqrt

from hush_aggregator.estimate.numerics.laplace_sums import Scales, laplace_log_tail, mixed_laplace_quantile
from hush_aggregator.estimate.numerics.quantiles import normal_quantile
from hush_common.mechanisms import Laplace

HOEFFDING = "hoeffding"
POPOVICIU = "popoviciu"

_POPOVICIU_FROM = 0.9
_SMOOTH = 0.499999  # one half: discrete noise has a little less than 2b^2
_STUDENT_FROM = 100
_NOISE_FROM = 3
_SHARE = 16
_STEPS = 60
_CLOSE = 1e-5  # at its least h is flat: what is off there counts squared


def noise_and_sampling(
    scales: Scales, spread: tuple[float, float], jump: float, confidence: float
) -> tuple[float, str]:
    """Half-width of an interval for a mean of the population, and `HOEFFDING` or `POPOVICIU`.

    Args:
        scales: of the noise in the estimate.
        spread: W and V of the sampling error.
        jump: the most that one value can move the estimate.
        confidence: in (0, 1).
    """
    noise = sum(2 * n * b**2 for b, n in scales)
    if confidence >= _POPOVICIU_FROM and noise >= _SMOOTH * jump**2:
        half = sqrt(mixed_laplace_quantile(scales, confidence) ** 2 + normal_quantile(confidence) ** 2 * spread[1])
        return half, POPOVICIU
    return hoeffding(scales, spread[0], confidence), HOEFFDING


@lru_cache(maxsize=1024)
def hoeffding(scales: Scales, proxy: float, confidence: float) -> float:
    """The least h of the theorem, `proxy` being W: by regula falsi (Illinois) for its t; any t is valid."""
    needed = log(2) - log(1 - confidence)

    def at(t: float) -> tuple[float, float]:
        log_tail, hazard = laplace_log_tail(scales, t)
        return needed + log_tail - hazard**2 * proxy / 2, t + (needed + log_tail) / hazard + hazard * proxy / 2

    high = mixed_laplace_quantile(scales, confidence)
    if proxy == 0:
        return high
    low, unit = 0.0, sqrt(sum(2 * n * b**2 for b, n in scales))
    (above, least), (below, other) = at(high), at(low)
    while below < 0:
        high, above, least, low = low, below, other, 2 * low - unit
        below, other = at(low)
    least = min(least, other)
    side = 0
    for _ in range(_STEPS):
        if high - low <= _CLOSE * unit:
            break
        middle = (low * above - high * below) / (above - below)
        found, half = at(middle)
        least = min(least, half)
        if found > 0:
            low, below, above = middle, found, above / 2 if side > 0 else above
        else:
            high, above, below = middle, found, below / 2 if side < 0 else below
        if abs(found) <= _CLOSE:
            break
        side = 1 if found > 0 else -1
    return least


@lru_cache(maxsize=64)
def is_many(parts: tuple[tuple[Laplace, int], ...], confidence: float) -> bool:
    """Whether the mean of the reports under each epsilon is close enough to normal, whatever the values are."""
    z = normal_quantile(confidence)
    error = 2 * exp(-z * z / 2) / sqrt(2 * pi) * z * abs(z**4 + 2 * z**2 - 3) / 18
    return all(
        n >= _STUDENT_FROM
        and n >= _NOISE_FROM * mechanism.epsilon**2
        and error * 4 * mechanism.steps**2 / (27 * mechanism.variance) * _SHARE <= n * (1 - confidence)
        for mechanism, n in parts
    )


def finite_spread(n: int, enrolled: int) -> tuple[float, float]:
    """W and V of the mean of n out of N = `enrolled` ≥ n values, in units of the squared range."""
    if n == enrolled:
        return 0.0, 0.0
    serfling = min((enrolled - n + 1) / enrolled, (enrolled - n) / enrolled * (1 + 1 / n))
    return serfling / (4 * n), (enrolled - n) / (4 * n * (enrolled - 1))
