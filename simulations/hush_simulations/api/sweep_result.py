"""A finished sweep, as `hush.sweep` returns it."""

from typing import TYPE_CHECKING, Literal

from hush_common.errors import OptionError
from hush_simulations.display.style import DARK, LIGHT
from hush_simulations.display.sweep_figures import pictures_of_sweep
from hush_simulations.sweeps import result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["SweepResult"]


class SweepResult(result.SweepResult):
    """A finished sweep, with its figures: the results know nothing of how they are shown."""

    __slots__ = ()

    def figure(self, what: Literal["error", "coverage", "bias"] = "error", *, dark: bool = False) -> "Figure":
        """A figure that `hush sweep` writes: `result.figure("coverage").savefig("coverage.svg")`.

        Epsilon is along the axis where it was varied, else the share of liars, else another axis of the grid. Numbers
        of devices are lines, what else was varied is panels, which share their axes.

        Args:
            what: the root mean square error beside theory, how often intervals hold the truth beside what they promise,
                or the bias in its standard errors beside chance.
            dark: on a dark ground.

        Raises:
            OptionError: there is no such figure.
        """
        pictures = pictures_of_sweep(self)
        if f"sweep-{what}" not in pictures:
            names = ", ".join(name.removeprefix("sweep-") for name in pictures)
            raise OptionError("what", f"{str(what)[:40]!r} is not one of the figures; pass one of {names}")
        return pictures[f"sweep-{what}"].draw(DARK if dark else LIGHT)
