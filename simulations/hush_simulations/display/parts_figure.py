"""The picture of categories and vectors: three panels side by side, one row for each category or coordinate."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate import REPORTERS
from hush_common.domain import CategoryDomain, Coordinate, VectorDomain
from hush_simulations.display.style import INK, NOISY, TRUE
from hush_simulations.engines.reports import said
from hush_simulations.results.run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_parts"]

_Rows = NDArray[np.int64]
_MOST_ROWS = 30
_LONGEST_NAME = 22
_CROWDED = 12  # rows from which the letters get smaller
_SPREAD = (5, 95)  # per cent of the people between the ends of a line
_TITLES = ("Kept by the devices", "Received", "Estimate")


@dataclass(frozen=True, slots=True)
class _Bar:
    """An error bar of the reporters, beside their truth, in per cent."""

    estimate: float
    interval: tuple[float, float]
    truth: float


def draw_parts(figure: "Figure", run: Run, domain: CategoryDomain | VectorDomain) -> None:
    """Draw the last round: the truth, what was received of it, and the estimates with the error bars of reporters."""
    panels: Sequence[Axes] = figure.subplots(1, 3, sharey=True, width_ratios=(1, 1, 1.3))
    for axes, title in zip(panels, _TITLES, strict=True):
        axes.set_title(title)
    names = list(run.score.parts)
    if isinstance(domain, CategoryDomain):
        chosen = _most_frequent(run)
        _shares(panels, chosen, run)
    else:
        chosen = list(range(len(names)))[:_MOST_ROWS]
        _means(panels, chosen, run, domain)
    size = 10.5 if len(chosen) <= _CROWDED else 7.5
    panels[0].set_yticks(np.arange(len(chosen)), [_short(names[place]) for place in chosen], fontsize=size)
    panels[0].set_ylim(len(chosen) - 0.4, -0.6)
    if len(names) > len(chosen):
        largest = f"the {len(chosen)} largest of {len(names)}"
        panels[0].set_ylabel(largest if isinstance(domain, CategoryDomain) else "the first")


def _most_frequent(run: Run) -> list[int]:
    """The categories of the largest true shares, in the order of the task."""
    shares = [part.truth.get(REPORTERS, 0.0) for part in run.score.parts.values()]
    return sorted(sorted(range(len(shares)), key=lambda place: -shares[place])[:_MOST_ROWS])


def _shares(panels: "Sequence[Axes]", chosen: Sequence[int], run: Run) -> None:
    rows, parts = np.arange(len(chosen)), list(run.score.parts.values())
    truths = [100 * parts[place].truth.get(REPORTERS, 0.0) for place in chosen]
    panels[0].barh(rows, truths, color=TRUE, alpha=0.85, height=0.7)
    panels[0].set_xlabel("% of people")
    bodies = run.last.received.bodies
    shares = [100 * float(said(run.task, bodies, place).mean()) if len(bodies) else 0.0 for place in chosen]
    panels[1].barh(rows, shares, color=NOISY, alpha=0.85, height=0.7)
    panels[1].set_xlabel("% of reports containing it")
    _bars(panels[2], [_bar_of_category(run, place, truth) for place, truth in zip(chosen, truths, strict=True)])
    panels[2].set_xlabel("estimated share, %")


def _bar_of_category(run: Run, place: int, truth: float) -> _Bar | None:
    one = run.result.categories[place] if run.result.categories else None
    if one is None or REPORTERS not in one.intervals:
        return None
    low, high = one.intervals[REPORTERS]
    return _Bar(100 * one.frequency, (100 * low, 100 * high), truth)


def _means(panels: "Sequence[Axes]", chosen: Sequence[int], run: Run, domain: VectorDomain) -> None:
    rows, coordinates = np.arange(len(chosen)), [domain.coordinates[place] for place in chosen]
    _spreads(panels[0], rows, coordinates, _columns(run, chosen))
    _levels(panels[1], rows, chosen, run)
    _bars(panels[2], [_bar_of_coordinate(run, place, domain.coordinates[place]) for place in chosen])
    panels[2].set_xlim(*_widened(panels[2].get_xlim()))
    panels[2].set_xlabel("mean, % of the range")


def _bar_of_coordinate(run: Run, place: int, coordinate: Coordinate) -> _Bar | None:
    one = run.result.coordinates[place] if run.result.coordinates else None
    if one is None or one.mean is None or REPORTERS not in one.intervals:
        return None
    low, high = one.intervals[REPORTERS]
    return _Bar(
        _per_cent(one.mean, coordinate),
        (_per_cent(low, coordinate), _per_cent(high, coordinate)),
        _per_cent(run.score.parts[coordinate.name].truth[REPORTERS], coordinate),
    )


def _columns(run: Run, chosen: Sequence[int]) -> list[list[float]]:
    values = [run.experiment.values[device] for device in run.last.reporters]
    vectors = [value for value in values if isinstance(value, tuple)]
    return [[number for vector in vectors if (number := vector[place]) is not None] for place in chosen]


def _spreads(axes: "Axes", rows: _Rows, coordinates: Sequence[Coordinate], columns: Sequence[Sequence[float]]) -> None:
    """Of each coordinate where nine tenths of the people lie, and their mean, on its own range."""
    for row, coordinate, column in zip(rows, coordinates, columns, strict=True):
        if column:
            scaled = [_per_cent(value, coordinate) for value in column]
            axes.plot(
                np.percentile(scaled, _SPREAD), (row, row), "-", color=TRUE, lw=7, alpha=0.45, solid_capstyle="butt"
            )
            axes.plot(float(np.mean(scaled)), row, "D", color=TRUE, ms=7, mec="white")
    axes.set_xlim(0, 100)
    axes.set_xlabel("mean and central 90 %,\n% of the range")


def _levels(axes: "Axes", rows: _Rows, chosen: Sequence[int], run: Run) -> None:
    """Of the reports that drew a coordinate, how many named each level, light for the lowest."""
    for row, place in zip(rows, chosen, strict=True):
        start = 0.0
        levels = said(run.task, run.last.received.bodies, place)
        for level in np.unique(levels):
            count = int((levels == level).sum())
            axes.barh(row, count, left=start, color=NOISY, alpha=0.3 + 0.6 * float(level), height=0.7, ec="white")
            start += count
    axes.set_xlabel("reports by level\n(light = low)")


def _per_cent(value: float, coordinate: Coordinate) -> float:
    return 100 * (value - coordinate.lower) / (coordinate.upper - coordinate.lower)


def _bars(axes: "Axes", bars: Sequence[_Bar | None]) -> None:
    """An error bar a row, with the truth beside the estimate."""
    size = 8 if len(bars) <= _CROWDED else 5
    for row, bar in enumerate(bars):
        if bar is None:
            continue
        axes.plot(bar.interval, (row, row), "|-", color=INK, lw=1.8, ms=size, mew=1.8)
        axes.plot(bar.estimate, row, "o", color=NOISY, ms=size, mec=INK, mew=0.8, label="estimate")
        axes.plot(bar.truth, row, "D", color=TRUE, ms=size - 1, mec="white", mew=0.6, label="truth")
    handles, labels = axes.get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))
    if once and axes.figure is not None:
        axes.figure.legend(
            once.values(), once.keys(), loc="upper right", bbox_to_anchor=(0.985, 0.945), ncols=2, frameon=False
        )


def _widened(ends: tuple[float, float]) -> tuple[float, float]:
    margin = 0.02 * (ends[1] - ends[0])
    return ends[0] - margin, ends[1] + margin


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"
