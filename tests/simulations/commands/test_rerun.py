"""`hush simulate --out DIR` keeps what it takes to repeat a run; `--rerun DIR` does, and names what differs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import Shown, run, without_progress

from hush_simulations import scenarios
from hush_simulations.commands.simulate import differences

pytestmark = [pytest.mark.medium, pytest.mark.usefixtures("unrendered")]

BULK = ("sleep", "--engine", "bulk", "--clients", "2000", "--epsilon", "0.7")


def keep(directory: Path, *arguments: str) -> None:
    shown = run(["simulate", *arguments, "--out", "run"], directory)
    assert shown.code == 0, shown.err


def rerun(directory: Path, *arguments: str) -> Shown:
    return run(["simulate", "--rerun", "run", *arguments], directory)


def change(directory: Path, name: str, changed: Callable[[dict[str, Any]], object]) -> None:
    file = directory / "run" / name
    document = json.loads(file.read_text(encoding="utf-8"))
    changed(document)
    file.write_text(json.dumps(document), encoding="utf-8")


def test_a_bulk_run_is_repeated_with_any_number_of_workers(tmp_path: Path) -> None:
    keep(tmp_path, *BULK)
    again = rerun(tmp_path, "--workers", "3")
    assert (again.code, len(without_progress(again.err).splitlines())) == (0, 1)
    assert "0.7" in again.out


def test_real_devices_repeat_the_people_and_seeded_noise(tmp_path: Path) -> None:
    memory = ("survey", "--engine", "memory", "--connections", "1", "--clients", "30")
    keep(tmp_path, *memory)
    assert rerun(tmp_path).code == 0
    keep(tmp_path, *memory, "--deterministic-noise")
    assert rerun(tmp_path).code == 0
    change(tmp_path, "result.json", lambda result: result["result"].update(mean=0.123))
    again = rerun(tmp_path)
    assert (again.code, "result.mean: 0.123" in again.err) == (1, True)


def test_each_figure_that_differs_is_named(tmp_path: Path) -> None:
    keep(tmp_path, *BULK)
    change(tmp_path, "result.json", lambda result: result.update(clients=1999))
    again = rerun(tmp_path)
    assert (again.code, "clients: 1999, now 2000" in again.err) == (1, True)


def test_a_version_that_changed_is_named(tmp_path: Path) -> None:
    keep(tmp_path, *BULK)
    change(tmp_path, "run.json", lambda kept: kept["versions"].update(numpy="1.0"))
    again = rerun(tmp_path)
    assert again.code == 0
    assert "numpy" in again.err
    assert "1.0" in again.err


def test_a_scenario_file_that_changed_is_repeated_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    shipped = Path(scenarios.__file__).parent / "shipped" / "survey.toml"
    text = shipped.read_text(encoding="utf-8")
    file.write_text(text, encoding="utf-8")
    keep(tmp_path, "mine.toml", "--engine", "bulk")
    file.write_text(text.replace("0.3", "0.9"), encoding="utf-8")
    again = rerun(tmp_path)
    assert (again.code, len(without_progress(again.err).splitlines())) == (0, 2)  # it says that the file changed
    file.unlink()
    assert rerun(tmp_path).code == 0


def test_own_data_are_not_kept_and_their_change_is_named(tmp_path: Path) -> None:
    file = tmp_path / "people.csv"
    file.write_text("age\n41.125\n52.25\n63.375\n", encoding="utf-8")
    keep(tmp_path, "--csv", "people.csv", "--lower", "0", "--upper", "110", "--engine", "bulk")
    assert not any(b"41.125" in one.read_bytes() for one in (tmp_path / "run").iterdir())
    assert not (tmp_path / "run" / "scenario.toml").exists()
    assert rerun(tmp_path).code == 0
    file.write_text("age\n41.125\n52.25\n64.375\n", encoding="utf-8")
    again = rerun(tmp_path)
    assert (again.code, "people.csv" in again.err) == (1, True)


DAMAGED: dict[str, Callable[[Path], object]] = {
    "no run": lambda directory: (directory / "run" / "run.json").unlink(),
    "a cut run": lambda directory: (directory / "run" / "run.json").write_text('{"format": 1,'),
    "an unknown option": lambda directory: change(directory, "run.json", lambda kept: kept["options"].update(a="b")),
    "too deep": lambda directory: (directory / "run" / "run.json").write_text("[" * 100_000),
    "another format": lambda directory: change(directory, "run.json", lambda kept: kept.update(format=9, of="later")),
    "no result": lambda directory: (directory / "run" / "result.json").unlink(),
    "no scenario": lambda directory: (directory / "run" / "scenario.toml").unlink(),
}


def test_a_directory_that_is_not_a_kept_run_is_refused(tmp_path: Path) -> None:
    for how, damage in DAMAGED.items():
        keep(tmp_path, *BULK)
        damage(tmp_path)
        shown = rerun(tmp_path)
        (line,) = shown.err.splitlines()
        assert (shown.code, shown.out) == (2, ""), how
        assert line.startswith("hush: --rerun: "), how


def test_no_option_that_changes_a_result_goes_with_it(tmp_path: Path) -> None:
    shown = rerun(tmp_path, "--epsilon", "2")
    assert shown.code == 2
    assert shown.err.startswith("hush: --epsilon: ")
    assert "--rerun" in shown.err


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ({"a": 1.0}, {"a": 1.0 + 1e-15}, []),
        ({"a": 1.0}, {"a": 1.0 + 1e-11}, ["a: 1.0, now 1.00000000001"]),
        ({"a": 1}, {"a": 1.0}, ["a: 1, now 1.0"]),
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}, ["a[1].b: 2, now 3"]),
        ({"a": [1]}, {"a": [1, 2]}, ["a: [1], now [1, 2]"]),
        ({}, {"a": 5}, ["a: nothing, now 5"]),
        ({"elapsed_s": 1, "result": {"updated_at": 1}}, {"elapsed_s": 2, "result": {"updated_at": 2}}, []),
    ],
)
def test_integers_are_compared_exactly_and_floats_nearly(before: object, after: object, told: list[str]) -> None:
    assert differences(before, after) == told
