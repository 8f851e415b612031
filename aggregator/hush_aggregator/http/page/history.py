"""History: how the estimates came about while this service ran, by the number of reports and never by time.

A store keeps no times and no earlier estimates. What is remembered here is what was shown to everybody anyway, thinned
out so that neighbours differ by a twelfth of the reports, and it is gone with the process.
"""

from collections import OrderedDict
from collections.abc import Sequence

from hush_aggregator.estimate.estimates import ANYTIME
from hush_aggregator.http.page.view import Point
from hush_aggregator.result import Result

__all__ = ["History"]

_GROWTH = 12 / 11
_KEPT = 1024


class History:
    """Of the rounds that were looked at last. For one thread: that of the event loop."""

    def __init__(self) -> None:
        self._points: OrderedDict[tuple[bytes, int], list[Point]] = OrderedDict()

    def add(self, result: Result) -> Sequence[Point]:
        """Remember an estimate; return what is known of its round, this one last."""
        key = result.task.digest, result.round
        points = self._points.setdefault(key, [])
        self._points.move_to_end(key)
        while len(self._points) > _KEPT:
            self._points.popitem(last=False)
        band = result.intervals.get(ANYTIME)
        if result.mean is None or band is None:
            return ()
        if points and result.n < points[-1].n:
            points.clear()  # a store that was put back
        now = Point(result.n, result.mean, band)
        if points and result.n == points[-1].n:
            points[-1] = now
        else:
            if len(points) > 1 and points[-1].n < points[-2].n * _GROWTH:
                points.pop()  # the last one was kept for being the last
            points.append(now)
        return tuple(points)
