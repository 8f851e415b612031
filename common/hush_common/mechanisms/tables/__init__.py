"""The grid of tables that hush ships, and the rule by which `mechanism = "auto"` decides.

A table of some epsilon keeps every larger one, so that the nearest grid point below an epsilon serves it. From 0.33 to
8 the grid is so dense that the worst-case variance stays within two percent of the least that any epsilon-LDP report
can have; below, that of the one bit of `multilevel` does. The tables are made by `tests/tools/table_design.py` and
checked in integers whenever one is used (`Channel`). Published tasks hold theirs, so that a device reads none of this.

`grid.jsonl.gz` has a line for each: epsilon, unit, total, and as far as the middle (the rest is the mirror image) the
positions, the least weight m of each output, and the rows. A row is the first output where it weighs more than m, and
from there on how much less than floor(e^epsilon·m), or -1 for m itself.
"""

import gzip
import json
from bisect import bisect_right
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from importlib.resources import files
from math import floor

from hush_common.domain import Domain, NumberDomain
from hush_common.epsilon import certified_exp, decimal_text
from hush_common.errors import TaskError
from hush_common.mechanisms.channel import Channel
from hush_common.mechanisms.multilevel import Multilevel, best_levels
from hush_common.mechanisms.parameters import MechanismName, Table

__all__ = ["choose", "grid", "grid_point", "shipped", "shipped_at"]

_NAME = "epsilon-"


def choose(domain: Domain, epsilons: Sequence[Fraction]) -> tuple[MechanismName, Table | None]:
    """What `mechanism = "auto"` means: decided by public parameters alone, in exact arithmetic, never by data.

    A bit, a category and a vector have one mechanism each. A number has whichever has the smaller worst-case variance:
    the shipped table of the nearest grid point below, or `multilevel`, which also serves several offers at once. Both
    bound what a lying device can do. (`laplace`, the third, has the largest variance at every epsilon.)

    Args:
        domain: the domain.
        epsilons: loss of one report under each offer.
    """
    from hush_common.mechanisms.build import fitting  # noqa: PLC0415 - `build` is the module above this one

    if not isinstance(domain, NumberDomain):
        return fitting(domain)[0], None
    if len(epsilons) > 1 or epsilons[0] < grid()[0]:
        return "multilevel", None
    multilevel = Multilevel(epsilons[0], 1, best_levels(epsilons[0]))
    if _worst_variance(grid_point(epsilons[0])) < multilevel.exact_worst_variance:
        return "table", shipped_at(epsilons[0])
    return "multilevel", None


@lru_cache(maxsize=1)
def grid() -> tuple[Fraction, ...]:
    """For which epsilon of one report a table is shipped, ascending."""
    return tuple(Fraction(line[2 : line.index('"', 2)]) for line in _lines())


def grid_point(epsilon: Fraction) -> Fraction:
    """The nearest one that is not above `epsilon`.

    Raises:
        TaskError: all are.
    """
    place = bisect_right(grid(), epsilon)
    if place == 0:
        raise TaskError(
            "table",
            f"none is shipped for epsilon {decimal_text(epsilon)} a report, only from {decimal_text(grid()[0])} on; "
            f"use multilevel, which is as good there",
        )
    return grid()[place - 1]


def shipped_at(epsilon: Fraction) -> Table:
    """The shipped table for the epsilon of one report: that of `grid_point`.

    Raises:
        TaskError: none is shipped for it.
    """
    return _decoded(grid_point(epsilon))


def shipped(name: str) -> Table:
    """A shipped table by name, `epsilon-1` for example.

    Raises:
        TaskError: there is no such table.
    """
    for epsilon in grid():
        if name == f"{_NAME}{decimal_text(epsilon)}":
            return _decoded(epsilon)
    first, last = (f"{_NAME}{decimal_text(grid()[end])}" for end in (0, -1))
    raise TaskError(
        "table",
        f"{name[:40]!r} is not shipped; drop it, for the best one for epsilon, choose of {first} to {last}, or write "
        f"it out",
    )


@lru_cache(maxsize=1)
def _lines() -> list[str]:
    packed = files(__package__).joinpath("grid.jsonl.gz").read_bytes()
    return gzip.decompress(packed).decode("ascii").splitlines()


@lru_cache(maxsize=8)
def _decoded(epsilon: Fraction) -> Table:
    _, unit, total, positions, least, rows = json.loads(_lines()[grid().index(epsilon)])
    odd = 2 * positions[-1] == unit
    outer = slice(None, None, -1) if not odd else slice(-2, None, -1)
    positions += [unit - a for a in positions[outer]]
    least += least[outer]
    bound = certified_exp(epsilon)[0]
    most = [floor(bound * m) for m in least]
    half = [_row(least, most, *row) for row in rows]
    if any(sum(row) != total for row in half):
        raise TaskError("table", f"the shipped table for epsilon {decimal_text(epsilon)} is damaged; install hush anew")
    return Table(tuple(positions), unit, (*half, *(row[::-1] for row in half[-2::-1])))


def _row(least: Sequence[int], most: Sequence[int], start: int, *lacks: int) -> tuple[int, ...]:
    row = list(least)
    for y, lack in enumerate(lacks, start):
        if lack >= 0:
            row[y] = most[y] - lack
    return tuple(row)


@lru_cache(maxsize=64)
def _worst_variance(epsilon: Fraction) -> Fraction:
    """Of the table of a grid point."""
    made = _decoded(epsilon)
    return Channel(epsilon, 1, made.positions, made.unit, made.weights).exact_worst_variance
