"""What `hush sweep` shows: a table at any width, what to look at first, and how fast it goes on."""

import csv
import io
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rendered import rendered
from rich.console import Console
from rich.progress import Progress
from rich.text import Text

from hush import SweepResult, SweepRow
from hush_common.errors import OptionError
from hush_simulations.display.progress import bar_columns, show_sweep_progress
from hush_simulations.display.sweep import sweep_blocks
from hush_simulations.sweeps import directory
from hush_simulations.sweeps.result import COLUMNS, Parameter

ROW = SweepRow(
    cell=0,
    parameters={"task.mechanism": "laplace", "population.clients": 500, "task.epsilon": "0.5"},
    task_id="heights",
    mechanism="laplace",
    epsilon=0.5,
    rounds=1,
    clients=500,
    liars=0.0,
    scope="last",
    part="",
    unit="cm",
    target="reporters",
    interval="reporters",
    method="laplace-exact",
    confidence=0.95,
    trials=200,
    estimates=200,
    truth=170.0,
    bias=-0.7312,
    bias_stderr=0.8841,
    rmse=12.512,
    rmse_lower=11.1,
    rmse_upper=13.9,
    theory_stderr=12.649,
    made=200,
    covered=194,
    coverage=0.97,
    coverage_lower=0.936,
    coverage_upper=0.989,
    mean_width=49.4,
    failures=0,
    failure="",
)


def result(*rows: SweepRow) -> SweepResult:
    axes: dict[str, tuple[Parameter, ...]] = {
        "task.mechanism": ("laplace",),
        "population.clients": (500,),
        "task.epsilon": ("0.5", "1"),
    }
    return SweepResult(axes=axes, rows=rows, trials=200, seed=7, confidence=0.95, directory=Path("out"))


def beside(cell: int, **changes: object) -> SweepRow:
    return replace(ROW, cell=cell, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_table_fits_any_screen_and_leaves_nothing_out(width: int) -> None:
    text = rendered(sweep_blocks(result(ROW, beside(1, rmse=6.3))), width, wraps=True)
    assert max(map(len, text.splitlines())) <= width
    for figure in ("laplace", "500", "0.5", "-0.7 ± 0.9", "12.5 cm", "12.6", "97 % (94 to 99)", "49.4", "6.3"):
        assert figure in text, figure
    assert "2 cells: task.mechanism (1) x population.clients (1)" in " ".join(text.split())


def test_of_several_parts_the_worst_stands_for_a_cell() -> None:
    text = rendered(sweep_blocks(result(ROW, beside(0, part="bus", rmse=99.0), beside(0, part="car"))), 120, wraps=True)
    assert "bus" in text
    assert "car" not in text


def test_a_coverage_that_is_too_low_for_chance_is_said_and_one_that_is_not_is_not() -> None:
    low = rendered(sweep_blocks(result(ROW, beside(1, covered=120, coverage=0.6))), 200, wraps=True)
    assert "In 1 of 2 cells an interval holds its truth less often than promised, beyond what chance does" in low
    assert "less often" not in rendered(
        sweep_blocks(result(ROW, beside(1, covered=184, coverage=0.92))), 200, wraps=True
    )


def test_more_cells_than_a_screen_holds_are_left_to_the_file() -> None:
    text = rendered(sweep_blocks(result(*(beside(number) for number in range(61)))), 120, wraps=True)
    assert "61 cells are more than a table shows; every row is in sweep.csv." in text


def test_a_cell_without_an_estimate_is_a_row_of_dashes() -> None:
    nothing = beside(0, bias=None, rmse=None, truth=None, estimates=0)
    assert " -  " in rendered(sweep_blocks(result(nothing)), 120, wraps=True)


def test_the_csv_has_a_column_for_each_axis_and_figure_with_all_digits() -> None:
    made = result(ROW, beside(1, theory_stderr=None))
    first, second = csv.DictReader(io.StringIO(directory.csv_text(made)))
    assert list(first) == ["cell", "task.mechanism", "population.clients", "task.epsilon", *COLUMNS]
    assert (first["rmse"], first["theory_stderr"], second["theory_stderr"]) == ("12.512", "12.649", "")
    assert json.loads(json.dumps(made.to_document()))["rows"][0]["parameters"] == dict(ROW.parameters)


def test_parquet_is_the_same_table(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    made = result(ROW, beside(1, parameters={**ROW.parameters, "task.epsilon": 1}, theory_stderr=None))
    mixed = replace(made, axes={**made.axes, "task.epsilon": ("0.5", 1)})
    table = parquet.read_table(directory.write_parquet(mixed, tmp_path / "sweep.parquet"))
    assert table.column_names == mixed.column_names()
    assert table.column("rmse").to_pylist() == [12.512, 12.512]
    assert table.column("theory_stderr").to_pylist() == [12.649, None]
    assert table.column("task.epsilon").to_pylist() == ["0.5", "1"]


def test_parquet_without_pyarrow_is_told_before_the_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(OptionError, match="--parquet: needs pyarrow; run pip install pyarrow, or leave it out"):
        directory.check_parquet()


def test_in_a_pipe_a_line_every_few_seconds_has_the_rate_and_the_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    with show_sweep_progress(lambda: now) as tick:
        for second, made in ((0, 100), (4, 104), (6, 106), (8, 108), (10, 110), (60, 135), (110, 160)):
            now = float(second)
            tick(made, 400)
    assert capsys.readouterr().err.splitlines() == [
        "hush: 106 of 400 cells (27 %), 6 s",
        "hush: 135 of 400 cells (34 %), 60 s, 1.93 s each, 8 min 30 s left",
        "hush: 160 of 400 cells (40 %), 110 s, 2 s each, 8 min left",
    ]


@pytest.mark.parametrize("width", [40, 63, 64, 80])
def test_on_a_terminal_progress_is_one_line_with_whole_figures(width: int) -> None:
    console = Console(width=width, file=io.StringIO(), force_terminal=True)
    columns = bar_columns(console, "cells", "{task.fields[made]}", "{task.fields[rest]}")
    bar = Progress(*columns, console=console)
    bar.add_task("", total=4000, completed=1234, made="1 234 of 4 000", rest="9 min 40 s left")
    with console.capture() as captured:
        console.print(bar.get_renderable())
    (line,) = Text.from_ansi(captured.get()).plain.splitlines()
    assert line.startswith("cells ")
    assert "1 234 of 4 000" in line
    assert line.rstrip().endswith("9 min 40 s left")
