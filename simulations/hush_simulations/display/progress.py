"""Progress on standard error: a moving display on a terminal, a line every few seconds in a pipe."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from hush_aggregator.estimate import ANYTIME
from hush_aggregator.estimate.result import Result
from hush_aggregator.publish.presentation import NumberFormat, interval_name
from hush_common.formatting import exact, fixed, whole
from hush_common.terminal import Fact, Facts, Renderable, Screen, Sentence, note
from hush_simulations.display.time_left import TimeLeft

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import ProgressColumn
    from rich.text import Text

EVERY_S = 5.0
"""Seconds between two lines; shorter work prints none."""


def _line_writer(clock: Callable[[], float]) -> Callable[[Callable[[float], str]], None]:
    """Return a function that prints a line at most every `EVERY_S` seconds; its words get the seconds since now."""
    began = last = clock()

    def write(words: Callable[[float], str]) -> None:
        nonlocal last
        now = clock()
        if now - last >= EVERY_S:
            last = now
            note(words(now - began))

    return write


def progress_lines(what: str, total: int, clock: Callable[[], float] = time.monotonic) -> Callable[[int], None]:
    """Return a function of the number done, which prints lines: "20 of 50 reports counted (40 %), 6 s, 9 s left"."""
    write, pace = _line_writer(clock), TimeLeft(clock)
    pace.add(0)

    def tick(done: int) -> None:
        pace.add(done)

        def words(seconds: float) -> str:
            said = f"{_of(done, total)} {what} ({_share(done, total)}), {whole(seconds)} s"
            return ", ".join(filter(None, (said, pace.left(total - done))))

        write(words)

    return tick


_MOST_LINES = 5


@contextmanager
def show_progress(total: int) -> Iterator[tuple[Callable[[int], None] | None, Callable[[Result], None] | None]]:
    """Yield functions to call with the number of counted reports, and with each result (None without a terminal)."""
    if not sys.stderr.isatty():
        yield progress_lines("reports counted", total), None
        return
    from rich.console import Console, Group  # noqa: PLC0415 - rich is for terminals alone
    from rich.live import Live  # noqa: PLC0415
    from rich.progress import Progress  # noqa: PLC0415

    console = Console(stderr=True, highlight=False)
    what = "reports counted" if _has_bar(console) else "reports"
    progress = Progress(*bar_columns(console, what, "{task.fields[counted]}", "{task.fields[left]}"), console=console)
    bar, pace = progress.add_task("", total=total, counted=_of(0, total), left=""), TimeLeft()
    pace.add(0)

    def tick(counted: int) -> None:
        pace.add(counted)
        progress.update(bar, completed=counted, counted=_of(counted, total), left=pace.left(total - counted))

    with Live(progress, console=console, transient=True, refresh_per_second=8) as live:
        yield (
            tick,
            lambda result: live.update(Group(progress, render(result)) if estimates_so_far(result) else progress),
        )


def _of(count: int, total: int) -> str:
    return f"{whole(count)} of {whole(total)}"


def _share(count: int, total: int) -> str:
    return f"{fixed(count / total, 0, scale=100)} %"


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


@contextmanager
def show_waiting(what: str, every_s: float = EVERY_S) -> Iterator[None]:
    """Show that work without a count goes on: a spinner on a terminal, else a line every few seconds."""
    from rich.console import Console  # noqa: PLC0415

    console = Console(stderr=True)
    if console.is_terminal:
        with console.status(_one_line(console, what)):
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


@contextmanager
def show_sweep_progress(clock: Callable[[], float] = time.monotonic) -> Iterator[Callable[[int, int], None]]:
    """Yield a function to call with the number of finished cells and of all; first with those of earlier runs."""
    if not sys.stderr.isatty():
        yield _cell_lines(clock)
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress  # noqa: PLC0415

    console = Console(stderr=True, highlight=False)
    columns = bar_columns(console, "cells", "{task.fields[made]}", "{task.fields[rest]}")
    with Progress(*columns, console=console, transient=True) as bar:
        line, pace = bar.add_task("", total=None, made="", rest=""), TimeLeft(clock)

        def tick(made: int, cells: int) -> None:
            pace.add(made)
            rest = _rate_and_rest(pace, cells - made) if _has_bar(console) else pace.left(cells - made)
            bar.update(line, completed=made, total=cells, made=_of(made, cells), rest=rest)

        yield tick


_BAR_WIDTH = 64  # columns of a terminal from which on a bar, a clock and a rate have room in one line


def _has_bar(console: "Console") -> bool:
    return console.width >= _BAR_WIDTH


def bar_columns(console: "Console", what: str, done: str, rest: str) -> "list[ProgressColumn]":
    """Return the columns of a line of progress: on a narrow terminal without a bar and a clock, so that it is one line.

    Args:
        console: where it is shown.
        what: is counted.
        done: template of how much is done.
        rest: template of how long the rest takes.
    """
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    name, figures = TextColumn(what), TextColumn(done, style="progress.download")
    drawn = (BarColumn(), figures, TimeElapsedColumn()) if _has_bar(console) else (figures,)
    return [name, *drawn, TextColumn(rest)]


def _one_line(console: "Console", words: str) -> str:
    """Return the words next to a spinner, cut at the width of the terminal."""
    from rich.text import Text  # noqa: PLC0415

    text = Text(words)
    text.truncate(console.width - len("⠋ "), overflow="ellipsis")
    return text.plain


def _rate_and_rest(pace: TimeLeft, missing: int) -> str:
    return ", ".join(filter(None, (pace.rate_in_words(), pace.left(missing))))


def _cell_lines(clock: Callable[[], float]) -> Callable[[int, int], None]:
    write, pace = _line_writer(clock), TimeLeft(clock)

    def tick(made: int, cells: int) -> None:
        pace.add(made)

        def words(seconds: float) -> str:
            said = f"{_of(made, cells)} cells ({_share(made, cells)}), {whole(seconds)} s"
            return ", ".join(filter(None, (said, _rate_and_rest(pace, cells - made))))

        write(words)

    return tick


@contextmanager
def show_checks(clock: Callable[[], float] = time.monotonic) -> Iterator[Callable[[str, int, int], None]]:
    """Yield a function to call with the name of a check that starts, its number from 0, and how many there are."""
    from rich.console import Console  # noqa: PLC0415 - rich is for terminals alone

    console, began = Console(stderr=True, highlight=False), clock()

    def words(name: str, number: int, count: int) -> str:
        return f"{number + 1} of {count} checks: {name}, {whole(clock() - began)} s"

    if console.is_terminal:
        with console.status("starting") as status:
            yield lambda *at: status.update(_one_line(console, words(*at)))
        return

    yield lambda *at: note(words(*at))
