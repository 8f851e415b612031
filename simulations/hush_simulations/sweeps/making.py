"""Making cells: one after the other, in processes of this machine, or on a Dask cluster. The cells are the same."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import asdict
from multiprocessing.synchronize import Event

from hush_common.errors import HushError
from hush_simulations.engines.cluster import Cluster
from hush_simulations.sweeps.cell_file import MadeCell
from hush_simulations.sweeps.directory import Directory, versions_here
from hush_simulations.sweeps.judging import make_rows
from hush_simulations.sweeps.plan import CellWork, Sweep
from hush_simulations.sweeps.result import SweepResult
from hush_simulations.sweeps.trials import experiment_of

__all__ = ["Progress", "run_sweep"]

Progress = Callable[[int, int], object]
"""Called with how many cells are made, and how many there are."""

_Cells = Generator[tuple[int, MadeCell], None, None]

_stopped: Event | None = None
"""In a worker: set when nobody waits any more."""


def run_sweep(
    sweep: Sweep,
    directory: Directory,
    *,
    workers: int = 1,
    dask: str | None = None,
    resume: bool = True,
    progress: Progress = lambda _, __: None,
) -> SweepResult:
    """Make the cells that are not made yet, and return all of them.

    Args:
        sweep: what is asked for.
        directory: where cells are kept.
        workers: processes of this machine.
        dask: address of the scheduler of a cluster; None for this machine.
        resume: whether the directory may have cells of this sweep already.
        progress: called as cells are made.

    Raises:
        OptionError: the grid, the directory or the scheduler cannot be used.
        HushError: a worker ended before its cell was made. What was made is kept.
    """
    works, cluster = sweep.works(), None if dask is None else Cluster(dask)
    for work in works:
        if work.scenario.rounds > 1:
            experiment_of(work)  # whose complaint comes before anything is made
    with directory.opened(sweep, resume=resume):
        found = {work.number: directory.made(work) for work in works}
        missing = [work for work in works if found[work.number] is None]
        progress(len(works) - len(missing), len(works))
        with closing(_made(missing, workers, cluster)) as cells:
            for number, made in cells:
                directory.keep(works[number], made)
                found[number] = made
                missing = missing[1:]
                progress(len(works) - len(missing), len(works))
    every = [made for made in found.values() if made is not None]
    return SweepResult(
        axes={axis.name: axis.shown for axis in sweep.grid.axes},
        rows=tuple(row for made in every for row in made.rows),
        trials=sweep.trials,
        seed=sweep.seed,
        confidence=sweep.confidence,
        directory=directory.path,
        remarks=_remarks(every),
    )


def _made(
    works: Sequence[CellWork], workers: int, cluster: Cluster | None
) -> Generator[tuple[int, MadeCell], None, None]:
    if cluster is not None and works:
        with cluster:
            yield from cluster.each(make_cell, works)
    elif workers == 1 or len(works) < 2:  # noqa: PLR2004 - nothing to share
        for work in works:
            yield make_cell(work)
    else:
        yield from _in_processes(works, workers)


def make_cell(work: CellWork) -> tuple[int, MadeCell]:
    """A cell with its number, wherever this runs."""
    try:
        rows = make_rows(work, lambda: _stopped is None or not _stopped.is_set())
    except HushError as error:
        raise HushError(str(error)) from None  # others are made of more than their text, and would not travel
    return work.number, MadeCell(work.key, work.seed, versions_here(), tuple(rows))


def _in_processes(works: Sequence[CellWork], workers: int) -> Iterator[tuple[int, MadeCell]]:
    """In processes that share nothing with this one; they end with it, however it ends."""
    context = multiprocessing.get_context("spawn")
    stopped = context.Event()
    pool = ProcessPoolExecutor(min(workers, len(works)), context, _begin, (stopped,))
    try:
        for future in as_completed([pool.submit(make_cell, work) for work in works]):
            yield future.result()
    except BrokenProcessPool as error:
        raise HushError(
            "a worker ended before its cell was made, perhaps for want of memory; "
            "run it again with fewer workers: what was made is kept"
        ) from error
    finally:
        stopped.set()
        pool.shutdown(cancel_futures=True)


def _begin(stopped: Event) -> None:
    """In a worker: Ctrl-C is for who started it, and without that nobody waits for it."""
    global _stopped  # noqa: PLW0603 - there is one pool in a worker
    _stopped = stopped
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: "multiprocessing.process.BaseProcess") -> None:
    parent.join()
    os._exit(1)


def _remarks(every: Sequence[MadeCell]) -> tuple[str, ...]:
    """Which versions made cells that are not those of this process."""
    now = asdict(versions_here())
    found = {(name, was): None for made in every for name, was in asdict(made.versions).items() if was != now[name]}
    return tuple(f"some cells were made with {name} {was}, this is {now[name]}" for name, was in found)
