"""Count the places of the product that ask which kind of domain they have: `python tests/tools/domain_questions.py`.

A place is an `isinstance`, a `match` arm, a cast or a comparison with a class of domain or with its `kind`, a row of a
table whose key is one, or a function that `singledispatch` registers for one.
"""

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

DOMAINS = {"NumberDomain", "BitDomain", "CategoryDomain", "VectorDomain", "Coordinate"}
ROOMS = ("common", "client/hush_client", "aggregator", "simulations")


def questions(source: str) -> Iterator[int]:
    """The lines that ask."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, asked]) if _names(asked):
                yield node.lineno
            case ast.Call(func=ast.Name(id="cast"), args=[asked, _]) if _names(asked):
                yield node.lineno
            case ast.Call(func=ast.Attribute(attr="register"), args=[asked, *_]) if _names(asked):
                yield node.lineno
            case ast.FunctionDef() if any(_is_register(one) for one in node.decorator_list) and _takes_domain(node):
                yield node.lineno
            case ast.MatchClass(cls=asked) | ast.MatchValue(value=asked) if _names(asked):
                yield asked.lineno
            case ast.Compare() if any(_is_kind(part) or _names(part) for part in (node.left, *node.comparators)):
                yield node.lineno
            case ast.Dict():
                yield from (key.lineno for key in node.keys if key is not None and _names(key))


def _names(tree: ast.AST) -> bool:
    """Whether it is a class of domain, several, or the `kind` of one; a string counts as what it says."""
    match tree:
        case ast.Name(id=name) | ast.Attribute(attr=name) if name in DOMAINS:
            return True
        case ast.Attribute(value=ast.Name(id=name), attr="kind"):
            return name in DOMAINS
        case ast.Constant(value=str(text)):
            return text in DOMAINS
        case ast.BinOp(left=left, right=right):
            return _names(left) or _names(right)
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            return any(_names(part) for part in parts)
    return False


def _is_register(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Attribute) and decorator.attr == "register"


def _takes_domain(function: ast.FunctionDef) -> bool:
    first = function.args.args[:1]
    return any(one.annotation is not None and _names(one.annotation) for one in first)


def _is_kind(tree: ast.AST) -> bool:
    """Whether it is the kind of a domain: `domain.kind`, `task.domain.kind` or `NumberDomain.kind`."""
    if not (isinstance(tree, ast.Attribute) and tree.attr == "kind"):
        return False
    owner = tree.value
    name = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
    return name in DOMAINS or name == "domain"


def count(root: Path) -> Counter[str]:
    """How many places each file has."""
    found: Counter[str] = Counter()
    for room in ROOMS:
        for path in (root / room).rglob("*.py"):
            found[str(path.relative_to(root))] += sum(1 for _ in questions(path.read_text(encoding="utf-8")))
    return +found


if __name__ == "__main__":
    places = count(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[2])
    for name, number in places.most_common():
        print(f"{number:4} {name}")
    print(f"{places.total():4} places in {len(places)} files")
