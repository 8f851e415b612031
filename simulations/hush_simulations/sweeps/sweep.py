"""The definition of a sweep: its file, grid and scenarios, and the work of each cell."""

import copy
import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from functools import cache
from importlib.resources import files
from itertools import product
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hush_common.domain import plain
from hush_common.epsilon import decimal_text
from hush_common.errors import HushError, OptionError, TaskError
from hush_common.suggestion import meant
from hush_simulations.engines.experiment import CLIENTS as CLIENTS_LIMITS
from hush_simulations.engines.experiment import Drawing
from hush_simulations.scenarios.population import Grouped, Observed
from hush_simulations.scenarios.scenario import Scenario
from hush_simulations.scenarios.scenario_file import (
    SCENARIOS,
    find_scenario,
    read_document,
    scenario_of_document,
    text_of,
)
from hush_simulations.sweeps.cell import CellWork
from hush_simulations.sweeps.result import Parameter

SCENARIO = "scenario"
"""The axis whose values are scenarios."""

CLIENTS = ("clients", "population.clients")
"""The axis of the number of devices."""

MOST_CELLS = 100_000

_EXACT = ("task.epsilon", "task.offers")


@dataclass(frozen=True, slots=True)
class GridAxis:
    """One varied field."""

    name: str
    values: tuple[object, ...]

    @property
    def shown(self) -> tuple[Parameter, ...]:
        """The values as a table shows them: texts, numbers and booleans; anything else as JSON text."""
        return tuple(one if isinstance(one, str | int | float | bool) else canonical(one) for one in self.values)


@dataclass(frozen=True, slots=True)
class SweepGrid:
    """All combinations of the values of some axes; the last one varies fastest."""

    axes: tuple[GridAxis, ...]

    @property
    def cells(self) -> int:
        return math.prod(len(axis.values) for axis in self.axes)

    def points(self) -> Iterator[dict[str, object]]:
        """Each combination, by the names of the axes."""
        names = [axis.name for axis in self.axes]
        return (dict(zip(names, values, strict=True)) for values in product(*(axis.values for axis in self.axes)))

    def shown(self, point: Mapping[str, object]) -> dict[str, Parameter]:
        """A combination as a table shows it."""
        return {axis.name: axis.shown[axis.values.index(point[axis.name])] for axis in self.axes}

    def describe(self) -> str:
        """Return it for a message: `task.epsilon (4) x population.clients (3)`."""
        return " x ".join(f"{axis.name} ({len(axis.values)})" for axis in self.axes)


def read_grid(given: Mapping[str, object]) -> SweepGrid:
    """Return a grid from names and lists of values.

    A name is the path to a field of a scenario file, as in `task.epsilon` or `network.forgotten`. In a list the number
    of an entry is part of it, as in `population.parts.0.sd`, and may be left out if there is one entry, as in
    `liars.share`. `scenario` names whole scenarios. `population.clients` is the number of devices.

    Raises:
        OptionError: no axis, an axis that is not a list, is empty or has a value twice, or too many cells.
    """
    if not given:
        raise OptionError("grid", 'is empty; write what is varied, as in "task.epsilon" = [0.5, 1, 2]')
    if len(given.keys() & set(CLIENTS)) > 1:
        raise OptionError("grid.clients", "is varied twice; leave out one of clients and population.clients")
    grid = SweepGrid(tuple(_axis(str(name), values) for name, values in given.items()))
    if grid.cells > MOST_CELLS:
        raise OptionError("grid", f"has {grid.cells} cells, {grid.describe()}; at most {MOST_CELLS}: leave values out")
    return grid


def _axis(name: str, values: object) -> GridAxis:
    field = f"grid.{name[:60]}"
    if isinstance(values, Mapping):
        raise OptionError(field, f'is a table; write its name in quotes, as in "{name}.…" = [1, 2]')
    listed = list(values) if isinstance(values, Sequence) and not isinstance(values, str | bytes) else _array(values)
    if listed is None:
        raise OptionError(field, f"{str(values)[:40]!r} is not a list; write the values in brackets, as in [1, 2]")
    if not listed:
        raise OptionError(field, "has no value; write at least one, or leave the line out")
    found = tuple(_value(name, value) for value in listed)
    texts = [canonical(value) for value in found]
    for text in texts:
        if texts.count(text) > 1:
            raise OptionError(field, f"{text[:40]} is listed twice; remove one of them")
    return GridAxis(name, found)


def _array(values: object) -> list[object] | None:
    """The values of a numpy array."""
    made = getattr(values, "tolist", lambda: None)()
    return made if isinstance(made, list) else None


def _value(name: str, value: object) -> object:
    """Convert a value as in a scenario file; an epsilon exactly, as the decimal number that a float shows."""
    if isinstance(value, list | tuple):
        return [_value(name, one) for one in value]
    if isinstance(value, Mapping):
        return {str(key): _value("", one) for key, one in value.items()}
    value = _exact(plain(value)) if name in _EXACT else plain(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise OptionError(f"grid.{name[:60]}", f"{value} is not a finite number; write one")
    if not isinstance(value, str | int | float):
        shown = f"{str(value)[:40]!r} is of type {type(value).__name__[:40]}"
        raise OptionError(f"grid.{name[:60]}", f"{shown}; write a text, a number, a list or a table")
    return value


def _exact(value: object) -> object:
    match value:
        case bool():
            return value
        case int():
            return str(value)
        case float() if math.isfinite(value):
            return format(Decimal(repr(value)), "f")
        case Decimal():
            return format(value, "f")
        case Fraction():
            return decimal_text(value)
    return value


def with_values(document: Mapping[str, object], point: Mapping[str, object]) -> dict[str, object]:
    """Return the document of a scenario with the values of a point; raise OptionError for a name that leads nowhere."""
    made = copy.deepcopy(dict(document))
    for name, value in point.items():
        if name != SCENARIO:
            _place(made, "clients" if name in CLIENTS else name, copy.deepcopy(value))
    return made


def _place(document: dict[str, object], name: str, value: object) -> None:
    *path, last = name.split(".")
    here: object = document
    for step in path:
        here = _within(_only(here, step, name), step, name)
    here = _only(here, last, name)
    match here:
        case dict():
            here[last] = value
        case list() if last.isdecimal() and int(last) < len(here):
            here[int(last)] = value
        case _:
            raise _nowhere(name, last)


def _only(here: object, step: str, name: str) -> object:
    """The only entry of a list whose number is left out."""
    if not isinstance(here, list) or step.isdecimal():
        return here
    if len(here) != 1:
        before, _, after = name.rpartition(f".{step}")
        raise OptionError(
            f"grid.{name[:60]}", f"there are {len(here)} of them; write which, as in {before}.0.{step}{after}"
        )
    return here[0]


def _within(here: object, step: str, name: str) -> object:
    match here:
        case dict():
            if step == "liars" and step not in here:
                raise OptionError(f"grid.{name[:60]}", "the scenario has no liars; write [[liars]] in it first")
            return here.setdefault(step, {})
        case list() if step.isdecimal() and int(step) < len(here):
            return here[int(step)]
    raise _nowhere(name, step)


def _nowhere(name: str, step: str) -> OptionError:
    remedy = "write the path of a field of the scenario, as in task.epsilon or population.parts.0.sd"
    return OptionError(f"grid.{name[:60]}", f"there is nothing called {step[:40]!r} there; {remedy}")


def canonical(value: object) -> str:
    """Return the same JSON text for the same value: dates as text, names sorted."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=str)


FORMAT = 1
"""Of the files of a sweep, and of what a seed means in them."""

_OPENS = datetime(2026, 1, 1, tzinfo=UTC)  # of tasks of several rounds: a result does not depend on the clock


@dataclass(frozen=True, slots=True)
class BaseScenario:
    """The scenario that is varied, and the path of its file."""

    name: str
    document: Mapping[str, object] = field(repr=False)
    path: Path


@dataclass(frozen=True, slots=True)
class Sweep:
    """A sweep with all its options."""

    bases: Sequence[BaseScenario]
    grid: SweepGrid
    trials: int
    seed: int
    confidence: float
    drawing: Drawing = "auto"

    def identity(self) -> dict[str, object]:
        """Return what identifies this sweep, by the names that a message uses."""
        return {
            "scenario": [dict(base.document) for base in self.bases],
            **{f"grid.{axis.name}": list(axis.values) for axis in self.grid.axes},
            "trials": self.trials,
            "seed": self.seed,
            "confidence": self.confidence,
            "draw": self.drawing,
        }

    def works(self) -> list[CellWork]:
        """Return every cell in the order of the grid, or raise OptionError with a cell that no scenario has."""
        named = {base.name: base for base in self.bases}
        read: dict[str, Scenario] = {}
        found = []
        for number, point in enumerate(self.grid.points()):
            base = named[str(point[SCENARIO])] if SCENARIO in point else self.bases[0]
            document = with_values(base.document, point)
            parameters = self.grid.shown(point)
            try:
                scenario = _scenario_of_cell(document, base, point, read)
            except HushError as error:
                where = ", ".join(f"{name} = {value}"[:60] for name, value in parameters.items())
                raise OptionError("grid", f"no scenario has {where}: {error}") from error
            found.append(self._work(number, parameters, scenario, document))
        return found

    def _work(
        self, number: int, parameters: Mapping[str, Parameter], scenario: Scenario, document: Mapping[str, object]
    ) -> CellWork:
        follows = {
            "format": FORMAT,
            "scenario": document,
            "clients": scenario.clients,
            "values": _digest(scenario),
            "trials": self.trials,
            "seed": self.seed,
            "confidence": self.confidence,
            "draw": self.drawing,
        }
        key = hashlib.sha256(canonical(follows).encode()).hexdigest()
        return CellWork(number, key, parameters, scenario, self.trials, self.seed, self.confidence, self.drawing)


def _scenario_of_cell(
    document: Mapping[str, object], base: BaseScenario, point: Mapping[str, object], read: dict[str, Scenario]
) -> Scenario:
    """The scenario of a cell; that of several sizes is read once."""
    clients = next((point[name] for name in CLIENTS if name in point), None)
    if clients is not None:
        if isinstance(clients, bool) or not isinstance(clients, int):
            raise OptionError("clients", f"{str(clients)[:40]!r} is not a whole number; write how many devices report")
        CLIENTS_LIMITS.check(clients, "clients", "write how many devices report")
    key = canonical([base.name, document if clients is None else {**document, "clients": None}])
    if key not in read:
        read[key] = _scenario_of_document(document, base, read)
    return read[key] if clients is None else read[key].of_size(clients)


def _scenario_of_document(document: Mapping[str, object], base: BaseScenario, read: dict[str, Scenario]) -> Scenario:
    """A scenario whose task is legal; a data file is read once, not for every epsilon."""
    people = document.get("population")
    if isinstance(people, Mapping) and people.get("kind") in {"csv", "parquet"}:
        task = document.get("task")
        key = canonical([base.name, people, task.get("domain") if isinstance(task, Mapping) else None])
        if key not in read:
            read[key] = scenario_of_document(document, base.path)
        found = scenario_of_document(document, base.path, read[key].population)
    else:
        found = scenario_of_document(document, base.path)
    if found.rounds > 1:
        found = found.repeated(found.rounds, _OPENS)
        found.task()
    return found


def _digest(scenario: Scenario) -> str | None:
    """A digest of values from a file: the same values give the same cell."""
    people = scenario.population
    every = [group.people for group in people.groups] if isinstance(people, Grouped) else [people]
    rows = [one.values for one in every if isinstance(one, Observed)]
    return hashlib.sha256(repr(rows if isinstance(people, Grouped) else rows[0]).encode()).hexdigest() if rows else None


_FOLDER = files(__package__) / "shipped"
_SUFFIX = ".toml"
_INLINE = "[scenario]"


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    about: str = ""
    scenario: str | dict[str, object] = "heights"
    trials: int | None = Field(None, ge=1, le=1_000_000)
    seed: int | None = Field(None, ge=0)
    confidence: float | None = None
    draw: str | None = None
    grid: dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepFile:
    """The content of a sweep file; None for a field that it leaves out."""

    bases: tuple[BaseScenario, ...]
    grid: SweepGrid
    trials: int | None = None
    seed: int | None = None
    confidence: float | None = None
    draw: str | None = None


@cache
def _shipped() -> tuple[str, ...]:
    names = (entry.name for entry in _FOLDER.iterdir())
    return tuple(sorted(name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)))


SWEEPS: tuple[str, ...] = _shipped()
"""The sweeps that come with hush, by name."""


def find_sweep(name: str, option: str = "SWEEP") -> SweepFile:
    """Return the shipped sweep of that name, or the one in the TOML file of that name.

    Raises:
        OptionError: there is none, or its grid cannot be used.
        TaskError: the file is not a sweep; the field is named.
    """
    if name in SWEEPS:
        path = Path(f"{name}{_SUFFIX}")
        return _parse(read_document(path, text=(_FOLDER / path.name).read_text(encoding="utf-8")), path)
    if not name.endswith(_SUFFIX) and "/" not in name:
        hint = meant(name, SWEEPS) or "; or name a TOML file"
        raise OptionError(option, f"{name[:60]!r} is not a sweep; there are {', '.join(SWEEPS)}{hint}")
    return _parse(read_document(Path(name), "sweep"), Path(name))


def _parse(document: Mapping[str, object], path: Path) -> SweepFile:
    if "grid" not in document and "task" in document:
        raise TaskError(str(path), "is a scenario, not a sweep; write scenario = its path, and a [grid]")
    try:
        model = _File.model_validate(document)
    except ValidationError as error:
        raise _complaint(path, error) from error
    grid = read_grid(dict(_dotted(model.grid)))
    options = model.model_dump(include={"trials", "seed", "confidence", "draw"})
    return SweepFile(bases=bases_of(model.scenario, grid, path), grid=grid, **options)


def _dotted(table: Mapping[str, object], before: str = "") -> Iterator[tuple[str, object]]:
    """Flatten a grid: without quotes, TOML reads `task.epsilon = [1, 2]` as a table in a table."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _dotted(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def bases_of(
    scenario: str | Path | Mapping[str, object], grid: SweepGrid, near: Path | None = None
) -> tuple[BaseScenario, ...]:
    """Return the scenario that is varied, or those that the grid names, with paths relative to the file `near`."""
    axis = next((axis for axis in grid.axes if axis.name == SCENARIO), None)
    if axis is None:
        return (_base(scenario, near),)
    return tuple(_base(name, near) for name in _names(axis))


def _names(axis: GridAxis) -> list[str]:
    for value in axis.values:
        if not isinstance(value, str):
            raise OptionError("grid.scenario", f"{str(value)[:40]!r} is not a name; write names or paths of scenarios")
    return [str(value) for value in axis.values]


def _base(scenario: str | Path | Mapping[str, object], near: Path | None) -> BaseScenario:
    if isinstance(scenario, Mapping):
        return BaseScenario(_INLINE, dict(scenario), near or Path("scenario"))
    name, path = str(scenario), Path(scenario)
    if name not in SCENARIOS:
        if near is not None and not path.is_absolute() and (near.parent / path).is_file():
            path = near.parent / path
        elif not path.is_file():
            find_scenario(name, "scenario")  # raises, with the names that exist
    return BaseScenario(name, read_document(path, text=text_of(name) if name in SCENARIOS else None), path)


def _complaint(path: Path, error: ValidationError) -> TaskError:
    first = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    match first["type"]:
        case "missing":
            message = f"is missing in {path}; a sweep has a [grid]"
        case "extra_forbidden":
            message = f"unknown field; check its spelling in {path}: there are {', '.join(_File.model_fields)}"
        case _:
            message = f"{str(first.get('input'))[:60]!r} in {path}: {first['msg'][0].lower()}{first['msg'][1:]}"
    return TaskError(field or "sweep", message)
