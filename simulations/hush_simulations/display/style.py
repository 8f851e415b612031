"""The one style of every picture: colours that the colour-blind tell apart, on a light or on a dark ground.

matplotlib without pyplot: figures are objects, drawn by Agg, so that no display and no global state is involved.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hush_common.formatting import whole
from hush_simulations.display.fonts import FAMILY, made_available, without_missing_letters

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import LayoutEngine

__all__ = ["DARK", "DPI", "LIGHT", "WIDTH", "Palette", "canvas", "counted", "logarithmic", "styled"]

DPI = 225
_MANY = ((2e9, 1e9, "billion "), (2e6, 1e6, "million "), (2e4, 1e3, "thousand "))
WIDTH = 6.4
"""Inches of every picture: at 320 pixels, its letters are still eight high."""


@dataclass(frozen=True, slots=True)
class Palette:
    """Colours of a picture.

    Args:
        ground: behind everything.
        ink: text, axes and intervals.
        faint: what is said beside.
        true: true values, which only a simulation knows.
        noisy: what has been perturbed, and what follows from it.
        third: a third line; fourth: a fourth one. Any two of the four are far apart for the colour-blind, too.
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


LIGHT = Palette("#ffffff", "#22303c", "#5f6d79", "#2478b5", "#d2730f", "#003d34", "#b3206f")
DARK = Palette("#161c22", "#e3e9ee", "#98a6b2", "#4f9fdc", "#f0a34f", "#c3f3d4", "#d4467c")


@contextmanager
def styled(palette: Palette = LIGHT) -> Iterator[None]:
    """Draw in this style; a figure has to be made and drawn inside."""
    made_available()
    from matplotlib import rc_context  # noqa: PLC0415 - matplotlib takes a second to import

    with (
        without_missing_letters(),
        rc_context(
            {
                "font.family": [FAMILY],
                "font.sans-serif": [FAMILY],
                "text.parse_math": False,  # a name with two dollars is a name
                "figure.constrained_layout.h_pad": 0.08,
                "figure.constrained_layout.w_pad": 0.08,
                "figure.facecolor": palette.ground,
                "savefig.facecolor": palette.ground,
                "axes.facecolor": palette.ground,
                "legend.frameon": False,
                "font.size": 11.5,
                "text.color": palette.ink,
                "axes.labelcolor": palette.ink,
                "axes.edgecolor": palette.faint,
                "axes.formatter.useoffset": False,  # a tick says what it is
                "axes.spines.top": False,
                "axes.spines.right": False,
                "axes.titlesize": 12,
                "axes.titlelocation": "left",
                "axes.titleweight": "bold",
                "axes.titlepad": 8,
                "xtick.color": palette.ink,
                "ytick.color": palette.ink,
            }
        ),
    ):
        yield


def canvas(height: float, layout: "LayoutEngine | None" = None) -> "Figure":
    """An empty figure of this height in inches, ready to be drawn and saved."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - matplotlib takes a second to import
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(WIDTH, height), dpi=DPI, layout="constrained" if layout is None else layout)
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


def counted(axes: "Axes", what: str) -> None:
    """Make the vertical axis, drawn already, one of whole numbers: of thousands or millions where they are many."""
    from matplotlib.ticker import FuncFormatter  # noqa: PLC0415 - matplotlib takes a second to import

    top = axes.get_ylim()[1]
    scale, word = next(((scale, word) for least, scale, word in _MANY if top >= least), (1.0, ""))
    axes.set_ylabel(word + what)
    axes.locator_params(axis="y", integer=scale == 1, nbins=4)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: whole(value) if scale == 1 else f"{value / scale:g}"))
