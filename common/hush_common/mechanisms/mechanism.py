"""Mechanism: the one interface between every mechanism and the rest of hush.

A mechanism is a module of this package and a line in `registry`; on the aggregator's side a module and a line in
`hush_aggregator.estimate.mechanisms`. Other code asks a mechanism for what it needs, and never which one it is.

The class says what a task may hold and makes the parameter object; the object, made once from the task
(`Task.randomizer`), is what a device perturbs with and an aggregator estimates with.
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
    """The law of a bounded report of one value x in [0, 1], exact: what an aggregator makes a channel of.

    Args:
        positions: for what position on the unit interval each output stands, such that their mean at x is x.
        rows: the probability of each output at each of two or more evenly spaced x from 0 to 1; linear between.
        even: at level j of G output j is the truth, of one probability, and the others are lies, equal and evenly
            spaced: two numbers say what a million cells do.
    """

    positions: tuple[Fraction, ...]
    rows: tuple[tuple[Fraction, ...], ...]
    even: bool = False

    @classmethod
    def of_coin(cls, no: Fraction, yes: Fraction) -> "FiniteLaw":
        """That of a reported yes or no, from the probability of a yes where it is false, and where it is true."""
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

    name: ClassVar[str]
    """Its name in a task."""

    fits: ClassVar[type[Readable]]
    """The kind of value that it is for."""

    takes: ClassVar[frozenset[str]] = frozenset()
    """The fields of `Parameters` that its task has."""

    optional: ClassVar[frozenset[str]] = frozenset()
    """Those among them that its task may lack."""

    auto: ClassVar[bool] = False
    """Whether `mechanism = "auto"` may mean it."""

    is_share: ClassVar[bool] = False
    """Whether its estimate is a share, of yes or of each category, and no measurement with a unit."""

    described: ClassVar[tuple[str, ...]] = ()
    """Attributes that tell a person which one of its kind it is."""

    @classmethod
    def smallest(cls) -> Fraction:
        """From which epsilon of one report on it has parameters of hush's own."""
        return Fraction(0)

    @classmethod
    def serves(cls, epsilons: Sequence[Fraction]) -> bool:
        """Whether it has parameters of hush's own for these offers, ascending."""
        return epsilons[0] >= cls.smallest()

    @classmethod
    def complete(cls, domain: Any, epsilons: Sequence[Fraction], given: Parameters) -> Parameters:  # noqa: ANN401, ARG003 - a domain that it fits
        """Fill in the best parameters that a task file leaves out: once, when it is published.

        Raises:
            TaskError: what is given leaves no choice that is legal.
        """
        return given

    @classmethod
    @abstractmethod
    def build(cls, domain: Any, epsilon: Fraction, parameters: Parameters, offer: int) -> "Mechanism":  # noqa: ANN401 - as above
        """The parameter object for one epsilon of a task.

        Raises:
            TaskError: a parameter is out of range.
        """

    if TYPE_CHECKING:  # a dataclass would take a property of its base for the default of the field

        @property
        def epsilon(self) -> Fraction:
            """Loss of one report, exact."""

    @property
    @abstractmethod
    def width(self) -> int:
        """Integers in a body: public, so that the length of a report says nothing."""

    @property
    def span(self) -> tuple[int, int] | None:
        """Where a body is one integer, and every one from a least to a largest can be sent: these two."""
        return None

    @property
    @abstractmethod
    def worst_variance(self) -> float:
        """The largest variance of one decoded report over all values, on the unit interval, from the noise alone."""

    @property
    def exact_worst_variance(self) -> Fraction:
        """The same where mechanisms are compared: exact where it can be, so that every machine chooses alike."""
        return Fraction(self.worst_variance)

    @property
    def chosen(self) -> dict[str, int]:
        """What was chosen for it, by name, in the order in which people read it."""
        return {name: getattr(self, name) for name in self.described if name in self.takes}

    @property
    def part(self) -> "Mechanism":
        """The mechanism of one number, bit or category: itself, but for a vector."""
        return self

    @property
    def drawn(self) -> float:
        """The share of reports that say something about one part of the value."""
        return 1.0

    @property
    def law(self) -> FiniteLaw | None:
        """The law of its `part` for one value; None for a vector, and where reports have no useful bound."""
        return None

    @abstractmethod
    def perturb(self, index: Any, rng: Rng, /) -> tuple[int, ...]:  # noqa: ANN401 - int or tuple, by the domain
        """The body of a report: the only place where a value meets randomness.

        Raises:
            ValueError: no index of the domain.
        """

    @abstractmethod
    def admits(self, body: tuple[int, ...], /) -> bool:
        """Whether a device that follows the mechanism can send `body`."""

    @abstractmethod
    def outputs(self) -> Iterator[tuple[int, ...]]:
        """Every body that can be sent."""

    @abstractmethod
    def probability(self, body: tuple[int, ...], index: Any, /, digits: int = 60) -> Decimal:  # noqa: ANN401 - as above
        """P(body | index), to `digits` significant digits: the table that tests enumerate."""

    def aspects(self, domain: Domain) -> Aspects:  # noqa: ARG002 - for those whose report is a number of the domain
        """How an audit looks at its bodies: at what the likelihood ratio depends on, and at the whole if small."""
        return {"the report": lambda body: float(body[0])}


class LevelMechanism(Mechanism):
    """A mechanism that rounds to a few levels and randomizes those: a device may answer from a memory of them.

    See `hush_common.mechanisms.sticky`.
    """

    @classmethod
    @abstractmethod
    def levels_of(cls, parameters: Parameters) -> int:
        """G, from the parameters of a sticky task, before there is a mechanism.

        Raises:
            TaskError: they do not say.
        """

    @classmethod
    def sticky(cls, total: Fraction, rounds: int, given: Parameters) -> Parameters | None:  # noqa: ARG003 - as above
        """The best parameters for sticky answers where a task file leaves them out; None where nothing is to choose."""
        return None

    @property
    @abstractmethod
    def grid(self) -> tuple[int, int]:
        """The steps m and the levels G."""

    @property
    @abstractmethod
    def of_levels(self) -> Mechanism:
        """The same for a value that is a level already: each of its indices is one."""
