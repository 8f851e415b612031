"""The data of pictures and charts of a run: true values, reports, and estimates with their intervals.

A run in bulk stores no value and no report. Its reports come from the tally, if that counts each kind; values, and
reports with unlimited noise, from a sample that is drawn again with a separate seed, so that no result depends on
whether a picture is drawn. The sample takes numbers evenly from the cells of the population: a picture is as
smooth as the law.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate import POPULATION, REPORTERS
from hush_aggregator.estimate.mechanisms import analysis_of, fold, parts_of
from hush_aggregator.publish.charts import Range
from hush_aggregator.publish.presentation import NumberFormat, interval_name
from hush_common.domain import Domain, DomainPart
from hush_common.epsilon import decimal_text
from hush_common.mechanisms import Mechanism
from hush_simulations.engines.bulk.cells import MISSING, Cells, Places, cells_of
from hush_simulations.engines.bulk.draws import people_of
from hush_simulations.engines.bulk.laws import law_of
from hush_simulations.engines.experiment import Experiment, offers_of
from hush_simulations.results.run import Run, target_of
from hush_simulations.scenarios.population import Value

_MOST_DRAWN = 1 << 17
_TAIL = 0.005  # of the values on each side that a chart may leave out
_CELL = (1 << 20) + 1  # which no sweep and no subpopulation has


@dataclass(frozen=True, slots=True)
class Distribution:
    """Numbers, and the number of devices of each, both of shape (numbers,); `name` is the epsilon of several."""

    values: NDArray[np.float64]
    counts: NDArray[np.float64]
    name: str = ""

    @classmethod
    def of(cls, values: NDArray[np.float64], devices: int, name: str = "") -> "Distribution":
        """Return the distribution of `devices` devices from the finite values of a sample of them."""
        there = values[np.isfinite(values)]
        return cls(there, np.full(len(there), devices / max(len(values), 1)), name)


def true_numbers(run: Run) -> Distribution:
    """Return the true numbers of the devices that reported in the last round."""
    values = np.array(_values(run), dtype=np.float64) if run.drawing is None else _sample_numbers(run.experiment)
    return Distribution.of(values, run.result.n if run.drawing else len(run.last.reporters))


def true_vectors(run: Run) -> NDArray[np.float64]:
    """Return the true vectors of these devices, shape (devices, coordinates); NaN where there is no value."""
    rows = [value for value in _values(run) if isinstance(value, tuple)]
    return np.array(rows, dtype=np.float64)


def _values(run: Run) -> Sequence[Value]:
    if run.drawing is not None:
        return _sample_people(run.experiment)
    last = len(run.rounds) - 1
    return [run.experiment.value(device, last) for device in run.last.reporters]


def reported_numbers(run: Run) -> list[Distribution]:
    """Return the noisy values in reports about a number or a bit, for each epsilon offered."""
    task, domain = run.task, run.task.domain
    if domain.parts_field:
        raise TypeError(f"a report of {task.mechanism} is not a number")
    names = [f"ε = {decimal_text(epsilon)}" for epsilon in task.offers] or [""]
    tally, bodies = run.last.tally, run.last.received.bodies
    found = []
    for offer, (name, (part, some)) in enumerate(
        zip(names, parts_of(task.randomizer, tally or fold(task.randomizer, bodies)), strict=True)
    ):
        analysis = analysis_of(part)
        known = analysis.spread(part, domain, some, 0) if some.n else None
        if known is not None:
            found.append(Distribution(known[0], known[1].astype(np.float64), name))
            continue
        if tally is None:
            _, offers, rest = offers_of(task, bodies)
            rest = rest[offers == offer]
        else:
            rest = _sample_reports(run.experiment, part, domain)
        found.append(Distribution.of(analysis.said(part, domain, rest, 0), some.n, name))
    return found


def reported_part(run: Run, place: int) -> Distribution:
    """Return the noisy values of one category or coordinate in the reports, from 0 to 1; equal ones are counted."""
    task, last = run.task, run.last
    tally = last.tally or fold(task.randomizer, last.received.bodies)
    counts: dict[float, float] = {}
    for part, some in parts_of(task.randomizer, tally):
        known = analysis_of(part).spread(part, task.domain, some, place) if some.n else None
        for value, count in zip(*(known or ((), ())), strict=True):
            counts[float(value)] = counts.get(float(value), 0.0) + float(count)
    values = sorted(counts)
    return Distribution(np.array(values), np.array([counts[value] for value in values]))


def reported_yes(run: Run) -> float:
    """Return the share of yes in the reports about a bit."""
    yes = sum(float(one.counts[one.values > 1 / 2].sum()) for one in reported_numbers(run))
    return yes / max(run.result.n, 1)


def share_naming(run: Run, place: int) -> float:
    """Return the share of the reports that name a category."""
    found = reported_part(run, place)
    return float(found.values @ found.counts) / max(float(found.counts.sum()), 1.0)


def without_tails(reports: Sequence[Distribution]) -> list[Distribution]:
    """Return the values between two quantiles of all, as a chart shows them."""
    values = np.concatenate([one.values for one in reports])
    if len(values) == 0:
        return list(reports)
    order = np.argsort(values)
    below = np.cumsum(np.concatenate([one.counts for one in reports])[order])
    low, high = (values[order][np.searchsorted(below, share * below[-1])] for share in (_TAIL, 1 - _TAIL))
    kept_ = [(one.values >= low) & (one.values <= high) for one in reports]
    return [
        Distribution(one.values[there], one.counts[there], one.name) for one, there in zip(reports, kept_, strict=True)
    ]


def estimate_ranges(run: Run) -> list[Range]:
    """Return each interval of the last round of a number or a bit, with its estimate and truth."""
    result = run.result
    pooled, methods = result.estimate.pooled, result.estimate.methods
    means = dict.fromkeys(result.intervals, result.mean) | ({POPULATION: pooled.mean} if pooled else {})
    return [
        Range(
            interval_name(target, methods.get(target, "")),
            *ends,
            means[target],
            run.truth.get(target_of(target, methods)),
        )
        for target, ends in result.intervals.items()
    ]


def part_interval(run: Run, place: int) -> Range | None:
    """Return the interval of a category or coordinate for the reporters, in its unit; None without one."""
    one = run.result.parts[place] if run.result.parts else None
    if one is None or one.mean is None or REPORTERS not in one.intervals:
        return None
    text = NumberFormat.of_part(one, is_share=run.task.domain.is_share).value(one.mean)
    truth = run.score.parts[one.name].truth.get(REPORTERS)
    return Range(one.name, *one.intervals[REPORTERS], one.mean, truth, text)


def part_range(run: Run, place: int) -> Range | None:
    """Return `part_interval` in per cent of the range of the part."""
    one, part = part_interval(run, place), run.task.domain.parts[place]
    if one is None:
        return None
    return replace(
        one,
        low=per_cent_of(part, one.low),
        high=per_cent_of(part, one.high),
        value=None if one.value is None else per_cent_of(part, one.value),
        truth=None if one.truth is None else per_cent_of(part, one.truth),
    )


def per_cent_of(part: DomainPart, value: float) -> float:
    """Return where a value is between the bounds of a part, in per cent."""
    return 100 * (value - part.lower) / (part.upper - part.lower)


def _sample_people(experiment: Experiment) -> list[Value]:
    rng = people_of(experiment.seed or 0, _CELL, 0)
    return list(experiment.scenario.population.draw(min(experiment.clients, _MOST_DRAWN), rng))


def _sample_numbers(experiment: Experiment) -> NDArray[np.float64]:
    cells, places = _answering(experiment)
    return cells.values[places]


def _sample_reports(experiment: Experiment, mechanism: Mechanism, domain: Domain) -> NDArray[np.int64]:
    """Draw reports of such people about a number, shape (reports, width); liars report their false value."""
    rng = people_of(experiment.seed or 0, _CELL, 1)
    cells, places = _answering(experiment)
    indices = _with_liars(experiment, domain, rng.permutation(cells.indices[places]))
    indices = np.where(indices == MISSING, rng.integers(domain.sizes[0], size=len(indices)), indices)
    return law_of(mechanism).bodies(mechanism, indices.astype(np.int64), rng)


def _answering(experiment: Experiment) -> tuple[Cells, NDArray[np.int64]]:
    task, scenario = experiment.task, experiment.scenario
    cells = cells_of(task.domain, scenario.population, scenario.panel, task.rounds)
    cells = cells.at(task.domain, scenario.panel.moved(task.domain, task.rounds - 1))
    weights = cells.shares if cells.refusing is None else cells.shares * (1 - cells.refusing)
    count, below = min(experiment.clients, _MOST_DRAWN), np.cumsum(weights)
    evenly = (np.arange(count) + 0.5) / count * below[-1]
    return cells, np.minimum(np.searchsorted(below, evenly, side="right"), len(below) - 1)


def _with_liars(experiment: Experiment, domain: Domain, indices: Places) -> Places:
    for some in experiment.scenario.liars:
        reading = domain.read(some.value, strict=False).parts[0] if some.lie == "value" else None
        if reading is not None:
            lying = min(some.among(len(indices)) * some.reports, len(indices))
            indices = np.concatenate((indices[lying:], np.full(lying, reading)))
    return indices
