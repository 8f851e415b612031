"""SECURITY.md names a test for each of its promises, and for every channel by which a value could leave."""

import re
from fractions import Fraction
from pathlib import Path

import pytest

from hush_common.epsilon import at_most_sure
from hush_common.formatting import percent_at_most

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "SECURITY.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    """The cells of the table under a heading, row by row; the last names the tests."""
    section = TEXT.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:]]


def missing(cell: str) -> list[str] | None:
    """Which tests of those that a cell names are not there; None if it names none."""
    named = re.findall(r"`([a-z_/]+\.py)`", cell)
    return [name for name in named if not (ROOT / "tests" / name).is_file()] if named else None


@pytest.mark.parametrize(
    ("heading", "least"),
    [("Who sees what", 5), ("Channels beside the report", 16), ("HTTP", 9), ("The page", 6), ("Recalls", 7)],
)
def test_every_row_names_tests_that_exist(heading: str, least: int) -> None:
    table = rows(heading)
    assert len(table) >= least
    for row in table:
        assert all(row), row[0]
        assert missing(row[-1]) == [], row[0]


def test_a_row_without_a_test_or_with_one_that_is_gone_is_found() -> None:
    assert missing("see the argument") is None
    assert missing("`documents/test_security_document.py`, `attacks/test_gone.py`") == ["attacks/test_gone.py"]


def test_every_test_that_is_named_anywhere_exists() -> None:
    named = set(re.findall(r"\b(?:[a-z]+/)*test_[a-z0-9_]+(?:\.py)?", TEXT))
    files = {path.relative_to(ROOT / "tests").as_posix() for path in (ROOT / "tests").rglob("test_*.py")}
    assert len(named) >= 15
    assert {name.removeprefix("tests/") for name in named} - files == set()


def test_every_file_that_it_names_exists() -> None:
    named = set(re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", TEXT)) | set(re.findall(r"`(tests/[a-z_/]+\.py)`", TEXT))
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_how_sure_an_observer_can_become_is_rounded_up_as_every_promise_is() -> None:
    found = re.findall(r"(\d+\.\d %) (?:sure )?at ε = ([\d.]*\d)", TEXT)
    assert [epsilon for _, epsilon in found] == ["0.1", "1", "4"]
    for said, epsilon in found:
        assert said == percent_at_most(at_most_sure(Fraction(epsilon)))
