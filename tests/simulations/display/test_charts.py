"""Charts in text: where their signs are, at any width, in ASCII, and in a pipe."""

import io
from pathlib import Path

import numpy as np
import pytest
from commands import run
from made_sweeps import GRID
from rendered import rendered

from hush import simulate
from hush_aggregator.publish.charts import Bar, Bars, Range, Ranges, shows_signs
from hush_simulations.display.charts import charts_of, charts_of_sweep

WIDTHS = (60, 80, 120)


@pytest.mark.parametrize("signs", [True, False])
@pytest.mark.parametrize("width", WIDTHS)
def test_a_bar_is_as_long_as_its_value_and_fits(width: int, signs: bool) -> None:
    bars = [
        Bar("one", 1.0, "1"),
        Bar("a long name of a category that is broken into lines", 4.0, "4"),
        Bar("", 0.0, "0"),
    ]
    lines = rendered([Bars("Kept", bars, signs)], width, wraps=True).splitlines()
    assert max(map(len, lines)) <= width
    sign = "█" if signs else "#"
    lengths = [line.count(sign) for line in lines if line.endswith(("1", "4", "0"))]
    assert lengths[0] == pytest.approx(lengths[1] / 4, abs=1)
    assert lengths[2] == 0
    words = " ".join(lines).split()
    assert all(word in words for word in bars[1].name.split())


def column(line: str, sign: str) -> int:
    return line.index(sign)


def test_ends_and_points_are_where_their_values_are() -> None:
    ranges = [Range("a", 0.0, 10.0, 5.0, 7.5), Range("b", 2.0, 4.0, 3.0, 3.0), Range("c", 0.0, 0.0, None)]
    lines = rendered([Ranges("Estimate", ranges, ("0", "10"), signs=False)], 46, wraps=True).splitlines()
    one, other, least = lines[1:4]
    room = column(one[::-1], "|") * -1 + len(one) - 1 - column(one, "|")
    for line, sign, at in ((one, "o", 5.0), (one, "x", 7.5), (other, "|", 2.0), (other, "*", 3.0), (least, "|", 0.0)):
        assert column(line, sign) - column(one, "|") == pytest.approx(at / 10 * room, abs=0.51), (line, sign)
    assert lines[4].split() == ["0", "10"]
    assert all(f"{sign} {name}" in lines[0] for sign, name in (("o", "estimate"), ("x", "truth")))


def test_a_sweep_has_one_axis_for_all_its_panels() -> None:
    first, second = charts_of_sweep(GRID, signs=False)
    assert (first.shared, first.ends) == (second.shared, second.ends)
    assert {one.also for one in (first, second)} == {"theory"}


@pytest.mark.medium
@pytest.mark.parametrize("name", ["heights", "survey", "commute", "offices", "sleep", "poisoned", "many-rounds"])
def test_every_kind_of_run_has_charts_in_ascii_that_fit(name: str) -> None:
    charts = list(charts_of(simulate(name, clients=10_000, engine="bulk", seed=3), signs=False))
    assert isinstance(charts[-1], Ranges)
    for width in WIDTHS:
        lines = rendered(charts, width, wraps=True).splitlines()
        assert max(map(len, lines)) <= width
        assert all(line == line.rstrip() for line in lines)
    assert all(line.replace("°", "").isascii() for line in lines)  # a unit is what a task says
    bars = [chart for chart in charts if isinstance(chart, Bars)]
    for chart in bars[:2] if name in ("heights", "sleep", "poisoned") else ():
        assert sum(bar.value for bar in chart.bars) == pytest.approx(10_000)


def test_a_terminal_that_is_not_utf8_gets_ascii() -> None:
    for encoding, signs in (("utf-8", True), ("ascii", False), ("latin-1", False), ("cp437", False)):
        assert shows_signs(io.TextIOWrapper(io.BytesIO(), encoding=encoding)) == signs


def test_charts_of_a_command_go_to_the_terminal_alone(tmp_path: Path) -> None:
    asked = ["plan", "--epsilon", "1", "--people", "500", "--plot"]
    shown = run([*asked, "terminal"], tmp_path)
    assert shown.code == 0
    assert "\x1b" not in shown.out
    wrong = run([*asked, "window"], tmp_path)
    assert (wrong.code, wrong.out) == (2, "")
    assert "'window'" in wrong.err
    assert "--out DIR" in wrong.err


@pytest.mark.medium
def test_a_histogram_counts_what_is_between_its_edges() -> None:
    done = simulate("heights", clients=100, engine="memory", seed=3)
    bars = next(iter(charts_of(done, signs=True)))
    assert isinstance(bars, Bars)
    values = np.array([done.experiment.values[device] for device in done.last.reporters], dtype=np.float64)
    for bar in bars.bars[:-1]:
        low, high = (float(word.replace(" ", "")) for word in bar.name.split(" to "))
        assert bar.value == np.count_nonzero((values >= low) & (values < high))
