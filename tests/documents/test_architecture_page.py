"""docs/architecture.md: the files and functions that it names exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
CHANGES = PAGE.partition("## Where do I change what")[2].partition("\n## ")[0]


def test_every_file_that_a_change_is_sent_to_is_there() -> None:
    named = re.findall(r"`((?:common|client|aggregator|simulations|tests|docs)/[\w/.]+)`", CHANGES)
    assert len(named) > 30
    assert [name for name in named if not (ROOT / name).exists()] == []


ANSWERS = [
    (line.split("|")[2].strip().strip("`"), re.findall(r"`(\w+)`", line.split("|")[3]))
    for line in PAGE.partition("## Where is …?")[2].partition("\n## ")[0].splitlines()
    if line.startswith("| W")
]


def defined(source: str) -> set[str]:
    """The names of all functions and classes of a source."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return {node.name for node in ast.walk(ast.parse(source)) if isinstance(node, kinds)}


@pytest.mark.parametrize(("file", "names"), ANSWERS, ids=[file.rpartition("/")[2] for file, _ in ANSWERS])
def test_the_function_that_answers_a_question_is_in_its_file(file: str, names: list[str]) -> None:
    assert names
    assert names[0] in defined((ROOT / file).read_text(encoding="utf-8"))


def test_at_least_ten_questions_are_answered() -> None:
    assert len(ANSWERS) >= 10


def test_a_function_that_is_elsewhere_is_missed() -> None:
    assert defined("class A:\n    def b(self): ...\nc = 1\n") == {"A", "b"}
