"""Rows: what a sweep says, one row for each cell, part of the answer and interval. The columns are the same in all."""

from collections.abc import Mapping
from dataclasses import dataclass, fields

__all__ = ["BARS", "COLUMNS", "LAST", "TOGETHER", "Parameter", "SweepRow"]

Parameter = str | int | float | bool
"""Where a cell lies along one axis of the grid. Lists and tables are their JSON text."""

BARS = 0.95
"""Confidence of the error bars of a row: those of its rmse and of its coverage."""

LAST = "last"
"""Rows about the last round, or the only one."""

TOGETHER = "together"
"""Rows about all rounds as one estimate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRow:
    """One interval of one part of the answer, in all trials of one cell.

    What has no value is None: nobody knows the mean of a population of which there is but a sample; of joint intervals
    there is neither an estimate nor a width; theory is silent where devices lie or a broker forgets.

    Args:
        cell: its number in the grid, from 0; the last axis varies fastest.
        parameters: where it lies, by the dotted name of each axis, in the order of the grid.
        task_id: of the question.
        mechanism: that devices use; what `auto` chose.
        epsilon: over all rounds; the dearest of several.
        rounds: how often every device is asked.
        clients: devices.
        liars: share of the devices that lie.
        scope: `"last"` round, or all rounds `"together"`.
        part: a label or a coordinate; empty where the answer has one part, and for joint intervals.
        unit: of the estimate; empty for shares.
        target: what the interval is about, `"reporters"` or `"population"`.
        interval: its name in a result; with `joint_` before it, those of all parts at once.
        method: how it was made; empty where it was made in no trial, or in several ways.
        confidence: promised.
        trials: of this cell.
        estimates: trials with an estimate whose target has a value; the figures to `theory_stderr` are about them.
        truth: mean of the target.
        bias: mean of estimate less target.
        bias_stderr: its standard error.
        rmse: root mean square of estimate less target.
        rmse_lower: lower end of its interval at `BARS`.
        rmse_upper: upper end.
        theory_stderr: standard deviation of estimate less target, from the law of the reports alone.
        made: trials with the interval.
        covered: trials in which it holds the target.
        coverage: their share.
        coverage_lower: lower end of its interval at `BARS` (Clopper and Pearson).
        coverage_upper: upper end.
        mean_width: of the interval, ends cut off at the bounds of the domain.
        failures: trials without the interval.
        failure: why there is none, in words.
    """

    cell: int
    parameters: Mapping[str, Parameter]
    task_id: str
    mechanism: str
    epsilon: float
    rounds: int
    clients: int
    liars: float
    scope: str
    part: str
    unit: str
    target: str
    interval: str
    method: str
    confidence: float
    trials: int
    estimates: int
    truth: float | None
    bias: float | None
    bias_stderr: float | None
    rmse: float | None
    rmse_lower: float | None
    rmse_upper: float | None
    theory_stderr: float | None
    made: int
    covered: int
    coverage: float | None
    coverage_lower: float | None
    coverage_upper: float | None
    mean_width: float | None
    failures: int
    failure: str

    def table_row(self) -> dict[str, Parameter | None]:
        """As a row of a table: `cell`, the axes of the grid, and `COLUMNS`, which say `clients` and `rounds` anyway."""
        axes = {name: value for name, value in self.parameters.items() if name not in COLUMNS}
        return {"cell": self.cell, **axes, **{name: getattr(self, name) for name in COLUMNS}}


COLUMNS: tuple[str, ...] = tuple(one.name for one in fields(SweepRow) if one.name not in ("cell", "parameters"))
"""Of a table, after `cell` and the axes of the grid."""
