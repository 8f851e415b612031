"""`hush simulate`: a population of devices, a broker and an aggregator; one table at the end."""

import asyncio
import json
import logging
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from hush_aggregator.charts import shows_signs
from hush_common.epsilon import WEAK_ABOVE, decimal_text
from hush_common.errors import BrokerError, printable
from hush_common.terminal import show
from hush_simulations.brokers.choice import is_external
from hush_simulations.commands.fields_as_options import with_options_of
from hush_simulations.commands.interrupt import INTERRUPTED, run_to_end, stopped_in_words
from hush_simulations.commands.own_data import sentinels
from hush_simulations.commands.pictures import PlotOption, ThemeOption, check_theme
from hush_simulations.commands.record import Record, read_record, record_of
from hush_simulations.commands.simulate_options import Request, experiment_of
from hush_simulations.display.charts import charts_of
from hush_simulations.display.files import prepare, to_json, write_files
from hush_simulations.display.progress import show_progress
from hush_simulations.display.style import Theme
from hush_simulations.display.table import every_figure, run_blocks
from hush_simulations.engines.bulk import engine as bulk
from hush_simulations.engines.bulk.draws import StoppedError
from hush_simulations.engines.experiment import Experiment
from hush_simulations.engines.live import simulate
from hush_simulations.results.differences import differences, is_repeatable
from hush_simulations.results.run import Run

__all__ = ["app"]

_MOST_NAMED = 5

app: typer.Typer = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
@with_options_of(Request)
def run(
    request: Request,
    *,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Directory to write result.json, reports.csv and the picture to.")
    ] = None,
    theme: ThemeOption = None,
    plot: PlotOption = None,
    rerun: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Repeat the run that --out DIR kept, and name what differs.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    in_full: Annotated[bool, typer.Option("--all", help="Print every figure of --json below the table.")] = False,
) -> None:
    """Simulate devices that answer a question under local differential privacy, and compare with the truth."""
    with stopped_in_words():
        _run(request, _Shown(out, theme, plot, as_json=as_json, in_full=in_full), rerun)


@dataclass(frozen=True, slots=True)
class _Shown:
    """What becomes of a run: as the options of `run` say."""

    out: Path | None
    theme: Theme | None
    plot: str | None
    as_json: bool
    in_full: bool


def _run(request: Request, shown: _Shown, rerun: Path | None) -> None:
    record = None if rerun is None else read_record(rerun, request)
    if record is not None:
        request = record.request
    check_theme(shown.theme, shown.out)
    directory = None if shown.out is None else prepare(shown.out)
    experiment = experiment_of(request)
    _warn(experiment)
    done = _simulate(experiment)
    if done.stopped and not done.accepted:
        _say("stopped")
        raise typer.Exit(INTERRUPTED)
    if shown.as_json:
        print(to_json(done))
    else:
        charts = () if shown.plot is None else charts_of(done, signs=shows_signs())
        show((*run_blocks(done), *charts, *(every_figure(done.to_document()) if shown.in_full else ())))
    if directory is not None:
        written = write_files(directory, done, shown.theme or "light", record_of(request, experiment))
        _say("wrote " + ", ".join(map(str, written)))
    _complain_of_losses(done)
    if done.stopped:
        _say("interrupted")
        raise typer.Exit(INTERRUPTED)
    if record is not None:
        _compare(record, done)


def _compare(record: Record, done: Run) -> None:
    """Say what differs from the run that was repeated; status 1 if something does."""
    for remark in record.remarks:
        _say(remark)
    now: object = json.loads(to_json(done))
    differing = differences(record.result, now)
    if not is_repeatable(now):
        _say("the noise came from the operating system, and is another; only the people were repeated")
    if not differing:
        _say("nothing else differs" if record.remarks else "nothing differs")
        return
    more = f", and {len(differing) - _MOST_NAMED} more" if len(differing) > _MOST_NAMED else ""
    _say(f"differs: {'; '.join(differing[:_MOST_NAMED])}{more}")
    raise typer.Exit(1)


def _simulate(experiment: Experiment) -> Run:
    for name in ("hush", "hush_client"):  # an outage is told once, by us, if it lasts
        logging.getLogger(name).addHandler(logging.NullHandler())
    total = experiment.clients * experiment.task.rounds
    stop = asyncio.Event()
    with show_progress(total) as (progress, look):
        if experiment.engine == "bulk":
            try:
                return Run.of(experiment, run_to_end(bulk.simulate(experiment, progress, stop), stop))
            except StoppedError:
                _say("stopped")
                raise typer.Exit(INTERRUPTED) from None
        return Run.of(experiment, run_to_end(simulate(experiment, progress, look, stop), stop))


def _warn(experiment: Experiment) -> None:
    task = experiment.task
    if experiment.noise_seed is not None:
        _say("WARNING: the noise is NOT private: it follows from the seed, and whoever knows the seed can subtract it")
    if task.epsilon > WEAK_ABOVE:
        shown = decimal_text(task.epsilon)
        _say(f"WARNING: epsilon {shown} protects little; a real device refuses it unless its owner agrees")
    for hint in sentinels(experiment.scenario.population, task.domain):
        _say(hint)


def _complain_of_losses(done: Run) -> None:
    if done.lost and not done.experiment.scenario.faults.forgotten:
        external = is_external(done.experiment.broker)
        remedy = "see its access rules and queue limits" if external else "try --broker mosquitto"
        raise BrokerError(done.broker, f"acknowledged {done.lost} reports that never reached the aggregator; {remedy}")


def _say(text: str) -> None:
    print(f"hush: {printable(text)}", file=sys.stderr)
