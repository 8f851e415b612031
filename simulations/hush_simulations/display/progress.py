"""Progress on standard error: a moving display on a terminal, a line every few seconds in a pipe."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from hush_aggregator.estimate import ANYTIME
from hush_aggregator.estimate.result import Result
from hush_aggregator.publish.presentation import NumberFormat, interval_name
from hush_common.formatting import duration, exact, fixed, significant, whole
from hush_common.terminal import Fact, Facts, Renderable, Screen, Sentence, note

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import ProgressColumn
    from rich.text import Text

EVERY_S = 5.0
"""Seconds between two lines; shorter work prints none."""

_WINDOW_S = 10.0  # a bar's rate is that of the last seconds
_APART_S = 1 / 16  # seconds between two of its samples
_ENOUGH, _ENOUGH_S = 0.05, 10.0  # of the work, or seconds, after which a bar has a time left
_ROUNDED = ((600, 60), (60, 10))  # from so many seconds on to so many
_BAR_WIDTH = 64  # columns of a terminal from which on a bar, a clock and a rate have room in one line
_MOST_LINES = 5

Tick = Callable[[str, int, int], None]
"""Called with what is counted, how many are done, and of how many; first with those that were done before."""


def rest_in_words(rate: float, missing: float, *, with_rate: bool = False) -> str:
    """Return how long the remainder takes at a rate per second, `20 s left`, and the rate if it is asked for."""
    if rate <= 0 or missing <= 0:
        return ""
    seconds = max(missing / rate, 1)
    unit = next((unit for least, unit in _ROUNDED if seconds >= least), 1)
    left = f"{duration(timedelta(seconds=round(seconds / unit) * unit))} left"
    pace = f"{significant(rate)} a second" if rate >= 1 else f"{significant(1 / rate)} s each"
    return f"{pace}, {left}" if with_rate else left


def progress_lines(*, with_rate: bool = False, clock: Callable[[], float] = time.monotonic) -> Tick:
    """Return a function that prints "20 of 50 reports counted (40 %), 6 s, 9 s left" every few seconds.

    The rate is that since the line before, or since the first progress: what came before was preparation.
    """
    began: dict[str, float] = {}
    last: dict[str, tuple[float, int]] = {}

    def tick(what: str, done: int, total: int) -> None:
        now = clock()
        began.setdefault(what, now)
        before, earlier = last.get(what, (now, 0))
        if earlier and now - before < EVERY_S:
            return
        if done:
            last[what] = now, done
        if not earlier:
            return
        rest = rest_in_words((done - earlier) / max(now - before, _APART_S), total - done, with_rate=with_rate)
        share = f"({fixed(done / total, 0, scale=100)} %)"
        note(f"{_of(done, total)} {what} {share}, {whole(now - began[what])} s{f', {rest}' if rest else ''}")

    return tick


@contextmanager
def show_progress(*, with_rate: bool = False) -> Iterator[tuple[Tick, Callable[[Result], None] | None]]:
    """Yield functions to call as work goes on, and with each result so far (None without a terminal)."""
    if not sys.stderr.isatty():
        yield progress_lines(with_rate=with_rate), None
        return
    from rich.console import Console, Group  # noqa: PLC0415 - rich is for terminals alone
    from rich.live import Live  # noqa: PLC0415
    from rich.progress import Progress, TaskID  # noqa: PLC0415

    console = Console(stderr=True, highlight=False)
    columns = progress_columns(console, with_rate=with_rate)
    progress = Progress(*columns, console=console, speed_estimate_period=_WINDOW_S)
    bars: dict[str, TaskID] = {}
    last = 0.0

    def tick(what: str, done: int, total: int) -> None:
        nonlocal last
        if what not in bars:
            for bar in progress.tasks:
                progress.update(bar.id, visible=not bar.finished)
            bars[what] = progress.add_task(what, total=total, completed=done)
        if done == total or time.monotonic() - last >= _APART_S:
            last = time.monotonic()
            progress.update(bars[what], completed=done, total=total)

    with Live(progress, console=console, transient=True, refresh_per_second=8) as live:
        yield (
            tick,
            lambda result: live.update(Group(progress, render(result)) if estimates_so_far(result) else progress),
        )


@contextmanager
def show_waiting(what: str, every_s: float = EVERY_S) -> Iterator[None]:
    """Show that work without a count goes on: a spinner on a terminal, else a line every few seconds."""
    from rich.console import Console  # noqa: PLC0415 - rich is for terminals alone
    from rich.text import Text  # noqa: PLC0415

    console = Console(stderr=True)
    if console.is_terminal:
        words = Text(what)
        words.truncate(console.width - len("⠋ "), overflow="ellipsis")
        with console.status(words.plain):
            yield
        return
    ended, began = threading.Event(), time.monotonic()

    def tell() -> None:
        while not ended.wait(every_s):
            note(f"{what}, {whole(time.monotonic() - began)} s")

    teller = threading.Thread(target=tell, name="waiting", daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()


def progress_columns(console: "Console", *, with_rate: bool = False) -> "list[ProgressColumn]":
    """Return the columns of a line of progress; without a bar and a clock on a narrow terminal."""
    from rich.progress import BarColumn, ProgressColumn, Task, TimeElapsedColumn  # noqa: PLC0415
    from rich.table import Column  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    has_bar, whole_line = console.width >= _BAR_WIDTH, Column(no_wrap=True)

    class Words(ProgressColumn):
        max_refresh = 0.5

        def __init__(self, words: Callable[[Task], str], style: str = "") -> None:
            super().__init__(whole_line)
            self._words, self._style = words, style

        def render(self, task: Task) -> Text:
            return Text(self._words(task), style=self._style)

    def rest(task: Task) -> str:
        is_known = task.percentage >= 100 * _ENOUGH or (task.elapsed or 0.0) >= _ENOUGH_S
        return rest_in_words((is_known and task.speed) or 0.0, task.remaining or 0, with_rate=with_rate and has_bar)

    name = Words(lambda task: task.description if has_bar else task.description.split()[0])
    done = Words(lambda task: _of(task.completed, task.total or 0), "progress.download")
    if not has_bar:
        return [name, done, Words(rest)]
    return [name, BarColumn(), done, TimeElapsedColumn(whole_line), Words(rest)]


def _of(count: float, total: float) -> str:
    return f"{whole(count)} of {whole(total)}"


def caption(result: Result) -> str:
    """Return what the intervals are, so that nobody takes them for the final ones."""
    confidence = f"{exact(result.confidence, scale=100)} %"
    domain, shown = result.task.domain, len(estimates_so_far(result))
    which = "largest" if domain.is_share else "first"
    some = f"the {which} {shown} of {whole(len(result.parts))}; " if shown < len(result.parts) else ""
    joint = domain.parts_field and domain.is_share
    many = f"interval{'s' if domain.parts_field else ''}"
    kind = f"{'simultaneous ' if joint else ''}{confidence} {many}, {interval_name(ANYTIME)}"
    return f"so far; {some}{kind}; final intervals are narrower"


def estimates_so_far(result: Result) -> list[Fact]:
    """Return the estimates with their anytime intervals: the most frequent categories, or the first coordinates.

    An anytime interval holds at every look, so that people may watch it. The final intervals are for one look at the
    end; watched, one of them would be wrong in about half of all runs. To pick the most frequent categories is to look
    at all, so that theirs are the joint ones.
    """
    domain = result.task.domain
    joint = bool(domain.parts_field) and domain.is_share
    every = [(one.mean, one.joint_intervals if joint else one.intervals, one) for one in result.parts]
    drawn = [(mean, intervals[ANYTIME], one) for mean, intervals, one in every if ANYTIME in intervals]
    known = [(mean, interval, one) for mean, interval, one in drawn if mean is not None]
    if joint:
        known.sort(key=lambda each: -each[0])
    found = []
    for mean, interval, one in known[:_MOST_LINES]:
        wording = NumberFormat.of_part(one, is_share=domain.is_share, unit=result.task.unit)
        found.append(Fact(one.name or "mean", wording.value(mean), wording.interval(*interval)))
    return found


def render(result: Result) -> "Text":
    """Render the intervals below their caption, as wide as the terminal."""
    from rich.text import Text  # noqa: PLC0415

    blocks: tuple[Renderable, ...] = (Sentence(caption(result), indent=0), Facts(estimates_so_far(result)))
    screen = replace(Screen.of(sys.stderr), painted=False)
    return Text("\n".join(line for block in blocks for line in block.lines(screen)))
