"""From the arguments of `hush.simulate` to an experiment: what goes together, and what is missing."""

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

from hush_common.domain import BitDomain, CategoryDomain, Domain, NumberDomain, VectorDomain, plain
from hush_common.epsilon import decimal_text, parse_epsilon
from hush_common.errors import OptionError
from hush_common.task import domain_document, make_task
from hush_simulations.brokers.choice import parse_broker
from hush_simulations.engines.experiment import Engine, Experiment, bulk_experiment
from hush_simulations.engines.limits import (
    CLIENTS,
    ROUNDS,
    SEED,
    WORKERS,
    Whole,
    check_confidence,
    check_drawing,
    check_engine,
    check_size,
)
from hush_simulations.scenarios.library import find_scenario
from hush_simulations.scenarios.people import draw_people
from hush_simulations.scenarios.population import Observed, check_treatment
from hush_simulations.scenarios.python_data import observed
from hush_simulations.scenarios.scenario import FROM_PUBLIC_KNOWLEDGE, Scenario, scenario_of_data
from hush_simulations.scenarios.scenario_file import read_scenario

__all__ = ["Epsilon", "experiment_of"]

Epsilon = str | int | float | Fraction | Decimal
"""A float is the decimal number that Python shows for it: 0.1 is one tenth."""

_DEFAULT = "heights"
_DOMAIN = "domain={'kind': 'number', 'lower': 0, 'upper': 110, 'unit': 'years'}"


def experiment_of(
    scenario: str | Path | Scenario,
    *,
    data: object,
    column: str | None,
    domain: Mapping[str, object] | Domain | None,
    missing: str | None,
    csv: Mapping[str, str] | None,
    epsilon: Epsilon | None,
    mechanism: str | None,
    clients: int | None,
    rounds: int | None,
    engine: str,
    broker: str,
    draw: str,
    workers: int,
    dask: str | None,
    seed: int | None,
    confidence: float,
) -> Experiment:
    """The experiment that the arguments describe.

    Raises:
        OptionError: an argument that is missing, superfluous or illegal.
        TaskError: the question is no legal task.
    """
    chosen = check_engine(str(engine), "engine")
    address = _broker(broker, chosen)
    found = _scenario(scenario, _Own(data, column, domain, missing, csv))
    found = found.asking(epsilon=None if epsilon is None else _epsilon(epsilon), mechanism=mechanism)
    if (often := found.rounds if rounds is None else _whole("rounds", rounds, ROUNDS)) > 1:
        found = found.repeated(often, datetime.now(UTC))
    if clients is not None:
        found = found.of_size(_whole("clients", clients, CLIENTS))
    task, level = found.task(), _confidence(confidence)
    check_size(found.clients, chosen, "clients")
    seed = None if seed is None else _whole("seed", seed, SEED)
    drawing, hands = check_drawing(str(draw), "draw"), _whole("workers", workers, WORKERS)
    if chosen == "bulk":
        return bulk_experiment(found, (), seed, confidence=level, drawing=drawing, workers=hands, dask=dask)
    if dask is not None:
        raise OptionError("dask", "draws devices in bulk; add engine='bulk', or leave it out")
    people = draw_people(found, len(task.offers), seed)
    return Experiment(
        scenario=found,
        values=people.values,
        choices=people.choices,
        groups=people.groups,
        engine=chosen,
        broker=address,
        confidence=level,
        seed=people.seed,
    )


@dataclass(frozen=True, slots=True)
class _Own:
    """The arguments about a person's own data, as given."""

    data: object = field(repr=False)
    column: str | None
    domain: Mapping[str, object] | Domain | None
    missing: str | None
    csv: Mapping[str, str] | None

    def observed(self, domain: Domain) -> Observed:
        """The values, for a question about this domain."""
        return observed(self.data, domain, self.column, check_treatment("missing", self.missing), self.csv)

    def check_unused(self) -> None:
        """Refuse arguments without the data that they are about."""
        for name in ("column", "domain", "missing", "csv"):
            if getattr(self, name) is not None:
                raise OptionError(name, "describes data of your own; pass it as data=...")


def _scenario(asked: str | Path | Scenario, own: _Own) -> Scenario:
    if own.data is None:
        own.check_unused()
        return _named(asked)
    if own.domain is None:
        return _with_people_of_ones_own(asked, own)
    if asked != _DEFAULT:
        raise OptionError("domain", "the scenario has one of its own; leave out the domain, or the scenario")
    document = domain_document(own.domain) if isinstance(own.domain, _DOMAINS) else own.domain
    if not isinstance(document, Mapping):
        raise OptionError("domain", f"is of type {type(own.domain).__name__[:40]}; pass a mapping, as in {_DOMAIN}")
    task = make_task({"id": "own-data", "epsilon": "1", "domain": document})  # its mistakes come before those of data
    return scenario_of_data(own.observed(task.domain), document)


_DOMAINS = (NumberDomain, BitDomain, CategoryDomain, VectorDomain)


def _with_people_of_ones_own(asked: str | Path | Scenario, own: _Own) -> Scenario:
    if asked == _DEFAULT:
        raise OptionError("domain", f"is missing; state the legal values {FROM_PUBLIC_KNOWLEDGE}; as in {_DOMAIN}")
    scenario = _named(asked)
    population = own.observed(scenario.task().domain)
    return replace(scenario, population=population, clients=len(population.values))


def _named(asked: object) -> Scenario:
    match asked:
        case Scenario():
            return asked
        case Path():
            return read_scenario(asked)
        case str():
            return find_scenario(asked, "scenario")
    raise OptionError("scenario", f"is of type {type(asked).__name__[:40]}; pass a name, a path or a Scenario")


def _broker(name: str, engine: Engine) -> str:
    if engine != "mqtt" and name != "embedded":
        raise OptionError("broker", f"a broker is not used with engine={engine!r}; leave one of them out")
    return parse_broker(str(name), "broker")


def _epsilon(epsilon: Epsilon) -> str:
    exact = plain(epsilon)
    match exact:
        case float():
            exact = format(Decimal(repr(exact)), "f")
        case Decimal():
            exact = format(exact, "f")
        case Fraction():
            exact = decimal_text(exact)
    return decimal_text(parse_epsilon(exact))


def _whole(name: str, value: object, limits: Whole) -> int:
    remedy = f"pass {limits.meaning}, as in {name}={limits.example}"
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise OptionError(name, f"{str(value)[:40]!r} is not a whole number; {remedy}")
    return limits.check(operator.index(value), name, remedy)


def _confidence(value: float) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if not abs(number) < float("inf"):
        raise OptionError("confidence", f"{str(value)[:40]!r} is not a finite number; pass one, as in confidence=0.95")
    return check_confidence(number, "confidence", str(value))
