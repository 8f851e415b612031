"""A finished simulation, as `hush.simulate` returns it."""

from typing import TYPE_CHECKING

from hush_simulations.display.run_figure import figure_of
from hush_simulations.display.style import DARK, LIGHT
from hush_simulations.results import run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Run"]


class Run(run.Run):
    """A finished simulation, with its picture: the results know nothing of how they are shown."""

    __slots__ = ()

    def figure(self, *, dark: bool = False) -> "Figure":
        """The picture that `hush simulate --out` keeps: `run.figure().savefig("heights.png")`.

        Args:
            dark: on a dark ground.
        """
        return figure_of(self, DARK if dark else LIGHT)
