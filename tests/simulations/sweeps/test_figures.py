"""Figures of a sweep draw its rows: every point, interval and line, in panels that share their axes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_sweeps import GRID, row, swept

from hush import SweepResult
from hush_common.errors import OptionError
from hush_simulations.display.style import DARK
from hush_simulations.display.sweep import bias_figure, coverage_figure, error_figure, layout_of
from hush_simulations.sweeps.result import Parameter

pytestmark = pytest.mark.medium


def points(axes: Any) -> list[tuple[float, float, float, float]]:  # noqa: ANN401 - of matplotlib, which loads slowly
    """Where the measured points of a panel are, their values, and the ends of their bars."""
    found = []
    for container in axes.containers:
        line, _, bars = container.lines
        (ends,) = bars
        for (x, y), segment in zip(np.asarray(line.get_xydata()).tolist(), ends.get_segments(), strict=True):
            found.append((x, y, segment[0][1], segment[1][1]))
    return found


def test_epsilon_is_the_axis_and_mechanisms_are_panels() -> None:
    layout = layout_of(GRID)
    assert (layout.axis, layout.logarithmic, layout.names) == ("ε", True, ())
    assert [panel.title for panel in layout.panels] == ["laplace", "table"]
    assert [line.name for line in layout.panels[0].lines] == ["500 devices", "5 000 devices"]
    assert list(layout.panels[1].lines[1].at) == [0.5, 1, 4]
    assert [cell[0].cell for cell in layout.panels[1].lines[1].cells] == [9, 10, 11]


def test_epsilon_of_several_rounds_is_over_all_of_them() -> None:
    weekly = replace(GRID, rows=tuple(replace(one, rounds=4) for one in GRID.rows))
    assert layout_of(weekly).axis == "ε over all rounds"


def test_every_error_is_a_point_with_its_interval_and_theory() -> None:
    figure = error_figure(GRID, DARK)
    left, right = figure.axes
    assert points(left) == [(x, 1.0 + c, 0.5 + c, 1.6 + c) for c, x in enumerate((0.5, 1, 4, 0.5, 1, 4))]
    assert points(right)[0][1] == 7
    theory = [drawn.tolist() for line in left.lines if (drawn := np.asarray(line.get_xydata())).shape == (3, 2)]
    theory = [points_ for points_, line in zip(theory, left.lines, strict=False) if line.get_linestyle() == "-"]
    assert theory == [[[x, 1.1 + c + first] for c, x in enumerate((0.5, 1, 4))] for first in (0, 3)]
    assert (left.get_xscale(), left.get_yscale()) == ("log", "log")
    assert (left.get_xlim(), left.get_ylim()) == (right.get_xlim(), right.get_ylim())
    assert [text.get_text() for text in left.get_xticklabels()] == ["0.5", "1", "4"]


def test_coverage_has_its_intervals_and_the_nominal_line() -> None:
    figure = coverage_figure(GRID)
    found = points(figure.axes[0])
    expected = [[96 - c, 90 - c, 99 - c] for c in range(6)]
    assert np.array(found)[:, 1:] == pytest.approx(np.array(expected))
    assert [one[0] for one in found] == pytest.approx([0.5, 1, 4] * 2, rel=0.1)
    assert len({one[0] for one in found}) == 6  # a little aside, so that none hides another
    assert any(list(line.get_ydata()) == [95, 95] for line in figure.axes[0].lines)  # type: ignore[arg-type]


def test_bias_is_in_its_standard_errors() -> None:
    figure = bias_figure(GRID)
    containers: list[Any] = list(figure.axes[1].containers)
    values = [value for one in containers for value in np.asarray(one.lines[0].get_ydata()).tolist()]
    assert values == pytest.approx([6, 7, 8, 9, 10, 11])
    assert not any(one.has_yerr for one in containers)  # a bias in its standard errors has no interval
    assert figure.axes[0].get_yscale() == "linear"
    lying = swept(liars__share=tuple(place / 100 for place in range(40)))
    assert layout_of(lying).axis == "liars, % of the devices"
    assert layout_of(lying).panels[0].lines[0].at[:3] == pytest.approx((0, 1, 2))
    assert bias_figure(lying).axes[0].get_yscale() == "symlog"


def test_the_legend_has_theory_only_if_it_is_drawn() -> None:
    for result, theory in ((GRID, True), (swept(population__clients=(10,)), False)):
        (legend,) = error_figure(result, DARK).legends
        names = [text.get_text() for text in legend.get_texts()]
        assert (len(set(names)), "theory" in names) == (len(names), theory)


def test_a_legend_is_read_along_its_rows() -> None:
    many = swept(task__epsilon=("1", "2"), population__clients=(10, 20, 30, 40))
    (legend,) = error_figure(many).legends
    names = [text.get_text() for text in legend.get_texts()]
    rows = [name for row in zip(*np.array_split(names, 3), strict=False) for name in row]
    assert rows[:3] == [line.name for line in layout_of(many).panels[0].lines[:3]]


def test_a_sweep_without_figures_says_so() -> None:
    bare = dict.fromkeys(("rmse", "rmse_lower", "theory_stderr", "bias", "coverage"))
    rows = tuple(row(place, {"task.epsilon": epsilon}, **bare) for place, epsilon in enumerate(("1", "2")))
    result = SweepResult({"task.epsilon": ("1", "2")}, rows, 100, 1, 0.95, Path())
    for what in ("error", "coverage", "bias"):
        assert len(result.figure(what).axes[0].texts) == 1


@pytest.mark.parametrize(
    ("axes", "names", "lines"),
    [
        ({"scenario": ("heights", "survey")}, ("heights", "survey"), [""]),
        ({"task__mechanism": ("laplace", "auto"), "population__clients": (10, 20)}, (), ["laplace", "auto"]),
        ({"population__clients": (10,)}, (), [""]),
        ({"network__forgotten": (0.1, 0.2), "a__b": tuple(range(7))}, (), ["forgotten 0.1", "forgotten 0.2"]),
    ],
)
def test_any_grid_is_laid_out(axes: dict[str, tuple[Parameter, ...]], names: tuple[str, ...], lines: list[str]) -> None:
    result = swept(**axes)
    layout = layout_of(result)
    assert layout.names == names
    assert [line.name for line in layout.panels[0].lines] == lines
    drawn = points(error_figure(result).axes[0])
    assert len(drawn) == result.cells


def test_a_figure_has_one_of_three_names() -> None:
    with pytest.raises(OptionError, match="'width'"):
        GRID.figure("width")  # type: ignore[arg-type]
