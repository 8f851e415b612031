"""Figures of a sweep: error, coverage and bias along an axis, with error bars; panels share their axes.

An error is drawn beside what the law of the reports promises, coverage beside the nominal one with the intervals of
Clopper and Pearson, and bias in its own standard errors, beside what chance does in 95 of 100 cases.
"""

from collections.abc import Callable, Sequence
from math import ceil
from typing import TYPE_CHECKING

from hush_aggregator.estimate import ANYTIME, ANYTIME_POPULATION, POPULATION, REPORTERS
from hush_common.formatting import exact, whole
from hush_simulations.display.marks import Mark, beside, marks, points
from hush_simulations.display.style import LIGHT, Palette, Picture, canvas, logarithmic, on_log_axis, styled
from hush_simulations.display.sweep_layout import Layout, Line, laid_out, telling
from hush_simulations.sweeps.result import LAST, SweepResult, SweepRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["bias_figure", "coverage_figure", "error_figure", "pictures_of_sweep"]

_BROAD, _MOST_PANELS, _MOST_TICKS = 3, 12, 6
_CHANCE, _LEAST, _FAR = 1.96, 3.0, 20.0
_INTERVALS = {
    REPORTERS: "reporters",
    POPULATION: "population",
    ANYTIME: "anytime",
    ANYTIME_POPULATION: "anytime, pop.",
}


_Drawing = Callable[["Axes", Line, Mark, Palette], None]


def pictures_of_sweep(result: SweepResult) -> dict[str, Picture]:
    """The figures that `hush sweep` writes, by the names of their files."""
    about = f"{whole(result.cells)} cells, {whole(result.trials)} trials each"
    axis = laid_out(result).axis
    return {
        "sweep-error": Picture(
            "Error of the estimate",
            f"Root mean square error against {axis}, measured with intervals, beside theory: {about}.",
            lambda palette: error_figure(result, palette),
        ),
        "sweep-coverage": Picture(
            "Coverage of the intervals",
            f"How often the intervals hold the truth, against {axis}, beside what they promise: {about}.",
            lambda palette: coverage_figure(result, palette),
        ),
        "sweep-bias": Picture(
            "Bias of the estimate",
            f"Mean error in its standard errors against {axis}; the band is chance: {about}.",
            lambda palette: bias_figure(result, palette),
        ),
    }


def error_figure(result: SweepResult, palette: Palette = LIGHT) -> "Figure":
    """Root mean square error, measured and by theory, of the part of the answer with the largest.

    Args:
        result: of `hush.sweep`.
        palette: the colours.
    """
    rows = [telling(cell) for panel in laid_out(result).panels for line in panel.lines for cell in line.cells]
    unit = _unit(rows)
    scale = 1 if rows[0].unit else 100

    def draw(axes: "Axes", line: Line, mark: Mark, palette: Palette) -> None:
        there = [(at, telling(cell)) for at, cell in zip(line.at, line.cells, strict=True)]
        theory = [(at, scale * row.theory_stderr) for at, row in there if row.theory_stderr]
        found = [
            (at, scale * row.rmse, scale * row.rmse_lower, scale * row.rmse_upper)
            for at, row in there
            if row.rmse and row.rmse_lower is not None and row.rmse_upper is not None
        ]
        if theory:
            axes.plot([at for at, _ in theory], [error for _, error in theory], color=mark.colour, lw=1.6)
        if found:
            if not theory:
                axes.plot([one[0] for one in found], [one[1] for one in found], color=mark.colour, lw=0.8, alpha=0.6)
            points(axes, found, line.name, mark, palette)

    figure = _figure(result, "Error of the estimate", f"error (rms), {unit}", draw, palette, log=True)
    return _finished(
        figure, palette, [("theory", "-"), ("measured, 95 %", "|")] if any(r.theory_stderr for r in rows) else []
    )


def coverage_figure(result: SweepResult, palette: Palette = LIGHT) -> "Figure":
    """How often intervals hold the truth, a row of panels for each interval; of the part that is covered least.

    Args:
        result: of `hush.sweep`.
        palette: the colours.
    """
    layout, nominal = laid_out(result), 100 * result.confidence
    known = {row.interval for row in result.rows if row.scope == LAST and row.coverage is not None}
    names = [name for name in _INTERVALS if name in known] or [REPORTERS]
    names = names[: _BROAD if len(layout.panels) <= _BROAD else 1]

    def drawing(interval: str) -> _Drawing:
        def draw(axes: "Axes", line: Line, mark: Mark, palette: Palette) -> None:
            found = []
            for at, cell in zip(line.at, line.cells, strict=True):
                rows = [
                    row for row in cell if row.interval == interval and row.scope == LAST and row.coverage is not None
                ]
                worst = min(rows, key=lambda row: row.coverage or 0.0, default=None)
                if worst and worst.coverage is not None:
                    ends = worst.coverage_lower or 0.0, worst.coverage_upper or 0.0
                    found.append((at, 100 * worst.coverage, 100 * ends[0], 100 * ends[1]))
            axes.axhline(nominal, color=palette.ink, lw=1.2, ls=(0, (4, 3)), zorder=0)
            if found:
                points(axes, beside(layout, found, mark), line.name, mark, palette)

        return draw

    figure = _figure(
        result, "Coverage of the intervals", "trials covered, %", [drawing(one) for one in names], palette, rows=names
    )
    return _finished(figure, palette, [(f"{exact(result.confidence, scale=100)} % promised", "--")])


def bias_figure(result: SweepResult, palette: Palette = LIGHT) -> "Figure":
    """The mean error in its standard errors; the band holds 95 of 100 of an estimator without bias.

    Args:
        result: of `hush.sweep`.
        palette: the colours.
    """

    def draw(axes: "Axes", line: Line, mark: Mark, palette: Palette) -> None:
        found = []
        for at, cell in zip(line.at, line.cells, strict=True):
            row = telling(cell)
            if row.bias is not None and row.bias_stderr:
                off = row.bias / row.bias_stderr
                found.append((at, off, off, off))
        axes.axhspan(-_CHANCE, _CHANCE, color=palette.faint, alpha=0.15, lw=0, zorder=0)
        axes.axhline(0, color=palette.faint, lw=0.8, zorder=0)
        axes.plot([one[0] for one in found], [one[1] for one in found], color=mark.colour, lw=1.2)
        if found:
            points(axes, found, line.name, mark, palette)

    figure = _figure(result, "Bias of the estimate", "bias, in standard errors", draw, palette)
    low, high = figure.axes[0].get_ylim()
    for axes in figure.axes:
        if max(-low, high) > _FAR:
            axes.set_yscale("symlog", linthresh=_LEAST)
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.minorticks_off()
        axes.set_ylim(min(low, -_LEAST), max(high if high < _FAR else 1.5 * high, _LEAST))
    return _finished(figure, palette, [("95 % by chance", "band")])


def _unit(rows: Sequence[SweepRow]) -> str:
    units = sorted({row.unit for row in rows})
    return ", ".join(unit or "points" for unit in units)


def _figure(
    result: SweepResult,
    title: str,
    label: str,
    draw: _Drawing | Sequence[_Drawing],
    palette: Palette,
    *,
    rows: Sequence[str] = (),
    log: bool = False,
) -> "Figure":
    """Panels with shared axes: side by side, or a row of them for each of several drawings."""
    layout = laid_out(result)
    panels = layout.panels[:_MOST_PANELS]
    drawings = [draw] if callable(draw) else list(draw)
    columns = min(len(panels), _BROAD)
    high = len(drawings) if len(drawings) > 1 else ceil(len(panels) / columns)
    with styled(palette):
        figure = canvas(1.5 + max(2.6, 1.7 * high) if high > 1 or columns > 1 else 4.2)
        grid = figure.subplots(high, columns, sharex=True, sharey=True, squeeze=False)
        some = f" (the first {len(panels)} of {len(layout.panels)})" if len(panels) < len(layout.panels) else ""
        figure.suptitle(title + some, x=0.02, ha="left", fontsize=14, fontweight="bold")
        for number, axes in enumerate(grid.flat):
            row, column = divmod(number, columns)
            place = column if len(drawings) > 1 else number
            if place >= len(panels):
                axes.set_visible(False)
                continue
            if row == 0 or len(drawings) == 1:
                axes.set_title(panels[place].title, fontsize=11.5)
            lines = panels[place].lines
            for line, mark in zip(lines, marks(len(lines), palette), strict=True):
                drawings[row if len(drawings) > 1 else 0](axes, line, mark, palette)
            if not axes.containers:
                axes.text(0.5, 0.5, "none is made", transform=axes.transAxes, ha="center", color=palette.faint)
            if column == columns - 1 and len(rows) > 1:
                axes.annotate(
                    _INTERVALS[rows[row]],
                    (1.03, 0.5),
                    xycoords="axes fraction",
                    rotation=270,
                    va="center",
                    fontsize=10.5,
                )
            axes.grid(axis="y", color=palette.faint, alpha=0.25, lw=0.6)
        _scale(figure, layout, log=log)
        below = [axes for axes in figure.axes if axes.get_visible()][-min(columns, len(panels)) :]
        below[len(below) // 2].set_xlabel(layout.axis)
        figure.supylabel(label, fontsize=11.5)
    return figure


def _scale(figure: "Figure", layout: Layout, *, log: bool) -> None:
    """The scales of all panels, which share them; the places of few cells have the ticks."""
    axes = figure.axes[0]
    if layout.logarithmic or log:
        logarithmic(axes, ("x" if layout.logarithmic else "") + ("y" if log else ""))
    places = sorted({at for panel in layout.panels for line in panel.lines for at in line.at})
    if layout.names:
        axes.set_xticks(range(len(layout.names)), layout.names)
    elif len(places) <= _MOST_TICKS:
        axes.set_xticks(places, [on_log_axis(at) if at else "0" for at in places])
        for one in figure.axes:
            one.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)


def _finished(figure: "Figure", palette: Palette, signs: Sequence[tuple[str, str]]) -> "Figure":
    """With a legend below the panels: the lines, and what else is drawn."""
    from matplotlib.lines import Line2D  # noqa: PLC0415 - matplotlib takes a second to import
    from matplotlib.patches import Patch  # noqa: PLC0415

    with styled(palette):
        handles, labels = figure.axes[0].get_legend_handles_labels()
        extra = [
            Patch(color=palette.faint, alpha=0.3)
            if sign == "band"
            else Line2D(
                [], [], color=palette.ink, lw=1.4, marker="o" if sign == "|" else "", ls=sign if sign != "|" else ""
            )
            for _, sign in signs
        ]
        figure.legend(
            [*handles, *extra],
            [*labels, *(name for name, _ in signs)],
            loc="outside lower center",
            ncols=3,
            fontsize=10.5,
            columnspacing=1.2,
            handletextpad=0.5,
        )
        figure.draw_without_rendering()
    return figure
