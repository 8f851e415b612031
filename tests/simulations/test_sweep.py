"""`hush.sweep`: the same figures with any number of workers, kept cell by cell, and gone on with after any stop."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import hush
from hush import HushError, SweepResult
from hush.cli import app
from hush_common.errors import OptionError

GRID: Mapping[str, object] = {"task.mechanism": ["multilevel", "laplace"], "task.epsilon": [0.5, 2]}


def swept(out: Path, grid: Mapping[str, object] = GRID, *, trials: int = 20, **more: object) -> SweepResult:
    return hush.sweep(grid, out=out, trials=trials, seed=7, **more)  # type: ignore[arg-type]


def content(directory: Path) -> dict[str, bytes]:
    files = sorted(path for path in directory.rglob("*") if path.is_file() and path.name != "lock")
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


@pytest.mark.large
def test_a_sweep_is_the_same_with_one_process_and_with_two_to_the_last_byte(tmp_path: Path) -> None:
    one, two = swept(tmp_path / "one"), swept(tmp_path / "two", workers=2)
    assert one.rows == two.rows
    assert content(tmp_path / "one") == content(tmp_path / "two")
    assert one.cells == 4
    assert {row.mechanism for row in one.rows} == {"multilevel", "laplace"}


def test_exactly_the_cells_that_are_missing_damaged_or_of_another_seed_are_made_again(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trials": 21}, "trials is 20 there and 21 here"),
        ({"seed": 8}, "seed is 7 there and 8 here"),
        ({"confidence": 0.9}, "confidence is 0.95 there and 0.9 here"),
        ({"grid": {**GRID, "task.epsilon": [1]}}, 'grid.task.epsilon is ["0.5","2"] there and ["1"] here'),
        (
            {"grid": {"task.epsilon": [0.5, 2]}},
            'grid.task.mechanism is ["multilevel","laplace"] there and missing here',
        ),
        ({"scenario": "commute"}, "scenario is another there and another here"),
        ({"resume": False}, "has a sweep already; name another directory"),
    ],
)
def test_a_directory_of_another_sweep_is_refused_by_what_differs(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    swept(tmp_path, trials=20)
    before = content(tmp_path)
    asked: dict[str, object] = {"grid": GRID, "trials": 20, "seed": 7, **change}
    if "scenario" in change:
        asked["grid"] = {"task.epsilon": [0.5, 2], "population.clients": [10, 20]}
    with pytest.raises(OptionError, match="--out") as refused:
        hush.sweep(out=tmp_path, **asked)  # type: ignore[arg-type]
    assert message in str(refused.value)
    assert content(tmp_path) == before


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ({}, "grid: is empty; write what is varied"),
        ({"task.epsilon": 1}, "grid.task.epsilon: '1' is not a list"),
        ({"task.epsilon": []}, "grid.task.epsilon: has no value"),
        ({"task.epsilon": [1, "1"]}, 'grid.task.epsilon: "1" is listed twice'),
        ({"task.epsilon": [-1]}, "grid: no scenario has task.epsilon = -1: epsilon: "),
        ({"task.epsilonn": ["1"]}, "no scenario has task.epsilonn = 1: epsilonn: unknown field"),
        ({"task.mechanism": ["subset_selection"]}, "no scenario has task.mechanism = subset_selection: mechanism"),
        ({"network.forgoten": [0.1]}, "no scenario has network.forgoten = 0.1: network.forgoten: unknown field"),
        ({"liars.share": [0.1]}, "grid.liars.share: the scenario has no liars"),
        (
            {"population.parts.sd": [1.0]},
            "grid.population.parts.sd: there are 2 of them; write which, as in population.parts.0.sd",
        ),
        ({"population.parts.0.sd": [-1.0]}, "population.sd: -1.0 is negative or not finite"),
        ({"population.parts.7.sd": [1.0]}, "there is nothing called '7' there"),
        ({"clients.of": [1]}, "there is nothing called 'of' there"),
        ({"population.clients": [0]}, "clients: 0 is outside 1 to 1000000000"),
        ({"population.clients": ["many"]}, "'many' is not a whole number"),
        ({"scenario": ["height"]}, "'height' is not a scenario"),
        ({"task.epsilon": [float("nan")]}, "grid.task.epsilon: nan is not a finite number"),
    ],
)
def test_a_grid_that_no_scenario_has_is_refused_by_name_before_anything_is_made(
    tmp_path: Path, grid: Mapping[str, object], message: str
) -> None:
    with pytest.raises(HushError) as refused:
        swept(tmp_path / "out", grid)
    assert message in str(refused.value)
    assert not list(tmp_path.iterdir())


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


@pytest.mark.large
def test_a_scenario_of_each_kind_is_swept(tmp_path: Path) -> None:
    done = swept(tmp_path, {"scenario": list(hush.SCENARIOS), "population.clients": [40]}, trials=3)
    assert done.cells == len(hush.SCENARIOS)
    assert {row.parameters["scenario"] for row in done.rows} == set(hush.SCENARIOS)


@pytest.mark.large
def test_workers_of_a_script_without_a_main_guard_run_nothing_of_it(tmp_path: Path) -> None:
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


def test_the_command_and_the_function_refuse_workers_with_a_cluster_each_in_its_own_words(tmp_path: Path) -> None:
    given = {"grid": GRID, "out": tmp_path, "workers": 2, "dask": "tcp://127.0.0.1:1"}
    with pytest.raises(OptionError, match=r"^workers: has no effect with dask=\.\.\., a cluster has its own"):
        hush.sweep(**given)  # type: ignore[arg-type]
    command = ["sweep", "bounds", "--out", str(tmp_path), "--workers", "2", "--dask", "tcp://127.0.0.1:1"]
    with pytest.raises(OptionError, match=r"^--workers: has no effect with --dask, a cluster has its own"):
        app(command, standalone_mode=False)
