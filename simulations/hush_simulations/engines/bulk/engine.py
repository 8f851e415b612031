"""The bulk engine: an experiment becomes an outcome without devices, broker or store, by the same law.

Where the law of a whole tally is known (every mechanism of finitely many outputs), tallies are drawn at once. Of
numbers with Laplace noise so is the sum of the reports, with the mean, the intervals that need no sample variance, and
the band; for the rest every device is drawn, which is what happens up to `MOST_ONE_BY_ONE` answers. The outcome says
which it was. The estimate is the aggregator's own.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime
from threading import Event

import numpy as np

from hush_aggregator.estimate import Estimate, estimate
from hush_aggregator.estimate.tallies import parts_of
from hush_aggregator.result import Counted, result_of
from hush_aggregator.tally import Tally
from hush_common.domain import VectorDomain
from hush_common.errors import OptionError
from hush_common.task import Task
from hush_common.wire import Refusal
from hush_simulations.engines.bulk.cells import Cells
from hush_simulations.engines.bulk.composed import Kind, composed, duplicates_of
from hush_simulations.engines.bulk.drawn import Drawn
from hush_simulations.engines.bulk.groups import groups_of, parts_of_offers
from hush_simulations.engines.bulk.laws import law_of
from hush_simulations.engines.bulk.one_by_one import draw_devices
from hush_simulations.engines.bulk.streams import noise_of, people_of
from hush_simulations.engines.cluster import Cluster
from hush_simulations.engines.experiment import ABSENT, Drawing, Experiment, Outcome, RoundOutcome
from hush_simulations.engines.reports import Received
from hush_simulations.scenarios.grouped import Grouped
from hush_simulations.scenarios.population import Independent

__all__ = ["MOST_ONE_BY_ONE", "at_once", "draw_rounds", "drawing_of", "shares_of", "simulate", "simulate_now"]

MOST_ONE_BY_ONE = 100_000_000
"""Answers up to which devices are drawn one by one where the law of the tally does not say everything."""


async def simulate(
    experiment: Experiment, on_progress: Callable[[int], None] | None = None, stop: asyncio.Event | None = None
) -> Outcome:
    """Run an experiment to its end, or until `stop` is set: then no further device is drawn, and what is there counts.

    Raises:
        OptionError: the law of its mechanism is not known, or tallies are asked for that cannot be drawn.
        StoppedError: `stop` was set before anything was drawn.
    """
    stopped = Event()

    async def pass_on(wanted: asyncio.Event) -> None:
        await wanted.wait()
        stopped.set()

    passing = None if stop is None else asyncio.create_task(pass_on(stop), name="hush-pass-on")
    try:
        return await asyncio.to_thread(simulate_now, experiment, on_progress or _ignore, stopped)
    finally:
        stopped.set()
        if passing is not None:
            passing.cancel()


def simulate_now(
    experiment: Experiment, on_progress: Callable[[int], None] = lambda _: None, stopped: Event | None = None
) -> Outcome:
    """The same for programs without an event loop; whoever sets `stopped` wants no more than what is drawn."""
    task, drawing, began = experiment.task, drawing_of(experiment), time.perf_counter()
    drawn = draw_rounds(experiment, on_progress, stopped)
    estimates = [_estimate(task, tally, experiment.confidence, drawing) for tally in drawn.tallies]
    elapsed = (time.perf_counter() - began) / len(estimates)
    halted = stopped is not None and stopped.is_set()
    if not halted:
        on_progress(experiment.clients * task.rounds)
    again = duplicates_of(experiment.scenario, task.rounds)
    refused = {Refusal.DUPLICATE: again} if again else {}
    nothing = Received(b"", np.empty((0, task.randomizer.width), dtype=np.int64))
    rounds = [
        RoundOutcome(
            result_of(
                Counted(task, number, tally, refused),
                made,
                experiment.confidence,
                task.round_opens(number) or datetime.now(UTC),
            ),
            range(truth.people),
            truth.moved,
            {ABSENT: experiment.clients - truth.people} if truth.people < experiment.clients and not halted else {},
            elapsed,
            nothing,
            truth=truth.means,
            known=truth.known,
            groups=tuple((group.people, group.means) for group in truth.groups),
            tally=tally,
            chosen=tuple(part.n for _, part in parts_of(task.randomizer, tally)) if task.offers else (),
        )
        for number, (tally, truth, made) in enumerate(zip(drawn.tallies, drawn.truths, estimates, strict=True))
    ]
    return Outcome(task, tuple(rounds), stopped=halted, drawing=drawing)


def draw_rounds(
    experiment: Experiment, on_progress: Callable[[int], None] = lambda _: None, stopped: Event | None = None
) -> Drawn:
    """The tallies of all rounds and the truth, without an estimate.

    Raises:
        OptionError: as `simulate`.
    """
    task, drawing = experiment.task, drawing_of(experiment)
    entropy, done = experiment.seed or 0, 0
    cluster = _cluster(experiment, drawing)

    def draw(kind: Kind) -> Drawn:
        nonlocal done
        shares, seed, before = shares_of(experiment, honest=kind.honest), kind.seed(entropy), done
        done += kind.clients * task.rounds
        if drawing == "tally":
            return at_once(task, kind, shares, seed)
        return draw_devices(
            task,
            kind.population,
            kind.clients,
            shares,
            seed,
            panel=kind.panel,
            present=kind.present,
            workers=experiment.workers,
            cluster=cluster,
            on_progress=lambda answers: on_progress(before + answers),
            stopped=stopped,
        )

    with cluster or nullcontext():
        return composed(experiment.scenario, task, entropy, draw)


def _cluster(experiment: Experiment, drawing: Drawing) -> Cluster | None:
    if experiment.dask is None:
        return None
    if drawing == "tally":
        raise OptionError("--dask", "shares out devices, and tallies are drawn at once; draw devices, or leave it out")
    return Cluster(experiment.dask)


def drawing_of(experiment: Experiment) -> Drawing:
    """What is drawn.

    Raises:
        OptionError: as `simulate`.
    """
    task = experiment.task
    laws = [law_of(part) for part in parts_of_offers(task.randomizer)]
    people, panel = experiment.scenario.population, experiment.scenario.panel
    if task.repeat == "sticky" and panel:
        raise OptionError("engine", "sticky answers of devices that drift or drop out are for mqtt or memory")
    grouped = isinstance(people, Grouped) and isinstance(task.domain, VectorDomain)
    again = grouped or (isinstance(people, Independent) and (task.rounds > 1 or bool(panel.nonresponse)))
    if experiment.drawing == "tally" and again:
        raise OptionError("draw", "vectors in several rounds, or of groups, have no law of their tallies; draw devices")
    if experiment.drawing != "auto":
        return experiment.drawing
    few = experiment.clients * task.rounds <= MOST_ONE_BY_ONE
    return "devices" if again or (few and not all(law.WHOLE for law in laws)) else "tally"


def shares_of(experiment: Experiment, *, honest: bool) -> tuple[float, ...]:
    """Of the devices that take each epsilon offered; liars take the dearest."""
    offers = len(experiment.task.offers)
    shares = experiment.scenario.shares or (1.0,) * offers
    if not honest:
        shares = tuple(float(place == offers - 1) for place in range(offers))
    return tuple(share / sum(shares) for share in shares)


def at_once(
    task: Task,
    kind: Kind,
    shares: tuple[float, ...],
    entropy: int,
    cells: Cells | tuple[Cells, ...] | None = None,
) -> Drawn:
    """The rounds of people of one kind as tallies; `cells` of their population where they were made before."""
    people, panel = people_of(entropy, 0, 0), kind.panel
    groups = groups_of(
        task, kind.population, kind.clients, shares, people, cells=cells, panel=panel, present=kind.present
    )
    rounds = 1 if task.repeat == "sticky" else task.rounds
    tallies, truths = [], []
    for round_ in range(rounds):
        tallies += groups.tallies(noise_of(entropy, 0, 0, round_), round_)
        truths.append(groups.truths().of(0))
    again = task.rounds // rounds  # values stay as they are: a memory gives the same report again
    return Drawn(tuple(tallies) * again, tuple(truths) * again)


def _estimate(task: Task, tally: Tally, confidence: float, drawing: Drawing) -> Estimate:
    made = estimate(task, tally, confidence)
    return made if drawing == "devices" else law_of(parts_of_offers(task.randomizer)[0]).known(made)


def _ignore(_: int) -> None:
    """Show no progress."""
