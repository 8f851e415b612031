"""The picture of a simulation: the true values, the noisy reports on their own scale, and the estimate."""

from textwrap import fill
from typing import TYPE_CHECKING

from hush_aggregator.estimate import REPORTERS
from hush_common.domain import CategoryDomain, VectorDomain
from hush_common.epsilon import decimal_text
from hush_common.formatting import exact, whole
from hush_simulations.display.number_figure import draw_number
from hush_simulations.display.number_format import NumberFormat
from hush_simulations.display.parts_figure import draw_parts
from hush_simulations.display.style import LIGHT, Palette, Picture, canvas, styled
from hush_simulations.engines.seeded_rng import NOT_PRIVATE
from hush_simulations.results.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["figure_of", "picture_of"]

_HEIGHT = 6.4
_MOST_LETTERS = 80  # in a line below the heading
_LINE = 0.036  # of the height


def picture_of(run: Run) -> Picture:
    """The picture of a run, with its description."""
    wording = NumberFormat.of(run.result)
    shows = f"{_about(run)}. Above what the devices keep to themselves, then what the aggregator receives, and"
    return Picture(
        _finding(run, wording).replace("\n", " "),
        f"{shows} the estimate with its intervals beside the truth.",
        lambda palette: figure_of(run, palette),
    )


def figure_of(run: Run, palette: Palette = LIGHT) -> "Figure":
    """The picture of a run; of several rounds the last is drawn, and the estimates of all.

    Args:
        run: what is drawn.
        palette: the colours.
    """
    from matplotlib.layout_engine import ConstrainedLayoutEngine  # noqa: PLC0415 - matplotlib takes a second to import

    wording = NumberFormat.of(run.result)
    heading, below = _finding(run, wording), fill(_about(run), _MOST_LETTERS)
    lines = heading.count("\n") * 1.2 + below.count("\n")
    top = 0.9 - _LINE * lines
    with styled(palette):
        figure = canvas(_HEIGHT + 0.2 * lines, ConstrainedLayoutEngine(rect=(0.01, 0.01, 0.97, top), h_pad=0.08))
        figure.text(0.025, 0.98, heading, va="top", fontsize=14, fontweight="bold")
        figure.text(0.025, 0.94 - 1.2 * _LINE * heading.count("\n"), below, va="top", color=palette.faint, fontsize=11)
        if isinstance(run.task.domain, CategoryDomain | VectorDomain):
            draw_parts(figure, run, palette)
        else:
            draw_number(figure, run, wording, palette)
        figure.draw_without_rendering()  # ticks take their style when they are first drawn
    return figure


def _finding(run: Run, wording: NumberFormat) -> str:
    result, truths, parts = run.result, run.truth, run.score.parts
    if result.n == 0 or (not parts and REPORTERS not in truths):
        return "No report was counted"
    reports = "One noisy report" if result.n == 1 else f"{whole(result.n)} noisy reports"
    if parts:
        singles = [part.covered[REPORTERS] for part in parts.values() if REPORTERS in part.covered]
        return f"{reports}:\n{sum(singles)} of {len(singles)} intervals cover the truth"
    if result.mean is None:
        return f"{reports},\nfrom which no estimate could be made"
    off = wording.distance(result.mean, truths[REPORTERS])
    if REPORTERS not in run.covered:
        return f"{reports}: {off} off,\nwithout an interval"
    verdict = "covers" if run.covered[REPORTERS] else "misses"
    return f"{reports}: {off} off,\nthe interval {verdict} the truth"


def _about(run: Run) -> str:
    """The question, how it was asked, and what went wrong."""
    task, scenario = run.task, run.experiment.scenario
    *others, last = [decimal_text(epsilon) for epsilon in task.offers or (task.epsilon,)]
    epsilon = f"{', '.join(others)} or {last}" if others else last
    asked = task.title or task.id
    about = [f"{asked}{'' if asked.endswith('?') else ','} {task.mechanism.replace('_', ' ')}, ε = {epsilon}"]
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
