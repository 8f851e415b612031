"""Simulated devices as arrays: people drawn from a population, and a report of each, in chunks.

Values are floats, which is for simulations only. A number x of [lower, upper] has the index
rint((x - lower)·(m/(upper - lower))). A device divides exactly; both agree unless x is within a few units of the last
place of half a step, which has probability 2^-30 for a drawn value.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Event
from typing import Self

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.estimate.mechanisms import fold
from hush_aggregator.estimate.tally import Tally
from hush_common.domain import Domain, NumberDomain
from hush_common.mechanisms import Mechanism, Offers
from hush_common.task import Task
from hush_simulations.engines.bulk.cells import MISSING, Cells, cells_of, on_grids
from hush_simulations.engines.bulk.draws import SimulatedRounds, Truth, merged, noise_of, people_of
from hush_simulations.engines.bulk.laws import law_of
from hush_simulations.engines.cluster import Cluster
from hush_simulations.engines.experiment import StoppedError
from hush_simulations.scenarios.behaviour import STEADY, Panel
from hush_simulations.scenarios.population import (
    Bernoulli,
    Frequencies,
    Grouped,
    Independent,
    Lognormal,
    Mixture,
    Numbers,
    Points,
    Population,
)

CHUNK = 1 << 20
"""Devices with a common seed: part of what a seed means, not of how the work is shared."""

_BLOCK = 1 << 16  # numbers at once: with fewer, workers wait for each other; part of what a seed means, as CHUNK
_LEAST = 256  # devices at once, or numpy's calls cost more than its work

_DISTRIBUTIONS = (Bernoulli, Frequencies, Independent, Mixture, Lognormal, Points)  # the others are rows of data

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
_Distribution = Bernoulli | Frequencies | Independent | Numbers


@dataclass(frozen=True, slots=True)
class PopulationSample:
    """People drawn from a population, with their values in one round."""

    domain: Domain  # of the task
    indices: Integers  # shape (people, coordinates); `MISSING` if there is no value
    values: Floats  # of the same shape; NaN if there is none; of categories the place of the label
    moved: NDArray[np.bool_]  # whether a device moves the value into the domain, shape (people,)
    groups: Integers  # the group of each, shape (people,)
    group_count: int = 0  # 0 if the population has no groups

    def __getitem__(self, chosen: NDArray[np.bool_]) -> Self:
        rows = (self.indices[chosen], self.values[chosen], self.moved[chosen], self.groups[chosen])
        return type(self)(self.domain, *rows, self.group_count)

    def shifted(self, by: Sequence[float]) -> Self:
        """The same people with `by` added to their values, a number for each coordinate."""
        if not any(by):
            return self
        values = self.values + np.array(by)
        indices, moved = on_grids(self.domain, values)
        indices[self.indices == MISSING] = MISSING
        return type(self)(self.domain, indices, values, moved, self.groups, self.group_count)

    @property
    def device_indices(self) -> Integers:
        """The indices as a mechanism takes them: shape (people, coordinates) of a vector, else (people,)."""
        return self.indices if self.domain.value_names else self.indices[:, 0]

    def truth(self) -> Truth:
        """The truth of these people, and of each group."""
        groups = tuple(replace(self[self.groups == group], group_count=0).truth() for group in range(self.group_count))
        people = len(self.indices)
        lacking = (self.indices == MISSING).any(axis=1)
        moved = int((self.moved & ~lacking).sum())
        if self.domain.is_share:
            parts, present = len(self.domain.parts), self.indices[~lacking, 0]
            return Truth(_by_part(self.domain, present), (len(present),) * parts, people, moved, groups)
        known = (~np.isnan(self.values)).sum(axis=0).tolist()
        return Truth(tuple(np.nansum(self.values, axis=0).tolist()), tuple(known), people, moved, groups)


class PopulationSampler:
    """Draws people as rows: of any population, with groups, drift and non-response."""

    def __init__(self, domain: Domain, population: Population, panel: Panel) -> None:
        self._domain, self._panel = domain, panel
        self._names: tuple[str, ...] = ()
        self._shares: tuple[float, ...] = (1.0,)
        people = [population]
        if isinstance(population, Grouped):
            self._names, self._shares = population.names, population.shares
            people = [group.people for group in population.groups]
        self._people = [one if isinstance(one, _DISTRIBUTIONS) else cells_of(domain, one) for one in people]

    def draw(self, first: int, count: int, rng: np.random.Generator) -> tuple[PopulationSample, NDArray[np.bool_]]:
        """Draw people from number `first` on, and which of them ever answer."""
        sizes = rng.multinomial(count, self._shares).tolist()
        parts = [self._of_group(one, first, size, rng) for one, size in zip(self._people, sizes, strict=True)]
        indices, values, moved = (np.concatenate(column) for column in zip(*parts, strict=True))
        groups = np.repeat(np.arange(len(sizes)), sizes)
        sample = PopulationSample(self._domain, indices, values, moved, groups, len(self._names))
        if not self._panel.nonresponse:
            return sample, np.ones(count, dtype=bool)
        refusing = self._panel.refusing(self._domain, values[:, 0], groups, self._names)
        return sample, rng.random(count) >= refusing

    def _of_group(
        self, people: "_Distribution | Cells", first: int, count: int, rng: np.random.Generator
    ) -> tuple[Integers, Floats, NDArray[np.bool_]]:
        """Indices, values and whether they are moved."""
        if isinstance(people, Cells):
            rows = np.arange(first, first + count) if people.fixed else rng.integers(len(people.shares), size=count)
            indices, values = people.indices[rows].astype(np.int64), people.values[rows]
            return indices.reshape(count, -1), values.reshape(count, -1), people.moved[rows]
        if isinstance(people, Bernoulli | Frequencies):
            shares = (1 - people.mean, people.mean) if isinstance(people, Bernoulli) else people.mean
            places = rng.choice(len(shares), size=(count, 1), p=shares)
            return places, places.astype(float), np.zeros(count, dtype=bool)
        each = people.coordinates if isinstance(people, Independent) else (people,)
        values = np.stack(
            [np.array(one.draw(count, rng)) if isinstance(one, Mixture) else one.numbers(count, rng) for one in each],
            axis=1,
        )
        indices, moved = on_grids(self._domain, values)
        return indices, values, moved


def _draw_at_once(
    domain: Domain, people: _Distribution, count: int, rng: np.random.Generator
) -> tuple[Integers, Truth]:
    """The quick way for a distribution without groups, drift or non-response: indices and truth, without rows."""
    match people:
        case Bernoulli(proportion=yes):
            ones = (rng.random(count) < yes).astype(np.int64)
            return ones, Truth((float(ones.sum()),), (count,), count, 0)
        case Frequencies():
            labels = len(people.mean)
            places = rng.choice(labels, size=count, p=people.mean)
            return places, Truth(_by_part(domain, places), (count,) * labels, count, 0)
        case Independent(coordinates=numbers):
            return _draw_vectors(domain, numbers, count, rng)
        case Mixture() | Lognormal() | Points():
            (number,) = domain.numbers
            values = _draw_numbers(people, count, rng)
            moved = int(np.count_nonzero(values < number.lower) + np.count_nonzero(values > number.upper))
            total = float(values.sum())
            return _round_in_place(number, values, clip=moved > 0), Truth((total,), (count,), count, moved)


def _draw_vectors(
    domain: Domain, numbers: Sequence[Numbers], count: int, rng: np.random.Generator
) -> tuple[Integers, Truth]:
    indices = np.empty((count, len(numbers)), dtype=np.int64)
    sums, moved = [], np.zeros(count, dtype=bool)
    for place, (one, people) in enumerate(zip(domain.numbers, numbers, strict=True)):
        values = _draw_numbers(people, count, rng)
        rng.shuffle(values)  # groups come one after the other, and coordinates are independent
        moved |= (values < one.lower) | (values > one.upper)
        sums.append(float(values.sum()))
        indices[:, place] = _round_in_place(one, values, clip=True)
    return indices, Truth(tuple(sums), (count,) * len(sums), count, int(moved.sum()))


def _draw_numbers(people: Numbers, count: int, rng: np.random.Generator) -> Floats:
    """Values; of a mixture those of each group in turn."""
    if not isinstance(people, Mixture):
        return people.numbers(count, rng)
    values, start = rng.standard_normal(count), 0
    for size, part in zip(rng.multinomial(count, people.shares).tolist(), people.parts, strict=True):
        group = values[start : start + size]
        group *= part.sd
        group += part.mean
        start += size
    return values


def _round_in_place(domain: NumberDomain, values: Floats, *, clip: bool) -> Integers:
    values -= domain.lower
    values *= float(1 / domain.step)
    np.rint(values, out=values)
    if clip:
        np.clip(values, 0, domain.steps, out=values)
    return values.astype(np.int64)


def _by_part(domain: Domain, places: Integers) -> tuple[float, ...]:
    """How many people each share counts; that of a bit counts the last index, yes."""
    found: list[float] = np.bincount(places, minlength=domain.sizes[0]).astype(float).tolist()
    return tuple(found[-len(domain.parts) :])


@dataclass(frozen=True, slots=True)
class _Work:
    task: Task
    people: "_Distribution | PopulationSampler"
    panel: Panel
    present: Floats | None
    clients: int
    shares: tuple[float, ...]
    entropy: int

    def chunk(self, number: int, stopped: Event | None = None) -> SimulatedRounds | None:
        """Draw the devices of a chunk until `stopped` is set; None if there are none."""
        people, first = people_of(self.entropy, 0, number), number * CHUNK
        rounds = 1 if self.task.repeat == "sticky" else self.task.rounds
        noise = [noise_of(self.entropy, 0, number, round_) for round_ in range(rounds)]
        last = min(first + CHUNK, self.clients)
        block = max(_BLOCK // len(self.task.domain.parts), _LEAST)
        parts = []
        for start in range(first, last, block):
            if stopped is not None and stopped.is_set():
                break
            parts.append(self._block(start, min(start + block, last) - start, people, noise))
        return merged(parts) if parts else None

    def _block(
        self, first: int, count: int, people: np.random.Generator, noise: Sequence[np.random.Generator]
    ) -> SimulatedRounds:
        # Sticky answers have one round: values do not change, so that a memory gives the same report again.
        again = self.task.rounds // len(noise)
        if not isinstance(self.people, PopulationSampler):
            indices, truth = _draw_at_once(self.task.domain, self.people, count, people)
            offers = self._offers(count, people)
            return SimulatedRounds(
                tuple(self._reports(indices, offers, rng) for rng in noise) * again, (truth,) * self.task.rounds
            )
        sample, answering = self.people.draw(first, count, people)
        offers = self._offers(count, people)
        tallies, truths = [], []
        for round_, rng in enumerate(noise):
            here = answering
            if self.present is not None:
                here = answering & (rng.random(count) < self.present[round_, 0][sample.groups])
            some = (sample if here.all() else sample[here]).shifted(self.panel.moved(self.task.domain, round_))
            tally = self._reports(some.device_indices, None if offers is None else offers[here], rng)
            tallies.append(tally if len(some.indices) else Tally())
            truths.append(some.truth())
        return SimulatedRounds(tuple(tallies) * again, tuple(truths) * again)

    def _offers(self, count: int, people: np.random.Generator) -> Integers | None:
        """Which epsilon each device takes."""
        return people.choice(len(self.shares), size=count, p=self.shares) if self.shares else None

    def _reports(self, indices: Integers, offers: Integers | None, rng: np.random.Generator) -> Tally:
        missing = indices == MISSING
        if missing.any():
            sizes = np.array(self.task.domain.sizes) if indices.ndim > 1 else self.task.domain.sizes[0]
            indices = np.where(missing, rng.integers(0, sizes, size=indices.shape), indices)
        return fold(self.task.randomizer, _bodies(self.task.randomizer, indices, offers, rng))


def draw_devices(
    task: Task,
    population: Population,
    clients: int,
    shares: tuple[float, ...],
    entropy: int,
    *,
    panel: Panel = STEADY,
    present: Floats | None = None,
    workers: int = 1,
    cluster: Cluster | None = None,
    on_progress: Callable[[int], None] = lambda _: None,
    stopped: Event | None = None,
) -> SimulatedRounds:
    """Draw the reports of all devices in every round.

    `shares` are those of the devices that take each epsilon offered, adding up to 1; empty if there is one. `present`
    is the probability that a device of each group answers, shape (rounds, 1, groups); None if all do. A `cluster` is
    entered already. `on_progress` gets the number of answers so far. After `stopped` is set it returns what is drawn.

    Raises:
        StoppedError: `stopped` was set before anything was drawn.
    """
    people: _Distribution | PopulationSampler
    if isinstance(population, _DISTRIBUTIONS) and not panel:
        people = population
    else:
        people = PopulationSampler(task.domain, population, panel)
    work = _Work(task, people, panel, present, clients, shares, entropy)
    stopped = stopped or Event()
    numbers = range(-(-clients // CHUNK))
    done: list[SimulatedRounds] = []

    def keep(part: SimulatedRounds | None) -> None:
        if part is not None:
            done.append(part)
            on_progress(sum(tally.n for one in done for tally in one.tallies))

    if cluster is not None:
        for part in cluster.each(work.chunk, numbers, lambda: not stopped.is_set()):
            keep(part)
    else:
        with ThreadPoolExecutor(max(workers, 1), thread_name_prefix="hush-bulk") as pool:
            try:
                for part in pool.map(work.chunk, numbers, [stopped] * len(numbers)):
                    keep(part)
            except BaseException:
                stopped.set()
                raise
    if not done:
        raise StoppedError
    return merged(done)


def _bodies(
    randomizer: Mechanism | Offers, indices: Integers, offers: Integers | None, rng: np.random.Generator
) -> Integers:
    if not isinstance(randomizer, Offers):
        return law_of(randomizer).bodies(randomizer, indices, rng)
    found = np.empty((len(indices), randomizer.width), dtype=np.int64)
    for offer, part in enumerate(randomizer.parts):
        chosen = offers == offer
        found[chosen, 0] = offer
        found[chosen, 1:] = law_of(part).bodies(part, indices[chosen], rng)
    return found
