"""What a mechanism needs beside domain and epsilon: fixed when the task is published, and part of it.

So a device in any language reads G, w or s instead of computing it, and both sides hold the same numbers.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from hush_common.epsilon import decimal_text, log_ceiling
from hush_common.errors import TaskError
from hush_common.mechanisms.randomized_response import coin_loss_ratio

__all__ = ["Coins", "MechanismName", "Parameters", "Table"]

MechanismName = Literal["laplace", "randomized_response", "multilevel", "subset_selection", "vector", "table"]


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
                raise TaskError(f"coins.{name}", f"{decimal_text(p)} is no probability; write a number from 0 to 1")
        if self.truth == 0:
            raise TaskError("coins.truth", "0 means that every answer is a coin: nothing can be learned; raise it")
        ratio = coin_loss_ratio(self.truth, self.yes)
        if ratio is None:
            raise TaskError(
                "coins", "some answer gives the bit away (infinite epsilon); keep both strictly inside 0 and 1"
            )
        try:
            return log_ceiling(ratio)
        except ValueError as error:
            raise TaskError("coins", "these coins lose more than epsilon = 50; lower truth") from error


@dataclass(frozen=True, slots=True)
class Table:
    """A finite channel in integers; see `hush_common.mechanisms.channel`."""

    positions: tuple[int, ...]
    unit: int
    weights: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        _integers("table.positions", self.positions)
        _integers("table.unit", (self.unit,))
        if not isinstance(self.weights, tuple):
            raise TaskError("table.weights", "is no tuple of rows")
        for row in self.weights:
            _integers("table.weights", row)


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
        _integers("levels", self.levels)
        _integers("size", self.size)
        if self.sampled is not None:
            _integers("sampled", (self.sampled,))
        for name, kind in (("coins", Coins), ("table", Table)):
            value = getattr(self, name)
            if value is not None and type(value) is not kind:
                raise TaskError(name, f"is of type {type(value).__name__}; write {kind.__name__}(…)")


def _integers(field: str, numbers: object) -> None:
    """Whatever is no integer here would end in a probability that is not exact."""
    if not isinstance(numbers, tuple) or not all(type(number) is int for number in numbers):
        raise TaskError(field, f"{str(numbers)[:40]!r} holds something that is no integer; write whole numbers")
