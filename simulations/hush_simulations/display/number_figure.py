"""The panels of a number, or of yes and no: what is kept, what is received, and the estimate."""

from collections.abc import Sequence
from math import floor, isqrt, log10
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate import ANYTIME, ANYTIME_POPULATION, ENROLLED, POPULATION, REPORTERS
from hush_common.domain import NumberDomain
from hush_common.formatting import exact
from hush_simulations.display.distributions import Distribution, reported_numbers, true_numbers
from hush_simulations.display.number_format import NumberFormat
from hush_simulations.display.style import Palette, counted
from hush_simulations.results.run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hush_simulations.results.rounds import Round, Together

__all__ = ["BARS", "draw_number", "round_edges"]

BARS = {
    REPORTERS: "reporters",
    POPULATION: "population",
    ANYTIME: "anytime",
    ANYTIME_POPULATION: "anytime, pop.",
    ENROLLED: "all enrolled",
}
_FEW = 64  # different reports, up to which a mechanism has an alphabet rather than a scale
_MOST_TICKS = 20
_TAIL = 0.005  # of the reports on each side that may lie outside the picture of the reports
_NARROW = 0.08  # of the axis of the values, below which intervals get one of their own
_LIARS = ((0.01, "1%"), (0.05, "5%"))
_HALF = 0.5
_SLIM = 0.04  # of the axis, a bar that stands for one value
_LEGEND = 10.5


def draw_number(figure: "Figure", run: Run, wording: NumberFormat, palette: Palette) -> None:
    """Draw the three panels, one below the other."""
    top, middle, bottom = figure.subplots(3, 1, height_ratios=(3, 3, 2.4))
    top.set_title("Kept by the devices")
    middle.set_title("Received")
    domain, reports = run.task.domain, reported_numbers(run)
    if isinstance(domain, NumberDomain):
        _values(top, domain, run, wording, palette)
        _reports(middle, reports, domain, wording, palette)
    else:
        _answers(top, run.truth.get(REPORTERS, 0.0), palette.true, wording)
        yes = sum(float(one.counts[one.values > _HALF].sum()) for one in reports)
        _answers(middle, yes / max(run.result.n, 1), palette.noisy, wording)
    if len(run.rounds) > 1:
        _estimate_of_rounds(bottom, run, wording, palette)
        return
    _estimate(bottom, run, wording, palette)
    low, high = top.get_xlim()
    ends = [wording.factor * end for interval in run.result.intervals.values() for end in interval]
    if not ends or max(ends) - min(ends) > _NARROW * (high - low):
        bottom.set_xlim(low, high)
    else:
        bottom.set_xlabel(f"{bottom.get_xlabel()}, another scale")
        bottom.locator_params(axis="x", nbins=5)


def _histogram(axes: "Axes", spreads: Sequence[Distribution], colour: str, domain: NumberDomain) -> None:
    """Bars, those of several epsilons on each other, the least noisy below."""
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
    """Edges at round numbers, which say of the smallest and the largest value no more than a bar does."""
    power = 10.0 ** floor(log10(width))
    step = next(some * power for some in (1, 2, 5, 10) if some * power >= width * (1 - 1e-9))
    return step * np.arange(floor(low / step), floor(high / step) + 2, dtype=np.float64)


def _alphabet(spreads: Sequence[Distribution]) -> NDArray[np.float64] | None:
    """What can be reported, where that is a few values: gaps between bars are no chance then."""
    values = np.unique(np.concatenate([one.values for one in spreads]))
    total = sum(float(one.counts.sum()) for one in spreads)
    return values if 1 < len(values) <= min(_FEW, total / 3) else None


def _legend(axes: "Axes", columns: int = 1) -> None:
    """A legend in the row of the title, where it covers nothing; each label once."""
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


def _values(axes: "Axes", domain: NumberDomain, run: Run, wording: NumberFormat, palette: Palette) -> None:
    """The true values, on an axis that holds the error bars as well."""
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
    axes: "Axes", reports: Sequence[Distribution], domain: NumberDomain, wording: NumberFormat, palette: Palette
) -> None:
    """The reports, on their own scale; the shaded band is all that the axis above could show."""
    _histogram(axes, _without_tails(reports), palette.noisy, domain)
    unit = f" {wording.unit}" if wording.unit else ""
    label = "legal" if len(reports) > 1 else f"legal, {exact(domain.lower)} to {exact(domain.upper)}{unit}"
    axes.axvspan(domain.lower, domain.upper, color=palette.true, alpha=0.2, lw=0, label=label, zorder=0)
    _legend(axes, columns=len(reports) + 1)
    counted(axes, "reports")
    few = _alphabet(reports)
    rest = "; note the different scale" if few is None else f", one of {len(few)} values"
    axes.set_xlabel(f"decoded report{_of_unit(wording)}{rest}")


def _without_tails(reports: Sequence[Distribution]) -> list[Distribution]:
    """What lies between the quantiles of all reports together."""
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


def _answers(axes: "Axes", share: float, colour: str, wording: NumberFormat) -> None:
    bars = axes.barh(["no", "yes"], [100 * (1 - share), 100 * share], color=colour, height=0.6, alpha=0.9)
    axes.bar_label(bars, [wording.value(1 - share), wording.value(share)], padding=6)
    axes.set_xlim(0, 108)
    axes.set_xticks(range(0, 101, 20))
    axes.set_xlabel("% of devices" if axes.get_title(loc="left").startswith("Kept") else "% of reports")


def _estimate(axes: "Axes", run: Run, wording: NumberFormat, palette: Palette) -> None:
    """One error bar for each target, with the truth beside the estimate."""
    result, factor = run.result, wording.factor
    targets = list(result.intervals)[::-1]
    for row, target in enumerate(targets):
        low, high = (factor * end for end in result.intervals[target])
        axes.plot((low, high), (row, row), "|-", color=palette.ink, lw=2.2, ms=12, mew=2.2)
        pooled = result.estimate.pooled if target == POPULATION else None
        mean = result.mean if pooled is None else pooled.mean
        if mean is not None:
            axes.plot(factor * mean, row, "o", color=palette.noisy, ms=9, mec=palette.ink, label="estimate")
        if target in run.truth:
            true = factor * run.truth[target]
            axes.plot(true, row, "D", color=palette.true, ms=7, mec=palette.ground, label="truth")
    _liars(axes, run, palette)
    axes.set_yticks(range(len(targets)), [BARS.get(name, name) for name in targets])
    axes.set_ylim(-0.6, max(len(targets), 1) - 0.4)
    mean_of = f"mean{_of_unit(wording)}" if wording.unit != "%" else "share of yes (%)"
    axes.set_xlabel(f"{mean_of} with {exact(result.confidence, scale=100)} % intervals")
    if targets:
        _title_and_legend(axes, run, wording)


def _liars(axes: "Axes", run: Run, palette: Palette) -> None:
    """How far liars can have moved the mean: the truth is in the band, as the intervals alone cannot promise."""
    made, scenario = run.result.estimate, run.experiment.scenario
    share = sum(some.share * (some.reports if some.lie != "replay" else 0) for some in scenario.liars)
    known = [name for most, name in _LIARS if 0 < share <= most and name in made.single.worst_case_bias]
    if not known or made.mean is None:
        return
    bias = made.single.worst_case_bias[known[0]]
    label = f"± {known[0][:-1]} % liars"
    axes.axvspan(made.mean - bias, made.mean + bias, color=palette.noisy, alpha=0.18, lw=0, zorder=0, label=label)


def _estimate_of_rounds(axes: "Axes", run: Run, wording: NumberFormat, palette: Palette) -> None:
    """One error bar for each round, about the devices that reported in it; and one for all rounds together."""
    together = run.together if len(run.rounds) <= _MOST_TICKS else None
    rounds: list[Round | Together] = [*run.rounds, *([together] if together else [])]
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
        axes.plot(number, true, "D", color=palette.true, ms=6, mec=palette.ground, label="truth")
    axes.locator_params(axis="x", integer=True)
    if together:
        numbers = range(len(run.rounds))
        axes.set_xticks([*numbers, len(run.rounds)], [*map(str, numbers), "all"])
        axes.axvline(len(run.rounds) - 0.5, color=palette.faint, lw=0.8)
    axes.set_xlabel(f"round, with {exact(run.result.confidence, scale=100)} % intervals for the reporters")
    axes.set_ylabel(f"mean{_of_unit(wording)}" if wording.unit != "%" else "yes (%)")
    _title_and_legend(axes, run, wording)


def _title_and_legend(axes: "Axes", run: Run, wording: NumberFormat) -> None:
    if run.result.mean is None:
        return
    axes.set_title(f"Estimate {wording.value(run.result.mean)}")
    _legend(axes, columns=3)


def _of_unit(wording: NumberFormat) -> str:
    return f" ({wording.unit})" if wording.unit else ""
