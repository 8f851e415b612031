"""`hush sweep`: a scenario at every point of a grid, many trials of each; one table at the end."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from hush_aggregator.publish.charts import shows_signs
from hush_common.errors import OptionError, printable
from hush_common.formatting import whole
from hush_common.options import OUTPUT, Argument, Commands, Option
from hush_common.output import files_first, print_json
from hush_common.terminal import Sentence, note, show
from hush_simulations.api import sweep as api
from hush_simulations.commands.options import (
    INTERRUPTED,
    SIMULATED,
    JsonOption,
    PlotOption,
    ThemeOption,
    in_words_of_the_command,
    parse_seed,
    parse_trials,
    parse_workers,
)
from hush_simulations.display.charts import charts_of_sweep
from hush_simulations.display.progress import show_progress
from hush_simulations.display.style import Theme, write_picture
from hush_simulations.display.sweep import pictures_of_sweep, sweep_blocks
from hush_simulations.sweeps.directory import SweepDirectory, check_parquet, write_csv, write_parquet
from hush_simulations.sweeps.result import SweepResult
from hush_simulations.sweeps.sweep import SWEEPS, Sweep, find_sweep

_TERMINATED = 128 + signal.SIGTERM
"""How it ends by SIGTERM."""

_CSV, _PARQUET = "sweep.csv", "sweep.parquet"

app: Commands = Commands()


class _TerminatedError(BaseException):
    """SIGTERM arrived. Like KeyboardInterrupt it is not an Exception, so that no handler of errors catches it."""


@app.command()
def run(
    sweep: Annotated[
        str, Argument(values=SWEEPS, metavar="SWEEP|FILE.toml", help=f"{', '.join(SWEEPS)}; or a file with a grid.")
    ],
    *,
    trials: Annotated[
        int | None, Option(metavar="N", help="Trials of each cell; 200 if left out.", parser=parse_trials)
    ] = None,
    seed: Annotated[
        int | None, Option(group=SIMULATED, metavar="N", help="Seed of people and noise.", parser=parse_seed)
    ] = None,
    workers: Annotated[
        int | None,
        Option(group=SIMULATED, metavar="N", help="Processes that make cells at a time.", parser=parse_workers),
    ] = None,
    dask: Annotated[
        str | None,
        Option(
            group=SIMULATED, metavar="ADDRESS", help="Scheduler of a Dask cluster that makes them, tcp://host:8786."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        Option(
            group=OUTPUT, metavar="DIR", help="Directory that keeps the cells; the same command goes on there. Needed."
        ),
    ] = None,
    status: Annotated[bool, Option("--status", help="Show which cells are made, and stop.")] = False,
    theme: ThemeOption = None,
    plot: PlotOption = None,
    parquet: Annotated[
        bool, Option("--parquet", group=OUTPUT, help="Write sweep.parquet as well as sweep.csv.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Simulate a scenario at every point of a grid, many times, and measure what its estimates are worth there."""
    grid = find_sweep(sweep)  # a wrong name is the first thing to tell
    if out is None:
        raise OptionError("--out", "is missing; name a directory that keeps the cells, as in --out sweep")
    given: dict[str, Any] = {"grid": grid, "out": out, "trials": trials, "workers": workers, "dask": dask}
    directory = SweepDirectory(out)
    with in_words_of_the_command(given):
        asked = api.SweepOptions(**given, seed=seed).sweep()
    if status:
        _show_status(asked, directory, as_json=as_json)
        return
    if parquet:
        check_parquet()
    note(_size(asked))
    with _stopped_by_signals(directory, asked), show_progress(with_rate=True) as (tick, _):
        done = api.sweep(**given, seed=asked.seed, progress=partial(tick, "cells"))
    with files_first(out, lambda place: _written(done, place, theme or "light", parquet=parquet)):
        if as_json:
            print_json(done.to_document())
        else:
            charts = () if plot is None else charts_of_sweep(done, signs=shows_signs())
            show([*sweep_blocks(done), Sentence(""), *charts])


def _written(done: SweepResult, out: Path, theme: Theme, *, parquet: bool) -> list[Path]:
    tables = [write_csv(done, out / _CSV), *([write_parquet(done, out / _PARQUET)] if parquet else [])]
    return tables + _drawn(done, out, theme)


def _drawn(done: SweepResult, out: Path, theme: Theme) -> list[Path]:
    try:
        return [
            path
            for name, picture in pictures_of_sweep(done).items()
            for path in write_picture(picture, out, name, theme)
        ]
    except OSError as error:
        raise OptionError("--out", f"{out} cannot be written ({error.strerror}); make room there") from error


def _size(sweep: Sweep) -> str:
    cells = sweep.grid.cells
    return (
        f"{whole(cells)} cells, all combinations of {sweep.grid.describe()}; "
        f"{whole(sweep.trials)} trials each, {whole(cells * sweep.trials)} in all; seed {sweep.seed}"
    )


def _show_status(sweep: Sweep, directory: SweepDirectory, *, as_json: bool) -> None:
    if directory.identity() is None:
        raise OptionError("--out", f"{directory.path} has no sweep; leave --status out to begin one")
    directory.check(sweep)
    cells, busy = directory.states(sweep.works()), directory.is_busy()
    total = sum(cells.values())
    if as_json:
        print_json({"cells": total, **cells, "busy": busy})
        return
    counts = ", ".join(f"{whole(count)} {state}" for state, count in cells.items())
    others = "; another process is making cells" if busy else ""
    print(printable(f"{directory.path}: {whole(total)} cells: {counts}{others}"))


@contextmanager
def _stopped_by_signals(directory: SweepDirectory, sweep: Sweep) -> Iterator[None]:
    """End by Ctrl-C or SIGTERM with a line about the cells that are made."""

    def end(_: int, __: object) -> NoReturn:
        raise _TerminatedError

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    except (KeyboardInterrupt, _TerminatedError) as stopped:
        cells = directory.states(sweep.works())
        kept = f"{whole(cells.get('made', 0))} of {whole(sum(cells.values()))} cells are kept"
        note(f"stopped: {kept} in {directory.path}; the same command goes on with the rest")
        raise typer.Exit(_TERMINATED if isinstance(stopped, _TerminatedError) else INTERRUPTED) from None
    finally:
        signal.signal(signal.SIGTERM, before)
