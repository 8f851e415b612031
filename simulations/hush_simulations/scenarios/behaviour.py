"""Panels: how the people of a scenario behave from round to round. Values drift, and some devices do not answer.

**Dropout** has nothing to do with values. In each round, and each group, a share of the devices drawn anew stays away:
beta, of mean `share` and with a correlation of `correlation` between any two devices (the law of beta-binomial counts;
0 lets them drop out without regard to each other, near 1 all or none of a group are away).

**Non-response** has: a person who has such a value, or is of such a group, refuses with a certain probability, for all
rounds. The estimate is then about those who answer, and no interval says how far that is from everybody: hush never
sees who is silent, nor why.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hush_common.domain import Domain
from hush_common.errors import OptionError
from hush_simulations.scenarios.population import Observed, Value

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Dropout:
    """Devices that stay away for a round: their mean share, and the correlation of two devices of one group."""

    share: float = 0.0
    correlation: float = 0.0

    def __post_init__(self) -> None:
        for name, value in (("share", self.share), ("correlation", self.correlation)):
            if not 0 <= value < 1:
                raise OptionError(f"dropout.{name}", f"{value} is not from 0 to below 1; write a share such as 0.1")

    def present(self, rounds: int, trials: int, groups: int, rng: np.random.Generator) -> Floats:
        """Return the probability that a device of each group answers, shape (rounds, trials, groups)."""
        shape = (rounds, trials, groups)
        if not self.correlation or not self.share:
            return np.full(shape, 1 - self.share)
        both = (1 - self.correlation) / self.correlation
        return rng.beta((1 - self.share) * both, self.share * both, size=shape)


@dataclass(frozen=True, slots=True)
class Nonresponse:
    """A share of devices that never answers because of their value or group. All conditions given must hold.

    `above` and `below` are for numbers, `values` for categories and bits.
    """

    share: float
    above: float | None = None
    below: float | None = None
    values: tuple[Value, ...] = ()
    group: str | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise OptionError("nonresponse.share", f"{self.share} is not a share; write a number from 0 to 1")
        if (self.above, self.below, self.values, self.group) == (None, None, (), None):
            raise OptionError("nonresponse", "says of nobody that they refuse; write above, below, values or group")
        if not all(math.isfinite(end) for end in self.cuts):
            raise OptionError("nonresponse.above", "or below is not finite; write a number")

    @property
    def cuts(self) -> tuple[float, ...]:
        """Return the numbers at which the behaviour changes."""
        return tuple(end for end in (self.above, self.below) if end is not None)

    def check(self, domain: Domain, names: Sequence[str]) -> None:
        """Reject conditions on values that this domain does not have, or on an unknown group."""
        if self.cuts and domain.step is None:
            raise OptionError("nonresponse.above", "and below are for numbers; write values = [...], or group")
        if self.values and not domain.is_share:
            raise OptionError("nonresponse.values", "are for categories and bits; write above or below, or group")
        for value in self.values:
            if None in domain.read(value, strict=False).parts:
                raise OptionError("nonresponse.values", f"{str(value)[:40]!r} is not a value of this task's domain")
        if self.group is not None and self.group not in names:
            there = f"there are {', '.join(names)}" if names else 'which kind = "groups" has'
            raise OptionError("nonresponse.group", f"{self.group[:40]!r} is not a group of the population; {there}")

    def of(self, domain: Domain, numbers: Floats, groups: NDArray[np.int64] | None, names: Sequence[str]) -> Floats:
        """Return the probability that each person refuses for this reason; numbers as by `as_numbers`."""
        concerned = np.ones(len(numbers), dtype=bool)
        if self.above is not None:
            concerned &= numbers > self.above
        if self.below is not None:
            concerned &= numbers < self.below
        if self.values:
            concerned &= np.isin(numbers, as_numbers(domain, self.values))
        if self.group is not None and groups is not None:
            concerned &= groups == names.index(self.group)
        return np.where(concerned, self.share, 0.0)


@dataclass(frozen=True, slots=True)
class Panel:
    """How people behave from round to round.

    `drift` is by how much every value moves between two rounds, in the unit of the task, rounded to steps of its grid;
    of vectors one number for each coordinate; empty if values stay.
    """

    drift: tuple[float, ...] = ()
    dropout: Dropout = Dropout()
    nonresponse: tuple[Nonresponse, ...] = ()

    def __bool__(self) -> bool:
        return any(self.drift) or bool(self.dropout.share or self.nonresponse)

    @property
    def cuts(self) -> tuple[float, ...]:
        """Return the numbers at which the behaviour changes."""
        return tuple(end for one in self.nonresponse for end in one.cuts)

    def check(self, domain: Domain, rounds: int, names: Sequence[str]) -> None:
        """Reject what does not fit the task."""
        for some in self.nonresponse:
            some.check(domain, names)
        if not self.drift:
            return
        coordinates = domain.numbers
        if len(coordinates) != len(self.drift):
            raise OptionError("drift", "is for numbers, and for vectors by coordinate; leave it out")
        if not all(math.isfinite(by) for by in self.drift):
            raise OptionError("drift", "is not finite; write by how much values move from one round to the next")
        for by, one in zip(self.drift, coordinates, strict=True):
            if abs(by) * (rounds - 1) > one.upper - one.lower:
                raise OptionError(
                    "drift", f"{by:g} in {rounds} rounds moves values farther than the bounds are apart; write less"
                )

    def steps(self, domain: Domain) -> tuple[int, ...]:
        """Return by how many steps of the grid values move from one round to the next."""
        coordinates = domain.numbers
        drift = self.drift or (0.0,) * len(coordinates)
        return tuple(round(by / float(one.step)) for by, one in zip(drift, coordinates, strict=True))

    def moved(self, domain: Domain, round_: int) -> tuple[float, ...]:
        """Return the difference of values to the first round (0), for each coordinate; empty without a drift."""
        if not any(self.drift):
            return ()
        pairs = zip(self.steps(domain), domain.numbers, strict=True)
        return tuple(float(round_ * steps * one.step) for steps, one in pairs)

    def value(self, domain: Domain, value: Value, round_: int) -> Value:
        """Return a value of the first round as it is in another."""
        by = self.moved(domain, round_) if round_ else ()
        if not by or value is None or isinstance(value, str):
            return value
        if isinstance(value, tuple):
            return tuple(None if x is None else x + far for x, far in zip(value, by, strict=True))
        return value + by[0]

    def mean(
        self, domain: Domain, mean: float | tuple[float, ...] | None, round_: int
    ) -> float | tuple[float, ...] | None:
        """Return the mean of a population in a round, from that in the first."""
        by = self.moved(domain, round_)
        if mean is None or not by:
            return mean
        if isinstance(mean, tuple):
            return tuple(x + far for x, far in zip(mean, by, strict=True))
        return mean + by[0]

    def refusing(
        self, domain: Domain, numbers: Floats, groups: NDArray[np.int64] | None, names: Sequence[str]
    ) -> Floats:
        """Return the probability that each person never answers, shape (people,)."""
        answering = np.ones(len(numbers))
        for one in self.nonresponse:
            answering *= 1 - one.of(domain, numbers, groups, names)
        refusing: Floats = 1 - answering
        return refusing


STEADY = Panel()
"""People who all answer, and whose values stay as they are."""


def as_numbers(domain: Domain, values: Sequence[Value]) -> Floats:
    """Return values as numbers: of a category the position of its label, of a vector 0; NaN if missing."""
    if domain.parts_field:
        places: dict[Value, int] = {part.name: place for place, part in enumerate(domain.parts)}
        return np.array([places.get(value, math.nan) for value in values], dtype=np.float64)
    return np.array(values, dtype=np.float64)


Lie = Literal["value", "edge", "replay"]
"""Of a liar: a false value under the protocol, the admissible report that moves the estimate up furthest, or its own
report once more."""


@dataclass(frozen=True, slots=True)
class Faults:
    """Shares of a device's publications that go wrong, together at most 1.

    lost: the connection drops before the broker has the message. cut: it drops before the acknowledgement arrives.
    late: the acknowledgement is delayed. twice: the message arrives twice. reordered: a later one arrives first.
    forgotten: the broker acknowledges the message and loses it.
    """

    lost: float = 0.0
    cut: float = 0.0
    late: float = 0.0
    twice: float = 0.0
    reordered: float = 0.0
    forgotten: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            share = getattr(self, field.name)
            if not 0 <= share <= 1:
                raise OptionError(f"network.{field.name}", f"{share} is not a share; write a number from 0 to 1")
        if sum(getattr(self, field.name) for field in fields(self)) > 1:
            raise OptionError("network", "the shares add up to more than 1; one thing happens to a publication")
        if self.forgotten and self.lost + self.cut:
            raise OptionError("network.forgotten", "goes with late, twice and reordered alone; leave out lost and cut")
        if self.lost + self.cut > _MOST_BROKEN:
            raise OptionError("network.lost", f"with cut more than {_MOST_BROKEN}; a device would try for ever")

    def __bool__(self) -> bool:
        return any(getattr(self, field.name) for field in fields(self))


_MOST_BROKEN = 0.5
NO_FAULTS = Faults()


@dataclass(frozen=True, slots=True)
class Liars:
    """A share of devices of one kind that do not tell the truth, and the number of reports that each sends.

    `value` is the false value if that is the lie. Of a replay, `reports` counts the additional copies.
    """

    share: float
    lie: Lie
    value: Value = None
    reports: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise OptionError("liars.share", f"{self.share} is not a share; write a number from 0 to 1")
        if not 1 <= self.reports <= _MOST_REPORTS:
            raise OptionError("liars.reports", f"{self.reports} is outside 1 to {_MOST_REPORTS}")
        if (self.lie == "value") != (self.value is not None):
            raise OptionError("liars.value", 'is for lie = "value" only, and required there; add or remove it')

    def among(self, clients: int) -> int:
        """Return how many of `clients` devices lie."""
        return round(self.share * clients)


_MOST_REPORTS = 1000


def truthful_count(clients: int, liars: tuple[Liars, ...]) -> int:
    """Return how many of `clients` devices tell the truth: the first ones."""
    return max(0, clients - sum(some.among(clients) for some in liars))


def people_with(domain: Domain, value: Value) -> Observed:
    """Return any number of people who all have one value."""
    if None in domain.read(value, strict=False).parts:
        raise OptionError("liars.value", f"{str(value)[:40]!r} is not a value of this task's domain; write one")
    return Observed((value,), resampled=True)
