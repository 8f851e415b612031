"""`hush plan` and `hush audit` as a person meets them: what is printed where, and how they end."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import pytest
from commands import run, without_progress

from hush.cli import main

HUSH = (sys.executable, "-m", "hush")

OWN = """
import random
_source = random.Random(1)

def coins(value):
    return value if _source.random() < 0.75 else not value

def broken(value):
    raise KeyError("no such\\nthing")

def listed(value):
    return [value]
"""


def hush(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    wide = {**os.environ, "COLUMNS": "200"}
    command = [*HUSH, *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, cwd=cwd, env=wide)
    return subprocess.CompletedProcess(ended.args, ended.returncode, ended.stdout, without_progress(ended.stderr))


@dataclass
class Ended:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """The same command without a process of its own: most of the time of a mistake is the start of Python."""

    def run(*arguments: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["hush", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return Ended(int(ended.value.code or 0), printed.out, printed.err)

    return run


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(OWN, encoding="utf-8")
    return tmp_path


def test_a_plan_names_what_auto_picks_and_what_the_others_cost() -> None:
    ended = hush("plan", "--epsilon", "0.5", "--error", "5", "--lower", "0", "--upper", "100", "--unit", "cm")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "How many people? The mean of a number from 0 to 100 cm; epsilon 0.5, an error of 5 cm (5 %)" in ended.stdout
    assert "table (auto)" in ended.stdout
    assert "12 294" in ended.stdout
    assert "6 484" in ended.stdout
    assert "auto picks table.\n" in ended.stdout
    assert "For the reporters, multilevel needs 1.05 times as many people, laplace 1.99 times." in ended.stdout
    assert "For the population, auto is not the cheapest: multilevel needs 0.986 times" in ended.stdout
    assert "versus central DP, in people: 51.4 times for the reporters and " in ended.stdout


@pytest.mark.parametrize(
    "options",
    [
        ("--epsilon", "1", "--error", "5%"),
        ("--epsilon", "1", "--error", "5%", "--rms"),
        ("--epsilon", "5", "--error", "5%"),
        ("--epsilon", "8", "--error", "2%"),
        ("--epsilon", "8", "--people", "1000"),
        ("--people", "40", "--error", "30%"),
    ],
)
def test_a_plan_reports_for_each_target_whether_auto_is_the_cheapest(
    inside: Callable[..., Ended], options: tuple[str, ...]
) -> None:
    found = json.loads(inside("plan", *options, "--json").stdout)
    told = " ".join(inside("plan", *options).stdout.split())
    for target in ("reporters", "population"):
        (sentence,) = re.findall(rf"For the {target}, (.*?)\.(?: |$)", told)
        relatives = {one["mechanism"]: one["relative"][target] for one in found["mechanisms"]}
        cheapest = min(relatives, key=relatives.__getitem__)
        assert found["cheapest"][target] == cheapest
        is_told = relatives[cheapest] < 1 / 1.005
        assert sentence.startswith(f"auto is not the cheapest: {cheapest} needs ") == is_told
        assert ("auto is not the cheapest" in sentence) == is_told
    assert "For the population, auto is not the cheapest" in told or options[1] == "1"


@pytest.mark.large
@pytest.mark.parametrize(
    ("unknown", "options"),
    [
        ("people", ("--epsilon", "1", "--error", "5%")),
        ("epsilon", ("--people", "2_000", "--error", "10%")),
        ("error", ("--people", "2e3", "--epsilon", "1")),
    ],
)
@pytest.mark.parametrize(
    "domain",
    [
        ("number",),
        ("number", "--lower", "-5", "--upper", "5"),
        ("bit",),
        ("category", "--categories", "16"),
        ("vector", "--coordinates", "8"),
    ],
)
def test_any_two_give_the_third_as_one_json_object(
    inside: Callable[..., Ended], unknown: str, options: tuple[str, ...], domain: tuple[str, ...]
) -> None:
    ended = inside("plan", "--json", *options, "--domain", *domain)
    assert (ended.returncode, ended.stderr) == (0, "")
    found = json.loads(ended.stdout)
    assert found["unknown"] == unknown
    assert {*found["auto"].values(), *found["cheapest"].values()} <= {line["mechanism"] for line in found["mechanisms"]}
    assert "null" not in ended.stdout


@pytest.mark.large
@pytest.mark.parametrize(
    "domain", [("number",), ("vector", "--coordinates", "64"), ("category", "--categories", "1024")]
)
def test_planning_ends_even_where_no_epsilon_helps(domain: tuple[str, ...]) -> None:
    done = hush("plan", "--people", "5", "--error", "0.01%", "--domain", *domain)
    assert done.returncode == 0
    assert "No mechanism achieves this error" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "hush: --people, --epsilon, --error: give two of them, as in --epsilon 1 --error 5%"),
        (("--nonsense",), "No such option: --nonsense"),
        (("--people",), "Option '--people' requires an argument; see hush plan --help"),
        (("--categories", "many"), "Invalid value for '--categories'"),
        (("--people", "10"), "--people: alone gives nothing; add --epsilon or --error"),
        (("--people", "10", "--epsilon", "1", "--error", "5%"), "two of them give the third; leave one out"),
        (("--people", "many", "--epsilon", "1"), "--people: 'many' is not a number of people"),
        (("--people", "0", "--epsilon", "1"), "--people: 0 is outside"),
        (("--people", "10", "--epsilon", "0"), "--epsilon: 0 is outside"),
        (("--people", "10", "--epsilon", "nan"), "--epsilon: 'nan' is not a decimal number"),
        (("--people", "10", "--error", "5"), "--error: 5 is in the unit of the value: add --lower and --upper"),
        (("--people", "10", "--error", "0%"), "--error: '0%' is not a positive error"),
        (("--people", "10", "--error", "1.2.3"), "--error: '1.2.3' is not a positive error"),
        (("--people", "10", "--error", "5", "--domain", "bit"), "--error: 5 is not the error of a share; write 5%"),
        (("--people", "10", "--epsilon", "1", "--confidence", "95"), "--confidence: 95 is not between 0 and 1"),
        (("--people", "10", "--epsilon", "1", "--rms", "--confidence", "0.9"), "--rms: a root mean square has no"),
        (("--people", "10", "--epsilon", "1", "--lower", "3"), "--upper: is missing"),
        (("--people", "10", "--epsilon", "1", "--lower", "3", "--upper", "1"), "--lower: 3 is not below --upper 1"),
        (("--people", "10", "--epsilon", "1", "--domain", "word"), "--domain: 'word' is not a kind of value"),
        (("--people", "10", "--epsilon", "1", "--domain", "category"), "--categories: is missing"),
        (("--people", "10", "--epsilon", "1", "--domain", "vector", "--coordinates", "0"), "0 is outside 1 to 1024"),
        (("--people", "10", "--epsilon", "1", "--domain", "bit", "--unit", "cm"), "--unit: is for --domain number"),
    ],
)
def test_a_mistake_in_planning_is_one_line(
    inside: Callable[..., Ended], arguments: tuple[str, ...], words: str
) -> None:
    ended = inside("plan", *arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("hush: ")
    assert words in ended.stderr
    assert ended.stderr.count("\n") == 1


@pytest.mark.medium
def test_every_mechanism_of_hush_is_audited_and_found_consistent() -> None:
    ended = hush("audit", "--samples", "10000", "--seed", "1", "--json")
    assert (ended.returncode, ended.stderr) == (0, "")
    found = json.loads(ended.stdout)
    assert [one["name"].split(",")[0] for one in found["audits"]] == [
        "laplace",
        "multilevel",
        "table",
        "randomized_response",
        "subset_selection",
        "vector",
    ]
    assert {one["verdict"] for one in found["audits"]} == {"consistent"}


def test_one_mechanism_by_name_prints_why() -> None:
    ended = hush("audit", "randomized_response", "--epsilon", "2", "--samples", "20000", "--seed", "1")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert (
        "claimed    epsilon 2: no observer is right more often than 88.1 %\n  measured   epsilon ≥ 1.9" in ended.stdout
    )
    assert "verdict    consistent" in ended.stdout
    assert "observer   guesses no if the report is 0\n             guesses yes if the report is 1\n" in ended.stdout
    assert re.search(r"guesses were right \(8\d\.\d\d %\), on 30 000 reports\n", ended.stdout)
    assert "Consistent is not a proof" in ended.stdout


def test_the_confidence_of_several_audits_has_few_digits(inside: Callable[..., Ended]) -> None:
    ended = inside("audit", "--samples", "100", "--seed", "1")
    sure = re.findall(r"at ([\d.]+) % confidence", " ".join(ended.stdout.split()))
    assert sure == ["99.83"] * 6
    found = json.loads(inside("audit", "--samples", "100", "--seed", "1", "--json").stdout)
    assert {one["confidence"] for one in found["audits"]} == {float(1 - Fraction(1, 600))}
    alone = inside("audit", "laplace", "--samples", "100", "--seed", "1", "--confidence", "0.999").stdout
    assert "at 99.9 % confidence" in " ".join(alone.split())


def test_a_task_file_is_audited_as_its_devices_would_answer_it(tmp_path: Path) -> None:
    text = 'id = "sleep"\nepsilon = "1"\nmechanism = "laplace"\n[domain]\nkind = "number"\nlower = 0\nupper = 12\n'
    (tmp_path / "task.toml").write_text(text, encoding="utf-8")
    ended = hush("audit", "--task", "task.toml", "--samples", "5000", "--seed", "1", "--json", cwd=tmp_path)
    (found,) = json.loads(ended.stdout)["audits"]
    assert (found["name"], found["declared"], found["verdict"]) == ("sleep (laplace)", "1", "consistent")
    assert [one["guess"] for one in found["rule"]] == ["0", "12"]


def test_a_function_of_ones_own_that_gives_away_more_than_it_declares_ends_in_exit_1(own: Path) -> None:
    ended = hush("audit", "mine:coins", "--inputs", "true", "false", "--epsilon", "0.9", cwd=own)
    assert ended.returncode == 1
    assert "verdict    VIOLATION" in ended.stdout
    assert ended.stderr == "hush: VIOLATION: the claimed epsilon is exceeded by mine:coins\n"
    assert "Consistent" not in ended.stdout


@pytest.mark.large
def test_a_function_of_ones_own_without_a_declared_epsilon_is_only_measured(own: Path) -> None:
    ended = hush("audit", "mine:coins", "--inputs", "true", "false", "--json", cwd=own)
    assert (ended.returncode, ended.stderr) == (0, "")
    (found,) = json.loads(ended.stdout)["audits"]
    assert 1.06 < found["epsilon_at_least"] < 1.0986
    assert "verdict" not in found


@pytest.mark.medium
@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("laplace", "gauss"), 2, "unexpected extra argument"),
        (("gauss",), 2, "MECHANISM: unknown mechanism 'gauss'; choose laplace, multilevel, table"),
        (("table", "--epsilon", "0.2"), 2, "--epsilon: no table is shipped for 0.2, below 0.33"),
        (("laplace", "--epsilon", "0"), 2, "--epsilon: 0 is outside"),
        (("laplace", "--samples", "3"), 2, "--samples: 3 is outside"),
        (("laplace", "--confidence", "1"), 2, "--confidence: 1 is not between 0 and 1"),
        (("laplace", "--inputs", "0", "1"), 2, "--inputs: is for your own module:function"),
        (("laplace", "--task", "t.toml"), 2, "--task: says mechanism, epsilon and inputs itself"),
        (("--task", "missing.toml"), 2, "missing.toml: cannot be read"),
        (("mine:coins",), 2, "--inputs: is missing"),
        (("mine:nothing", "--inputs", "0", "1"), 1, "mine:nothing: cannot be imported, AttributeError"),
        (("missing:it", "--inputs", "0", "1"), 1, "missing:it: cannot be imported, ModuleNotFoundError"),
        (("mine:broken", "--inputs", "0", "1"), 1, "mine:broken: raised KeyError on "),
        (
            ("mine:listed", "--inputs", "0", "1"),
            1,
            "its reports are of type list; return a number, bool, text or tuple",
        ),
        (("mine:_source", "--inputs", "0", "1"), 1, "mine:_source: is not a function"),
    ],
)
def test_a_mistake_in_auditing_is_one_line(
    own: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], code: int, words: str
) -> None:
    monkeypatch.syspath_prepend(own)
    monkeypatch.delitem(sys.modules, "mine", raising=False)  # of an earlier test
    ended = run(("audit", *arguments), own, environment={"COLUMNS": "200"}, patience=240)
    told = without_progress(ended.err)
    assert (ended.code, ended.out) == (code, "")
    assert words in told
    assert told.count("\n") == 1
