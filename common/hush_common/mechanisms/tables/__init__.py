"""The table of a task with the mechanism `table`, and the grid of those that hush ships.

A table of some epsilon keeps every larger one, so that the nearest grid point below an epsilon serves it. From 0.33 to
8 the grid is so dense that the worst-case variance stays within two percent of the least that any epsilon-LDP report
can have; below, that of the one bit of `multilevel` does. The tables are made by `tests/tools/table_design.py` and
checked in integers whenever one is used (`Channel`). Published tasks hold theirs, so that a device reads none of this.

`grid.jsonl.gz` has a line for each: epsilon, unit, total, and as far as the middle (the rest is the mirror image) the
positions, the least weight m of each output, and the rows. A row is the first output where it weighs more than m, and
from there on how much less than floor(e^epsilon·m), or -1 for m itself.
"""

import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import floor

from hush_common.epsilon import certified_exp, decimal_text
from hush_common.errors import TaskError
from hush_common.task_fields import Fields, check_integers, integers

__all__ = ["Table", "grid", "grid_point", "shipped", "shipped_at"]

_NAME = "epsilon-"


@dataclass(frozen=True, slots=True)
class Table:
    """A finite channel in integers; see `hush_common.mechanisms.channel`."""

    positions: tuple[int, ...]
    unit: int
    weights: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        check_integers("table.positions", self.positions)
        check_integers("table.unit", (self.unit,))
        if not isinstance(self.weights, tuple):
            raise TaskError("table.weights", "is not a tuple of rows")
        for row in self.weights:
            check_integers("table.weights", row)

    @classmethod
    def read(cls, document: object) -> "Table":
        """From the table `table` of a task document.

        Raises:
            TaskError: naming the field and the remedy.
        """
        fields = Fields(document, "table")
        rows = enumerate(fields.items("weights"))
        weights = tuple(integers(f"table.weights.{place}", row) for place, row in rows)
        table = cls(fields.integers("positions"), fields.integer("unit"), weights)
        fields.end()
        return table

    def document(self) -> dict[str, object]:
        """The same table for the published form."""
        return {"positions": self.positions, "unit": self.unit, "weights": self.weights}


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
            f"none is shipped for epsilon {decimal_text(epsilon)} per report, only from {decimal_text(grid()[0])} "
            "upwards; use multilevel, which is as good there",
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
        f"{name[:40]!r} is not shipped; drop it to get the best one for epsilon, choose one from {first} to {last}, or "
        "write it out",
    )


@lru_cache(maxsize=1)
def _lines() -> list[str]:
    import gzip  # noqa: PLC0415 - with the next a twelfth of a device's start, and a device reads none of this
    from importlib.resources import files  # noqa: PLC0415

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
        raise TaskError("table", f"the shipped table for epsilon {decimal_text(epsilon)} is damaged; reinstall hush")
    return Table(tuple(positions), unit, (*half, *(row[::-1] for row in half[-2::-1])))


def _row(least: Sequence[int], most: Sequence[int], start: int, *lacks: int) -> tuple[int, ...]:
    row = list(least)
    for y, lack in enumerate(lacks, start):
        if lack >= 0:
            row[y] = most[y] - lack
    return tuple(row)
