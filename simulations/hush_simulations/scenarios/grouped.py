"""Groups: people of several kinds, each with a population of its own. A report says nothing about its group."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hush_common.errors import OptionError
from hush_simulations.scenarios.population import Population, Value

__all__ = ["Group", "Grouped", "draw_members"]

_MOST_GROUPS = 100


@dataclass(frozen=True, slots=True)
class Group:
    """People of one kind.

    Args:
        name: of the kind, for the truth of each group.
        share: of all people, whatever the shares add up to.
        people: where their values come from.
    """

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
    """A population of groups; to which of them a person belongs is drawn by their shares."""

    groups: tuple[Group, ...]

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
