"""The picture of a simulation: the true values, the noisy reports on their own scale, and the estimate."""

from math import isqrt
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate import ANYTIME, ANYTIME_POPULATION, ENROLLED, POPULATION, REPORTERS
from hush_common.domain import CategoryDomain, NumberDomain, VectorDomain
from hush_common.epsilon import decimal_text
from hush_common.figures import exact, whole
from hush_simulations.display.number_format import NumberFormat
from hush_simulations.display.parts_figure import draw_parts
from hush_simulations.display.style import FAINT, INK, NOISY, TRUE, canvas, styled
from hush_simulations.engines.reports import decoded, offers_of
from hush_simulations.engines.seeded_rng import NOT_PRIVATE
from hush_simulations.results.run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hush_simulations.results.rounds import Round, Together

__all__ = ["draw", "figure_of"]

_BARS = {
    REPORTERS: "of the reporters",
    POPULATION: "of the population",
    ANYTIME: "anytime-valid",
    ANYTIME_POPULATION: "anytime, population",
    ENROLLED: "of all enrolled",
}
_FEW = 64  # different reports, up to which a mechanism has an alphabet rather than a scale
_MOST_TICKS = 20
_TAIL = 0.5  # per cent of the reports on each side that may lie outside the picture of the reports


def draw(path: Path, run: Run) -> None:
    """Write the picture of a run as PNG."""
    figure_of(run).savefig(path)


def figure_of(run: Run) -> "Figure":
    """The picture of a run.

    The true values are drawn as a histogram, or as one bar for yes and one for no; of several rounds the last is drawn.
    """
    from matplotlib.layout_engine import ConstrainedLayoutEngine  # noqa: PLC0415 - matplotlib takes a second to import

    with styled():
        figure = canvas(9, 8, ConstrainedLayoutEngine(rect=(0.01, 0.01, 0.97, 0.885), h_pad=0.1))
        _compose(figure, run)
        figure.draw_without_rendering()  # ticks take their style when they are first drawn
    return figure


def _compose(figure: "Figure", run: Run) -> None:
    wording = NumberFormat.of(run.result)
    figure.text(0.025, 0.975, _finding(run, wording), va="top", fontsize=14.5, fontweight="bold")
    figure.text(0.025, 0.935, _subtitle(run), va="top", color=FAINT)
    domain = run.task.domain
    if isinstance(domain, CategoryDomain | VectorDomain):
        draw_parts(figure, run, domain)
        return
    top, middle, bottom = figure.subplots(3, 1, height_ratios=(3, 3, 2))
    top.set_title("What the devices keep to themselves")
    middle.set_title("What the aggregator receives")
    done = run.last
    values = np.array([run.experiment.values[device] for device in done.reporters], dtype=np.float64)  # None is NaN
    values = values[np.isfinite(values)]
    if isinstance(domain, NumberDomain):
        _values(top, values, domain, run, wording)
        _reports(middle, decoded(run.task, done.received.bodies), domain, wording)
    else:
        _answers(top, values, TRUE, wording)
        _answers(middle, offers_of(run.task, done.received.bodies)[2][:, 0].astype(np.float64), NOISY, wording)
    if len(run.rounds) > 1:
        _estimate_of_rounds(bottom, run, wording)
    else:
        _estimate(bottom, run, wording)
        bottom.set_xlim(top.get_xlim())


def _finding(run: Run, wording: NumberFormat) -> str:
    result, truths, parts = run.result, run.truth, run.score.parts
    if result.n == 0 or (not parts and REPORTERS not in truths):
        return "No report was counted"
    reports = "One noisy report" if result.n == 1 else f"{whole(result.n)} noisy reports"
    if parts:
        singles = [part.covered[REPORTERS] for part in parts.values() if REPORTERS in part.covered]
        return f"{reports}: {sum(singles)} of {len(singles)} intervals cover the truth"
    if result.mean is None:
        return f"{reports}, from which no estimate could be made"
    off = wording.distance(result.mean, truths[REPORTERS])
    if REPORTERS not in run.covered:
        return f"{reports}: {off} off, without an interval"
    verdict = "covers" if run.covered[REPORTERS] else "misses"
    return f"{reports}: {off} off, the interval {verdict} the truth"


def _subtitle(run: Run) -> str:
    task = run.task
    mechanism = task.mechanism.replace("_", " ")
    *others, last = [decimal_text(epsilon) for epsilon in task.offers or (task.epsilon,)]
    epsilon = f"{', '.join(others)} or {last}" if others else last
    text = f"{task.title or task.id}   ({mechanism}, epsilon {epsilon}"
    text += f" over {len(run.rounds)} rounds, the last one shown)" if len(run.rounds) > 1 else ")"
    return text + (f"   noise {NOT_PRIVATE}" if run.noise == NOT_PRIVATE else "")


def _histogram(axes: "Axes", data: NDArray[np.float64], colour: str, domain: NumberDomain) -> None:
    if len(data) == 0:
        return
    low, high = float(data.min()), float(data.max())
    bins = min(40, max(8, isqrt(len(data))))
    if low == high:  # one bar that can be seen
        margin = (domain.upper - domain.lower) / 100
        low, high, bins = low - margin, high + margin, 1
    axes.hist(data, bins=bins, range=(low, high), color=colour, alpha=0.85, edgecolor="white", linewidth=0.6)
    axes.locator_params(axis="y", integer=True)


def _legend(axes: "Axes", columns: int = 1) -> None:
    """A legend in the row of the title, where it covers nothing; each label once."""
    handles, labels = axes.get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))
    axes.legend(
        once.values(),
        once.keys(),
        loc="lower right",
        bbox_to_anchor=(1, 1),
        ncols=columns,
        frameon=False,
        borderpad=0.1,
    )


def _values(axes: "Axes", values: NDArray[np.float64], domain: NumberDomain, run: Run, wording: NumberFormat) -> None:
    """The true values, on an axis that holds the error bars as well."""
    _histogram(axes, values, TRUE, domain)
    axes.set_ylabel("devices")
    ends = [*axes.get_xlim(), axes.get_xlim()[0] if run.result.mean is None else run.result.mean]
    ends += [end for interval in run.result.intervals.values() for end in interval]
    margin = 0.02 * (max(ends) - min(ends))
    axes.set_xlim(min(ends) - margin, max(ends) + margin)
    if REPORTERS in run.truth:
        mean = run.truth[REPORTERS]
        axes.axvline(mean, color=INK, lw=1.2, ls=(0, (4, 3)), label=f"their mean, {wording.value(mean)}")
        _legend(axes)


def _reports(axes: "Axes", reports: NDArray[np.float64], domain: NumberDomain, wording: NumberFormat) -> None:
    """The reports, on their own scale; the shaded band is all that the axis above could show."""
    reports = reports[np.isfinite(reports)]
    if len(reports):
        low, high = np.percentile(reports, (_TAIL, 100 - _TAIL))
        inside = reports[(reports >= low) & (reports <= high)]
        _histogram(axes, inside, NOISY, domain)
    unit = f" {wording.unit}" if wording.unit else ""
    label = f"legal values, {exact(domain.lower)} to {exact(domain.upper)}{unit}"
    axes.axvspan(domain.lower, domain.upper, color=TRUE, alpha=0.2, lw=0, label=label, zorder=0)
    _legend(axes)
    axes.set_ylabel("reports")
    values = len(np.unique(reports))
    few = (
        f", one of {values} values" if 1 < values <= min(_FEW, len(reports) // 3) else ""
    )  # gaps between bars are no chance
    axes.set_xlabel(f"decoded report{_of_unit(wording)}{few}; note the different scale")


def _answers(axes: "Axes", ones: NDArray[np.float64], colour: str, wording: NumberFormat) -> None:
    share = float(ones.mean()) if len(ones) else 0.0
    bars = axes.barh(["no", "yes"], [100 * (1 - share), 100 * share], color=colour, height=0.6, alpha=0.85)
    axes.bar_label(bars, [wording.value(1 - share), wording.value(share)], padding=6)
    axes.set_xlim(0, 108)
    axes.set_xticks(range(0, 101, 20))


def _estimate(axes: "Axes", run: Run, wording: NumberFormat) -> None:
    """One error bar for each target, with the truth beside the estimate."""
    result, factor = run.result, wording.factor
    targets = list(result.intervals)[::-1]
    for row, target in enumerate(targets):
        low, high = (factor * end for end in result.intervals[target])
        axes.plot((low, high), (row, row), "|-", color=INK, lw=2.2, ms=13, mew=2.2)
        pooled = result.estimate.pooled if target == POPULATION else None
        mean = result.mean if pooled is None else pooled.mean
        if mean is not None:
            axes.plot(factor * mean, row, "o", color=NOISY, ms=10, mec=INK, label="estimate")
        if target in run.truth:
            axes.plot(factor * run.truth[target], row, "D", color=TRUE, ms=8, mec="white", label="truth")
    axes.set_yticks(range(len(targets)), [_BARS.get(name, name) for name in targets])
    axes.set_ylim(-0.6, max(len(targets), 1) - 0.4)
    axes.set_xlabel(f"mean{_of_unit(wording)}" if wording.unit != "%" else "share of yes (%)")
    if targets:
        _title_and_legend(axes, run, wording)


def _estimate_of_rounds(axes: "Axes", run: Run, wording: NumberFormat) -> None:
    """One error bar for each round, about the devices that reported in it; and one for all rounds together."""
    together = run.together if len(run.rounds) <= _MOST_TICKS else None
    rounds: list[Round | Together] = [*run.rounds, *([together] if together else [])]
    for number, done in enumerate(rounds):
        result = done.result
        if result.mean is None:
            continue
        ends = [wording.factor * end for end in result.intervals.get(REPORTERS, ())]
        axes.plot([number] * len(ends), ends, "_-", color=INK, lw=1.8, ms=9, mew=2)
        axes.plot(number, wording.factor * result.mean, "o", color=NOISY, ms=7, mec=INK, label="estimate")
        true = wording.factor * done.score.truth[REPORTERS]
        axes.plot(number, true, "D", color=TRUE, ms=6, mec="white", label="truth")
    axes.locator_params(axis="x", integer=True)
    if together:
        numbers = range(len(run.rounds))
        axes.set_xticks([*numbers, len(run.rounds)], [*map(str, numbers), "all"])
    axes.set_xlabel("round")
    axes.set_ylabel(wording.unit)
    _title_and_legend(axes, run, wording)


def _title_and_legend(axes: "Axes", run: Run, wording: NumberFormat) -> None:
    if run.result.mean is None:
        return
    confidence = f"{exact(run.result.confidence, scale=100)} %"
    axes.set_title(f"Estimate: {wording.value(run.result.mean)}, with {confidence} intervals")
    _legend(axes, columns=2)


def _of_unit(wording: NumberFormat) -> str:
    return f" ({wording.unit})" if wording.unit else ""
