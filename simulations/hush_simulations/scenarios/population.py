"""Populations: where the true values of a simulation come from. Only the score ever sees these values."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np

from hush_common.errors import OptionError
from hush_simulations.scenarios.shapes import Lognormal, Points

__all__ = [
    "MOST_CLIENTS",
    "MOST_DEVICES",
    "Bernoulli",
    "Frequencies",
    "Independent",
    "Mixture",
    "Normal",
    "Numbers",
    "Observed",
    "Population",
    "Treatment",
    "Value",
    "check_treatment",
    "is_complete",
]

Value = float | int | str | tuple[float | None, ...] | None
"""A true value: a float in the unit of the task, 0 or 1, a label, or one float for each coordinate. None where there is
none: the device then answers with one that it draws uniformly."""

Treatment = Literal["drop", "replace"]
"""Of rows without a value: left out, or each a device without a value."""


MOST_DEVICES = 1_000_000
"""Devices of one simulation that are there, and rows of somebody's data, at most."""

MOST_CLIENTS = 1_000_000_000
"""Devices of one simulation in bulk, at most."""


def is_complete(value: Value) -> bool:
    """Whether no value is missing, nor a coordinate of it."""
    return value is not None and not (isinstance(value, tuple) and None in value)


def check_treatment(option: str, text: object) -> Treatment | None:
    """What becomes of rows without a value; None where nobody says it.

    Raises:
        OptionError: it is no treatment; `option` is what the message calls it.
    """
    match text:
        case None | "drop" | "replace":
            return text
    raise OptionError(option, f"{str(text)[:40]!r} is not one of its values; write drop or replace")


class Population(Protocol):
    """A source of true values."""

    @property
    def mean(self) -> float | tuple[float, ...] | None:
        """Mean of the distribution, or None where only a sample is known.

        Of categories the frequency of each label, of vectors the mean of each coordinate, in the order of the task.
        """
        ...

    def draw(self, count: int, rng: np.random.Generator) -> Sequence[Value]:
        """`count` values. The same generator state gives the same people."""
        ...


@dataclass(frozen=True, slots=True)
class Normal:
    """One group of a mixture: its share, mean and standard deviation, in the unit of the task."""

    weight: float
    mean: float
    sd: float

    def __post_init__(self) -> None:
        for name, value in (("weight", self.weight), ("sd", self.sd)):
            if not (math.isfinite(value) and value >= 0):
                raise OptionError(f"population.{name}", f"{value} is negative or not finite; write a number from 0 up")
        if not math.isfinite(self.mean):
            raise OptionError("population.mean", f"{self.mean} is not a finite number; write the mean of the group")


@dataclass(frozen=True, slots=True)
class Mixture:
    """A mixture of normal distributions, such as the heights of men and women."""

    parts: tuple[Normal, ...]

    def __post_init__(self) -> None:
        if not self.parts or sum(part.weight for part in self.parts) <= 0:
            raise OptionError("population.parts", "no group has a positive weight; write at least one group")

    @property
    def shares(self) -> tuple[float, ...]:
        """The weights, scaled to add up to one."""
        total = sum(part.weight for part in self.parts)
        return tuple(part.weight / total for part in self.parts)

    @property
    def mean(self) -> float:
        return sum(share * part.mean for share, part in zip(self.shares, self.parts, strict=True))

    def draw(self, count: int, rng: np.random.Generator) -> Sequence[float]:
        group = rng.choice(len(self.parts), size=count, p=self.shares)
        means = np.array([part.mean for part in self.parts])[group]
        deviations = np.array([part.sd for part in self.parts])[group]
        values: list[float] = rng.normal(means, deviations).tolist()
        return values


Numbers = Mixture | Lognormal | Points
"""A distribution of numbers."""


@dataclass(frozen=True, slots=True)
class Bernoulli:
    """A yes/no trait that a share `proportion` of the people has."""

    proportion: float

    def __post_init__(self) -> None:
        if not 0 <= self.proportion <= 1:
            raise OptionError("population.proportion", f"{self.proportion} is not a share; write a number from 0 to 1")

    @property
    def mean(self) -> float:
        return self.proportion

    def draw(self, count: int, rng: np.random.Generator) -> Sequence[Value]:
        values: list[int] = (rng.random(count) < self.proportion).astype(int).tolist()
        return values


@dataclass(frozen=True, slots=True)
class Frequencies:
    """Categories that people fall into: `weights`, one for each of `labels`, are shares whatever they add up to."""

    labels: tuple[str, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        for label, weight in zip(self.labels, self.weights, strict=True):
            if not (math.isfinite(weight) and weight >= 0):
                raise OptionError(
                    "population.frequencies", f"{weight} for {label!r} is negative or not finite; write a share"
                )
        if sum(self.weights) <= 0:
            raise OptionError("population.frequencies", "no label has a positive share; write at least one")

    @property
    def mean(self) -> tuple[float, ...]:
        total = math.fsum(self.weights)
        return tuple(weight / total for weight in self.weights)

    def draw(self, count: int, rng: np.random.Generator) -> Sequence[Value]:
        places: list[int] = rng.choice(len(self.labels), size=count, p=self.mean).tolist()
        return [self.labels[place] for place in places]


@dataclass(frozen=True, slots=True)
class Independent:
    """Vectors whose coordinates know nothing of each other: a distribution for each."""

    coordinates: tuple[Numbers, ...]

    @property
    def mean(self) -> tuple[float, ...]:
        return tuple(one.mean for one in self.coordinates)

    def draw(self, count: int, rng: np.random.Generator) -> Sequence[Value]:
        columns = [one.draw(count, rng) for one in self.coordinates]
        return list(zip(*columns, strict=True))


@dataclass(frozen=True, slots=True)
class Observed:
    """Values that somebody has, one client each: all of them answer, and nothing is known about others.

    The values never show in a representation: they may be a person's own data.

    Args:
        values: one for each client.
        name: of the column they came from.
        missing: how many rows had no value.
        treatment: what became of those; None where there were none.
        resampled: whether the people are drawn from the values with replacement, any number of them.
    """

    values: tuple[Value, ...] = field(repr=False)
    name: str = ""
    missing: int = 0
    treatment: Treatment | None = None
    resampled: bool = False

    @property
    def rows(self) -> int:
        """Of the table, those without a value among them."""
        return len(self.values) + (self.missing if self.treatment == "drop" else 0)

    @property
    def mean(self) -> None:
        return None

    def draw(self, count: int, rng: np.random.Generator) -> Sequence[Value]:
        """The first `count` values, in order; or that many of all, drawn with replacement."""
        if not self.resampled:
            return self.values[:count]
        drawn = [self.values[place] for place in rng.integers(len(self.values), size=count).tolist()]
        if not any(map(is_complete, drawn)):  # nothing would be true of them
            raise OptionError("clients", f"none of the {count} devices drawn from the rows has a value; draw more")
        return drawn

    def to_document(self) -> dict[str, object]:
        """What became of the rows, as a result tells it."""
        treated = {} if self.treatment is None else {"treatment": self.treatment}
        return {"rows": self.rows, "missing": self.missing, **treated, "resampled": self.resampled}
