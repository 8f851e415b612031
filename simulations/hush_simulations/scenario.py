"""Scenarios: a task together with the population that answers it. Two come with hush; a TOML file makes another."""

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hush_common.domain import BitDomain, NumberDomain
from hush_common.errors import OptionError, TaskError
from hush_common.task import Task
from hush_common.task_file import make_task
from hush_simulations.options import MOST_CLIENTS
from hush_simulations.own_data import read_column
from hush_simulations.population import Bernoulli, Mixture, Normal, Observed, Population

__all__ = ["SCENARIOS", "Scenario", "find_scenario", "read_scenario", "scenario_of_column"]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A question and the people it is put to.

    Args:
        document: the task, as in a task file.
        population: where the true values come from.
        clients: how many devices answer, unless an option says otherwise.
    """

    document: Mapping[str, object]
    population: Population
    clients: int = 500

    def asking(self, **changes: object) -> "Scenario":
        """The same question with other fields of the task; a change to None leaves the field as it is."""
        return replace(self, document={**self.document, **{k: v for k, v in changes.items() if v is not None}})

    def repeated(self, rounds: int, opens: datetime) -> "Scenario":
        """The same question asked `rounds` times, a day apart; epsilon stays the total of all rounds."""
        return self.asking(rounds=rounds, round_every="1d", opens=opens.isoformat())

    def task(self) -> Task:
        """The validated task.

        Raises:
            TaskError: naming the field and the remedy.
        """
        return make_task(self.document)


SCENARIOS = {
    "heights": Scenario(
        document={
            "id": "heights",
            "title": "Mean height of adults",
            "purpose": "Sizing of workplaces",
            "epsilon": "1",
            "mechanism": "laplace",
            "domain": {"kind": "number", "lower": 120.0, "upper": 220.0, "unit": "cm"},
        },
        # Half women, half men, as in the notebook whose experiment this repeats.
        population=Mixture((Normal(0.5, 178.0, 7.0), Normal(0.5, 162.0, 6.5))),
    ),
    "survey": Scenario(
        document={
            "id": "survey",
            "title": "Did you work while ill last year?",
            "purpose": "Health at work",
            "epsilon": "1",
            "mechanism": "randomized_response",
            "domain": {"kind": "bit"},
        },
        population=Bernoulli(0.3),
    ),
}


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


class _Csv(_Model):
    kind: Literal["csv"]
    file: str
    column: str | None = None


class _File(_Model):
    clients: int = Field(500, ge=1, le=MOST_CLIENTS)
    task: dict[str, object]
    population: Annotated[_Mixture | _Bernoulli | _Csv, Field(discriminator="kind")]


def find_scenario(name: str) -> Scenario:
    """The scenario of that name, or in the TOML file of that name.

    Raises:
        OptionError: neither a scenario nor a file; the message lists the scenarios.
        TaskError: the file is not a legal scenario.
    """
    if name in SCENARIOS:
        return SCENARIOS[name]
    if name.endswith(".toml") or "/" in name:
        return read_scenario(Path(name))
    near = difflib.get_close_matches(name, SCENARIOS, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "or name a TOML file"
    raise OptionError("SCENARIO", f"{name[:60]!r} is not a scenario; there are {', '.join(SCENARIOS)}; {hint}")


def read_scenario(path: Path) -> Scenario:
    """A scenario from a TOML file with a `[task]` as in a task file and a `[population]`.

    Raises:
        TaskError: naming the field and the remedy.
        OptionError: the CSV file that it names cannot be used.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        model = _File.model_validate(document)
    except OSError as error:
        raise TaskError(str(path), f"cannot be read ({error.strerror}); name a TOML file with a scenario") from error
    except ValidationError as error:
        raise _complaint(path, error) from error
    except ValueError as error:  # not UTF-8, not TOML
        raise TaskError(str(path), f"cannot be parsed as TOML: {error}") from error
    task = make_task(model.task)
    _check_people(task, model.population)
    population = _population(model.population, path.parent, bits=isinstance(task.domain, BitDomain))
    clients = len(population.values) if isinstance(population, Observed) else model.clients
    return Scenario(model.task, population, clients)


def scenario_of_column(data: Observed, lower: float, upper: float, unit: str) -> Scenario:
    """A scenario about somebody's own numbers: one client a row, with bounds that the person states."""
    return Scenario(
        document={
            "id": "own-data",
            "title": f"Mean of {data.name[:80]}" if data.name.isprintable() else "Mean of a column",
            "epsilon": "1",
            "mechanism": "laplace",
            "domain": {"kind": "number", "lower": lower, "upper": upper, "unit": unit},
        },
        population=data,
        clients=len(data.values),
    )


def _check_people(task: Task, population: _Mixture | _Bernoulli | _Csv) -> None:
    """Whether the people that can be made up have the values that the task asks for."""
    if not isinstance(task.domain, NumberDomain | BitDomain):
        raise TaskError("task.domain", "only numbers and yes/no are simulated; serve categories and vectors")
    if task.offers:
        raise TaskError("task.offers", "several epsilons are not simulated; drop offers, or use hush serve")
    if isinstance(population, _Mixture) and isinstance(task.domain, BitDomain):
        raise TaskError("population.kind", '"mixture" draws numbers, and the task asks yes or no; write "bernoulli"')


def _population(model: _Mixture | _Bernoulli | _Csv, folder: Path, *, bits: bool) -> Population:
    match model:
        case _Mixture():
            return Mixture(tuple(Normal(part.weight, part.mean, part.sd) for part in model.parts))
        case _Bernoulli():
            return Bernoulli(model.proportion)
        case _Csv():
            return read_column(folder / model.file, model.column, bits=bits)


def _complaint(path: Path, error: ValidationError) -> TaskError:
    first = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"] if part not in {"mixture", "bernoulli", "csv"})
    match first["type"]:
        case "missing":
            message = f"is missing in {path}; a scenario has a [task] and a [population]"
        case "extra_forbidden":
            message = f"no scenario has this field; check its spelling in {path}"
        case "union_tag_not_found" | "union_tag_invalid":
            message = f'in {path} needs kind = "mixture", "bernoulli" or "csv"'
        case _:
            message = f"{str(first.get('input'))[:60]!r} in {path}: {first['msg'][0].lower()}{first['msg'][1:]}"
    return TaskError(field or "scenario", message)
