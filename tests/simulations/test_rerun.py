"""`hush simulate --out DIR` keeps what it takes to repeat a run; `--rerun DIR` does, and names what differs."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import without_progress
from typer.testing import CliRunner, Result

from hush import HushError
from hush_simulations.commands.simulate import app, differences

pytestmark = pytest.mark.usefixtures("unrendered")

Json = dict[str, object]


def simulate(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def kept(directory: Path, *arguments: str) -> Path:
    ended = simulate(*arguments, "--out", str(directory))
    assert ended.exit_code == 0, ended.output
    return directory


def read(directory: Path, name: str = "run.json") -> Json:
    found: Json = json.loads((directory / name).read_text(encoding="utf-8"))
    return found


def write(directory: Path, change: Callable[[Json], object], name: str = "run.json") -> None:
    document = read(directory, name)
    change(document)
    (directory / name).write_text(json.dumps(document), encoding="utf-8")


BULK = ("sleep", "--engine", "bulk", "--clients", "2000", "--epsilon", "0.7")


def test_a_run_in_bulk_is_repeated_to_its_last_figure_with_any_number_of_workers(tmp_path: Path) -> None:
    directory = kept(tmp_path / "run", *BULK)
    again = simulate("--rerun", str(directory), "--workers", "3")
    assert (again.exit_code, without_progress(again.stderr)) == (0, "hush: nothing differs\n")
    assert "2 000 devices, laplace, epsilon 0.7" in again.stdout


def test_of_a_run_with_the_noise_of_the_system_the_people_are_repeated(tmp_path: Path) -> None:
    directory = kept(tmp_path / "run", "survey", "--engine", "memory", "--clients", "30")
    again = simulate("--rerun", str(directory))
    assert again.exit_code == 0
    assert "the noise came from the operating system, and is another" in again.stderr


def test_repeatable_noise_is_repeated_by_real_devices_too(tmp_path: Path) -> None:
    memory = ("--engine", "memory", "--connections", "1", "--deterministic-noise")
    directory = kept(tmp_path / "run", "survey", *memory, "--clients", "30")
    again = simulate("--rerun", str(directory))
    assert (again.exit_code, again.stderr.endswith("hush: nothing differs\n")) == (0, True)


def test_each_figure_that_differs_is_named_and_the_status_tells(tmp_path: Path) -> None:
    directory = kept(tmp_path / "run", *BULK)
    write(directory, lambda result: result.update(clients=1999), "result.json")
    again = simulate("--rerun", str(directory))
    assert (again.exit_code, without_progress(again.stderr)) == (1, "hush: differs: clients: 1999, now 2000\n")


def test_versions_that_changed_are_named(tmp_path: Path) -> None:
    directory = kept(tmp_path / "run", *BULK)
    write(directory, lambda run: run["versions"].update(numpy="1.0"))  # type: ignore[attr-defined]
    again = simulate("--rerun", str(directory))
    assert again.exit_code == 0
    assert without_progress(again.stderr).startswith("hush: numpy is ")
    assert "was 1.0\nhush: nothing else differs\n" in again.stderr


def test_a_scenario_that_was_changed_since_is_repeated_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    shipped = Path(__file__).parents[2] / "simulations/hush_simulations/scenarios/shipped/survey.toml"
    text = shipped.read_text(encoding="utf-8")
    file.write_text(text, encoding="utf-8")
    directory = kept(tmp_path / "run", str(file), "--engine", "bulk")
    file.write_text(text.replace("0.3", "0.9"), encoding="utf-8")
    again = simulate("--rerun", str(directory))
    assert (again.exit_code, "the scenario has been changed" in again.stderr) == (0, True)
    file.unlink()
    assert simulate("--rerun", str(directory)).exit_code == 0


def test_data_of_ones_own_are_not_kept_and_a_change_of_theirs_is_told(tmp_path: Path) -> None:
    file = tmp_path / "people.csv"
    file.write_text("age\n41.125\n52.25\n63.375\n", encoding="utf-8")
    own = ("--csv", str(file), "--lower", "0", "--upper", "110", "--engine", "bulk")
    directory = kept(tmp_path / "run", *own)
    assert not any(b"41.125" in one.read_bytes() for one in directory.iterdir())
    assert not (directory / "scenario.toml").exists()
    assert simulate("--rerun", str(directory)).exit_code == 0
    file.write_text("age\n41.125\n52.25\n64.375\n", encoding="utf-8")
    again = simulate("--rerun", str(directory))
    assert again.exit_code == 1
    assert "is not the file that it was" in again.stderr


DAMAGED: dict[str, Callable[[Path], object]] = {
    "is missing": lambda directory: (directory / "run.json").unlink(),
    "is cut": lambda directory: (directory / "run.json").write_text('{"format": 1,'),
    "has an option that no hush has": lambda directory: write(
        directory,
        lambda run: run["options"].update(colour="blue"),  # type: ignore[attr-defined]
    ),
    "is deeper than Python recurses": lambda directory: (directory / "run.json").write_text("[" * 100_000),
    "is of another format": lambda directory: write(directory, lambda run: run.update(format=2)),
    "has lost its result": lambda directory: (directory / "result.json").unlink(),
    "has lost its scenario": lambda directory: (directory / "scenario.toml").unlink(),
}


@pytest.mark.large
@pytest.mark.parametrize("how", DAMAGED)
def test_a_directory_that_is_no_kept_run_is_one_line_with_a_remedy(tmp_path: Path, how: str) -> None:
    directory = kept(tmp_path / "run", *BULK)
    DAMAGED[how](directory)
    error = simulate("--rerun", str(directory)).exception
    assert isinstance(error, HushError)
    assert str(error).startswith("--rerun: ")
    assert "\n" not in str(error)


def test_no_option_that_changes_a_result_goes_with_it(tmp_path: Path) -> None:
    error = simulate("--rerun", str(tmp_path), "--epsilon", "2").exception
    assert str(error) == "--epsilon: would change what is repeated; leave it out, or leave out --rerun"


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
def test_integers_are_compared_exactly_and_floats_to_one_part_in_a_million_millions(
    before: object, after: object, told: list[str]
) -> None:
    assert differences(before, after) == told
