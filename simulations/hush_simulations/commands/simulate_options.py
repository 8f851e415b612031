"""From the options of `hush simulate` to an experiment: what goes together, and what is missing."""

from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Annotated

import typer

from hush_common.broker_url import BrokerUrl
from hush_common.domain import NumberDomain
from hush_common.epsilon import decimal_text, parse_epsilon
from hush_common.errors import OptionError
from hush_common.mechanisms.registry import known
from hush_simulations.brokers.choice import is_local, parse_broker
from hush_simulations.commands.csv_options import (
    Column,
    Csv,
    Decimal,
    Delimiter,
    Encoding,
    Header,
    Labels,
    Missing,
    Yes,
)
from hush_simulations.commands.options import (
    parse_confidence,
    parse_connections,
    parse_count,
    parse_drawing,
    parse_engine,
    parse_rounds,
    parse_seed,
    parse_shares,
    parse_workers,
)
from hush_simulations.commands.own_data import OwnData, scenario_of_file
from hush_simulations.engines.experiment import Drawing, Engine, Experiment, bulk_experiment
from hush_simulations.engines.limits import check_size
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
        Engine, typer.Option(metavar="NAME", parser=parse_engine, help="mqtt (real sockets), memory or bulk.")
    ] = "mqtt"
    draw: Annotated[
        Drawing | None,
        typer.Option(metavar="WHAT", parser=parse_drawing, help="In bulk: tally (at once) or devices (one by one)."),
    ] = None
    workers: Annotated[
        int | None, typer.Option(metavar="N", parser=parse_workers, help="In bulk: how many draw devices at a time.")
    ] = None
    dask: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="In bulk: a Dask cluster draws devices, tcp://host:8786.")
    ] = None
    csv: Csv = None
    column: Column = None
    lower: Annotated[str | None, typer.Option(metavar="X", help="Smallest legal value, from public knowledge.")] = None
    upper: Annotated[str | None, typer.Option(metavar="X", help="Largest legal value, from public knowledge.")] = None
    unit: Annotated[str | None, typer.Option(metavar="TEXT", help="Unit of your own data.")] = None
    labels: Labels = None
    yes: Yes = None
    missing: Missing = None
    delimiter: Delimiter = None
    encoding: Encoding = None
    header: Header = None
    decimal: Decimal = None
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
    _check_engine(request)
    scenario = _changed(_scenario(request), request)
    _check_noise(request, scenario)
    task = scenario.task()  # its mistakes come before the work of drawing a population
    asked = () if request.shares is None else parse_shares(request.shares)
    shares = check_shares("--shares", asked, task)
    check_size(scenario.clients, request.engine, "--clients")
    if request.engine == "bulk":
        return bulk_experiment(
            scenario,
            shares,
            request.seed,
            confidence=request.confidence,
            drawing=request.draw or "auto",
            workers=request.workers or 1,
            dask=request.dask,
        )
    people = draw_people(scenario, len(task.offers), request.seed, shares, seeded=request.deterministic_noise)
    return Experiment(
        scenario=scenario,
        values=people.values,
        choices=people.choices,
        groups=people.groups,
        engine=request.engine,
        broker=request.broker or "embedded",
        connections=request.connections,
        confidence=request.confidence,
        noise_seed=people.seed if request.deterministic_noise else None,
        seed=people.seed,
    )


def _check_engine(request: Request) -> None:
    """Options that say nothing to the engine that is asked for."""
    if request.engine != "mqtt" and request.broker is not None:
        name = request.engine
        raise OptionError("--broker", f"a broker is not used with --engine {name}; leave one of them out")
    if request.dask is not None and request.workers is not None:
        raise OptionError("--workers", "says nothing with --dask, where the cluster has its own; leave one of them out")
    superfluous = {"--connections": request.connections, "--deterministic-noise": request.deterministic_noise or None}
    for option, given in superfluous.items():
        if request.engine == "bulk" and given is not None:
            raise OptionError(option, "says nothing to --engine bulk, which has no devices; leave one of them out")
    for option, of_bulk in (("--draw", request.draw), ("--workers", request.workers), ("--dask", request.dask)):
        if request.engine != "bulk" and of_bulk is not None:
            raise OptionError(option, "is for --engine bulk; add that, or leave it out")


def _check_noise(request: Request, scenario: Scenario) -> None:
    """Noise that a guess of the seed removes must not take somebody's data to other machines."""
    broker = request.broker or "embedded"
    if request.deterministic_noise and scenario.has_own_data and not is_local(broker):
        raise OptionError(
            "--deterministic-noise",
            f"would send your own data to {BrokerUrl.parse(broker)} with noise that anyone who guesses the seed can "
            "subtract; leave it out, or take a broker on this machine (--broker embedded)",
        )


def _changed(scenario: Scenario, request: Request) -> Scenario:
    epsilon = None if request.epsilon is None else decimal_text(parse_epsilon(request.epsilon, field="--epsilon"))
    scenario = scenario.asking(epsilon=epsilon, mechanism=request.mechanism)
    if (rounds := request.rounds or scenario.rounds) > 1:
        scenario = scenario.repeated(rounds, datetime.now(UTC))
    return scenario if request.clients is None else scenario.of_size(request.clients)


def _scenario(request: Request) -> Scenario:
    own = OwnData(**{field.name: getattr(request, field.name) for field in fields(OwnData)})
    if own.csv is not None:
        return scenario_of_file(own, own.csv)
    own.check_unused()
    return find_scenario(request.scenario or "heights")
