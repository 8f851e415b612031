"""The figures of the chapter on the slides."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hush_simulations.display.style import LIGHT, Palette, canvas, finish, logarithmic, styled
from hush_tour.laplace_law import LaplaceLaw

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_Array = NDArray[np.float64]


def of_definitions(palette: Palette = LIGHT) -> "Figure":
    """e^epsilon beside 1 + epsilon."""
    with styled(palette):
        figure = canvas(3.1)
        axes = figure.subplots()
        x = np.linspace(0, 2, 201)
        axes.plot(x, np.exp(x), color=palette.noisy, lw=2.2, label="e^ε")
        axes.plot(x, 1 + x, color=palette.true, lw=2.2, label="1 + ε")
        axes.set_title("Two definitions that agree only for small ε")
        axes.set_xlabel("ε")
        axes.set_ylabel("largest ratio")
        axes.legend()
        finish(figure)
    return figure


def of_sides(law: LaplaceLaw, uniform: _Array, drawn: _Array, palette: Palette = LIGHT) -> "Figure":
    """A Laplace distribution: density, distribution, inverse, and two histograms of draws.

    Args:
        law: the distribution.
        uniform: uniform numbers, whose inverses are drawn as well.
        drawn: draws of the exact sampler.
        palette: the colours.
    """
    with styled(palette):
        figure = canvas(5.4)
        axes = figure.subplots(2, 3)
        x, p = np.linspace(-6, 6, 601), np.linspace(0.002, 0.998, 499)
        axes[0, 0].plot(x, law.density(x), color=palette.true, lw=2)
        axes[0, 0].set_title("density")
        axes[0, 1].plot(x, law.distribution(x), color=palette.true, lw=2)
        axes[0, 1].set_title("distribution")
        axes[0, 2].plot(p, law.inverse(p), color=palette.true, lw=2)
        axes[0, 2].set_title("inverse")
        axes[1, 0].hist(uniform, bins=20, range=(0, 1), color=palette.faint, alpha=0.7)
        axes[1, 0].set_title("uniform numbers")
        for place, (values, name) in ((1, (law.inverse(uniform), "their inverse")), (2, (drawn, "exact draws"))):
            axes[1, place].hist(values, bins=60, range=(-6, 6), density=True, color=palette.noisy, alpha=0.75)
            axes[1, place].plot(x, law.density(x), color=palette.ink, lw=1.2)
            axes[1, place].set_title(name)
        for one in (axes[0, 0], axes[1, 0], axes[1, 1], axes[1, 2]):
            one.set_yticks([])
        finish(figure)
    return figure


def of_memory(palette: Palette = LIGHT) -> "Figure":
    """The survivor function of an exponential distribution, from the start and from t on: the same curve."""
    with styled(palette):
        figure = canvas(3.2)
        axes = figure.subplots(1, 2)
        x, t = np.linspace(0, 5, 501), 1.5
        later = x[x >= t]
        axes[0].plot(x, np.exp(-x), color=palette.true, lw=2)
        axes[0].fill_between(later, np.exp(-later), color=palette.noisy, alpha=0.4, lw=0)
        axes[0].set_title("density")
        axes[1].plot(x, np.exp(-x), color=palette.true, lw=2, label="P(X > x)")
        axes[1].plot(later, np.exp(-(later - t)), color=palette.noisy, lw=2, label=f"P(X > x | X > {t})")
        axes[1].set_title("survivor functions")
        axes[1].legend()
        for one in axes:
            one.set_xlabel("x")
            one.set_ylim(0, 1.5)  # the legend stands above the curves
            one.set_yticks(np.linspace(0, 1, 6))
        finish(figure)
    return figure


def of_ratio(two: tuple[LaplaceLaw, LaplaceLaw], epsilon: float, at: float, palette: Palette = LIGHT) -> "Figure":
    """Densities of a release from two neighbouring data sets, and their ratio between e^-epsilon and e^epsilon."""
    with styled(palette):
        figure = canvas(5.3)
        top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        one, other = two
        far = 5 * one.scale
        x = np.linspace(min(one.location, other.location) - far, max(one.location, other.location) + far, 1201)
        top.plot(x, one.density(x), color=palette.true, lw=2.2, label="from D")
        top.plot(x, other.density(x), color=palette.noisy, lw=2.2, label="from D′, one record replaced")
        for law, color in ((one, palette.true), (other, palette.noisy)):
            top.plot([at], law.density(np.array([at])), "o", color=color, ms=8, mec=palette.ground)
        top.axvline(at, color=palette.faint, lw=1, ls=(0, (4, 3)))
        top.set_title("What can be released, and how likely")
        top.set_yticks([])
        top.set_ylim(0, 1.45 * top.get_ylim()[1])  # the legend stands above the curves
        top.legend(loc="upper left")
        bottom.plot(x, one.density(x) / other.density(x), color=palette.ink, lw=2)
        for bound, name, end, side in (
            (np.exp(epsilon), "e^ε", x[-1], "right"),
            (np.exp(-epsilon), "1/e^ε", x[0], "left"),
        ):
            bottom.axhline(bound, color=palette.third, lw=1.4, ls=(0, (4, 3)))
            bottom.text(end, bound**1.08, name, color=palette.third, ha=side, va="bottom" if bound > 1 else "top")
        logarithmic(bottom, "y")
        bottom.set_ylim(np.exp(-1.6 * epsilon), np.exp(1.6 * epsilon))
        bottom.set_yticks([1.0], ["1"])
        bottom.minorticks_off()
        bottom.set_title("Their ratio")
        bottom.set_xlabel("released value z")
        finish(figure)
    return figure


def of_releases(true: float, releases: dict[str, _Array], palette: Palette = LIGHT) -> "Figure":
    """Histograms of a private mean that is released again and again, at several epsilons."""
    with styled(palette):
        figure = canvas(3.4)
        axes = figure.subplots()
        widest = max(float(values.std()) for values in releases.values())
        for (name, values), color in zip(releases.items(), palette.lines, strict=False):
            axes.hist(
                values,
                bins=80,
                range=(true - widest, true + widest),
                density=True,
                histtype="step",
                lw=2,
                color=color,
                label=name,
            )
        axes.axvline(true, color=palette.ink, lw=1.2, ls=(0, (4, 3)), label="mean of the clamped values")
        axes.set_title("A private mean, released 5000 times")
        axes.set_xlabel("released mean")
        axes.set_yticks([])
        axes.legend()
        finish(figure)
    return figure
