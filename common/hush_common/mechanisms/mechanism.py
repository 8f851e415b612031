"""Mechanism: the one interface between every mechanism and the rest of hush.

A mechanism is a module of this package and a line in `registry`; on the aggregator's side a module and a line in
`hush_aggregator.estimate.mechanisms`. Other code never checks which mechanism it has.

The class says what a task may have and makes the parameter object; a device perturbs and an aggregator estimates with
this object, made once from the task (`Task.randomizer`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from operator import mul
from typing import TYPE_CHECKING, Any, ClassVar

from hush_common.domain import Domain, Readable
from hush_common.mechanisms.parameters import Parameters
from hush_common.rng import Rng

Aspects = Mapping[str, Callable[[tuple[int, ...]], Hashable]]
"""What of a body its likelihood ratio depends on, by its name in words: floats for numbers, else names."""


@dataclass(frozen=True, slots=True)
class FiniteLaw:
    """The exact law of a bounded report of one value x in [0, 1], from which an aggregator makes a channel."""

    #: The position on the unit interval that each output represents, such that their mean at x is x.
    positions: tuple[Fraction, ...]
    #: The probability of each output at each of two or more evenly spaced x from 0 to 1; linear between.
    rows: tuple[tuple[Fraction, ...], ...]
    #: At level j of G output j is the truth, of one probability, and the others are lies, equal and evenly spaced: two
    #: numbers replace a million cells.
    even: bool = False

    @classmethod
    def of_coin(cls, no: Fraction, yes: Fraction) -> "FiniteLaw":
        """Return the law of a reported bit, from the probability of a reported yes if it is no, and if it is yes."""
        positions = -no / (yes - no), (1 - no) / (yes - no)
        return cls(positions, ((1 - no, no), (1 - yes, yes)))

    @property
    def noise(self) -> tuple[Fraction, ...]:
        """The variance of one decoded report at each x."""
        squares = [a * a for a in self.positions]
        last = len(self.rows) - 1
        return tuple(sum(map(mul, row, squares), -(Fraction(j, last) ** 2)) for j, row in enumerate(self.rows))


class Mechanism(ABC):
    """A local randomizer. An index is an integer, of a vector a tuple of them (`hush_common.domain.Index`)."""

    name: ClassVar[str]  # in a task
    fits: ClassVar[type[Readable]]  # the kind of value that it is for
    takes: ClassVar[frozenset[str]] = frozenset()  # the fields of `Parameters` that its task has
    optional: ClassVar[frozenset[str]] = frozenset()  # those among them that its task may lack
    auto: ClassVar[bool] = False  # whether `mechanism = "auto"` may choose it
    is_share: ClassVar[bool] = False  # whether its estimate is a share, of yes or of each category
    described: ClassVar[tuple[str, ...]] = ()  # attributes that describe its parameters to a person

    @classmethod
    def smallest(cls) -> Fraction:
        """Return the smallest epsilon of one report for which hush has parameters."""
        return Fraction(0)

    @classmethod
    def serves(cls, epsilons: Sequence[Fraction]) -> bool:
        """Whether hush has parameters for these offers, ascending."""
        return epsilons[0] >= cls.smallest()

    @classmethod
    def complete(cls, domain: Any, epsilons: Sequence[Fraction], given: Parameters) -> Parameters:  # noqa: ANN401, ARG003 - a domain that it fits
        """Return the best parameters where a draft leaves them out; TaskError if the others leave no choice."""
        return given

    @classmethod
    @abstractmethod
    def build(cls, domain: Any, epsilon: Fraction, parameters: Parameters, offer: int) -> "Mechanism":  # noqa: ANN401 - as above
        """Return the parameter object for one epsilon of a task; TaskError if a parameter is out of range."""

    if TYPE_CHECKING:  # a dataclass would use a property of its base as the default of the field

        @property
        def epsilon(self) -> Fraction:
            """Loss of one report, exact."""

    @property
    @abstractmethod
    def width(self) -> int:
        """Integers in a body: public, so that the length of a report reveals nothing."""

    @property
    def span(self) -> tuple[int, int] | None:
        """The least and the largest body, if a body is one integer and may be any from the one to the other."""
        return None

    @property
    @abstractmethod
    def worst_variance(self) -> float:
        """The largest variance of one decoded report over all values, on the unit interval, from the noise alone."""

    @property
    def exact_worst_variance(self) -> Fraction:
        """The same to compare mechanisms: exact if possible, so that every machine makes the same choice."""
        return Fraction(self.worst_variance)

    @property
    def chosen(self) -> dict[str, int]:
        """The chosen parameters, by name, in the order for people."""
        return {name: getattr(self, name) for name in self.described if name in self.takes}

    @property
    def part(self) -> "Mechanism":
        """The mechanism of one number, bit or category: itself, except for a vector."""
        return self

    @property
    def drawn(self) -> float:
        """The share of reports with information about one part of the value."""
        return 1.0

    @property
    def law(self) -> FiniteLaw | None:
        """The law of its `part` for one value; None for a vector, and if reports have no useful bound."""
        return None

    @abstractmethod
    def perturb(self, index: Any, rng: Rng, /) -> tuple[int, ...]:  # noqa: ANN401 - int or tuple, by the domain
        """Return the body of a report, from a value and randomness; ValueError if the index is outside the domain."""

    @abstractmethod
    def admits(self, body: tuple[int, ...], /) -> bool:
        """Whether a device that follows the mechanism can send `body`."""

    @abstractmethod
    def outputs(self) -> Iterator[tuple[int, ...]]:
        """Every body that can be sent."""

    @abstractmethod
    def probability(self, body: tuple[int, ...], index: Any, /, digits: int = 60) -> Decimal:  # noqa: ANN401 - as above
        """P(body | index), to `digits` significant digits: the table that tests enumerate."""

    def aspects(self, domain: Domain) -> Aspects:  # noqa: ARG002 - for mechanisms whose report is a number of the domain
        """Return the functions of a body that an audit tests: on which the likelihood ratio depends."""
        return {"the report": lambda body: float(body[0])}


class LevelMechanism(Mechanism):
    """A mechanism that rounds to a few levels and randomizes those: a device may answer from a memory of them.

    See `hush_common.mechanisms.sticky`.
    """

    @classmethod
    @abstractmethod
    def levels_of(cls, parameters: Parameters) -> int:
        """Return G from the parameters of a sticky task, before there is a mechanism; TaskError if it is missing."""

    @classmethod
    def sticky(cls, total: Fraction, rounds: int, given: Parameters) -> Parameters | None:  # noqa: ARG003 - as above
        """Return the best parameters for sticky answers if a task file leaves them out; None if there is no choice."""
        return None

    @property
    @abstractmethod
    def grid(self) -> tuple[int, int]:
        """The steps m and the levels G."""

    @property
    @abstractmethod
    def of_levels(self) -> Mechanism:
        """The same mechanism for a value that is a level already."""
