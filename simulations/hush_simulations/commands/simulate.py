"""`hush simulate`: a population of devices, a broker and an aggregator; one table at the end."""

import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

from hush_common.domain import NumberDomain
from hush_common.epsilon import WEAK_ABOVE, decimal_text
from hush_common.errors import BrokerError
from hush_common.mechanisms.registry import known
from hush_simulations.brokers.choice import is_external, parse_broker
from hush_simulations.commands.interrupt import run_to_end
from hush_simulations.commands.options import (
    parse_confidence,
    parse_connections,
    parse_count,
    parse_rounds,
    parse_seed,
    parse_shares,
)
from hush_simulations.commands.simulate_options import Request, experiment_of
from hush_simulations.display.files import prepare, to_json, write_files
from hush_simulations.display.progress import following
from hush_simulations.display.table import print_table
from hush_simulations.engines.experiment import Experiment
from hush_simulations.engines.limits import check_engine
from hush_simulations.engines.live import simulate
from hush_simulations.results.run import Run
from hush_simulations.scenarios.library import SCENARIOS

__all__ = ["app"]

_OF_NUMBERS = ", ".join(kind.name for kind in known() if kind.fits is NumberDomain)

app: typer.Typer = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def run(
    scenario: Annotated[
        str | None,
        typer.Argument(metavar="[SCENARIO|FILE.toml]", help=f"{', '.join(SCENARIOS)}; or a file. heights if left out."),
    ] = None,
    *,
    clients: Annotated[int | None, typer.Option(parser=parse_count, help="Devices that report.")] = None,
    epsilon: Annotated[str | None, typer.Option(help="Privacy loss over all rounds, exact decimal text.")] = None,
    mechanism: Annotated[str | None, typer.Option(help=f"{_OF_NUMBERS} or auto for numbers.")] = None,
    rounds: Annotated[int | None, typer.Option(parser=parse_rounds, help="Times everybody is asked.")] = None,
    seed: Annotated[int | None, typer.Option(parser=parse_seed, help="Fixes the population, not the noise.")] = None,
    connections: Annotated[
        int | None, typer.Option(parser=parse_connections, help="Gateways that share the devices; 20 if not given.")
    ] = None,
    confidence: Annotated[float, typer.Option(parser=parse_confidence, help="Coverage of the error bars.")] = 0.95,
    broker: Annotated[
        str | None, typer.Option(parser=parse_broker, help="embedded, mosquitto or mqtt://host:port.")
    ] = None,
    engine: Annotated[str, typer.Option(help="mqtt (real sockets) or memory.")] = "mqtt",
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Your own data: every row is a client.")] = None,
    column: Annotated[str | None, typer.Option(metavar="NAME", help="Column of the file.")] = None,
    lower: Annotated[str | None, typer.Option(help="Smallest legal value, from public knowledge.")] = None,
    upper: Annotated[str | None, typer.Option(help="Largest legal value, from public knowledge.")] = None,
    unit: Annotated[str | None, typer.Option(help="Unit of your own data.")] = None,
    labels: Annotated[str | None, typer.Option(metavar="A,B,…", help="Legal labels of a column of categories.")] = None,
    shares: Annotated[
        str | None, typer.Option(metavar="S,S,…", help="Of devices that take each epsilon on offer; equal if left out.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep result.json, reports.csv and result.png there.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    deterministic_noise: Annotated[
        bool, typer.Option("--deterministic-noise", help="Noise from the seed: repeatable and NOT private.")
    ] = False,
) -> None:
    """Simulate devices that answer a question under local differential privacy, and compare with the truth."""
    request = Request(
        scenario=scenario,
        clients=clients,
        epsilon=epsilon,
        mechanism=mechanism,
        rounds=rounds,
        seed=seed,
        connections=connections,
        confidence=confidence,
        broker=broker,
        engine=check_engine(engine, "--engine"),
        csv=csv,
        column=column,
        lower=lower,
        upper=upper,
        unit=unit,
        labels=labels,
        shares=() if shares is None else parse_shares(shares),
        deterministic_noise=deterministic_noise,
    )
    directory = None if out is None else prepare(out)
    experiment = experiment_of(request)
    _warn(experiment)
    done = _simulate(experiment)
    if as_json:
        print(to_json(done))
    else:
        print_table(done)
    if directory is not None:
        _say("kept " + ", ".join(map(str, write_files(directory, done))))
    _complain_of_losses(done)


def _simulate(experiment: Experiment) -> Run:
    for name in ("hush", "hush_client"):  # an outage is told once, by us, if it lasts
        logging.getLogger(name).addHandler(logging.NullHandler())
    total = len(experiment.values) * experiment.scenario.task().rounds
    with following(total) as (progress, look):
        return Run.of(experiment, run_to_end(simulate(experiment, progress, look)))


def _warn(experiment: Experiment) -> None:
    task = experiment.scenario.task()
    if experiment.noise_seed is not None:
        _say("WARNING: the noise is NOT private: it follows from the seed, and whoever knows the seed can subtract it")
    if task.epsilon > WEAK_ABOVE:
        shown = decimal_text(task.epsilon)
        _say(f"WARNING: epsilon {shown} protects little; a real device refuses it unless its owner agrees")


def _complain_of_losses(done: Run) -> None:
    if done.lost:
        external = is_external(done.experiment.broker)
        remedy = "see its access rules and queue limits" if external else "try --broker mosquitto"
        raise BrokerError(done.broker, f"acknowledged {done.lost} reports that never reached the aggregator; {remedy}")


def _say(text: str) -> None:
    print(f"hush: {text}", file=sys.stderr)
