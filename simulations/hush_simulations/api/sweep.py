"""`hush.sweep`: a scenario at every point of a grid, from a program or a notebook."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from hush_common.errors import OptionError
from hush_simulations.engines.experiment import WORKERS
from hush_simulations.sweeps.directory import SweepDirectory
from hush_simulations.sweeps.making import Progress, resolve_sweep, run_sweep
from hush_simulations.sweeps.result import SweepResult
from hush_simulations.sweeps.sweep import SweepFile, bases_of, find_sweep, read_grid


def sweep(
    grid: str | Path | Mapping[str, object],
    *,
    out: str | Path,
    scenario: str | Path | Mapping[str, object] | None = None,
    trials: int | None = None,
    seed: int | None = None,
    confidence: float | None = None,
    draw: str | None = None,
    workers: int = 1,
    dask: str | None = None,
    resume: bool = True,
    progress: Progress | None = None,
) -> SweepResult:
    """Simulate a scenario at every point of a grid, many times each: bias, error, coverage and width of its estimates.

    Every trial is estimated by the aggregator's own code. Cells are kept as they are made; a sweep that was stopped
    goes on when it is called again, and ends as if it had never been.

    Args:
        grid: values by dotted names of what a scenario file says, `{"task.epsilon": [0.5, 1, 2], "population.clients":
            [100, 1000]}`: all combinations are tried, and the last name varies fastest. Or the path of a sweep file,
            or the name of a sweep that comes with hush; other arguments then replace what it says.
        out: a directory, made if need be, which keeps the cells.
        scenario: a name in `hush.SCENARIOS`, the path of a TOML file, or a mapping of what such a file says; "heights"
            if nobody says. The grid may have an axis "scenario" instead.
        trials: of each cell; 200 if nobody says.
        seed: of people and noise: the same one gives the same figures. If nobody says, that of the sweep in `out`, or a
            fresh one.
        confidence: of the intervals; 0.95 if nobody says.
        draw: "tally" draws the sums of all reports of a trial at once, "devices" every report; "auto" the former.
        workers: processes of this machine that make cells. The result is the same with any number. (On a system that
            starts processes afresh, a script calls this below `if __name__ == "__main__":`.)
        dask: address of the scheduler of a Dask cluster that makes them, "tcp://scheduler:8786".
        resume: whether `out` may have cells of this sweep already.
        progress: called with how many cells are made, and how many there are.

    Raises:
        OptionError: an argument that cannot be used, or a directory of another sweep; it is named, with the remedy.
        TaskError: the scenario is no legal one.
        HushError: a worker ended before its cell was made; what was made is kept.
    """
    directory = Path(out)
    arranged_sweep = resolve_sweep(
        _asked(grid, scenario),
        directory,
        trials=trials,
        seed=seed,
        confidence=confidence,
        draw=draw,
        option=str,
    )
    hands = WORKERS.check(workers, "workers", f"pass {WORKERS.meaning}, as in workers={WORKERS.example}")
    return run_sweep(
        arranged_sweep,
        SweepDirectory(directory),
        workers=hands,
        dask=dask,
        resume=resume,
        progress=progress or _ignore,
    )


def _asked(grid: str | Path | Mapping[str, object], scenario: str | Path | Mapping[str, object] | None) -> SweepFile:
    if isinstance(grid, Mapping):
        made = read_grid(grid)
        bases = bases_of("heights" if scenario is None else scenario, made)
        return SweepFile(bases=bases, grid=made)
    if isinstance(grid, str | Path):
        found = find_sweep(str(grid), "grid")
        if scenario is None:
            return found
        return replace(found, bases=bases_of(scenario, found.grid))
    raise OptionError("grid", f"is of type {type(grid).__name__[:40]}; pass a mapping, or the path of a sweep file")


def _ignore(_: int, __: int) -> None:
    """Show no progress."""
