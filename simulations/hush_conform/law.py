"""Whether samples follow a law: exact statements about every sample size, with a false alarm of at most one in 10^9.

A report is put into cells, which were made from other draws. The device's n reports are compared with N draws of hush's
own mechanism. If both follow one law, the number of the device's reports in a cell, given how many of all n + N are in
it, is hypergeometric, and

    P(X ≥ k) ≤ exp(-n·KL(k/n, K/(n + N))),   KL(a, b) = a·ln(a/b) + (1 - a)·ln((1 - a)/(1 - b)),

where K are all in the cell, and the same for X ≤ k (Hoeffding 1963, theorem 4; Chvátal 1979). A law is rejected if this
is below 10^-9 divided by the number of all cells, runs of cells and sides that are compared (Bonferroni).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import comb, log, sqrt

import numpy as np
from numpy.typing import NDArray

from hush_common.domain import Domain
from hush_common.formatting import significant
from hush_common.mechanisms import Mechanism
from hush_simulations.auditing.audit import ReportCells, ReportView, report_cells, views_of_mechanism

FALSE_ALARM = 1e-9
"""The probability that a correct device is accused, in each verdict, at most."""

_LOW_BITS = {"the lowest bit": 1, "the low bits": 15}
_MOST_PARTS = 4  # integers of a body whose low bits are compared

Body = tuple[int, ...]
_Shares = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of comparing a sample with a law."""

    deviation: str  # what differs, in words; empty if the sample is consistent with the law
    visible: float  # a share of reports that is wrong by so much is found, if it is about one half


def views(part: Mechanism, domain: Domain) -> list[ReportView]:
    """Return the functions of a report that are compared: those of an audit, and the low bits of each integer."""
    places = range(min(part.width, _MOST_PARTS))
    low = [
        ReportView(f"{name} of integer {place + 1}", _low_bits(place, mask))
        for place in places
        for name, mask in _LOW_BITS.items()
    ]
    return views_of_mechanism(part, domain) + low


def _low_bits(place: int, mask: int) -> Callable[[Body], int]:
    return lambda body: body[place] & mask


def compare(
    sample: Sequence[Body], reference: Sequence[Body], pilot: Sequence[Body], looks: Iterable[ReportView]
) -> Comparison:
    """Compare a sample with draws of the law that it should have; `pilot` are other draws of it, which make the cells.

    Raises:
        ValueError: the sample is empty.
    """
    if not sample:
        raise ValueError("the sample is empty")
    tested = [_Tested.of(look, sample, reference, pilot) for look in looks]
    sides = 2 * sum(len(one.excess) for one in tested)
    limit = log(sides / FALSE_ALARM)
    worst = max(tested, key=lambda one: float(one.excess.max(initial=0.0)))
    found = worst.words(len(sample)) if worst.excess.max(initial=0.0) > limit else ""
    return Comparison(found, visible(len(sample), limit))


def visible(count: int, limit: float) -> float:
    """Return by how much a share near one half must be wrong to be found in so many reports, about half of the time."""
    return min(sqrt(limit / (2 * count)), 1.0)


@dataclass(frozen=True, slots=True)
class _Tested:
    """The events of one view: cells, and runs of cells from the first one."""

    view: ReportView
    cells: ReportCells
    shares: _Shares  # of the sample
    expected: _Shares  # of sample and reference together
    excess: _Shares  # n·KL

    @classmethod
    def of(
        cls, view: ReportView, sample: Sequence[Body], reference: Sequence[Body], pilot: Sequence[Body]
    ) -> "_Tested":
        cells = report_cells([view.look(one) for one in pilot])
        found, drawn = (
            np.bincount(cells.place([view.look(one) for one in bodies]), minlength=cells.count).astype(np.float64)
            for bodies in (sample, reference)
        )
        found, both = (np.concatenate([one, np.cumsum(one)[1:-1]]) for one in (found, found + drawn))
        shares, expected = found / len(sample), both / (len(sample) + len(reference))
        return cls(view, cells, shares, expected, len(sample) * _divergence(shares, expected))

    def words(self, count: int) -> str:
        place = int(self.excess.argmax())
        single = place < self.cells.count
        chosen = np.arange(place, place + 1) if single else np.arange(0, place - self.cells.count + 2)
        where = self.cells.named(chosen) or "is none of those"
        shares = f"{_percent(self.shares[place])} of {count} reports, {_percent(self.expected[place])} expected"
        return f"{self.view.of} {where}: {shares}"


def divergence(share: float, expected: float) -> float:
    """Return KL(share, expected) of one event with an expectation between 0 and 1."""
    return float(_divergence(np.array([share]), np.array([expected]))[0])


def _percent(share: float) -> str:
    return f"{significant(float(share), 3, scale=100)} %"


def _divergence(shares: _Shares, expected: _Shares) -> _Shares:
    """KL(share, expected) of two events; 0·ln 0 = 0. An expectation of 0 or 1 is that of both samples together."""
    with np.errstate(divide="ignore", invalid="ignore"):
        first = np.where(shares > 0, shares * np.log(shares / expected), 0.0)
        second = np.where(shares < 1, (1 - shares) * np.log((1 - shares) / (1 - expected)), 0.0)
    return np.asarray(first + second, dtype=np.float64)


def differ(first: Sequence[float], second: Sequence[float], comparisons: int) -> tuple[float, float, float] | None:
    """Return a time, and which share of each sample is below it, if the samples are not of one law; else None.

    Each tenth of both together is a threshold. Given how many are below it, those of the first sample are
    hypergeometric if the two were assigned at random and the times do not depend on that; the probability is exact.

    Args:
        first: the times of one kind.
        second: those of another.
        comparisons: how many pairs are compared in one verdict.
    """
    both = sorted([*first, *second])
    worst, found = FALSE_ALARM / (2 * 9 * comparisons), None
    for tenth in range(1, 10):
        limit = both[len(both) * tenth // 10]
        below = sum(one < limit for one in first), sum(one < limit for one in second)
        one = _tail(below[0], below[1], len(first), len(second))
        chance = min(one, _tail(below[1], below[0], len(second), len(first)))
        if chance < worst:
            worst, found = chance, (limit, below[0] / len(first), below[1] / len(second))
    return found


def _tail(below: int, others: int, count: int, rest: int) -> float:
    """P(at least `below` of the `below + others` marked ones are among the first `count` of `count + rest`)."""
    marked = below + others
    unmarked = count + rest - marked
    ways = sum(comb(marked, hits) * comb(unmarked, count - hits) for hits in range(below, min(marked, count) + 1))
    return ways / comb(count + rest, count)
