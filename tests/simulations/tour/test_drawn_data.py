"""What the figures of the tour draw is what they were given: bars, lines and histograms."""

import math

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.patches import Polygon, Rectangle
from numpy.typing import NDArray
from scipy import stats

from hush_simulations.display.style import DARK
from hush_tour.drawing import heights, lecture, mechanism, slides
from hush_tour.laplace_law import LaplaceLaw

pytestmark = pytest.mark.large

RNG = np.random.default_rng(11)


def bars(axes: Axes) -> NDArray[np.float64]:
    """Left end, width and height of each bar; of lying ones the other way round."""
    found = [one for one in axes.patches if isinstance(one, Rectangle)]
    return np.array([(one.get_x(), one.get_width(), one.get_height()) for one in found])


def line(axes: Axes, place: int = 0) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    points = np.asarray(axes.lines[place].get_xydata(), dtype=np.float64)
    return points[:, 0], points[:, 1]


def test_a_histogram_of_differences_is_that_of_the_draws() -> None:
    drawn = np.abs(RNG.normal(0, 12, 5000))
    axes = heights.of_differences(drawn, [(12.0, "expected"), (100.0, "bounds")], DARK).axes[0]
    expected, edges = np.histogram(drawn, bins=60, range=(0, 60), density=True)
    assert bars(axes)[:60, 2] == pytest.approx(expected)
    assert bars(axes)[:60, 0] == pytest.approx(edges[:-1])
    x, y = line(axes)
    assert np.sum(y) * (x[1] - x[0]) == pytest.approx(1, abs=0.01)


def test_errors_against_epsilon_are_points_next_to_the_closed_form() -> None:
    epsilons = np.array([0.1, 1.0, 10.0])
    lines = [(str(width), float(width)) for width in (12, 22, 33, 100)]
    measured = [RNG.uniform(1, 2, 3) for _ in lines]
    axes = heights.of_errors(lines, epsilons, measured).axes[0]
    for place, (_, width) in enumerate(lines):
        x, y = line(axes, 2 * place)
        assert y == pytest.approx(width / x * math.sqrt(2 / 500) * math.sqrt(2 / math.pi))
        assert line(axes, 2 * place + 1)[1] == pytest.approx(measured[place])


def test_the_panels_of_a_distribution_hold_the_draws() -> None:
    uniform, drawn = RNG.random(4000), RNG.laplace(size=4000)
    axes = slides.of_sides(LaplaceLaw(), uniform, drawn).axes
    assert bars(axes[3])[:, 2] == pytest.approx(np.histogram(uniform, bins=20, range=(0, 1))[0])
    for place, values in ((4, stats.laplace.ppf(uniform)), (5, drawn)):
        expected = np.histogram(values, bins=60, range=(-6, 6), density=True)[0]
        assert bars(axes[place])[:, 2] == pytest.approx(expected)


def test_releases_are_outlines_of_their_histograms() -> None:
    releases = {"ε = 1": RNG.normal(3, 1, 3000), "ε = 2": RNG.normal(3, 0.5, 3000)}
    axes = slides.of_releases(3.0, releases).axes[0]
    widest = float(releases["ε = 1"].std())
    outlines = [one for one in axes.patches if isinstance(one, Polygon)]
    for outline, values in zip(outlines, releases.values(), strict=True):
        expected = np.histogram(values, bins=80, range=(3 - widest, 3 + widest), density=True)[0]
        assert np.asarray(outline.get_xy())[1:-1:2, 1] == pytest.approx(expected)


def test_counts_and_largest_errors_are_bars_of_what_was_counted() -> None:
    axes = mechanism.of_counts(["car", "bus"], [60, 120], [61.5, 118.0]).axes[0]
    assert bars(axes)[:, 2] == pytest.approx([60, 120, 61.5, 118])
    drawn = RNG.gumbel(170, 20, 500)
    axes = mechanism.of_largest(drawn, {"exact mean": 172.6}).axes[0]
    assert bars(axes)[:, 2] == pytest.approx(np.histogram(drawn, bins=50)[0])
    assert line(axes)[0] == pytest.approx([172.6, 172.6])


def test_the_other_curves_are_their_closed_forms() -> None:
    axes = slides.of_definitions().axes[0]
    x, y = line(axes)
    assert y == pytest.approx(np.exp(x))
    assert line(axes, 1)[1] == pytest.approx(1 + x)
    left, right = slides.of_memory().axes
    assert line(left)[1] == pytest.approx(stats.expon.pdf(line(left)[0]))
    assert line(right)[1] == pytest.approx(stats.expon.sf(line(right)[0]))
    x, y = line(right, 1)
    assert y == pytest.approx(stats.expon.sf(x) / stats.expon.sf(1.5))
    x, y = line(lecture.of_losses().axes[0])
    assert y == pytest.approx(np.log(x / (1 - x)))
    for axes in lecture.of_laplace_and_normal().axes:
        x, y = line(axes)
        assert y == pytest.approx(stats.laplace.pdf(x))
        assert line(axes, 1)[1] == pytest.approx(stats.norm.pdf(x, scale=math.sqrt(2)))
