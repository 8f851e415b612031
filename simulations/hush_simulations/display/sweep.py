"""How a sweep is shown: its table, and figures of error, coverage and bias along an axis."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from math import ceil
from typing import TYPE_CHECKING, cast

import numpy as np

from hush_aggregator.estimate import POPULATION, REPORTERS
from hush_aggregator.estimate.numerics.quantiles import clopper_pearson_shares
from hush_aggregator.publish.presentation import INTERVALS, NumberFormat, interval_name
from hush_common.errors import OptionError
from hush_common.formatting import exact, fixed, significant, whole
from hush_common.terminal import Column, Renderable, Row, Sentence, Table
from hush_simulations.display.style import LIGHT, Palette, Picture, canvas, finish, logarithmic, on_log_axis, styled
from hush_simulations.sweeps.result import BARS, LAST, TOGETHER, Parameter, SweepResult, SweepRow

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_LOG_FROM = 8
"""Ratio of the largest to the smallest value of an axis from which it is logarithmic."""
_SHORT = 24


def representative_row(rows: Sequence[SweepRow]) -> SweepRow:
    """Return the row that represents a cell: of all rounds if there are several, of the part with the largest error."""
    scopes = {row.scope for row in rows}
    scope = TOGETHER if TOGETHER in scopes else LAST
    some = [row for row in rows if row.scope == scope and row.interval == REPORTERS] or list(rows)
    return max(some, key=lambda row: row.rmse or 0.0)


@dataclass(frozen=True, slots=True)
class FigureLine:
    """Cells that differ only along the axis, and the position of each; `name` is empty if there is one line."""

    name: str
    cells: tuple[tuple[SweepRow, ...], ...]
    at: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class FigurePanel:
    """Lines that are drawn together."""

    title: str
    lines: tuple[FigureLine, ...]


@dataclass(frozen=True, slots=True)
class FigureLayout:
    """The arrangement of a figure; `names` are those of the positions 0, 1, … if the axis has no numbers."""

    along: str
    axis: str
    logarithmic: bool
    names: tuple[str, ...]
    panels: tuple[FigurePanel, ...]


def layout_of(result: SweepResult) -> FigureLayout:
    """Arrange a sweep: along the axis is epsilon if it was varied, else the share of liars, else another number.

    Of the other axes the number of devices makes lines, or the last one; the rest make panels.
    """
    along = min(result.axes, key=lambda name: (_rank(name, result.axes[name]), -len(result.axes[name])))
    others = [name for name in result.axes if name != along and len(result.axes[name]) > 1]
    lines = next((name for name in others if _is_clients(name)), others[-1] if others else None)
    apart = [name for name in others if name != lines]
    ticks = result.axes[along]
    places = _places(along, ticks)
    cells = [tuple(rows) for _, rows in groupby(result.rows, key=lambda row: row.cell)]
    panels: dict[str, dict[str, list[tuple[SweepRow, ...]]]] = {}
    for cell in cells:
        values = cell[0].parameters
        title = ", ".join(value_label(name, values[name], cell[0]) for name in apart)
        line = "" if lines is None else value_label(lines, values[lines], cell[0])
        panels.setdefault(title, {}).setdefault(line, []).append(cell)
    return FigureLayout(
        along,
        _axis_label(along, has_rounds=any(row.rounds > 1 for row in result.rows)),
        bool(places) and min(places.values()) > 0 and max(places.values()) >= _LOG_FROM * min(places.values()),
        () if places else tuple(value_label(along, value, cells[0][0]) for value in ticks),
        tuple(
            FigurePanel(
                title, tuple(_line(name, some, along, result.axes[along], places) for name, some in by_line.items())
            )
            for title, by_line in panels.items()
        ),
    )


def _line(
    name: str,
    cells: Sequence[tuple[SweepRow, ...]],
    along: str,
    values: Sequence[Parameter],
    places: Mapping[Parameter, float],
) -> FigureLine:
    where = places or {value: float(place) for place, value in enumerate(values)}
    ordered = sorted(cells, key=lambda cell: where[cell[0].parameters[along]])
    return FigureLine(name, tuple(ordered), tuple(where[cell[0].parameters[along]] for cell in ordered))


def _rank(name: str, values: Sequence[Parameter]) -> int:
    numbers = len(values) > 1 and bool(_places(name, values))
    wanted = (name.endswith("epsilon"), _is_share_of_liars(name), not _is_clients(name), True)
    return next(place for place, is_it in enumerate(wanted) if is_it) if numbers else len(wanted) + (len(values) < 2)  # noqa: PLR2004


def _is_clients(name: str) -> bool:
    return name.rpartition(".")[2] == "clients"


def _is_share_of_liars(name: str) -> bool:
    return name.startswith("liars") and name.endswith("share")


def _places(name: str, values: Sequence[Parameter]) -> dict[Parameter, float]:
    """The values as numbers, shares in per cent; empty if one is not a number."""
    found: dict[Parameter, float] = {}
    for value in values:
        try:
            found[value] = float(value) * (100 if _is_share_of_liars(name) or name.startswith("network.") else 1)
        except ValueError:
            return {}
    return {} if any(isinstance(value, bool) for value in values) else found


def _axis_label(name: str, *, has_rounds: bool) -> str:
    last = name.rpartition(".")[2]
    if last == "epsilon":
        return "ε over all rounds" if has_rounds else "ε"
    if _is_clients(name):
        return "devices"
    if _is_share_of_liars(name):
        return "liars, % of the devices"
    return f"{name}, %" if name.startswith("network.") else name.removeprefix("task.").replace("_", " ")


def value_label(name: str, value: Parameter, row: SweepRow) -> str:
    """Return a short label of a value."""
    last = name.rpartition(".")[2]
    if _is_clients(name):
        return f"{whole(row.clients)} devices"
    if last == "epsilon":
        return f"ε = {value}"
    if last in ("mechanism", "scenario"):
        return str(value).replace("_", " ")
    if _is_share_of_liars(name):
        return f"{exact(row.liars, scale=100)} % liars"
    if isinstance(value, str) and value.startswith("{"):
        parts = json.loads(value)
        if {"lower", "upper"} <= parts.keys():
            return f"{parts['lower']:g} to {parts['upper']:g} {row.unit}".rstrip()
    text = f"{last} {value}"
    return text if len(text) <= _SHORT else text[: _SHORT - 1] + "…"


_SHAPES = "osD^vPX*"


@dataclass(frozen=True, slots=True)
class Mark:
    """The look of a line: its colour, the shape of its points, and its position among `of` lines."""

    colour: str
    shape: str
    place: int
    of: int


Point = tuple[float, float, float, float]
"""Position, value, and the ends of its interval."""


def draw_points(
    axes: "Axes", found: Sequence[Point], name: str, mark: Mark, palette: Palette, *, bars: bool = True
) -> None:
    """Draw measured points, with `bars` with their intervals."""
    at, value, low, high = (np.array([one[place] for one in found]) for place in range(4))
    axes.errorbar(
        at,
        value,
        yerr=(np.maximum(value - low, 0), np.maximum(high - value, 0)) if bars else None,
        fmt=mark.shape,
        color=mark.colour,
        ms=5.5,
        mec=palette.ground,
        mew=0.6,
        elinewidth=1.4,
        capsize=2.5,
        label=name or None,
    )


_MOST_APART = 0.22  # of the distance between two places on the axis: that of two lines
_TOGETHER = 0.7  # that of all lines


def side_by_side(layout: FigureLayout, found: Sequence[Point], mark: Mark) -> list[Point]:
    """Shift the points of a line a little, so that lines do not hide each other."""
    shift = mark.place - (mark.of - 1) / 2
    share = min(_MOST_APART, _TOGETHER / mark.of)
    places = sorted({at for panel in layout.panels for line in panel.lines for at in line.at})
    if len(places) < 2:  # noqa: PLR2004 - nothing lies between
        return [(at + 0.1 * shift, *rest) for at, *rest in found]  # type: ignore[misc]
    if layout.logarithmic:
        factor = min(after / before for before, after in pairwise(places)) ** (share * shift)
        return [(at * factor, value, low, high) for at, value, low, high in found]
    apart = share * min(after - before for before, after in pairwise(places))
    return [(at + apart * shift, value, low, high) for at, value, low, high in found]


def line_marks(count: int, palette: Palette) -> list[Mark]:
    """Return the looks of `count` lines; more lines than colours get colours in between."""
    from matplotlib.colors import LinearSegmentedColormap, to_hex  # noqa: PLC0415 - matplotlib takes a second to import

    colours = list(palette.lines)
    if count > len(colours):
        ramp = LinearSegmentedColormap.from_list("lines", [palette.third, palette.true, palette.noisy])
        colours = [to_hex(ramp(place)) for place in np.linspace(0, 1, count)]
    return [Mark(colours[place], _SHAPES[place % len(_SHAPES)], place, count) for place in range(count)]


_BROAD, _MOST_PANELS, _MOST_TICKS = 3, 12, 6
_CHANCE, _LEAST, _FAR = 1.96, 3.0, 20.0


_Drawing = Callable[["Axes", FigureLine, Mark, Palette], None]


def pictures_of_sweep(result: SweepResult) -> dict[str, Picture]:
    """The figures that `hush sweep` writes, by the names of their files."""
    about = f"{whole(result.cells)} cells, {whole(result.trials)} trials each"
    axis = layout_of(result).axis
    return {
        "sweep-error": Picture(
            _named(result, "Error of the estimate"),
            f"Root mean square error against {axis}, measured with intervals, next to theory: {about}.",
            lambda palette: error_figure(result, palette),
        ),
        "sweep-coverage": Picture(
            _named(result, "Coverage of the intervals"),
            f"How often the intervals hold the truth, against {axis}, next to the promised share: {about}.",
            lambda palette: coverage_figure(result, palette),
        ),
        "sweep-bias": Picture(
            _named(result, "Bias of the estimate"),
            f"Mean error in its standard errors against {axis}; the band is chance: {about}.",
            lambda palette: bias_figure(result, palette),
        ),
    }


def picture_of_sweep(result: SweepResult, what: str) -> Picture:
    """Return one of the figures: error, coverage or bias."""
    pictures = pictures_of_sweep(result)
    if f"sweep-{what}" not in pictures:
        names = ", ".join(name.removeprefix("sweep-") for name in pictures)
        raise OptionError("what", f"{str(what)[:40]!r} is not one of the figures; pass one of {names}")
    return pictures[f"sweep-{what}"]


def error_figure(result: SweepResult, palette: Palette = LIGHT) -> "Figure":
    """Return the root mean square error of the worst part, measured and by theory."""
    rows = [
        representative_row(cell) for panel in layout_of(result).panels for line in panel.lines for cell in line.cells
    ]
    unit = _unit(rows)
    scale = 1 if rows[0].unit else 100

    signs: dict[str, str] = {}

    def draw(axes: "Axes", line: FigureLine, mark: Mark, palette: Palette) -> None:
        there = [(at, representative_row(cell)) for at, cell in zip(line.at, line.cells, strict=True)]
        theory = [(at, scale * row.theory_stderr) for at, row in there if row.theory_stderr]
        theory = theory if len(theory) > 1 else []  # a line needs two points
        found = [
            (at, scale * row.rmse, scale * row.rmse_lower, scale * row.rmse_upper)
            for at, row in there
            if row.rmse and row.rmse_lower is not None and row.rmse_upper is not None
        ]
        if theory:
            axes.plot([at for at, _ in theory], [error for _, error in theory], color=mark.colour, lw=1.6)
            signs["theory"] = "-"
        if found:
            signs["measured, 95 %"] = "|"
            if not theory:
                axes.plot([one[0] for one in found], [one[1] for one in found], color=mark.colour, lw=0.8, alpha=0.6)
            draw_points(axes, found, line.name, mark, palette)

    figure = _figure(result, "Error of the estimate", f"error (rms), {unit}", draw, palette, log=True)
    return _finished(figure, palette, sorted(signs.items()))


def coverage_figure(result: SweepResult, palette: Palette = LIGHT) -> "Figure":
    """Return how often intervals hold the truth, a row of panels for each interval; of the worst part."""
    layout, nominal = layout_of(result), 100 * result.confidence
    known = {row.interval for row in result.rows if row.scope == LAST and row.coverage is not None}
    names = [name for name in INTERVALS if name in known] or [REPORTERS]
    names = names[: _BROAD if len(layout.panels) <= _BROAD else 1]

    def drawing(interval: str) -> _Drawing:
        def draw(axes: "Axes", line: FigureLine, mark: Mark, palette: Palette) -> None:
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
                draw_points(axes, side_by_side(layout, found, mark), line.name, mark, palette)

        return draw

    figure = _figure(
        result, "Coverage of the intervals", "trials covered, %", [drawing(one) for one in names], palette, rows=names
    )
    return _finished(figure, palette, [(f"{exact(result.confidence, scale=100)} % promised", "--")])


def bias_figure(result: SweepResult, palette: Palette = LIGHT) -> "Figure":
    """Return the mean error in its standard errors; the band holds 95 of 100 of an unbiased estimator."""
    layout = layout_of(result)

    def draw(axes: "Axes", line: FigureLine, mark: Mark, palette: Palette) -> None:
        found = []
        for at, cell in zip(line.at, line.cells, strict=True):
            row = representative_row(cell)
            if row.bias is not None and row.bias_stderr:
                off = row.bias / row.bias_stderr
                found.append((at, off, off, off))
        if not axes.patches:  # once, not for each line
            axes.axhspan(-_CHANCE, _CHANCE, color=palette.faint, alpha=0.3, lw=0, zorder=0)
        axes.axhline(0, color=palette.faint, lw=0.8, zorder=0)
        if found:  # points alone: neighbours are independent
            draw_points(axes, side_by_side(layout, found, mark), line.name, mark, palette, bars=False)

    figure = _figure(result, "Bias of the estimate", "bias, in standard errors", draw, palette)
    low, high = figure.axes[0].get_ylim()
    for axes in figure.axes:
        if max(-low, high) > _FAR:
            axes.set_yscale("symlog", linthresh=_LEAST)
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}".replace("-", "\N{MINUS SIGN}"))
            axes.minorticks_off()
        axes.set_ylim(*(sign * max(end if end < _FAR else 1.5 * end, _LEAST) for sign, end in ((-1, -low), (1, high))))
    return _finished(figure, palette, [("95 % by chance", "band")])


def _unit(rows: Sequence[SweepRow]) -> str:
    units = sorted({row.unit for row in rows})
    return ", ".join(unit or "points" for unit in units)


def _named(result: SweepResult, title: str) -> str:
    """Return the title of a figure; with its question, if there is one."""
    questions = {row.task_id for row in result.rows}
    return f"{title}: {questions.pop()}" if len(questions) == 1 else title


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
    layout = layout_of(result)
    panels = layout.panels[:_MOST_PANELS]
    drawings = [draw] if callable(draw) else list(draw)
    columns = min(len(panels), _BROAD)
    high = len(drawings) if len(drawings) > 1 else ceil(len(panels) / columns)
    with styled(palette):
        figure = canvas(1.5 + max(2.6, 1.7 * high) if high > 1 or columns > 1 else 4.2)
        grid = figure.subplots(high, columns, sharex=True, sharey=True, squeeze=False)
        some = f" (the first {len(panels)} of {len(layout.panels)})" if len(panels) < len(layout.panels) else ""
        figure.suptitle(_named(result, title) + some, x=0.02, ha="left", fontsize=14, fontweight="bold")
        for number, axes in enumerate(grid.flat):
            row, column = divmod(number, columns)
            place = column if len(drawings) > 1 else number
            if place >= len(panels):
                axes.set_visible(False)
                continue
            if row == 0 or len(drawings) == 1:
                axes.set_title(panels[place].title, fontsize=11.5)
            lines = panels[place].lines
            for line, mark in zip(lines, line_marks(len(lines), palette), strict=True):
                drawings[row if len(drawings) > 1 else 0](axes, line, mark, palette)
            if not axes.containers:
                axes.text(0.5, 0.5, "no interval", transform=axes.transAxes, ha="center", color=palette.faint)
            if column == columns - 1 and len(rows) > 1:
                axes.annotate(
                    interval_name(rows[row]),
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


def _scale(figure: "Figure", layout: FigureLayout, *, log: bool) -> None:
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


_LEGEND_COLUMNS = 3


def _legend_sign(sign: str, palette: Palette) -> "Artist":
    """Return what stands for a sign in the legend: a band, a point with its interval, or a line in that style."""
    from matplotlib.collections import LineCollection  # noqa: PLC0415 - matplotlib takes a second to import
    from matplotlib.container import ErrorbarContainer  # noqa: PLC0415
    from matplotlib.lines import Line2D  # noqa: PLC0415
    from matplotlib.patches import Patch  # noqa: PLC0415

    if sign == "band":
        return Patch(color=palette.faint, alpha=0.3)
    if sign != "|":
        return Line2D([], [], color=palette.ink, lw=1.4, ls=sign)
    point = Line2D([], [], color=palette.ink, marker="o", ms=5.5, mec=palette.ground, mew=0.6, ls="")
    ends = tuple(Line2D([], [], color=palette.ink, marker="_", ms=5, ls="") for _ in range(2))
    bar = LineCollection([], colors=[palette.ink], linewidths=1.4)
    # a legend takes containers, too; matplotlib's types know artists only
    return cast("Artist", ErrorbarContainer((point, ends, (bar,)), has_yerr=True))


def _finished(figure: "Figure", palette: Palette, signs: Sequence[tuple[str, str]]) -> "Figure":
    with styled(palette):
        handles, labels = figure.axes[0].get_legend_handles_labels()
        extra = [_legend_sign(sign, palette) for _, sign in signs]
        entries = list(zip([*handles, *extra], [*labels, *(name for name, _ in signs)], strict=True))
        # matplotlib fills columns one after the other; a reader goes along the rows
        entries = [one for column in range(_LEGEND_COLUMNS) for one in entries[column::_LEGEND_COLUMNS]]
        figure.legend(
            [handle for handle, _ in entries],
            [label for _, label in entries],
            loc="outside lower center",
            ncols=_LEGEND_COLUMNS,
            fontsize=10.5,
            columnspacing=1.2,
            handletextpad=0.5,
        )
        finish(figure)
    return figure


_DIGITS = 3  # of the error (rms), which is what the table is about
_MOST = 60
"""Cells in the table; more are for the files."""


def sweep_blocks(result: SweepResult) -> list[Renderable]:
    """What `hush sweep` ends with."""
    shown = [representative_row(list(rows)) for _, rows in groupby(result.rows, key=lambda row: row.cell)]
    blocks: list[Renderable] = [Sentence(_head(result)), Sentence("")]
    if len(shown) <= _MOST:
        blocks += [_table(result, shown), Sentence("")]
    else:
        blocks.append(Sentence(f"{whole(len(shown))} cells are more than a table shows; every row is in sweep.csv."))
    return blocks + [Sentence(text) for text in _remarks(result)]


def _head(result: SweepResult) -> str:
    axes = " x ".join(f"{name} ({len(values)})" for name, values in result.axes.items())
    return f"{whole(result.cells)} cells: {axes}; {whole(result.trials)} trials each, seed {result.seed}"


def _table(result: SweepResult, shown: Sequence[SweepRow]) -> Table:
    parts = any(row.part for row in shown)
    columns = [
        Column(name, right=all(_is_number(one) for one in values), named=True) for name, values in _titles(result)
    ]
    columns += [Column("worst part")] if parts else []
    columns += [Column(title, right=True) for title in ("bias", "error (rms)", "theory", "covered", "width")]
    rows = [Row([*_axes(row), *([row.part] if parts else []), *_figures(row)]) for row in shown]
    return Table(columns, rows, grouped=len(result.axes))


def _titles(result: SweepResult) -> list[tuple[str, Sequence[Parameter]]]:
    """Return the last word of each name if these differ."""
    last = [name.rpartition(".")[2] for name in result.axes]
    short = last if len(set(last)) == len(last) else list(result.axes)
    return list(zip(short, result.axes.values(), strict=True))


def _is_number(value: Parameter) -> bool:
    return isinstance(value, int | float) or value.replace(".", "", 1).isdecimal()


def _axes(row: SweepRow) -> list[str]:
    return [_value(name, one, row) for name, one in row.parameters.items()]


def _value(name: str, one: Parameter, row: SweepRow) -> str:
    if isinstance(one, int | float):
        return exact(one)
    return value_label(name, one, row) if one.startswith("{") else one


def _figures(row: SweepRow) -> list[str]:
    wording = NumberFormat.measured(row.unit, row.rmse, _DIGITS) if row.unit else NumberFormat.share(row.rmse, _DIGITS)
    if row.rmse is None or row.bias is None:
        return ["-"] * 5
    error = f" ± {wording.number(row.bias_stderr)}" if row.bias_stderr is not None else ""
    return [
        f"{wording.off(row.bias)}{error}",
        wording.value(row.rmse),
        "-" if row.theory_stderr is None else wording.number(row.theory_stderr),
        _coverage(row),
        "-" if row.mean_width is None else wording.number(row.mean_width),
    ]


def _coverage(row: SweepRow) -> str:
    if row.coverage is None or row.coverage_lower is None or row.coverage_upper is None:
        return "-"
    low, high = (fixed(one, 0, scale=100) for one in (row.coverage_lower, row.coverage_upper))
    return f"{significant(row.coverage, scale=100)} % ({low} to {high})"


def _remarks(result: SweepResult) -> Iterator[str]:
    promised = f"{exact(result.confidence, scale=100)} %"
    yield (
        "bias ± its standard error and error are of the estimate less the mean of those who answered; covered is how "
        f"often the {promised} interval for them held it, with the interval of that share."
    )
    if short := _short(result):
        yield (
            f"In {whole(short)} of {whole(result.cells)} cells an interval holds its truth less often than promised, "
            "beyond what chance does: see coverage in sweep.csv."
        )
    missing = {row.failure for row in result.rows if row.made == 0 and row.target == POPULATION and row.failure}
    if missing:
        yield f"The interval for the population is absent in some cells: {'; '.join(sorted(missing))}."
    yield from result.remarks


def _short(result: SweepResult) -> int:
    """Count cells whose coverage is below the promised one, at 95 % simultaneous confidence over all rows."""
    sure = 1 - (1 - BARS) / max(len(result.rows), 1)
    asked = [(row.made, row.covered, sure) for row in result.rows if row.made]
    cells = [row.cell for row in result.rows if row.made]
    found = zip(cells, clopper_pearson_shares(asked), strict=True)
    return len({cell for cell, (_, high) in found if high < result.confidence})
