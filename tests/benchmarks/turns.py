"""Works measured in turns, so that what else the machine does meets all of them alike."""

import gc
import statistics
import time
from collections.abc import Callable, Mapping

__all__ = ["in_turns", "medians"]

Work = Callable[[], object]


def in_turns(works: Mapping[str, Work], *, turns: int, calls: int = 1) -> dict[str, list[float]]:
    """Seconds of one call, by processor time, of each work and turn.

    Args:
        works: by name; each is called once before, uncounted.
        turns: how often each has its turn.
        calls: in one turn.
    """
    found: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():
        work()
    gc.collect()
    for _ in range(turns):
        for name, work in works.items():
            began = time.process_time_ns()
            for _ in range(calls):
                work()
            found[name].append((time.process_time_ns() - began) / calls / 1e9)
    return found


def medians(found: Mapping[str, list[float]]) -> dict[str, float]:
    """The middle turn of each."""
    return {name: statistics.median(times) for name, times in found.items()}
