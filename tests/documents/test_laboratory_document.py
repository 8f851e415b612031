"""docs/laboratory.md: the sweep that it shows runs as it stands there, as a file and from Python."""

import re
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest
from readme import README, blocks

from hush import SweepResult
from hush_simulations.sweeps.sweep import SWEEPS, find_sweep

TEXT = (Path(__file__).parents[2] / "docs" / "laboratory.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return TEXT.partition(f"## {title}\n")[2].partition("\n## ")[0]


SECTION = section("Sweeps")


def block(language: str, text: str = SECTION) -> str:
    found = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
    assert len(found) == 1
    return str(found[0])


def test_the_file_that_is_shown_is_a_sweep(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(block("toml"), encoding="utf-8")
    asked = find_sweep(str(tmp_path / "mine.toml"))
    assert (asked.grid.cells, asked.trials, asked.seed, asked.confidence, asked.draw) == (12, 200, 1, 0.95, "auto")


def test_the_program_that_is_shown_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(compile(block("python").replace("trials=100", "trials=20"), "laboratory.md", "exec"), names)  # noqa: S102 - ours
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [
        [mechanism, epsilon] for mechanism in ("laplace", "multilevel") for epsilon in ("1.0", "2.0", "4.0")
    ]
    done = names["done"]
    assert isinstance(done, SweepResult)
    assert len(names["table"]["bias"]) == len(done.rows)  # type: ignore[index]


@pytest.mark.parametrize("name", SWEEPS)
def test_every_sweep_that_comes_with_hush_is_named_there_and_teaches_something(name: str) -> None:
    assert f"`hush sweep {name} --out DIR`" in SECTION
    file = files("hush_simulations.sweeps") / "shipped" / f"{name}.toml"
    assert len(tomllib.loads(file.read_text(encoding="utf-8"))["about"]) > 100


def test_a_file_of_ones_own_is_simulated_as_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (people,) = (block.text for block in blocks(README.read_text(encoding="utf-8")) if block.name == "people.csv")
    (tmp_path / "people.csv").write_text(people, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    exec(compile(block("python", section("Your own data")), "laboratory.md", "exec"), {})  # noqa: S102 - ours
    assert re.fullmatch(r"-?\d+\.\d+ 4\d\.\d+\n", capsys.readouterr().out)
