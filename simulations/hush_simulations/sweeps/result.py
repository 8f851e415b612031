"""The result of a sweep: its rows, which a table, a figure and a program read."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from hush_simulations.sweeps.row import COLUMNS, Parameter, SweepRow

__all__ = ["SweepResult"]


@dataclass(frozen=True, slots=True, repr=False)
class SweepResult:
    """A finished sweep.

    Args:
        axes: dotted name and values of each axis of the grid, in its order.
        rows: of all cells, in the order of the grid.
        trials: of each cell.
        seed: of people and noise.
        confidence: of the intervals.
        directory: where it is kept.
        remarks: what is not as it was when cells were made: versions, in words.
    """

    axes: Mapping[str, tuple[Parameter, ...]]
    rows: tuple[SweepRow, ...]
    trials: int
    seed: int
    confidence: float
    directory: Path
    remarks: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<SweepResult of {self.cells} cells, {self.trials} trials each>"

    @property
    def cells(self) -> int:
        """Points of the grid."""
        return len({row.cell for row in self.rows})

    def column_names(self) -> list[str]:
        """`cell`, the axes of the grid, and what a row says."""
        return ["cell", *(name for name in self.axes if name not in COLUMNS), *COLUMNS]

    def columns(self) -> dict[str, list[Parameter | None]]:
        """The rows as columns, for a data frame: `pandas.DataFrame(result.columns())`."""
        table = [row.table_row() for row in self.rows]
        return {name: [row[name] for row in table] for name in self.column_names()}

    def to_document(self) -> dict[str, object]:
        """The JSON object that `hush sweep --json` prints."""
        names = [one.name for one in fields(SweepRow)]
        return {
            "trials": self.trials,
            "seed": self.seed,
            "confidence": self.confidence,
            "axes": {name: list(values) for name, values in self.axes.items()},
            "cells": self.cells,
            "rows": [{name: _plain(getattr(row, name)) for name in names} for row in self.rows],
            **({"remarks": list(self.remarks)} if self.remarks else {}),
        }


def _plain(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else value
