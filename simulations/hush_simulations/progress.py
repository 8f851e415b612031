"""A progress bar on a terminal, and nothing in a pipe.

It shows counts alone: error bars are for one look at the end, and an estimate watched while reports come in would look
significant sooner or later, whatever the truth is.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

__all__ = ["counting"]


@contextmanager
def counting(total: int) -> Iterator[Callable[[int], None]]:
    """A function to call with the number of reports counted so far, of `total`."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    columns = (TextColumn("reports counted"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("", total=total)
        yield lambda counted: progress.update(bar, completed=counted)
