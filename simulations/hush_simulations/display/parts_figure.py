"""The picture of categories and vectors: three panels side by side, one row for each category or coordinate."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hush_common.domain import CategoryDomain, Coordinate, VectorDomain
from hush_simulations.engines.experiment import Experiment, Outcome
from hush_simulations.engines.reports import said

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["FAINT", "INK", "NOISY", "TRUE", "draw_parts"]

TRUE, NOISY, INK, FAINT = "#2f7fb8", "#e08a3c", "#22303c", "#7c8a96"
_Rows = NDArray[np.int64]
_MOST_ROWS = 30
_LONGEST_NAME = 22
_CROWDED = 12  # rows from which the letters get smaller
_SPREAD = (5, 95)  # per cent of the people between the ends of a line
_TITLES = ("Kept by the devices", "Received", "What follows")


def draw_parts(
    figure: "Figure",
    found: Mapping[str, Any],
    experiment: Experiment,
    outcome: Outcome,
    domain: CategoryDomain | VectorDomain,
) -> None:
    """Draw the last round: the truth, what was received of it, and the estimates with the error bars of reporters."""
    panels: Sequence[Axes] = figure.subplots(1, 3, sharey=True, width_ratios=(1, 1, 1.3))
    for axes, title in zip(panels, _TITLES, strict=True):
        axes.set_title(title)
    kind = "categories" if isinstance(domain, CategoryDomain) else "coordinates"
    chosen = _rows(found, kind)
    rows = np.arange(len(chosen))
    if isinstance(domain, CategoryDomain):
        _shares(panels, rows, chosen, found, outcome)
    else:
        _spreads(
            panels[0], rows, [domain.coordinates[place] for place in chosen], _columns(experiment, outcome, chosen)
        )
        _levels(panels[1], rows, chosen, outcome)
        _bars(panels[2], rows, [_scaled(found, place, domain.coordinates[place]) for place in chosen])
        panels[2].set_xlim(*_widened(panels[2].get_xlim()))
        panels[2].set_xlabel("mean, % of the range")
    names = [str(fact.get("label", fact.get("name"))) for fact in found["truth"][kind]]
    left_out = len(names) - len(chosen)
    size = 10.5 if len(chosen) <= _CROWDED else 7.5
    panels[0].set_yticks(rows, [_short(names[place]) for place in chosen], fontsize=size)
    panels[0].set_ylim(len(chosen) - 0.4, -0.6)
    if left_out:
        panels[0].set_ylabel(f"the {len(chosen)} largest of {len(names)}" if kind == "categories" else "the first")


def _rows(found: Mapping[str, Any], kind: str) -> list[int]:
    """The categories of the largest true shares, or the first coordinates, in the order of the task."""
    truths = found["truth"][kind]
    places = range(len(truths))
    if kind == "categories":
        places = sorted(places, key=lambda place: -truths[place].get("reporters", 0.0))  # type: ignore[assignment]  # iterable alike
    return sorted(list(places)[:_MOST_ROWS])


def _shares(
    panels: "Sequence[Axes]",
    rows: _Rows,
    chosen: Sequence[int],
    found: Mapping[str, Any],
    outcome: Outcome,
) -> None:
    truths = [100 * found["truth"]["categories"][place].get("reporters", 0.0) for place in chosen]
    panels[0].barh(rows, truths, color=TRUE, alpha=0.85, height=0.7)
    panels[0].set_xlabel("of the people, %")
    bodies = outcome.rounds[-1].received.bodies
    shares = [100 * float(said(outcome.task, bodies, place).mean()) if len(bodies) else 0.0 for place in chosen]
    panels[1].barh(rows, shares, color=NOISY, alpha=0.85, height=0.7)
    panels[1].set_xlabel("of the reports name it, %")
    facts = found["result"].get("categories")
    _bars(
        panels[2],
        rows,
        [
            {
                "estimate": 100 * facts[place]["frequency"],
                "interval": [100 * end for end in facts[place]["intervals"].get("reporters", ())],
                "truth": truth,
            }
            if facts and "reporters" in facts[place].get("intervals", {})
            else {}
            for place, truth in zip(chosen, truths, strict=True)
        ],
    )
    panels[2].set_xlabel("estimated share, %")


def _columns(experiment: Experiment, outcome: Outcome, chosen: Sequence[int]) -> list[list[float]]:
    values = [experiment.values[device] for device in outcome.rounds[-1].reporters]
    vectors = [value for value in values if isinstance(value, tuple)]
    return [[vector[place] for vector in vectors] for place in chosen]


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
    axes.set_xlabel("90 % of them, % of the range")


def _levels(axes: "Axes", rows: _Rows, chosen: Sequence[int], outcome: Outcome) -> None:
    """Of the reports that drew a coordinate, how many named each level, light for the lowest."""
    for row, place in zip(rows, chosen, strict=True):
        start = 0.0
        levels = said(outcome.task, outcome.rounds[-1].received.bodies, place)
        for level in np.unique(levels):
            count = int((levels == level).sum())
            axes.barh(row, count, left=start, color=NOISY, alpha=0.3 + 0.6 * float(level), height=0.7, ec="white")
            start += count
    axes.set_xlabel("reports, low levels light")


def _scaled(found: Mapping[str, Any], place: int, coordinate: Coordinate) -> dict[str, Any]:
    facts = found["result"].get("coordinates")
    if not facts or "reporters" not in facts[place].get("intervals", {}):
        return {}
    return {
        "estimate": _per_cent(facts[place]["mean"], coordinate),
        "interval": [_per_cent(end, coordinate) for end in facts[place]["intervals"].get("reporters", ())],
        "truth": _per_cent(found["truth"]["coordinates"][place]["reporters"], coordinate),
    }


def _per_cent(value: float, coordinate: Coordinate) -> float:
    return 100 * (value - coordinate.lower) / (coordinate.upper - coordinate.lower)


def _bars(axes: "Axes", rows: _Rows, bars: Sequence[Mapping[str, Any]]) -> None:
    """An error bar a row, with the truth beside the estimate."""
    size = 8 if len(rows) <= _CROWDED else 5
    for row, bar in zip(rows, bars, strict=True):
        if not bar:
            continue
        axes.plot(bar["interval"], [row] * len(bar["interval"]), "|-", color=INK, lw=1.8, ms=size, mew=1.8)
        axes.plot(bar["estimate"], row, "o", color=NOISY, ms=size, mec=INK, mew=0.8, label="estimate")
        axes.plot(bar["truth"], row, "D", color=TRUE, ms=size - 1, mec="white", mew=0.6, label="truth")
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
