"""Draw and evaluate the trials of a cell: the aggregator estimates each, and rows compare the estimates with the truth.

Without liars and a broker that forgets, the people and the reports of all trials are drawn at once, as counts. Else
each trial is drawn separately, as the bulk engine does (`draw_subpopulations`). A chunk of trials has its own seed.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache, partial
from itertools import islice
from math import sqrt
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate import (
    ANYTIME,
    ANYTIME_POPULATION,
    POPULATION,
    REPORTERS,
    Estimate,
    estimate_tallies,
)
from hush_aggregator.estimate.estimates import Interval
from hush_aggregator.estimate.finite_channel import Values, finite
from hush_aggregator.estimate.numerics.quantiles import beta_quantile, clopper_pearson_shares
from hush_aggregator.estimate.pooled_rounds import combine
from hush_aggregator.estimate.tally import Tally
from hush_common.domain import Domain
from hush_common.mechanisms import Mechanism
from hush_common.task import Task
from hush_simulations.engines.bulk.cells import MISSING, Cells, Places, cells_of, coordinates_of
from hush_simulations.engines.bulk.devices import draw_devices
from hush_simulations.engines.bulk.draws import SimulatedRounds, noise_of, people_of
from hush_simulations.engines.bulk.engine import (
    Subpopulation,
    draw_population,
    draw_subpopulations,
    draw_tallies,
    drawing_of,
    drawn_part,
    is_plain,
    parts_of_offers,
    shares_of,
    tallies_have_law,
)
from hush_simulations.engines.experiment import Experiment, bulk_experiment
from hush_simulations.results.run import Score, mean_of_rounds, score_of_truth
from hush_simulations.scenarios.behaviour import STEADY, Panel
from hush_simulations.scenarios.population import Independent, Population
from hush_simulations.scenarios.scenario import Scenario
from hush_simulations.sweeps.cell import CellWork
from hush_simulations.sweeps.result import BARS, LAST, TOGETHER, SweepRow

MOST_VALUES = 1024
"""Different values of a number in a sweep, at most."""


def _cells(domain: Domain, people: Population, panel: Panel = STEADY, rounds: int = 1) -> Cells | tuple[Cells, ...]:
    """Return the cells of a population, or of each independent coordinate, cached across cells of a sweep.

    Numbers have at most `MOST_VALUES` different values (`Cells.coarse`) with the same mean; the spread that this
    removes is below that of rounding them to a thousandth of the range.
    """
    return _cached_cells(domain, cast("Hashable", people), panel, rounds)


@lru_cache(maxsize=8)
def _cached_cells(domain: Domain, people: Hashable, panel: Panel, rounds: int) -> Cells | tuple[Cells, ...]:
    population = cast("Population", people)
    if isinstance(population, Independent):
        return tuple(cells.coarse(MOST_VALUES) for cells in coordinates_of(domain, population))
    cells = cells_of(domain, population, panel, rounds)
    return cells if domain.is_share else cells.coarse(MOST_VALUES)


_AT_ONCE = 1 << 21
"""Numbers in memory."""


class Trial(NamedTuple):
    """One trial, with the truth of the last round, and of the answers of all rounds `together`.

    A truth is the mean of the values, of each coordinate, or the share of each label; None if nobody has a value.
    """

    tallies: tuple[Tally, ...]
    truth: tuple[float | None, ...]
    together: tuple[float | None, ...]


def experiment_of(work: CellWork) -> Experiment:
    """Return the experiment of a cell: it draws tallies if they have a law, unless devices are requested."""
    made = bulk_experiment(work.scenario, (), work.seed, confidence=work.confidence, drawing="tally")
    if work.drawing == "devices" or (work.drawing == "auto" and not tallies_have_law(made)):
        made = replace(made, drawing="devices")
    drawing_of(made)
    return made


def trials_of(work: CellWork, experiment: Experiment) -> Iterator[Trial]:
    """Yield all trials of a cell."""
    together = experiment.drawing == "tally" and is_plain(work.scenario)
    return (_together if together else _one_by_one)(work, experiment)


def _together(work: CellWork, experiment: Experiment) -> Iterator[Trial]:
    task, scenario, clients = experiment.task, work.scenario, work.scenario.clients
    shares = shares_of(experiment, honest=True)
    cells = _cells(task.domain, scenario.population)
    size = max(len(one.shares) for one in (cells if isinstance(cells, tuple) else (cells,))) * max(len(shares), 1)
    together = max(_AT_ONCE // size, 1)
    for number, first in enumerate(range(0, work.trials, together)):
        trials = min(together, work.trials - first)
        people = people_of(work.seed, work.place, number)
        groups = draw_population(task, scenario.population, clients, shares, people, trials=trials, cells=cells)
        rounds = 1 if task.repeat == "sticky" else task.rounds
        drawn = [groups.tallies(noise_of(work.seed, work.place, number, round_)) for round_ in range(rounds)]
        truths = groups.truths()
        means = np.divide(truths.sums, truths.known, out=np.full(truths.sums.shape, np.nan), where=truths.known > 0)
        for tallies, truth in zip(zip(*drawn, strict=True), means.tolist(), strict=True):
            true = tuple(None if mean != mean else mean for mean in truth)  # noqa: PLR0124 - not a number
            yield Trial(tallies * (task.rounds // rounds), true, true)


def _one_by_one(work: CellWork, experiment: Experiment) -> Iterator[Trial]:
    draw = _drawer(experiment)
    for number in range(work.trials):
        entropy = int(people_of(work.seed, work.place, number).integers(1 << 62))
        drawn = draw_subpopulations(work.scenario, experiment.task, entropy, partial(draw, entropy))
        yield Trial(drawn.tallies, drawn.truth, drawn.together)


def _drawer(experiment: Experiment) -> Callable[[int, Subpopulation], SimulatedRounds]:
    """Return the function that draws a subpopulation."""
    task = experiment.task

    def draw(entropy: int, kind: Subpopulation) -> SimulatedRounds:
        shares, seed = shares_of(experiment, honest=kind.honest), kind.seed(entropy)
        if experiment.drawing == "devices":
            people, panel, present = kind.population, kind.panel, kind.present
            return draw_devices(task, people, kind.clients, shares, seed, panel=panel, present=present)
        return draw_tallies(task, kind, shares, seed, _cells(task.domain, kind.population, kind.panel, task.rounds))

    return draw


_Array = NDArray[np.float64]

Theory = dict[tuple[str, str, bool], float]
"""By part, target, and whether it is about all rounds together."""


@dataclass(frozen=True, slots=True)
class _Law:
    """Values of one part of the answer as shares of its range, and the width of the range in its unit."""

    part: str
    values: Values
    width: float


def theoretical_stderr(scenario: Scenario, task: Task, shares: Sequence[float]) -> Theory:
    """Return the standard deviation of estimate less target of each part, from the law of a report and of the people.

    Given the values of the people, n reports are independent. A report decodes to a with mean x, its value, so that the
    mean of n of them is off the mean of their values by a standard deviation of sqrt((E a^2 - E x^2)/n), and off that
    of the population by sqrt((E a^2 - (E x)^2)/n). A vector of which a report draws a share s of the coordinates has
    s·n reports of each, and who drew is chance for either target. Several rounds together have as many reports of the
    same people.

    Values beyond the bounds count as the bounds: what a bound moves is bias. With liars, a broker that forgets or
    missing values the result is empty.
    """
    if not is_plain(scenario):
        return {}
    mechanisms = parts_of_offers(task.randomizer)
    weights = tuple(shares) or (1.0,)
    found: Theory = {}
    for law in _laws(task.domain, _cells(task.domain, scenario.population)):
        drawn = float(sum(weight * part.drawn for weight, part in zip(weights, mechanisms, strict=True)))
        noises = (_noise(part.part, law.values) for part in mechanisms)
        noise = max(sum(weight * one for weight, one in zip(weights, noises, strict=True)), 0.0)
        spread, n = law.values.moment(2), scenario.clients * drawn
        given = noise + spread * (1 - drawn)  # the values, and who drew this one
        for rounds, together in ((1, False), (task.rounds, True)):
            variances = {REPORTERS: given / rounds / n, POPULATION: given / rounds / n + spread * drawn / n}
            for target, variance in variances.items():
                found[law.part, target, together] = law.width * sqrt(variance)
    return found


def _noise(mechanism: Mechanism, values: Values) -> float:
    """Variance of a report given the value, on average over the values."""
    if mechanism.law is None:
        return mechanism.worst_variance
    channel = finite(mechanism)
    inner = values.at(channel.nodes) @ channel.noise
    return float(inner) + _between(values, channel.nodes)


def _between(values: Values, nodes: _Array) -> float:
    """The variance of rounding a value to a neighbouring node: (x - x_j)(x_(j+1) - x), on average."""
    above = np.clip(np.searchsorted(nodes, values.places, side="left"), 1, len(nodes) - 1)
    return float(values.shares @ ((values.places - nodes[above - 1]) * (nodes[above] - values.places)))


def _laws(domain: Domain, crowd: Cells | tuple[Cells, ...]) -> Iterator[_Law]:
    for place, part in enumerate(domain.parts):
        cells = crowd[place] if isinstance(crowd, tuple) else crowd
        if not (cells.indices == MISSING).any():
            lower, upper = part.axis
            yield _law(part.name, _places(domain, cells.indices, place), cells, upper - lower)


def _places(domain: Domain, indices: Places, place: int) -> _Array:
    """The values of one part on the unit interval; of a category, whether it is that label."""
    column = indices[:, place] if indices.ndim > 1 else indices
    places: _Array
    if domain.is_share:  # the index of a bit is 1 for yes, its one part
        places = (column == place + domain.sizes[0] - len(domain.parts)).astype(np.float64)
    else:
        places = column / (domain.sizes[place] - 1)
    return places


def _law(part: str, places: _Array, cells: Cells, width: float) -> _Law:
    return _Law(part, Values(places, cells.shares / cells.shares.sum()), width)


_JOINT = "joint_"
_ESTIMATED_TOGETHER = 256  # trials; intervals of more need much memory


def evaluate_cell(work: CellWork) -> list[SweepRow]:
    """Return the rows of a cell."""
    experiment = experiment_of(work)
    task = experiment.task
    scopes = {LAST: _Scope(), TOGETHER: _Scope()}
    means = [experiment.mean(number) for number in range(task.rounds)]

    for trial, last in _estimated(trials_of(work, experiment), experiment, work.confidence):
        together = combine(task, trial.tallies, work.confidence)
        scopes[LAST].add(last, score_of_truth(task.domain, last, trial.truth, means[-1]))
        if together is not None:
            together = drawn_part(task, together, experiment.drawing)
            rounds = [(tally.n, mean) for tally, mean in zip(trial.tallies, means, strict=True)]
            score = score_of_truth(task.domain, together, trial.together, mean_of_rounds(rounds))
            scopes[TOGETHER].add(together, score)
    theory = theoretical_stderr(work.scenario, task, shares_of(experiment, honest=True))
    return [row for name, scope in scopes.items() for row in scope.rows(work, task, name, theory)]


def _estimated(trials: Iterator[Trial], experiment: Experiment, confidence: float) -> Iterator[tuple[Trial, Estimate]]:
    """Yield each trial with the estimate of its last round; equal tallies are estimated once."""
    known: dict[Tally, int] = {}  # the number of its estimate
    estimates: list[Estimate] = []
    while some := list(islice(trials, _ESTIMATED_TOGETHER)):
        places = [known.setdefault(trial.tallies[-1], len(known)) for trial in some]
        new = list(islice(known, len(estimates), None))
        made = estimate_tallies(experiment.task, new, confidence)
        estimates += (drawn_part(experiment.task, one, experiment.drawing) for one in made)
        for trial, place in zip(some, places, strict=True):
            yield trial, estimates[place]


@dataclass(slots=True)
class _Held:
    """One interval of one part, over the trials."""

    made: int = 0
    covered: int = 0
    widths: list[float] = field(default_factory=list)
    methods: set[str] = field(default_factory=set)
    failure: str = ""

    def add(self, ends: Interval | None, method: str, *, covered: bool) -> None:
        """Add a trial that has it; joint intervals have no single ends."""
        self.made += 1
        self.covered += covered
        self.methods.add(method)
        if ends is not None:
            self.widths.append(ends[1] - ends[0])


class _Scope:
    """One kind of estimate, over the trials."""

    def __init__(self) -> None:
        self._errors: defaultdict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)  # and true values
        self._held: defaultdict[tuple[str, str, str], _Held] = defaultdict(_Held)
        self._units: dict[str, str] = {}

    def add(self, made: Estimate, score: Score) -> None:
        """Add one trial."""
        for one in made.parts:
            name = one.name
            judged = score.parts[name] if name else score
            self._units[name] = one.unit
            for target, error in judged.error.items():
                self._errors[name, target].append((error, judged.truth[target]))
            for interval, covered in judged.covered.items():
                method = one.methods.get(interval, "")
                held = self._held[name, interval, _target(interval, method)]
                held.add(one.intervals[interval], method, covered=covered)
            self._missing(name, one.failures)
        for interval, covered in score.joint.items():
            self._held["", f"{_JOINT}{interval}", _target(interval, "")].add(None, "", covered=covered)

    def _missing(self, name: str, failures: Mapping[str, str]) -> None:
        """Note the reasons of intervals that this trial lacks."""
        for interval, why in failures.items():
            if interval in (REPORTERS, POPULATION, ANYTIME, ANYTIME_POPULATION):
                known = [key for key in self._held if key[:2] == (name, interval)]
                key = known[0] if known else (name, interval, _target(interval, ""))
                self._held[key].failure = why

    def rows(self, work: CellWork, task: Task, scope: str, theory: Theory) -> Iterator[SweepRow]:
        """Yield a row for each interval of each part."""
        scenario = work.scenario
        for (part, interval, target), held in self._held.items():
            errors = self._errors.get((part, target)) if not interval.startswith(_JOINT) else None
            low, high = _bars(held.made, held.covered)
            yield SweepRow(
                cell=work.number,
                parameters=work.parameters,
                task_id=task.id,
                mechanism=task.mechanism,
                epsilon=float(task.epsilon),
                rounds=task.rounds,
                clients=scenario.clients,
                liars=sum(some.among(scenario.clients) for some in scenario.liars) / scenario.clients,
                scope=scope,
                part=part,
                unit=self._units.get(part) or task.unit,
                target=target,
                interval=interval,
                method=next(iter(held.methods)) if len(held.methods) == 1 else "",
                confidence=work.confidence,
                trials=work.trials,
                **asdict(_ErrorSummary.of(errors)),
                theory_stderr=None if errors is None else theory.get((part, target, scope == TOGETHER)),
                made=held.made,
                covered=held.covered,
                coverage=held.covered / held.made if held.made else None,
                coverage_lower=low,
                coverage_upper=high,
                mean_width=_mean(held.widths),
                failures=work.trials - held.made,
                failure=held.failure,
            )


def _target(interval: str, method: str) -> str:
    """Return what an interval is about; the method of an anytime interval names it."""
    if interval == ANYTIME:
        return POPULATION if method.startswith(POPULATION) else REPORTERS
    return POPULATION if interval == ANYTIME_POPULATION else interval


@dataclass(frozen=True, slots=True)
class _ErrorSummary:
    """Errors of the estimates, summarised over the trials: fields of a row."""

    estimates: int = 0
    truth: float | None = None
    bias: float | None = None
    bias_stderr: float | None = None
    rmse: float | None = None
    rmse_lower: float | None = None
    rmse_upper: float | None = None

    @classmethod
    def of(cls, found: Sequence[tuple[float, float]] | None) -> "_ErrorSummary":
        if not found:
            return cls()
        errors, truth, n = np.array([error for error, _ in found]), _mean([true for _, true in found]), len(found)
        squares = errors**2
        rmse = sqrt(float(squares.mean()))
        if n == 1:
            return cls(n, truth, float(errors[0]), None, rmse)
        low, high = _bars_of_rms(squares)
        return cls(n, truth, float(errors.mean()), _stderr(errors), rmse, low, high)


def _bars_of_rms(squares: NDArray[np.float64]) -> tuple[float, float]:
    """The interval of a root mean square, from two squared errors or more.

    The mean square of n normal errors with mean 0 is chi-squared with n degrees of freedom, times its expectation over
    n: exact at every n. Where the squares vary more than those of normal errors do, the degrees are fewer by as much
    (Satterthwaite 1946). Where they vary less, as with a bias, it stays n, and the interval covers more often.
    """
    n, mean = len(squares), float(squares.mean())
    variance = float(squares.var(ddof=1)) / n
    degrees = min(n, 2 * mean**2 / variance) if variance else n
    low, high = _chi_square_ends(round(degrees, 3))
    return sqrt(mean * degrees / high), sqrt(mean * degrees / low)


@lru_cache(maxsize=1024)
def _chi_square_ends(degrees: float) -> tuple[float, float]:
    """Both quantiles of chi-squared at the confidence of the bars: the limit of a beta variable near 0."""
    a, b = degrees / 2, 1e8
    low, high = (2 * (b + a) * beta_quantile(p, a, b) for p in ((1 - BARS) / 2, (1 + BARS) / 2))
    return low, high


def _stderr(values: NDArray[np.float64]) -> float:
    return float(values.std(ddof=1)) / sqrt(len(values))


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


@lru_cache(maxsize=4096)
def _bars(made: int, covered: int) -> tuple[float | None, float | None]:
    """Clopper and Pearson's interval of a coverage."""
    if not made:
        return None, None
    ((low, high),) = clopper_pearson_shares([(made, covered, BARS)])
    return low, high
