"""The figures of the chapter on the lecture."""

from math import exp
from typing import TYPE_CHECKING

import numpy as np

from hush_simulations.display.style import LIGHT, Palette, canvas, finish, logarithmic, styled
from hush_tour.laplace_law import LaplaceLaw
from hush_tour.trusted_collector.gaussian import analytic_sigma, classical_sigma

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def of_losses(palette: Palette = LIGHT) -> "Figure":
    """The loss of a coin that is answered truly with probability p."""
    with styled(palette):
        figure = canvas(3.2)
        axes = figure.subplots()
        p = np.linspace(0.5, 0.98, 300)
        axes.plot(p, np.log(p / (1 - p)), color=palette.noisy, lw=2.2)
        for truth, name in ((0.75, "two coins: ln 3"), (exp(2) / (exp(2) + 1), "ε = 2")):
            loss = float(np.log(truth / (1 - truth)))
            axes.plot([truth], [loss], "o", color=palette.true, ms=8)
            axes.text(truth - 0.01, loss + 0.1, name, ha="right")
        axes.set_title("Randomized response: what a true answer costs")
        axes.set_xlabel("probability of the true answer")
        axes.set_ylabel("privacy loss ε")
        finish(figure)
    return figure


def of_laplace_and_normal(palette: Palette = LIGHT) -> "Figure":
    """Two distributions of variance 2: peaks on a linear axis, tails on a logarithmic one."""
    with styled(palette):
        figure = canvas(3.2)
        left, right = figure.subplots(1, 2)
        x = np.linspace(-8, 8, 801)
        for axes in (left, right):
            axes.plot(x, LaplaceLaw().density(x), color=palette.noisy, lw=2, label="Laplace")
            axes.plot(x, np.exp(-(x**2) / 4) / np.sqrt(4 * np.pi), color=palette.true, lw=2, label="normal")
            axes.set_xlabel("x")
        left.set_title("a sharper peak")
        left.set_ylim(bottom=0)
        left.legend()
        right.set_title("and heavier tails")
        logarithmic(right, "y")
        right.set_ylim(1e-7, 1)
        finish(figure)
    return figure


def of_unequal_noise(n: int, epsilon: float, palette: Palette = LIGHT) -> "Figure":
    """The log-ratio where each of two neighbours scales the noise by its own n, and where both use one."""
    with styled(palette):
        figure = canvas(3.2)
        axes = figure.subplots()
        z = np.linspace(-3, 3, 1201)
        mean, other = 0.5, (0.5 * n + 1) / (n + 1)
        own = -np.abs(z - mean) * epsilon * n + np.abs(z - other) * epsilon * (n + 1) + np.log(n / (n + 1))
        fixed = (np.abs(z - other) - np.abs(z - mean)) * epsilon * n
        axes.plot(z, own, color=palette.noisy, lw=2.2, label="each with its own n")
        axes.plot(z, fixed, color=palette.true, lw=2.2, label="n public and fixed")
        axes.axhspan(-epsilon, epsilon, color=palette.third, alpha=0.18, lw=0, label="±ε")
        axes.set_title("The loss where neighbours differ in size")
        axes.set_xlabel("released mean z")
        axes.set_ylabel("log-ratio of densities")
        axes.legend(loc="upper center")
        finish(figure)
    return figure


def of_calibrations(delta: float, palette: Palette = LIGHT) -> "Figure":
    """Standard deviation of Gaussian noise against epsilon, by both calibrations, beside Laplace noise."""
    with styled(palette):
        figure = canvas(3.7)
        axes = figure.subplots()
        epsilons = np.geomspace(0.05, 10, 80)
        below = epsilons[epsilons < 1]
        axes.plot(
            epsilons,
            [analytic_sigma(float(one), delta) for one in epsilons],
            color=palette.true,
            lw=2.2,
            label="Gauss, analytic",
        )
        axes.plot(
            below,
            [classical_sigma(float(one), delta) for one in below],
            color=palette.noisy,
            lw=2.2,
            label="Gauss, classical (ε < 1)",
        )
        axes.plot(epsilons, np.sqrt(2) / epsilons, color=palette.third, lw=2.2, label="Laplace, δ = 0")
        logarithmic(axes, "xy")
        axes.set_title(f"Noise for one number of sensitivity 1, δ = {delta:g}")
        axes.set_xlabel("ε")
        axes.set_ylabel("standard deviation")
        axes.legend()
        finish(figure)
    return figure
