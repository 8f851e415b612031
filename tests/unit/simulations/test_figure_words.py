"""What a picture says in words: that gaps between bars are no chance, and what all rounds together give."""

from hush_simulations.api.simulate import simulate
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
    assert together.result.mean in [line.get_ydata()[0] for line in axes.lines if line.get_xdata()[0] == 2]  # type: ignore[index]
