"""The table of a sweep: one row for each cell, and what to look at first."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from hush_aggregator.estimate import POPULATION
from hush_aggregator.estimate.numerics.binomial import clopper_pearson_shares
from hush_aggregator.presentation import NumberFormat
from hush_common.formatting import exact, fixed, significant, whole
from hush_common.terminal import Column, Renderable, Row, Sentence, Table
from hush_simulations.display.sweep_figures import representative_row, value_label
from hush_simulations.sweeps.result import BARS, Parameter, SweepResult, SweepRow

_MOST = 60
"""Cells in the table; more are for the files."""


def sweep_blocks(result: SweepResult) -> list[Renderable]:
    """What `hush sweep` ends with."""
    shown = [representative_row(list(rows)) for _, rows in groupby(result.rows, key=lambda row: row.cell)]
    blocks: list[Renderable] = [Sentence(_head(result)), Sentence("")]
    if len(shown) <= _MOST:
        blocks += [_table(result, shown), Sentence("")]
    else:
        blocks.append(Sentence(f"{whole(len(shown))} cells are more than a table shows; every row is in sweep.csv."))
    return blocks + [Sentence(text) for text in _remarks(result)]


def _head(result: SweepResult) -> str:
    axes = " x ".join(f"{name} ({len(values)})" for name, values in result.axes.items())
    return f"{whole(result.cells)} cells: {axes}; {whole(result.trials)} trials each, seed {result.seed}"


def _table(result: SweepResult, shown: Sequence[SweepRow]) -> Table:
    parts = any(row.part for row in shown)
    columns = [
        Column(name, right=all(_is_number(one) for one in values), named=True) for name, values in _titles(result)
    ]
    columns += [Column("worst part")] if parts else []
    columns += [Column(title, right=True) for title in ("bias", "error (rms)", "theory", "covered", "width")]
    rows = [Row([*_axes(row), *([row.part] if parts else []), *_figures(row)]) for row in shown]
    return Table(columns, rows, grouped=len(result.axes))


def _titles(result: SweepResult) -> list[tuple[str, Sequence[Parameter]]]:
    """The last word of each name, where that says which."""
    last = [name.rpartition(".")[2] for name in result.axes]
    short = last if len(set(last)) == len(last) else list(result.axes)
    return list(zip(short, result.axes.values(), strict=True))


def _is_number(value: Parameter) -> bool:
    return isinstance(value, int | float) or value.replace(".", "", 1).isdecimal()


def _axes(row: SweepRow) -> list[str]:
    """The values of the axes; a table of bounds in few words."""
    return [_value(name, one, row) for name, one in row.parameters.items()]


def _value(name: str, one: Parameter, row: SweepRow) -> str:
    if isinstance(one, int | float):
        return exact(one)
    return value_label(name, one, row) if one.startswith("{") else one


def _figures(row: SweepRow) -> list[str]:
    wording = NumberFormat.measured(row.unit, row.rmse) if row.unit else NumberFormat.share(row.rmse)
    if row.rmse is None or row.bias is None:
        return ["-"] * 5
    error = f" ± {wording.number(row.bias_stderr)}" if row.bias_stderr is not None else ""
    return [
        f"{wording.off(row.bias)}{error}",
        wording.value(row.rmse),
        "-" if row.theory_stderr is None else wording.number(row.theory_stderr),
        _coverage(row),
        "-" if row.mean_width is None else wording.number(row.mean_width),
    ]


def _coverage(row: SweepRow) -> str:
    if row.coverage is None or row.coverage_lower is None or row.coverage_upper is None:
        return "-"
    low, high = (fixed(one, 0, scale=100) for one in (row.coverage_lower, row.coverage_upper))
    return f"{significant(row.coverage, scale=100)} % ({low} to {high})"


def _remarks(result: SweepResult) -> Iterator[str]:
    promised = f"{exact(result.confidence, scale=100)} %"
    yield (
        "bias ± its standard error and error are of the estimate less the mean of those who answered; covered is how "
        f"often the {promised} interval for them held it, with the interval of that share."
    )
    if short := _short(result):
        yield (
            f"In {whole(short)} of {whole(result.cells)} cells an interval holds its truth less often than promised, "
            "beyond what chance does: see coverage in sweep.csv."
        )
    missing = {row.failure for row in result.rows if row.made == 0 and row.target == POPULATION and row.failure}
    if missing:
        yield f"The interval for the population is absent in some cells: {'; '.join(sorted(missing))}."
    yield from result.remarks


def _short(result: SweepResult) -> int:
    """Cells with a coverage below what is promised: at 95 % for all rows at once, since all are looked at."""
    sure = 1 - (1 - BARS) / max(len(result.rows), 1)
    asked = [(row.made, row.covered, sure) for row in result.rows if row.made]
    cells = [row.cell for row in result.rows if row.made]
    found = zip(cells, clopper_pearson_shares(asked), strict=True)
    return len({cell for cell, (_, high) in found if high < result.confidence})
