"""Scenarios: a task, the population that answers it, and the people drawn from it."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from hush_common.mechanisms import Mechanism
from hush_common.mechanisms.registry import known
from hush_common.task import Task, make_task
from hush_simulations.scenarios.behaviour import NO_FAULTS, STEADY, Faults, Liars, Panel
from hush_simulations.scenarios.population import Grouped, Observed, Population, Value, draw_members

FROM_PUBLIC_KNOWLEDGE = (
    "from public knowledge (a scale, a law, a data sheet), never from the data: a bound read off the data betrays it"
)
_ASKED = {"category": "Shares", "bit": "Share"}  # by the kind of a domain


@dataclass(frozen=True, slots=True)
class Scenario:
    """A question and the people it is put to."""

    document: Mapping[str, object]  #: the task, as in a task file
    population: Population  #: where the true values come from
    clients: int = 500  #: how many devices answer, unless an option says otherwise
    #: Where the task offers several epsilons, how large a share of the devices takes each, as they ascend, whatever
    #: these add up to; empty for equal shares.
    shares: tuple[float, ...] = ()
    rounds: int = 1  #: how often every device is asked, a day apart, unless an option says otherwise
    faults: Faults = NO_FAULTS  #: what goes wrong on the way to the broker
    liars: tuple[Liars, ...] = ()  #: devices that do not tell the truth, by kind
    about: str = ""  #: what it teaches, for a person
    panel: Panel = STEADY  #: how the people behave from round to round
    #: How many gateways share the devices, unless an option says otherwise; None to choose automatically.
    gateways: int | None = None

    @property
    def groups(self) -> tuple[str, ...]:
        """The names of the groups of people; empty without groups."""
        return self.population.names if isinstance(self.population, Grouped) else ()

    @property
    def has_own_data(self) -> bool:
        """Whether some values are a person's data, not drawn from a distribution."""
        people = self.population
        parts = [group.people for group in people.groups] if isinstance(people, Grouped) else [people]
        return any(isinstance(part, Observed) for part in parts)

    def asking(self, **changes: object) -> "Scenario":
        """Return the same question with other fields of the task; a change to None leaves the field as it is.

        A new epsilon replaces all that the task offered.
        """
        kept = {k: v for k, v in self.document.items() if k != "offers" or changes.get("epsilon") is None}
        return replace(self, document={**kept, **{k: v for k, v in changes.items() if v is not None}})

    def repeated(self, rounds: int, opens: datetime) -> "Scenario":
        """Return the same question asked `rounds` times, a day apart; epsilon stays the total of all rounds."""
        return self.asking(rounds=rounds, round_every="1d", opens=opens.isoformat())

    def of_size(self, clients: int) -> "Scenario":
        """Return it with another number of devices; observed people are then drawn with replacement."""
        people = self.population
        if isinstance(people, Observed):
            people = replace(people, resampled=True)
        return replace(self, population=people, clients=clients)

    def task(self) -> Task:
        """The validated task; raises TaskError with the field and the remedy."""
        return _validated(_Document(repr(self.document), known(), self.document))


@dataclass(frozen=True, slots=True)
class _Document:
    """A task to be validated, by its text and by the mechanisms that there are."""

    text: str
    mechanisms: tuple[type[Mechanism], ...]
    document: Mapping[str, object] = field(compare=False)


@lru_cache(maxsize=32)
def _validated(asked: _Document) -> Task:
    """The same task for the same text: a sweep asks for it at every number of devices, and tables are large."""
    return make_task(asked.document)


def scenario_of_data(data: Observed, domain: Mapping[str, object]) -> Scenario:
    """Return a scenario about a person's own values: one client each, with the domain that the person states."""
    what = _ASKED.get(str(domain.get("kind")), "Mean")
    title = f"{what} of {data.name[:80] or 'your data'}"
    return Scenario(
        document={
            "id": "own-data",
            "title": title if title.isprintable() else "A column",
            "epsilon": "1",
            "domain": domain,
        },
        population=data,
        clients=len(data.values),
    )


_CHOICES = 1  # the stream of a seed that chooses epsilons; the values come from another


class People(NamedTuple):
    """The people who answer, one device each: true values, number of the epsilon taken, and number of the group.

    `choices` is empty without offers, `groups` without groups; `seed` is None if nothing depends on one.
    """

    values: Sequence[Value]
    choices: tuple[int, ...]
    seed: int | None
    groups: tuple[int, ...] = ()


def draw_people(
    scenario: Scenario, offers: int, seed: int | None, shares: tuple[float, ...] = (), *, seeded: bool = False
) -> People:
    """Draw the people of a scenario, as many as it has clients.

    A fresh seed is short enough to be typed again; with `seeded` there is one even if nothing here depends on it.
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
    """Draw the epsilon of each device from a separate stream: the choice does not depend on the value."""
    weights = np.array(shares or (1.0,) * offers)
    rng = np.random.default_rng([0 if seed is None else seed, _CHOICES])
    return tuple(rng.choice(offers, size=count, p=weights / weights.sum()).tolist())
