"""Marks: measured points of several lines, with their intervals, so that none hides another."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from hush_simulations.display.style import Palette
from hush_simulations.display.sweep_layout import Layout

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Mark", "Point", "beside", "marks", "points"]

_SHAPES = "osD^vPX*"


@dataclass(frozen=True, slots=True)
class Mark:
    """How a line looks: its colour, the shape of its points, and where it stands among so many lines."""

    colour: str
    shape: str
    place: int
    of: int


Point = tuple[float, float, float, float]
"""Where, the value, and the ends of its interval."""


def points(axes: "Axes", found: Sequence[Point], name: str, mark: Mark, palette: Palette) -> None:
    """Measured points with their intervals."""
    at, value, low, high = (np.array([one[place] for one in found]) for place in range(4))
    axes.errorbar(
        at,
        value,
        yerr=(np.maximum(value - low, 0), np.maximum(high - value, 0)),
        fmt=mark.shape,
        color=mark.colour,
        ms=5.5,
        mec=palette.ground,
        mew=0.6,
        elinewidth=1.4,
        capsize=2.5,
        label=name or None,
    )


def beside(layout: Layout, found: Sequence[Point], mark: Mark) -> list[Point]:
    """The points of a line a little aside, so that those of several lines do not hide each other."""
    shift = mark.place - (mark.of - 1) / 2
    places = sorted({at for panel in layout.panels for line in panel.lines for at in line.at})
    if len(places) < 2:  # noqa: PLR2004 - nothing lies between
        return [(at + 0.1 * shift, *rest) for at, *rest in found]  # type: ignore[misc]
    if layout.logarithmic:
        factor = min(after / before for before, after in pairwise(places)) ** (0.14 * shift)
        return [(at * factor, value, low, high) for at, value, low, high in found]
    apart = 0.14 * min(after - before for before, after in pairwise(places))
    return [(at + apart * shift, value, low, high) for at, value, low, high in found]


def marks(count: int, palette: Palette) -> list[Mark]:
    """As many lines; the colours of more than there are lie between three of them."""
    from matplotlib.colors import LinearSegmentedColormap, to_hex  # noqa: PLC0415 - matplotlib takes a second to import

    colours = list(palette.lines)
    if count > len(colours):
        ramp = LinearSegmentedColormap.from_list("lines", [palette.third, palette.true, palette.noisy])
        colours = [to_hex(ramp(place)) for place in np.linspace(0, 1, count)]
    return [Mark(colours[place], _SHAPES[place % len(_SHAPES)], place, count) for place in range(count)]
