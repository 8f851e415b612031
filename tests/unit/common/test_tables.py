"""The shipped tables: near the optimum, symmetric, admitted by the exact check; and the script that makes them."""

import sys
from fractions import Fraction
from importlib.resources import files

import pytest

from hush_common.domain import GRID_STEPS
from hush_common.errors import TaskError
from hush_common.mechanisms import Channel, Multilevel
from hush_common.mechanisms.multilevel import best_levels
from hush_common.mechanisms.tables import SHIPPED, shipped
from hush_simulations import table_design
from hush_simulations.table_design import DESIGNS, Design

OPTIMA = {Fraction(1): 3.991, Fraction(2): 0.865, Fraction(4): 0.127}
"""Least worst-case variance of any channel on [-1, 1], by linear programs over 241 outputs."""


def channel(epsilon: Fraction) -> Channel:
    made = shipped(SHIPPED[epsilon])
    return Channel(epsilon, GRID_STEPS, made.positions, made.unit, made.weights)


@pytest.mark.parametrize("epsilon", SHIPPED)
def test_a_shipped_table_is_within_two_percent_of_the_optimum(epsilon: Fraction) -> None:
    ratio = 4 * channel(epsilon).worst_variance / OPTIMA[epsilon]
    assert 0.995 <= ratio <= 1.02
    assert channel(epsilon).worst_variance < Multilevel(epsilon, GRID_STEPS, best_levels(epsilon)).worst_variance


def test_what_auto_takes_at_one_half_is_within_five_percent_of_the_optimum() -> None:
    half = Fraction(1, 2)
    assert 4 * Multilevel(half, GRID_STEPS, best_levels(half)).worst_variance / 16.00 <= 1.05


@pytest.mark.parametrize("epsilon", SHIPPED)
def test_a_shipped_table_treats_both_ends_alike(epsilon: Fraction) -> None:
    made = shipped(SHIPPED[epsilon])
    assert made.positions == tuple(made.unit - a for a in reversed(made.positions))
    assert made.weights == tuple(row[::-1] for row in reversed(made.weights))


@pytest.mark.parametrize("name", SHIPPED.values())
def test_a_shipped_table_is_a_file_beside_the_code(name: str) -> None:
    assert files("hush_common.mechanisms.tables").joinpath(f"{name}.json").is_file()


def test_every_shipped_table_has_its_design() -> None:
    assert {design.epsilon: name for name, design in DESIGNS.items()} == SHIPPED
    assert {design.epsilon: 4 * design.optimum for design in DESIGNS.values()} == OPTIMA


def test_the_script_makes_a_table_as_good_as_the_shipped_one() -> None:
    made = table_design.channel(DESIGNS["epsilon-1"])
    assert made.worst_variance == pytest.approx(channel(Fraction(1)).worst_variance, rel=1e-4)


@pytest.mark.parametrize(("levels", "half", "reach"), [(2, 3, "3"), (4, 4, "5/2"), (6, 5, "22/7"), (8, 7, "13/5")])
def test_a_solution_on_any_grid_is_repaired_exactly(levels: int, half: int, reach: str) -> None:
    made = table_design.channel(Design(Fraction(1), levels, half, Fraction(reach), 1.0))
    assert made.levels == levels
    assert made.worst_variance > 0.99


def test_rows_are_repaired_where_no_single_distance_divides_what_is_missing() -> None:
    positions, total = [0, 4, 10, 25], 1000
    for moment in range(5000, 5050):
        row = table_design._repaired([300, 400, 200, 90], positions, total, moment)
        assert sum(row) == total
        assert sum(w * a for w, a in zip(row, positions, strict=True)) == moment


def test_a_table_without_scipy_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(ImportError, match="pip install scipy"):
        table_design.solve(DESIGNS["epsilon-1"])


def test_a_table_that_is_not_shipped_is_told_with_those_that_are() -> None:
    with pytest.raises(TaskError, match="epsilon-1, epsilon-2, epsilon-4"):
        shipped("epsilon-8")
