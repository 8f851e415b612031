"""The picture of categories and vectors: three panels side by side, one row for each category or coordinate."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate import REPORTERS
from hush_common.domain import Coordinate, VectorDomain
from hush_simulations.display.distributions import reported_part, true_vectors
from hush_simulations.display.style import Palette
from hush_simulations.results.run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_parts"]

_MOST_ROWS = 30
_LONGEST_NAME, _BROAD = 26, 14
_SHORT = 0.04  # of the largest truth: an interval of which the ends could not be told apart
_CROWDED = 12  # rows from which the letters get smaller
_SPREAD = (5, 95)  # per cent of the people between the ends of a line
_TITLES = ("Kept", "Received", "Estimate")


@dataclass(frozen=True, slots=True)
class _Bar:
    """An error bar of the reporters, beside their truth, in per cent."""

    estimate: float
    interval: tuple[float, float]
    truth: float

    def off(self) -> "_Bar":
        """The same as distances from the truth."""
        low, high = self.interval
        return _Bar(self.estimate - self.truth, (low - self.truth, high - self.truth), 0.0)


def draw_parts(figure: "Figure", run: Run, palette: Palette) -> None:
    """Draw the last round: the truth, what was received of it, and the estimates with the error bars of reporters."""
    panels: Sequence[Axes] = figure.subplots(1, 3, sharey=True, width_ratios=(1, 1, 1.2))
    for axes, title in zip(panels, _TITLES, strict=True):
        axes.set_title(title)
    names, domain = list(run.score.parts), run.task.domain
    if isinstance(domain, VectorDomain):
        chosen = list(range(len(names)))[:_MOST_ROWS]
        _means(panels, chosen, run, domain, palette)
    else:
        chosen = _most_frequent(run)
        _shares(panels, chosen, run, palette)
    size = 11 if len(chosen) <= _CROWDED else 7.5
    labels = [fill(_short(names[place]), _BROAD) for place in chosen]
    panels[0].set_yticks(np.arange(len(chosen)), labels, fontsize=size)
    panels[0].set_ylim(len(chosen) - 0.4, -0.6)
    if len(names) > len(chosen):
        largest = f"the {len(chosen)} largest of {len(names)}"
        panels[0].set_ylabel(f"the first {len(chosen)}" if isinstance(domain, VectorDomain) else largest)


def _most_frequent(run: Run) -> list[int]:
    """The categories of the largest true shares, in the order of the task."""
    shares = [part.truth.get(REPORTERS, 0.0) for part in run.score.parts.values()]
    return sorted(sorted(range(len(shares)), key=lambda place: -shares[place])[:_MOST_ROWS])


def _shares(panels: "Sequence[Axes]", chosen: Sequence[int], run: Run, palette: Palette) -> None:
    rows, parts = np.arange(len(chosen)), list(run.score.parts.values())
    truths = [100 * parts[place].truth.get(REPORTERS, 0.0) for place in chosen]
    panels[0].barh(rows, truths, color=palette.true, alpha=0.9, height=0.7)
    panels[0].set_xlabel("% of people")
    shares = [100 * _share_naming(run, place) for place in chosen]
    panels[1].barh(rows, shares, color=palette.noisy, alpha=0.9, height=0.7)
    panels[1].set_xlabel("% of reports\nthat name it")
    bars = [_bar_of_category(run, place, truth) for place, truth in zip(chosen, truths, strict=True)]
    _bars(panels[2], bars, "estimated share, %", palette)


def _share_naming(run: Run, place: int) -> float:
    found = reported_part(run, place)
    return float(found.values @ found.counts) / max(float(found.counts.sum()), 1.0)


def _bar_of_category(run: Run, place: int, truth: float) -> _Bar | None:
    one = run.result.parts[place] if run.result.parts else None
    if one is None or one.mean is None or REPORTERS not in one.intervals:
        return None
    low, high = one.intervals[REPORTERS]
    return _Bar(100 * one.mean, (100 * low, 100 * high), truth)


def _means(panels: "Sequence[Axes]", chosen: Sequence[int], run: Run, domain: VectorDomain, palette: Palette) -> None:
    coordinates = [domain.coordinates[place] for place in chosen]
    _spreads(panels[0], coordinates, true_vectors(run)[:, chosen], palette)
    _levels(panels[1], chosen, run, palette)
    bars = [_bar_of_coordinate(run, place, domain.coordinates[place]) for place in chosen]
    _bars(panels[2], bars, "mean, % of the range", palette)


def _bar_of_coordinate(run: Run, place: int, coordinate: Coordinate) -> _Bar | None:
    one = run.result.parts[place] if run.result.parts else None
    if one is None or one.mean is None or REPORTERS not in one.intervals:
        return None
    low, high = one.intervals[REPORTERS]
    return _Bar(
        _per_cent(one.mean, coordinate),
        (_per_cent(low, coordinate), _per_cent(high, coordinate)),
        _per_cent(run.score.parts[coordinate.name].truth[REPORTERS], coordinate),
    )


def _spreads(axes: "Axes", coordinates: Sequence[Coordinate], columns: NDArray[np.float64], palette: Palette) -> None:
    """Of each coordinate where nine tenths of the people lie, and their mean, on its own range."""
    for row, coordinate in enumerate(coordinates):
        column = columns[:, row]
        scaled = [_per_cent(value, coordinate) for value in column[np.isfinite(column)].tolist()]
        if scaled:
            ends = np.percentile(scaled, _SPREAD)
            axes.plot(ends, (row, row), "-", color=palette.true, lw=8, alpha=0.45, solid_capstyle="butt")
            axes.plot(float(np.mean(scaled)), row, "D", color=palette.true, ms=7, mec=palette.ground)
    axes.set_xlim(0, 100)
    axes.set_xlabel("mean and central\n90 %, % of range")


def _levels(axes: "Axes", chosen: Sequence[int], run: Run, palette: Palette) -> None:
    """Of the reports that drew a coordinate, what share named each level, light for the lowest."""
    for row, place in enumerate(chosen):
        found = reported_part(run, place)
        start, total = 0.0, max(float(found.counts.sum()), 1.0)
        for level, count in zip(found.values.tolist(), found.counts.tolist(), strict=True):
            wide, shade = 100 * count / total, 0.3 + 0.6 * level
            axes.barh(row, wide, left=start, color=palette.noisy, alpha=shade, height=0.7, ec=palette.ground)
            start += wide
    axes.set_xlim(0, 100)
    axes.set_xlabel("% of reports, by\nlevel (light = low)")


def _per_cent(value: float, coordinate: Coordinate) -> float:
    return 100 * (value - coordinate.lower) / (coordinate.upper - coordinate.lower)


def _bars(axes: "Axes", bars: Sequence[_Bar | None], what: str, palette: Palette) -> None:
    """An error bar a row, with the truth beside the estimate; short ones as distances from the truth."""
    size = 8 if len(bars) <= _CROWDED else 5
    there = [bar for bar in bars if bar is not None]
    if there and _span(bar.interval[1] - bar.interval[0] for bar in there) < _SHORT * _span(bar.truth for bar in there):
        bars = [None if bar is None else bar.off() for bar in bars]
        axes.axvline(0, color=palette.faint, lw=0.8, zorder=0)
        what = "off the truth,\npoints"
    axes.set_xlabel(what)
    for row, bar in enumerate(bars):
        if bar is None:
            continue
        axes.plot(bar.interval, (row, row), "|-", color=palette.ink, lw=1.8, ms=size, mew=1.8)
        axes.plot(bar.estimate, row, "o", color=palette.noisy, ms=size, mec=palette.ink, mew=0.8, label="estimate")
        axes.plot(bar.truth, row, "D", color=palette.true, ms=size - 1, mec=palette.ground, mew=0.6, label="truth")
    handles, labels = axes.get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))
    if once and axes.figure is not None:
        axes.figure.legend(once.values(), once.keys(), loc="outside lower right", ncols=2, fontsize=10.5)


def _span(numbers: Iterable[float]) -> float:
    """The largest distance of one of these numbers from zero."""
    return max(map(abs, numbers), default=0.0)


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"
