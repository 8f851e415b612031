import json
import math
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import pytest
from rendered import rendered, squeezed
from typer.testing import CliRunner

from hush import Task
from hush_aggregator.commands.task import app
from hush_aggregator.explain import alternatives, blocks, expected_error, meaning, warnings
from hush_common.epsilon import posterior
from hush_common.errors import EpsilonError, TaskError
from hush_common.task import make_task

NUMBER = {"kind": "number", "lower": 120.0, "upper": 220.0, "unit": "cm"}
NOW = datetime(2026, 1, 1, tzinfo=UTC)
HEIGHTS = {"id": "heights", "title": "Mean height", "epsilon": "1", "domain": NUMBER}


def text(task: Task) -> str:
    return squeezed(rendered(blocks(task)))


def file_of(tmp_path: Path, document: object) -> str:
    path = tmp_path / "task.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return str(path)


def test_check_says_what_a_task_costs_and_brings(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["check", file_of(tmp_path, HEIGHTS)])
    assert result.exit_code == 0
    for line in (
        "asks for a number from 120 to 220 cm; outside values are moved to the nearer bound",
        "an observer who was 50/50 between two values becomes at most 73.2 % sure",
        "100 ± 27.7 cm 27.7 %",
        "10 000 ± 2.77 cm 2.77 %",
        f"digest {make_task(HEIGHTS).digest.hex()}",
    ):
        assert line in squeezed(result.stdout)
    assert result.stderr == ""


def test_check_says_what_becomes_of_other_labels(tmp_path: Path) -> None:
    ways = {"kind": "category", "labels": ["bus", "train", "else"], "other": "else"}
    result = CliRunner().invoke(app, ["check", file_of(tmp_path, {"id": "way", "epsilon": "1", "domain": ways})])
    assert "asks for one of 3: bus, train, else; anything else counts as else" in squeezed(result.stdout)


def test_check_warns_about_a_weak_epsilon(tmp_path: Path) -> None:
    path = file_of(tmp_path, HEIGHTS | {"epsilon": "4.5"})
    assert "warning: epsilon 4.5 is above 4" in CliRunner().invoke(app, ["check", path]).stderr
    assert [*warnings(make_task(HEIGHTS | {"epsilon": "4"}), NOW)] == []


def test_check_warns_about_a_task_that_has_closed(tmp_path: Path) -> None:
    path = file_of(tmp_path, HEIGHTS | {"closes": "2020-01-01T00:00:00Z"})
    result = CliRunner().invoke(app, ["check", path])
    assert result.exit_code == 0  # the task is a legal one
    assert result.stderr.startswith("hush: warning: the task closed at 2020-01-01 00:00 UTC, and no device answers")


def test_a_task_has_closed_from_the_moment_that_it_names() -> None:
    task = make_task(HEIGHTS | {"closes": NOW.isoformat()})
    assert [*warnings(task, NOW - timedelta(microseconds=1))] == []
    assert len([*warnings(task, NOW)]) == 1
    assert task.current_round(NOW) is None


def test_a_wrong_field_is_told_with_its_file_and_a_scenario_as_one(tmp_path: Path) -> None:
    wrong = file_of(tmp_path, HEIGHTS | {"epsilon": "0"})
    with pytest.raises(EpsilonError) as caught:
        CliRunner().invoke(app, ["check", wrong], catch_exceptions=False)
    assert str(caught.value).startswith(f"{wrong}: epsilon: 0 is outside")
    assert caught.value.field == "epsilon"
    scenario = file_of(tmp_path, {"clients": 3, "task": HEIGHTS, "population": {}})
    with pytest.raises(TaskError, match="is a scenario, not a task; write the content of") as found:
        CliRunner().invoke(app, ["check", scenario], catch_exceptions=False)
    assert str(found.value).startswith(f"{scenario}: ")


def test_check_as_json_holds_the_same_facts(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["check", file_of(tmp_path, HEIGHTS), "--json"])
    facts = json.loads(result.stdout)
    assert facts["digest"] == make_task(HEIGHTS).digest.hex()
    assert facts["posterior"] == pytest.approx(math.e / (1 + math.e))
    assert facts["expected_error"]["1000"] == pytest.approx(1.959964 * 100 * math.sqrt(2 / 1000), rel=1e-5)


def test_the_price_of_rounds_is_told_in_total_and_for_one() -> None:
    task = make_task(HEIGHTS | {"rounds": 4, "round_every": "1d", "opens": "2026-01-01T00:00:00Z", "epsilon": "2"})
    told = text(task)
    assert "2 for all 4 rounds together, 0.5 per round" in told
    assert "88.1 % sure from all rounds, 62.3 % from one" in told
    assert expected_error(task, 100) == pytest.approx(1.959964 * 100 / 0.5 * math.sqrt(2 / 100), rel=1e-5)


def test_check_says_what_a_sticky_task_hides_and_what_not() -> None:
    rounds = {"rounds": 30, "round_every": "1d", "opens": "2026-01-01T00:00:00Z", "repeat": "sticky"}
    told = text(make_task({**HEIGHTS, **rounds, "epsilon": "2"}))
    assert (
        "2, charged with the first answer, for 2 reports drawn at the start, 1 each, which all 30 rounds repeat" in told
    )
    assert "88.1 % sure from all rounds, 73.2 % if the value never changes, and can see in which rounds it did" in told
    assert "alternatives" not in told  # no other mechanism repeats its answers
    assert meaning(make_task({**HEIGHTS, **rounds, "epsilon": "2"}))["repeat"] == "sticky"


def test_the_error_of_a_question_is_that_of_randomized_response() -> None:
    task = make_task({"id": "survey", "epsilon": "1", "domain": {"kind": "bit"}})
    variance = math.e / (math.e - 1) ** 2
    assert expected_error(task, 400) == pytest.approx(1.959964 * math.sqrt(variance / 400), rel=1e-6)
    assert "asks for yes or no" in text(task)


def test_the_error_of_a_two_coin_question_is_that_of_the_bit_which_varies_more() -> None:
    task = make_task({"id": "coins", "domain": {"kind": "bit"}, "coins": {"truth": "0.5", "yes": "0.2"}})
    assert expected_error(task, 100) == pytest.approx(1.959964 * math.sqrt(0.6 * 0.4 / 0.25 / 100), rel=1e-6)


@pytest.mark.parametrize(("epsilon", "told"), [("0.000001", "50.1 %"), ("20", "99.9999998 %"), ("50", "more than 99")])
def test_what_an_observer_learns_is_rounded_up_and_never_certain(epsilon: str, told: str) -> None:
    assert told in text(make_task(HEIGHTS | {"epsilon": epsilon}))
    assert posterior(Fraction(0)) == 0.5


def test_a_wrong_file_is_an_error_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="epsilon"):
        CliRunner().invoke(app, ["check", file_of(tmp_path, HEIGHTS | {"epsilon": "0"})], catch_exceptions=False)


def test_check_does_not_load_numpy_or_mqtt(tmp_path: Path) -> None:
    code = (
        "import sys; before = set(sys.modules)  # of which measuring coverage has some\n"
        "from typer.testing import CliRunner; from hush_aggregator.commands.task import app\n"
        f"assert CliRunner().invoke(app, ['check', {file_of(tmp_path, HEIGHTS)!r}]).exit_code == 0\n"
        "print(sorted({'numpy', 'aiomqtt', 'sqlite3'} & (sys.modules.keys() - before)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("mechanism", "others"),
    [("auto", {"laplace": 2.0, "multilevel": 1.17}), ("laplace", {"multilevel": 0.585, "table": 0.5})],
)
def test_a_task_says_what_the_other_mechanisms_would_need(mechanism: str, others: dict[str, float]) -> None:
    document = {"id": "t", "epsilon": "1", "mechanism": mechanism, "domain": {"kind": "number", "lower": 0, "upper": 9}}
    task = make_task(document)
    assert alternatives(task) == pytest.approx(others, rel=0.005)
    assert all(f"{name} needs {ratio:.3g} times" in text(task) for name, ratio in alternatives(task).items())


def test_a_bit_has_no_alternative() -> None:
    task = make_task({"id": "t", "epsilon": "1", "domain": {"kind": "bit"}})
    assert alternatives(task) == {}
    assert "alternatives" not in text(task)
