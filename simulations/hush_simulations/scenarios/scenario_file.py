"""Scenarios in TOML: what a file may say, the people that it describes, and the scenarios that come with hush."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError

from hush_common.domain import BitDomain, CategoryDomain, Domain, NumberDomain, VectorDomain
from hush_common.errors import OptionError, TaskError
from hush_common.suggestion import meant
from hush_common.task import Task, make_task
from hush_common.untrusted import SCENARIO, read_file, read_toml
from hush_simulations.scenarios.behaviour import Dropout, Faults, Liars, Nonresponse, Panel, people_with
from hush_simulations.scenarios.population import (
    MOST_CLIENTS,
    PARQUET,
    Bernoulli,
    Frequencies,
    Grouped,
    Independent,
    Lognormal,
    Mixture,
    Normal,
    Numbers,
    Observed,
    Population,
    Subgroup,
    zipf_numbers,
    zipf_weights,
)
from hush_simulations.scenarios.scenario import Scenario


class FileModel(BaseModel):
    """A table of a scenario file: nothing in it is unknown, and no text is taken for a number."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)


class _Part(FileModel):
    weight: float = 1.0
    mean: float
    sd: float


class _Mixture(FileModel):
    kind: Literal["mixture"]
    parts: list[_Part]


class _Lognormal(FileModel):
    kind: Literal["lognormal"]
    median: float
    sigma: float


class _Zipf(FileModel):
    kind: Literal["zipf"]
    exponent: float
    largest: int | None = None


class _Bernoulli(FileModel):
    kind: Literal["bernoulli"]
    proportion: float


class _Frequencies(FileModel):
    kind: Literal["frequencies"]
    frequencies: dict[str, float]


BY_NAME, AS_NUMBER = "by name", "as number"
_AS_PARTS = "as parts"


def by_name(value: object) -> str:
    """Return the tag of a field that is a number or a table of numbers."""
    return BY_NAME if isinstance(value, dict) else AS_NUMBER


def _kind_of(value: object) -> str | None:
    """Return the tag of a coordinate: the parts of a mixture, or the kind of the table."""
    if isinstance(value, list):
        return _AS_PARTS
    return str(value.get("kind")) if isinstance(value, dict) else None


_Coordinate = Annotated[
    Annotated[list[_Part], Tag(_AS_PARTS)]
    | Annotated[_Mixture, Tag("mixture")]
    | Annotated[_Lognormal, Tag("lognormal")]
    | Annotated[_Zipf, Tag("zipf")],
    Discriminator(_kind_of),
]


class _Independent(FileModel):
    kind: Literal["independent"]
    coordinates: dict[str, _Coordinate]


class _Csv(FileModel):
    kind: Literal["csv"]
    file: str
    column: str | None = None
    delimiter: str | None = None
    encoding: str | None = None
    header: Literal["yes", "no"] | None = None
    decimal: Literal[".", ","] | None = None
    missing: Literal["drop", "replace"] | None = None


class _Parquet(FileModel):
    kind: Literal["parquet"]
    file: str
    column: str | None = None
    missing: Literal["drop", "replace"] | None = None


_Plain = _Mixture | _Lognormal | _Zipf | _Bernoulli | _Frequencies | _Independent | _Csv | _Parquet


class _Group(FileModel):
    name: str = Field(min_length=1, max_length=100)
    share: float
    people: Annotated[_Plain, Field(discriminator="kind")]


class _Groups(FileModel):
    kind: Literal["groups"]
    groups: list[_Group]


PeopleModel = Annotated[_Plain | _Groups, Field(discriminator="kind")]
"""A `[population]`."""

_Model = _Plain | _Groups
_FILES = ("csv", "parquet")
KINDS = ("mixture", "lognormal", "zipf", "bernoulli", "frequencies", "independent", *_FILES, "groups")
"""Of populations."""

TAGS = frozenset((*KINDS, BY_NAME, AS_NUMBER, _AS_PARTS))
"""Parts of the location of a validation error that are not in the file."""

_FITTING: dict[type[Domain], tuple[str, ...]] = {
    NumberDomain: ("mixture", "lognormal", "zipf"),
    BitDomain: ("bernoulli",),
    CategoryDomain: ("frequencies", "zipf"),
    VectorDomain: ("independent",),
}
_OPTION = re.compile(r"--(column|delimiter|encoding|header|decimal|missing) ([^\s;]+)")
_ARGUMENT = re.compile(r'pass (missing)="(\w+)" or missing="(\w+)"')


def population_of(domain: Domain, model: _Model, folder: Path) -> Population:
    """Return people who have the values that a task asks for; `folder` is that of the scenario file."""
    if isinstance(model, _Groups):
        return Grouped(tuple(_group(domain, one, folder) for one in model.groups))
    fitting = _FITTING[type(domain)]
    if model.kind not in {*fitting, *_FILES}:
        wanted = " or ".join(f'"{kind}"' for kind in fitting)
        raise TaskError("population.kind", f'"{model.kind}" draws no values of this domain; write {wanted}')
    match model:
        case _Csv() | _Parquet():
            return _observed(domain, model, folder)
        case _Bernoulli():
            return Bernoulli(model.proportion)
        case _Independent():
            return _independent(domain.value_names, model)
        case _Frequencies() | _Zipf() if domain.is_share:
            return _frequencies(tuple(part.name for part in domain.parts), model)
    return _numbers(model)


def _frequencies(labels: tuple[str, ...], model: _Frequencies | _Zipf) -> Frequencies:
    if isinstance(model, _Zipf):
        if model.largest is not None:
            raise OptionError("population.largest", "is for numbers; labels have the order of the task, drop it")
        return Frequencies(labels, zipf_weights(model.exponent, len(labels)))
    shares = model.frequencies
    same_names("population.frequencies", set(shares) - set(labels), "the task has no such label")
    return Frequencies(labels, tuple(shares.get(label, 0.0) for label in labels))


def _independent(names: tuple[str, ...], model: _Independent) -> Independent:
    same_names("population.coordinates", set(model.coordinates) ^ set(names), "name each coordinate of the task once")
    return Independent(tuple(_numbers(model.coordinates[name]) for name in names))


def same_names(field: str, wrong: set[str], remedy: str) -> None:
    """Reject names that do not fit."""
    if wrong:
        raise TaskError(field, f"{min(wrong)[:40]!r} does not fit: {remedy}")


def _group(domain: Domain, model: _Group, folder: Path) -> Subgroup:
    people = population_of(domain, model.people, folder)
    if isinstance(people, Observed):  # as many as fall into the group are drawn from the rows
        people = replace(people, resampled=True)
    return Subgroup(model.name, model.share, people)


def _numbers(model: list[_Part] | _Model) -> Numbers:
    match model:
        case _Lognormal():
            return Lognormal(model.median, model.sigma)
        case _Zipf(largest=None):
            raise OptionError("population.largest", "is missing; write the largest number, as in 100")
        case _Zipf(largest=int(largest)):
            return zipf_numbers(model.exponent, largest)
        case _Mixture(parts=parts):
            return _mixture(parts)
        case list():
            return _mixture(model)
    raise TypeError(model.kind)


def _mixture(parts: list[_Part]) -> Mixture:
    return Mixture(tuple(Normal(part.weight, part.mean, part.sd) for part in parts))


def _observed(domain: Domain, model: _Csv | _Parquet, folder: Path) -> Observed:
    from hush_simulations.scenarios.csv_table import CsvRules  # noqa: PLC0415 - few scenarios have a file of data
    from hush_simulations.scenarios.python_data import observed, observed_in_csv  # noqa: PLC0415

    if domain.value_names and model.column is not None:
        raise TaskError("population.column", "a vector takes the columns named as its coordinates; drop it")
    path = folder / model.file
    if isinstance(model, _Parquet) and path.suffix.lower() not in PARQUET:
        raise OptionError("population.file", f"{path} does not end in {' or '.join(PARQUET)}; name a Parquet file")
    try:
        if isinstance(model, _Parquet):
            return observed(path, domain, model.column, model.missing)
        rules = CsvRules(**model.model_dump(exclude={"kind", "file", "column"}))
        return observed_in_csv(path, domain, model.column, rules=rules)
    except OptionError as error:
        raise _in_words_of_a_file(error) from error


def _in_words_of_a_file(error: OptionError) -> OptionError:
    """Return the error with the fields of a scenario file in place of options or arguments."""
    names = {"--csv": "population.file", "data": "population.file", "column": "population.column"}
    field = names.get(error.option, error.option.replace("--", "population.", 1))
    text = _ARGUMENT.sub(r'write \1 = "\2" or \1 = "\3"', error.message)
    return OptionError(field, _OPTION.sub(r'\1 = "\2"', text))


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
    """Read a TOML file with a `[task]` as in a task file and a `[population]`.

    Raises TaskError or OptionError, which name the field and the remedy.
    """
    return scenario_of_document(read_document(path), path)


def parse_scenario(text: str, path: Path) -> Scenario:
    """Return the scenario of a file's text; `path` is for messages, and its folder for a data file."""
    return scenario_of_document(read_document(path, text=text), path)


def read_document(path: Path, kind: str = "scenario", text: str | None = None) -> dict[str, object]:
    """Return the content of a TOML file with a scenario or a sweep, or of its text; it may raise TaskError."""
    try:
        return read_toml(read_file(path, SCENARIO) if text is None else text, SCENARIO)
    except OSError as error:
        raise TaskError(str(path), f"cannot be read ({error.strerror}); name a TOML file with a {kind}") from error
    except ValueError as error:
        raise TaskError(str(path), f"cannot be parsed as TOML: {error}") from error


def scenario_of_document(document: Mapping[str, object], path: Path, population: Population | None = None) -> Scenario:
    """Return the scenario of a parsed file; `population` replaces its people if they were read before."""
    try:
        model = _File.model_validate(document)
    except ValidationError as error:
        raise _complaint(path, error) from error
    task = make_task(model.task)
    for name in ("release_from", "release_every", "retention"):
        if getattr(task, name) is not None:
            raise TaskError(f"task.{name}", "a simulation shows each estimate at once; remove it")
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
    names = domain.value_names
    if not names:
        raise OptionError("drift", "by coordinate is for vectors; write one number")
    same_names("drift", set(model.drift) - set(names), "the task has no such coordinate")
    return Panel(tuple(model.drift.get(name, 0.0) for name in names), dropout, refusing)


def _liars(domain: Domain, model: _Liars) -> Liars:
    value = tuple(model.value) if isinstance(model.value, list) else model.value
    if value is not None:
        people_with(domain, value)
    return Liars(model.share, model.lie, value, model.reports)


def check_shares(name: str, shares: "list[float] | tuple[float, ...]", task: Task) -> tuple[float, ...]:
    """Return the shares of the devices that take each epsilon offered, if they fit the task."""
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
    """Yield the names of a file on the way to an error; pydantic puts the kind that it took in between."""
    kind = False
    for place in places:
        kind = place in TAGS and not kind
        if not kind:
            yield str(place)


_FOLDER = files(__package__) / "shipped"
_DATA = (".csv", ".tsv")
_SUFFIX = ".toml"


class _Shipped(Mapping[str, Scenario]):
    """The scenarios by name, in the order of the alphabet; each file is read when its scenario is first used."""

    def __getitem__(self, name: str) -> Scenario:
        if name not in _names():
            raise KeyError(name)
        return _read(name)

    def __iter__(self) -> Iterator[str]:
        return iter(_names())

    def __len__(self) -> int:
        return len(_names())


SCENARIOS: Mapping[str, Scenario] = _Shipped()
"""The scenarios that come with hush, by name."""


def find_scenario(name: str, option: str = "SCENARIO") -> Scenario:
    """Return the scenario of that name, or in the TOML file of that name; `option` is for messages."""
    if name in SCENARIOS:
        return SCENARIOS[name]
    if name.lower().endswith(_DATA):
        own = "--csv FILE" if option.isupper() else "data=PATH"
        raise OptionError(option, f"{name[-60:]!r} is a data file, not a scenario; write {own} to simulate your data")
    if name.endswith(_SUFFIX) or "/" in name:
        return read_scenario(Path(name))
    hint = meant(name, SCENARIOS) or "; or name a TOML file"
    raise OptionError(option, f"{name[:60]!r} is not a scenario; there are {', '.join(SCENARIOS)}{hint}")


def text_of(name: str) -> str:
    """Return the text of a scenario that `find_scenario` finds, or raise OSError."""
    file = _FOLDER / f"{name}{_SUFFIX}" if name in SCENARIOS else Path(name)
    return file.read_text(encoding="utf-8")


@cache
def _names() -> tuple[str, ...]:
    shipped = (entry.name for entry in _FOLDER.iterdir())
    return tuple(sorted(name.removesuffix(_SUFFIX) for name in shipped if name.endswith(_SUFFIX)))


@cache
def _read(name: str) -> Scenario:
    file = _FOLDER / f"{name}{_SUFFIX}"
    return parse_scenario(file.read_text(encoding="utf-8"), Path(file.name))
