"""Mistakes about scenarios and kept runs, as a user makes them at the command: one line with a name and a remedy."""

import json
from pathlib import Path

import pytest

from hush.cli import main

NUMBER = """
[task]
id = "t"
title = "T"
epsilon = "1"
[task.domain]
kind = "number"
lower = 0.0
upper = 10.0
[population]
"""
MIXTURE = NUMBER + 'kind = "mixture"\nparts = [{}]\n'
CSV = NUMBER + 'kind = "csv"\nfile = "people.csv"\ncolumn = "{}"\n'
FILES = {
    "weights that are negative": (
        MIXTURE.format("{ weight = -0.5, mean = 1.0, sd = 1.0 }"),
        "population.weight: -0.5 is negative or not finite; write a number from 0 up",
    ),
    "weights of nothing": (
        MIXTURE.format("{ weight = 0.0, mean = 1.0, sd = 1.0 }, { weight = 0.0, mean = 2.0, sd = 1.0 }"),
        "population.parts: no group has a positive weight; write at least one group",
    ),
    "weights without an end": (
        MIXTURE.format("{ weight = inf, mean = 1.0, sd = 1.0 }"),
        "population.weight: inf is negative or not finite; write a number from 0 up",
    ),
    "a negative deviation": (
        MIXTURE.format("{ mean = 1.0, sd = -1.0 }"),
        "population.sd: -1.0 is negative or not finite; write a number from 0 up",
    ),
    "nobody": ("clients = 0\n" + MIXTURE.format("{ mean = 1.0, sd = 1.0 }"), "clients: '0' in "),
    "a field that no scenario has": (
        MIXTURE.format("{ mean = 1.0, sd = 1.0, skew = 2.0 }"),
        "population.parts.0.skew: unknown field; check its spelling in ",
    ),
    "a column that is not numeric": (
        CSV.format("name"),
        "population.file: ",
    ),
    "a column that is not there": (CSV.format("hight"), "population.column: 'hight' is not a column of "),
    "rounds of nothing": ("rounds = 0\n" + MIXTURE.format("{ mean = 1.0, sd = 1.0 }"), "rounds: '0' in "),
    "people of a kind that there is not": (
        NUMBER + 'kind = "gamma"\nshape = 2.0\n',
        "population: in ",
    ),
}


def said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    monkeypatch.setattr("sys.argv", ["hush", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    printed = capsys.readouterr()
    assert printed.out == ""
    lines = printed.err.splitlines()
    assert len(lines) == 1, printed.err
    assert isinstance(ended.value.code, int)
    return ended.value.code, lines[0]


@pytest.mark.parametrize("command", [("simulate",), ("simulate", "--engine", "bulk"), ("scenario", "check")])
@pytest.mark.parametrize("mistake", FILES)
def test_a_mistake_in_a_file_is_one_line_of_any_command(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    mistake: str,
    command: tuple[str, ...],
) -> None:
    text, told = FILES[mistake]
    (tmp_path / "people.csv").write_text("height,name\n1.5,Ada\n1.6,Grace\n", encoding="utf-8")
    file = tmp_path / "mine.toml"
    file.write_text(text, encoding="utf-8")
    status, line = said(monkeypatch, capsys, *command, str(file))
    assert (status, line.startswith(f"hush: {told}")) == (2, True), line
    assert "Ada" not in line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.toml", "people.csv"]


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("--clients", "0", "--clients"),
        ("--clients", "-5", "--clients"),
        ("--rounds", "0", "--rounds"),
        ("--epsilon", "-1", "--epsilon"),
        ("--workers", "0", "--workers"),
    ],
)
def test_nobody_and_nothing_are_refused_as_options(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], option: str, value: str, told: str
) -> None:
    status, line = said(monkeypatch, capsys, "simulate", "--engine", "bulk", option, value)
    assert status == 2
    assert told in line


def test_a_run_that_another_version_kept_is_told_by_its_format_and_a_version_that_differs_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["hush", "simulate", "survey", "--engine", "bulk", "--out", str(tmp_path)])
    with pytest.raises(SystemExit):
        main()
    capsys.readouterr()
    file = tmp_path / "run.json"
    kept = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({**kept, "format": 9}), encoding="utf-8")
    told = f"hush: --rerun: {tmp_path} is of format 9, this hush reads 1; repeat it with the hush that kept it"
    assert said(monkeypatch, capsys, "simulate", "--rerun", str(tmp_path)) == (2, told)
    file.write_text(json.dumps({**kept, "format": 9, "of": "the future"}), encoding="utf-8")
    assert said(monkeypatch, capsys, "simulate", "--rerun", str(tmp_path)) == (2, told)
    status, line = said(monkeypatch, capsys, "simulate", "--rerun", str(tmp_path / "gone"))
    assert status == 2
    assert line.endswith("cannot be read (No such file or directory); name a directory that --out made")
