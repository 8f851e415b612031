"""Auditing: a lower bound of epsilon, measured on samples of the code that a device runs.

If a mechanism is epsilon-LDP, then for any two inputs a, b and any set E of reports P(E|a) ≤ e^epsilon · P(E|b). So

    ln( lower bound of P(E|a) / upper bound of P(E|b) ),    each by Clopper and Pearson (1934) at (1 - confidence)/2,

is above the true epsilon with probability at most 1 - confidence: an exact statement for every sample size, whatever
the mechanism does, provided that its draws are independent. It is a lower bound: it can convict a mechanism, and never
acquit one. A leak in an event that hardly occurs in the samples, at other inputs, or in the low bits of floating-point
reports stays unseen.

Which E is chosen on other samples than those it is measured on, so that trying thousands costs no confidence. A sixth
of the samples put the reports into cells and order these by their likelihood ratio; a sixth choose among the beginnings
of that order (likelihood-ratio sets, Neyman and Pearson 1933) and, for numbers, all half-lines; the rest measure the
one that was chosen. Both directions, a against b and b against a, are candidates.

A report of several integers is looked at through several `View`s.
Source of the method: Ding, Wang, Wang, Zhang and Kifer 2018 (counterexamples from samples); Jagielski, Ullman and Oprea
2020 (Clopper-Pearson bounds of epsilon).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate.beta import beta_quantile
from hush_aggregator.estimate.quantiles import normal_quantile
from hush_simulations.audit_cells import ATOM, Cells, cells_of
from hush_simulations.audit_views import View

__all__ = ["Measured", "audit", "highest_bound"]

_Floats = NDArray[np.float64]
_Ints = NDArray[np.int64]

_FEW = 16
"""Cells that are not many."""
_NEVER = 1e-300  # a share whose logarithm is to be taken


@dataclass(frozen=True, slots=True)
class Measured:
    """What the samples say.

    Args:
        bound: lower bound of epsilon, ≥ 0.
        event: the set of reports that gives it, in words.
        likely: which input makes it more likely, 0 or 1.
        counts: how often each input led to it.
        samples: of each input, that measured the event.
        confidence: of the bound.
    """

    bound: float
    event: str
    likely: int
    counts: tuple[int, int]
    samples: int
    confidence: float


@dataclass(frozen=True, slots=True)
class _Event:
    """A set of reports as a set of cells of one view, more likely under the input `likely`."""

    worth: float
    view: View
    cells: Cells
    chosen: NDArray[np.bool_]
    likely: int
    words: str


def audit(reports: tuple[Sequence[object], Sequence[object]], views: Iterable[View], confidence: float) -> Measured:
    """The lower bound of epsilon from the reports of two inputs.

    Args:
        reports: of the one and of the other, equally many, each an independent draw; at least 30.
        views: how to look at a report; `hush_simulations.audit_views` makes them.
        confidence: that epsilon is not below the bound, in (0, 1).

    Raises:
        ValueError: too few reports, or not equally many.
    """
    n = len(reports[0])
    if len(reports[1]) != n or n < ATOM:
        raise ValueError(f"{n} and {len(reports[1])} reports; give equally many of both inputs, {ATOM} or more")
    first, second = n // 6, n // 3
    best = max(_candidates(reports, views, (first, second), confidence), key=lambda event: event.worth)
    counts = tuple(
        int(best.chosen[best.cells.place([best.view.look(one) for one in side[second:]])].sum()) for side in reports
    )
    bound = _log_ratio(counts[best.likely], counts[1 - best.likely], n - second, confidence)
    return Measured(max(0.0, bound), best.words, best.likely, (counts[0], counts[1]), n - second, confidence)


def highest_bound(samples: int, confidence: float) -> float:
    """The largest bound that `samples` of each input can give: an event that always and never happens."""
    measured = samples - samples // 3
    return _log_ratio(measured, 0, measured, confidence)


def _log_ratio(likely: int, unlikely: int, n: int, confidence: float) -> float:
    """The bound of ln P(E|a)/P(E|b) from counts of E among n."""
    tail = (1 - confidence) / 2
    if likely == 0 or unlikely == n:
        return 0.0
    lower = beta_quantile(tail, likely, n - likely + 1)
    upper = 1 - beta_quantile(tail, n - unlikely, unlikely + 1)
    return log(lower / upper)


def _candidates(
    reports: tuple[Sequence[object], Sequence[object]],
    views: Iterable[View],
    ends: tuple[int, int],
    confidence: float,
) -> Iterator[_Event]:
    """Of each view and direction the most promising likelihood-ratio set and half-lines."""
    for view in views:
        seen = [[view.look(one) for one in side[: ends[1]]] for side in reports]
        cells = cells_of(seen[0][: ends[0]] + seen[1][: ends[0]])
        order, choose = (
            np.array([np.bincount(cells.place(side[part]), minlength=cells.count) for side in seen])
            for part in (slice(0, ends[0]), slice(ends[0], ends[1]))
        )
        for likely in (0, 1):
            for sequence, words, caution in _orders(order, likely, cells):
                sums = np.cumsum(choose[:, sequence], axis=1)
                worth = _worth(sums[likely], sums[1 - likely], ends[1] - ends[0], normal_quantile(confidence) + caution)
                last = int(worth.argmax())
                chosen = np.isin(np.arange(cells.count), sequence[: last + 1])
                yield _Event(float(worth[last]), view, cells, chosen, likely, f"{view.of} {words(sequence, last)}")


def _orders(counts: _Ints, likely: int, cells: Cells) -> Iterator[tuple[_Ints, Callable[[_Ints, int], str], float]]:
    """Orders of the cells whose beginnings are candidates, how to say such a beginning, and a handicap.

    Sets of many cells owe something to the luck of single ones: what is simpler and as good is preferred to them.
    """
    ratio = (counts[likely] + 0.5) / (counts[1 - likely] + 0.5)
    caution = float(cells.count > _FEW)
    yield np.argsort(-ratio, kind="stable"), lambda order, last: cells.named(order[: last + 1]), caution
    if cells.ordered:
        upward = np.arange(cells.count)
        yield upward, lambda order, last: cells.below(int(order[last])), 0.0
        yield upward[::-1], lambda order, last: cells.above(int(order[last])), 0.0


def _worth(likely: _Ints, unlikely: _Ints, n: int, z: float) -> _Floats:
    """The bound by Wilson's intervals of `z` standard errors (1927), if these n had to prove it.

    They are fewer than those that measure it, so that an event of few reports must be good, not lucky.
    """
    worth: _Floats = np.log(np.maximum(_wilson(likely, n, -z), _NEVER)) - np.log(_wilson(unlikely, n, z))
    return worth


def _wilson(count: _Ints, n: int, z: float) -> _Floats:
    """The end of the interval of a share that lies `z` standard errors up."""
    end: _Floats = (count + z * z / 2 + z * np.sqrt(count * (1 - count / n) + z * z / 4)) / (n + z * z)
    return end
