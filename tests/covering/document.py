# ruff: noqa: E501 - lines as long as those of the page
"""docs/coverage.md: written from cells, and read again."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from covering.cells import CONFIDENCES, RUNS, SIZES, SLACK, Cell
from covering.searched import BY_SEARCH, STEPS, TRIED

__all__ = ["BAR", "LATE", "Published", "by_method", "document", "read"]

BAR = -4.0
"""Standard errors by which a cell may cover less than it claims."""

LATE = 0.95

_TOP = """# Coverage of every interval

**In short:** an interval that claims 95 % covers at least {least} of the time, whatever the number of reports, the ε and the values in this
grid; most intervals are exact or conservative, and the approximate ones fall short by less than a percentage point.

Written by `python tests/tools/coverage_grid.py` ({minutes}); `tests/statistics/test_coverage_grid.py` recomputes some of it and compares every
figure with its bar. {total} cells: a mechanism, a target, an ε, a number of reports, a confidence and a distribution of values.

**The bar.** No interval, at any confidence, covers less than it claims by more than four standard errors of {runs} runs. Several epsilons
have two more tests (`tests/statistics/test_mixtures.py`): 400 random mixtures, and for pairs of ε the worst number of noisy reports, by exact sums.

| claimed | cells | exact | farthest below the claim, in standard errors | where |
|---|---|---|---|---|
{summary}

**The cells.** n = {sizes}, and the last n before and the first after each switch from one method to another, wherever the code has one. Six distributions
of values on [0, 1]: all at the lower bound (a category that nobody has), all at the upper bound, all equal at 0.3, half at each bound, a tenth and a hundredth at the upper
bound; bits and categories: those that are possible. Several epsilons: ratios up to 100, shared evenly,
one device against all others, and the worst number, 1 to 100, of noisy reports next to 1000 precise ones, found by search.

**The search.** The worst value and the worst n may lie between those of the grid. So of the cells above {starts} were found by search (`tests/covering/searched.py`):
random ε from 0.2 to 16, n from 1 to 100 000 (bits and categories: to 20 000; vectors: to 2000), confidence from 0.5 to 0.9999, half of them just past a switch of method; all values equal, at
the value whose report varies most, of two kinds, of six, half at each bound, few at the upper one. Each is moved {steps} times at random, in n, ε and values, to where
{tried} runs cover less; the cell at the end is computed again, exactly or by {runs} fresh runs. `auto` is the table up to ε = 8.78 and one bit below 0.33.

{found}

The least coverage of each method, over all cells:

{methods}

**How to read the tables below.** Each entry is the *least* coverage over the distributions and over all n, rounded down; then the letter of the method, and the n where it was
found. Without a mark it is exact, by summation over everything that can be reported, or over the exact law of the noise where the width does not
depend on the reports. With * it is a share of {runs} fixed-seed runs. An empty entry: the interval does not exist there.

{key}

"""
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def document(cells: Sequence[Cell], minutes: str) -> str:
    """The whole page."""
    names = sorted({cell.method for cell in cells})
    letter = dict(zip(names, _LETTERS, strict=False))
    top = _TOP.format(
        minutes=minutes,
        least=_shown([cell for cell in cells if cell.confidence == LATE]).rstrip("*"),
        total=_apart(len(cells)),
        runs=_apart(RUNS),
        sizes=", ".join(map(str, SIZES)),
        summary="\n".join(_summary(cells)),
        starts=_apart(sum(map(_is_searched, cells))),
        steps=STEPS,
        tried=_apart(TRIED),
        found="\n".join(_found(cells)),
        methods="\n".join(_methods(cells)),
        key=" · ".join(f"{letter[name]} `{name}`" for name in names),
    )
    grid = [cell for cell in cells if not _is_searched(cell)]
    return top + "\n".join(_tables(grid, letter)).rstrip() + "\n"


def _is_searched(cell: Cell) -> bool:
    return cell.mechanism.endswith(BY_SEARCH)


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


def _apart(number: int) -> str:
    return f"{number:,}".replace(",", " ")


def _summary(cells: Sequence[Cell]) -> Iterator[str]:
    ordered = sorted(cells, key=lambda cell: cell.confidence)
    for claimed, group in groupby(ordered, key=lambda cell: cell.confidence):
        mine = list(group)
        least = min(mine, key=lambda cell: cell.margin)
        exact = sum(cell.exact for cell in mine)
        where = f"{least.mechanism}, {least.target}, ε = {least.row}, n = {least.n}, {least.values}, `{least.method}`"
        yield f"| {claimed:.6g} | {_apart(len(mine))} | {_apart(exact)} | {_margin(least)} | {where} |"


def _margin(cell: Cell) -> str:
    return f"{cell.margin:+.1f}".replace("-", "\N{MINUS SIGN}")


def _methods(cells: Sequence[Cell]) -> Iterator[str]:
    """Without joint intervals, which claim other confidences."""
    claims = [claim for claim in CONFIDENCES if any(cell.confidence == claim for cell in cells)]
    yield "| method | " + " | ".join(f"{claim:.6g}" for claim in claims) + " |\n|---" + "|---" * len(claims) + "|"
    for method in sorted({cell.method for cell in cells}):
        mine = [[c for c in cells if c.method == method and c.confidence == claim] for claim in claims]
        yield f"| `{method}` | " + " | ".join(_shown(some) for some in mine) + " |"


def _shown(cells: Sequence[Cell]) -> str:
    """The least of some cells, rounded down, with its mark."""
    if not cells:
        return ""
    least = min(cells, key=lambda cell: cell.coverage)
    places = 4 if least.confidence < 0.999 else 6 if least.exact else 5
    shown = int((least.coverage + SLACK) * 10**places) / 10**places
    return f"{shown:.{places}f}{'' if least.exact else '*'}"


def by_method(text: str) -> dict[str, dict[float, float]]:
    """The table by method, read again."""
    table = text[text.index("| method |") :].split("\n\n", maxsplit=1)[0].splitlines()
    claims = [float(claim) for claim in table[0].strip("| ").split(" | ")[1:]]
    found: dict[str, dict[float, float]] = {}
    for line in table[2:]:
        method, *entries = (entry.strip() for entry in line.strip("|").split("|"))
        shown = {claim: float(entry.rstrip("*")) for claim, entry in zip(claims, entries, strict=True) if entry}
        found[method.strip("`")] = shown
    return found


def _tables(cells: Sequence[Cell], letter: dict[str, str]) -> Iterator[str]:
    for mechanism in dict.fromkeys(cell.mechanism for cell in cells):
        yield f"## {mechanism}\n"
        here = [cell for cell in cells if cell.mechanism == mechanism]
        for target in dict.fromkeys(cell.target for cell in here):
            mine = [cell for cell in here if cell.target == target]
            claims = sorted({cell.confidence for cell in mine})
            yield f"**{target}**, claimed:\n"
            yield (
                "| ε | " + " | ".join(f"{claim:.6g}" for claim in claims) + " |\n|---" * 1 + "|---" * len(claims) + "|"
            )
            for row in dict.fromkeys(cell.row for cell in mine):
                entries = [
                    _least([c for c in mine if c.row == row and c.confidence == claim], letter) for claim in claims
                ]
                yield f"| {row} | " + " | ".join(entries) + " |"
            yield ""
            yield from _by_size(mine, letter)


def _by_size(mine: Sequence[Cell], letter: dict[str, str]) -> Iterator[str]:
    """The same at one confidence, for each n."""
    late = [cell for cell in mine if cell.confidence == LATE]
    sizes = sorted({cell.n for cell in late} & set(SIZES))
    if len(sizes) < 2:
        return
    yield f"{LATE}, by n:\n"
    yield "| ε | " + " | ".join(map(str, sizes)) + " |\n|---" + "|---" * len(sizes) + "|"
    for row in dict.fromkeys(cell.row for cell in late):
        entries = [_least([c for c in late if c.row == row and c.n == n], letter, size=False) for n in sizes]
        yield f"| {row} | " + " | ".join(entries) + " |"
    yield ""


def _least(cells: Sequence[Cell], letter: dict[str, str], *, size: bool = True) -> str:
    if not cells:
        return ""
    least = min(cells, key=lambda cell: cell.coverage)
    return f"{_shown(cells)} {letter[least.method]}" + (f" {least.n}" if size else "")


@dataclass(frozen=True, slots=True)
class Published:
    """An entry of the first table of a target: the least coverage over n and distributions."""

    mechanism: str
    target: str
    row: str
    confidence: float
    coverage: float
    exact: bool
    method: str
    n: int


def read(text: str) -> Iterator[Published]:
    """Every entry that has its n."""
    methods = dict(re.findall(r"(?:^|· )([a-zA-Z]) `([a-z-]+)`", text, re.MULTILINE))
    mechanism = target = ""
    claims: list[float] = []
    for line in text.splitlines():
        if line.startswith("## "):
            mechanism, target = line[3:], ""
        elif match := re.match(r"\*\*(\w+)\*\*, claimed:", line):
            target, claims = match[1], []
        elif re.match(r"[\d.]+, by n:", line):
            target = ""
        elif target and line.startswith("| ε |"):
            claims = [float(claim) for claim in line.strip("| ").split(" | ")[1:]]
        elif target and (match := re.match(r"\| (\d[^|]*|truth [^|]*) \|(.*)\|$", line)):
            for claim, entry in zip(claims, match[2].split("|"), strict=True):
                if entry.strip():
                    number, letter, n = entry.split()
                    exact = "*" not in number
                    yield Published(
                        mechanism, target, match[1], claim, float(number.rstrip("*")), exact, methods[letter], int(n)
                    )
