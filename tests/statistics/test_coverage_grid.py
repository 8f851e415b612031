"""The published coverage: every cell meets its bar, and some of them come out again."""

import re
from functools import partial
from pathlib import Path

import coverage_grid
import pytest
from coverage_grid import RUNS, SIZES, Cell, cells

from hush_aggregator.estimate import estimate

pytestmark = pytest.mark.slow

DOCUMENT = Path(__file__).parents[2] / "docs" / "coverage.md"
VALID_AT_EVERY_N = {
    "betting", "binomial-inversion", "chernoff", "chernoff-berry-esseen", "chernoff-betting", "chernoff-hoeffding",
    "clopper-pearson", "clopper-pearson-hoeffding", "laplace-exact", "laplace-hoeffding",
}  # fmt: skip

Published = dict[tuple[str, str, int], tuple[float, bool, str]]


def published() -> Published:
    """Coverage, whether it is exact, and the method, by table, row and n."""
    text = DOCUMENT.read_text(encoding="utf-8")
    methods = dict(re.findall(r"\b([a-z]) `([a-z-]+)`", text))
    found: Published = {}
    table = ""
    for line in text.splitlines():
        if line.startswith("## "):
            table = line[3:]
        elif table and (match := re.match(r"\| (\d[^|]*) \|(.*)\|$", line)):
            for n, entry in zip(SIZES, match[2].split("|"), strict=True):
                if entry.strip():
                    number, letter = entry.split()
                    found[table, match[1], n] = float(number.rstrip("*")), "*" not in number, methods[letter]
    return found


def test_every_published_coverage_meets_its_bar() -> None:
    everything = published()
    assert len(everything) > 500
    for (table, row, n), (coverage, exact, method) in everything.items():
        least = 0.94
        if "0.99" in table:
            least = 0.99
        elif method in VALID_AT_EVERY_N:
            least = 0.95 if exact else 0.945
        assert coverage >= least, (table, row, n)


def least(found: tuple[Cell, ...]) -> dict[tuple[str, str, int], Cell]:
    worst: dict[tuple[str, str, int], Cell] = {}
    for cell in sorted(found, key=lambda cell: -cell.coverage):
        worst[cell.table, cell.row, cell.n] = cell
    return worst


@pytest.mark.parametrize("case", ["bits 1", "categories 0.5", "joint categories 4", "laplace 8", "multilevel 0.1"])
@pytest.mark.parametrize("n", [3, 30])
def test_exact_cells_come_out_again(case: str, n: int) -> None:
    known = published()
    for key, cell in least(cells(case, n)).items():
        assert known[key][1:] == (True, cell.method)
        assert known[key][0] <= cell.coverage + 1e-8 < known[key][0] + 1.1e-4


@pytest.mark.parametrize(
    ("case", "n"), [("multilevel 2", 3), ("table 4", 1), ("vector 1", 5), ("offers multilevel", 2)]
)
def test_simulated_cells_come_out_again(case: str, n: int) -> None:
    known = published()
    for key, cell in least(cells(case, n)).items():
        assert known[key][1:] == (False, cell.method)
        assert known[key][0] == pytest.approx(cell.coverage, abs=6 * (0.05 / RUNS) ** 0.5)


def test_intervals_of_a_lower_confidence_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def bolder(task, tally, _confidence):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - as estimate
        return estimate(task, tally, 0.9)

    monkeypatch.setattr(coverage_grid, "estimate", bolder)
    for case in (partial(coverage_grid.bits, "1"), partial(coverage_grid.bounded, "multilevel", "0.5")):
        assert min(cell.coverage for cell in case(1000)) < 0.94
