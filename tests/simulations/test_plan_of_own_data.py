"""`hush plan --csv`: a plan for the values of a file, labelled as one, by the rules of `hush simulate --csv`."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from hush.cli import main
from hush_common.formatting import significant

AGES = ("--column", "age", "--lower", "0", "--upper", "100", "--unit", "years")
SIZE = ("--people", "400", "--epsilon", "1")


@dataclass(frozen=True)
class Ended:
    returncode: int
    stdout: str
    stderr: str


Plan = Callable[..., Ended]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Plan:
    """`hush plan` for 400 people at epsilon 1, in this process."""

    def run(*arguments: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["hush", "plan", *SIZE, *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return Ended(int(ended.value.code or 0), printed.out, printed.err)

    return run


@pytest.fixture
def plan(asked: Plan, tmp_path: Path) -> Plan:
    """The same for a file."""
    file = tmp_path / "people.csv"
    file.write_text("age;way;smokes\n20;bus;no\n30;bus;yes\n70;car;no\n;bus;no\n", encoding="utf-8")
    return lambda *arguments: asked("--csv", str(file), *arguments)


def laplace(ended: Ended) -> dict[str, float]:
    document = json.loads(ended.stdout)
    found: dict[str, float] = next(line for line in document["mechanisms"] if line["mechanism"] == "laplace")
    return found


def test_the_error_is_that_of_the_data_and_both_forms_say_so(plan: Plan, asked: Plan) -> None:
    ended = plan(*AGES, "--missing", "drop", "--rms", "--json")
    document = json.loads(ended.stdout)
    assert document["values"] == "of the data"
    assert document["data"] == {
        "column": "age",
        "rows": 4,
        "missing": 1,
        "treatment": "drop",
        "resampled": False,
        "standard_deviation": pytest.approx((1400 / 3) ** 0.5),
    }
    assert laplace(ended)["population"] == pytest.approx(100 * ((2 + 1400 / 3 / 1e4) / 400) ** 0.5)
    told = " ".join(plan(*AGES, "--missing", "drop").stdout.split())
    assert (
        "Every figure is for values like those of the column age, standard deviation 21.6 years (21.6 %), not" in told
    )
    assert "it is not private" in told
    assert "In 95 % of samples of such values, " in told
    assert "worst-case values, and tells" in told
    worst = " ".join(asked("--lower", "0", "--upper", "100").stdout.split())
    assert "Every figure is for worst-case values." in worst
    assert "In 95 % of samples, whatever the values, " in worst


def test_a_cheaper_mechanism_is_reported_for_the_data_too(asked: Plan, tmp_path: Path) -> None:
    """Everybody is 50: at epsilon 2 multilevel has a level there, which answers with less noise than the table."""
    file = tmp_path / "alike.csv"
    file.write_text("age\n50\n50\n50\n", encoding="utf-8")
    options = ("--csv", str(file), "--epsilon", "2", *AGES)
    document = json.loads(asked(*options, "--json").stdout)
    told = " ".join(asked(*options).stdout.split())
    for target in ("reporters", "population"):
        relatives = {line["mechanism"]: line["relative"][target] for line in document["mechanisms"]}
        assert (document["auto"][target], document["cheapest"][target]) == ("table", "multilevel")
        assert min(relatives, key=relatives.__getitem__) == "multilevel"
        times = significant(relatives["multilevel"])
        assert f"For the {target}, auto is not the cheapest: multilevel needs about {times} times" in told


def test_devices_without_a_value_are_planned_as_they_answer(plan: Plan) -> None:
    dropped, replaced = (laplace(plan(*AGES, "--missing", how, "--json")) for how in ("drop", "replace"))
    assert replaced["population"] > dropped["population"]


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [(("--column", "way", "--labels", "bus,car"), "category"), (("--column", "smokes", "--yes", "yes"), "bit")],
)
def test_the_other_options_say_what_is_asked(plan: Plan, arguments: tuple[str, ...], kind: str) -> None:
    document = json.loads(plan(*arguments, "--json").stdout)
    assert document["domain"]["kind"] == kind
    assert document["data"]["rows"] == 4


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (AGES, "1 of 4 cells cannot be used: 1 empty (line 5); write --missing drop"),
        ((), "--column: is missing; the first line of"),
        (("--column", "way"), "--csv: the cells are text: list the categories with --labels"),
        (("--column", "smokes"), "--csv: the cells are yes and no: write --yes VALUE"),
        ((*AGES[:4],), "--upper: is missing; state the largest legal value from public knowledge"),
        ((*AGES, "--domain", "number"), "--domain: follows from the other options where there is a file; leave it out"),
        ((*AGES, "--categories", "3"), "--categories: follows from"),
        ((*AGES, "--decimal", ";"), "--decimal: ';' is not one of its values"),
        ((*AGES, "--delimiter", "comma"), "is not a column of"),
    ],
)
def test_a_mistake_is_one_line(plan: Plan, arguments: tuple[str, ...], words: str) -> None:
    ended = plan(*arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert words in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_options_about_a_file_need_one(asked: Plan) -> None:
    ended = asked("--missing", "drop")
    assert ended.returncode == 2
    assert ended.stderr == "hush: --missing: describes a person's own data; name the file with --csv FILE as well\n"
