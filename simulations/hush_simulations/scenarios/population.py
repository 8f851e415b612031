"""Populations: the distributions of the true values of a simulation. Only the score reads these values."""

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from hush_common.domain import Domain
from hush_common.errors import OptionError

MOST_POINTS = 1_000_000
"""Numbers that a population of points has at most."""

_MOST_SIGMA = 5.0
_MOST_EXPONENT = 20.0


class _Drawn(ABC):
    """A distribution of numbers."""

    __slots__ = ()

    @abstractmethod
    def numbers(self, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return `count` values, shape (count,)."""

    def draw(self, count: int, rng: np.random.Generator) -> Sequence[float]:
        values: list[float] = self.numbers(count, rng).tolist()
        return values


@dataclass(frozen=True, slots=True)
class Lognormal(_Drawn):
    """Numbers whose logarithm is normal: incomes, durations, sizes of files; `sigma` is the logarithm's."""

    median: float
    sigma: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.median) and self.median > 0):
            raise OptionError("population.median", f"{self.median} is not above 0; write the middle one of the values")
        if not 0 < self.sigma <= _MOST_SIGMA:
            raise OptionError(
                "population.sigma", f"{self.sigma} is not above 0 and at most {_MOST_SIGMA:g}; write that of logarithms"
            )
        if not math.isfinite(self.mean):
            raise OptionError("population.median", f"{self.median} makes a mean beyond all floats; use a larger unit")

    @property
    def mean(self) -> float:
        return self.median * math.exp(self.sigma**2 / 2)

    def numbers(self, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
        return self.median * np.exp(self.sigma * rng.standard_normal(count))


@dataclass(frozen=True, slots=True)
class Points(_Drawn):
    """A few different numbers, ascending, such as how many children people have; weights need not add up to one."""

    values: tuple[float, ...]
    weights: tuple[float, ...]

    @property
    def shares(self) -> NDArray[np.float64]:
        """The weights, scaled to add up to one."""
        weights = np.array(self.weights)
        shares: NDArray[np.float64] = weights / math.fsum(self.weights)
        return shares

    @property
    def mean(self) -> float:
        total = math.fsum(self.weights)
        return math.fsum(w * x for w, x in zip(self.weights, self.values, strict=True)) / total

    def numbers(self, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
        return rng.choice(np.array(self.values), size=count, p=self.shares)


def zipf_numbers(exponent: float, largest: int) -> Points:
    """Return the numbers 1 to `largest`, k with a weight of k^-exponent."""
    if not 1 <= largest <= MOST_POINTS:
        raise OptionError("population.largest", f"{largest} is outside 1 to {MOST_POINTS}; write the largest number")
    return Points(tuple(map(float, range(1, largest + 1))), zipf_weights(exponent, largest))


def zipf_weights(exponent: float, count: int) -> tuple[float, ...]:
    """Return 1, 2^-s, 3^-s and so on: Zipf's law for `count` things, the most frequent first."""
    if not 0 <= exponent <= _MOST_EXPONENT:
        raise OptionError("population.exponent", f"{exponent} is not from 0 to {_MOST_EXPONENT:g}; write 1.0 or so")
    weights: list[float] = (np.arange(1, count + 1) ** -float(exponent)).tolist()
    return tuple(weights)


Value = float | int | str | tuple[float | None, ...] | None
"""A true value: a float in the unit of the task, 0 or 1, a label, or one float for each coordinate. None where there is
none: the device then answers with one that it draws uniformly."""

Treatment = Literal["drop", "replace"]
"""Of rows without a value: left out, or each a device without a value."""


MOST_DEVICES = 1_000_000
"""Most devices of a simulation that exist in memory, and most rows of a data file."""

PARQUET = (".parquet", ".pq")
"""How the name of a Parquet file ends."""

MOST_CLIENTS = 1_000_000_000
"""Most devices of a simulation in bulk."""


def is_complete(value: Value) -> bool:
    """Whether no value is missing, nor a coordinate of it."""
    return value is not None and not (isinstance(value, tuple) and None in value)


def means_of(domain: Domain, values: Sequence[Value]) -> list[float | None]:
    """Return the mean of the values, of each coordinate, or the share of each label; None without values."""
    if domain.value_names:
        vectors = [value for value in values if isinstance(value, tuple)]
        columns = list(zip(*vectors, strict=True)) or [()] * len(domain.parts)
        return [_mean([number for number in column if number is not None]) for column in columns]
    if domain.parts_field:
        counts = Counter(value for value in values if value is not None)
        n = counts.total()
        return [counts[part.name] / n if n else None for part in domain.parts]
    return [_mean([value for value in values if isinstance(value, float | int)])]


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def check_treatment(option: str, text: object) -> Treatment | None:
    """Return what happens to rows without a value; None if nobody said it."""
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
    """One component of a mixture: its weight, mean and standard deviation, in the unit of the task."""

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
class Mixture(_Drawn):
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

    def numbers(self, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
        group = rng.choice(len(self.parts), size=count, p=self.shares)
        means = np.array([part.mean for part in self.parts])[group]
        deviations = np.array([part.sd for part in self.parts])[group]
        drawn: NDArray[np.float64] = rng.normal(means, deviations)
        return drawn


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
    """Categories, with a weight for each of `labels`; weights need not add up to one."""

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
    """Vectors with independent coordinates, each with a distribution."""

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

    The values never show in a representation: they may be a person's own data. `missing` counts the rows without a
    value, `treatment` says what happens to them; `resampled` means that people are drawn with replacement.
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
        """Return the counts of the rows, as in a result."""
        treated = {} if self.treatment is None else {"treatment": self.treatment}
        return {"rows": self.rows, "missing": self.missing, **treated, "resampled": self.resampled}


_MOST_GROUPS = 100


@dataclass(frozen=True, slots=True)
class Subgroup:
    """People of one kind, and their share of all people; shares need not add up to one."""

    name: str
    share: float
    people: Population

    def __post_init__(self) -> None:
        if not (math.isfinite(self.share) and self.share >= 0):
            raise OptionError(
                "population.groups.share", f"{self.share} is negative or not finite; write a number from 0 up"
            )


@dataclass(frozen=True, slots=True)
class Grouped:
    """A population of groups: the group of a person is drawn by their shares."""

    groups: tuple[Subgroup, ...]

    def __post_init__(self) -> None:
        names = self.names
        if not self.groups or sum(group.share for group in self.groups) <= 0:
            raise OptionError("population.groups", "no group has a positive share; write at least one")
        if len(names) > _MOST_GROUPS:
            raise OptionError("population.groups", f"{len(names)} are more than {_MOST_GROUPS}; join some of them")
        if len(set(names)) < len(names):
            raise OptionError("population.groups.name", "two groups have one name; rename one")

    @property
    def names(self) -> tuple[str, ...]:
        """Of the groups, in their order."""
        return tuple(group.name for group in self.groups)

    @property
    def shares(self) -> tuple[float, ...]:
        """Scaled to add up to one."""
        total = math.fsum(group.share for group in self.groups)
        return tuple(group.share / total for group in self.groups)

    @property
    def mean(self) -> float | tuple[float, ...] | None:
        means = [group.people.mean for group in self.groups]
        columns = list(zip(*(mean if isinstance(mean, tuple) else (mean,) for mean in means), strict=True))
        if any(None in column for column in columns):
            return None
        whole = tuple(math.fsum(w * m for w, m in zip(self.shares, column, strict=True)) for column in columns)
        return whole if isinstance(means[0], tuple) else whole[0]

    def draw(self, count: int, rng: np.random.Generator) -> Sequence[Value]:
        return self.members(count, rng)[0]

    def members(self, count: int, rng: np.random.Generator) -> tuple[Sequence[Value], NDArray[np.int64]]:
        """`count` values, and the number of the group that each is from."""
        groups = rng.choice(len(self.groups), size=count, p=self.shares)
        values: list[Value] = [None] * count
        for number, group in enumerate(self.groups):
            places = np.nonzero(groups == number)[0].tolist()
            for place, value in zip(places, group.people.draw(len(places), rng) if places else (), strict=True):
                values[place] = value
        return values, groups


def draw_members(
    population: Population, count: int, rng: np.random.Generator
) -> tuple[Sequence[Value], NDArray[np.int64] | None]:
    """Values of any population, and the group of each, if it has groups."""
    if isinstance(population, Grouped):
        return population.members(count, rng)
    return population.draw(count, rng), None
