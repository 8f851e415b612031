"""What a mechanism needs beside domain and epsilon: fixed when the task is published, and part of it.

So a device in any language reads G, w or s instead of computing it, and both sides hold the same numbers. The names are
one vocabulary for all mechanisms, because the fields of a task are read before its mechanism is looked up.
"""

from dataclasses import dataclass, fields

from hush_common.errors import TaskError
from hush_common.mechanisms.coins import Coins
from hush_common.mechanisms.tables import Table
from hush_common.task_fields import Fields, check_integers

__all__ = ["Coins", "Parameters", "Table", "within"]

_PER_OFFER = ("levels", "size")
_FOR_ONE_OFFER = ("coins", "table")


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of a task's mechanism. What the mechanism does not have stays empty.

    Args:
        levels: G of `multilevel` and `vector`, one for each epsilon offered.
        size: w of `subset_selection`, one for each epsilon offered.
        sampled: s of `vector`.
        coins: the two-coin form of `randomized_response`.
        table: the channel of `table`.
    """

    levels: tuple[int, ...] = ()
    size: tuple[int, ...] = ()
    sampled: int | None = None
    coins: Coins | None = None
    table: Table | None = None

    def __post_init__(self) -> None:
        check_integers("levels", self.levels)
        check_integers("size", self.size)
        if self.sampled is not None:
            check_integers("sampled", (self.sampled,))
        for name, kind in (("coins", Coins), ("table", Table)):
            value = getattr(self, name)
            if value is not None and type(value) is not kind:
                raise TaskError(name, f"is of type {type(value).__name__}; write {kind.__name__}(…)")

    @classmethod
    def read(cls, document: Fields, table: object) -> "Parameters":
        """From a task document.

        Args:
            document: the fields that are left of it.
            table: the field of that name, which is read already; None if there is none.

        Raises:
            TaskError: naming the field and the remedy.
        """
        coins = document.anything("coins", None)
        return cls(
            levels=document.some_integers("levels"),
            size=document.some_integers("size"),
            sampled=document.integer_or_none("sampled"),
            table=None if table is None else Table.read(table),
            coins=None if coins is None else Coins.read(coins),
        )

    def document(self) -> dict[str, object]:
        """The same for the published form; what says nothing is left out."""
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
        """The names of those that say something."""
        return frozenset(field.name for field in fields(self) if getattr(self, field.name) not in (None, ()))

    def check(self, mechanism: str, takes: frozenset[str], optional: frozenset[str], offers: int) -> None:
        """Refuse what the mechanism of that name does not have, what it lacks, and numbers for other offers.

        Raises:
            TaskError: naming the field and the remedy.
        """
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
    """The parameter, if it is from 1 to `most`.

    Raises:
        TaskError: it is not.
    """
    if not 1 <= value <= most:
        raise TaskError(field, f"{value} is outside 1 to {most}")
    return value
