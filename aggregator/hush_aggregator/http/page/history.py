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

    def add(self, result: Result) -> None:
        """Remember an estimate. Those of a round come one after the other, as they were counted."""
        band = result.intervals.get(ANYTIME)
        if result.mean is None or band is None:
            return
        key = result.task.digest, result.round
        points = self._points.setdefault(key, [])
        self._points.move_to_end(key)
        while len(self._points) > _KEPT:
            self._points.popitem(last=False)
        if points and result.n < points[-1].n:
            points.clear()  # the store was put back
        if points and result.n == points[-1].n:
            points.pop()
        elif len(points) > 1 and points[-1].n < points[-2].n * _GROWTH:
            points.pop()  # it was kept for being the last
        points.append(Point(result.n, result.mean, band))

    def until(self, result: Result) -> Sequence[Point]:
        """What is known of a round, up to this estimate of it."""
        points = self._points.get((result.task.digest, result.round), ())
        return tuple(point for point in points if point.n <= result.n)
