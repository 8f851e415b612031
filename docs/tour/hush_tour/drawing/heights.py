"""The figures of the chapter on heights."""

from collections.abc import Sequence
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hush_simulations.display.style import LIGHT, Palette, canvas, finish, logarithmic, styled
from hush_tour.laplace_law import LaplaceLaw
from hush_tour.mixtures import HEIGHTS, density

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_Array = NDArray[np.float64]


def of_population(palette: Palette = LIGHT) -> "Figure":
    """Women, men, and everybody; μ ± σ shaded."""
    with styled(palette):
        figure = canvas(3.6)
        axes = figure.subplots()
        x = np.linspace(130, 210, 801)
        women, men = HEIGHTS.parts[1], HEIGHTS.parts[0]
        for name, y, color in (
            ("men", density(x, men), palette.true),
            ("women", density(x, women), palette.third),
            ("everybody", HEIGHTS.density(x), palette.noisy),
        ):
            axes.plot(x, y, color=color, lw=2.2, label=name)
        inside = np.abs(x - HEIGHTS.mean) <= HEIGHTS.sd
        axes.fill_between(x[inside], HEIGHTS.density(x[inside]), color=palette.noisy, alpha=0.25, lw=0, label="μ ± σ")
        axes.set_title("Who is asked: adults, half women, half men")
        axes.set_xlabel("height, cm")
        axes.set_yticks([])
        axes.set_ylim(bottom=0)
        axes.legend(loc="upper left")
        finish(figure)
    return figure


def of_differences(drawn: _Array, marks: Sequence[tuple[float, str]], palette: Palette = LIGHT) -> "Figure":
    """How far apart two random people are, with the numbers that are called a sensitivity.

    Args:
        drawn: sampled differences, in cm.
        marks: each such number with its name.
        palette: the colours.
    """
    with styled(palette):
        figure = canvas(3.6)
        axes = figure.subplots()
        axes.hist(drawn, bins=60, range=(0, 60), density=True, color=palette.true, alpha=0.55)
        x = np.linspace(0, 60, 601)
        exceeds = np.array([HEIGHTS.share_farther_apart(at) for at in x])
        axes.plot(x, -np.gradient(exceeds, x), color=palette.true, lw=2)
        top = axes.get_ylim()[1]
        for row, (at, name) in enumerate(marks):
            height = top * (0.96 - 0.13 * row)
            right = at > 60  # noqa: PLR2004 - the edge of the picture
            axes.axvline(min(at, 60), color=palette.ink, lw=1.4, ls="-" if right else (0, (4, 3)), ymax=0.97)
            axes.text(
                min(at, 60) - 0.6 if at > 30 else at + 0.6,  # noqa: PLR2004 - on the side that has room
                height,
                f"{name}: {at:.4g} cm" + (" →" if right else ""),
                ha="right" if at > 30 else "left",  # noqa: PLR2004
                va="top",
                bbox={"fc": palette.ground, "ec": "none", "pad": 1.5},
            )
        axes.set_xlim(0, 60)
        axes.set_title("How far apart two people are")
        axes.set_xlabel("|x − x′|, cm")
        axes.set_yticks([])
        finish(figure)
    return figure


def errors(
    sensitivity: float, epsilons: _Array, people: int, runs: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """The mean absolute error of the mean of `people` with noise of scale sensitivity/epsilon each: of `runs` runs.

    Only the noise errs: the error is measured against the mean of the same people. (The notebook draws one run.)
    """
    noise = np.array([LaplaceLaw().draws(people, rng).mean() for _ in range(runs)])
    return np.asarray(np.abs(noise).mean() * sensitivity / epsilons)


def mean_of_absolute_error(sensitivity: float, epsilon: float, people: int) -> float:
    """E|mean of the noises|, by the normal law that such a mean has nearly: scale·sqrt(2/n)·sqrt(2/pi)."""
    return sensitivity / epsilon * sqrt(2 / people) * sqrt(2 / np.pi)


def of_errors(
    lines: Sequence[tuple[str, float]], epsilons: _Array, measured: Sequence[_Array], palette: Palette = LIGHT
) -> "Figure":
    """Error against epsilon, measured (points) and as the theory has it (lines), for each sensitivity."""
    with styled(palette):
        figure = canvas(4.1)
        axes = figure.subplots()
        fine = np.geomspace(float(epsilons[0]), float(epsilons[-1]), 200)
        for (name, sensitivity), points, color in zip(lines, measured, palette.lines, strict=True):
            axes.plot(fine, [mean_of_absolute_error(sensitivity, one, 500) for one in fine], color=color, lw=2)
            axes.plot(epsilons, points, "o", color=color, ms=5, mec=palette.ground, label=name)
        logarithmic(axes, "xy")
        axes.set_title("Error of the mean of 500 people")
        axes.set_xlabel("ε as it is written on the label")
        axes.set_ylabel("mean absolute error, cm")
        axes.legend(title="noise of scale Δ/ε, Δ =", loc="upper right")
        finish(figure)
    return figure
