"""The blocks of docs/coverage.md, written from cells."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby

from covering.cells import CONFIDENCES, SIZES, SLACK, Cell
from covering.searched import BY_SEARCH

__all__ = ["BLOCKS"]

_LATE = 0.95
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _in_short(cells: Sequence[Cell]) -> Iterator[str]:
    least = _shown([cell for cell in cells if cell.confidence == _LATE]).rstrip("*")
    yield (
        f"**In short:** an interval that claims 95 % covers at least {least} of the time, over all "
        f"{_apart(len(cells))} cells below."
    )


def _claims(cells: Sequence[Cell]) -> Iterator[str]:
    yield "| claimed | cells | exact | farthest below the claim, in standard errors | where |\n|---|---|---|---|---|"
    ordered = sorted(cells, key=lambda cell: cell.confidence)
    for claimed, group in groupby(ordered, key=lambda cell: cell.confidence):
        mine = list(group)
        least = min(mine, key=lambda cell: cell.margin)
        exact = sum(cell.exact for cell in mine)
        where = f"{least.mechanism}, {least.target}, ε = {least.row}, n = {least.n}, {least.values}, `{least.method}`"
        yield f"| {claimed:.6g} | {_apart(len(mine))} | {_apart(exact)} | {_margin(least)} | {where} |"


def _found(cells: Sequence[Cell]) -> Iterator[str]:
    """Of each mechanism and interval the worst cell of the search."""
    yield "| mechanism | interval | cells | farthest below the claim, in standard errors | claimed | where |"
    yield "|---|---|---|---|---|---|"
    ordered = sorted(filter(_is_searched, cells), key=lambda cell: (cell.mechanism, cell.target))
    for (mechanism, target), group in groupby(ordered, key=lambda cell: (cell.mechanism, cell.target)):
        mine = list(group)
        least = min(mine, key=lambda cell: cell.margin)
        where = f"ε = {least.row}, n = {least.n}, {least.values}, `{least.method}`"
        name = mechanism.removesuffix(BY_SEARCH)
        yield f"| {name} | {target} | {len(mine)} | {_margin(least)} | {least.confidence:.6g} | {where} |"


def _methods(cells: Sequence[Cell]) -> Iterator[str]:
    """Without joint intervals, which claim other confidences."""
    claims = [claim for claim in CONFIDENCES if any(cell.confidence == claim for cell in cells)]
    yield "| method | " + " | ".join(f"{claim:.6g}" for claim in claims) + " |\n|---" + "|---" * len(claims) + "|"
    for method in sorted({cell.method for cell in cells}):
        mine = [[c for c in cells if c.method == method and c.confidence == claim] for claim in claims]
        yield f"| `{method}` | " + " | ".join(_shown(some) for some in mine) + " |"


def _key(cells: Sequence[Cell]) -> Iterator[str]:
    yield " · ".join(f"{letter} `{name}`" for name, letter in _letters(cells).items())


def _tables(cells: Sequence[Cell]) -> Iterator[str]:
    letter = _letters(cells)
    grid = [cell for cell in cells if not _is_searched(cell)]
    for mechanism in dict.fromkeys(cell.mechanism for cell in grid):
        yield f"## {mechanism}\n"
        here = [cell for cell in grid if cell.mechanism == mechanism]
        for target in dict.fromkeys(cell.target for cell in here):
            mine = [cell for cell in here if cell.target == target]
            claims = sorted({cell.confidence for cell in mine})
            yield f"**{target}**, claimed:\n"
            yield "| ε | " + " | ".join(f"{claim:.6g}" for claim in claims) + " |\n|---" + "|---" * len(claims) + "|"
            for row in dict.fromkeys(cell.row for cell in mine):
                entries = [
                    _least([c for c in mine if c.row == row and c.confidence == claim], letter) for claim in claims
                ]
                yield f"| {row} | " + " | ".join(entries) + " |"
            yield ""
            yield from _by_size(mine, letter)


BLOCKS: Mapping[str, Callable[[Sequence[Cell]], Iterator[str]]] = {
    "coverage in short": _in_short,
    "coverage by claim": _claims,
    "coverage by search": _found,
    "coverage by method": _methods,
    "coverage key": _key,
    "coverage": _tables,
}
"""By the names of their markers."""


def _by_size(mine: Sequence[Cell], letter: Mapping[str, str]) -> Iterator[str]:
    """The same at one confidence, for each n."""
    late = [cell for cell in mine if cell.confidence == _LATE]
    sizes = sorted({cell.n for cell in late} & set(SIZES))
    if len(sizes) < 2:
        return
    yield f"{_LATE}, by n:\n"
    yield "| ε | " + " | ".join(map(str, sizes)) + " |\n|---" + "|---" * len(sizes) + "|"
    for row in dict.fromkeys(cell.row for cell in late):
        entries = [_least([c for c in late if c.row == row and c.n == n], letter, size=False) for n in sizes]
        yield f"| {row} | " + " | ".join(entries) + " |"
    yield ""


def _least(cells: Sequence[Cell], letter: Mapping[str, str], *, size: bool = True) -> str:
    if not cells:
        return ""
    least = min(cells, key=lambda cell: cell.coverage)
    return f"{_shown(cells)} {letter[least.method]}" + (f" {least.n}" if size else "")


def _shown(cells: Sequence[Cell]) -> str:
    """The least of some cells, rounded down, with its mark."""
    if not cells:
        return ""
    least = min(cells, key=lambda cell: cell.coverage)
    places = 4 if least.confidence < 0.999 else 6 if least.exact else 5
    shown = int((least.coverage + SLACK) * 10**places) / 10**places
    return f"{shown:.{places}f}{'' if least.exact else '*'}"


def _letters(cells: Sequence[Cell]) -> dict[str, str]:
    return dict(zip(sorted({cell.method for cell in cells}), _LETTERS, strict=False))


def _is_searched(cell: Cell) -> bool:
    return cell.mechanism.endswith(BY_SEARCH)


def _apart(number: int) -> str:
    return f"{number:,}".replace(",", " ")


def _margin(cell: Cell) -> str:
    return f"{cell.margin:+.1f}".replace("-", "\N{MINUS SIGN}")
