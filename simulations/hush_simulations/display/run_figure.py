"""The picture of a run: the true values, the noisy reports on their own scale, and the estimates."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import floor, isqrt
from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate import POPULATION, REPORTERS
from hush_aggregator.publish.charts import Range
from hush_aggregator.publish.presentation import NumberFormat, PageNumberFormat, interval_name
from hush_common.axis import Ticks, step_above
from hush_common.domain import Domain, DomainPart
from hush_common.formatting import exact, whole
from hush_simulations.display.distributions import (
    Distribution,
    estimate_ranges,
    part_interval,
    part_range,
    per_cent_of,
    reported_numbers,
    reported_part,
    reported_yes,
    share_naming,
    true_numbers,
    true_vectors,
    without_tails,
)
from hush_simulations.display.style import LIGHT, Palette, Picture, canvas, counted, finish, mark_truth, styled
from hush_simulations.display.table import epsilon_in_words
from hush_simulations.engines.experiment import NOT_PRIVATE
from hush_simulations.results.run import Run, Score

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hush_simulations.results.run import PooledRounds, Round


_FEW = 64  # different reports, up to which a mechanism has an alphabet rather than a scale
_MOST_TICKS = 20
_MOST_MARKS = 6  # on a vertical axis
_ROOM = 0.02  # of a vertical axis
_NARROW = 0.08  # of the axis of the values, below which intervals get one of their own
_LIARS = ((0.01, "1%"), (0.05, "5%"))
_SLIM = 0.04  # of the axis, a bar that stands for one value
_LEGEND = 10.5
_INTERVAL = "interval"
_TWO = 2


def draw_number(figure: "Figure", run: Run, wording: NumberFormat, palette: Palette) -> None:
    """Draw the three panels, one below the other."""
    top, middle, bottom = figure.subplots(3, 1, height_ratios=(3, 3, 4.2))
    top.set_title("Kept by the devices")
    middle.set_title("Received")
    domain = run.task.domain
    if domain.is_share:
        _answers(top, run.truth.get(REPORTERS, 0.0), palette.true, wording)
        _answers(middle, reported_yes(run), palette.noisy, wording)
    else:
        _values(top, domain.parts[0], run, wording, palette)
        _reports(middle, reported_numbers(run), domain.parts[0], wording, palette)
    if len(run.rounds) > 1:
        _estimate_of_rounds(bottom, run, wording, palette)
        return
    _estimate(bottom, run, wording, palette)
    low, high = top.get_xlim()
    if domain.is_share:
        _outside(bottom, run, (low, high), wording, palette)
    ends = [wording.factor * end for interval in run.result.intervals.values() for end in interval]
    if not ends or max(ends) - min(ends) > _NARROW * (high - low):
        bottom.set_xlim(low, high)
    else:
        bottom.set_xlabel(f"{bottom.get_xlabel()}, another scale")
        bottom.locator_params(axis="x", nbins=5)


def _histogram(axes: "Axes", spreads: Sequence[Distribution], colour: str, domain: DomainPart) -> None:
    """Stacked bars of several epsilons, the least noisy at the bottom."""
    values = np.concatenate([one.values for one in spreads])
    if len(values) == 0:
        return
    low, high, few = float(values.min()), float(values.max()), _alphabet(spreads)
    if few is not None:
        width = min(0.8 * float(np.diff(few).min()), _SLIM * (high - low))
        left, edges = few - width / 2, np.append(few, np.inf)
    else:
        least = (domain.upper - domain.lower) / 100
        edges = round_edges(low, high, max((high - low) / min(40, max(8, isqrt(len(values)))), least / 100))
        left, width = edges[:-1], edges[1] - edges[0]
    floor = np.zeros(len(left))
    for one, shade in zip(reversed(spreads), np.linspace(0.9, 0.3, len(spreads)), strict=True):
        heights, _ = np.histogram(one.values, bins=edges, weights=one.counts)
        axes.bar(
            left,
            heights,
            width,
            bottom=floor,
            align="edge",
            color=colour,
            alpha=float(shade),
            edgecolor=axes.get_facecolor(),
            linewidth=0.6,
            label=one.name or None,
        )
        floor += heights


def round_edges(low: float, high: float, width: float) -> NDArray[np.float64]:
    """Return edges at round numbers, which say no more about the extreme values than a bar does."""
    step = float(step_above(width))
    return step * np.arange(floor(low / step), floor(high / step) + 2, dtype=np.float64)


def _alphabet(spreads: Sequence[Distribution]) -> NDArray[np.float64] | None:
    """Return the possible reports if they are few: gaps between bars are then not random."""
    values = np.unique(np.concatenate([one.values for one in spreads]))
    total = sum(float(one.counts.sum()) for one in spreads)
    return values if 1 < len(values) <= min(_FEW, total / 3) else None


def _legend(axes: "Axes", columns: int = 1) -> None:
    """Put the legend in the row of the title, where it covers nothing; each label once."""
    handles, labels = axes.get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))
    axes.legend(
        once.values(),
        once.keys(),
        loc="lower right",
        bbox_to_anchor=(1.01, 0.99),
        ncols=columns,
        fontsize=_LEGEND,
        borderpad=0.1,
        handlelength=1.3,
        handletextpad=0.4,
        columnspacing=1.0,
    )


def _values(axes: "Axes", domain: DomainPart, run: Run, wording: NumberFormat, palette: Palette) -> None:
    _histogram(axes, [true_numbers(run)], palette.true, domain)
    counted(axes, "devices")
    ends = [*axes.get_xlim(), axes.get_xlim()[0] if run.result.mean is None else run.result.mean]
    ends += [end for interval in run.result.intervals.values() for end in interval]
    margin = 0.02 * (max(ends) - min(ends))
    axes.set_xlim(min(ends) - margin, max(ends) + margin)
    axes.set_xlabel(f"true value{_of_unit(wording)}")
    if REPORTERS in run.truth:
        mean = run.truth[REPORTERS]
        axes.axvline(mean, color=palette.ink, lw=1.4, ls=(0, (4, 3)), label=f"mean {wording.value(mean)}")
        _legend(axes)


def _reports(
    axes: "Axes", reports: Sequence[Distribution], domain: DomainPart, wording: NumberFormat, palette: Palette
) -> None:
    """Draw the reports on their own scale; the shaded range is that of the axis above."""
    _histogram(axes, without_tails(reports), palette.noisy, domain)
    unit = f" {wording.unit}" if wording.unit else ""
    label = "legal" if len(reports) > 1 else f"legal, {exact(domain.lower)} to {exact(domain.upper)}{unit}"
    axes.axvspan(domain.lower, domain.upper, color=palette.true, alpha=0.2, lw=0, label=label, zorder=0)
    for bound in (domain.lower, domain.upper):  # the bars hide what is behind them
        axes.axvline(bound, color=palette.true, lw=1.2)
    _legend(axes, columns=len(reports) + 1)
    counted(axes, "reports")
    few = _alphabet(reports)
    rest = "; note the different scale" if few is None else f", one of {len(few)} values"
    axes.set_xlabel(f"decoded report{_of_unit(wording)}{rest}")


def _answers(axes: "Axes", share: float, colour: str, wording: NumberFormat) -> None:
    bars = axes.barh(["no", "yes"], [100 * (1 - share), 100 * share], color=colour, height=0.6, alpha=0.9)
    axes.bar_label(bars, [wording.value(1 - share), wording.value(share)], padding=6)
    axes.set_xlim(0, 108)
    axes.set_xticks(range(0, 101, 20))
    axes.set_xlabel("% of devices" if axes.get_title(loc="left").startswith("Kept") else "% of reports")


def _estimate(axes: "Axes", run: Run, wording: NumberFormat, palette: Palette) -> None:
    result, factor = run.result, wording.factor
    bars = estimate_ranges(run)[::-1]
    for row, bar in enumerate(bars):
        axes.plot((factor * bar.low, factor * bar.high), (row, row), "|-", color=palette.ink, lw=2.2, ms=12, mew=2.2)
        if bar.value is not None:
            axes.plot(factor * bar.value, row, "o", color=palette.noisy, ms=9, mec=palette.ink, label="estimate")
        if bar.truth is not None:
            mark_truth(axes, factor * bar.truth, row, palette)
    _liars(axes, run, palette)
    axes.set_yticks(range(len(bars)), [fill(bar.name, 13) for bar in bars], fontsize=10.5, linespacing=1)
    axes.set_ylim(-0.6, max(len(bars), 1) - 0.4)
    mean_of = f"mean{_of_unit(wording)}" if wording.unit != "%" else "share of yes (%)"
    axes.set_xlabel(f"{mean_of} with {exact(result.confidence, scale=100)} % intervals")
    if bars:
        _title_and_legend(axes, "Estimate", run.result.mean, wording)


def _outside(axes: "Axes", run: Run, ends: tuple[float, float], wording: NumberFormat, palette: Palette) -> None:
    """Draw an estimate beyond the axis as an arrow at its end, with its value."""
    room = _ROOM * (ends[1] - ends[0])
    for row, bar in enumerate(estimate_ranges(run)[::-1]):
        place = None if bar.value is None else wording.factor * bar.value
        if bar.value is None or place is None or ends[0] <= place <= ends[1]:
            continue
        sign, side = (">", "right") if place > ends[1] else ("<", "left")
        at = min(max(place, ends[0] + room), ends[1] - room)
        axes.plot(at, row, sign, color=palette.noisy, ms=10, mec=palette.ink, zorder=3)
        above = {"xytext": (0, 10), "textcoords": "offset points", "ha": side, "fontsize": 10}
        axes.annotate(wording.value(bar.value), (at, row), **above)  # type: ignore[arg-type] # of their types


def _liars(axes: "Axes", run: Run, palette: Palette) -> None:
    """Draw how far liars can have moved the mean, which the intervals do not cover."""
    made, scenario = run.result.estimate, run.experiment.scenario
    share = sum(some.share * (some.reports if some.lie != "replay" else 0) for some in scenario.liars)
    known = [name for most, name in _LIARS if 0 < share <= most and name in made.single.worst_case_bias]
    if not known or made.mean is None:
        return
    bias = made.single.worst_case_bias[known[0]]
    label = f"± {known[0][:-1]} % liars"
    axes.axvspan(made.mean - bias, made.mean + bias, color=palette.noisy, alpha=0.18, lw=0, zorder=0, label=label)


def _estimate_of_rounds(axes: "Axes", run: Run, wording: NumberFormat, palette: Palette) -> None:
    together = run.together if len(run.rounds) <= _MOST_TICKS else None
    rounds: list[Round | PooledRounds] = [*run.rounds, *([together] if together else [])]
    for number, done in enumerate(rounds):
        result = done.result
        if result.mean is None:
            continue
        ends = [wording.factor * end for end in result.intervals.get(REPORTERS, ())]
        axes.plot([number] * len(ends), ends, "_-", color=palette.ink, lw=1.8, ms=8, mew=2)
        axes.plot(
            number, wording.factor * result.mean, "o", color=palette.noisy, ms=7, mec=palette.ink, label="estimate"
        )
        true = wording.factor * done.score.truth[REPORTERS]
        mark_truth(axes, number, true, palette, size=17, upright=False)
    _round_scale(axes, wording)
    axes.locator_params(axis="x", integer=True)
    if together:
        numbers = range(len(run.rounds))
        axes.set_xticks([*numbers, len(run.rounds)], [*map(str, numbers), "all"])
        axes.axvline(len(run.rounds) - 0.5, color=palette.faint, lw=0.8)
    axes.set_xlabel(f"round, from 0, with {exact(run.result.confidence, scale=100)} % intervals for the reporters")
    axes.set_ylabel(f"mean{_of_unit(wording)}" if wording.unit != "%" else "yes (%)")
    if run.together is not None:
        _title_and_legend(axes, "All rounds", run.together.result.mean, wording)
    else:
        _title_and_legend(axes, "Last round", run.result.mean, wording)


def _round_scale(axes: "Axes", wording: NumberFormat) -> None:
    """Let the vertical axis, drawn already, begin and end at round numbers around all that is drawn."""
    low, high = axes.dataLim.intervaly
    if low < high:
        ticks = Ticks.around(low, high, _MOST_MARKS)
        shown = replace(wording, factor=1, decimals=ticks.decimals)
        axes.set_yticks(ticks.values, [shown.number(value) for value in ticks.values])
        room = _ROOM * (ticks.values[-1] - ticks.values[0])  # for the end of an interval at a tick
        axes.set_ylim(ticks.values[0] - room, ticks.values[-1] + room)


def _title_and_legend(axes: "Axes", what: str, mean: float | None, wording: NumberFormat) -> None:
    if mean is None:
        return
    axes.set_title(f"{what} {wording.value(mean)}")
    _legend(axes, columns=3)


def _of_unit(wording: NumberFormat) -> str:
    return f" ({wording.unit})" if wording.unit else ""


_MOST_ROWS = 30
_MOST_SCALES = 5  # coordinates that have an axis of their unit each; more share one, of per cent
_LONGEST_NAME, _BROAD = 26, 14
_SHORT = 0.04  # of the largest truth: an interval of which the ends could not be told apart
_CROWDED = 12  # rows from which the letters get smaller
_SPREAD = (5, 95)  # per cent of the people between the ends of a line
_TITLES = ("Kept", "Received", "Estimate")


def draw_parts(figure: "Figure", run: Run, palette: Palette) -> None:
    """Draw the last round: the truth, the reports, and the estimates with the error bars of reporters."""
    if not run.task.domain.is_share and len(run.score.parts) <= _MOST_SCALES:
        _means_in_units(figure, run, palette)
        return
    panels: Sequence[Axes] = figure.subplots(1, 3, sharey=True, width_ratios=(1, 1, 1.2))
    for axes, title in zip(panels, _TITLES, strict=True):
        axes.set_title(title)
    names, domain = list(run.score.parts), run.task.domain
    if domain.is_share:
        chosen = _most_frequent(run)
        _shares(panels, chosen, run, palette)
    else:
        chosen = list(range(len(names)))[:_MOST_ROWS]
        _means(panels, chosen, run, domain, palette)
    size = 11 if len(chosen) <= _CROWDED else 7.5
    labels = [fill(_short(names[place]), _BROAD) for place in chosen]
    panels[0].set_yticks(np.arange(len(chosen)), labels, fontsize=size)
    panels[0].set_ylim(len(chosen) - 0.4, -0.6)
    if len(names) > len(chosen):
        largest = f"the {len(chosen)} largest of {len(names)}"
        panels[0].set_ylabel(largest if domain.is_share else f"the first {len(chosen)}")


def _most_frequent(run: Run) -> list[int]:
    shares = [part.truth.get(REPORTERS, 0.0) for part in run.score.parts.values()]
    return sorted(sorted(range(len(shares)), key=lambda place: -shares[place])[:_MOST_ROWS])


def _shares(panels: "Sequence[Axes]", chosen: Sequence[int], run: Run, palette: Palette) -> None:
    rows, parts = np.arange(len(chosen)), list(run.score.parts.values())
    truths = [100 * parts[place].truth.get(REPORTERS, 0.0) for place in chosen]
    panels[0].barh(rows, truths, color=palette.true, alpha=0.9, height=0.7)
    panels[0].set_xlabel("% of people")
    shares = [100 * share_naming(run, place) for place in chosen]
    panels[1].barh(rows, shares, color=palette.noisy, alpha=0.9, height=0.7)
    panels[1].set_xlabel("% of reports\nthat name it")
    _bars(panels[2], [part_range(run, place) for place in chosen], "estimated share, %", palette, run.result.confidence)


def _means(panels: "Sequence[Axes]", chosen: Sequence[int], run: Run, domain: Domain, palette: Palette) -> None:
    coordinates = [domain.parts[place] for place in chosen]
    _spreads(panels[0], coordinates, true_vectors(run)[:, chosen], palette)
    _levels(panels[1], chosen, run, palette)
    bars = [part_range(run, place) for place in chosen]
    _bars(panels[2], bars, "mean, % of the range", palette, run.result.confidence)


def _means_in_units(figure: "Figure", run: Run, palette: Palette) -> None:
    """Draw a row for each coordinate, each on an axis of its unit."""
    parts, vectors = run.task.domain.parts, true_vectors(run)
    grid = figure.subplots(len(parts), 3, squeeze=False, width_ratios=(1, 1, 1.2))
    rows: Sequence[Sequence[Axes]] = grid.tolist()
    for axes, title in zip(rows[0], _TITLES, strict=True):
        axes.set_title(title)
    for place, (part, (kept, received, estimated)) in enumerate(zip(parts, rows, strict=True)):
        column = vectors[:, place]
        _spread(kept, 0, column[np.isfinite(column)], palette)
        kept.set_xlim(part.lower, part.upper)
        kept.set_yticks([0], [fill(_short(part.name), _BROAD)], fontsize=11)
        _level_bar(received, 0, run, place, palette)
        _interval_of(estimated, 0, part_interval(run, place), palette, 8)
        estimated.margins(x=0.25)
        for axes in (received, estimated):
            axes.set_yticks([])
        for axes in (kept, received, estimated):
            axes.set_ylim(-0.6, 0.6)
            axes.locator_params(axis="x", nbins=3)
            axes.tick_params(labelsize=10)
        for axes in (kept, estimated):
            axes.set_xlabel(part.unit or "mean", fontsize=10, labelpad=1)
        received.set_xlim(0, 100)
        received.set_xlabel("% of reports", fontsize=10, labelpad=1)
    kept.set_xlabel(f"{kept.get_xlabel()}\nmean and central 90 %", fontsize=10)
    received.set_xlabel("% of reports, by\nlevel (faint = low)", fontsize=10)
    _figure_legend(rows[-1][-1], run.result.confidence)


def _spreads(axes: "Axes", coordinates: Sequence[DomainPart], columns: NDArray[np.float64], palette: Palette) -> None:
    for row, coordinate in enumerate(coordinates):
        column = columns[:, row]
        scaled = [per_cent_of(coordinate, value) for value in column[np.isfinite(column)].tolist()]
        _spread(axes, row, np.array(scaled), palette)
    axes.set_xlim(0, 100)
    axes.set_xlabel("mean and central\n90 %, % of range")


def _spread(axes: "Axes", row: int, values: NDArray[np.float64], palette: Palette) -> None:
    """Draw a line between two quantiles of the values, and their mean."""
    if len(values):
        ends = np.percentile(values, _SPREAD)
        axes.plot(ends, (row, row), "-", color=palette.true, lw=8, alpha=0.45, solid_capstyle="butt")
        axes.plot(float(values.mean()), row, "D", color=palette.true, ms=7, mec=palette.ground)


def _levels(axes: "Axes", chosen: Sequence[int], run: Run, palette: Palette) -> None:
    for row, place in enumerate(chosen):
        _level_bar(axes, row, run, place, palette)
    axes.set_xlim(0, 100)
    axes.set_xlabel("% of reports, by\nlevel (faint = low)")


def _level_bar(axes: "Axes", row: int, run: Run, place: int, palette: Palette) -> None:
    """Draw a bar of the reports about a coordinate, a piece for each level."""
    found = reported_part(run, place)
    start, total = 0.0, max(float(found.counts.sum()), 1.0)
    for level, count in zip(found.values.tolist(), found.counts.tolist(), strict=True):
        wide, shade = 100 * count / total, 0.3 + 0.6 * level
        axes.barh(row, wide, left=start, color=palette.noisy, alpha=shade, height=0.7, ec=palette.ground)
        start += wide


def _bars(axes: "Axes", bars: Sequence[Range | None], what: str, palette: Palette, confidence: float) -> None:
    """Draw an error bar a row, with the truth next to the estimate; short ones as distances from the truth."""
    size = 8 if len(bars) <= _CROWDED else 5
    lengths = [bar.high - bar.low for bar in bars if bar is not None]
    truths = [abs(bar.truth or 0.0) for bar in bars if bar is not None]
    if lengths and max(lengths) < _SHORT * max(truths):
        bars = [None if bar is None else _off(bar) for bar in bars]
        axes.axvline(0, color=palette.faint, lw=0.8, zorder=0)
        what = "off the truth,\npoints"
    axes.set_xlabel(what)
    for row, bar in enumerate(bars):
        _interval_of(axes, row, bar, palette, size)
    _figure_legend(axes, confidence)


def _interval_of(axes: "Axes", row: int, bar: Range | None, palette: Palette, size: float) -> None:
    if bar is None:
        return
    if bar.value is not None:
        axes.plot(
            bar.value, row, "o", color=palette.noisy, ms=size, mec=palette.ink, mew=0.8, label="estimate", zorder=2.1
        )
    axes.plot((bar.low, bar.high), (row, row), "|-", color=palette.ink, lw=1.8, ms=size, mew=1.8, label=_INTERVAL)
    if bar.truth is not None:
        mark_truth(axes, bar.truth, row, palette, size=2.2 * size)


def _figure_legend(axes: "Axes", confidence: float) -> None:
    """Put the legend below all panels; each label once."""
    from matplotlib.legend_handler import HandlerLine2D  # noqa: PLC0415 - matplotlib takes a second to import

    handles, labels = axes.get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))
    if once and axes.figure is not None:
        axes.figure.legend(
            once.values(),
            [
                f"{exact(confidence, scale=100)} % interval, reporters" if label == _INTERVAL else label
                for label in once
            ],
            handler_map={once.get(_INTERVAL): HandlerLine2D(numpoints=2, marker_pad=0)},  # a mark at both ends
            loc="outside lower right",
            ncols=3,
            fontsize=_LEGEND,
            handlelength=1.3,
            handletextpad=0.4,
            columnspacing=1.0,
        )


def _off(bar: Range) -> Range:
    true = bar.truth or 0.0
    value = None if bar.value is None else bar.value - true
    return Range(bar.name, bar.low - true, bar.high - true, value, None if bar.truth is None else 0.0)


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"


_HEIGHT = 7.4
_MOST_LETTERS = 80  # in a line below the heading
_LINE = 0.036  # of the height


def picture_of(run: Run) -> Picture:
    """Return the picture of a run with its description."""
    wording = PageNumberFormat.of(run.result)
    shows = f"{_about(run)}. Above what the devices keep to themselves, then what the aggregator receives, and"
    return Picture(
        _finding(run, wording).replace("\n", " "),
        f"{shows} the estimate with its intervals next to the truth.",
        lambda palette: figure_of(run, palette),
    )


def figure_of(run: Run, palette: Palette = LIGHT) -> "Figure":
    """Return the figure of a run: of several rounds the last one, and the estimates of all."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine  # noqa: PLC0415 - matplotlib takes a second to import

    wording = PageNumberFormat.of(run.result)
    heading, below = _finding(run, wording), fill(_about(run), _MOST_LETTERS)
    lines = heading.count("\n") * 1.2 + below.count("\n")
    top = 0.9 - _LINE * lines
    with styled(palette):
        figure = canvas(_HEIGHT + 0.2 * lines, ConstrainedLayoutEngine(rect=(0.01, 0.01, 0.97, top), h_pad=0.08))
        figure.text(0.025, 0.98, heading, va="top", fontsize=14, fontweight="bold")
        figure.text(0.025, 0.94 - 1.2 * _LINE * heading.count("\n"), below, va="top", color=palette.faint, fontsize=11)
        if run.task.domain.parts_field:
            draw_parts(figure, run, palette)
        else:
            draw_number(figure, run, wording, palette)
        finish(figure)
    return figure


def _finding(run: Run, wording: NumberFormat) -> str:
    result, truths, parts = run.result, run.truth, run.score.parts
    if result.n == 0 or (not parts and REPORTERS not in truths):
        return "No report was counted"
    reports = "One noisy report" if result.n == 1 else f"{whole(result.n)} noisy reports"
    if parts:
        return f"{reports}:\n{_covering(parts.values())}"
    if result.mean is None:
        return f"{reports},\nfrom which no estimate could be made"
    if together := run.together:
        return _finding_of_rounds(together, wording)
    off = wording.distance(result.mean, truths[REPORTERS])
    pooled = result.estimate.pooled
    if pooled is not None and POPULATION in truths:  # two estimates
        off = f"{off} and {wording.distance(pooled.mean, truths[POPULATION])}"
    return f"{reports}: {off} off,\n{_verdict(run.covered, result.estimate.methods)}"


def _covering(parts: Iterable[Score]) -> str:
    """Return how many intervals of parts hold their truth, for either target."""
    found = [[part.covered[target] for part in parts if target in part.covered] for target in (REPORTERS, POPULATION)]
    counts = [f"{sum(one)} of {len(one)}" for one in found if one]
    if not counts:
        return "without an interval"
    if len(set(counts)) == 1:
        return f"{counts[0]} intervals cover the truth"
    return f"intervals cover {counts[0]} truths of the reporters,\n{counts[1]} of the population"


def _verdict(covered: Mapping[str, bool], methods: Mapping[str, str]) -> str:
    """Return which of the intervals hold their truth: all that are drawn, if it is known."""
    missing = [interval_name(target, methods.get(target, "")) for target, holds in covered.items() if not holds]
    if not covered:
        return "without an interval"
    if len(covered) == 1:
        (target,) = covered
        return f"the interval for the {target} {'misses' if missing else 'covers'} the truth"
    if not missing:
        return f"{'both' if len(covered) == _TWO else f'all {len(covered)}'} intervals cover the truth"
    if len(missing) == 1:
        return f"1 of {len(covered)} intervals misses the truth: {missing[0]}"
    return f"{len(missing)} of {len(covered)} intervals miss the truth"


def _finding_of_rounds(together: "PooledRounds", wording: NumberFormat) -> str:
    """Return what all rounds say as one."""
    reports = f"{whole(together.rounds)} rounds, {whole(together.result.n)} noisy reports"
    if together.result.mean is None or REPORTERS not in together.score.truth:
        return reports
    off = wording.distance(together.result.mean, together.score.truth[REPORTERS])
    if not together.score.covered:
        return f"{reports}:\n{off} off"
    return f"{reports}: together {off} off,\n{_verdict(together.score.covered, together.result.estimate.methods)}"


def _about(run: Run) -> str:
    task, scenario = run.task, run.experiment.scenario
    asked = task.title or task.id
    about = [
        f"{asked}{'' if asked.endswith('?') else ','} {task.mechanism.replace('_', ' ')}, ε = {epsilon_in_words(task)}"
    ]
    if len(run.rounds) > 1:
        about[0] += f" over {len(run.rounds)} rounds, the last one shown"
    if liars := sum(some.share for some in scenario.liars):
        about.append(f"{exact(liars, scale=100)} % of the devices lie")
    if scenario.faults.forgotten:
        about.append(f"the broker forgot {whole(run.clients - run.accepted)} reports")
    elif scenario.faults.lost + scenario.faults.cut:
        about.append("links that die")
    if scenario.panel and run.result.n < run.clients:
        about.append(f"{whole(run.clients - run.result.n)} devices silent")
    if run.noise == NOT_PRIVATE and run.drawing is None:
        about.append(f"noise {NOT_PRIVATE}")
    return "; ".join(about)
