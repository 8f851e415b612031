"""Progress where there is no terminal: a line every few seconds, so that a log shows that a long run lives."""

import sys
import time
from collections.abc import Callable

from hush_common.formatting import fixed, whole

__all__ = ["EVERY_S", "ticking"]

EVERY_S = 5.0
"""Seconds between two lines; what takes less prints none."""


def ticking(what: str, total: int, clock: Callable[[], float] = time.monotonic) -> Callable[[int], None]:
    """What to call with how many of `total` are done, as often as one likes.

    Args:
        what: is counted, as in "reports counted".
        total: of how many, at least 1.
        clock: seconds.
    """
    began = last = clock()

    def tick(done: int) -> None:
        nonlocal last
        now = clock()
        if now - last < EVERY_S:
            return
        last = now
        share = fixed(done / total, 0, scale=100)
        sys.stderr.write(f"hush: {whole(done)} of {whole(total)} {what} ({share} %), {whole(now - began)} s\n")
        sys.stderr.flush()

    return tick
