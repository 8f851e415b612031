"""Simulate the cells of a sweep: in this process, in several, or on a Dask cluster. The results are the same."""

import multiprocessing
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from dataclasses import asdict

from hush_common.errors import HushError
from hush_simulations.engines.cluster import Cluster
from hush_simulations.sweeps.cell import CellWork, FinishedCell, versions_here
from hush_simulations.sweeps.directory import SweepDirectory
from hush_simulations.sweeps.evaluation import experiment_of
from hush_simulations.sweeps.result import SweepResult
from hush_simulations.sweeps.sweep import Sweep
from hush_simulations.sweeps.worker import begin, make_cell

Progress = Callable[[int, int], object]
"""Called with the number of finished cells, and of all."""


def run_sweep(
    sweep: Sweep,
    directory: SweepDirectory,
    *,
    workers: int = 1,
    dask: str | None = None,
    resume: bool = True,
    progress: Progress,
) -> SweepResult:
    """Simulate the missing cells, and return all of them.

    Raises:
        OptionError: the grid, the directory or the scheduler cannot be used.
        HushError: a worker died. Finished cells are kept.
    """
    works, cluster = sweep.works(), None if dask is None else Cluster(dask)
    for work in works:
        if work.scenario.rounds > 1:
            experiment_of(work)  # raises before anything is simulated
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
) -> Generator[tuple[int, FinishedCell], None, None]:
    if cluster is not None and works:
        with cluster:
            yield from cluster.each(make_cell, works)
    elif workers == 1 or len(works) < 2:  # noqa: PLR2004 - nothing to share
        for work in works:
            yield make_cell(work)
    else:
        yield from _in_processes(works, workers)


def _in_processes(works: Sequence[CellWork], workers: int) -> Iterator[tuple[int, FinishedCell]]:
    """Make cells in new processes, which end when this one does."""
    context = multiprocessing.get_context("spawn")
    stopped = context.Event()
    pool = ProcessPoolExecutor(min(workers, len(works)), context, begin, (stopped,))
    try:
        with _interrupt_held_back():
            futures = [pool.submit(make_cell, work) for work in works]
        for future in as_completed(futures):
            yield future.result()
    except BrokenProcessPool as error:
        raise HushError(
            "a worker ended before its cell was made, perhaps for lack of memory; "
            "run it again with fewer workers: finished cells are kept"
        ) from error
    finally:
        stopped.set()
        pool.shutdown(cancel_futures=True)


@contextmanager
def _interrupt_held_back() -> Iterator[None]:
    """Let Ctrl-C wait until the block ends. Processes that it starts never receive it, not even while they begin.

    They inherit the mask. This process needs a handler too: where a thread of a library, without the mask, takes the
    signal, Python raises in the main thread.
    """
    arrived: list[int] = []
    handler = signal.getsignal(signal.SIGINT)
    notes = handler is not None and threading.current_thread() is threading.main_thread()
    if notes:
        signal.signal(signal.SIGINT, lambda number, _: arrived.append(number))
    masks = hasattr(signal, "pthread_sigmask")  # not on Windows
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if masks else ()
    try:
        yield
    finally:
        if masks:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if notes:
            signal.signal(signal.SIGINT, handler)
    if arrived:
        signal.raise_signal(signal.SIGINT)


def _remarks(every: Sequence[FinishedCell]) -> tuple[str, ...]:
    """Name versions that made cells and differ from those of this process."""
    now = asdict(versions_here())
    found = {(name, was): None for made in every for name, was in asdict(made.versions).items() if was != now[name]}
    return tuple(f"some cells were made with {name} {was}, this is {now[name]}" for name, was in found)
