"""Intervals cover as often as they claim: cells of the grid of docs/coverage.md, held to its bar.

Most cells are exact sums, the others 20 000 fixed-seed runs of the laws of the reports.
"""

from collections.abc import Iterable
from functools import partial

import pytest
from covering import asked, coins, numbers
from covering.cells import BAR, Cell
from covering.grid import CASES
from covering.searched import KINDS, searched

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
MEDIUM = ("laplace 8",)
LARGE = ("enrolled laplace 2",)


@pytest.mark.parametrize(
    "case",
    [*SMALL, *(pytest.param(case, marks=pytest.mark.medium) for case in MEDIUM)]
    + [pytest.param(case, marks=pytest.mark.large) for case in LARGE],
)
def test_intervals_cover_what_they_claim(case: str) -> None:
    check(CASES[case](0.95))


@pytest.mark.large
@pytest.mark.parametrize("confidence", [0.5, 0.99, 0.999])
@pytest.mark.parametrize("case", ["laplace 8", "bits 8", "levels 2"])
def test_intervals_cover_at_other_confidences(case: str, confidence: float) -> None:
    check(CASES[case](confidence))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_the_worst_cells_that_a_search_finds_cover(kind: str) -> None:
    check(searched(kind, 0.95))


# ---- planted errors


def test_intervals_of_a_lower_confidence_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def bolder(task, tally, confidence):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - as estimate
        return estimate(task, tally, confidence - 0.005)

    monkeypatch.setattr(coins, "estimate", bolder)
    monkeypatch.setattr(asked, "estimate", bolder)
    assert worst(CASES["bits 1"](0.95)) < BAR / 2
    with pytest.raises(AssertionError):  # not what Student's interval is at that confidence
        list(CASES["laplace 1"](0.99))


def test_noise_that_is_larger_than_the_intervals_believe_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers, "scale_of", partial(wider, numbers.scale_of))
    assert worst(CASES["laplace 0.5"](0.95)) < BAR


def wider(scale_of, mechanism):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 - as scale_of
    return 1.05 * scale_of(mechanism)
