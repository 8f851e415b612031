"""The published coverage: every cell meets its bar, every method is there, and some cells come out again."""

import ast
import re
from collections.abc import Iterator
from functools import partial
from math import sqrt
from pathlib import Path

import pytest
from covering import asked, coins, numbers
from covering.cells import CONFIDENCES, RUNS, Cell
from covering.document import BAR, Published, by_method, read
from documented.statistics_page import PAGE
from tools.coverage_grid import CASES, DOCUMENT

import hush_aggregator.estimate
from hush_aggregator.estimate import POPULATION, REPORTERS, estimate

VALID_AT_EVERY_N = {
    "betting", "binomial-inversion", "chernoff", "chernoff-betting", "chernoff-hoeffding", "clopper-pearson",
    "clopper-pearson-hoeffding", "laplace-exact", "laplace-hoeffding",
}  # fmt: skip
NO_METHODS = {"laplace-contour", "chernoff-hoeffding-mixture", "reporters-and-sampling"}
"""An accepted underflow, a name that follows that of its target, and rounds together (`test_rounds_together.py`)."""
AGAIN = (
    "bits 8",
    "coins 0.5 0.1",
    "joint categories 5 4",
    "laplace 8",
    "levels 0.1",
    "offers laplace 0.5 or 2, half of each",
)


@pytest.fixture(scope="module", name="published")
def _published() -> list[Published]:
    return list(read(DOCUMENT.read_text(encoding="utf-8")))


def standard_errors(cell: Published) -> float:
    return (cell.coverage - cell.confidence) / sqrt(cell.confidence * (1 - cell.confidence) / RUNS)


def test_no_interval_covers_less_than_it_claims_by_more_than_four_standard_errors(
    published: list[Published],
) -> None:
    assert len(published) > 400
    for cell in published:
        assert standard_errors(cell) >= BAR, cell


def test_what_is_valid_at_every_n_never_covers_less_than_it_claims(published: list[Published]) -> None:
    cells = [cell for cell in published if cell.method in VALID_AT_EVERY_N and cell.exact]
    assert len(cells) > 200
    for cell in cells:
        assert cell.coverage >= cell.confidence - 1e-6, cell


def test_the_conclusion_at_the_top_is_the_least_of_the_table_by_method() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    said = re.search(r"claims 95 % covers at least (\d\.\d+) of the time", text)
    assert said is not None
    assert float(said[1]) == min(shown[0.95] for shown in by_method(text).values() if 0.95 in shown)


def methods_in(source: str, names: dict[str, str]) -> Iterator[str]:
    """The names of methods in a module: texts of words joined by hyphens, whatever is put into them."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Constant(value=str(text)) if "-" in text.strip("-") or text == "betting":
                if all(word.isalpha() and word.islower() for word in text.split("-")):
                    yield text
            case ast.JoinedStr(values=[ast.FormattedValue(value=ast.Name(id=name)), ast.Constant(value=str(rest))]):
                yield names.get(name, name) + rest


def test_every_method_of_the_code_and_of_the_documents_is_in_the_grid() -> None:
    names = {"REPORTERS": REPORTERS, "POPULATION": POPULATION}
    folder = Path(hush_aggregator.estimate.__file__).parent
    known = {name for path in folder.rglob("*.py") for name in methods_in(path.read_text(encoding="utf-8"), names)}
    documented = set(re.findall(r"`([a-z]+(?:-[a-z]+)+)`", PAGE.read_text(encoding="utf-8")))
    assert len(known) > 12
    assert len(documented) > 20
    assert (known | documented) - set(by_method(DOCUMENT.read_text(encoding="utf-8"))) == NO_METHODS


def test_every_confidence_and_every_case_is_in_the_grid(published: list[Published]) -> None:
    for confidence in CONFIDENCES:
        assert sum(cell.confidence == confidence for cell in published) > len(CASES)


@pytest.mark.parametrize("name", AGAIN)
@pytest.mark.parametrize("confidence", [0.99])
def test_cells_come_out_again(published: list[Published], name: str, confidence: float) -> None:
    found = list(CASES[name](confidence))
    for mechanism, target, row, claimed in {(c.mechanism, c.target, c.row, c.confidence) for c in found}:
        least = min(
            (c for c in found if (c.mechanism, c.target, c.row) == (mechanism, target, row)), key=lambda c: c.coverage
        )
        (entry,) = [
            cell
            for cell in published
            if (cell.mechanism, cell.target, cell.row) == (mechanism, target, row)
            and cell.confidence == pytest.approx(claimed, abs=1e-5)
        ]
        assert (entry.method, entry.exact) == (least.method, least.exact)
        slack = 2e-4 if least.exact else 6 * sqrt(claimed * (1 - claimed) / RUNS)
        assert entry.coverage == pytest.approx(least.coverage, abs=slack)


def worst(cells: Iterator[Cell]) -> float:
    return min(cell.margin for cell in cells)


def test_intervals_of_a_lower_confidence_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def bolder(task, tally, confidence):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - as estimate
        return estimate(task, tally, confidence - 0.005)

    monkeypatch.setattr(coins, "estimate", bolder)
    monkeypatch.setattr(asked, "estimate", bolder)
    assert worst(coins.bits("1", 0.95)) < BAR / 2
    with pytest.raises(AssertionError):  # not what Student's interval is at that confidence
        list(numbers.laplace("1", 0.99))


def test_noise_that_is_larger_than_the_intervals_believe_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers, "scale_of", partial(wider, numbers.scale_of))
    assert worst(numbers.laplace("0.5", 0.95)) < BAR


def wider(scale_of, mechanism):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 - as scale_of
    return 1.05 * scale_of(mechanism)
