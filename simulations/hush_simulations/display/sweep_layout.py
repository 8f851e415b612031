"""How the cells of a sweep are laid out in a figure: along an axis, as lines, in panels beside each other."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from hush_aggregator.estimate import REPORTERS
from hush_common.formatting import exact, whole
from hush_simulations.sweeps.result import LAST, TOGETHER, Parameter, SweepResult, SweepRow

__all__ = ["Layout", "Line", "Panel", "laid_out", "said", "telling"]

_LOG_FROM = 8
"""Ratio of the largest to the smallest value of an axis from which it is logarithmic."""
_SHORT = 24


def telling(rows: Sequence[SweepRow]) -> SweepRow:
    """The row for a cell: of all rounds together if there are several, of the part with the largest error."""
    scopes = {row.scope for row in rows}
    scope = TOGETHER if TOGETHER in scopes else LAST
    some = [row for row in rows if row.scope == scope and row.interval == REPORTERS] or list(rows)
    return max(some, key=lambda row: row.rmse or 0.0)


@dataclass(frozen=True, slots=True)
class Line:
    """Cells that differ along the axis alone.

    Args:
        name: what they have in common and other lines have not; empty where there is one line.
        cells: rows of each cell, in the order of the axis.
        at: where each lies.
    """

    name: str
    cells: tuple[tuple[SweepRow, ...], ...]
    at: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Panel:
    """Lines that are drawn together."""

    title: str
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """All of a figure.

    Args:
        along: the name of the axis of the grid.
        axis: what is varied along the axis, in words, with its unit.
        logarithmic: whether that axis is.
        names: of the places 0, 1, … where the axis has no numbers.
        panels: in the order of the grid.
    """

    along: str
    axis: str
    logarithmic: bool
    names: tuple[str, ...]
    panels: tuple[Panel, ...]


def laid_out(result: SweepResult) -> Layout:
    """Epsilon along the axis where it is varied, else the share of liars, else what else has numbers.

    Of the other axes the number of devices makes lines, or the last one, and all the rest panels.
    """
    along = min(result.axes, key=lambda name: (_rank(name, result.axes[name]), -len(result.axes[name])))
    others = [name for name in result.axes if name != along and len(result.axes[name]) > 1]
    lines = next((name for name in others if _is_clients(name)), others[-1] if others else None)
    apart = [name for name in others if name != lines]
    places = _places(along, result.axes[along])
    cells = [tuple(rows) for _, rows in groupby(result.rows, key=lambda row: row.cell)]
    panels: dict[str, dict[str, list[tuple[SweepRow, ...]]]] = {}
    for cell in cells:
        values = cell[0].parameters
        title = ", ".join(said(name, values[name], cell[0]) for name in apart)
        line = "" if lines is None else said(lines, values[lines], cell[0])
        panels.setdefault(title, {}).setdefault(line, []).append(cell)
    return Layout(
        along,
        _axis_label(along),
        bool(places) and min(places.values()) > 0 and max(places.values()) >= _LOG_FROM * min(places.values()),
        () if places else tuple(said(along, value, cells[0][0]) for value in result.axes[along]),
        tuple(
            Panel(title, tuple(_line(name, some, along, result.axes[along], places) for name, some in by_line.items()))
            for title, by_line in panels.items()
        ),
    )


def _line(
    name: str,
    cells: Sequence[tuple[SweepRow, ...]],
    along: str,
    values: Sequence[Parameter],
    places: Mapping[Parameter, float],
) -> Line:
    where = places or {value: float(place) for place, value in enumerate(values)}
    ordered = sorted(cells, key=lambda cell: where[cell[0].parameters[along]])
    return Line(name, tuple(ordered), tuple(where[cell[0].parameters[along]] for cell in ordered))


def _rank(name: str, values: Sequence[Parameter]) -> int:
    numbers = len(values) > 1 and bool(_places(name, values))
    wanted = (name.endswith("epsilon"), _is_share_of_liars(name), not _is_clients(name), True)
    return next(place for place, is_it in enumerate(wanted) if is_it) if numbers else len(wanted) + (len(values) < 2)  # noqa: PLR2004


def _is_clients(name: str) -> bool:
    return name.rpartition(".")[2] == "clients"


def _is_share_of_liars(name: str) -> bool:
    return name.startswith("liars") and name.endswith("share")


def _places(name: str, values: Sequence[Parameter]) -> dict[Parameter, float]:
    """The values as numbers, of shares in per cent; empty where one is none."""
    found: dict[Parameter, float] = {}
    for value in values:
        try:
            found[value] = float(value) * (100 if _is_share_of_liars(name) or name.startswith("network.") else 1)
        except ValueError:
            return {}
    return {} if any(isinstance(value, bool) for value in values) else found


def _axis_label(name: str) -> str:
    last = name.rpartition(".")[2]
    if last == "epsilon":
        return "ε over all rounds"
    if _is_clients(name):
        return "devices"
    if _is_share_of_liars(name):
        return "liars, % of the devices"
    return f"{name}, %" if name.startswith("network.") else name.removeprefix("task.").replace("_", " ")


def said(name: str, value: Parameter, row: SweepRow) -> str:
    """What a value is, in a few letters."""
    last = name.rpartition(".")[2]
    if _is_clients(name):
        return f"{whole(row.clients)} devices"
    if last == "epsilon":
        return f"ε = {value}"
    if last in ("mechanism", "scenario"):
        return str(value).replace("_", " ")
    if _is_share_of_liars(name):
        return f"{exact(row.liars, scale=100)} % liars"
    if isinstance(value, str) and value.startswith("{"):
        parts = json.loads(value)
        if {"lower", "upper"} <= parts.keys():
            return f"{parts['lower']:g} to {parts['upper']:g} {row.unit}".rstrip()
    text = f"{last} {value}"
    return text if len(text) <= _SHORT else text[: _SHORT - 1] + "…"
