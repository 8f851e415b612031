"""What a mechanism needs in addition to domain and epsilon: fixed when the task is published, and part of it.

So a device in any language reads G, w or s instead of computing it, and both sides hold the same numbers. The names are
one vocabulary for all mechanisms, because the fields of a task are read before its mechanism is looked up.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import lru_cache
from math import floor

from hush_common.epsilon import certified_exp, decimal_text, log_ceiling
from hush_common.errors import TaskError
from hush_common.untrusted import Fields, check_integers, integers

_PROBABILITY = re.compile(r"[01](\.[0-9]{1,18})?")


@dataclass(frozen=True, slots=True)
class Coins:
    """Two-coin randomized response: answer truthfully with probability `truth`, else "yes" with probability `yes`."""

    truth: Fraction
    yes: Fraction

    def __post_init__(self) -> None:
        for name in ("truth", "yes"):
            if not isinstance(getattr(self, name), Fraction):
                raise TaskError(f"coins.{name}", f'{getattr(self, name)!r} is not exact; write Fraction("0.5")')

    def epsilon(self) -> Fraction:
        """The loss of one answer, rounded up to six decimals, from all four ratios.

        Raises:
            TaskError: a probability outside [0, 1], no information, or a loss without bound.
        """
        for name, p in (("truth", self.truth), ("yes", self.yes)):
            if not 0 <= p <= 1:
                raise TaskError(f"coins.{name}", f"{decimal_text(p)} is not a probability; write a number from 0 to 1")
        if self.truth == 0:
            raise TaskError("coins.truth", "0 makes every answer a coin flip without information; raise it")
        ratio = coin_loss_ratio(self.truth, self.yes)
        if ratio is None:
            raise TaskError("coins", "an answer reveals the bit (infinite epsilon); keep both strictly between 0 and 1")
        try:
            return log_ceiling(ratio)
        except ValueError as error:
            raise TaskError("coins", "these coins cost more than epsilon = 50; lower truth") from error

    @classmethod
    def read(cls, document: object) -> "Coins":
        """Read the table `coins` of a task document; a TaskError names the field and the remedy."""
        fields = Fields(document, "coins")
        coins = cls(*(_probability(f"coins.{name}", fields.text(name)) for name in ("truth", "yes")))
        fields.end()
        return coins

    def document(self) -> dict[str, object]:
        return {"truth": decimal_text(self.truth), "yes": decimal_text(self.yes)}


def _probability(field: str, text: str) -> Fraction:
    if not _PROBABILITY.fullmatch(text):
        raise TaskError(field, f'{text[:40]!r} is not an exact probability; write for example "0.5"')
    return Fraction(text)


def coin_loss_ratio(truth: Fraction, yes: Fraction) -> Fraction | None:
    """Return e^epsilon of two coins in [0, 1], the largest of all four ratios; None if an answer reveals the bit."""
    one = ((1 - truth) * yes, truth + (1 - truth) * yes)
    zero = (1 - one[0], 1 - one[1])
    if 0 in one + zero:
        return None
    return max(one[1] / one[0], one[0] / one[1], zero[0] / zero[1], zero[1] / zero[0])


_NAME = "epsilon-"


@dataclass(frozen=True, slots=True)
class ChannelTable:
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
    def read(cls, document: object) -> "ChannelTable":
        """Read the table `table` of a task document; a TaskError names the field and the remedy."""
        fields = Fields(document, "table")
        rows = enumerate(fields.items("weights"))
        weights = tuple(integers(f"table.weights.{place}", row) for place, row in rows)
        table = cls(fields.integers("positions"), fields.integer("unit"), weights)
        fields.end()
        return table

    def document(self) -> dict[str, object]:
        return {"positions": self.positions, "unit": self.unit, "weights": self.weights}


# The grid of shipped tables. A table of some epsilon satisfies every larger one, so the nearest grid point below an
# epsilon serves it. From 0.33 to 8 the grid is dense enough that the worst-case variance is within two percent of the
# least that any epsilon-LDP report can have; below, that of the one bit of `multilevel` does. The tables are made by
# `tests/tools/table_design.py` and checked in integers whenever one is used (`Channel`). Published tasks contain
# theirs, so a device reads none of this.
#
# `tables.jsonl.gz` has a line for each: epsilon, unit, total, and up to the middle (the rest is the mirror image) the
# positions, the least weight m of each output, and the rows. A row is the first output where it weighs more than m, and
# from there on how much less than floor(e^epsilon·m), or -1 for m itself.


@lru_cache(maxsize=1)
def grid() -> tuple[Fraction, ...]:
    """Return the epsilons of one report for which a table is shipped, ascending."""
    return tuple(Fraction(line[2 : line.index('"', 2)]) for line in _lines())


def grid_point(epsilon: Fraction) -> Fraction:
    """Return the largest grid point that is not above `epsilon`; TaskError if there is none."""
    place = bisect_right(grid(), epsilon)
    if place == 0:
        least = f"per report, only from {decimal_text(grid()[0])} upwards; use multilevel, which is as good there"
        raise TaskError("table", f"none is shipped for epsilon {decimal_text(epsilon)} {least}")
    return grid()[place - 1]


def shipped_at(epsilon: Fraction) -> ChannelTable:
    """Return the shipped table for the epsilon of one report, that of `grid_point`; TaskError if there is none."""
    return _decoded(grid_point(epsilon))


def shipped(name: str) -> ChannelTable:
    """Return a shipped table by name, for example `epsilon-1`; TaskError if there is none."""
    for epsilon in grid():
        if name == f"{_NAME}{decimal_text(epsilon)}":
            return _decoded(epsilon)
    first, last = (f"{_NAME}{decimal_text(grid()[end])}" for end in (0, -1))
    choices = f"drop it to get the best one for epsilon, choose one from {first} to {last}, or write it out"
    raise TaskError("table", f"{name[:40]!r} is not shipped; {choices}")


@lru_cache(maxsize=1)
def _lines() -> list[str]:
    import gzip  # noqa: PLC0415 - with the next a twelfth of a device's start, and a device reads none of this
    from importlib.resources import files  # noqa: PLC0415

    packed = files(__package__).joinpath("tables.jsonl.gz").read_bytes()
    return gzip.decompress(packed).decode("ascii").splitlines()


@lru_cache(maxsize=8)
def _decoded(epsilon: Fraction) -> ChannelTable:
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
    return ChannelTable(tuple(positions), unit, (*half, *(row[::-1] for row in half[-2::-1])))


def _row(least: Sequence[int], most: Sequence[int], start: int, *lacks: int) -> tuple[int, ...]:
    row = list(least)
    for y, lack in enumerate(lacks, start):
        if lack >= 0:
            row[y] = most[y] - lack
    return tuple(row)


_PER_OFFER = ("levels", "size")
_FOR_ONE_OFFER = ("coins", "table")


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of a task's mechanism; those that it does not have are empty."""

    levels: tuple[int, ...] = ()  #: G of `multilevel` and `vector`, one for each epsilon offered
    size: tuple[int, ...] = ()  #: w of `subset_selection`, one for each epsilon offered
    sampled: int | None = None  #: s of `vector`
    coins: Coins | None = None  #: the two-coin form of `randomized_response`
    table: ChannelTable | None = None  #: the channel of `table`

    def __post_init__(self) -> None:
        check_integers("levels", self.levels)
        check_integers("size", self.size)
        if self.sampled is not None:
            check_integers("sampled", (self.sampled,))
        for name, kind in (("coins", Coins), ("table", ChannelTable)):
            value = getattr(self, name)
            if value is not None and type(value) is not kind:
                raise TaskError(name, f"is of type {type(value).__name__}; write {kind.__name__}(…)")

    @classmethod
    def read(cls, document: Fields, table: object) -> "Parameters":
        """Read the parameters of a task document; a TaskError names the field and the remedy."""
        coins = document.anything("coins", None)
        return cls(
            levels=document.some_integers("levels"),
            size=document.some_integers("size"),
            sampled=document.integer_or_none("sampled"),
            table=None if table is None else ChannelTable.read(table),
            coins=None if coins is None else Coins.read(coins),
        )

    def document(self) -> dict[str, object]:
        """Return the fields of the published form, without empty ones."""
        document: dict[str, object] = {
            name: numbers[0] if len(numbers) == 1 else list(numbers)
            for name in _PER_OFFER
            if (numbers := getattr(self, name))
        }
        if self.sampled is not None:
            document["sampled"] = self.sampled
        if self.coins is not None:
            document["coins"] = self.coins.document()
        if self.table is not None:
            document["table"] = self.table.document()
        return document

    @property
    def given(self) -> frozenset[str]:
        """The names of those that are not empty."""
        return frozenset(field.name for field in fields(self) if getattr(self, field.name) not in (None, ()))

    def check(self, mechanism: str, takes: frozenset[str], optional: frozenset[str], offers: int) -> None:
        """Raise TaskError for an unknown or missing parameter, or numbers for other offers."""
        given = self.given
        for name in (field.name for field in fields(self)):
            if name in given and name not in takes:
                raise TaskError(name, f"{mechanism!r} has no {name}; drop it, or choose another mechanism")
            if name in takes and name not in given | optional:
                raise TaskError(name, f"is missing; {mechanism!r} needs it")
        for name in _PER_OFFER:
            count = len(getattr(self, name))
            if count not in (0, offers):
                raise TaskError(name, f"{count} numbers for {offers} epsilons; write one for each")
        if offers > 1 and given.intersection(_FOR_ONE_OFFER):
            raise TaskError("offers", "coins and tables have one epsilon, their own; offer one")


def within(field: str, value: int, most: int) -> int:
    """Return the parameter; TaskError unless it is from 1 to `most`."""
    if not 1 <= value <= most:
        raise TaskError(field, f"{value} is outside 1 to {most}")
    return value
