"""Numbers: how figures of a result stand on the page: rounded for the eye, whole for a machine.

Each is a `<data>` element: what is read is rounded to the precision that its interval has, its `value` is the figure as
the result has it, digit for digit, and `data-figure` says where in the document of the result it stands.
"""

import math
from dataclasses import dataclass, replace

from hush_aggregator.estimate.estimates import Interval
from hush_aggregator.http.page.markup import Html, element, foreign, fragment
from hush_common.formatting import fixed, significant, whole

__all__ = ["UNKNOWN", "Scale", "count"]

UNKNOWN = "\N{EN DASH}"
"""Where a number could stand, and there is none."""

_DIGITS = 4
_LARGEST_FIXED = 1e9
_MOST_PLACES = 9
_SHORT = 8


@dataclass(frozen=True, slots=True)
class Scale:
    """How the figures of one estimate are written.

    Args:
        unit: of the numbers, as its author wrote it.
        percent: whether they are shares of one, shown in per cent.
        places: decimals; None for four significant digits.
        apart: whether they are differences: of shares these are points of per cent.
    """

    unit: str = ""
    percent: bool = False
    places: int | None = None
    apart: bool = False

    def fitting(self, interval: Interval | None) -> "Scale":
        """With as many decimals as leave two digits of the half-width of an interval."""
        if interval is None:
            return self
        half = (interval[1] - interval[0]) / 2 * (100 if self.percent else 1)
        largest = max(map(abs, interval))
        if not 0 < half < _LARGEST_FIXED or largest >= _LARGEST_FIXED:
            return self
        places = max(0, 1 - math.floor(math.log10(half)))
        return self if places > _MOST_PLACES else replace(self, places=places)

    @property
    def differences(self) -> "Scale":
        """The same for differences of such numbers."""
        return replace(self, apart=True)

    def text(self, value: float) -> str:
        """The digits alone."""
        scale = 100 if self.percent else 1
        if self.places is None or abs(value) >= _LARGEST_FIXED:
            return significant(value, _DIGITS, scale=scale)
        return fixed(value, self.places, scale=scale)

    def plain(self, value: float) -> str:
        """Digits and unit as text: for the description of a drawing."""
        return f"{self.text(value)} {'%' if self.percent else self.unit}".rstrip()

    def figure(self, value: float, place: str, *, unit: bool = True) -> Html:
        """The number with its unit.

        Args:
            value: as the result has it.
            place: where the document has it: `mean`, `intervals.population.0`.
            unit: whether its unit is written after it.
        """
        shown = element("data", self.text(value), value=repr(float(value)), data_figure=place)
        return element("span", shown, self._unit(), class_=self._class) if unit else shown

    def interval(self, ends: Interval, place: str) -> Html:
        """Both ends: 157.9 to 182.7 cm."""
        low, high = (self.figure(end, f"{place}.{number}", unit=False) for number, end in enumerate(ends))
        return element("span", low, " to ", high, self._unit(), class_="interval")

    @property
    def _class(self) -> str:
        """A number and a short unit stay on one line."""
        return "figure" if len(self.unit) <= _SHORT else "figure long"

    def _unit(self) -> Html | None:
        if self.percent:
            return fragment("\N{NO-BREAK SPACE}points" if self.apart else "\N{NO-BREAK SPACE}%")
        return fragment("\N{NO-BREAK SPACE}", foreign(self.unit)) if self.unit else None


def count(value: int, place: str) -> Html:
    """A whole number of the result."""
    return element("data", whole(value), value=str(value), data_figure=place)
