"""Diagnostics: what poisoning could do, whether the noise is there, and what non-response may hide."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate.finite_channel import FiniteChannel
from hush_aggregator.estimate.numerics.quantiles import normal_quantile
from hush_common.domain import DomainPart

OK = "ok"
OUTLIERS = "outliers"
TOO_LITTLE_NOISE = "too_little_noise"

_MONITOR_FROM = 100
_DEVIATIONS = 4
_FALSE_ALARM = 6.3e-5  # of four standard deviations, either way


def worst_case_bias(n: int, reach: float, *, of: int | None = None) -> dict[str, float]:
    """By how much the mean of n reports moves at most if 1, 1 % or 5 % of `of` devices lie as they please.

    Args:
        n: reports in the mean.
        reach: the farthest that one admissible report can lie from the mean of honest ones.
        of: devices, where each lends its weight to one of several means; n if left out.
    """
    devices = n if of is None else of
    lies = {"1": 1.0, "1%": 0.01 * devices, "5%": 0.05 * devices}
    return {name: min(lied / n, 1.0) * reach for name, lied in lies.items()}


def replacement_bias(part: DomainPart) -> dict[str, float]:
    """By how much the mean of a part moves at most if 1 % of the reporters had no value.

    Without a value a device draws an index uniform over the domain (`hush_common.domain`), so that a share π of them
    moves a mean mu by π(mid - mu), at most π·R/2; a proportion by π(1/2 - theta); a frequency by π(1/k - f), at most
    π(1 - 1/k). How many they are nobody can know, by design: the bias is proportional. A vector has one for each
    coordinate, which is a separate domain.
    """
    return {"1%": 0.01 * part.imputation_reach}


def variance_monitor(n: int, variance: float, noise: float, width: float) -> str | None:
    """Whether the sample variance of Laplace reports lies where the noise and values in a range of `width` allow.

    E s^2 lies in [v, v + width^2/4]; the deviation of s^2 is v·sqrt(5/n) for Laplace noise. Four of them either way:
    a bug detector, no proof. Below 100 reports it says nothing.
    """
    if n < _MONITOR_FROM:
        return None
    slack = _DEVIATIONS * sqrt(5 / n)
    if variance < noise * (1 - slack):
        return TOO_LITTLE_NOISE
    return OUTLIERS if variance > (noise + width**2 / 4) * (1 + slack) else OK


def finite_monitor(channel: FiniteChannel, counts: Sequence[int]) -> str | None:
    """Whether each output comes as often as its least probability makes likely, and no more than its largest does.

    Four standard deviations. Below 100 reports it says nothing.
    """
    return next(iter(finite_monitors(channel, np.array([counts]))), None)


def each_monitored(samples: Sequence[tuple[FiniteChannel, tuple[int, ...]]]) -> list[str | None]:
    """`finite_monitor` of each of several samples, those of a channel and n at once."""
    found: list[str | None] = [None] * len(samples)
    alike: defaultdict[tuple[FiniteChannel, int], list[int]] = defaultdict(list)
    for place, (channel, counts) in enumerate(samples):
        alike[channel, sum(counts)].append(place)
    for (channel, _), places in alike.items():
        seen = np.array([samples[place][1] for place in places])
        for place, verdict in zip(places, finite_monitors(channel, seen, together=1), strict=False):  # none of few
            found[place] = verdict
    return found


def finite_monitors(channel: FiniteChannel, counts: NDArray[np.int64], *, together: int | None = None) -> list[str]:
    """The verdict of each question. Empty below 100 reports.

    `counts` of each output have the shape (questions, outputs), with the same sum in each row. As many questions as
    `together`, all of them if it is None, have one's rate of false alarms.
    """
    n = int(counts[0].sum())
    if n < _MONITOR_FROM:
        return []
    deviations = normal_quantile(1 - _FALSE_ALARM / (together or len(counts)))
    (least, most), spreads = channel.extremes, channel.extreme_deviations
    seen = counts[:, channel.used]
    few = seen < n * least - deviations * sqrt(n) * spreads[0]
    many = seen > n * most + deviations * sqrt(n) * spreads[1] + deviations
    verdicts = np.where(few.any(axis=1), TOO_LITTLE_NOISE, np.where(many.any(axis=1), OUTLIERS, OK))
    return [str(verdict) for verdict in verdicts.tolist()]


def worst_verdict(verdicts: Iterable[str | None]) -> str | None:
    """The first verdict that is not `OK`; else `OK` if any was said, and None if none was."""
    said = [verdict for verdict in verdicts if verdict is not None]
    return next((verdict for verdict in said if verdict != OK), OK if said else None)


def manski(n: int, enrolled: int, interval: tuple[float, float], lower: float, upper: float) -> tuple[float, float]:
    """Bounds of the mean of all enrolled devices: those who are silent may all hold either bound (Manski 1990)."""
    share = min(n / enrolled, 1.0)
    return share * interval[0] + (1 - share) * lower, share * interval[1] + (1 - share) * upper
