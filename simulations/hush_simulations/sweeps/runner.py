"""Simulate the cells of a sweep: in this process, in several, or on a Dask cluster. The results are the same."""

from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, closing
from dataclasses import asdict
from queue import SimpleQueue

from hush_common.child_python import ChildPython
from hush_common.errors import HushError
from hush_simulations.engines.cluster import Cluster
from hush_simulations.sweeps.cell import CellWork, FinishedCell, versions_here
from hush_simulations.sweeps.directory import SweepDirectory
from hush_simulations.sweeps.evaluation import experiment_of
from hush_simulations.sweeps.result import SweepResult
from hush_simulations.sweeps.sweep import Sweep
from hush_simulations.sweeps.worker import WORKER, make_cell

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
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(min(workers, len(works))))
        idle: SimpleQueue[ChildPython] = SimpleQueue()

        def make(work: CellWork) -> tuple[int, FinishedCell]:
            child = idle.get()
            try:
                return _made_by(child, work)
            finally:
                idle.put(child)

        for _ in range(min(workers, len(works))):
            idle.put(stack.enter_context(ChildPython(WORKER)))
        futures = [pool.submit(make, work) for work in works]
        stack.callback(lambda: [future.cancel() for future in futures])
        for future in as_completed(futures):
            yield future.result()


def _made_by(child: ChildPython, work: CellWork) -> tuple[int, FinishedCell]:
    child.send(work)
    match child.hear():
        case FinishedCell() as made:
            return work.number, made
        case HushError() as error:
            raise error
        case _ if (code := child.code) > 0:
            raise HushError(f"a worker ended before its cell was made (exit code {code}); finished cells are kept")
        case _:
            raise HushError(
                "a worker ended before its cell was made, perhaps for lack of memory; "
                "run it again with fewer workers: finished cells are kept"
            )


def _remarks(every: Sequence[FinishedCell]) -> tuple[str, ...]:
    """Name versions that made cells and differ from those of this process."""
    now = asdict(versions_here())
    found = {(name, was): None for made in every for name, was in asdict(made.versions).items() if was != now[name]}
    return tuple(f"some cells were made with {name} {was}, this is {now[name]}" for name, was in found)
