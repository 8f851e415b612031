"""A sweep from a TOML file: the edge where pydantic checks what a person wrote, and where scenarios are found."""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hush_common.errors import OptionError, TaskError
from hush_common.untrusted import SCENARIO as SCENARIO_LIMITS
from hush_common.untrusted import read_file, read_toml
from hush_simulations.scenarios.library import SCENARIOS, find_scenario, text_of
from hush_simulations.sweeps.grid import SCENARIO, Axis, Grid, read_grid
from hush_simulations.sweeps.plan import Base

__all__ = ["SWEEPS", "Asked", "bases_of", "find_sweep", "text_of_sweep"]

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
class Asked:
    """What a file of a sweep says; None where it says nothing."""

    bases: tuple[Base, ...]
    grid: Grid
    about: str = ""
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


def text_of_sweep(name: str) -> str:
    """The file of a sweep that comes with hush."""
    return (_FOLDER / f"{name}{_SUFFIX}").read_text(encoding="utf-8")


def find_sweep(name: str, option: str = "SWEEP") -> Asked:
    """The sweep of that name, or in the TOML file of that name.

    Raises:
        OptionError: there is none, or its grid cannot be used.
        TaskError: the file is not a sweep; the field is named.
    """
    if name in SWEEPS:
        return _parse(text_of_sweep(name), Path(f"{name}{_SUFFIX}"))
    if not name.endswith(_SUFFIX) and "/" not in name:
        near = difflib.get_close_matches(name, SWEEPS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "or name a TOML file"
        raise OptionError(option, f"{name[:60]!r} is not a sweep; there are {', '.join(SWEEPS)}; {hint}")
    path = Path(name)
    try:
        text = read_file(path, SCENARIO_LIMITS)
    except OSError as error:
        raise TaskError(str(path), f"cannot be read ({error.strerror}); name a TOML file with a sweep") from error
    except ValueError as error:
        raise TaskError(str(path), f"cannot be parsed as TOML: {error}") from error
    return _parse(text, path)


def _parse(text: str, path: Path) -> Asked:
    try:
        document = read_toml(text, SCENARIO_LIMITS)
    except ValueError as error:
        raise TaskError(str(path), f"cannot be parsed as TOML: {error}") from error
    if "grid" not in document and "task" in document:
        raise TaskError(str(path), "is a scenario, not a sweep; write scenario = its path, and a [grid]")
    try:
        model = _File.model_validate(document)
    except ValidationError as error:
        raise _complaint(path, error) from error
    grid = read_grid(dict(_dotted(model.grid)))
    bases = bases_of(model.scenario, grid, path)
    return Asked(
        about=" ".join(model.about.split()),
        bases=bases,
        grid=grid,
        trials=model.trials,
        seed=model.seed,
        confidence=model.confidence,
        draw=model.draw,
    )


def _dotted(table: Mapping[str, object], before: str = "") -> Iterator[tuple[str, object]]:
    """Names without quotes are tables in tables to TOML: task.epsilon = [1, 2] means the same."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _dotted(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def bases_of(scenario: str | Path | Mapping[str, object], grid: Grid, beside: Path | None = None) -> tuple[Base, ...]:
    """The scenario that is varied, or those that the grid names.

    Args:
        scenario: a name, a path, or what a scenario file says.
        grid: whose axis `scenario` names others.
        beside: the file in whose folder paths are looked up first; None for the current folder.

    Raises:
        OptionError, TaskError: there is no such scenario, or its file is not TOML.
    """
    axis = next((axis for axis in grid.axes if axis.name == SCENARIO), None)
    if axis is None:
        return (_base(scenario, beside),)
    return tuple(_base(name, beside) for name in _names(axis))


def _names(axis: Axis) -> list[str]:
    for value in axis.values:
        if not isinstance(value, str):
            raise OptionError("grid.scenario", f"{str(value)[:40]!r} is no name; write names or paths of scenarios")
    return [str(value) for value in axis.values]


def _base(scenario: str | Path | Mapping[str, object], beside: Path | None) -> Base:
    if isinstance(scenario, Mapping):
        return Base(_INLINE, dict(scenario), beside or Path("scenario"))
    name, path = str(scenario), Path(scenario)
    if name not in SCENARIOS:
        if beside is not None and not path.is_absolute() and (beside.parent / path).is_file():
            path = beside.parent / path
        elif not path.is_file():
            find_scenario(name, "scenario")  # which says what there is
    try:
        text = text_of(name) if name in SCENARIOS else read_file(path, SCENARIO_LIMITS)
        return Base(name, read_toml(text, SCENARIO_LIMITS), path)
    except OSError as error:
        raise TaskError(str(path), f"cannot be read ({error.strerror}); name a TOML file with a scenario") from error
    except ValueError as error:
        raise TaskError(str(path), f"cannot be parsed as TOML: {error}") from error


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
