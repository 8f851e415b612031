"""Progress of a simulation: a bar and a confidence sequence on a terminal, a line every few seconds in a pipe.

The band is the `anytime` interval: it holds at every look, so that it may be watched. The narrower intervals of the
final table are for one look at the end; watched, one of them would be wrong in about half of all runs.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from hush_aggregator.estimate import ANYTIME
from hush_aggregator.estimate.estimates import ByTarget, Interval
from hush_aggregator.result import Result
from hush_common.formatting import exact, whole
from hush_common.terminal import Block, Fact, Facts, Screen, Sentence
from hush_simulations.display.number_format import NumberFormat
from hush_simulations.display.ticking import ticking

__all__ = ["Line", "bands", "caption", "following", "seen"]

_MOST_LINES = 5


class Line(NamedTuple):
    """The band of one number.

    Args:
        name: of what; empty for the one mean of a task.
        estimate: the mean so far, in words.
        band: its ends, in words.
    """

    name: str
    estimate: str
    band: str


@contextmanager
def following(total: int) -> Iterator[tuple[Callable[[int], None] | None, Callable[[Result], None] | None]]:
    """What to call with the number of reports counted, of `total`, and with each result; None where nobody watches."""
    if not sys.stderr.isatty():
        yield ticking("reports counted", total), None
        return
    columns = (TextColumn("reports counted"), BarColumn(), _Counted(), TimeElapsedColumn())
    console = Console(stderr=True, highlight=False)
    progress = Progress(*columns, console=console)
    bar = progress.add_task("", total=total)
    with Live(progress, console=console, transient=True, refresh_per_second=8) as live:
        yield (
            lambda counted: progress.update(bar, completed=counted),
            lambda result: live.update(Group(progress, seen(result)) if bands(result) else progress),
        )


class _Counted(ProgressColumn):
    """How many of all, with the thousands grouped as everywhere."""

    def render(self, task: Task) -> Text:
        return Text(f"{whole(task.completed)} of {whole(task.total or 0)}", style="progress.download")


def caption(result: Result) -> str:
    """What the band is, so that nobody takes it for the final interval."""
    confidence = f"{exact(result.confidence, scale=100)} %"
    shown = len(bands(result))
    if result.categories:
        some = f"the largest {shown} of {whole(len(result.categories))}; " if shown < len(result.categories) else ""
        return f"so far; {some}simultaneous {confidence} confidence sequences; final intervals are narrower"
    if result.coordinates:
        some = f"the first {shown} of {whole(len(result.coordinates))}; " if shown < len(result.coordinates) else ""
        return f"so far; {some}anytime-valid {confidence} confidence sequences; final intervals are narrower"
    return f"so far; anytime-valid {confidence} confidence sequence; final intervals are narrower"


def bands(result: Result) -> list[Line]:
    """The estimate so far with its anytime interval; of categories the most frequent, of coordinates the first.

    To pick the most frequent is to look at all, so that their bands are the joint ones.
    """
    if result.categories:
        banded = [one for one in result.categories if ANYTIME in one.joint_intervals]
        frequent = sorted(banded, key=lambda one: -one.frequency)[:_MOST_LINES]
        return [
            _line(one.label, one.frequency, one.joint_intervals[ANYTIME], NumberFormat.share(_error(one.stderr)))
            for one in frequent
        ]
    if result.coordinates:
        drawn = [(one, one.mean) for one in result.coordinates if ANYTIME in one.intervals][:_MOST_LINES]
        return [
            _line(one.name, mean, one.intervals[ANYTIME], NumberFormat.measured(one.unit, _error(one.stderr)))
            for one, mean in drawn
            if mean is not None
        ]
    if result.mean is None or ANYTIME not in result.intervals:
        return []
    return [_line("mean", result.mean, result.intervals[ANYTIME], NumberFormat.of(result))]


def _error(stderr: ByTarget) -> float | None:
    return max(stderr.values(), default=None)


def _line(name: str, estimate: float, band: Interval, wording: NumberFormat) -> Line:
    return Line(name, wording.value(estimate), wording.interval(*band))


def seen(result: Result) -> Text:
    """The bands below their caption, as wide as the terminal."""
    facts = [Fact(line.name, line.estimate, f"band {line.band}") for line in bands(result)]
    blocks: tuple[Block, ...] = (Sentence(caption(result), indent=0), Facts(facts))
    screen = replace(Screen.of(sys.stderr), painted=False)
    return Text("\n".join(line for block in blocks for line in block.lines(screen)))
