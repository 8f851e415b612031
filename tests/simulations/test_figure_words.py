"""What a picture says in words: that gaps between bars are no chance, and what all rounds together give."""

import numpy as np

from hush import simulate
from hush_aggregator.presentation import NumberFormat
from hush_simulations.display.distributions import estimate_ranges
from hush_simulations.display.run_figure import figure_of


def test_reports_of_an_alphabet_say_how_many_values_there_are() -> None:
    table = simulate("heights", clients=400, engine="memory", mechanism="table", seed=1)
    laplace = simulate("heights", clients=40, engine="memory", mechanism="laplace", seed=1)
    labels = [figure_of(run).axes[1].get_xlabel() for run in (table, laplace)]
    assert labels == [
        "decoded report (cm), one of 13 values",
        "decoded report (cm); note the different scale",
    ]


def test_the_picture_of_rounds_ends_with_all_of_them_together() -> None:
    run = simulate("heights", clients=200, engine="memory", rounds=2, seed=1)
    axes = figure_of(run).axes[2]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "1", "all"]
    together = run.together
    assert together is not None
    assert together.result.mean is not None
    assert together.result.mean in [line.get_ydata()[0] for line in axes.lines if line.get_xdata()[0] == 2]  # type: ignore[index]
    assert axes.get_title(loc="left") == f"All rounds {NumberFormat.of(run.result).value(together.result.mean)}"


def test_each_interval_is_next_to_its_truth() -> None:
    run = simulate("heights", clients=200, engine="bulk", seed=1)
    assert {one.name: one.truth for one in estimate_ranges(run)} == {
        "reporters": run.truth["reporters"],
        "population": run.truth["population"],
        "reporters, at any time": run.truth["reporters"],
        "population, at any time": run.truth["population"],
    }


def test_a_few_coordinates_have_axes_of_their_units_with_estimate_and_truth() -> None:
    run = simulate("offices", clients=2000, engine="bulk", seed=1)
    every = figure_of(run).axes
    rows = [every[start : start + 3] for start in range(0, 12, 3)]
    for row, part, one in zip(rows, run.task.domain.parts, run.result.parts, strict=True):
        kept, _, estimated = row
        assert kept.get_xlim() == (part.lower, part.upper)
        assert [axes.get_xlabel().split("\n")[0] for axes in row] == [
            part.unit,
            "% of reports, by" if part.name == "noise" else "% of reports",
            part.unit,
        ]
        truth = run.score.parts[part.name].truth["reporters"]
        points = {float(np.asarray(line.get_xdata())[0]) for line in estimated.lines}
        assert {one.mean, truth, one.intervals["reporters"][0]} == points
        low, high = estimated.get_xlim()
        assert all(low < point < high for point in points)
