"""Intervals cover as often as they claim: cells of the grid of docs/coverage.md, held to its bar.

Most cells are exact sums, the others 20 000 fixed-seed runs of the laws of the reports.
"""

from collections.abc import Iterable
from functools import partial

import numpy as np
import pytest
from covering import asked, coins, levels, numbers
from covering.cells import BAR, Cell
from covering.grid import CASES
from covering.predicates import Runs, predicate
from covering.searched import KINDS, searched, start
from covering.searched import worst as worst_of_search

from hush_aggregator.estimate import estimate

VALID_AT_EVERY_N = {
    "betting", "binomial-inversion", "chernoff", "chernoff-betting", "clopper-pearson", "clopper-pearson-hoeffding",
    "laplace-exact", "laplace-hoeffding",
}  # fmt: skip


def check(cells: Iterable[Cell]) -> None:
    for cell in cells:
        assert cell.margin >= BAR, cell
        if cell.exact and cell.method in VALID_AT_EVERY_N:
            assert cell.coverage >= cell.claimed - 1e-6, cell


def worst(cells: Iterable[Cell]) -> float:
    return min(cell.margin for cell in cells)


SMALL = ("laplace 1",)
MEDIUM = (
    "laplace 8", "enrolled laplace 8", "offers laplace 0.5 or 4, one of the first",
    "bits 1", "enrolled bits 4", "coins 0.9 0.02", "levels 0.5", "categories 5 4",
)  # fmt: skip
LARGE = (
    "levels 2", "enrolled levels 2", "watched bits 4", "watched laplace 1", "watched levels 4", "vector 1",
    "joint vector 1", "joint categories 5 4", "table 1", "corner bit 0.1 10", "categories 20 4",
    "offers laplace 0.5 or 2, half of each", "offers category 0.5 or 4, one of the first",
)  # fmt: skip
SOAK = (
    "levels 8",
    "offers levels 0.5 or 2, half of each",
    "offers levels 0.1 or 1 or 8, a tenth, a tenth",
    "enrolled offers levels",
)


@pytest.mark.parametrize(
    "case",
    [
        *SMALL,
        *(pytest.param(case, marks=pytest.mark.medium) for case in MEDIUM),
        *(pytest.param(case, marks=pytest.mark.large) for case in LARGE),
        *(pytest.param(case, marks=pytest.mark.soak) for case in SOAK),
    ],
)
def test_intervals_cover_what_they_claim(case: str) -> None:
    check(CASES[case](0.95))


@pytest.mark.large
@pytest.mark.parametrize("confidence", [0.5, 0.99, 0.999])
@pytest.mark.parametrize("case", ["laplace 8", "bits 8"])
def test_intervals_cover_at_other_confidences(case: str, confidence: float) -> None:
    check(CASES[case](confidence))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_the_worst_cells_that_a_search_finds_cover(kind: str) -> None:
    check(searched(kind, 0.95))


# ---- planted errors


@pytest.mark.medium
def test_intervals_of_a_lower_confidence_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def bolder(task, tally, confidence):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - as estimate
        return estimate(task, tally, confidence - 0.005)

    monkeypatch.setattr(coins, "estimate", bolder)
    monkeypatch.setattr(asked, "estimate", bolder)
    assert worst(CASES["bits 1"](0.95)) < BAR / 2
    with pytest.raises(AssertionError):  # not what Student's interval is at that confidence
        list(CASES["laplace 1"](0.99))


@pytest.mark.soak
def test_a_search_finds_intervals_of_a_lower_confidence(monkeypatch: pytest.MonkeyPatch) -> None:
    def bolder(method: str, runs: Runs, confidence: float, answered: float = 0.0) -> object:
        return predicate(method, runs, confidence - 0.012, answered)

    monkeypatch.setattr(levels, "predicate", bolder)
    monkeypatch.setattr(levels, "check", lambda *_: None)
    rng = np.random.default_rng(5)
    assert min(worst_of_search(start("auto", 0.95, rng), rng).margin(9) for _ in range(3)) < BAR


@pytest.mark.medium
def test_noise_that_is_larger_than_the_intervals_believe_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers, "scale_of", partial(wider, numbers.scale_of))
    assert worst(CASES["laplace 0.5"](0.95)) < BAR


def wider(scale_of, mechanism):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 - as scale_of
    return 1.05 * scale_of(mechanism)
