"""What is seen while a simulation runs: a bar and a band on a terminal, and nothing in a pipe.

The band is the `anytime` interval: it holds at every look, so that it may be watched. The narrower intervals of the
final table are for one look at the end; watched, one of them would be wrong in about half of all runs.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from hush_common.figures import exact
from hush_simulations.display.number_format import NumberFormat

__all__ = ["Line", "bands", "caption", "following"]

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
def following(total: int) -> Iterator[tuple[Callable[[int], None] | None, Callable[[Mapping[str, Any]], None] | None]]:
    """What to call with the number of reports counted, of `total`, and with each result; None where nobody watches."""
    if not sys.stderr.isatty():
        yield None, None
        return
    columns = (TextColumn("reports counted"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True, highlight=False)
    progress = Progress(*columns, console=console)
    bar = progress.add_task("", total=total)
    with Live(progress, console=console, transient=True, refresh_per_second=8) as live:
        yield (
            lambda counted: progress.update(bar, completed=counted),
            lambda result: live.update(Group(progress, _table(result)) if bands(result) else progress),
        )


def caption(result: Mapping[str, Any]) -> str:
    """What the band is, so that nobody takes it for the final interval."""
    confidence = f"{exact(result['confidence'], scale=100)} %"
    if "categories" in result:
        return f"so far; {confidence} bands that may be watched, all at once; final ones are narrower"
    if "coordinates" in result:
        return f"so far; each {confidence} band may be watched; the final intervals are narrower"
    return f"so far; the {confidence} band may be watched; the final intervals are narrower"


def bands(result: Mapping[str, Any]) -> list[Line]:
    """The estimate so far with its anytime interval; of categories the most frequent, of coordinates the first.

    To pick the most frequent is to look at all, so that their bands are the joint ones.
    """
    if "categories" in result:
        banded = [fact for fact in result["categories"] if "anytime" in fact["joint_intervals"]]
        frequent = sorted(banded, key=lambda fact: -float(fact["frequency"]))[:_MOST_LINES]
        return [
            _line(fact["label"], fact["frequency"], fact["joint_intervals"], NumberFormat.share(_error(fact)))
            for fact in frequent
            if "anytime" in fact.get("joint_intervals", {})
        ]
    if "coordinates" in result:
        drawn = [fact for fact in result["coordinates"] if "anytime" in fact.get("intervals", {})][:_MOST_LINES]
        return [
            _line(
                fact["name"], fact["mean"], fact["intervals"], NumberFormat.measured(fact.get("unit", ""), _error(fact))
            )
            for fact in drawn
        ]
    if "anytime" not in result.get("intervals", {}):
        return []
    return [_line("mean", result["mean"], result["intervals"], NumberFormat.of(result))]


def _error(fact: Mapping[str, Any]) -> float | None:
    return max(fact.get("stderr", {}).values(), default=None)


def _line(name: str, estimate: float, intervals: Mapping[str, Sequence[float]], wording: NumberFormat) -> Line:
    low, high = intervals["anytime"]
    return Line(name, wording.value(estimate), wording.interval(low, high))


def _table(result: Mapping[str, Any]) -> Table:
    table = Table.grid(padding=(0, 3, 0, 0))
    for line in bands(result):
        table.add_row(f"  {line.name}", line.estimate, f"band {line.band}")
    outer = Table.grid()
    outer.add_row(caption(result))
    outer.add_row(table)
    return outer
