"""Charts in terminals of runs, sweeps and plans."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate import REPORTERS
from hush_aggregator.publish.charts import Bar, Bars, Range, Ranges
from hush_aggregator.publish.presentation import NumberFormat
from hush_common.formatting import exact, significant, whole
from hush_simulations.display.distributions import (
    Distribution,
    estimate_ranges,
    part_range,
    reported_numbers,
    reported_yes,
    share_naming,
    true_numbers,
    without_tails,
)
from hush_simulations.display.plan_table import amount_in_words
from hush_simulations.display.run_figure import round_edges
from hush_simulations.display.sweep import layout_of, representative_row, value_label
from hush_simulations.planning.plan import TARGETS, Plan
from hush_simulations.results.run import Run
from hush_simulations.sweeps.result import SweepResult

if TYPE_CHECKING:
    from hush_simulations.results.run import PooledRounds, Round


_ROWS = 12
_FEW = 16


def charts_of(run: Run, *, signs: bool) -> Iterator[Bars | Ranges]:
    """Yield the charts of the last round, and of all rounds if there are several."""
    if run.result.n == 0:
        return
    domain, wording = run.task.domain, NumberFormat.of(run.result)
    if domain.parts_field:
        yield from _parts(run, signs=signs)
        return
    if domain.is_share:
        for title, share in (("Kept by the devices", run.truth.get(REPORTERS, 0.0)), ("Received", reported_yes(run))):
            both = (("yes", share), ("no", 1 - share))
            yield Bars(title, [Bar(name, part, wording.value(part)) for name, part in both], signs)
    else:
        unit = f" ({wording.unit})" if wording.unit else ""
        yield _histogram(f"Kept by the devices{unit}: devices", [true_numbers(run)], signs=signs)
        yield _histogram(f"Received{unit}: reports", reported_numbers(run), signs=signs)
    yield from _estimates(run, wording, signs=signs)


def _histogram(title: str, spreads: Sequence[Distribution], *, signs: bool) -> Bars:
    values = np.concatenate([one.values for one in spreads])
    counts = np.concatenate([one.counts for one in spreads])
    different = np.unique(values)
    if len(different) <= _FEW:
        found = [(significant(float(one), 6), float(counts[values == one].sum())) for one in different]
        return Bars(title, [Bar(name, count, whole(count)) for name, count in found], signs)
    kept = np.concatenate([one.values for one in without_tails(spreads)])
    low, high = float(kept.min()), float(kept.max())
    edges = round_edges(low, high, max(high - low, 1e-9 * max(abs(low), abs(high), 1.0)) / _ROWS)
    heights, _ = np.histogram(values, bins=edges, weights=counts)
    rows = [(f"{exact(a)} to {exact(b)}", h) for a, b, h in zip(*_pairs(edges), heights.tolist(), strict=True)]
    beyond = float(counts.sum() - heights.sum())
    rows += [("beyond", beyond)] if beyond >= 1 / 2 else []
    return Bars(title, [Bar(name, count, whole(count)) for name, count in rows], signs)


def _pairs(edges: NDArray[np.float64]) -> tuple[list[float], list[float]]:
    shown = [float(f"{edge:.10g}") for edge in edges.tolist()]
    return shown[:-1], shown[1:]


def _estimates(run: Run, wording: NumberFormat, *, signs: bool) -> Iterator[Ranges]:
    confidence = f"{exact(run.result.confidence, scale=100)} %"
    title = f"Estimate with {confidence} intervals"
    if len(run.rounds) > 1:
        together = run.together
        every: list[tuple[str, Round | PooledRounds]] = [
            (f"round {place}", done) for place, done in enumerate(run.rounds)
        ]
        every += [("all", together)] if together else []
        found = [
            Range(name, *done.result.intervals[REPORTERS], done.result.mean, done.score.truth.get(REPORTERS))
            for name, done in every
            if REPORTERS in done.result.intervals
        ]
        title += ", reporters"
    else:
        found = estimate_ranges(run)
    if found:
        low, high = Ranges.span(found)
        yield Ranges(title, found, (wording.value(low), wording.value(high)), signs=signs)


def _parts(run: Run, *, signs: bool) -> Iterator[Bars | Ranges]:
    share = run.task.domain.is_share
    if share:
        truths = {name: part.truth.get(REPORTERS, 0.0) for name, part in run.score.parts.items()}
        naming = {name: share_naming(run, place) for place, name in enumerate(truths)}
        for title, shares in (("Kept by the devices", truths), ("Received: reports that name it", naming)):
            yield Bars(title, [Bar(name, at, f"{100 * at:.1f} %") for name, at in shares.items()], signs)
    every = [part_range(run, place) for place in range(len(run.score.parts))]
    if found := [one for one in every if one is not None]:
        low, high = Ranges.span(found)
        title = f"Estimate with {exact(run.result.confidence, scale=100)} % intervals, reporters"
        title += "" if share else ", on the range of each"
        yield Ranges(title, found, (f"{low:.1f} %", f"{high:.1f} %"), signs=signs)


_MOST = 60


def charts_of_sweep(result: SweepResult, *, signs: bool) -> Iterator[Ranges]:
    """Yield a chart for each panel of the figure of errors, on the same axis."""
    layout = layout_of(result)
    found: list[tuple[str, list[Range]]] = []
    for panel in layout.panels:
        ranges = []
        for line in panel.lines:
            for cell in line.cells:
                row = representative_row(cell)
                if row.rmse and row.rmse_lower and row.rmse_upper:
                    at = value_label(layout.along, row.parameters[layout.along], row)
                    name = f"{line.name}, {at}" if line.name else at
                    text = f"{significant(row.rmse if row.unit else 100 * row.rmse)} {row.unit or 'points'}"
                    ranges.append(
                        Range(name, row.rmse_lower, row.rmse_upper, row.rmse, row.theory_stderr or None, text)
                    )
        found += [(panel.title, ranges)] if ranges else []
    every = [one for _, ranges in found for one in ranges]
    if not every or len(every) > _MOST:
        return
    unit = representative_row(layout.panels[0].lines[0].cells[0]).unit
    low, high = Ranges.span(every)
    ends = tuple(f"{significant(end if unit else 100 * end, 2)} {unit or 'points'}" for end in (low, high))
    for title, ranges in found:
        spelled = ranges if signs else [replace(one, name=one.name.replace("ε", "epsilon")) for one in ranges]
        head = f"Error (rms){f', {title}' if title else ''}"
        yield Ranges(head, spelled, (ends[0], ends[1]), True, signs, "measured", "theory", (low, high))


_TITLES = {"people": "People", "epsilon": "Epsilon", "error": "Error"}


def charts_of_plan(plan: Plan, *, signs: bool) -> Iterator[Bars]:
    """Yield a chart for each target of what the mechanisms need or give; shorter is better."""
    domain = plan.question.domain
    lines = [*plan.mechanisms, *plan.for_comparison]
    for target in TARGETS:
        found = [(line.mechanism, line.amounts[target]) for line in lines if target in line.amounts]
        if found:
            bars = [Bar(name, float(amount), amount_in_words(domain, amount)) for name, amount in found]
            yield Bars(f"{_TITLES[plan.question.unknown]} with each mechanism, for the {target}", bars, signs)
