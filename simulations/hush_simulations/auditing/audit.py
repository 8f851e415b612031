"""Audit a mechanism: a lower confidence limit for epsilon from samples of the code that a device runs.

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

A report of several integers is looked at through several `ReportView`s.
Sources: Ding, Wang, Wang, Zhang and Kifer 2018 (counterexamples from samples); Jagielski, Ullman and Oprea 2020
(Clopper-Pearson bounds of epsilon); Steinke, Nasr and Jagielski 2023 (guesses that may abstain).
"""

import importlib
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import combinations
from math import ceil, exp, fsum, inf, isfinite, isnan, log, log1p
from numbers import Real
from operator import mul
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate.numerics.quantiles import beta_quantile, normal_quantile
from hush_common.domain import Domain
from hush_common.epsilon import decimal_text
from hush_common.errors import HushError, OptionError
from hush_common.formatting import significant
from hush_common.mechanisms import Mechanism, Offers
from hush_common.mechanisms.registry import best, known, named
from hush_common.rng import Rng
from hush_common.suggestion import meant
from hush_common.task import Task
from hush_simulations.shown import Shown


@dataclass(frozen=True, slots=True)
class ReportView:
    """A function of a report that an audit uses: post-processing, which cannot add to epsilon.

    It returns a float for numbers, or another value that can be compared, for names.
    """

    of: str
    look: Callable[[Any], Hashable]


def views_of_mechanism(part: Mechanism, domain: Domain) -> list[ReportView]:
    """Return the views of a mechanism's reports, which it defines itself."""
    return [ReportView(of, look) for of, look in part.aspects(domain).items()]


def numeric(report: object) -> float | None:
    """Return a report as a float, or None if it is not a number. Numbers with one float are equal; NaN is infinity."""
    if not isinstance(report, Real | Decimal | np.bool_):
        return None
    try:
        number = float(report)
    except OverflowError:  # beyond all floats
        number = inf if isinstance(report, int | Fraction) and report > 0 else -inf
    return inf if isnan(number) else number


def views_of_reports(reports: Sequence[object]) -> list[ReportView]:
    """Return views of unknown reports: numbers as such; of tuples the whole, every part, sums and differences."""
    if all(numeric(one) is not None for one in reports) and not all(isinstance(one, bool) for one in reports):
        return [ReportView("the report", numeric)]
    hash(reports[0])  # what cannot be compared says so
    views = [ReportView("the report", _whole)]
    if all(isinstance(one, tuple) for one in reports):
        shortest = min(len(one) for one in reports if isinstance(one, tuple))
        numbers = []
        for place in range(shortest):
            parts = [one[place] for one in reports if isinstance(one, tuple)]
            as_numbers = all(numeric(part) is not None for part in parts)
            views.append(ReportView(f"part {place + 1} of the report", _part(place, as_numbers=as_numbers)))
            numbers += [place] * as_numbers
        views += _views_of_several(numbers)
    return views


_MOST_COMBINED = 6
"""Numeric parts of which each pair is added and subtracted: 30 views."""


def _views_of_several(numbers: Sequence[int]) -> Iterator[ReportView]:
    """Yield the sum of all numeric parts, and sum and difference of each pair: noise of one part may undo another's."""
    if len(numbers) > 2:  # noqa: PLR2004 - the sum of two is one of the pairs
        yield ReportView("the sum of the numeric parts", _combined(dict.fromkeys(numbers, 1)))
    for first, second in combinations(numbers[:_MOST_COMBINED], 2):
        for sign, word in ((1, "plus"), (-1, "minus")):
            name = f"part {first + 1} {word} part {second + 1} of the report"
            yield ReportView(name, _combined({first: 1, second: sign}))


def _combined(signs: Mapping[int, int]) -> Callable[[object], Hashable]:
    def look(report: object) -> Hashable:
        parts = [report[place] if isinstance(report, tuple) and len(report) > place else None for place in signs]
        if all(isinstance(part, int) for part in parts):  # exact, also beyond 2^53
            return numeric(sum(map(mul, signs.values(), cast("list[int]", parts))))
        floats = [numeric(part) for part in parts]
        if None in floats:
            return _whole(report)
        terms = list(map(mul, signs.values(), cast("list[float]", floats)))
        rough = sum(terms)
        return numeric(fsum(terms) if isfinite(rough) else rough)

    return look


def _whole(report: object) -> Hashable:
    hash(report)
    return report


def _part(place: int, *, as_numbers: bool) -> Callable[[object], Hashable]:
    def look(report: object) -> Hashable:
        part = report[place] if isinstance(report, tuple) and len(report) > place else None
        number = numeric(part) if as_numbers else None
        return number if as_numbers and number is not None else _whole(part)

    return look


@dataclass(frozen=True, slots=True)
class Subject:
    """A mechanism under audit: its claimed epsilon, if any, two inputs in words, and a fresh report of input 0 or 1."""

    name: str
    declared: Fraction | None
    inputs: tuple[str, str]
    draw: Callable[[int], object]
    views: Callable[[Sequence[object]], list[ReportView]]


def mechanism_subject(name: str, epsilon: Fraction, categories: int, coordinates: int, rng: Rng) -> Subject:
    """Return a mechanism of hush by name, with the parameters that a task would get."""
    kind = named(name)
    if kind is None:
        names = ", ".join(other.name for other in known())
        hint = meant(name, (other.name for other in known()))
        raise OptionError(
            "MECHANISM", f"unknown mechanism {name[:60]!r}; choose {names}, or write module:function{hint}"
        )
    if not kind.serves([epsilon]):
        least = decimal_text(kind.smallest())
        raise OptionError("--epsilon", f"no {name} is shipped for {decimal_text(epsilon)}, below {least}")
    size = {"categories": categories, "coordinates": coordinates}.get(kind.fits.parts_field, 1)
    domain = cast("Domain", kind.fits.of_size(size))
    return _of_hush(name, domain, best(kind, domain, epsilon), 0, rng)


def task_subjects(task: Task, rng: Rng) -> list[Subject]:
    """Return the mechanism of a task, once for each epsilon that it offers."""
    randomizer = task.randomizer
    offers = len(randomizer.parts) if isinstance(randomizer, Offers) else 1
    return [_of_hush(task.id, task.domain, randomizer, offer, rng) for offer in range(offers)]


def _of_hush(name: str, domain: Domain, randomizer: Mechanism | Offers, offer: int, rng: Rng) -> Subject:
    part = randomizer.parts[offer] if isinstance(randomizer, Offers) else randomizer
    (low, lower), (high, upper) = domain.extremes
    indices = domain.index(lower), domain.index(upper)

    def draw(side: int) -> object:
        if isinstance(randomizer, Offers):
            return randomizer.perturb(indices[side].index, rng, offer)[1:]
        return randomizer.perturb(indices[side].index, rng)

    parameters = ", ".join(f"{field} {getattr(part, field)}" for field in part.described)
    title = name if name == part.name else f"{name} ({part.name})"
    return Subject(
        name=f"{title}, {parameters}" if parameters else title,
        declared=part.epsilon,
        inputs=(low, high),
        draw=draw,
        views=lambda _: views_of_mechanism(part, domain),
    )


def own_subject(
    own: str | Callable[[object], object], inputs: tuple[object, object], declared: Fraction | None
) -> Subject:
    """Return a function of yours, or its path: from a value to a report, a number, bool, text, or tuple of them."""
    path, function = (own, _load(own)) if isinstance(own, str) else (getattr(own, "__qualname__", repr(own)), own)

    def draw(side: int) -> object:
        try:
            return function(inputs[side])
        except Exception as error:
            raise HushError(f"{path}: raised {type(error).__name__} on {inputs[side]!r}: {_line(error)}") from error

    def views(reports: Sequence[object]) -> list[ReportView]:
        try:
            return views_of_reports(reports)
        except TypeError:
            kind = type(reports[0]).__name__
            raise HushError(f"{path}: its reports are of type {kind}; return a number, bool, text or tuple") from None

    return Subject(path, declared, (repr(inputs[0]), repr(inputs[1])), draw, views)


def _load(path: str) -> Callable[[object], object]:
    module_name, _, function_name = path.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")  # the file that a person has just written lies here
    try:
        found: object = importlib.import_module(module_name)
        for part in function_name.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise HushError(f"{path}: cannot be imported, {type(error).__name__}: {_line(error)}") from error
    if not callable(found):
        raise HushError(f"{path}: is not a function; name one that takes a value and returns its report")
    return found


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0][:200]


_Floats = NDArray[np.float64]
_Ints = NDArray[np.int64]

ATOM = 30
"""Equal numbers, among those that define the cells, that get a separate cell if none is stated."""
_CELLS = 64
_DIGITS = 6


class ReportCells:
    """A partition of the values of a view, made from samples; new values join the last cell of names."""

    ordered = False

    def __init__(self, names: Sequence[Hashable]) -> None:
        self._names = list(names)
        self._places = {name: place for place, name in enumerate(names)}
        self.count: int = len(names) + 1

    def place(self, seen: Sequence[Hashable]) -> _Ints:
        """Return the number of the cell of each value."""
        return np.fromiter((self._places.get(one, self.count - 1) for one in seen), np.int64, len(seen))

    def named(self, chosen: _Ints) -> str:
        """Describe some cells; an empty text for none."""
        names = [_name(self._names[place]) for place in sorted(chosen) if place < len(self._names)]
        if len(names) < len(chosen):
            names.append("anything rare")
        return _listed(names, self.count)

    def beyond(self, chosen: _Ints) -> str:
        """Describe the cells from one end to a threshold, if cells are ordered."""
        raise NotImplementedError


class _Intervals(ReportCells):
    """Cells of numbers: cell i is (edge[i-1], edge[i]], the last one is open."""

    ordered = True

    def __init__(self, edges: _Floats) -> None:
        self._edges = edges
        self.count = len(edges) + 1

    def place(self, seen: Sequence[Hashable]) -> _Ints:
        return np.searchsorted(self._edges, np.array(seen, dtype=np.float64), side="left").astype(np.int64)

    def named(self, chosen: _Ints) -> str:
        return _listed([self._interval(int(place)) for place in sorted(chosen)], self.count)

    def _interval(self, place: int) -> str:
        low = "-inf" if place == 0 else _edge(self._edges[place - 1])
        high = "inf" if place == len(self._edges) else _edge(self._edges[place])
        return f"({low}, {high}]"

    def beyond(self, chosen: _Ints) -> str:
        if len(chosen) in {0, self.count}:
            return "is any" if len(chosen) else ""
        lowest, highest = int(chosen.min()), int(chosen.max())
        return f"≤ {_edge(self._edges[highest])}" if lowest == 0 else f"> {_edge(self._edges[lowest - 1])}"


def _edge(value: float) -> str:
    return significant(float(value), _DIGITS)


def _name(name: Hashable) -> str:
    return _edge(name) if isinstance(name, float) else repr(name)


def _listed(names: Sequence[str], of: int) -> str:
    if len(names) > 4:  # noqa: PLR2004 - fit on a line
        return f"is in {len(names)} of {of} cells, among them {', '.join(names[:2])}"
    return f"is {' or '.join(names)}" if names else ""


def report_cells(seen: Sequence[Hashable], atom: int = ATOM) -> ReportCells:
    """Return cells for samples: intervals if all are floats and many, else names.

    A number that is seen `atom` times gets a separate cell.
    """
    if not all(isinstance(one, float) for one in seen):
        return ReportCells(_frequent(seen))
    values, counts = np.unique(np.array(seen, dtype=np.float64), return_counts=True)
    if len(values) <= _CELLS:
        return ReportCells([float(value) for value in values])
    edges = np.quantile(np.array(seen), np.linspace(0, 1, _CELLS + 1)[1:-1], method="lower")
    tails = np.sort(np.array(seen))[_tail_places(len(seen))]
    atoms = values[counts >= atom]
    alone = np.concatenate([atoms, np.nextafter(atoms, -np.inf)])  # ... a value] that holds nothing else
    return _Intervals(np.unique(np.concatenate([edges, tails, alone])))


def _tail_places(n: int) -> _Ints:
    """Return ranks that double from both ends: thresholds for rare reports."""
    doubling = 2 ** np.arange(int(np.log2(n / _CELLS)) + 1) if n > _CELLS else np.array([1])
    return np.concatenate([doubling - 1, n - 1 - doubling])


def _frequent(seen: Sequence[Hashable]) -> list[Hashable]:
    """Return names in their natural order, without those that are too rare."""
    counts: dict[Hashable, int] = {}
    for one in seen:
        counts[one] = counts.get(one, 0) + 1
    names = [name for name, count in counts.items() if count >= min(ATOM // 10, len(seen) // 100)]
    return sorted(names, key=lambda name: (str(type(name)), str(name)))


_Counts = NDArray[np.int64]

RuleKind = Literal["likelihood ratio", "one-sided reports"]

ABSTAIN = -1
_FEW = 16
"""At most this many cells are few."""
_DOUBT = 2.0
"""Standard errors subtracted from a chosen rule: otherwise a rule with few guesses wins by luck."""
_STOPS = 64
"""Places, from either end, where U may end or V begin."""
_ONE_SIDED = 3
"""Reports of one value, and none of the other, for a cell to be one-sided."""
_FEWEST, _MOST = 200_000, 1_000_000

LIKELIHOOD: RuleKind = "likelihood ratio"
ONE_SIDED: RuleKind = "one-sided reports"


@dataclass(frozen=True, slots=True)
class Tested:
    """The test of one rule: a lower bound of epsilon, ≥ 0, right guesses among all, and the confidence of this bound.

    `rule` describes the reports on which the guess is the first value, and the second; empty if that is never guessed.
    """

    kind: RuleKind
    bound: float
    rule: tuple[str, str]
    right: int
    guesses: int
    confidence: float


@dataclass(frozen=True, slots=True)
class Measured:
    """The tests of all rules."""

    tests: tuple[Tested, ...]
    samples: int
    confidence: float

    @property
    def best(self) -> Tested:
        """Return the test with the largest bound; of equal ones the first."""
        return max(self.tests, key=lambda one: one.bound)

    @property
    def bound(self) -> float:
        """Return the lower bound of epsilon, ≥ 0."""
        return self.best.bound


@dataclass(frozen=True, slots=True)
class _Rule:
    """The guess for each cell of one view: 0, 1 or `ABSTAIN`."""

    worth: float
    view: ReportView
    cells: ReportCells
    guess: _Ints
    words: tuple[str, str]

    def guesses(self, kinds: Sequence[object]) -> _Ints:
        return self.guess[self.cells.place([self.view.look(one) for one in kinds])]


def audit(
    sides: Sequence[int] | _Ints, reports: Sequence[object], views: Iterable[ReportView], confidence: float
) -> Measured:
    """Return the lower bound of epsilon from reports of two values.

    Args:
        sides: of each report, which value it is of: 0 or 1, by a fair coin each, whatever the mechanism does.
        reports: independent draws, at least 60.
        views: how to look at a report; `hush_simulations.auditing.audit` makes them.
        confidence: that epsilon is not below the bound, in (0, 1).

    Raises:
        ValueError: too few reports, or not one side for each.
    """
    kinds: dict[object, int] = {}
    codes = np.fromiter((kinds.setdefault(one, len(kinds)) for one in reports), np.int64, len(reports))
    return audit_coded(np.asarray(sides, dtype=np.int64), codes, list(kinds), views, confidence)


def audit_coded(
    sides: _Ints, codes: _Ints, kinds: Sequence[object], views: Iterable[ReportView], confidence: float
) -> Measured:
    """As `audit`, where report i is `kinds[codes[i]]`: each kind is read once, however often it was sent."""
    total = len(codes)
    if len(sides) != total or total < 2 * ATOM:
        raise ValueError(f"{len(sides)} sides and {total} reports; give one side a report, and {2 * ATOM} or more")
    second = total // 4
    z = normal_quantile(confidence) + _DOUBT
    found: dict[RuleKind, _Rule] = {}
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


def _tested(kind: RuleKind, rule: _Rule, sides: _Ints, guess: _Ints, confidence: float) -> Tested:
    made = guess != ABSTAIN
    right, guesses = int(np.count_nonzero(made & (guess == sides))), int(np.count_nonzero(made))
    return Tested(kind, _log_odds(right, guesses, confidence), rule.words, right, guesses, confidence)


def default_samples(epsilon: float) -> int:
    """Return how many reports of each value, on average, show an excess of a fifth of `epsilon`.

    The log odds of G guesses have a variance of (1 + e^epsilon)(1 + e^-epsilon)/G, and the excess to be seen is
    epsilon/5. So the guesses needed grow as 1/epsilon^2 where epsilon is small, and as e^epsilon where it is large. The
    constants leave room for guesses not made, for the samples that choose the rule, and for several verdicts at once.
    Below 0.071 and above 10.1 the million where it ends is too few for an excess of a fifth.
    """
    return ceil(min(max(_FEWEST, 5_000 / epsilon**2, 40 * exp(min(epsilon, 50))), _MOST))


def highest_bound(samples: int, confidence: float) -> float:
    """Return the largest bound that `samples` of each value can give: every guess is right."""
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
    sides: _Ints, codes: _Ints, kinds: Sequence[object], view: ReportView, z: float
) -> Iterator[tuple[RuleKind, _Rule]]:
    """The best pair of likelihood-ratio sets of a view, of thresholds, and of sets of one-sided cells."""
    half = len(codes) // 2
    looks = [view.look(one) for one in kinds]
    seen = [looks[code] for code in codes[:half].tolist()]
    for kind, cells in ((LIKELIHOOD, report_cells(seen)), (ONE_SIDED, report_cells(seen, _ONE_SIDED))):
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


def _one_sided(counts: _Counts, cells: ReportCells) -> Iterator[tuple[_Ints, Callable[[_Ints], str], float]]:
    """The cells with several reports of one value and none of the other, the fullest at either end."""
    alone = (counts.max(axis=0) >= _ONE_SIDED) & (counts.min(axis=0) == 0)
    lean = counts[0] - counts[1]
    falling = np.argsort(-lean, kind="stable")
    if alone.any():
        yield falling[alone[falling]], cells.named, 0.0


def _of(view: ReportView, words: str) -> str:
    return f"{view.of} {words}" if words else ""


def _orders(
    counts: _Counts, cells: ReportCells, met: NDArray[np.bool_]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of an audit."""

    name: str
    samples: int
    declared: Fraction | None
    inputs: tuple[str, str]
    measured: Measured
    highest_bound: float

    @property
    def is_violation(self) -> bool:
        """Return whether more leaks than declared."""
        return self.declared is not None and self.measured.bound > float(self.declared)

    @property
    def verdict(self) -> str | None:
        """Return "violation" or "consistent"; None if nothing is declared."""
        if self.declared is None:
            return None
        return "violation" if self.is_violation else "consistent"

    def rule(self, test: Tested) -> list[tuple[str, str]]:
        """Return the guesses: which value, and for which reports."""
        return [(value, words) for value, words in zip(self.inputs, test.rule, strict=True) if words]

    def to_document(self) -> dict[str, Any]:
        """Return the JSON object."""
        document = {"name": self.name, "samples": self.samples, "epsilon_at_least": self.measured.bound}
        if self.declared is not None:
            document |= {"declared": decimal_text(self.declared), "verdict": self.verdict}
        best = self.measured.best
        return document | {
            "confidence": self.measured.confidence,
            "highest_bound": self.highest_bound,
            "rule": self._rule(best),
            "shown": self.measured.samples,
            "guesses": best.guesses,
            "right": best.right,
            "tests": [
                {
                    "kind": test.kind,
                    "epsilon_at_least": test.bound,
                    "confidence": test.confidence,
                    "rule": self._rule(test),
                    "guesses": test.guesses,
                    "right": test.right,
                }
                for test in self.measured.tests
            ],
        }

    def _rule(self, test: Tested) -> list[dict[str, str]]:
        return [{"guess": value, "if": words} for value, words in self.rule(test)]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Audit(Shown):
    """The findings of an audit, together at `confidence`."""

    findings: tuple[Finding, ...]  #: one for each mechanism, or for each epsilon that a task offers
    confidence: float  #: all verdicts are right with at least this probability

    @property
    def violations(self) -> tuple[Finding, ...]:
        """Those that leak more than they claim."""
        return tuple(one for one in self.findings if one.is_violation)

    def columns(self) -> dict[str, list[object]]:
        """Return a row for each finding."""
        return {
            "name": [one.name for one in self.findings],
            "claimed": [None if one.declared is None else float(one.declared) for one in self.findings],
            "at_least": [one.measured.bound for one in self.findings],
            "verdict": [one.verdict for one in self.findings],
            "samples": [one.samples for one in self.findings],
        }

    def to_document(self) -> dict[str, Any]:
        """Return the JSON object that `hush audit --json` prints."""
        return {"confidence": self.confidence, "audits": [one.to_document() for one in self.findings]}

    def in_short(self) -> str:
        return f"Audit of {len(self.findings)} mechanisms, {len(self.violations)} violations"
