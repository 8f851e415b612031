"""`hush.sweep`: the same figures with any number of workers, kept cell by cell, and gone on with after any stop."""

import csv
import importlib
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commands import run
from made_sweeps import GRID as MADE
from rendered import rendered

import hush
from hush import HushError, SweepResult
from hush_common.errors import OptionError
from hush_simulations.display.sweep import sweep_blocks

GRID: Mapping[str, object] = {"task.mechanism": ["multilevel", "laplace"], "task.epsilon": [0.5, 2]}


def swept(out: Path, grid: Mapping[str, object] = GRID, *, trials: int = 20, **more: object) -> SweepResult:
    return hush.sweep(grid, out=out, trials=trials, seed=7, **more)  # type: ignore[arg-type]


def content(directory: Path) -> dict[str, bytes]:
    files = sorted(path for path in directory.rglob("*") if path.is_file() and path.name != "lock")
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


@pytest.mark.medium
@pytest.mark.face
def test_a_sweep_is_the_same_with_one_process_and_with_two(tmp_path: Path) -> None:
    one, two = swept(tmp_path / "one"), swept(tmp_path / "two", workers=2)
    assert one.rows == two.rows
    assert content(tmp_path / "one") == content(tmp_path / "two")
    assert one.cells == 4
    assert {row.mechanism for row in one.rows} == {"multilevel", "laplace"}


def test_missing_damaged_and_foreign_cells_are_made_again(tmp_path: Path) -> None:
    swept(tmp_path)
    before = content(tmp_path)
    cells = sorted((tmp_path / "cells").iterdir())
    cells[0].unlink()
    text = cells[1].read_bytes()
    cells[1].write_bytes(text.replace(b'"seed": 7', b'"seed": 8'))
    cells[2].write_bytes(cells[2].read_bytes()[:-1])
    kept = cells[3].stat().st_mtime_ns
    made: list[int] = []
    hush.sweep(GRID, out=tmp_path, trials=20, seed=7, progress=lambda done, _: made.append(done))
    assert made == [1, 2, 3, 4]
    assert content(tmp_path) == before
    assert cells[3].stat().st_mtime_ns == kept


def test_a_directory_of_another_sweep_is_refused_by_what_differs(tmp_path: Path) -> None:
    swept(tmp_path, trials=5)
    before = content(tmp_path)
    changes: list[tuple[dict[str, Any], list[str]]] = [
        ({"trials": 6}, ["trials", "5", "6"]),
        ({"seed": 8}, ["seed", "7", "8"]),
        ({"confidence": 0.9}, ["confidence", "0.95", "0.9"]),
        ({"grid": {**GRID, "task.epsilon": [1]}}, ["grid.task.epsilon", '["0.5","2"]', '["1"]']),
        ({"grid": {"task.epsilon": [0.5, 2]}}, ["grid.task.mechanism"]),
        ({"scenario": "commute", "grid": {"task.epsilon": [0.5, 2]}}, ["scenario"]),
        ({"resume": False}, ["--out"]),
    ]
    for change, named in changes:
        with pytest.raises(OptionError, match="--out") as refused:
            hush.sweep(**{"grid": GRID, "out": tmp_path, "trials": 5, "seed": 7, **change})
        assert all(word in str(refused.value) for word in named), change
    assert content(tmp_path) == before


@pytest.mark.parametrize(
    ("grid", "named"),
    [
        ({}, "grid: "),
        ({"task.epsilon": 1}, "grid.task.epsilon: '1'"),
        ({"task.epsilon": []}, "grid.task.epsilon: "),
        ({"task.epsilon": [1, "1"]}, 'grid.task.epsilon: "1"'),
        ({"task.epsilon": [-1]}, "task.epsilon = -1"),
        ({"task.epsilonn": ["1"]}, "task.epsilonn = 1"),
        ({"task.mechanism": ["subset_selection"]}, "task.mechanism = subset_selection"),
        ({"network.forgoten": [0.1]}, "network.forgoten = 0.1"),
        ({"liars.share": [0.1]}, "grid.liars.share: "),
        ({"population.parts.sd": [1.0]}, "population.parts.0.sd"),
        ({"population.parts.0.sd": [-1.0]}, "population.sd: -1.0"),
        ({"population.parts.7.sd": [1.0]}, "'7'"),
        ({"clients.of": [1]}, "'of'"),
        ({"population.clients": [0]}, "clients: 0"),
        ({"population.clients": ["many"]}, "'many'"),
        ({"scenario": ["height"]}, "'height'"),
        ({"task.epsilon": [float("nan")]}, "grid.task.epsilon: nan"),
    ],
)
def test_a_wrong_grid_is_refused_before_anything_is_made(
    tmp_path: Path, grid: Mapping[str, object], named: str
) -> None:
    with pytest.raises(HushError) as refused:
        swept(tmp_path / "out", grid)
    assert named in str(refused.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.medium
def test_anything_in_a_scenario_can_be_varied(tmp_path: Path) -> None:
    grid = {
        "network.forgotten": [0.0, 0.3],
        "population.parts.0.sd": [1.0, 7.0],
        "rounds": [1],
        "clients": [300],
    }
    done = swept(tmp_path, grid, trials=5)
    assert done.cells == 4
    names = done.column_names()
    assert names[:3] == ["cell", "network.forgotten", "population.parts.0.sd"]
    assert len(names) == len(set(names))
    assert {row.clients for row in done.rows} == {300}
    json.dumps(done.to_document(), allow_nan=False)


@pytest.mark.medium
def test_a_scenario_of_each_kind_is_swept(tmp_path: Path) -> None:
    done = swept(tmp_path, {"scenario": list(hush.SCENARIOS), "population.clients": [40]}, trials=3)
    assert done.cells == len(hush.SCENARIOS)
    assert {row.parameters["scenario"] for row in done.rows} == set(hush.SCENARIOS)


@pytest.mark.medium
def test_workers_do_not_run_a_script_without_a_main_guard(tmp_path: Path) -> None:
    script = tmp_path / "my study.py"
    script.write_text(
        "import hush\nprint('begins')\n"
        "done = hush.sweep({'task.epsilon': [1, 2]}, out='out', trials=2, seed=7, workers=2)\nprint(len(done.rows))\n",
        encoding="utf-8",
    )
    ran = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split()[0] == "begins"
    assert ran.stdout.count("begins") == 1


def test_workers_and_a_cluster_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"^workers: .*dask="):
        hush.sweep(GRID, out=tmp_path, workers=2, dask="tcp://127.0.0.1:1")
    shown = run(["sweep", "bounds", "--out", "out", "--workers", "2", "--dask", "tcp://127.0.0.1:1"], tmp_path)
    assert shown.code == 2
    assert shown.err.startswith("hush: --workers: ")
    assert "--dask" in shown.err


@pytest.mark.medium
@pytest.mark.usefixtures("unrendered")
def test_the_command_writes_rows_figures_and_a_status(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(
        'scenario = "survey"\ntrials = 5\nseed = 1\n[grid]\n"task.epsilon" = [1, 2]\n', encoding="utf-8"
    )
    command = ["sweep", "own.toml", "--out", "out"]
    done = run([*command, "--theme", "dark", "--parquet", "--json"], tmp_path)
    assert done.code == 0, done.err
    figures = {f"sweep-{what}-dark.{kind}" for what in ("bias", "coverage", "error") for kind in ("png", "svg")}
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {*figures, "sweep.csv", "sweep.parquet"}
    found = json.loads(done.out)
    with (tmp_path / "out" / "sweep.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["rmse"]) for row in rows] == [row["rmse"] for row in found["rows"]]
    table = importlib.import_module("pyarrow.parquet").read_table(tmp_path / "out" / "sweep.parquet")
    assert table.column("rmse").to_pylist() == [row["rmse"] for row in found["rows"]]
    assert [row["task.epsilon"] for row in rows[:1]] == ["1"]
    status = run([*command, "--status"], tmp_path)
    assert "2 made" in status.out


def test_parquet_without_pyarrow_is_refused_before_the_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    shown = run(["sweep", "bounds", "--out", "out", "--parquet"], tmp_path)
    assert (shown.code, list(tmp_path.iterdir())) == (2, [])
    assert "--parquet: " in shown.err
    assert "pip install pyarrow" in shown.err


@pytest.mark.parametrize("width", [60, 120])
def test_the_table_fits_and_has_the_figures_of_each_cell(width: int) -> None:
    text = rendered(sweep_blocks(MADE), width, wraps=True)
    assert max(map(len, text.splitlines())) <= width
    for one in MADE.rows:
        assert f"{one.rmse:.1f}" in text
        assert f"{100 * (one.coverage or 0):.0f} %" in text


def test_a_table_shows_the_worst_part_and_only_low_coverage_is_named() -> None:
    first = MADE.rows[0]
    parts = (first, replace(first, part="bus", rmse=99.0), replace(first, part="car"))
    text = rendered(sweep_blocks(replace(MADE, rows=parts)), 120, wraps=True)
    assert "bus" in text
    assert "car" not in text
    fair, low = (replace(first, covered=covered, coverage=covered / 100) for covered in (92, 60))
    usual, warned = (rendered(sweep_blocks(replace(MADE, rows=(one,))), 200, wraps=True) for one in (fair, low))
    assert len(warned.split()) > len(usual.split())
    bare = replace(first, bias=None, rmse=None, truth=None, estimates=0)
    assert " -  " in rendered(sweep_blocks(replace(MADE, rows=(bare,))), 120, wraps=True)
