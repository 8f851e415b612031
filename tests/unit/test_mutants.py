"""What the mutation run changes: a mutant that changes nothing would count as one that no test sees."""

import ast
from textwrap import dedent

import pytest
from tools.mutants import mutants


def changes(line: str) -> list[str]:
    return [mutant.change for mutant in mutants(line)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a <= b", ["a <= b -> a < b", "a <= b -> a > b"]),
        ("a is None", ["a is None -> a is not None"]),
        ("a - b / c", ["a - b / c -> a + b / c", "b / c -> b * c"]),
        ("a ** b", ["a ** b -> a * b"]),
        ("x = 1", ["1 -> 2"]),
        ("x = 0", ["0 -> 1", "0 -> -1"]),
        ("x = 3", ["3 -> 4", "3 -> 6"]),
        ("x = 0.5", ["0.5 -> 1.5", "0.5 -> 1.0"]),
        ("x = True", ["True -> False"]),
        ("x = 'score'", ["'score' -> 'score?'"]),
        ("a and b", ["a and b -> a or b"]),
        ("x = not a", ["not a -> a"]),
        ("x = -a", ["-a -> a"]),
        ("x += a", ["x += a -> x -= a", "x += a -> pass"]),
        ("if a:\n    b", ["a -> not a"]),
        ("x = b if a else c", ["a -> not a"]),
        ("np.minimum(a, b)", ["np.minimum(a, b) -> pass", "np.minimum -> np.maximum"]),
        ("f(a, b)", ["f(a, b) -> pass", "f(a, b) -> f(b, a)"]),
        ("a[b:]", ["a[b:] -> a[b + 1:]"]),
        ("def f():\n    return a", ["a -> None"]),
        ("raise E('a')", ["raise E('a') -> pass"]),
        ("def f(a: 'T' = 1) -> 'T':\n    'what it does'", ["1 -> 2"]),
        ("x = cast('T', a + b)", ["a + b -> a - b"]),
        ("from a import b", []),
        ("__all__ = ['f']", []),
        ("Kind = Literal['draw', 'memo']", []),
        ("T = TypeVar('T')", []),
        ("x = f(a, name='work', help='what it does')", []),
        ("x = f'{a + 1}'", []),
    ],
)
def test_every_kind_of_change_is_made_once(line: str, expected: list[str]) -> None:
    assert changes(line) == expected


def test_a_mutant_differs_in_one_place_and_keeps_every_line_before_it() -> None:
    source = dedent(
        '''
        LIMIT = 10  # ε, two bytes before what changes

        def mean(x: list[float], *, most: int = 3) -> float:
            """Of what is there."""
            total = sum(
                x[:most],
            ) / len(x)
            return total if total < LIMIT and x else "é" + str(total * 2)
        '''
    )
    found = mutants(source)
    assert len({mutant.key for mutant in found}) == len(found)
    for mutant in found:
        assert ast.dump(ast.parse(mutant.source)) != ast.dump(ast.parse(source))
        assert mutant.source.splitlines()[: mutant.line - 1] == source.splitlines()[: mutant.line - 1]
    where = {(mutant.where, mutant.line, mutant.at_import) for mutant in found}
    assert {("", 2, True), ("mean", 4, True), ("mean", 6, False), ("mean", 9, False)} <= where
    assert {mutant.span for mutant in found if mutant.where == "mean" and not mutant.at_import} == {(6, 8), (9, 9)}


def test_mutants_of_equal_lines_are_told_apart() -> None:
    found = mutants("def f():\n    x = 1\n    x = 1\n")
    assert [mutant.number for mutant in found] == [0, 1]
