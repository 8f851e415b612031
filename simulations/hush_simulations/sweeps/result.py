"""The result of a sweep: its rows, one for each cell, part of the answer and interval."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hush_simulations.shown import Shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Parameter = str | int | float | bool
"""The value of a cell on one axis of the grid. Lists and tables are their JSON text."""

BARS = 0.95
"""Confidence of the error bars of a row: those of its rmse and of its coverage."""

LAST = "last"
"""Rows about the last round, or the only one."""

TOGETHER = "together"
"""Rows about all rounds as one estimate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRow:
    """One interval of one part of the answer, in all trials of one cell.

    A field is None if it has no value: the mean of a population of which only a sample is known; the estimate and width
    of joint intervals; the theory if devices lie or a broker forgets.
    """

    cell: int  #: its number in the grid, from 0; the last axis varies fastest
    parameters: Mapping[str, Parameter]  #: its value on each axis, by dotted name, in the order of the grid
    task_id: str  #: of the question
    mechanism: str  #: of the devices; the one that `auto` chose
    epsilon: float  #: over all rounds; the largest of several
    rounds: int  #: how often every device is asked
    clients: int  #: devices
    liars: float  #: share of the devices that lie
    scope: str  #: `"last"` round, or all rounds `"together"`
    part: str  #: a label or a coordinate; empty where the answer has one part, and for joint intervals
    unit: str  #: of the estimate; empty for shares
    target: str  #: of the interval, `"reporters"` or `"population"`
    interval: str  #: its name in a result; with the prefix `joint_` that of all parts together
    method: str  #: of the interval; empty if no trial has it, or if methods differ
    confidence: float  #: promised
    trials: int  #: of this cell
    estimates: int  #: trials with an estimate whose target has a value; `truth` to `theory_stderr` are about them
    truth: float | None  #: mean of the target
    bias: float | None  #: mean of estimate less target
    bias_stderr: float | None  #: its standard error
    rmse: float | None  #: root mean square of estimate less target
    rmse_lower: float | None  #: lower end of its interval at `BARS`
    rmse_upper: float | None  #: upper end
    theory_stderr: float | None  #: standard deviation of estimate less target, from the law of the reports alone
    made: int  #: trials with the interval
    covered: int  #: trials in which it contains the target
    coverage: float | None  #: their share
    coverage_lower: float | None  #: lower end of its interval at `BARS` (Clopper and Pearson)
    coverage_upper: float | None  #: upper end
    mean_width: float | None  #: of the interval, ends cut off at the bounds of the domain
    failures: int  #: trials without the interval
    failure: str  #: the reason why an interval is missing

    def document(self) -> dict[str, object]:
        """Return it as a JSON object."""
        return {one.name: getattr(self, one.name) for one in fields(self)} | {"parameters": dict(self.parameters)}

    def table_row(self) -> dict[str, Parameter | None]:
        """Return it as a row of a table: `cell`, the axes of the grid, and `COLUMNS`."""
        axes = {name: value for name, value in self.parameters.items() if name not in COLUMNS}
        return {"cell": self.cell, **axes, **{name: getattr(self, name) for name in COLUMNS}}


COLUMNS: tuple[str, ...] = tuple(one.name for one in fields(SweepRow) if one.name not in ("cell", "parameters"))
"""The columns of a table after `cell` and the axes of the grid."""


@dataclass(frozen=True, slots=True, repr=False)
class SweepResult(Shown):
    """A finished sweep."""

    axes: Mapping[str, tuple[Parameter, ...]]  #: dotted name and values of each axis of the grid, in its order
    rows: tuple[SweepRow, ...]  #: of all cells, in the order of the grid
    trials: int  #: of each cell
    seed: int  #: of people and noise
    confidence: float  #: of the intervals
    directory: Path  #: its files
    remarks: tuple[str, ...] = ()  #: versions that differ from those that made some cells

    def figure(self, what: Literal["error", "coverage", "bias"] = "error", *, dark: bool = False) -> "Figure":
        """A figure that `hush sweep` writes: `result.figure("coverage").savefig("coverage.svg")`.

        The axis is epsilon if it was varied, else the share of liars, else another axis of the grid. Numbers of devices
        are lines; other axes are panels.

        Args:
            what: the root mean square error and its theory, the coverage and confidence of intervals, or the bias in
                standard errors and its range by chance.
            dark: on a dark ground.

        Raises:
            OptionError: there is no such figure.
        """
        return self.display().figure_of(self, what, dark=dark)

    def in_short(self) -> str:
        return f"SweepResult of {self.cells} cells, {self.trials} trials each"

    @property
    def cells(self) -> int:
        """Points of the grid."""
        return len({row.cell for row in self.rows})

    def column_names(self) -> list[str]:
        """Return the names of the columns: `cell`, the axes of the grid, and the fields of a row."""
        return ["cell", *(name for name in self.axes if name not in COLUMNS), *COLUMNS]

    def columns(self) -> dict[str, list[Parameter | None]]:
        """Return the rows as columns."""
        table = [row.table_row() for row in self.rows]
        return {name: [row[name] for row in table] for name in self.column_names()}

    def to_document(self) -> dict[str, object]:
        """The JSON object that `hush sweep --json` prints."""
        return {
            "trials": self.trials,
            "seed": self.seed,
            "confidence": self.confidence,
            "axes": {name: list(values) for name, values in self.axes.items()},
            "cells": self.cells,
            "rows": [row.document() for row in self.rows],
            **({"remarks": list(self.remarks)} if self.remarks else {}),
        }
