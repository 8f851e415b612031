"""Waiting: that work without a count of its own goes on, for whoever started it."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from hush_common.formatting import whole
from hush_simulations.display.ticking import EVERY_S

__all__ = ["waiting"]


@contextmanager
def waiting(what: str, every_s: float = EVERY_S) -> Iterator[None]:
    """Show on standard error that work goes on: a moving sign on a terminal, else a line every few seconds.

    Args:
        what: is done, as in "playing the attack averaging".
        every_s: seconds between two lines.
    """
    console = Console(stderr=True)
    if console.is_terminal:
        with console.status(what):
            yield
        return
    ended, began = threading.Event(), time.monotonic()

    def tell() -> None:
        while not ended.wait(every_s):
            sys.stderr.write(f"hush: {what}, {whole(time.monotonic() - began)} s\n")
            sys.stderr.flush()

    teller = threading.Thread(target=tell, name="waiting", daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()
