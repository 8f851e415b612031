"""`hush.sweep`: a scenario at every point of a grid, from a program or a notebook."""

import secrets
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from hush_common.errors import OptionError
from hush_simulations.api.simulate import confidence_of, whole_of, with_arguments_of
from hush_simulations.engines.experiment import SEED, TRIALS, WORKERS, check_drawing
from hush_simulations.sweeps.directory import SweepDirectory
from hush_simulations.sweeps.result import SweepResult
from hush_simulations.sweeps.runner import Progress, run_sweep
from hush_simulations.sweeps.sweep import Sweep, SweepFile, bases_of, find_sweep, read_grid

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, eq=False)
class SweepOptions:
    """The arguments of `hush.sweep`, which documents them; None where one is left out."""

    grid: str | Path | Mapping[str, object] | SweepFile
    _: KW_ONLY
    out: str | Path
    scenario: str | Path | Mapping[str, object] | None = None
    trials: int | None = None
    seed: int | None = None
    confidence: float | None = None
    draw: str | None = None
    workers: int | None = None
    dask: str | None = field(default=None, repr=False)
    resume: bool = True
    progress: Progress | None = None

    def sweep(self) -> Sweep:
        """Return the sweep that the options describe; they replace what a sweep file says.

        Without a seed it gets that of the sweep in `out`, or a fresh one.
        """
        if self.dask is not None and self.workers is not None:
            raise OptionError("workers", "has no effect with dask=..., a cluster has its own; leave one of them out")
        asked = self._asked()
        seed = self.seed if self.seed is not None else asked.seed
        return Sweep(
            bases=asked.bases,
            grid=asked.grid,
            trials=whole_of("trials", _first(self.trials, asked.trials, TRIALS.example), TRIALS),
            seed=_seed_of(Path(self.out)) if seed is None else whole_of("seed", seed, SEED),
            confidence=confidence_of(_first(self.confidence, asked.confidence, 0.95)),
            drawing=check_drawing(_first(self.draw, asked.draw, "auto"), "draw"),
        )

    def _asked(self) -> SweepFile:
        match self.grid:
            case SweepFile():
                return self.grid
            case Mapping():
                grid = read_grid(self.grid)
                return SweepFile(bases=bases_of("heights" if self.scenario is None else self.scenario, grid), grid=grid)
            case str() | Path():
                found = find_sweep(str(self.grid), "grid")
                if self.scenario is None:
                    return found
                return replace(found, bases=bases_of(self.scenario, found.grid))
        raise OptionError(
            "grid", f"is of type {type(self.grid).__name__[:40]}; pass a mapping, or the path of a sweep file"
        )


@with_arguments_of(SweepOptions)
def sweep(options: SweepOptions) -> SweepResult:  # noqa: D417 - its arguments are the fields of the options
    """Simulate a scenario at every point of a grid, many times each: bias, error, coverage and width of its estimates.

    Every trial is estimated by the aggregator's own code. Cells are kept as they are made; a sweep that was stopped
    goes on when it is called again, and ends as if it had never been.

    Args:
        grid: values by dotted names of what a scenario file says, `{"task.epsilon": [0.5, 1, 2], "population.clients":
            [100, 1000]}`: all combinations are tried, and the last name varies fastest. Or the path of a sweep file,
            or the name of a sweep that comes with hush; other arguments then replace what it says.
        out: a directory, made if need be, which keeps the cells.
        scenario: a name in `hush.SCENARIOS`, the path of a TOML file, or a mapping of what such a file says; "heights"
            if left out. The grid may have an axis "scenario" instead.
        trials: of each cell; 200 if left out.
        seed: of people and noise: the same one gives the same figures. If left out, that of the sweep in `out`, or a
            fresh one.
        confidence: of the intervals; 0.95 if left out.
        draw: "tally" draws the sums of all reports of a trial at once, "devices" every report; "auto" the former.
        workers: processes of this machine that make cells; 1 if left out. The result is the same with any number.
            They run no code of the script, which needs no `if __name__ == "__main__":`.
        dask: address of the scheduler of a Dask cluster that makes them, "tcp://scheduler:8786".
        resume: whether `out` may have cells of this sweep already.
        progress: called with how many cells are made, and how many there are.

    Raises:
        OptionError: an argument that cannot be used, or a directory of another sweep; it is named, with the remedy.
        TaskError: the scenario is not legal.
        HushError: a worker ended before its cell was made; what was made is kept.
    """
    return run_sweep(
        options.sweep(),
        SweepDirectory(Path(options.out)),
        workers=1 if options.workers is None else whole_of("workers", options.workers, WORKERS),
        dask=options.dask,
        resume=options.resume,
        progress=options.progress or (lambda _made, _all: None),
    )


def _first(*found: _T | None) -> _T:
    return next(one for one in found if one is not None)


def _seed_of(out: Path) -> int:
    before = SweepDirectory(out).identity()
    seed = None if before is None else before.get("seed")
    return seed if isinstance(seed, int) else secrets.randbelow(1 << 32)
