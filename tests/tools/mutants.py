"""Mutants of a module: every small change of its syntax tree that a test ought to notice.

A mutant replaces the text of one node and leaves all other lines as they are. Left alone are docstrings, annotations,
types that have a name, the words of errors and of help, names of tasks and threads, and imports: no test should ask.
"""

import ast
import copy
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

__all__ = ["Mutant", "mutants"]

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_TWINS = (
    ("min", "max"),
    ("minimum", "maximum"),
    ("argmin", "argmax"),
    ("any", "all"),
    ("floor", "ceil"),
    ("log", "log1p"),
    ("exp", "expm1"),
    ("zeros", "ones"),
)
_SYMMETRIC = {"min", "max", "minimum", "maximum", "hypot", "isinstance", "cast"}
_NO_NUMBERS = {"annotation", "returns", "decorator_list", "type_params", "bases"}
_CALLED = {a: b for pair in _TWINS for a, b in (pair, pair[::-1])}


Node = ast.expr | ast.stmt
Span = tuple[int, int]


@dataclass(frozen=True)
class Mutant:
    """One change.

    Args:
        where: qualified name of the function, empty at the top of the module.
        line: its first line, from 1.
        span: first and last line of the statement around it, without the body of a compound one.
        at_import: whether that statement runs when the module is imported.
        text: that line, stripped: what an equivalent mutant is known by when lines move.
        change: from what to what.
        number: 0, or how many of the same text and change come before it in the function.
        source: the module with the change.
    """

    where: str
    line: int
    span: Span
    at_import: bool
    text: str
    change: str
    number: int
    source: str

    @property
    def key(self) -> tuple[str, str, str, int]:
        return self.where, self.text, self.change, self.number


def mutants(source: str) -> list[Mutant]:
    """All mutants of a module, in the order of its text."""
    lines = source.splitlines(keepends=True)
    found, seen = [], Counter[tuple[str, str, str]]()
    for place, node, new in _walk(ast.parse(source), _Place("", (1, 1), at_import=True)):
        change = f"{ast.unparse(node)} -> {new}"
        text = lines[node.lineno - 1].strip()
        known_by = place.where, text, change
        mutated = _splice(lines, node, f"({new})" if isinstance(node, ast.expr) else new)
        found.append(
            Mutant(place.where, node.lineno, place.span, place.at_import, text, change, seen[known_by], mutated)
        )
        seen[known_by] += 1
    return found


def _splice(lines: list[str], node: Node, new: str) -> str:
    """The text with `new` in place of the node; all before it stays on its line."""
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    first, last = node.lineno - 1, node.end_lineno - 1
    head = lines[first].encode()[: node.col_offset].decode()
    tail = lines[last].encode()[node.end_col_offset :].decode()
    return "".join([*lines[:first], head + new + tail, *lines[last + 1 :]])


@dataclass(frozen=True)
class _Place:
    where: str
    span: Span
    at_import: bool

    def inside(self, node: ast.AST) -> "_Place":
        """The place of the children of a node."""
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{self.where}.{node.name}" if self.where else node.name
            return replace(self, where=name, span=_head(node), at_import=self.at_import)
        return replace(self, span=_head(node)) if isinstance(node, ast.stmt) else self

    def body(self, node: ast.AST) -> "_Place":
        inner = self.inside(node)
        return replace(inner, at_import=False) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else inner


def _head(node: ast.stmt) -> Span:
    body = getattr(node, "body", None) or getattr(node, "cases", None)
    last = node.end_lineno or node.lineno
    if body:
        first = body[0].pattern if isinstance(body[0], ast.match_case) else body[0]
        last = max(node.lineno, first.lineno - 1)
    return node.lineno, last


def _walk(node: ast.AST, place: _Place) -> Iterator[tuple[_Place, Node, str]]:
    for name, field in ast.iter_fields(_uncast(node)):
        if name in _NO_NUMBERS:
            continue
        inner = place.body(node) if name == "body" else place.inside(node)
        for child in field if isinstance(field, list) else [field]:
            if isinstance(child, ast.AST) and not _is_left_alone(child):
                here = inner.inside(child) if not isinstance(child, ast.FunctionDef | ast.ClassDef) else inner
                if isinstance(child, ast.expr | ast.stmt):
                    yield from ((here, changed, new) for changed, new in _changes(child))
                if not isinstance(child, ast.Raise):
                    yield from _walk(child, inner)


def _uncast(node: ast.AST) -> ast.AST:
    """Without the name of the type that something is taken for."""
    match node:
        case ast.Call(func=ast.Name(id="cast"), args=[_, value]):
            return _copied(node, args=[value])
    return node


def _is_left_alone(node: ast.AST) -> bool:
    match node:
        case ast.Import() | ast.ImportFrom() | ast.JoinedStr() | ast.Expr(value=ast.Constant()):
            return True
        case ast.Assign(targets=[ast.Name(id="__all__")]) | ast.AnnAssign(annotation=ast.Name(id="TypeAlias")):
            return True
        case ast.Assign(value=ast.Subscript(value=ast.Name(id="Callable" | "Literal"))):
            return True
        case ast.Assign(value=ast.Call(func=ast.Name(id="TypeVar"))):
            return True
        case ast.keyword(arg="help" | "name" | "thread_name_prefix", value=ast.Constant()):
            return True
    return False


def _changes(node: Node) -> Iterator[tuple[Node, str]]:
    yield from _changed_statement(node) if isinstance(node, ast.stmt) else _changed_value(node)


def _changed_statement(node: ast.stmt) -> Iterator[tuple[Node, str]]:
    match node:
        case ast.AugAssign() if type(node.op) in _ARITHMETIC:
            yield node, _changed(node, op=_ARITHMETIC[type(node.op)]())
            yield node, "pass"
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield value, "None"
        case ast.Expr(value=ast.Call()) | ast.Break() | ast.Continue() | ast.Raise():
            yield node, "pass"
    if isinstance(node, ast.If | ast.While):
        yield from _negated(node.test)


def _changed_value(node: ast.expr) -> Iterator[tuple[Node, str]]:
    match node:
        case ast.Compare():
            yield from _compared(node)
        case ast.BinOp() if type(node.op) in _ARITHMETIC and not _is_text(node):
            yield node, _changed(node, op=_ARITHMETIC[type(node.op)]())
        case ast.BoolOp():
            yield node, _changed(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield node, ast.unparse(node.operand)
        case ast.Constant():
            yield from ((node, repr(value)) for value in dict.fromkeys(_constants(node.value)))
        case ast.IfExp():
            yield from _negated(node.test)
        case ast.Call():
            yield from _called(node)
        case ast.Subscript(slice=ast.Slice() as part):
            yield from _sliced(node, part)


def _negated(test: ast.expr) -> Iterator[tuple[Node, str]]:
    if not isinstance(test, ast.Compare):  # which is negated by itself
        yield test, ast.unparse(ast.UnaryOp(ast.Not(), test))


def _compared(node: ast.Compare) -> Iterator[tuple[Node, str]]:
    for i, op in enumerate(node.ops):
        for other in _COMPARISONS[type(op)]:
            yield node, _changed(node, ops=[*node.ops[:i], other(), *node.ops[i + 1 :]])


def _called(node: ast.Call) -> Iterator[tuple[Node, str]]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name in _CALLED:
        other = _CALLED[name]
        func = _changed(node.func, attr=other) if isinstance(node.func, ast.Attribute) else other
        yield node.func, func
    if name not in _SYMMETRIC and len(node.args) > 1 and not any(isinstance(one, ast.Starred) for one in node.args):
        first, second, *rest = node.args
        if ast.unparse(first) != ast.unparse(second):
            yield node, _changed(node, args=[second, first, *rest])


def _sliced(node: ast.Subscript, part: ast.Slice) -> Iterator[tuple[Node, str]]:
    """Off by one at either end; a constant is changed as one."""
    for name in ("lower", "upper"):
        end = getattr(part, name)
        if end is None or isinstance(end, ast.Constant):
            continue
        off = ast.BinOp(end, ast.Add(), ast.Constant(1))
        yield node, _changed(node, slice=_copied(part, **{name: off}))


def _constants(value: object) -> tuple[object, ...]:
    match value:
        case bool():
            return (not value,)
        case int():
            return value + 1, value * 2 or -1
        case float():
            return value + 1.0, value * 2 or -1.0
        case str():
            return (f"{value}?",)
    return ()


def _changed(node: ast.AST, **fields: object) -> str:
    return ast.unparse(_copied(node, **fields))


def _copied(node: ast.AST, **fields: object) -> ast.AST:
    other = copy.copy(node)
    for name, value in fields.items():
        setattr(other, name, value)
    return other


def _is_text(node: ast.BinOp) -> bool:
    sides = (node.left, node.right)
    return any(isinstance(getattr(side, "value", None), str) or isinstance(side, ast.JoinedStr) for side in sides)
