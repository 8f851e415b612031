"""The shipped tables: exact every one, near the optimum on a checked sample, chosen alike on every machine."""

import hashlib
import json
from fractions import Fraction
from itertools import pairwise
from math import floor
from pathlib import Path

import numpy as np
import pytest

from hush_common.domain import GRID_STEPS, BitDomain, CategoryDomain, NumberDomain
from hush_common.epsilon import certified_exp, decimal_text
from hush_common.errors import TaskError
from hush_common.mechanisms import Channel, Laplace, Multilevel
from hush_common.mechanisms.multilevel import best_levels
from hush_common.mechanisms.parameters import ChannelTable, grid, grid_point, shipped, shipped_at
from hush_common.mechanisms.registry import choose
from hush_common.mechanisms.subset_selection import SubsetSelection, best_size
from hush_common.task import make_task

NUMBER = NumberDomain(0.0, 1.0)
ROOT = Path(__file__).parents[2]
OPTIMA_FILE = ROOT / "tests" / "tools" / "table_optima.json"
OPTIMA = {Fraction(epsilon): variance for epsilon, variance in json.loads(OPTIMA_FILE.read_text("utf-8")).items()}
"""By epsilon, the least worst-case variance of any channel on [0, 1]: `tools.table_program.optimum`."""
LARGEST = Fraction(8)


def channel(epsilon: Fraction) -> Channel:
    made = shipped_at(epsilon)
    return Channel(epsilon, GRID_STEPS, made.positions, made.unit, made.weights)


def by_auto(epsilon: Fraction) -> Fraction:
    """The worst-case variance of what `auto` chooses."""
    name, table = choose(NUMBER, [epsilon])
    if table is None:
        assert name == "multilevel"
        return Multilevel(epsilon, GRID_STEPS, best_levels(epsilon)).exact_worst_variance
    return channel(epsilon).exact_worst_variance


# ---- every table


def faults(epsilon: Fraction, table: ChannelTable) -> list[str]:
    """What is wrong with a table, in integers: sums, means, ratios, symmetry. Independent of `Channel`."""
    weights = np.array(table.weights, dtype=np.int64)
    positions = np.array(table.positions, dtype=np.int64)
    levels, total = len(weights) - 1, int(weights[0].sum())
    assert weights.min() > 0
    assert int(weights.max()) * int(abs(positions).max()) * len(positions) * levels < 2**62
    low = certified_exp(epsilon)[0]
    most = [floor(low * int(m)) for m in weights.min(axis=0)]
    return [
        name
        for name, fine in (
            ("sum", (weights.sum(axis=1) == total).all()),
            ("mean", (weights @ positions * levels == total * table.unit * np.arange(levels + 1)).all()),
            ("ratio", (weights.max(axis=0) <= most).all()),
            ("symmetry", (weights == weights[::-1, ::-1]).all() and (positions + positions[::-1] == table.unit).all()),
        )
        if not fine
    ]


@pytest.mark.parametrize("every", [30, pytest.param(1, marks=pytest.mark.medium)])
def test_the_shipped_tables_are_exact(every: int) -> None:
    assert len(grid()) > 100
    assert list(grid()) == sorted(set(grid()))
    assert [epsilon for epsilon in grid()[::every] if faults(epsilon, shipped_at(epsilon))] == []


@pytest.mark.parametrize("epsilon", ["0.5", "2", "8"])
def test_a_table_wrong_by_one_unit_is_refused(epsilon: str) -> None:
    exact, made = Fraction(epsilon), shipped_at(Fraction(epsilon))
    rows = [list(row) for row in made.weights]
    place = max(range(len(made.positions)), key=lambda y: rows[0][y])

    def wrong(changes: list[tuple[int, int]]) -> ChannelTable:
        changed = [*rows[0]]
        for y, by in changes:
            changed[y] += by
        return ChannelTable(made.positions, made.unit, (tuple(changed), *made.weights[1:]))

    for table, fault in ((wrong([(place, 1)]), "sum"), (wrong([(place, 1), (-1, -1)]), "mean")):
        assert fault in faults(exact, table)
        with pytest.raises(TaskError, match="row 0"):
            Channel(exact, 1, table.positions, table.unit, table.weights)
    assert "ratio" in faults(exact - Fraction(1, 1000), made)
    with pytest.raises(TaskError, match="ratio"):
        Channel(exact - Fraction(1, 1000), 1, made.positions, made.unit, made.weights)


def test_the_tables_are_small() -> None:
    assert max(len(shipped_at(epsilon).weights) for epsilon in grid()[:100]) <= 8
    assert all(len(made.weights) * len(made.positions) <= 16_384 for made in map(shipped_at, (grid()[-1], Fraction(7))))


# ---- near the optimum


@pytest.mark.medium
def test_auto_is_within_two_percent_of_the_optimum() -> None:
    for epsilon, least in OPTIMA.items():
        assert 0.998 <= float(by_auto(epsilon)) / least <= 1.02, epsilon


@pytest.mark.parametrize(("epsilon", "times"), [("1.5", 1.14), ("3", 1.27), ("5", 1.46), ("8", 1.71)])
def test_multilevel_alone_would_be_much_worse(epsilon: str, times: float) -> None:
    exact = Fraction(epsilon)
    ratio = Multilevel(exact, GRID_STEPS, best_levels(exact)).exact_worst_variance / by_auto(exact)
    assert ratio == pytest.approx(times, abs=0.03)


def test_the_table_of_the_documents_has_these_numbers() -> None:
    page = (ROOT / "docs" / "statistics.md").read_text("utf-8")
    cells = [[cell.strip() for cell in line.split("|")[2:-1]] for line in page.splitlines() if line.startswith("| ")]
    place = next(row for row, _ in enumerate(cells) if cells[row][:2] == ["0.34", "0.5"])
    epsilons, optima, auto, multilevel = cells[place : place + 4]
    for column, epsilon in enumerate(map(Fraction, epsilons)):
        worst = Multilevel(epsilon, GRID_STEPS, best_levels(epsilon)).worst_variance
        assert optima[column] == f"{4 * OPTIMA[epsilon]:.4g}"
        assert auto[column] == f"{float(by_auto(epsilon)) / OPTIMA[epsilon]:.3f}"
        assert multilevel[column] == f"{worst / OPTIMA[epsilon]:.3f}"


def test_below_the_grid_one_bit_is_within_two_percent() -> None:
    """4/epsilon^2 is below the optimum by less than 0.1 percent at 0.34, and nearer below."""
    assert abs(4 * OPTIMA[Fraction("0.34")] * 0.34**2 / 4 - 1) < 0.001
    for epsilon in (Fraction(1, 10**6), Fraction("0.1"), Fraction("0.2"), grid()[0] - Fraction(1, 10**9)):
        assert choose(NUMBER, [epsilon])[0] == "multilevel"
        assert by_auto(epsilon) * epsilon**2 <= Fraction("1.0195")


@pytest.mark.medium
def test_the_checked_in_optima_are_what_the_program_finds() -> None:
    from tools.table_program import Program, optimum, places  # noqa: PLC0415 - scipy takes a second to import

    for epsilon in (Fraction(2), Fraction("2.3062")):
        assert optimum(epsilon) == pytest.approx(OPTIMA[epsilon], rel=1e-6)
    coarse = Program(Fraction(1), 8, places(Fraction(1), 8), 8).solve()
    assert OPTIMA[Fraction(1)] < coarse.variance < 1.01 * OPTIMA[Fraction(1)]


@pytest.mark.medium
@pytest.mark.parametrize(("epsilon", "levels"), [("0.5", 6), ("2", 14)])
def test_the_script_makes_a_table_as_good_as_the_shipped_one(epsilon: str, levels: int) -> None:
    from tools.table_design import design, line  # noqa: PLC0415 - as above

    made = design(Fraction(epsilon), levels, 1_000_000)
    assert made.channel.worst_variance == pytest.approx(channel(Fraction(epsilon)).worst_variance, rel=2e-3)
    assert json.loads(line(made))[0] == epsilon


# ---- auto


@pytest.mark.large
def test_more_epsilon_never_means_more_variance() -> None:
    """Below the grid, at and just below some of its points (the next test takes all), and beyond it to 50."""
    below = [epsilon - Fraction(1, 10**9) for epsilon in grid()[::40]]
    beyond = [LARGEST + Fraction(k, 10) for k in range(421)]
    small = [Fraction(k, 100) for k in range(1, 40)]
    found = [by_auto(epsilon) for epsilon in sorted({*small, *below, *grid()[::40], *beyond})]
    assert all(a >= b for a, b in pairwise(found))


@pytest.mark.medium
def test_every_table_is_better_than_the_one_below() -> None:
    worst = []
    for epsilon in grid():
        made = shipped_at(epsilon)
        weights, positions = np.array(made.weights, dtype=np.float64), np.array(made.positions) / made.unit
        second, x = weights @ positions**2 / weights[0].sum(), np.linspace(0, 1, len(weights))
        slope = np.diff(second) * (len(weights) - 1)
        peak = np.clip(slope / 2, x[:-1], x[1:])
        worst.append(float(np.max(second[:-1] + (peak - x[:-1]) * slope - peak**2)))
    assert all(a > b for a, b in pairwise(worst))
    assert worst[-1] == pytest.approx(channel(LARGEST).worst_variance)
    assert max(a / b for a, b in pairwise(worst)) < 1.02


def test_an_epsilon_between_two_grid_points_has_the_table_of_the_lower() -> None:
    for low, high in zip(grid()[::50], grid()[1::50], strict=False):
        assert grid_point((low + high) / 2) == grid_point(low) == low
        assert shipped_at((low + high) / 2) == shipped_at(low)
    assert by_auto(Fraction("4.2")) < by_auto(Fraction(4))


def test_beyond_the_grid_auto_has_the_least_variance_there_is() -> None:
    for exact in map(Fraction, ("8.01", "8.5", "12", "16", "50")):
        for other in (channel(exact), Multilevel(exact, GRID_STEPS, best_levels(exact)), Laplace(exact, GRID_STEPS)):
            assert float(by_auto(exact)) <= other.worst_variance, (exact, other)


def test_laplace_never_has_the_least_variance() -> None:
    for epsilon in map(Fraction, ("0.000001", "0.33", "1", "2", "4", "8", "20", "50")):
        laplace = Fraction(Laplace(epsilon, GRID_STEPS).worst_variance)
        assert by_auto(epsilon) < Fraction(6, 10) * laplace, epsilon


def test_a_bit_and_a_category_have_one_mechanism_of_the_best_size() -> None:
    assert choose(BitDomain(), [Fraction(1)]) == ("randomized_response", None)
    assert choose(CategoryDomain(("a", "b", "c")), [Fraction(1)]) == ("subset_selection", None)
    for epsilon, categories in ((Fraction(1, 10), 9), (Fraction(1), 9), (Fraction(2), 40), (Fraction(6), 64)):
        supports = [SubsetSelection(epsilon, categories, w).support for w in range(1, categories)]
        variances = [q * (1 - q) / (p - q) ** 2 for q, p in supports]
        assert best_size(epsilon, categories) == 1 + variances.index(min(variances))


DIGESTS = {
    "0.2": "925fa7d54c057bba",
    "0.33": "78370282ed774072",
    "0.5": "c9eddf8ed2ae33db",
    "1": "852e5cf2c246123c",
    "1.5": "4fe9630d504e1cde",
    "2": "06d0214c5770f072",
    "3": "44573da3239579d1",
    "4": "555420c3a864d889",
    "4.2": "fe25d73c83f2b07d",
    "5": "b40a3aae3931638d",
    "8": "4cbfe1cce56de015",
    "8.5": "268f62401c152082",
    "10": "2d883409f91205eb",
    "50": "7809106cdad9535b",
}


def test_a_task_by_auto_has_the_same_bytes_everywhere() -> None:
    """They are part of the wire: a change here is a new task for everybody."""
    domain = {"kind": "number", "lower": 0, "upper": 1}
    for epsilon, digest in DIGESTS.items():
        made = make_task({"id": "t", "mechanism": "auto", "epsilon": epsilon, "domain": domain})
        assert hashlib.sha256(made.payload).digest() == made.digest
        assert made.digest.hex()[:16] == digest, epsilon


def test_a_table_has_a_name_of_its_epsilon() -> None:
    assert shipped("epsilon-4") == shipped_at(Fraction(4))
    assert decimal_text(grid()[-1]) == "8"
    with pytest.raises(TaskError, match=r"epsilon-0\.33.*epsilon-8"):
        shipped("epsilon-9")
    with pytest.raises(TaskError, match=r"0\.33.*multilevel"):
        shipped_at(Fraction("0.3"))
