"""From the options of `hush simulate` to an experiment: what goes together, and what is missing."""

from dataclasses import dataclass, replace
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
    parse_bound,
    parse_confidence,
    parse_connections,
    parse_count,
    parse_engine,
    parse_rounds,
    parse_seed,
    parse_shares,
)
from hush_simulations.engines.experiment import Engine, Experiment
from hush_simulations.scenarios.csv_file import read_column
from hush_simulations.scenarios.library import SCENARIOS, find_scenario
from hush_simulations.scenarios.people import draw_people
from hush_simulations.scenarios.population import Observed
from hush_simulations.scenarios.scenario import FROM_PUBLIC_KNOWLEDGE, Scenario, scenario_of_column, scenario_of_labels
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
    if isinstance(scenario.population, Observed) and request.clients is not None:
        raise OptionError("--clients", f"{request.clients} cannot be chosen: every row of the file is one client")
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
    return scenario if request.clients is None else replace(scenario, clients=request.clients)


def _scenario(request: Request) -> Scenario:
    if request.csv is None:
        for option in ("column", "lower", "upper", "unit", "labels"):
            if getattr(request, option) is not None:
                raise OptionError(f"--{option}", "describes a person's own data; name the file with --csv FILE as well")
        return find_scenario(request.scenario or "heights")
    scenario = None if request.scenario is None else find_scenario(request.scenario)
    if scenario is None:
        return _own_labels(request, request.csv) if request.labels else _own_numbers(request, request.csv)
    if scenario.document["domain"] != SCENARIOS["survey"].document["domain"]:
        raise OptionError("SCENARIO", f"{request.scenario} has people of its own; leave it out to use --csv")
    data = read_column(request.csv, request.column, bits=True)
    return replace(scenario, population=data, clients=len(data.values))


def _own_labels(request: Request, file: Path) -> Scenario:
    for option in ("lower", "upper", "unit"):
        if getattr(request, option) is not None:
            raise OptionError(f"--{option}", "is for numbers, and --labels for categories; leave one of them out")
    labels = tuple(label.strip() for label in (request.labels or "").split(","))
    return scenario_of_labels(read_column(file, request.column, labels=labels), labels)


def _own_numbers(request: Request, file: Path) -> Scenario:
    lower, upper = (_bound(option, getattr(request, option)) for option in ("lower", "upper"))
    if not lower < upper:
        raise OptionError("--lower", f"{request.lower} is not below --upper {request.upper}; swap or widen the bounds")
    data = read_column(file, request.column)
    return scenario_of_column(data, lower, upper, request.unit or "")


def _bound(option: str, text: str | None) -> float:
    if text is None:
        side = "smallest" if option == "lower" else "largest"
        raise OptionError(f"--{option}", f"is missing; state the {side} legal value {FROM_PUBLIC_KNOWLEDGE}")
    return parse_bound(f"--{option}", text)
