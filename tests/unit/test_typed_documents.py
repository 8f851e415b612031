"""Types reach from end to end: a mapping of anything is a JSON document, and stands only where JSON is made or read."""

import ast
from collections.abc import Iterator

import pytest
from product import product_files

MAPPINGS = {"dict", "Dict", "Mapping", "MutableMapping", "OrderedDict", "defaultdict", "TypedDict"}

EDGES = {
    "hush_common/wire.py": "reads the JSON form of a report",
    "hush_aggregator/explain.py": "the JSON of `hush task check`",
    "hush_aggregator/http/schemas.py": "the OpenAPI document of HTTP",
    "hush_aggregator/result.py": "the document of a result: the retained estimate, and part of `--json`",
    "hush_simulations/commands/simulate.py": "the options of the command, as arguments of `hush.simulate`",
    "hush_simulations/commands/sweep.py": "the options of the command, as arguments of `SweepOptions`",
    "hush_simulations/results/run.py": "the document of a run: `hush simulate --json` and result.json",
    "hush_simulations/planning/feasibility.py": "the JSON of `hush feasible`",
    "hush_simulations/planning/plan.py": "the JSON of `hush plan`",
    "hush_attacks/demonstration.py": "the JSON of `hush attack`",
    "hush_simulations/auditing/audit.py": "the JSON of `hush audit`",
}


def documents(tree: ast.AST) -> Iterator[int]:
    """The lines with a mapping to anything, or from anything, written out or as text."""
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=ast.Name(id=name) | ast.Attribute(attr=name)) if name in MAPPINGS:
                if any(isinstance(part, ast.Name) and part.id == "Any" for part in ast.walk(node.slice)):
                    yield node.lineno
            case ast.Constant(value=str(text)) if "Any" in text and "[" in text and "\n" not in text:
                try:
                    inside = ast.parse(text, mode="eval")
                except SyntaxError:
                    continue
                yield from (node.lineno for _ in documents(inside))


def found() -> dict[str, list[int]]:
    files = product_files()
    assert len(files) > 150
    lines = {name: sorted(documents(ast.parse(file.read_text(encoding="utf-8")))) for name, file in files.items()}
    return {name: numbers for name, numbers in lines.items() if numbers}


@pytest.mark.long
def test_documents_are_made_and_read_at_the_edges_alone() -> None:
    elsewhere = {name: lines for name, lines in found().items() if name not in EDGES}
    assert elsewhere == {}, "give it a type, or name the module among the edges with the reason"


@pytest.mark.long
def test_every_edge_is_one() -> None:
    assert EDGES.keys() <= found().keys()


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("def f(x: dict[str, Any]) -> None: ...", [1]),
        ("def f(x: 'Mapping[str, Any]') -> None: ...", [1]),
        ("x: list[\n  typing.Mapping[str, tuple[Any, int]]\n]", [2]),
        ('x = cast("dict[str, list[Any]]", y)', [1]),
        ("x: dict[str, object] = {}\ny: Callable[[Any], dict[str, int]]\nz = 'Any text [of words]'", []),
    ],
)
def test_a_mapping_of_anything_is_noticed(source: str, lines: list[int]) -> None:
    assert list(documents(ast.parse(source))) == lines
