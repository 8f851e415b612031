"""The rounds of a run, each judged against the truth; and all of them together."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hush_aggregator.result import Result
from hush_aggregator.tally import Tally
from hush_common.task import Task
from hush_simulations.engines.experiment import Experiment, Received, RoundOutcome
from hush_simulations.results.score import Score, score, score_of_truth, truths

Mean = float | tuple[float, ...] | None


class GroupTruth(NamedTuple):
    """What is true of those of one group who answered: only a simulation knows who is of which.

    Args:
        people: how many.
        means: of their values, of each coordinate, or the share of each label; None where nobody has a value.
    """

    people: int
    means: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Round:
    """One round of a run, judged.

    Args:
        result: of the aggregator.
        score: the same beside the truth.
        reporters: positions, in `Experiment.values`, of the devices that sent a report.
        clamped: how many of them had to move their value into the domain.
        declined: devices that sent nothing, by their reason.
        elapsed: seconds from the first answer to the last commit.
        received: what the aggregator counted; empty in bulk, where no report is kept.
        chosen: in bulk, how many devices took each epsilon offered; empty where there is one.
        tally: in bulk, that of the round.
        truth: in bulk, as in `RoundOutcome`.
        known: in bulk, of how many values each truth is the mean.
        groups: of each group of the population how many answered, and what is true of them.
        population: the mean of the population in this round; None where nobody knows it.
    """

    result: Result
    score: Score
    reporters: Sequence[int] = field(repr=False)
    clamped: int
    declined: Mapping[str, int]
    elapsed: float
    received: Received = field(repr=False)
    chosen: tuple[int, ...] = ()
    tally: Tally | None = None
    truth: tuple[float | None, ...] | None = None
    known: tuple[int, ...] = ()
    groups: Mapping[str, GroupTruth] = field(default_factory=dict)
    population: Mean = None


@dataclass(frozen=True, slots=True)
class PooledRounds:
    """All rounds of a run as one estimate, judged: the truth is the mean over all reports.

    Args:
        result: with the intervals of `hush_aggregator.estimate.pooled_rounds`.
        score: the same beside the truth.
        rounds: how many there are.
    """

    result: Result
    score: Score
    rounds: int


def judge(experiment: Experiment, task: Task, number: int, done: RoundOutcome) -> Round:
    """Compare a round with what is true of those who answered in it, and of the population."""
    population, estimate = experiment.mean(number), done.result.estimate
    if done.truth is None:
        values = [experiment.value(device, number) for device in done.reporters]
        found = score(task.domain, estimate, values, population)
        groups = _groups(experiment, number, done.reporters)
    else:
        found = score_of_truth(task.domain, estimate, done.truth, population)
        groups = [GroupTruth(*group) for group in done.groups]
    judged = (done.result, found, done.reporters, done.clamped, done.declined, done.elapsed, done.received)
    named = dict(zip(experiment.scenario.groups, groups, strict=bool(groups)))
    return Round(*judged, done.chosen, done.tally, done.truth, done.known, named, population)


def _groups(experiment: Experiment, number: int, reporters: Sequence[int]) -> list[GroupTruth]:
    found = []
    for group in range(len(experiment.scenario.groups)):
        values = [experiment.value(device, number) for device in reporters if experiment.groups[device] == group]
        found.append(GroupTruth(len(values), tuple(truths(experiment.task.domain, values))))
    return found


def mean_of_rounds(rounds: Sequence[tuple[int, Mean]]) -> Mean:
    """The mean of the population over all reports, of how many there are in each round and what it was then."""
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
    """In bulk, the mean of the values over all rounds, of each coordinate or label."""
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
    """The truth of each group, where there are groups; nothing otherwise."""
    groups = [{"name": name, "people": group.people, "truth": list(group.means)} for name, group in done.groups.items()]
    return {"groups": groups} if groups else {}


def together_document(done: PooledRounds) -> dict[str, Any]:
    found = found_document(done)
    kept = ("confidence", "n", "mean", "stderr", "intervals", "methods", "categories", "coordinates")
    found["result"] = {name: found["result"][name] for name in kept if name in found["result"]}
    return {"rounds": done.rounds, **found}


def found_document(done: Round | PooledRounds) -> dict[str, Any]:
    """What was estimated, and what is true; of categories and vectors a list, each part by its name."""
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
