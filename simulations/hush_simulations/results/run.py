"""A finished simulation: its rounds compared with the truth, and the JSON object of `--json` and `result.json`."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple, Self

import numpy as np

from hush_aggregator.estimate import ANYTIME, POPULATION, REPORTERS, Estimate
from hush_aggregator.estimate.estimates import ByTarget, Intervals
from hush_aggregator.estimate.mechanisms import fold
from hush_aggregator.estimate.pooled_rounds import combine
from hush_aggregator.estimate.result import Result
from hush_common.broker_url import BrokerUrl
from hush_common.domain import Domain
from hush_common.epsilon import decimal_text
from hush_common.errors import OptionError
from hush_common.mechanisms import Offers
from hush_common.mechanisms.registry import best, choose, named
from hush_common.task import Task
from hush_simulations.brokers.choice import is_external
from hush_simulations.engines.experiment import (
    NOT_PRIVATE,
    SYSTEM,
    Drawing,
    Experiment,
    Mean,
    Outcome,
    RoundOutcome,
    count_handled,
    in_words,
    offers_of,
)
from hush_simulations.planning.clamping import Clamping, clampings
from hush_simulations.scenarios.population import Observed, Value, means_of
from hush_simulations.shown import Shown

Covered = Mapping[str, bool]

_MOST_DRAWN = 1 << 17


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """An estimate next to the truth, by target.

    `covered` says whether each interval holds its truth, `joint` the same of simultaneous ones; `error` is the estimate
    less the truth. Of categories and vectors the whole has only `parts` and `joint`.
    """

    truth: ByTarget = field(default_factory=dict)
    covered: Covered = field(default_factory=dict)
    error: ByTarget = field(default_factory=dict)
    joint: Covered = field(default_factory=dict)
    parts: Mapping[str, "Score"] = field(default_factory=dict)


def score(
    domain: Domain,
    estimate: Estimate,
    values: Sequence[Value],
    population_mean: float | tuple[float, ...] | None,
) -> Score:
    """Compare the estimate of a round with the devices' true values, before any clamping."""
    return score_of_truth(domain, estimate, means_of(domain, values), population_mean)


def score_of_truth(
    domain: Domain,
    estimate: Estimate,
    truths: Sequence[float | None],
    population_mean: float | tuple[float, ...] | None,
) -> Score:
    """Compare the estimate of a round with the mean of each coordinate or the share of each label."""
    known = [{} if mean is None else {REPORTERS: mean} for mean in truths]
    if domain.parts_field:
        return _of_parts(domain, estimate, _with_population(known, population_mean))
    part, about = estimate.single, known[0]
    if population_mean is not None and not isinstance(population_mean, tuple):
        about[POPULATION] = population_mean
    return Score(
        truth=about,
        covered=covered(part.intervals, part.methods, about),
        error=errors(part.mean, about),
    )


def covered(intervals: Intervals, methods: Mapping[str, str], truths: ByTarget) -> dict[str, bool]:
    """Return for each interval whose truth is known whether it holds it, ends included."""
    found = {}
    for name, (low, high) in intervals.items():
        truth = truths.get(target_of(name, methods))
        if truth is not None:
            found[name] = low <= truth <= high
    return found


def target_of(name: str, methods: Mapping[str, str]) -> str:
    """Return the target of an interval. Of an anytime interval its key says it, or else its method starts with it."""
    if not name.startswith(ANYTIME):
        return name
    return name.removeprefix(ANYTIME).removeprefix("_") or methods.get(name, "").partition("-")[0]


def errors(estimate: float | None, truths: ByTarget) -> dict[str, float]:
    """Return the estimate less each truth; empty without an estimate."""
    return {} if estimate is None else {target: estimate - mean for target, mean in truths.items()}


def _with_population(
    truths: Sequence[dict[str, float]], population: float | tuple[float, ...] | None
) -> list[dict[str, float]]:
    if not isinstance(population, tuple):
        return list(truths)
    return [known | {POPULATION: mean} for known, mean in zip(truths, population, strict=True)]


def _of_parts(domain: Domain, estimate: Estimate, truths: Sequence[ByTarget]) -> Score:
    parts = {part.name: Score(truth=known) for part, known in zip(domain.parts, truths, strict=True)}
    for one in estimate.parts:
        known = parts[one.name].truth
        parts[one.name] = Score(
            truth=known,
            covered=covered(one.intervals, one.methods, known),
            error=errors(one.mean, known),
            joint=covered(one.joint_intervals, one.methods, known),
        )
    return Score(parts=parts, joint=_all_of([parts[one.name].joint for one in estimate.parts if one.n]))


def _all_of(verdicts: Sequence[Covered]) -> dict[str, bool]:
    """Return for each interval that all parts have whether all are covered at once: the promise of joint ones."""
    return {
        target: all(verdict[target] for verdict in verdicts)
        for target in (verdicts[0] if verdicts else ())
        if all(target in verdict for verdict in verdicts)
    }


class GroupTruth(NamedTuple):
    """The number of people of a group who answered, and the means of their values; None without values."""

    people: int
    means: tuple[float | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Round(RoundOutcome):
    """One round of a run, next to the truth."""

    score: Score  #: the result compared with the truth
    groups: Mapping[str, GroupTruth]  #: of each group of the population how many answered, and their truth
    population: Mean  #: the mean of the population in this round; None if unknown


@dataclass(frozen=True, slots=True)
class PooledRounds:
    """All rounds of a run as one estimate; the truth is the mean over all reports."""

    result: Result
    score: Score
    rounds: int


def judge(experiment: Experiment, task: Task, number: int, done: RoundOutcome) -> Round:
    population, estimate = experiment.mean(number), done.result.estimate
    if done.truth is None:
        values = [experiment.value(device, number) for device in done.reporters]
        found = score(task.domain, estimate, values, population)
        groups = _groups(experiment, number, done.reporters)
    else:
        found = score_of_truth(task.domain, estimate, done.truth, population)
        groups = [GroupTruth(*group) for group in done.by_group]
    named = dict(zip(experiment.scenario.groups, groups, strict=bool(groups)))
    measured = {field.name: getattr(done, field.name) for field in fields(RoundOutcome)}
    return Round(**measured, score=found, groups=named, population=population)


def _groups(experiment: Experiment, number: int, reporters: Sequence[int]) -> list[GroupTruth]:
    found = []
    for group in range(len(experiment.scenario.groups)):
        values = [experiment.value(device, number) for device in reporters if experiment.groups[device] == group]
        found.append(GroupTruth(len(values), tuple(means_of(experiment.task.domain, values))))
    return found


def mean_of_rounds(rounds: Sequence[tuple[int, Mean]]) -> Mean:
    """Return the mean of the population over all reports, from the reports and the mean of each round."""
    means = [mean for _, mean in rounds]
    reports = sum(n for n, _ in rounds)
    first = means[0]
    if all(mean == first for mean in means) or not reports:
        return first
    columns = list(zip(*(mean if isinstance(mean, tuple) else (mean,) for mean in means), strict=True))
    whole = tuple(
        math.fsum(n * x for (n, _), x in zip(rounds, column, strict=True) if x is not None) / reports
        for column in columns
    )
    return whole if isinstance(first, tuple) else whole[0]


def truth_of_rounds(rounds: Sequence[Round]) -> list[float | None]:
    """Return the mean of the values over all rounds in bulk, of each coordinate or label."""
    found: list[float | None] = []
    for place in range(len(rounds[0].known)):
        each = [(one.known[place], one.truth[place]) for one in rounds if one.truth is not None]
        known = [(n, mean) for n, mean in each if mean is not None]
        n = sum(count for count, _ in known)
        found.append(math.fsum(count * mean for count, mean in known) / n if n else None)
    return found


def rate(rounds: Iterable[Round]) -> float:
    elapsed = sum(done.elapsed for done in rounds)
    accepted = sum(done.result.n for done in rounds)
    return round(accepted / elapsed, 1) if elapsed > 0 else 0.0


def round_document(done: Round) -> dict[str, Any]:
    return {
        **found_document(done),
        **groups_document(done),
        "published": len(done.reporters),
        "clamped": done.clamped,
        "elapsed_s": round(done.elapsed, 3),
        "reports_per_s": rate((done,)),
    }


def groups_document(done: Round) -> dict[str, Any]:
    """Return the truth of each group; empty without groups."""
    groups = [{"name": name, "people": group.people, "truth": list(group.means)} for name, group in done.groups.items()]
    return {"groups": groups} if groups else {}


def together_document(done: PooledRounds) -> dict[str, Any]:
    found = found_document(done)
    kept = ("confidence", "n", "mean", "stderr", "intervals", "methods", "categories", "coordinates")
    found["result"] = {name: found["result"][name] for name in kept if name in found["result"]}
    return {"rounds": done.rounds, **found}


def found_document(done: Round | PooledRounds) -> dict[str, Any]:
    """Return the estimate and the truth; of categories and vectors a list of named parts."""
    found, result = done.score, done.result.to_document()
    domain, parts_of_result = done.result.task.domain, done.result.parts
    many = domain.parts_field
    if not many:
        views = {"truth": dict(found.truth), "covered": dict(found.covered), "error": dict(found.error)}
        return {"result": result, **views}
    one, estimated = "label" if domain.is_share else "name", [part.n > 0 for part in parts_of_result]
    parts = list(zip(found.parts.items(), estimated or [False] * len(found.parts), strict=True))
    covered: dict[str, Any] = {
        many: [
            {one: name} | ({"intervals": dict(part.covered), "joint_intervals": dict(part.joint)} if known else {})
            for (name, part), known in parts
        ]
    }
    return {
        "result": result,
        "truth": {many: [{one: name, **part.truth} for (name, part), _ in parts]},
        "covered": covered | ({"joint": dict(found.joint)} if found.joint else {}),
        "error": {many: [{one: name, **part.error} for (name, part), _ in parts]},
    }


def auto_mechanism(task: Task) -> tuple[str, float] | None:
    """Return the mechanism that `auto` takes, and how many times its devices the task's own needs for the same error.

    That is the ratio of the largest variances of one report, as `hush plan --rms` gives it. None for several epsilons
    and for answers that repeat.
    """
    if isinstance(task.randomizer, Offers) or task.repeat == "sticky":
        return None
    epsilon = task.epsilon_per_round
    name, _ = choose(task.domain, [epsilon])
    kind = named(name)
    if kind is None or name == task.mechanism:
        return name, 1.0
    return name, task.randomizer.worst_variance / best(kind, task.domain, epsilon).worst_variance


def planned_document(task: Task, people: int, confidence: float) -> dict[str, object] | None:
    """Return the same with half-widths of the reporters' interval in the worst case, as by `hush plan`."""
    if not people or isinstance(task.randomizer, Offers) or task.repeat == "sticky":
        return None
    return _planned(task.domain, task.mechanism, people, task.epsilon_per_round, confidence)


@lru_cache(maxsize=8)
def _planned(domain: Domain, own: str, people: int, epsilon: Fraction, confidence: float) -> dict[str, object] | None:
    from hush_simulations.planning.plan import PlanQuestion, solve  # noqa: PLC0415 - only documents need the planner

    plan = solve(PlanQuestion(domain=domain, people=people, epsilon=epsilon, error=None, confidence=confidence))
    by_name = {line.mechanism: line for line in plan.mechanisms if REPORTERS in line.amounts}
    auto = plan.auto.get(REPORTERS)
    if auto is None or own not in by_name:
        return None
    return {
        "mechanism": auto,
        "half_width": {name: float(by_name[name].amounts[REPORTERS]) for name in (own, auto)},
        "people_ratio": by_name[own].relative.get(REPORTERS, 1.0),
    }


def _interval_rows(done: Round) -> Iterator[tuple[object, ...]]:
    parts, scores = done.result.parts, done.score.parts
    for one in parts:
        score = scores.get(one.name, done.score) if scores else done.score
        methods = done.result.estimate.methods if not scores else one.methods
        for name, (lower, upper) in one.intervals.items():
            target = target_of(name, methods)
            yield (
                done.result.round,
                one.n,
                one.name if scores else "",
                one.mean,
                one.stderr.get(target),
                name,
                lower,
                upper,
                score.truth.get(target),
                score.error.get(target),
                score.covered.get(name),
            )


@dataclass(frozen=True, slots=True, repr=False)
class Run(Shown):
    """A finished simulation. What represents it in text shows no value, no report and no address."""

    experiment: Experiment  #: what was to be simulated
    task: Task  #: as published; on an external broker its id is unique
    rounds: tuple[Round, ...]  #: one at least, in their order
    stopped: bool = False  #: whether it was stopped before all devices were asked
    drawing: Drawing | None = None  #: in bulk, what was drawn; else None

    @classmethod
    def of(cls, experiment: Experiment, outcome: Outcome) -> Self:
        """Return the run of an outcome."""
        rounds = tuple(judge(experiment, outcome.task, number, done) for number, done in enumerate(outcome.rounds))
        return cls(experiment, outcome.task, rounds, outcome.stopped, outcome.drawing)

    def columns(self) -> dict[str, list[object]]:
        """Return a row for each interval of each part and round, next to the truth.

        `part` is a label or a coordinate, empty where the answer has one part; `interval` is its name in a result.
        """
        names = ("round", "n", "part", "estimate", "stderr", "interval", "lower", "upper", "truth", "error", "covers")
        rows = [row for done in self.rounds for row in _interval_rows(done)]
        return {name: [row[place] for row in rows] for place, name in enumerate(names)}

    def reports(self) -> dict[str, list[object]]:
        """Return what the aggregator received, as columns: round, report_id, epsilon, body and decoded.

        Never the true value next to a report: such a table would undo the privacy of every row. The reports are in the
        order of their random ids, so that their position says nothing about a row of the input either. Where the noise
        is from a seed, they are sorted, and their ids, which never are from one, are left out: the same seed gives the
        same table.

        Raises:
            OptionError: a simulation in bulk, which has no reports.
        """
        if self.drawing is not None:
            raise OptionError("engine", "a simulation in bulk has no reports; simulate with engine='mqtt' or 'memory'")
        repeatable = self.experiment.noise_seed is not None
        columns: dict[str, list[object]] = {"round": [], "report_id": [], "epsilon": [], "body": [], "decoded": []}
        for number, done in enumerate(self.rounds):
            received = done.received
            parts, offers, rest = offers_of(self.task, received.bodies)
            bodies = received.bodies.tolist()
            order = sorted(range(len(bodies)), key=bodies.__getitem__) if repeatable else range(len(bodies))
            epsilons = [decimal_text(part.epsilon) for part in parts]
            words, ids = in_words(self.task, received.bodies), received.ids
            columns["round"] += [number] * len(bodies)
            columns["report_id"] += [ids[k] for k in order]
            columns["epsilon"] += [epsilons[offers[k]] for k in order]
            columns["body"] += [" ".join(map(str, rest[k].tolist())) for k in order]
            columns["decoded"] += [words[k] for k in order]
        return {name: column for name, column in columns.items() if name != "report_id" or not repeatable}

    def in_short(self) -> str:
        rounds = f" in {len(self.rounds)} rounds" if len(self.rounds) > 1 else ""
        return f"Run of {self.task.id!r}: {self.accepted} reports{rounds}"

    @property
    def last(self) -> Round:
        """The last round, which the figures of the run are about."""
        return self.rounds[-1]

    @property
    def result(self) -> Result:
        """Of the last round."""
        return self.last.result

    @property
    def results(self) -> tuple[Result, ...]:
        """Of each round."""
        return tuple(done.result for done in self.rounds)

    @property
    def score(self) -> Score:
        """Of the last round."""
        return self.last.score

    @property
    def truth(self) -> Mapping[str, float]:
        """The truth for the intervals of the last round, by target; of categories and vectors see `score.parts`."""
        return self.score.truth

    @property
    def covered(self) -> Covered:
        """Whether the intervals hold it, by target; of categories and vectors, whether all joint ones do."""
        return self.score.joint if self.score.parts else self.score.covered

    @property
    def together(self) -> PooledRounds | None:
        """All rounds as one estimate; None for one round, and if rounds repeat the same answers."""
        task, last = self.task, self.last
        tallies = [one.tally or fold(task.randomizer, one.received.bodies) for one in self.rounds]
        made = combine(task, tallies, last.result.confidence)
        if made is None:
            return None
        population = mean_of_rounds([(one.result.n, one.population) for one in self.rounds])
        if last.truth is not None:
            found = score_of_truth(task.domain, made, truth_of_rounds(self.rounds), population)
        else:
            places = [(number, device) for number, one in enumerate(self.rounds) for device in one.reporters]
            values = [self.experiment.value(device, number) for number, device in places]
            found = score(task.domain, made, values, population)
        return PooledRounds(replace(last.result, round=0, estimate=made), found, len(self.rounds))

    @property
    def groups(self) -> Mapping[str, GroupTruth]:
        """The truth of each group in the last round; empty without groups."""
        return self.last.groups

    @property
    def clients(self) -> int:
        """Devices."""
        return self.experiment.clients

    @property
    def published(self) -> int:
        """Reports that devices sent in all rounds."""
        return sum(len(done.reporters) for done in self.rounds)

    @property
    def accepted(self) -> int:
        """Reports counted in all rounds."""
        return sum(done.result.n for done in self.rounds)

    @property
    def lost(self) -> int:
        """Reports that the broker acknowledged to a device and never delivered to the aggregator."""
        refused = self.result.refused  # counted per task, all rounds together
        return max(0, self.published - count_handled(self.accepted, refused))

    @property
    def clamped(self) -> int:
        """Values moved into the domain, in all rounds."""
        return sum(done.clamped for done in self.rounds)

    @property
    def clampings(self) -> tuple[Clamping, ...]:
        """What the bounds do to the values of the last round, by number or coordinate; empty if no value was moved.

        In bulk, of all rows of the data, or of a sample of the population.
        """
        return clampings(self.task.domain, self._true_values()) if self.clamped else ()

    def _true_values(self) -> Sequence[Value]:
        people = self.experiment.scenario.population
        if self.drawing is None:
            return [self.experiment.value(device, len(self.rounds) - 1) for device in self.last.reporters]
        if isinstance(people, Observed):
            return people.values
        return people.draw(min(self.clients, _MOST_DRAWN), np.random.default_rng(self.experiment.seed))

    @property
    def declined(self) -> Mapping[str, int]:
        """Answers that devices declined in all rounds, by reason."""
        return sum((Counter(done.declined) for done in self.rounds), Counter())

    @property
    def elapsed_s(self) -> float:
        """Seconds of all rounds, to a millisecond."""
        return round(sum(done.elapsed for done in self.rounds), 3)

    @property
    def reports_per_s(self) -> float:
        """Reports counted in a second, to a tenth; 0 where no time passed."""
        return rate(self.rounds)

    @property
    def epsilon_spent(self) -> Fraction:
        """The most that one device has spent: the cost of a round for each answer, or all of it at first.

        In bulk what a device spends that answers in every round, whether or not there is one.
        """
        if self.drawing is not None:
            taken = [epsilon for epsilon, count in self.chosen.items() if count]
            return max(taken, default=self.task.epsilon)
        times = np.zeros(self.clients, dtype=np.int64)
        for done in self.rounds:
            times[np.fromiter(done.reporters, np.int64, len(done.reporters))] += 1
        choices = np.array(self.experiment.choices or [0] * self.clients, dtype=np.int64)
        totals = self.task.offers or (self.task.epsilon,)
        pairs = (divmod(int(pair), len(totals)) for pair in set((times * len(totals) + choices).tolist()))
        cases = [(often, totals[choice]) for often, choice in pairs]
        if self.task.repeat == "sticky":
            return max((total for often, total in cases if often), default=Fraction(0))
        return max((often * total / self.task.rounds for often, total in cases), default=Fraction(0))

    @property
    def chosen(self) -> Mapping[Fraction, int]:
        """The devices that took each epsilon offered, in the last round; empty without a choice."""
        if self.last.chosen:
            return dict(zip(self.task.offers, self.last.chosen, strict=True))
        if not self.experiment.choices:
            return {}
        taken = Counter(self.experiment.choices[device] for device in self.last.reporters)
        return {epsilon: taken[place] for place, epsilon in enumerate(self.task.offers)}

    @property
    def broker(self) -> str:
        """The broker, without a password."""
        if self.experiment.engine != "mqtt":
            return "memory" if self.experiment.engine == "memory" else "none"
        name = self.experiment.broker
        return str(BrokerUrl.parse(name)) if is_external(name) else name

    @property
    def noise(self) -> str:
        """The source of the noise, in words."""
        return SYSTEM if self.experiment.noise_seed is None and self.drawing is None else NOT_PRIVATE

    def to_document(self) -> dict[str, Any]:
        """Return everything but the values and the reports.

        With several rounds, `result`, `truth` and `covered` are those of the last one, `rounds` lists all of them and
        `together` is what they say as one; counts and times are totals.
        """
        document: dict[str, Any] = {
            **found_document(self.last),
            **groups_document(self.last),
            "clients": self.clients,
            "published": self.published,
            "lost": self.lost,
            "declined": dict(self.declined),
            "clamped": self.clamped,
            "epsilon_spent": decimal_text(self.epsilon_spent),
        }
        if moved := self.clampings:
            document["clamping"] = [one.to_document() for one in moved]
        if self.chosen:
            document["chosen"] = {decimal_text(epsilon): count for epsilon, count in self.chosen.items()}
        if isinstance(people := self.experiment.scenario.population, Observed):
            document["data"] = people.to_document()
        document |= {
            "elapsed_s": self.elapsed_s,
            "reports_per_s": self.reports_per_s,
            "engine": self.experiment.engine,
            "broker": self.broker,
            "connections": 0 if self.drawing else self.experiment.gateways,
            "noise": self.noise,
        }
        if self.drawing is not None:
            document["drawn"] = self.drawing
        if self.experiment.seed is not None:
            document["seed"] = self.experiment.seed
        document |= {"stopped": True} if self.stopped else {}
        best = planned_document(self.task, self.result.n, self.result.confidence)
        document |= {"best_mechanism": best} if best else {}
        if len(self.rounds) > 1:
            document["rounds"] = [round_document(done) for done in self.rounds]
            if together := self.together:
                document["together"] = together_document(together)
        return document
