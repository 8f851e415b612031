"""The figures of the chapter on the mechanism."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hush_common.mechanisms import Laplace, RandomizedResponse
from hush_simulations.display.style import LIGHT, Palette, canvas, finish, logarithmic, styled
from hush_tour import needed
from hush_tour.laplace_law import LaplaceLaw

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def of_densities(laws: Sequence[tuple[str, LaplaceLaw]], title: str, palette: Palette = LIGHT) -> "Figure":
    """Densities of several Laplace distributions."""
    with styled(palette):
        figure = canvas(3.4)
        axes = figure.subplots()
        x = np.linspace(-10, 10, 2001)
        for (name, law), color in zip(laws, palette.lines, strict=False):
            axes.plot(x, law.density(x), color=color, lw=2, label=name)
        axes.set_title(title)
        axes.set_xlabel("x")
        axes.set_ylabel("density")
        axes.set_ylim(bottom=0)
        axes.legend(loc="upper right")
        finish(figure)
    return figure


def of_largest(drawn: NDArray[np.float64], marks: Mapping[str, float], palette: Palette = LIGHT) -> "Figure":
    """The largest of many errors, run after run, with what is said about it."""
    with styled(palette):
        figure = canvas(3.2)
        axes = figure.subplots()
        axes.hist(drawn, bins=50, color=palette.noisy, alpha=0.75)
        top = axes.get_ylim()[1]
        for row, (name, at) in enumerate(marks.items()):
            axes.axvline(at, color=palette.ink, lw=1.4, ls=(0, (4, 3)))
            axes.text(
                at + 2,
                top * (0.96 - 0.14 * row),
                f"{name}: {at:.2f}",
                va="top",
                bbox={"fc": palette.ground, "ec": "none", "pad": 1.5},
            )
        axes.set_title("The largest error of 3143 counts, ε = 0.1")
        axes.set_xlabel("people")
        axes.set_ylabel("runs")
        finish(figure)
    return figure


def of_counts(labels: Sequence[str], true: Sequence[int], noisy: Sequence[float], palette: Palette = LIGHT) -> "Figure":
    """A histogram, and the one that a trusted collector releases."""
    with styled(palette):
        figure = canvas(3.2)
        axes = figure.subplots()
        rows = np.arange(len(labels))
        axes.bar(rows - 0.2, true, 0.38, color=palette.true, label="true")
        axes.bar(rows + 0.2, noisy, 0.38, color=palette.noisy, label="released")
        axes.set_xticks(rows, labels)
        axes.set_title("A histogram of a trusted collector")
        axes.set_ylabel("people")
        axes.legend()
        finish(figure)
    return figure


def of_central_and_local(epsilon: Fraction, palette: Palette = LIGHT) -> "Figure":
    """Error of a share against the number of people: what trust is worth."""
    with styled(palette):
        figure = canvas(3.9)
        axes = figure.subplots()
        n = np.unique(np.geomspace(10, 1e7, 60).astype(int))
        coins, noise = RandomizedResponse.from_epsilon(epsilon), Laplace(epsilon, 1 << 20)
        for name, error, color in (
            ("trusted collector, 1/n", [needed.central_error(int(one), epsilon) for one in n], palette.third),
            ("randomized response", [needed.local_error(int(one), coins.worst_variance) for one in n], palette.noisy),
            (
                "Laplace noise on every device",
                [needed.local_error(int(one), noise.worst_variance) for one in n],
                palette.true,
            ),
        ):
            axes.plot(n, error, color=color, lw=2.2, label=name)
        axes.axhline(0.01, color=palette.faint, lw=1, ls=(0, (4, 3)))
        axes.text(1e7, 0.0107, "error 0.01", color=palette.faint, ha="right", va="bottom")
        logarithmic(axes, "xy")
        axes.set_title(f"The price of not trusting, ε = {float(epsilon):g}")
        axes.set_xlabel("people")
        axes.set_ylabel("root mean square error of a share")
        axes.legend()
        finish(figure)
    return figure
