"""From whatever value a program passes to an index, or to none: total, bounded, before any random draw.

A value never decides whether a device answers, so nothing in here raises because of one. Three things can become of it:

- `"used"`: it is what it is, rounded to the grid;
- `"moved"`: a number beyond a bound (infinity included) goes to that bound, an unknown label to the task's `other`;
- `"replaced"`: there is no usable value (None, NaN, an unknown label, a conversion that raises). The index is then
  drawn uniformly over the domain, and goes through the mechanism like any other. The law of such a report is a mixture
  of the laws of the legal values, so that every ratio of probabilities stays at most e^epsilon.

A wrong *type* (text where a number is asked) is a mistake of the program: `TypeError`, which looks at types alone.
None and NaN are no types: a program that has them where a value is missing is right to pass them on.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from numbers import Real
from typing import ClassVar, Literal, cast

from hush_common.grid import Grid
from hush_common.rng import Rng, SpareRng

__all__ = ["Became", "Index", "Readable", "Reading", "is_real", "is_table", "plain"]

Became = Literal["used", "moved", "replaced"]


@dataclass(frozen=True, slots=True)
class Reading:
    """A value as a domain reads it. It holds the value's index: no text made of it shows that.

    Args:
        parts: an index for each number that is asked for (one, but for vectors); None where nothing usable was given.
        moved: whether a part had to be moved into the domain.
    """

    parts: tuple[int | None, ...] = field(repr=False)
    moved: bool = field(default=False, repr=False)

    @property
    def became(self) -> Became:
        if None in self.parts:
            return "replaced"
        return "moved" if self.moved else "used"

    def filled(self, sizes: Sequence[int], rng: Rng) -> tuple[int, ...]:
        """The parts, with a uniform index below its size for each that is missing, drawn in their order.

        An index is drawn for a part that is present as well, so that the time does not show which are missing. It comes
        from the operating system and not from `rng`, whose draws are those of the test vectors.
        """
        return tuple([_filled(part, size, rng) for part, size in zip(self.parts, sizes, strict=True)])


def _filled(part: int | None, size: int, rng: Rng) -> int:
    source = rng if part is None else _SPARE
    drawn = source.randbelow(size)
    return drawn if part is None else part


@dataclass(frozen=True, slots=True)
class Index:
    """A value as the mechanism sees it.

    Args:
        index: an integer of the domain; of a vector, one for each coordinate.
    """

    index: int | tuple[int, ...]

    @property
    def scalar(self) -> int:
        """The index of a domain that has one, which a vector has not."""
        if isinstance(self.index, tuple):
            raise TypeError("the index of a vector is not one integer")
        return self.index


class Readable(ABC):
    """What all domains have; `hush_common.domain` says what each method is for."""

    __slots__ = ()

    kind: ClassVar[str]
    """Its name in a task."""

    in_words: ClassVar[str]
    """What one value is, with its article."""

    @property
    @abstractmethod
    def sizes(self) -> tuple[int, ...]:
        """How many indices each number that is asked for can have."""

    @abstractmethod
    def read(self, value: object, *, strict: bool = True) -> Reading:
        """What the domain makes of a value.

        Args:
            value: the private value; None and NaN stand for a missing one.
            strict: whether a wrong type is a mistake; else it is no usable value.

        Raises:
            TypeError: the value is of a type that this domain never takes, and `strict`.
        """

    @property
    def nothing(self) -> Reading:
        """What is read where there is no value at all."""
        return Reading((None,) * len(self.sizes))

    def check(self, value: object) -> Became:
        """What would become of a value: `"used"`, `"moved"` or `"replaced"`.

        Raises:
            TypeError: it is of a type that this domain never takes.
        """
        return self.read(value).became

    def complete(self, reading: Reading, rng: Rng) -> Index:
        """The index of a reading: uniform over the domain wherever it has none, and with the same work elsewhere."""
        return self._index(reading.filled(self.sizes, rng))

    def index(self, value: object) -> Index:
        """The index of a usable value, for enumerations and audits.

        Raises:
            TypeError: it is of a type that this domain never takes.
            ValueError: it is no usable value.
        """
        reading = self.read(value)
        if None in reading.parts:
            raise ValueError("the domain has no index for this value; a device would draw one")
        return self._index(cast("tuple[int, ...]", reading.parts))

    def _index(self, parts: tuple[int, ...]) -> Index:
        (part,) = parts
        return Index(part)

    def _missing(self, value: object, wanted: str, *, strict: bool) -> Reading:
        """Nothing, where a value is missing or `strict` is not set; else the error names the type alone."""
        nan = is_real(value) and _UNIT.index(value)[0] is None
        if strict and value is not None and not nan:
            raise TypeError(f"the value is of type {type(value).__name__}, not {wanted}")
        return self.nothing


_SPARE = SpareRng()
_UNIT = Grid(0.0, 1.0, 1)


def plain(value: object) -> object:
    """What numpy and pandas wrap, as Python has it: found by name, so that neither is needed."""
    kind = type(value)
    try:
        package = kind.__module__.partition(".")[0]
        if package == "pandas" and kind.__name__ in ("NAType", "NaTType"):
            return None
        return value.tolist() if package == "numpy" and hasattr(kind, "tolist") else value  # type: ignore[attr-defined]
    except BaseException:  # noqa: BLE001 - as above
        return value


def is_real(value: object) -> bool:
    """Whether it is of a type of real numbers; a bool is none."""
    return issubclass(type(value), Real | Decimal) and type(value) is not bool


def is_table(value: object) -> bool:
    """Whether it is of a type that holds a number by its place or by its name."""
    return issubclass(type(value), Sequence | Mapping) and not issubclass(type(value), str | bytes | bytearray)
