"""A scenario from a TOML file: the edge where pydantic checks what a person wrote."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag, ValidationError

from hush_common.domain import Domain, VectorDomain
from hush_common.errors import OptionError, TaskError
from hush_common.task import Task, make_task
from hush_common.untrusted import SCENARIO, read_file, read_toml
from hush_simulations.scenarios.panel import Dropout, Nonresponse, Panel
from hush_simulations.scenarios.population import MOST_CLIENTS, Observed, Population
from hush_simulations.scenarios.population_file import (
    AS_NUMBER,
    BY_NAME,
    KINDS,
    TAGS,
    FileModel,
    PeopleModel,
    by_name,
    population_of,
    same_names,
)
from hush_simulations.scenarios.scenario import Scenario
from hush_simulations.scenarios.troubles import Faults, Liars, told_by

__all__ = ["check_shares", "parse_scenario", "read_scenario", "scenario_of_document"]


class _Network(FileModel):
    lost: float = 0.0
    cut: float = 0.0
    late: float = 0.0
    twice: float = 0.0
    reordered: float = 0.0
    forgotten: float = 0.0


class _Liars(FileModel):
    share: float
    lie: Literal["value", "edge", "replay"]
    value: float | int | str | list[float] | None = None
    reports: int = 1


class _Dropout(FileModel):
    share: float
    correlation: float = 0.0


class _Nonresponse(FileModel):
    share: float
    above: float | None = None
    below: float | None = None
    values: list[int | str] = Field(default_factory=list)
    group: str | None = None


class _File(FileModel):
    about: str = ""
    rounds: int = Field(1, ge=1, le=1000)
    gateways: int | None = Field(None, ge=1, le=500)
    drift: Annotated[
        Annotated[float, Tag(AS_NUMBER)] | Annotated[dict[str, float], Tag(BY_NAME)], Discriminator(by_name)
    ] = 0.0
    dropout: _Dropout = _Dropout(share=0.0)
    nonresponse: list[_Nonresponse] = Field(default_factory=list)
    network: _Network = _Network()
    liars: list[_Liars] = Field(default_factory=list)
    clients: int = Field(500, ge=1, le=MOST_CLIENTS)
    shares: list[float] = Field(default_factory=list)
    task: dict[str, object]
    population: PeopleModel


def read_scenario(path: Path) -> Scenario:
    """A scenario from a TOML file with a `[task]` as in a task file and a `[population]`.

    Raises:
        TaskError: naming the field and the remedy.
        OptionError: the CSV file that it names cannot be used.
    """
    try:
        text = read_file(path, SCENARIO)
    except OSError as error:
        raise TaskError(str(path), f"cannot be read ({error.strerror}); name a TOML file with a scenario") from error
    except ValueError as error:
        raise TaskError(str(path), f"cannot be parsed as TOML: {error}") from error
    return parse_scenario(text, path)


def parse_scenario(text: str, path: Path) -> Scenario:
    """A scenario from the text of a file; `path` is for messages, and its folder for a CSV file that it names.

    Raises:
        TaskError, OptionError: as `read_scenario`.
    """
    try:
        document = read_toml(text, SCENARIO)
    except ValueError as error:
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
    population = population or population_of(task.domain, model.population, path.parent)
    if sum(one.share for one in model.liars) > 1:
        raise OptionError("liars", "the shares add up to more than 1; leave some devices to the others")
    clients = len(population.values) if isinstance(population, Observed) else model.clients
    found = Scenario(
        model.task,
        population,
        clients,
        check_shares("shares", model.shares, task),
        model.rounds,
        Faults(**model.network.model_dump()),
        tuple(_liars(task.domain, one) for one in model.liars),
        " ".join(model.about.split()),
        _panel(task.domain, model),
        model.gateways,
    )
    found.panel.check(task.domain, found.rounds, found.groups)
    return found


def _panel(domain: Domain, model: _File) -> Panel:
    refusing = tuple(Nonresponse(**{**one.model_dump(), "values": tuple(one.values)}) for one in model.nonresponse)
    dropout = Dropout(**model.dropout.model_dump())
    if not isinstance(model.drift, dict):
        return Panel((model.drift,) if model.drift else (), dropout, refusing)
    if not isinstance(domain, VectorDomain):
        raise OptionError("drift", "by coordinate is for vectors; write one number")
    names = [coordinate.name for coordinate in domain.coordinates]
    same_names("drift", set(model.drift) - set(names), "the task has no such coordinate")
    return Panel(tuple(model.drift.get(name, 0.0) for name in names), dropout, refusing)


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


def _complaint(path: Path, error: ValidationError) -> TaskError:
    first = error.errors(include_url=False)[0]
    field = ".".join(_fields(first["loc"]))
    match first["type"]:
        case "missing":
            message = f"is missing in {path}; a scenario has a [task] and a [population]"
        case "extra_forbidden":
            message = f"unknown field; check its spelling in {path}"
        case "union_tag_not_found" | "union_tag_invalid":
            *others, last = (f'"{kind}"' for kind in KINDS if kind != "groups" or "people" not in first["loc"])
            message = f"in {path} needs kind = {', '.join(others)} or {last}"
        case _:
            message = f"{str(first.get('input'))[:60]!r} in {path}: {first['msg'][0].lower()}{first['msg'][1:]}"
    return TaskError(field or "scenario", message)


def _fields(places: tuple[int | str, ...]) -> Iterator[str]:
    """The names of a file on the way to an error; pydantic puts the kind that it took in between."""
    kind = False
    for place in places:
        kind = place in TAGS and not kind
        if not kind:
            yield str(place)
