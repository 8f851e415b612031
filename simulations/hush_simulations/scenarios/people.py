"""The people of one simulation: their values, and which of several epsilons each takes."""

import secrets
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hush_simulations.scenarios.grouped import draw_members
from hush_simulations.scenarios.population import Observed, Value
from hush_simulations.scenarios.scenario import Scenario

__all__ = ["People", "draw_people"]

_CHOICES = 1  # the stream of a seed that chooses epsilons; the values come from another


class People(NamedTuple):
    """Who answers.

    Args:
        values: the true values, one device each.
        choices: for each device the number of the epsilon that it takes of those offered; empty where there is one.
        seed: what the values and choices follow from; None if nothing depends on one.
        groups: for each device the number of its group; empty where the population has none.
    """

    values: Sequence[Value]
    choices: tuple[int, ...]
    seed: int | None
    groups: tuple[int, ...] = ()


def draw_people(
    scenario: Scenario, offers: int, seed: int | None, shares: tuple[float, ...] = (), *, seeded: bool = False
) -> People:
    """Draw the people of a scenario, as many as it has clients.

    Args:
        scenario: a legal one.
        offers: how many epsilons its task offers; 0 where there is nothing to choose.
        seed: the same one gives the same people; None for a fresh one, short enough to be typed again.
        shares: of the devices that take each epsilon offered; empty for those of the scenario.
        seeded: whether a seed is needed even if nothing here depends on one.
    """
    people = scenario.population
    seeded = seeded or bool(offers or scenario.panel)
    if isinstance(people, Observed) and not people.resampled and not seeded:
        seed = None
    elif seed is None:
        seed = secrets.randbelow(1 << 32)
    values, groups = draw_members(people, scenario.clients, np.random.default_rng(seed))
    choices = _choices(len(values), offers, shares or scenario.shares, seed) if offers else ()
    return People(values, choices, seed, () if groups is None else tuple(groups.tolist()))


def _choices(count: int, offers: int, shares: tuple[float, ...], seed: int | None) -> tuple[int, ...]:
    """Which epsilon each device takes, from a stream of its own: no device looks at its value."""
    weights = np.array(shares or (1.0,) * offers)
    rng = np.random.default_rng([0 if seed is None else seed, _CHOICES])
    return tuple(rng.choice(offers, size=count, p=weights / weights.sum()).tolist())
