"""`hush audit`: the epsilon of hush's mechanisms, of a task and of your own function, measured; and how it ends."""

import json
import re
import sys
from fractions import Fraction
from pathlib import Path

import pytest
from commands import Shown, run, without_progress

OWN = """
import random
source = random.Random(1)

def coins(value):
    return value if source.random() < 0.75 else not value

def broken(value):
    raise KeyError("no such\\nthing")

def listed(value):
    return [value]
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.py").write_text(OWN, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)  # of an earlier test
    return tmp_path


def audit(directory: Path, *arguments: str) -> Shown:
    return run(["audit", *arguments], directory)


@pytest.mark.medium
def test_every_mechanism_of_hush_is_consistent(tmp_path: Path) -> None:
    shown = audit(tmp_path, "--samples", "10000", "--seed", "1", "--json")
    assert (shown.code, without_progress(shown.err)) == (0, "")
    found = json.loads(shown.out)
    names = ["laplace", "multilevel", "table", "randomized_response", "subset_selection", "vector"]
    assert [one["name"].split(",")[0] for one in found["audits"]] == names
    assert {one["verdict"] for one in found["audits"]} == {"consistent"}


@pytest.mark.medium
def test_one_mechanism_shows_the_measured_epsilon_and_the_observer(tmp_path: Path) -> None:
    asked = ("randomized_response", "--epsilon", "2", "--samples", "20000", "--seed", "1")
    text = audit(tmp_path, *asked).out
    assert re.search(r"epsilon 2: .* 88\.1 %", text)  # rounded up, as every promise is
    assert re.search(r"epsilon ≥ 1\.9", text)
    (found,) = json.loads(audit(tmp_path, *asked, "--json").out)["audits"]
    assert (found["declared"], found["verdict"]) == ("2", "consistent")
    assert 1.9 < found["epsilon_at_least"] < 2
    assert [one["guess"] for one in found["rule"]] == ["no", "yes"]


def test_several_audits_share_the_error_probability(tmp_path: Path) -> None:
    text = " ".join(audit(tmp_path, "--samples", "100", "--seed", "1").out.split())
    assert re.findall(r"at ([\d.]+) % confidence", text) == ["99.83"] * 6
    found = json.loads(audit(tmp_path, "--samples", "100", "--seed", "1", "--json").out)
    assert {one["confidence"] for one in found["audits"]} == {float(1 - Fraction(1, 600))}
    alone = audit(tmp_path, "laplace", "--samples", "100", "--seed", "1", "--confidence", "0.999", "--json")
    assert json.loads(alone.out)["audits"][0]["confidence"] == 0.999


def test_a_task_file_is_audited_as_its_devices_would_answer_it(tmp_path: Path) -> None:
    text = 'id = "sleep"\nepsilon = "1"\nmechanism = "laplace"\n[domain]\nkind = "number"\nlower = 0\nupper = 12\n'
    (tmp_path / "task.toml").write_text(text, encoding="utf-8")
    shown = audit(tmp_path, "--task", "task.toml", "--samples", "5000", "--seed", "1", "--json")
    (found,) = json.loads(shown.out)["audits"]
    assert (found["name"], found["declared"], found["verdict"]) == ("sleep (laplace)", "1", "consistent")
    assert [one["guess"] for one in found["rule"]] == ["0", "12"]


@pytest.mark.medium
def test_a_function_that_gives_away_more_than_it_declares_ends_in_1(own: Path) -> None:
    shown = audit(own, "mine:coins", "--inputs", "true", "false", "--epsilon", "0.9")
    assert shown.code == 1
    assert "VIOLATION" in shown.out
    assert "VIOLATION" in shown.err
    assert "mine:coins" in shown.err
    assert "onsistent" not in shown.out


@pytest.mark.medium
def test_a_function_without_a_declared_epsilon_is_only_measured(own: Path) -> None:
    shown = audit(own, "mine:coins", "--inputs", "true", "false", "--json")
    assert shown.code == 0
    (found,) = json.loads(shown.out)["audits"]
    assert 1.06 < found["epsilon_at_least"] < 1.0986
    assert "verdict" not in found


@pytest.mark.medium
@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        (("laplace", "gauss"), 2, "hush audit --help"),
        (("gauss",), 2, "'gauss'"),
        (("table", "--epsilon", "0.2"), 2, "--epsilon: "),
        (("laplace", "--epsilon", "0"), 2, "--epsilon: 0"),
        (("laplace", "--samples", "3"), 2, "--samples: 3"),
        (("laplace", "--confidence", "1"), 2, "--confidence: 1"),
        (("laplace", "--inputs", "0", "1"), 2, "--inputs: "),
        (("laplace", "--task", "t.toml"), 2, "--task: "),
        (("--task", "missing.toml"), 2, "missing.toml"),
        (("mine:coins",), 2, "--inputs: "),
        (("mine:nothing", "--inputs", "0", "1"), 1, "AttributeError"),
        (("missing:it", "--inputs", "0", "1"), 1, "ModuleNotFoundError"),
        (("mine:broken", "--inputs", "0", "1"), 1, "KeyError"),
        (("mine:listed", "--inputs", "0", "1"), 1, "list"),
        (("mine:source", "--inputs", "0", "1"), 1, "mine:source"),
    ],
)
def test_a_mistake_in_auditing_is_one_line(own: Path, arguments: tuple[str, ...], code: int, named: str) -> None:
    shown = audit(own, *arguments)
    (line,) = without_progress(shown.err).splitlines()
    assert (shown.code, shown.out) == (code, "")
    assert named in line
