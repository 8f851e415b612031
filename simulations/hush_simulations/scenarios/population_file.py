"""The `[population]` of a scenario file: the kinds there are, checked by pydantic, and the people that each makes."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from hush_common.domain import BitDomain, CategoryDomain, Domain, NumberDomain, VectorDomain
from hush_common.errors import OptionError, TaskError
from hush_simulations.scenarios.csv_rules import CsvRules
from hush_simulations.scenarios.data_file import observed_in_csv
from hush_simulations.scenarios.grouped import Group, Grouped
from hush_simulations.scenarios.parquet_file import PARQUET
from hush_simulations.scenarios.population import (
    Bernoulli,
    Frequencies,
    Independent,
    Mixture,
    Normal,
    Numbers,
    Observed,
    Population,
)
from hush_simulations.scenarios.python_data import observed
from hush_simulations.scenarios.shapes import Lognormal, zipf_numbers, zipf_weights

__all__ = [
    "AS_NUMBER",
    "BY_NAME",
    "KINDS",
    "TAGS",
    "FileModel",
    "PeopleModel",
    "by_name",
    "population_of",
    "same_names",
]


class FileModel(BaseModel):
    """A table of a scenario file: nothing in it is unknown, and no text is taken for a number."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True, strict=True)


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
    """Of a field that is a number or a table of numbers, which it is."""
    return BY_NAME if isinstance(value, dict) else AS_NUMBER


def _kind_of(value: object) -> str | None:
    """Of a coordinate: the parts of a mixture, or the kind of the table."""
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
"""What stands in the place of an error, and in no file."""

_FITTING: dict[type[Domain], tuple[str, ...]] = {
    NumberDomain: ("mixture", "lognormal", "zipf"),
    BitDomain: ("bernoulli",),
    CategoryDomain: ("frequencies", "zipf"),
    VectorDomain: ("independent",),
}
_OPTION = re.compile(r"--(column|delimiter|encoding|header|decimal|missing) ([^\s;]+)")
_ARGUMENT = re.compile(r'pass (missing)="(\w+)" or missing="(\w+)"')


def population_of(domain: Domain, model: _Model, folder: Path) -> Population:
    """People who have the values that a task asks for.

    Args:
        domain: of the task.
        model: what stands in the file.
        folder: of the file: where it names another, that is seen from there.

    Raises:
        TaskError, OptionError: it is none, or does not fit; in the words of a file.
    """
    if isinstance(model, _Groups):
        return Grouped(tuple(_group(domain, one, folder) for one in model.groups))
    if model.kind not in {*_FITTING[type(domain)], *_FILES}:
        wanted = " or ".join(f'"{kind}"' for kind in _FITTING[type(domain)])
        raise TaskError("population.kind", f'"{model.kind}" draws no values of this domain; write {wanted}')
    match model:
        case _Csv() | _Parquet():
            return _observed(domain, model, folder)
        case _Bernoulli():
            return Bernoulli(model.proportion)
    match domain:
        case CategoryDomain(labels=labels):
            return _frequencies(labels, model)
        case VectorDomain(coordinates=coordinates):
            return _independent([coordinate.name for coordinate in coordinates], model)
    return _numbers(model)


def _frequencies(labels: tuple[str, ...], model: _Model) -> Frequencies:
    if isinstance(model, _Zipf):
        if model.largest is not None:
            raise OptionError("population.largest", "is for numbers; labels have the order of the task, drop it")
        return Frequencies(labels, zipf_weights(model.exponent, len(labels)))
    shares = model.frequencies if isinstance(model, _Frequencies) else {}
    same_names("population.frequencies", set(shares) - set(labels), "the task has no such label")
    return Frequencies(labels, tuple(shares.get(label, 0.0) for label in labels))


def _independent(names: list[str], model: _Model) -> Independent:
    coordinates = model.coordinates if isinstance(model, _Independent) else {}
    same_names("population.coordinates", set(coordinates) ^ set(names), "name each coordinate of the task once")
    return Independent(tuple(_numbers(coordinates[name]) for name in names))


def same_names(field: str, wrong: set[str], remedy: str) -> None:
    """Refuse names that do not fit.

    Raises:
        TaskError: there are such names.
    """
    if wrong:
        raise TaskError(field, f"{min(wrong)[:40]!r} does not fit: {remedy}")


def _group(domain: Domain, model: _Group, folder: Path) -> Group:
    people = population_of(domain, model.people, folder)
    if isinstance(people, Observed):  # as many as fall into the group are drawn from the rows
        people = replace(people, resampled=True)
    return Group(model.name, model.share, people)


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
    if isinstance(domain, VectorDomain) and model.column is not None:
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
    """The same with the fields of a scenario file in place of options, or of arguments."""
    names = {"--csv": "population.file", "data": "population.file", "column": "population.column"}
    field = names.get(error.option, error.option.replace("--", "population.", 1))
    text = _ARGUMENT.sub(r'write \1 = "\2" or \1 = "\3"', error.message)
    return OptionError(field, _OPTION.sub(r'\1 = "\2"', text))
