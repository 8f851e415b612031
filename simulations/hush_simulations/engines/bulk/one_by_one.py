"""One by one: every device draws a report, as arrays in chunks; a chunk's memory is used again by the next."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.fold import fold
from hush_aggregator.tally import Tally
from hush_common.domain import CategoryDomain, Domain, VectorDomain
from hush_common.mechanisms import Mechanism, Offers
from hush_common.task import Task
from hush_simulations.engines.bulk.cells import MISSING
from hush_simulations.engines.bulk.crowd import Crowd, Source, source_of
from hush_simulations.engines.bulk.drawn import Drawn, StoppedError, merged
from hush_simulations.engines.bulk.laws import law_of
from hush_simulations.engines.bulk.members import MemberSource
from hush_simulations.engines.bulk.streams import noise_of, people_of
from hush_simulations.engines.cluster import Cluster
from hush_simulations.scenarios.grouped import Grouped
from hush_simulations.scenarios.panel import STEADY, Panel
from hush_simulations.scenarios.population import Population

__all__ = ["draw_devices"]

CHUNK = 1 << 20
"""Devices with a seed of their own: part of what a seed means, not of how the work is shared."""

_BLOCK = 1 << 16  # numbers at once: with fewer, workers wait for each other; part of what a seed means, as CHUNK
_LEAST = 256  # devices at once, or numpy's calls cost more than its work


@dataclass(frozen=True, slots=True)
class _Work:
    task: Task
    source: Source | MemberSource
    panel: Panel
    present: NDArray[np.float64] | None
    clients: int
    shares: tuple[float, ...]
    entropy: int
    cell: int

    def chunk(self, number: int, stopped: Event | None = None) -> Drawn | None:
        """The devices of a chunk, or those that were drawn until somebody wanted no more; None where there is none."""
        people, first = people_of(self.entropy, self.cell, number), number * CHUNK
        rounds = 1 if self.task.repeat == "sticky" else self.task.rounds
        noise = [noise_of(self.entropy, self.cell, number, round_) for round_ in range(rounds)]
        last = min(first + CHUNK, self.clients)
        block = max(_BLOCK // _numbers(self.task.domain), _LEAST)
        parts = []
        for start in range(first, last, block):
            if stopped is not None and stopped.is_set():
                break
            parts.append(self._block(start, min(start + block, last), people, noise))
        return merged(parts) if parts else None

    def _block(
        self,
        start: int,
        stop: int,
        people: np.random.Generator,
        noise: Sequence[np.random.Generator],
    ) -> Drawn:
        if isinstance(self.source, MemberSource):
            return self._panel(self.source, start, stop - start, people, noise)
        crowd = self.source.draw(start, stop - start, people)
        offers = self._offers(stop - start, people)
        tallies = tuple(self._reports(crowd, offers, rng) for rng in noise)
        # Where answers are sticky there is one: values stay as they are, so that a memory gives the same report again.
        again = self.task.rounds // len(noise)
        return Drawn(tallies * again, (crowd.truth,) * self.task.rounds)

    def _panel(
        self,
        source: MemberSource,
        first: int,
        count: int,
        people: np.random.Generator,
        noise: Sequence[np.random.Generator],
    ) -> Drawn:
        """Of people who are of groups, drift or do not all answer: in each round those who do."""
        domain = self.task.domain
        members, answering = source.draw(first, count, people)
        offers, drawn = self._offers(count, people), []
        for round_, rng in enumerate(noise):
            here = answering
            if self.present is not None:
                here = answering & (rng.random(count) < self.present[round_, 0][members.groups])
            crowd = members[here].at(self.panel.moved(domain, round_)).crowd()
            tally = self._reports(crowd, None if offers is None else offers[here], rng)
            drawn.append((tally if len(crowd.indices) else Tally(), crowd.truth))
        tallies, truths = zip(*drawn, strict=True)
        again = self.task.rounds // len(noise)
        return Drawn(tallies * again, truths * again)

    def _offers(self, count: int, people: np.random.Generator) -> NDArray[np.int64] | None:
        """Which epsilon each takes."""
        return people.choice(len(self.shares), size=count, p=self.shares) if self.shares else None

    def _reports(self, crowd: Crowd, offers: NDArray[np.int64] | None, rng: np.random.Generator) -> Tally:
        indices = crowd.indices
        missing = indices == MISSING
        if missing.any():
            indices = np.where(missing, rng.integers(0, _sizes(self.task, indices), size=indices.shape), indices)
        return fold(self.task.randomizer, _bodies(self.task.randomizer, indices, offers, rng))


def draw_devices(
    task: Task,
    population: Population,
    clients: int,
    shares: tuple[float, ...],
    entropy: int,
    *,
    cell: int = 0,
    panel: Panel = STEADY,
    present: NDArray[np.float64] | None = None,
    workers: int = 1,
    cluster: Cluster | None = None,
    on_progress: Callable[[int], None] = lambda _: None,
    stopped: Event | None = None,
) -> Drawn:
    """All reports of so many devices in every round.

    Args:
        task: what is asked.
        population: where the values come from.
        clients: devices.
        shares: of the devices that take each epsilon offered, adding up to 1; empty where there is one.
        entropy: the seed.
        cell: of a sweep.
        panel: how people behave from round to round.
        present: how likely a device of each group answers, shape (rounds, 1, groups); None where all do.
        workers: threads; numpy draws without holding the others up.
        cluster: whose workers draw instead, entered already.
        on_progress: called with the number of answers so far.
        stopped: whoever sets it wants no more than what is drawn.

    Raises:
        StoppedError: `stopped` was set, and nothing is drawn.
    """
    steady = not panel and not isinstance(population, Grouped)
    source = source_of(task.domain, population) if steady else MemberSource(task.domain, population, panel)
    work = _Work(task, source, panel, present, clients, shares, entropy, cell)
    stopped = stopped or Event()
    numbers = range(-(-clients // CHUNK))
    done: list[Drawn] = []

    def keep(part: Drawn | None) -> None:
        if part is not None:
            done.append(part)
            on_progress(sum(tally.n for one in done for tally in one.tallies))

    def whole() -> Drawn:
        if not done:
            raise StoppedError
        return merged(done)

    if cluster is not None:
        for part in cluster.each(work.chunk, numbers, lambda: not stopped.is_set()):
            keep(part)
        return whole()
    with ThreadPoolExecutor(max(workers, 1), thread_name_prefix="hush-bulk") as pool:
        try:
            for part in pool.map(work.chunk, numbers, [stopped] * len(numbers)):
                keep(part)
        except BaseException:
            stopped.set()
            raise
    return whole()


def _bodies(
    randomizer: Mechanism | Offers,
    indices: NDArray[np.int64],
    offers: NDArray[np.int64] | None,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    if not isinstance(randomizer, Offers):
        return law_of(randomizer).bodies(randomizer, indices, rng)
    found = np.empty((len(indices), randomizer.width), dtype=np.int64)
    for offer, part in enumerate(randomizer.parts):
        chosen = offers == offer
        found[chosen, 0] = offer
        found[chosen, 1:] = law_of(part).bodies(part, indices[chosen], rng)
    return found


def _sizes(task: Task, indices: NDArray[np.int64]) -> NDArray[np.int64] | int:
    return np.array(task.domain.sizes) if indices.ndim > 1 else task.domain.sizes[0]


def _numbers(domain: Domain) -> int:
    """How many numbers are drawn for a device at once."""
    match domain:
        case CategoryDomain(labels=labels):
            return len(labels)
        case VectorDomain(coordinates=coordinates):
            return len(coordinates)
    return 1
