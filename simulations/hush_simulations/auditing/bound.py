"""The bound: a lower confidence limit for epsilon from samples of the code that a device runs.

Somebody draws one of two values by a fair coin, and an observer guesses from the report which one it was, or abstains.
Whatever the rule: if U are the reports on which the guess is a, and V those on which it is b, then under epsilon-LDP

    P(right)/P(wrong) = (P(U|a) + P(V|b))/(P(U|b) + P(V|a)) ≤ e^epsilon,

so that a guess is right with probability at most e^epsilon/(1 + e^epsilon). Draws are independent, so the number of
right ones among G guesses is binomial, and the log odds of the lower bound of Clopper and Pearson (1934) is above the
true epsilon with probability at most 1 - confidence: an exact statement for every sample size, whatever the mechanism
does. It is a lower bound: it can convict a mechanism, and never acquit one. A leak in reports that hardly occur in the
samples, at other values, or in the low bits of floating-point reports stays unseen.

Rules are chosen on other samples than those they are measured on, so that trying thousands costs no confidence. An
eighth of the samples put the reports into cells and order these by their likelihood ratio; an eighth choose where in
that order U ends and V begins (likelihood-ratio sets, Neyman and Pearson 1933) and, for numbers, two thresholds; the
rest measure the rules that were chosen. There are two:

- the rule that promises the largest bound. It guesses on many reports, and a leak in few of them is lost among those.
- one-sided cells: reports that the first eighth has of one value alone, three times or more. A leak in one report of a
  thousand is all of these. Where the first eighth has none, there is no such rule.

Each is measured at (1 + confidence)/2, and the bound is the larger one (Bonferroni): given all reports and the coins
of the first quarter, both rules are fixed, and each coin of the rest agrees with a guess with probability at most
e^epsilon/(1 + e^epsilon), independently. So each bound is above the true epsilon with probability at most
(1 - confidence)/2, and one of them with at most 1 - confidence.

One binomial instead of one for each value: both sides of the odds come from the same guesses, and no confidence is
split between them. At small epsilon it needs little more than half of the samples.

A report of several integers is looked at through several `View`s.
Sources: Ding, Wang, Wang, Zhang and Kifer 2018 (counterexamples from samples); Jagielski, Ullman and Oprea 2020
(Clopper-Pearson bounds of epsilon); Steinke, Nasr and Jagielski 2023 (guesses that may abstain).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, exp, inf, log, log1p
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate.numerics.incomplete_beta import beta_quantile
from hush_aggregator.estimate.numerics.quantiles import normal_quantile
from hush_simulations.auditing.cells import ATOM, Cells, cells_of
from hush_simulations.auditing.views import View

__all__ = ["Measured", "Tested", "audit", "audit_coded", "default_samples", "highest_bound"]

_Floats = NDArray[np.float64]
_Ints = NDArray[np.int64]
_Counts = NDArray[np.int64]

Kind = Literal["likelihood ratio", "one-sided reports"]

ABSTAIN = -1
_FEW = 16
"""Cells that are not many."""
_DOUBT = 2.0
"""Standard errors taken off a rule for having been chosen: without them one of few guesses wins by luck."""
_STOPS = 64
"""Places, from either end, where U may end or V begin."""
_ONE_SIDED = 3
"""Reports of one value, and none of the other, for a cell to be one-sided."""
_FEWEST, _MOST = 200_000, 1_000_000

LIKELIHOOD: Kind = "likelihood ratio"
ONE_SIDED: Kind = "one-sided reports"


@dataclass(frozen=True, slots=True)
class Tested:
    """What one rule shows.

    Args:
        kind: how the rule was chosen.
        bound: lower bound of epsilon, ≥ 0.
        rule: the reports on which the guess is the first value, and those on which it is the second, in words; empty
            where that guess is never made.
        right: right guesses.
        guesses: guesses made.
        confidence: of this bound alone.
    """

    kind: Kind
    bound: float
    rule: tuple[str, str]
    right: int
    guesses: int
    confidence: float


@dataclass(frozen=True, slots=True)
class Measured:
    """What the samples say.

    Args:
        tests: of one rule, or of two.
        samples: reports that the observer was shown.
        confidence: of the bound, which is the largest one of the tests.
    """

    tests: tuple[Tested, ...]
    samples: int
    confidence: float

    @property
    def best(self) -> Tested:
        """The test with the largest bound; of equal ones the first."""
        return max(self.tests, key=lambda one: one.bound)

    @property
    def bound(self) -> float:
        """The lower bound of epsilon, ≥ 0."""
        return self.best.bound


@dataclass(frozen=True, slots=True)
class _Rule:
    """What to guess in each cell of one view: 0, 1 or `ABSTAIN`."""

    worth: float
    view: View
    cells: Cells
    guess: _Ints
    words: tuple[str, str]

    def guesses(self, kinds: Sequence[object]) -> _Ints:
        """The guess for each kind of report."""
        return self.guess[self.cells.place([self.view.look(one) for one in kinds])]


def audit(
    sides: Sequence[int] | _Ints, reports: Sequence[object], views: Iterable[View], confidence: float
) -> Measured:
    """The lower bound of epsilon from reports of two values.

    Args:
        sides: of each report, which value it is of: 0 or 1, by a fair coin each, whatever the mechanism does.
        reports: independent draws, at least 60.
        views: how to look at a report; `hush_simulations.auditing.views` makes them.
        confidence: that epsilon is not below the bound, in (0, 1).

    Raises:
        ValueError: too few reports, or not one side for each.
    """
    kinds: dict[object, int] = {}
    codes = np.fromiter((kinds.setdefault(one, len(kinds)) for one in reports), np.int64, len(reports))
    return audit_coded(np.asarray(sides, dtype=np.int64), codes, list(kinds), views, confidence)


def audit_coded(
    sides: _Ints, codes: _Ints, kinds: Sequence[object], views: Iterable[View], confidence: float
) -> Measured:
    """As `audit`, where report i is `kinds[codes[i]]`: each kind is looked at once, however often it was sent."""
    total = len(codes)
    if len(sides) != total or total < 2 * ATOM:
        raise ValueError(f"{len(sides)} sides and {total} reports; give one side a report, and {2 * ATOM} or more")
    second = total // 4
    z = normal_quantile(confidence) + _DOUBT
    found: dict[Kind, _Rule] = {}
    for view in views:
        for kind, rule in _candidates(sides[:second], codes[:second], kinds, view, z):
            if kind not in found or rule.worth > found[kind].worth:
                found[kind] = rule
    guesses = {kind: rule.guesses(kinds) for kind, rule in found.items()}
    if ONE_SIDED in guesses and np.array_equal(guesses[ONE_SIDED], guesses[LIKELIHOOD]):
        del guesses[ONE_SIDED]  # one rule, found twice
    single = _single(confidence)
    tests = [
        _tested(kind, found[kind], sides[second:], guess[codes[second:]], single) for kind, guess in guesses.items()
    ]
    return Measured(tuple(tests), total - second, confidence)


def _tested(kind: Kind, rule: _Rule, sides: _Ints, guess: _Ints, confidence: float) -> Tested:
    """What the guesses for these reports show."""
    made = guess != ABSTAIN
    right, guesses = int(np.count_nonzero(made & (guess == sides))), int(np.count_nonzero(made))
    return Tested(kind, _log_odds(right, guesses, confidence), rule.words, right, guesses, confidence)


def default_samples(epsilon: float) -> int:
    """How many reports of each value, on average, show an excess of a fifth of `epsilon`.

    The log odds of G guesses have a variance of (1 + e^epsilon)(1 + e^-epsilon)/G, and the excess to be seen is
    epsilon/5. So the guesses needed grow as 1/epsilon^2 where epsilon is small, and as e^epsilon where it is large. The
    constants leave room for guesses not made, for the samples that choose the rule, and for several verdicts at once.
    Below 0.071 and above 10.1 the million where it ends is too few for an excess of a fifth.
    """
    return ceil(min(max(_FEWEST, 5_000 / epsilon**2, 40 * exp(min(epsilon, 50))), _MOST))


def highest_bound(samples: int, confidence: float) -> float:
    """The largest bound that `samples` of each value can give: every report is guessed, and all guesses are right."""
    measured = 2 * samples - 2 * samples // 4
    return _log_odds(measured, measured, _single(confidence))


def _single(confidence: float) -> float:
    """The confidence of each of two bounds that hold together at `confidence` (Bonferroni)."""
    return float((1 + Fraction(repr(confidence))) / 2)


def _log_odds(right: int, guesses: int, confidence: float) -> float:
    """The bound of ln P(right)/P(wrong), and no less than 0."""
    if 2 * right <= guesses:
        return 0.0
    lower = beta_quantile(1 - confidence, right, guesses - right + 1)
    return max(0.0, log(lower) - log1p(-lower))


def _candidates(
    sides: _Ints, codes: _Ints, kinds: Sequence[object], view: View, z: float
) -> Iterator[tuple[Kind, _Rule]]:
    """Of a view the most promising pair of likelihood-ratio sets, of thresholds, and of sets of one-sided cells."""
    half = len(codes) // 2
    looks = [view.look(one) for one in kinds]
    seen = [looks[code] for code in codes[:half].tolist()]
    for kind, cells in ((LIKELIHOOD, cells_of(seen)), (ONE_SIDED, cells_of(seen, _ONE_SIDED))):
        places = cells.place(looks)[codes]
        order, choose = (
            np.stack([np.bincount(places[part][sides[part] == side], minlength=cells.count) for side in (0, 1)])
            for part in (slice(0, half), slice(half, None))
        )
        orders = (
            _one_sided(order, cells) if kind == ONE_SIDED else _orders(order, cells, (order + choose).sum(axis=0) > 0)
        )
        for sequence, words, caution in orders:
            worth, until, since = _best_ends(choose[:, sequence], z + caution)
            if kind == ONE_SIDED and worth == -inf:
                continue  # none of them came again
            guess = np.full(cells.count, ABSTAIN, dtype=np.int64)
            guess[sequence[:until]], guess[sequence[since:]] = 0, 1
            said = (_of(view, words(sequence[:until])), _of(view, words(sequence[since:])))
            yield kind, _Rule(worth, view, cells, guess, said)


def _one_sided(counts: _Counts, cells: Cells) -> Iterator[tuple[_Ints, Callable[[_Ints], str], float]]:
    """The cells that hold several reports of one value and none of the other, the fullest at either end."""
    alone = (counts.max(axis=0) >= _ONE_SIDED) & (counts.min(axis=0) == 0)
    lean = counts[0] - counts[1]
    falling = np.argsort(-lean, kind="stable")
    if alone.any():
        yield falling[alone[falling]], cells.named, 0.0


def _of(view: View, words: str) -> str:
    return f"{view.of} {words}" if words else ""


def _orders(
    counts: _Counts, cells: Cells, met: NDArray[np.bool_]
) -> Iterator[tuple[_Ints, Callable[[_Ints], str], float]]:
    """Orders of the cells, from those that speak for 0 to those that speak for 1; how to say some; and a handicap.

    Sets of many cells owe something to the luck of single ones: what is simpler and as good is preferred to them.
    """
    ratio = (counts[0] + 0.5) / (counts[1] + 0.5)
    falling = np.argsort(-ratio, kind="stable")
    yield falling[met[falling]], cells.named, float(cells.count > _FEW)
    if cells.ordered:
        upward = np.arange(cells.count)
        yield upward, cells.beyond, 0.0
        yield upward[::-1], cells.beyond, 0.0


def _best_ends(counts: _Counts, z: float) -> tuple[float, int, int]:
    """Where in an order U ends and V begins, and what that rule is worth on these counts.

    Worth is the bound with Wilson's interval of `z` standard errors (1927), if these samples had to prove it.
    """
    cells = counts.shape[1]  # 1 or more: at least one report was met
    near = np.unique(np.concatenate([np.arange(min(_STOPS, cells + 1)), np.geomspace(1, cells, _STOPS).astype(int)]))
    stops = np.unique(np.concatenate([near, cells - near]))
    sums = np.concatenate([np.zeros((2, 1), dtype=np.int64), np.cumsum(counts, axis=1)], axis=1)
    before, after = sums[:, stops], sums[:, -1:] - sums[:, stops]
    right = before[0][:, None] + after[1][None, :]
    wrong = before[1][:, None] + after[0][None, :]
    worth = np.where(stops[:, None] <= stops[None, :], _wilson_log_odds(right, wrong, z), -np.inf)
    until, since = np.unravel_index(int(worth.argmax()), worth.shape)
    return float(worth[until, since]), int(stops[until]), int(stops[since])


def _wilson_log_odds(right: _Counts, wrong: _Counts, z: float) -> _Floats:
    """The log odds at the lower end of Wilson's interval; of no guesses they are -inf."""
    made = right + wrong
    with np.errstate(divide="ignore", invalid="ignore"):
        half = z * np.sqrt(right * wrong / made + z * z / 4)
        lower = (right + z * z / 2 - half) / (made + z * z)
        odds: _Floats = np.log(lower) - np.log1p(-lower)
    return np.where((made > 0) & (right > 0), odds, -np.inf)
