"""A scenario from a TOML file: the edge where pydantic checks what a person wrote."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hush_common.domain import BitDomain, CategoryDomain, Domain, NumberDomain, VectorDomain
from hush_common.errors import OptionError, TaskError
from hush_common.task import Task
from hush_common.task_file import make_task
from hush_simulations.scenarios.csv_rules import CsvRules
from hush_simulations.scenarios.data_file import observed_in_csv
from hush_simulations.scenarios.population import (
    MOST_CLIENTS,
    Bernoulli,
    Frequencies,
    Independent,
    Mixture,
    Normal,
    Observed,
    Population,
)
from hush_simulations.scenarios.scenario import Scenario
from hush_simulations.scenarios.troubles import Faults, Liars, told_by

__all__ = ["check_shares", "parse_scenario", "read_scenario", "scenario_of_document"]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class _Part(_Model):
    weight: float = 1.0
    mean: float
    sd: float


class _Mixture(_Model):
    kind: Literal["mixture"]
    parts: list[_Part]


class _Bernoulli(_Model):
    kind: Literal["bernoulli"]
    proportion: float


class _Frequencies(_Model):
    kind: Literal["frequencies"]
    frequencies: dict[str, float]


class _Independent(_Model):
    kind: Literal["independent"]
    coordinates: dict[str, list[_Part]]


class _Csv(_Model):
    kind: Literal["csv"]
    file: str
    column: str | None = None
    delimiter: str | None = None
    encoding: str | None = None
    header: Literal["yes", "no"] | None = None
    decimal: Literal[".", ","] | None = None
    missing: Literal["drop", "replace"] | None = None


_People = _Mixture | _Bernoulli | _Frequencies | _Independent | _Csv
_KINDS = ("mixture", "bernoulli", "frequencies", "independent", "csv")
_FITTING: dict[type[Domain], str] = {
    NumberDomain: "mixture",
    BitDomain: "bernoulli",
    CategoryDomain: "frequencies",
    VectorDomain: "independent",
}
_OPTION = re.compile(r"--(column|delimiter|encoding|header|decimal|missing) ([^\s;]+)")


class _Network(_Model):
    lost: float = 0.0
    cut: float = 0.0
    late: float = 0.0
    twice: float = 0.0
    forgotten: float = 0.0


class _Liars(_Model):
    share: float
    lie: Literal["value", "edge", "replay"]
    value: float | int | str | list[float] | None = None
    reports: int = 1


class _File(_Model):
    about: str = ""
    rounds: int = Field(1, ge=1, le=1000)
    network: _Network = _Network()
    liars: list[_Liars] = []
    clients: int = Field(500, ge=1, le=MOST_CLIENTS)
    shares: list[float] = []
    task: dict[str, object]
    population: Annotated[_People, Field(discriminator="kind")]


def read_scenario(path: Path) -> Scenario:
    """A scenario from a TOML file with a `[task]` as in a task file and a `[population]`.

    Raises:
        TaskError: naming the field and the remedy.
        OptionError: the CSV file that it names cannot be used.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise TaskError(str(path), f"cannot be read ({error.strerror}); name a TOML file with a scenario") from error
    except UnicodeDecodeError as error:
        raise TaskError(str(path), f"cannot be parsed as TOML: {error}") from error
    return parse_scenario(text, path)


def parse_scenario(text: str, path: Path) -> Scenario:
    """A scenario from the text of a file; `path` is for messages, and its folder for a CSV file that it names.

    Raises:
        TaskError, OptionError: as `read_scenario`.
    """
    try:
        document = tomllib.loads(text)
    except ValueError as error:  # not TOML, or a number of thousands of digits
        raise TaskError(str(path), f"cannot be parsed as TOML: {error}") from error
    return scenario_of_document(document, path)


def scenario_of_document(document: Mapping[str, object], path: Path, population: Population | None = None) -> Scenario:
    """A scenario from what a file says, as TOML reads it.

    Args:
        document: of the file.
        path: for messages, and its folder for a CSV file that it names.
        population: the people, where they were read before.

    Raises:
        TaskError, OptionError: as `read_scenario`.
    """
    try:
        model = _File.model_validate(document)
    except ValidationError as error:
        raise _complaint(path, error) from error
    task = make_task(model.task)
    try:
        population = population or _population(task.domain, model.population, path.parent)
    except OptionError as error:
        raise _in_words_of_a_file(error) from error
    if sum(one.share for one in model.liars) > 1:
        raise OptionError("liars", "the shares add up to more than 1; leave some devices to the others")
    clients = len(population.values) if isinstance(population, Observed) else model.clients
    return Scenario(
        model.task,
        population,
        clients,
        check_shares("shares", model.shares, task),
        model.rounds,
        Faults(**model.network.model_dump()),
        tuple(_liars(task.domain, one) for one in model.liars),
        " ".join(model.about.split()),
    )


def _liars(domain: Domain, model: _Liars) -> Liars:
    value = tuple(model.value) if isinstance(model.value, list) else model.value
    if value is not None:
        told_by(domain, value)
    return Liars(model.share, model.lie, value, model.reports)


def check_shares(name: str, shares: "list[float] | tuple[float, ...]", task: Task) -> tuple[float, ...]:
    """The shares of the devices that take each epsilon offered, if they fit the task.

    Raises:
        OptionError: there is nothing to choose, or not one share for each offer, or one that is none.
    """
    if not shares:
        return ()
    if len(shares) != len(task.offers):
        remedy = (
            f"{len(task.offers)} offers; write one for each"
            if task.offers
            else "one epsilon and no offers to choose from; leave the shares out, or give the task offers"
        )
        raise OptionError(name, f"{len(shares)} shares, and the task has {remedy}")
    if not all(0 <= share < float("inf") for share in shares) or sum(shares) <= 0:
        raise OptionError(name, "a share is negative or not finite, or all are 0; write numbers as in 1, 1, 2")
    return tuple(shares)


def _population(domain: Domain, model: _People, folder: Path) -> Population:
    """People who have the values that the task asks for."""
    if model.kind not in {_FITTING[type(domain)], "csv"}:
        raise TaskError(
            "population.kind", f'"{model.kind}" draws no values of this domain; write "{_FITTING[type(domain)]}"'
        )
    match model:
        case _Csv():
            return _observed(domain, model, folder)
        case _Bernoulli():
            return Bernoulli(model.proportion)
        case _Mixture():
            return _mixture(model.parts)
        case _Frequencies():
            labels = domain.labels if isinstance(domain, CategoryDomain) else ()
            _same_names("frequencies", set(model.frequencies) - set(labels), "the task has no such label")
            return Frequencies(labels, tuple(model.frequencies.get(label, 0.0) for label in labels))
        case _Independent():
            names = [coordinate.name for coordinate in domain.coordinates] if isinstance(domain, VectorDomain) else []
            _same_names("coordinates", set(model.coordinates) ^ set(names), "name each coordinate of the task once")
            return Independent(tuple(_mixture(model.coordinates[name]) for name in names))


def _in_words_of_a_file(error: OptionError) -> OptionError:
    """The same with the fields of a scenario file in place of options."""
    field = {"--csv": "population.file"}.get(error.option, error.option.replace("--", "population.", 1))
    return OptionError(field, _OPTION.sub(r'\1 = "\2"', error.message))


def _observed(domain: Domain, model: _Csv, folder: Path) -> Observed:
    if isinstance(domain, VectorDomain) and model.column is not None:
        raise TaskError("population.column", "a vector takes the columns named as its coordinates; drop it")
    rules = CsvRules(**model.model_dump(exclude={"kind", "file", "column"}))
    return observed_in_csv(folder / model.file, domain, model.column, rules=rules)


def _mixture(parts: list[_Part]) -> Mixture:
    return Mixture(tuple(Normal(part.weight, part.mean, part.sd) for part in parts))


def _same_names(field: str, wrong: set[str], remedy: str) -> None:
    if wrong:
        raise TaskError(f"population.{field}", f"{min(wrong)[:40]!r} does not fit: {remedy}")


def _complaint(path: Path, error: ValidationError) -> TaskError:
    first = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"] if part not in _KINDS)
    match first["type"]:
        case "missing":
            message = f"is missing in {path}; a scenario has a [task] and a [population]"
        case "extra_forbidden":
            message = f"unknown field; check its spelling in {path}"
        case "union_tag_not_found" | "union_tag_invalid":
            *others, last = (f'"{kind}"' for kind in _KINDS)
            message = f"in {path} needs kind = {', '.join(others)} or {last}"
        case _:
            message = f"{str(first.get('input'))[:60]!r} in {path}: {first['msg'][0].lower()}{first['msg'][1:]}"
    return TaskError(field or "scenario", message)
