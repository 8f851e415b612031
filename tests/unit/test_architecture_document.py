"""docs/architecture.md says of every mechanism which files of the product name it: these, and no others."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from hush_common.mechanisms import Mechanism
from hush_common.mechanisms.registry import known

ROOT = Path(__file__).parents[2]
SECTION = (ROOT / "docs/architecture.md").read_text(encoding="utf-8").partition("## Where a mechanism lives")[2]
FOLDERS = ("common/hush_common/mechanisms/", "aggregator/hush_aggregator/estimate/mechanisms/", "")
WORDS_FOR_OTHER_THINGS = {"table", "vector"}


def files_of(cells: list[str]) -> set[str]:
    """The files in the cells of a row; those without a folder lie in that of the column."""
    return {
        path if path.split("/")[0] in {"common", "aggregator", "simulations", "client"} else folder + path
        for folder, cell in zip(FOLDERS, cells, strict=True)
        for path in re.findall(r"`([\w/]+\.(?:py|c|js))`", cell)
    }


def told() -> dict[str, set[str]]:
    """The files of each mechanism, as the document has them."""
    lines = [line for line in SECTION.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    rows = {first.strip(): files_of(cells) for first, *cells in (line.strip("|").split("|") for line in lines[1:])}
    shared = rows.pop("each of them")
    return {first: files | shared for first, files in rows.items()}


def names(source: str) -> Iterator[str]:
    """The names in a Python source, and its texts in quotes, but for docstrings."""
    tree = ast.parse(source)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.ClassDef(name=name) | ast.alias(name=name):
                yield name
            case ast.Constant(value=str() as text) if id(node) not in docstrings:
                yield f'"{text}"'


def row_of(kind: type[Mechanism]) -> str:
    return f"`{kind.name}`, `{kind.__name__}`"


def is_of(kind: type[Mechanism], name: str) -> bool:
    if name.startswith('"') and kind.name not in WORDS_FOR_OTHER_THINGS:
        return re.search(rf"\b{kind.name}\b", name) is not None
    return name in {kind.__name__, f'"{kind.name}"'}


@cache
def mentions() -> dict[str, set[str]]:
    """The files of the product that name each mechanism."""
    sources = {path: path.read_text(encoding="utf-8") for path in (ROOT / "client/ports").rglob("*.[ch]")}
    found = {str(path.relative_to(ROOT)): re.findall(r'"[^"\n]*"', text) for path, text in sources.items()}
    for path in (ROOT / "client/ports/js").rglob("*.js"):
        keys = re.findall(r"^  (\w+): \{ kind:", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        texts = re.findall(r'"[^"\n]*"', path.read_text(encoding="utf-8"))
        found[str(path.relative_to(ROOT))] = [*(f'"{key}"' for key in keys), *texts]
    for room in ("common", "client", "aggregator", "simulations"):
        for path in (ROOT / room).rglob("*.py"):
            found[str(path.relative_to(ROOT))] = list(names(path.read_text(encoding="utf-8")))
    return {
        row_of(kind): {path for path, some in found.items() if any(is_of(kind, one) for one in some)}
        for kind in known()
    }


@pytest.mark.long
def test_the_table_has_a_row_for_every_mechanism() -> None:
    assert list(told()) == list(mentions())


@pytest.mark.parametrize("kind", known(), ids=lambda kind: kind.name)
def test_the_files_that_name_a_mechanism_are_those_of_the_document(kind: type[Mechanism]) -> None:
    assert mentions()[row_of(kind)] == told()[row_of(kind)]


def test_a_name_in_code_is_found_and_one_in_a_docstring_is_not() -> None:
    source = '"""Laplace, laplace."""\nx = f"the laplace {Multilevel}"\nfrom a import Vector\nkind = "table"\n'
    found = {kind.name for kind in known() for name in names(source) if is_of(kind, name)}
    assert found == {"laplace", "multilevel", "vector", "table"}
    assert not any(is_of(kind, name) for kind in known() for name in names('x = "a tablet of vectors"'))


def questions(source: str) -> set[str]:
    """The mechanisms that a source asks for: by `isinstance`, in a `match`, or by comparing a name in a task."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, asked]):
                parts = asked
            case ast.MatchClass(cls=asked) | ast.MatchValue(value=asked):
                parts = asked
            case ast.Compare():
                parts = node
            case _:
                continue
        for part in ast.walk(parts):
            match part:
                case ast.Name(id=name):
                    found.add(name)
                case ast.Constant(value=str() as text):
                    found.add(f'"{text}"')
    return {kind.name for kind in known() if {kind.__name__, f'"{kind.name}"'} & found}


@pytest.mark.long
def test_nothing_in_the_product_asks_which_mechanism_it_has() -> None:
    asked = {
        str(path.relative_to(ROOT)): some
        for room in ("common", "client/hush_client", "aggregator", "simulations")
        for path in (ROOT / room).rglob("*.py")
        if (some := questions(path.read_text(encoding="utf-8")))
    }
    assert asked == {}


def test_a_question_for_a_mechanism_is_seen() -> None:
    assert questions("isinstance(x, Laplace | Offers)") == {"laplace"}
    assert questions("match x:\n    case Vector(levels=g): pass\n    case 'table': pass") == {"vector", "table"}
    assert questions("x in {'multilevel', 'sum'} or y == 'table'") == {"multilevel", "table"}
    assert questions("x = Laplace(1, 2)\ny = isinstance(x, Offers)") == set()
