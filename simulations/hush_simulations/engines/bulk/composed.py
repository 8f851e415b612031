"""Composed: who answers in bulk, by kind: those who tell the truth, those whose report is forgotten, and liars.

Each kind is drawn by itself, from a seed of its own, and their tallies add up. Publications that are lost, cut off,
late, doubled or out of order change nothing: a device sends the same bytes until they are acknowledged, and an
aggregator counts them once. What the broker forgets is gone, whatever is in it: a binomial number of reports. Liars
have good connections.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.fold import fold
from hush_aggregator.tally import Tally
from hush_common.errors import OptionError
from hush_common.mechanisms import Offers
from hush_common.task import Task
from hush_simulations.engines.bulk.drawn import Drawn, StoppedError, merged
from hush_simulations.engines.bulk.groups import parts_of_offers
from hush_simulations.engines.bulk.laws import law_of
from hush_simulations.engines.bulk.streams import noise_of, people_of
from hush_simulations.scenarios.grouped import Grouped
from hush_simulations.scenarios.panel import STEADY, Panel
from hush_simulations.scenarios.population import Observed, Population
from hush_simulations.scenarios.scenario import Scenario
from hush_simulations.scenarios.troubles import Liars, told_by, truthful_count

__all__ = ["Kind", "composed", "duplicates_of", "is_plain"]

_SEEDS = 1 << 20  # the cell that no sweep has, of which the seeds of kinds are drawn


@dataclass(frozen=True, slots=True)
class Kind:
    """People of one kind.

    Args:
        population: where their values come from, or the false value that they tell.
        clients: how many.
        number: which kind, for its seed.
        honest: whether they choose among several epsilons as they are asked to; else they take the dearest.
        counted: whether the aggregator gets their reports.
        true: whether these values are the truth.
        panel: how they behave from round to round.
        present: how likely a device of each group answers, shape (rounds, 1, groups): the same for all kinds; None
            where all do.
    """

    population: Population
    clients: int
    number: int
    honest: bool = True
    counted: bool = True
    true: bool = True
    panel: Panel = STEADY
    present: NDArray[np.float64] | None = None

    def seed(self, entropy: int) -> int:
        """Of the first kind that of the run."""
        if not self.number:
            return entropy
        return int(people_of(entropy, _SEEDS, self.number).integers(1 << 62))


def composed(scenario: Scenario, task: Task, entropy: int, draw: Callable[[Kind], Drawn]) -> Drawn:
    """All rounds of all kinds.

    Args:
        scenario: who answers.
        task: what is asked.
        entropy: the seed of the run.
        draw: the rounds of one kind.

    Raises:
        OptionError: a broker that forgets, in several rounds.
        StoppedError: `draw` was stopped before anything was drawn; later, what there is counts.
    """
    parts: list[Drawn] = []
    stopped = False
    for kind in _kinds(scenario, task, entropy):
        if not kind.clients:
            continue
        try:
            drawn = draw(kind)
        except StoppedError:
            stopped = True
            break
        if not kind.counted:
            drawn = replace(drawn, tallies=(Tally(),) * task.rounds)
        if not kind.true:
            drawn = replace(drawn, truths=tuple(truth.nobody() for truth in drawn.truths))
        if not kind.honest:
            drawn = replace(drawn, truths=tuple(replace(truth, moved=0) for truth in drawn.truths))
        parts.append(drawn)
    if not parts:
        raise StoppedError
    every = merged(parts)
    if stopped:  # before all liars came
        return every
    edges = [_edges(task, some.among(scenario.clients) * some.reports) for some in scenario.liars if some.lie == "edge"]
    for tally in edges:
        every = replace(every, tallies=tuple(one.merge(tally) for one in every.tallies))
    return every


def is_plain(scenario: Scenario) -> bool:
    """Whether all people tell the truth and are counted, the same in every round: the first of `_kinds` alone."""
    lying = any(some.among(scenario.clients) for some in scenario.liars)
    return not lying and not scenario.faults.forgotten and not scenario.panel


def duplicates_of(scenario: Scenario, rounds: int) -> int:
    """How many reports come again and are refused, of those that liars repeat."""
    return sum(some.among(scenario.clients) * some.reports * rounds for some in scenario.liars if some.lie == "replay")


def _kinds(scenario: Scenario, task: Task, entropy: int) -> Iterator[Kind]:
    truthful = truthful_count(scenario.clients, scenario.liars)
    people, kept = scenario.population, truthful
    if scenario.faults.forgotten:
        if task.rounds > 1:
            raise OptionError("network.forgotten", "in several rounds is for real devices; choose mqtt or memory")
        rng = people_of(entropy, _SEEDS, 0)
        kept = int(rng.binomial(truthful, 1 - scenario.faults.forgotten))
        people = _shuffled(people, truthful, rng)
    panel, present = scenario.panel, _present(scenario, task, entropy)
    yield Kind(_some(people, 0, kept), kept, 0, panel=panel, present=present)
    yield Kind(_some(people, kept, truthful), truthful - kept, 1, counted=False, panel=panel, present=present)
    first, moving = truthful, Panel(drift=panel.drift)
    for place, some in enumerate(scenario.liars):
        liars = some.among(scenario.clients)
        who = _some(people, first, first + liars)
        first += liars
        yield Kind(who, liars, 2 + 2 * place, honest=False, counted=some.lie == "replay", panel=moving)
        yield from _telling(task, some, liars, 3 + 2 * place)


def _present(scenario: Scenario, task: Task, entropy: int) -> NDArray[np.float64] | None:
    """Who is away together is drawn once, whatever becomes of the reports of the others."""
    people, dropout = scenario.population, scenario.panel.dropout
    if not dropout.share:
        return None
    groups = len(people.names) if isinstance(people, Grouped) else 1
    return dropout.present(task.rounds, 1, groups, noise_of(entropy, _SEEDS, 0, 0))


def _telling(task: Task, some: Liars, liars: int, number: int) -> Iterator[Kind]:
    if some.lie == "value":
        told = told_by(task.domain, some.value)
        yield Kind(told, liars * some.reports, number, honest=False, true=False)


def _some(people: Population, start: int, stop: int) -> Population:
    """Where values are of people who all answer, those people."""
    if not isinstance(people, Observed) or people.resampled:
        return people
    return replace(people, values=people.values[start:stop])


def _shuffled(people: Population, count: int, rng: np.random.Generator) -> Population:
    """Which reports are forgotten has nothing to do with the order of the first so many."""
    if not isinstance(people, Observed) or people.resampled:
        return people
    some = [people.values[place] for place in rng.permutation(count).tolist()]
    return replace(people, values=(*some, *people.values[count:]))


def _edges(task: Task, reports: int) -> Tally:
    """So many reports at the edge, under the dearest epsilon."""
    parts = parts_of_offers(task.randomizer)
    body = law_of(parts[-1]).edge(parts[-1])
    if isinstance(task.randomizer, Offers):
        body = (len(parts) - 1, *body)
    one = fold(task.randomizer, np.array([body], dtype=np.int64))
    return Tally(reports, tuple(reports * number for number in one.moments)) if reports else Tally()
