"""`hush.simulate`: devices, a broker and an aggregator from a program or a notebook."""

import asyncio
import logging
import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import ParamSpec, TypeVar

from hush_aggregator.estimate.result import Result
from hush_common.aio import run_blocking
from hush_common.broker_url import BrokerUrl
from hush_common.domain import Domain, Readable, plain
from hush_common.epsilon import WEAK_ABOVE, decimal_text, parse_epsilon
from hush_common.errors import OptionError
from hush_common.task import make_task
from hush_simulations.brokers.choice import is_local, parse_broker
from hush_simulations.engines.experiment import (
    CLIENTS,
    CONNECTIONS,
    MOST_OVER_MQTT,
    ROUNDS,
    SEED,
    WORKERS,
    Engine,
    Experiment,
    Outcome,
    Whole,
    bulk_experiment,
    check_confidence,
    check_drawing,
    check_engine,
    check_size,
)
from hush_simulations.results.run import Run
from hush_simulations.scenarios.behaviour import NO_FAULTS
from hush_simulations.scenarios.population import Observed, check_treatment
from hush_simulations.scenarios.scenario import FROM_PUBLIC_KNOWLEDGE, Scenario, draw_people, scenario_of_data
from hush_simulations.scenarios.scenario_file import check_shares, find_scenario, read_scenario

Epsilon = str | int | float | Fraction | Decimal
"""A float is the decimal number that Python shows for it: 0.1 is one tenth."""

Progress = Callable[[int, int], object]
"""Called with the number of answers that are counted, refused or declined so far, and with that of all."""

Look = Callable[[Result], None]
"""Called with the result so far, a few times a second: its `anytime` intervals may be watched, and no others."""

_DEFAULT = "heights"
_DOMAIN = "domain={'kind': 'number', 'lower': 0, 'upper': 110, 'unit': 'years'}"


_P = ParamSpec("_P")
_O = TypeVar("_O")
_T = TypeVar("_T")


def with_arguments_of(options: Callable[_P, _O]) -> Callable[[Callable[[_O], _T]], Callable[_P, _T]]:
    """Let a function of options take their fields as arguments, so that these are listed once."""

    def decorate(run: Callable[[_O], _T]) -> Callable[_P, _T]:
        @wraps(run)
        def call(*args: _P.args, **given: _P.kwargs) -> _T:
            return run(options(*args, **given))

        returned = signature(run).return_annotation
        call.__signature__ = signature(options).replace(return_annotation=returned)  # type: ignore[attr-defined] # read by inspect
        return call

    return decorate


@dataclass(frozen=True, slots=True, eq=False)
class SimulationOptions:
    """The arguments of `hush.simulate`, which documents them; None where one is left out."""

    scenario: str | Path | Scenario = _DEFAULT
    _: KW_ONLY
    data: object = field(default=None, repr=False)
    column: str | None = None
    domain: Mapping[str, object] | Domain | None = None
    missing: str | None = None
    csv: Mapping[str, str] | None = None
    epsilon: Epsilon | None = None
    mechanism: str | None = None
    clients: int | None = None
    rounds: int | None = None
    shares: Sequence[float] | None = None
    engine: str | None = None
    broker: str | None = field(default=None, repr=False)
    connections: int | None = None
    draw: str | None = None
    workers: int | None = None
    dask: str | None = field(default=None, repr=False)
    seed: int | None = None
    deterministic_noise: bool = False
    confidence: float = 0.95
    progress: Progress | None = None
    look: Look | None = None
    stop: asyncio.Event | None = None

    def experiment(self) -> Experiment:
        """Return the experiment that the options describe, or raise OptionError or TaskError."""
        scenario = self._changed(self.asked())
        engine = self._usual_engine(scenario) if self.engine is None else check_engine(str(self.engine), "engine")
        self._check_engine(engine)
        broker = "embedded" if self.broker is None else parse_broker(str(self.broker), "broker")
        self._check_noise(scenario, broker)
        task, confidence = scenario.task(), confidence_of(self.confidence)
        shares = check_shares("shares", tuple(self.shares or ()), task)
        check_size(scenario.clients, engine, "clients")
        seed, connections, workers = (
            None if value is None else whole_of(name, value, limits)
            for name, value, limits in (
                ("seed", self.seed, SEED),
                ("connections", self.connections, CONNECTIONS),
                ("workers", self.workers, WORKERS),
            )
        )
        drawing = check_drawing("auto" if self.draw is None else str(self.draw), "draw")
        if engine == "bulk":
            return bulk_experiment(
                scenario, shares, seed, confidence=confidence, drawing=drawing, workers=workers or 1, dask=self.dask
            )
        people = draw_people(scenario, len(task.offers), seed, shares, seeded=self.deterministic_noise)
        return Experiment(
            scenario=scenario,
            values=people.values,
            choices=people.choices,
            groups=people.groups,
            engine=engine,
            broker=broker,
            connections=connections,
            confidence=confidence,
            noise_seed=people.seed if self.deterministic_noise else None,
            seed=people.seed,
        )

    def _usual_engine(self, scenario: Scenario) -> Engine:
        """Return the engine for those who named none: bulk for many devices, unless something needs real ones."""
        sticky = scenario.document.get("repeat") == "sticky" and bool(scenario.panel)
        needed = sticky or scenario.faults != NO_FAULTS
        asked = self.broker is not None or self.connections is not None or self.deterministic_noise
        return "mqtt" if needed or asked or scenario.clients <= MOST_OVER_MQTT else "bulk"

    def _check_engine(self, engine: Engine) -> None:
        if engine != "mqtt" and self.broker is not None:
            raise OptionError("broker", f"a broker is not used with engine={engine!r}; leave one of them out")
        if self.dask is not None and self.workers is not None:
            raise OptionError("workers", "has no effect with dask=..., a cluster has its own; leave one of them out")
        of_devices = {"connections": self.connections, "deterministic_noise": self.deterministic_noise or None}
        of_bulk = {"draw": self.draw, "workers": self.workers, "dask": self.dask}
        for name, given in (of_devices if engine == "bulk" else of_bulk).items():
            if given is None:
                continue
            if engine == "bulk":
                raise OptionError(name, "has no effect with engine='bulk', which has no devices; leave one of them out")
            raise OptionError(name, "is for engine='bulk'; add that, or leave it out")

    def _check_noise(self, scenario: Scenario, broker: str) -> None:
        """Refuse to send a person's data to another machine with noise that follows from a seed."""
        if self.deterministic_noise and scenario.has_own_data and not is_local(broker):
            raise OptionError(
                "deterministic_noise",
                f"would send your own data to {BrokerUrl.parse(broker)} with noise that anyone who guesses the seed "
                "can subtract; leave it out, or take a broker on this machine (broker='embedded')",
            )

    def _changed(self, scenario: Scenario) -> Scenario:
        epsilon = None if self.epsilon is None else epsilon_of(self.epsilon)
        scenario = scenario.asking(epsilon=epsilon, mechanism=self.mechanism)
        rounds = scenario.rounds if self.rounds is None else whole_of("rounds", self.rounds, ROUNDS)
        if rounds > 1:
            scenario = scenario.repeated(rounds, datetime.now(UTC))
        if self.clients is None:
            return scenario
        return scenario.of_size(whole_of("clients", self.clients, CLIENTS))

    def asked(self) -> Scenario:
        """Return the scenario before it is changed: a named one, or the person's own data."""
        if self.data is None:
            for name in ("column", "domain", "missing", "csv"):
                if getattr(self, name) is not None:
                    raise OptionError(name, "describes your data; pass the data as data=...")
            return self._named()
        if self.domain is None:
            if self.scenario == _DEFAULT:
                raise OptionError(
                    "domain", f"is missing; state the legal values {FROM_PUBLIC_KNOWLEDGE}; as in {_DOMAIN}"
                )
            scenario = self._named()
            population = self._observed(scenario.task().domain)
            return replace(scenario, population=population, clients=len(population.values))
        if self.scenario != _DEFAULT:
            raise OptionError("domain", "the scenario has its own domain; leave out the domain, or the scenario")
        document = self.domain.document() if isinstance(self.domain, Readable) else self.domain
        if not isinstance(document, Mapping):
            raise OptionError(
                "domain", f"is of type {type(self.domain).__name__[:40]}; pass a mapping, as in {_DOMAIN}"
            )
        task = make_task({"id": "own-data", "epsilon": "1", "domain": document})  # checked before the data is read
        return scenario_of_data(self._observed(task.domain), document)

    def _observed(self, domain: Domain) -> Observed:
        from hush_simulations.scenarios.python_data import observed  # noqa: PLC0415 - narwhals takes a tenth of a second

        return observed(self.data, domain, self.column, check_treatment("missing", self.missing), self.csv)

    def _named(self) -> Scenario:
        match self.scenario:
            case Scenario():
                return self.scenario
            case Path():
                return read_scenario(self.scenario)
            case str():
                return find_scenario(self.scenario, "scenario")
        raise OptionError(
            "scenario", f"is of type {type(self.scenario).__name__[:40]}; pass a name, a path or a Scenario"
        )


def epsilon_of(epsilon: Epsilon) -> str:
    """Return the decimal text of an epsilon that was passed as an argument."""
    exact = plain(epsilon)
    match exact:
        case float():
            exact = format(Decimal(repr(exact)), "f")
        case Decimal():
            exact = format(exact, "f")
        case Fraction():
            exact = decimal_text(exact)
    return decimal_text(parse_epsilon(exact))


def whole_of(name: str, value: object, limits: Whole) -> int:
    """Return a whole number that was passed as the argument `name`."""
    remedy = f"pass {limits.meaning}, as in {name}={limits.example}"
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise OptionError(name, f"{str(value)[:40]!r} is not a whole number; {remedy}")
    return limits.check(operator.index(value), name, remedy)


def confidence_of(value: float) -> float:
    """Return a confidence that was passed as an argument."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if not abs(number) < float("inf"):
        raise OptionError("confidence", f"{str(value)[:40]!r} is not a finite number; pass one, as in confidence=0.95")
    return check_confidence(number, "confidence", str(value))


class SimulationWarning(UserWarning):
    """Something about a simulation that a person should know before relying on it."""


class LostReportsWarning(RuntimeWarning):
    """The broker acknowledged reports that never reached the aggregator."""


@with_arguments_of(SimulationOptions)
def simulate(options: SimulationOptions) -> Run:  # noqa: D417 - its arguments are the fields of the options
    """Simulate devices that answer a question under local differential privacy, and compare with the truth.

    What runs is what is deployed: the real client and the real aggregator. Where an event loop runs already, as in a
    notebook, the simulation has a separate thread, in which `progress` is called. Ctrl-C ends it.

    Args:
        scenario: a name in `hush.SCENARIOS`, the path of a TOML file, or a `hush.Scenario`.
        data: values of your own, one device each: a list, a numpy array, a series or a data frame (pandas, polars,
            pyarrow), or the path of a CSV or Parquet file, read as the command reads it. With a `domain` they are a
            question of their own, without one the people of another `scenario`.
        column: which column of a data frame or a file; a vector takes those that are named as its coordinates.
        domain: the legal values of `data`, as in a task file or as an object, from public knowledge.
        missing: what happens to rows of `data` without a value (None, NaN): "drop" leaves them out, "replace" asks
            devices without a value; the result counts them. Without it they are refused.
        csv: of a CSV file what is not certain: "delimiter", "encoding", "header", "decimal"; texts that mark a missing
            value ("na", with commas between); "fold_case", "yes" if capitals do not matter; and for a yes/no question
            the text that means "yes".
        epsilon: privacy loss over all rounds; smaller is more private.
        mechanism: how a device perturbs, by its name in a task file; "auto" for the best there is.
        clients: how many devices report; with `data`, each row is one, or this many are drawn from the rows, with
            replacement.
        rounds: how often every device is asked.
        shares: of the devices that take each epsilon on offer, whatever they add up to; equal if left out.
        engine: "mqtt" (real sockets), "memory", or "bulk": no devices and no broker, but numbers drawn from the same
            law; for up to 10^9 devices. If left out, "mqtt" up to 20 000 devices, and wherever the scenario or an
            argument needs it, else "bulk".
        broker: with "mqtt": "embedded" if left out, "mosquitto", or the address of one that runs.
        connections: gateways that share the devices; 20 with "mqtt" if left out.
        draw: in bulk, "tally" draws the sums of all reports at once, "devices" every report; "auto" the former where
            that says everything, or there are many.
        workers: in bulk, how many draw devices at a time; 1 if left out. The result is the same with any number.
        dask: in bulk, the scheduler of a Dask cluster whose workers draw devices instead, "tcp://scheduler:8786".
        seed: fixes the population, not the noise; in bulk the noise too.
        deterministic_noise: draws the noise from the seed: repeatable, and NOT private.
        confidence: coverage of the error bars.
        progress: called as the answers are counted; what it raises ends the simulation.
        look: called with the result so far, a few times a second; not in bulk.
        stop: once it is set, by `progress` for example, no further device is asked, and what was sent is counted.

    Raises:
        OptionError: an argument that cannot be used; it is named, with the remedy.
        TaskError: the question is not a legal task.
        BrokerError: no broker, a login refused, or a connection that stays lost.
    """
    return run_blocking(_run(options))


@with_arguments_of(SimulationOptions)
async def simulate_async(options: SimulationOptions) -> Run:
    """As `simulate`, in the event loop of the caller."""
    return await _run(options)


async def _run(options: SimulationOptions) -> Run:
    experiment = options.experiment()
    for name in ("hush", "hush_client"):  # an outage that lasts is an error, reported once
        logging.getLogger(name).addHandler(logging.NullHandler())
    _warn(experiment)
    total, raised = experiment.clients * experiment.task.rounds, list[Exception]()

    def count(counted: int) -> None:
        try:
            if options.progress is not None:
                options.progress(counted, total)
        except Exception as error:
            raised.append(error)
            raise

    try:
        run = Run.of(experiment, await _outcome(experiment, count, options))
    except ExceptionGroup as errors:
        raise (raised or [errors])[0] from None
    if run.lost and not experiment.scenario.faults.forgotten:
        text = f"the broker acknowledged {run.lost} reports that never reached the aggregator; try broker='mosquitto'"
        warnings.warn(text, LostReportsWarning, stacklevel=2)
    return run


async def _outcome(experiment: Experiment, count: Callable[[int], None], options: SimulationOptions) -> Outcome:
    """Run the engine, which is loaded when it is used."""
    if experiment.engine == "bulk":
        from hush_simulations.engines.bulk import engine as bulk  # noqa: PLC0415

        return await bulk.simulate(experiment, count, options.stop)
    from hush_simulations.engines import live  # noqa: PLC0415

    return await live.simulate(experiment, count, options.look, options.stop)


def _warn(experiment: Experiment) -> None:
    """Warn before the simulation about what its result is not."""
    task, people = experiment.task, experiment.scenario.population
    found = []
    if experiment.noise_seed is not None:
        found.append("the noise is NOT private: anyone who knows the seed can subtract it")
    if task.epsilon > WEAK_ABOVE:
        shown = decimal_text(task.epsilon)
        found.append(f"epsilon {shown} protects little; a real device refuses it unless its owner agrees")
    for text in found:
        warnings.warn(text, SimulationWarning, stacklevel=3)
    if isinstance(people, Observed):
        warn_of_codes(people, task.domain)


def warn_of_codes(people: Observed, domain: Domain) -> None:
    """Warn of numbers that may be codes for a missing value."""
    from hush_simulations.scenarios.python_data import MARK_IN_PYTHON, hints  # noqa: PLC0415 - for own data alone

    for hint in hints(people, domain):
        warnings.warn(f"{hint}; {MARK_IN_PYTHON}", SimulationWarning, stacklevel=4)
