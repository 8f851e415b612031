"""No picture says what its rows deny: headline, arrows at the edge, shades in either theme, equal quantities."""

import re
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import Patch, Rectangle
from matplotlib.text import Annotation

import hush
from hush_aggregator.presentation import interval_name
from hush_attacks import floating_point
from hush_simulations.display.plan_figure import picture_of_feasibility
from hush_simulations.display.run_figure import figure_of, picture_of
from hush_simulations.display.style import DARK, LIGHT, Palette

BIT = {"kind": "bit"}


@pytest.mark.large
@pytest.mark.parametrize(("scenario", "seed"), [("two-groups", 12), ("two-groups", 3), ("heights", 2), ("survey", 4)])
def test_the_headline_counts_every_interval_that_is_drawn(scenario: str, seed: int) -> None:
    run = hush.simulate(scenario, engine="bulk", seed=seed)
    missing = [name for name, holds in run.covered.items() if not holds]
    words = picture_of(run).title
    assert ("miss" in words) == bool(missing)
    assert "cover" in words or missing
    if len(missing) == 1:
        name = interval_name(missing[0], run.result.estimate.methods.get(missing[0], ""))
        assert name in words
    assert str(len(run.covered)) in words or len(run.covered) == 2


def test_among_these_runs_one_has_an_interval_for_the_population_that_misses() -> None:
    run = hush.simulate("two-groups", engine="bulk", seed=12)
    assert run.covered["reporters"]
    assert not run.covered["population"]


@pytest.mark.large
@pytest.mark.parametrize("seed", range(6))
def test_the_headline_of_parts_has_both_targets(seed: int) -> None:
    run = hush.simulate("commute", engine="bulk", seed=seed, clients=300)
    counts = [
        f"{sum(held)} of {len(held)}"
        for target in ("reporters", "population")
        if (held := [part.covered[target] for part in run.score.parts.values()])
    ]
    assert re.findall(r"\d+ of \d+", picture_of(run).title) == list(dict.fromkeys(counts))


@pytest.mark.large
@pytest.mark.parametrize(("data", "seed", "sign"), [([True] * 3, 1, ">"), ([False] * 4, 2, "<"), ([True] * 7, 5, ">")])
@pytest.mark.parametrize("palette", [LIGHT, DARK])
def test_an_estimate_beyond_the_axis_is_drawn_at_its_end_with_its_value(
    data: list[bool], seed: int, sign: str, palette: Palette
) -> None:
    run = hush.simulate(data=data, domain=BIT, engine="bulk", seed=seed)
    mean = run.result.mean
    assert mean is not None
    assert not 0 <= mean <= 1
    axes = figure_of(run, palette).axes[2]
    low, high = axes.get_xlim()
    arrows = [line for line in axes.lines if line.get_marker() == sign]
    assert len(arrows) == len(run.result.intervals)
    assert all(low < float(np.asarray(line.get_xdata())[0]) < high for line in arrows)
    written = [text.get_text() for text in axes.texts if isinstance(text, Annotation)]
    assert written == [f"{100 * mean:.0f} %".replace("-", "\N{MINUS SIGN}")] * len(arrows)


def test_an_estimate_inside_has_no_arrow() -> None:
    axes = figure_of(hush.simulate("survey", engine="bulk", seed=1)).axes[2]
    assert not [line for line in axes.lines if line.get_marker() in {"<", ">"}]
    assert not axes.texts


def contrasts(axes: Axes, palette: Palette) -> list[float]:
    """How far each piece of a bar is from the ground, from the lowest level to the highest."""
    ground, colour = np.array(to_rgb(palette.ground)), np.array(to_rgb(palette.noisy))
    return [float(np.abs((patch.get_alpha() or 1) * (colour - ground)).sum()) for patch in axes.patches]


@pytest.mark.parametrize("palette", [LIGHT, DARK])
def test_the_words_for_the_lowest_level_are_right_on_either_ground(palette: Palette) -> None:
    received = figure_of(hush.simulate("offices", engine="bulk", seed=7, clients=600), palette).axes[10]
    assert "faint = low" in received.get_xlabel()
    found = contrasts(received, palette)
    assert len(found) > 1
    assert found == sorted(found)


def heights(bars: Sequence[Patch]) -> list[float]:
    return [bar.get_height() for bar in bars if isinstance(bar, Rectangle)]


def test_the_attack_compares_one_quantity_with_the_most_that_epsilon_allows() -> None:
    found = floating_point.run(seed=3, count=100)
    axes = found.draw(palette=LIGHT).axes[0]
    numpy_, ours = axes.patches[:5], axes.patches[5:]
    limits = [float(np.asarray(line.get_ydata())[0]) for line in axes.lines]
    for place, epsilon in enumerate(("0.1", "0.5", "1", "2", "4")):
        for key, bars in (("naive", numpy_), ("hush", ours)):
            assert heights(bars)[place] == 100 * found.figures[f"{key} right among verdicts, epsilon {epsilon}"]
        assert limits[place] == 100 * found.figures[f"allowed, epsilon {epsilon}"]
        assert heights(numpy_)[place] > limits[place]
    assert "verdict" in axes.get_ylabel()


@pytest.mark.large
@pytest.mark.parametrize(("upper", "line"), [(60, 5.0), (50, 5.0 - 50 / 60), (20, None)])
def test_the_line_of_a_goal_is_what_the_bounds_leave_of_it(upper: int, line: float | None) -> None:
    data = [float(i % 60) + 0.5 + i / 1e5 for i in range(900)]
    found = hush.feasible(data, {"kind": "number", "lower": 0, "upper": upper}, error=5, epsilons=[1, Fraction(2)])
    axes = picture_of_feasibility(found).draw(LIGHT).axes[0]
    (goal,) = [one for one in axes.lines if one.get_linestyle() == ":"]
    drawn = np.asarray(goal.get_ydata(), dtype=float)
    assert (drawn[0] if len(drawn) else None) == (None if line is None else pytest.approx(line, abs=0.05))
    assert str(goal.get_label()).replace("\N{NO-BREAK SPACE}", " ").startswith("wanted: ± 5")
