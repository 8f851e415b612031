"""Spread: what a picture shows of many values or reports, of devices that were there as of those in bulk.

In bulk no value and no report is kept. What devices report is then taken from the tally, where it tells how many said
what; of values, and of noise without number, a sample is drawn once more and scaled to all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate.mechanisms import analysis_of
from hush_aggregator.estimate.tallies import parts_of
from hush_aggregator.fold import fold
from hush_common.domain import BitDomain, NumberDomain
from hush_common.epsilon import decimal_text
from hush_simulations.engines.bulk import plot_sample
from hush_simulations.engines.reports import offers_of
from hush_simulations.results.run import Run
from hush_simulations.scenarios.population import Value

__all__ = ["Spread", "kept", "named", "received", "vectors"]


@dataclass(frozen=True, slots=True)
class Spread:
    """Numbers, and how many devices each stands for.

    Args:
        values: shape (numbers,).
        counts: of the same shape.
        name: the epsilon of these devices, where there are several.
    """

    values: NDArray[np.float64]
    counts: NDArray[np.float64]
    name: str = ""

    @classmethod
    def of(cls, values: NDArray[np.float64], devices: int, name: str = "") -> "Spread":
        """So many devices, of which some are seen; what is not finite is no number."""
        there = values[np.isfinite(values)]
        return cls(there, np.full(len(there), devices / max(len(values), 1)), name)


def kept(run: Run) -> Spread:
    """The true numbers of the devices that reported in the last round."""
    values = np.array(_values(run), dtype=np.float64) if run.drawing is None else plot_sample.numbers(run.experiment)
    return Spread.of(values, run.result.n if run.drawing else len(run.last.reporters))


def vectors(run: Run) -> NDArray[np.float64]:
    """The true vectors of such devices, shape (devices, coordinates); NaN where a coordinate has no value."""
    rows = [value for value in _values(run) if isinstance(value, tuple)]
    return np.array(rows, dtype=np.float64)


def _values(run: Run) -> Sequence[Value]:
    if run.drawing is not None:
        return plot_sample.people(run.experiment)
    last = len(run.rounds) - 1
    return [run.experiment.value(device, last) for device in run.last.reporters]


def received(run: Run) -> list[Spread]:
    """What the reports about a number or a bit say, noisy as they are; for each epsilon on offer."""
    task, domain = run.task, run.task.domain
    if not isinstance(domain, NumberDomain | BitDomain):
        raise TypeError(f"a report of {task.mechanism} is no number")
    names = [f"ε = {decimal_text(epsilon)}" for epsilon in task.offers] or [""]
    tally, bodies = run.last.tally, run.last.received.bodies
    found = []
    for offer, (name, (part, some)) in enumerate(
        zip(names, parts_of(task.randomizer, tally or fold(task.randomizer, bodies)), strict=True)
    ):
        analysis = analysis_of(part)
        known = analysis.spread(part, domain, some, 0) if some.n else None
        if known is not None:
            found.append(Spread(known[0], known[1].astype(np.float64), name))
            continue
        if tally is None:
            _, offers, rest = offers_of(task, bodies)
            rest = rest[offers == offer]
        else:
            rest = plot_sample.reports(run.experiment, part, domain)
        found.append(Spread.of(analysis.said(part, domain, rest, 0), some.n, name))
    return found


def named(run: Run, place: int) -> Spread:
    """What the reports that speak of a category or a coordinate say of it, from 0 to 1; equal ones together."""
    task, last = run.task, run.last
    tally = last.tally or fold(task.randomizer, last.received.bodies)
    counts: dict[float, float] = {}
    for part, some in parts_of(task.randomizer, tally):
        known = analysis_of(part).spread(part, task.domain, some, place) if some.n else None
        for value, count in zip(*(known or ((), ())), strict=True):
            counts[float(value)] = counts.get(float(value), 0.0) + float(count)
    values = sorted(counts)
    return Spread(np.array(values), np.array([counts[value] for value in values]))
