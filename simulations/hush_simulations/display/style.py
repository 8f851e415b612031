"""The one style of every picture: colours that the colour-blind tell apart, on a light or on a dark ground.

matplotlib without pyplot: figures are objects, drawn by Agg, so that no display and no global state is involved.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hush_simulations.display.fonts import FAMILY, made_available

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import LayoutEngine

__all__ = ["DARK", "DPI", "FAINT", "INK", "LIGHT", "NOISY", "TRUE", "Palette", "canvas", "logarithmic", "styled"]

DPI = 160


@dataclass(frozen=True, slots=True)
class Palette:
    """Colours of a picture.

    Args:
        ground: behind everything.
        ink: text, axes and intervals.
        faint: what is said beside.
        true: true values, which only a simulation knows.
        noisy: what has been perturbed, and what follows from it.
        third: a third line; fourth: a fourth one. With the two above they differ in lightness, too.
    """

    ground: str
    ink: str
    faint: str
    true: str
    noisy: str
    third: str
    fourth: str

    @property
    def lines(self) -> tuple[str, str, str, str]:
        """Colours of several lines, in their order."""
        return self.true, self.noisy, self.third, self.fourth


LIGHT = Palette("#ffffff", "#22303c", "#7c8a96", "#2f7fb8", "#e08a3c", "#1d7a5a", "#8a4f9e")
DARK = Palette("#161c22", "#e3e9ee", "#8c9aa6", "#6cb4e8", "#f0a860", "#5fc7a0", "#c892da")

TRUE, NOISY, INK, FAINT = LIGHT.true, LIGHT.noisy, LIGHT.ink, LIGHT.faint


@contextmanager
def styled(palette: Palette = LIGHT) -> Iterator[None]:
    """Draw in this style; a figure has to be made and drawn inside."""
    made_available()
    from matplotlib import rc_context  # noqa: PLC0415 - matplotlib takes a second to import

    with rc_context(
        {
            "font.family": [FAMILY],
            "font.sans-serif": [FAMILY],
            "text.parse_math": False,  # a name with two dollars is a name
            "figure.facecolor": palette.ground,
            "savefig.facecolor": palette.ground,
            "axes.facecolor": palette.ground,
            "legend.frameon": False,
            "font.size": 11.5,
            "text.color": palette.ink,
            "axes.labelcolor": palette.ink,
            "axes.edgecolor": palette.faint,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.titlesize": 12,
            "axes.titlelocation": "left",
            "axes.titleweight": "bold",
            "axes.titlepad": 8,
            "xtick.color": palette.ink,
            "ytick.color": palette.ink,
        }
    ):
        yield


def canvas(width: float, height: float, layout: "LayoutEngine | None" = None) -> "Figure":
    """An empty figure of this size in inches, ready to be drawn and saved."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - matplotlib takes a second to import
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(width, height), dpi=DPI, layout="constrained" if layout is None else layout)
    FigureCanvasAgg(figure)
    return figure


def logarithmic(axes: "Axes", directions: str) -> None:
    """Make axes logarithmic, with plain labels.

    Args:
        axes: of which figure.
        directions: "x", "y" or "xy".
    """
    from hush_simulations.display.ticks import LogTicks  # noqa: PLC0415 - matplotlib takes a second to import

    for direction, set_scale, axis in (("x", axes.set_xscale, axes.xaxis), ("y", axes.set_yscale, axes.yaxis)):
        if direction in directions:
            set_scale("log")
            axis.set_major_formatter(LogTicks())
            axis.set_minor_formatter(LogTicks(labelOnlyBase=False))
