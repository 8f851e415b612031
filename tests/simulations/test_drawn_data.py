"""What the figures of the tour and of the attacks draw is what they were given: bars, lines and histograms."""

import math

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.patches import Polygon, Rectangle
from numpy.typing import NDArray
from scipy import stats

from hush_attacks import averaging, floating_point, linking, poisoning, silence
from hush_simulations.display.style import DARK
from hush_tour.drawing import heights, lecture, mechanism, slides
from hush_tour.laplace_law import LaplaceLaw

RNG = np.random.default_rng(11)


def bars(axes: Axes) -> NDArray[np.float64]:
    """Left end, width and height of each bar; of lying ones the other way round."""
    found = [one for one in axes.patches if isinstance(one, Rectangle)]
    return np.array([(one.get_x(), one.get_width(), one.get_height()) for one in found])


def line(axes: Axes, place: int = 0) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    points = np.asarray(axes.lines[place].get_xydata(), dtype=np.float64)
    return points[:, 0], points[:, 1]


def test_a_histogram_of_differences_is_that_of_the_draws_under_the_curve_of_their_law() -> None:
    drawn = np.abs(RNG.normal(0, 12, 5000))
    axes = heights.of_differences(drawn, [(12.0, "expected"), (100.0, "bounds")], DARK).axes[0]
    expected, edges = np.histogram(drawn, bins=60, range=(0, 60), density=True)
    assert bars(axes)[:60, 2] == pytest.approx(expected)
    assert bars(axes)[:60, 0] == pytest.approx(edges[:-1])
    x, y = line(axes)
    assert np.sum(y) * (x[1] - x[0]) == pytest.approx(1, abs=0.01)
    assert [text.get_text() for text in axes.texts] == ["expected: 12 cm", "bounds: 100 cm →"]


def test_errors_against_epsilon_are_points_beside_the_closed_form() -> None:
    epsilons = np.array([0.1, 1.0, 10.0])
    lines = [(str(width), float(width)) for width in (12, 22, 33, 100)]
    measured = [RNG.uniform(1, 2, 3) for _ in lines]
    axes = heights.of_errors(lines, epsilons, measured).axes[0]
    for place, (_, width) in enumerate(lines):
        x, y = line(axes, 2 * place)
        assert y == pytest.approx(width / x * math.sqrt(2 / 500) * math.sqrt(2 / math.pi))
        assert line(axes, 2 * place + 1)[1] == pytest.approx(measured[place])


def test_the_panels_of_a_distribution_hold_the_draws_that_they_were_given() -> None:
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


def test_the_figures_of_the_attacks_draw_their_numbers() -> None:
    matched = {"a naive aggregator": 1.0, "hush's store": 0.1}
    axes = linking._draw(matched, DARK).axes[0]
    assert bars(axes)[:, 1] == pytest.approx([100, 10])
    left, right = silence._draw([150.0] * (silence.TASKS + 1), [1e-6] * (silence.TASKS + 1)).axes
    assert set(line(left)[1]) == {150.0}
    assert line(right)[1] == pytest.approx(np.ones(silence.TASKS + 1))
    assert line(right, 1)[1] == pytest.approx(np.arange(silence.TASKS + 1))
    naive = {day: 100 / day for day in averaging.DAYS}
    axes = averaging._draw(naive, [50.0], [90.0, 70.0]).axes[0]
    assert line(axes, 1)[1] == pytest.approx([100 / day for day in averaging.DAYS])
    assert set(line(axes, 2)[1]) == {50.0}
    assert set(line(axes, 3)[1]) == {90.0, 70.0}


def test_the_points_of_liars_and_the_bars_of_last_bits_are_those_of_their_figures() -> None:
    moved = {
        f"{kind}, reports the extreme, {many}: {what}": float(many * factor)
        for kind, what, factor in (("laplace", "shift", -3), ("laplace", "winsorised shift", 2), ("auto", "shift", 1))
        for many in poisoning._LIARS
    }
    axes = poisoning._draw(moved).axes[0]
    for place, factor in enumerate((3, 2, 1)):
        assert line(axes, place)[1] == pytest.approx([factor * many for many in poisoning._LIARS])
    shares = {
        f"{key}, epsilon {float(one):g}": share
        for key, share in (
            ("naive right among verdicts", 0.8),
            ("hush right among verdicts", 0.5),
            ("naive with a verdict", 0.9),
            ("hush with a verdict", 0.3),
            ("allowed", 0.6),
        )
        for one in floating_point.EPSILONS
    }
    axes = floating_point._draw(shares).axes[0]
    count = len(floating_point.EPSILONS)
    assert bars(axes)[:, 2] == pytest.approx([80] * count + [50] * count)
    assert set(np.concatenate([line(axes, place)[1] for place in range(count)])) == {60.0}
