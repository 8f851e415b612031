"""The grid of a sweep: values for anything that a scenario file says, by dotted names, and all their combinations.

A name is the path to a field, as in `task.epsilon` or `network.forgotten`. In a list the number of an entry stands in
it, as in `population.parts.0.sd`, and may be left out where there is one entry, as in `liars.share`. `scenario` is the
whole: each value names one. `population.clients` is how many there are.
"""

import copy
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import product

from hush_common.domain import plain
from hush_common.epsilon import decimal_text
from hush_common.errors import OptionError
from hush_simulations.sweeps.row import Parameter

__all__ = ["CLIENTS", "MOST_CELLS", "SCENARIO", "Axis", "Grid", "canonical", "placed", "read_grid"]

SCENARIO = "scenario"
"""The axis whose values are scenarios."""

CLIENTS = ("clients", "population.clients")
"""The axis of the number of devices."""

MOST_CELLS = 100_000

_EXACT = ("task.epsilon", "task.offers")


@dataclass(frozen=True, slots=True)
class Axis:
    """One thing that is varied.

    Args:
        name: dotted.
        values: as they stand in a scenario file, all different.
    """

    name: str
    values: tuple[object, ...]

    @property
    def shown(self) -> tuple[Parameter, ...]:
        """The values as a table shows them: texts, numbers and yes or no; of anything else its JSON text."""
        return tuple(one if isinstance(one, str | int | float | bool) else canonical(one) for one in self.values)


@dataclass(frozen=True, slots=True)
class Grid:
    """All combinations of the values of some axes; the last one varies fastest."""

    axes: tuple[Axis, ...]

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

    def in_words(self) -> str:
        """As a message says it: `task.epsilon (4) x population.clients (3)`."""
        return " x ".join(f"{axis.name} ({len(axis.values)})" for axis in self.axes)


def read_grid(given: Mapping[str, object]) -> Grid:
    """A grid from names and lists of values.

    Raises:
        OptionError: no axis, an axis that is no list, is empty or has a value twice, or too many cells.
    """
    if not given:
        raise OptionError("grid", 'is empty; write what is varied, as in "task.epsilon" = [0.5, 1, 2]')
    if len(given.keys() & set(CLIENTS)) > 1:
        raise OptionError("grid.clients", "is varied twice; leave out one of clients and population.clients")
    grid = Grid(tuple(_axis(str(name), values) for name, values in given.items()))
    if grid.cells > MOST_CELLS:
        raise OptionError("grid", f"has {grid.cells} cells, {grid.in_words()}; at most {MOST_CELLS}: leave values out")
    return grid


def _axis(name: str, values: object) -> Axis:
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
            raise OptionError(field, f"{text[:40]} stands there twice; leave one of them out")
    return Axis(name, found)


def _array(values: object) -> list[object] | None:
    """The values of an array, as numpy has them."""
    made = getattr(values, "tolist", lambda: None)()
    return made if isinstance(made, list) else None


def _value(name: str, value: object) -> object:
    """As a scenario file has it; an epsilon exactly, as the decimal number that a float shows."""
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


def placed(document: Mapping[str, object], point: Mapping[str, object]) -> dict[str, object]:
    """The document of a scenario with the values of a point in it.

    Raises:
        OptionError: a name that leads nowhere.
    """
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
    """The one entry of a list whose number is left out."""
    if not isinstance(here, list) or step.isdecimal():
        return here
    if len(here) != 1:
        raise OptionError(
            f"grid.{name[:60]}", f"there are {len(here)} of them; write which, as in {_numbered(name, step)}"
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


def _numbered(name: str, step: str) -> str:
    before, _, after = name.rpartition(f".{step}")
    return f"{before}.0.{step}{after}"


def _nowhere(name: str, step: str) -> OptionError:
    remedy = "write the path of a field of the scenario, as in task.epsilon or population.parts.0.sd"
    return OptionError(f"grid.{name[:60]}", f"there is nothing called {step[:40]!r} there; {remedy}")


def canonical(value: object) -> str:
    """The same JSON text for the same value: dates as text, names in the order of the alphabet."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=str)
