"""From the options of `hush simulate` to an experiment: what goes together, and what is missing."""

from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from hush_common.domain import NumberDomain
from hush_common.epsilon import decimal_text, parse_epsilon
from hush_common.errors import OptionError
from hush_common.mechanisms.registry import known
from hush_simulations.brokers.choice import parse_broker
from hush_simulations.commands.options import (
    parse_confidence,
    parse_connections,
    parse_count,
    parse_engine,
    parse_rounds,
    parse_seed,
    parse_shares,
)
from hush_simulations.commands.own_data import OwnData, scenario_of_file
from hush_simulations.engines.experiment import Engine, Experiment
from hush_simulations.scenarios.library import SCENARIOS, find_scenario
from hush_simulations.scenarios.people import draw_people
from hush_simulations.scenarios.scenario import Scenario
from hush_simulations.scenarios.scenario_file import check_shares

__all__ = ["Request", "experiment_of"]

_OF_NUMBERS = ", ".join(kind.name for kind in known() if kind.fits is NumberDomain)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The options as given; None where one was left out. Those that need no other are parsed."""

    scenario: Annotated[
        str | None,
        typer.Argument(metavar="[SCENARIO|FILE.toml]", help=f"{', '.join(SCENARIOS)}; or a file. heights if left out."),
    ] = None
    clients: Annotated[int | None, typer.Option(metavar="N", parser=parse_count, help="Devices that report.")] = None
    epsilon: Annotated[str | None, typer.Option(metavar="X", help="Epsilon over all rounds, as a decimal number.")] = (
        None
    )
    mechanism: Annotated[str | None, typer.Option(metavar="NAME", help=f"{_OF_NUMBERS} or auto for numbers.")] = None
    rounds: Annotated[
        int | None,
        typer.Option(metavar="N", parser=parse_rounds, help="Number of rounds: how often every device is asked."),
    ] = None
    seed: Annotated[
        int | None, typer.Option(metavar="N", parser=parse_seed, help="Seed of the population; the noise stays random.")
    ] = None
    connections: Annotated[
        int | None,
        typer.Option(metavar="N", parser=parse_connections, help="Gateways that share the devices; 20 if not given."),
    ] = None
    confidence: Annotated[
        float, typer.Option(metavar="X", parser=parse_confidence, help="Confidence level of the intervals.")
    ] = 0.95
    broker: Annotated[
        str | None,
        typer.Option(metavar="BROKER", parser=parse_broker, help="embedded, mosquitto or mqtt://host:port."),
    ] = None
    engine: Annotated[
        Engine, typer.Option(metavar="NAME", parser=parse_engine, help="mqtt (real sockets) or memory.")
    ] = "mqtt"
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Your own data: every row is a client.")] = None
    column: Annotated[str | None, typer.Option(metavar="NAME", help="Column of the file.")] = None
    lower: Annotated[str | None, typer.Option(metavar="X", help="Smallest legal value, from public knowledge.")] = None
    upper: Annotated[str | None, typer.Option(metavar="X", help="Largest legal value, from public knowledge.")] = None
    unit: Annotated[str | None, typer.Option(metavar="TEXT", help="Unit of your own data.")] = None
    labels: Annotated[str | None, typer.Option(metavar="A,B,…", help="Legal labels of a column of categories.")] = None
    yes: Annotated[
        str | None, typer.Option(metavar="VALUE", help="For a yes/no question: the text of a cell that means yes.")
    ] = None
    missing: Annotated[
        str | None, typer.Option(metavar="HOW", help="Rows without a value: drop them, or replace as devices do.")
    ] = None
    delimiter: Annotated[
        str | None, typer.Option(metavar="SIGN", help="Of the file: comma, semicolon, tab, pipe or another.")
    ] = None
    encoding: Annotated[str | None, typer.Option(metavar="NAME", help="Of the file, as cp1252 or utf-16.")] = None
    header: Annotated[str | None, typer.Option(metavar="yes|no", help="Whether the first line names columns.")] = None
    decimal: Annotated[str | None, typer.Option(metavar="SIGN", help="Before decimals in the file: . or ,")] = None
    shares: Annotated[
        str | None,
        typer.Option(metavar="S,S,…", help="Shares of devices that take each epsilon on offer; equal if left out."),
    ] = None
    deterministic_noise: Annotated[
        bool, typer.Option("--deterministic-noise", help="Noise from the seed: repeatable and NOT private.")
    ] = False


def experiment_of(request: Request) -> Experiment:
    """The experiment that the options describe.

    Raises:
        OptionError: an option that is missing, superfluous or illegal.
        TaskError: the question is no legal task.
    """
    if request.engine == "memory" and request.broker is not None:
        raise OptionError("--broker", "a broker is not used with --engine memory; leave one of them out")
    scenario = _changed(_scenario(request), request)
    task = scenario.task()  # its mistakes come before the work of drawing a population
    asked = () if request.shares is None else parse_shares(request.shares)
    shares = check_shares("--shares", asked, task)
    people = draw_people(scenario, len(task.offers), request.seed, shares, seeded=request.deterministic_noise)
    return Experiment(
        scenario=scenario,
        values=people.values,
        choices=people.choices,
        engine=request.engine,
        broker=request.broker or "embedded",
        connections=request.connections,
        confidence=request.confidence,
        noise_seed=people.seed if request.deterministic_noise else None,
        seed=people.seed,
    )


def _changed(scenario: Scenario, request: Request) -> Scenario:
    epsilon = None if request.epsilon is None else decimal_text(parse_epsilon(request.epsilon, field="--epsilon"))
    scenario = scenario.asking(epsilon=epsilon, mechanism=request.mechanism)
    if request.rounds is not None and request.rounds > 1:
        scenario = scenario.repeated(request.rounds, datetime.now(UTC))
    return scenario if request.clients is None else scenario.of_size(request.clients)


def _scenario(request: Request) -> Scenario:
    own = OwnData(**{field.name: getattr(request, field.name) for field in fields(OwnData)})
    if own.csv is not None:
        return scenario_of_file(own, own.csv)
    own.check_unused()
    return find_scenario(request.scenario or "heights")
