"""Progress of a sweep: a bar with rate and time left on a terminal, a line every few seconds in a pipe."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from hush_common.formatting import duration, fixed, significant, whole
from hush_simulations.display.ticking import EVERY_S

__all__ = ["pace", "sweeping"]


@contextmanager
def sweeping(clock: Callable[[], float] = time.monotonic) -> Iterator[Callable[[int, int], None]]:
    """What to call with the number of cells that are made, and of all: first with those that were made before."""
    if not sys.stderr.isatty():
        yield _ticking(clock)
        return
    columns = (TextColumn("cells"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    shown = (*columns, TextColumn("left"), TimeRemainingColumn(), TextColumn("{task.fields[rate]}"))
    with Progress(*shown, console=Console(stderr=True, highlight=False), transient=True) as bar:
        line, began, before = bar.add_task("", total=None, rate=""), clock(), -1

        def tick(made: int, cells: int) -> None:
            nonlocal before
            before = made if before < 0 else before
            bar.update(line, completed=made, total=cells, rate=pace(made - before, cells - made, clock() - began)[0])

        yield tick


def pace(made: int, missing: int, seconds: float) -> tuple[str, str]:
    """The rate and the time left, in words; nothing where none is made yet."""
    if made <= 0 or seconds <= 0:
        return "", ""
    rate = made / seconds
    said = f"{significant(rate)} a second" if rate >= 1 else f"{significant(1 / rate)} s each"
    return said, f"{duration(timedelta(seconds=round(missing / rate)))} left"


def _ticking(clock: Callable[[], float]) -> Callable[[int, int], None]:
    began = last = clock()
    before = -1

    def tick(made: int, cells: int) -> None:
        nonlocal last, before
        before = made if before < 0 else before
        now = clock()
        if now - last < EVERY_S:
            return
        last = now
        share = fixed(made / cells, 0, scale=100)
        said = [f"{whole(made)} of {whole(cells)} cells ({share} %)", f"{whole(now - began)} s"]
        said += [part for part in pace(made - before, cells - made, now - began) if part]
        sys.stderr.write(f"hush: {', '.join(said)}\n")
        sys.stderr.flush()

    return tick
