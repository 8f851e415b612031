"""`hush task check`, `close` and `recall`: what a task costs and brings, and what the commands refuse."""

import json
import math
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import pytest
from commands import Shown, run

from hush import Task
from hush_aggregator import SqliteStore
from hush_aggregator.publish.explain import alternatives, expected_error, meaning, warnings
from hush_aggregator.store import Owner, TaskState
from hush_common.epsilon import posterior
from hush_common.task import make_task

NUMBER = {"kind": "number", "lower": 120.0, "upper": 220.0, "unit": "cm"}
NOW = datetime(2026, 1, 1, tzinfo=UTC)
DRAFT = {"id": "heights", "title": "Mean height", "epsilon": "1", "domain": NUMBER}
HEIGHTS = make_task(DRAFT)
DAILY = {**DRAFT, "rounds": 4, "round_every": "1d", "opens": "2026-01-01T00:00:00Z", "epsilon": "2"}


def check(directory: Path, document: object, *options: str) -> Shown:
    (directory / "task.json").write_text(json.dumps(document), encoding="utf-8")
    return run(["task", "check", "task.json", *options], directory)


def text(directory: Path, document: object) -> str:
    """What `hush task check` prints of a legal task, with single spaces."""
    shown = check(directory, document)
    assert shown.code == 0, shown.err
    return " ".join(shown.out.split())


def lacks(printed: str, words: Sequence[str]) -> list[str]:
    return [word for word in words if word not in printed]


# Check


def test_check_says_what_a_task_costs_and_brings(tmp_path: Path) -> None:
    printed = text(tmp_path, DRAFT)
    words = ["120 to 220 cm", "73.2 %", "100 ± 27.7 cm", "10 000 ± 2.77 cm", HEIGHTS.digest.hex()]
    assert lacks(printed, words) == []
    facts = json.loads(check(tmp_path, DRAFT, "--json").out)
    assert facts["digest"] == HEIGHTS.digest.hex()
    assert facts["posterior"] == pytest.approx(math.e / (1 + math.e))
    assert facts["expected_error"]["1000"] == pytest.approx(1.959964 * 100 * math.sqrt(2 / 1000), rel=1e-5)


def test_check_says_what_happens_to_other_labels(tmp_path: Path) -> None:
    ways = {"kind": "category", "labels": ["bus", "train", "else"], "other": "else"}
    printed = text(tmp_path, {"id": "way", "epsilon": "1", "domain": ways})
    assert lacks(printed, ["bus, train, else", "counts as else"]) == []


def test_check_says_what_all_rounds_cost_and_one(tmp_path: Path) -> None:
    assert lacks(text(tmp_path, DAILY), ["4 rounds", "0.5 per round", "88.1 %", "62.3 %"]) == []
    assert expected_error(make_task(DAILY), 100) == pytest.approx(1.959964 * 100 / 0.5 * math.sqrt(2 / 100), rel=1e-5)


def test_check_says_what_a_sticky_task_hides(tmp_path: Path) -> None:
    sticky = {**DAILY, "rounds": 30, "repeat": "sticky"}
    printed = text(tmp_path, sticky)
    assert lacks(printed, ["2 reports", "1 each", "30 rounds", "88.1 %", "73.2 %", "never changes"]) == []
    assert "alternatives" not in printed  # no other mechanism repeats its answers
    assert meaning(make_task(sticky))["repeat"] == "sticky"


def test_the_error_to_expect_is_that_of_the_mechanism() -> None:
    survey = make_task({"id": "survey", "epsilon": "1", "domain": {"kind": "bit"}})
    variance = math.e / (math.e - 1) ** 2
    assert expected_error(survey, 400) == pytest.approx(1.959964 * math.sqrt(variance / 400), rel=1e-6)
    coins = make_task({"id": "coins", "domain": {"kind": "bit"}, "coins": {"truth": "0.5", "yes": "0.2"}})
    worst = 1.959964 * math.sqrt(0.6 * 0.4 / 0.25 / 100)  # of the bit that varies more
    assert expected_error(coins, 100) == pytest.approx(worst, rel=1e-6)


def test_how_sure_anybody_becomes_is_rounded_up_and_never_certain(tmp_path: Path) -> None:
    for epsilon, sure in (("0.000001", "50.1 %"), ("20", "99.9999998 %"), ("50", "more than 99")):
        assert sure in text(tmp_path, {**DRAFT, "epsilon": epsilon})
    assert posterior(Fraction(0)) == 0.5


def test_check_warns_about_a_weak_epsilon_and_a_task_that_has_closed(tmp_path: Path) -> None:
    for field, value, words in (
        ("epsilon", "4.5", ["warning", "epsilon", "4.5"]),
        ("closes", "2020-01-01T00:00:00Z", ["warning", "2020-01-01"]),
    ):
        shown = check(tmp_path, {**DRAFT, field: value})
        assert (shown.code, lacks(shown.err, words)) == (0, [])
    assert [*warnings(make_task({**DRAFT, "epsilon": "4"}), NOW)] == []
    task = make_task({**DRAFT, "closes": NOW.isoformat()})
    assert [*warnings(task, NOW - timedelta(microseconds=1))] == []
    assert len([*warnings(task, NOW)]) == 1
    assert task.current_round(NOW) is None


def test_a_wrong_field_is_named_with_its_file(tmp_path: Path) -> None:
    wrong = check(tmp_path, {**DRAFT, "epsilon": "0"})
    assert (wrong.code, lacks(wrong.err, ["task.json", "epsilon", "0"])) == (2, [])
    scenario = check(tmp_path, {"clients": 3, "task": DRAFT, "population": {}})
    assert (scenario.code, lacks(scenario.err, ["task.json", "scenario"])) == (2, [])


def test_a_task_says_what_other_mechanisms_would_need(tmp_path: Path) -> None:
    nine = {"id": "t", "epsilon": "1", "domain": {"kind": "number", "lower": 0, "upper": 9}}
    wanted = {"auto": {"laplace": 2.0, "multilevel": 1.17}, "laplace": {"multilevel": 0.585, "table": 0.5}}
    for mechanism, others in wanted.items():
        document = {**nine, "mechanism": mechanism}
        assert alternatives(make_task(document)) == pytest.approx(others, rel=0.005)
        printed = text(tmp_path, document)
        for name, ratio in alternatives(make_task(document)).items():
            assert f"{name} needs {ratio:.3g}" in printed
    assert alternatives(make_task({"id": "t", "epsilon": "1", "domain": {"kind": "bit"}})) == {}


@pytest.mark.medium
def test_check_does_not_load_numpy_or_mqtt(tmp_path: Path) -> None:
    (tmp_path / "task.json").write_text(json.dumps(DRAFT), encoding="utf-8")
    code = (
        "import sys; before = set(sys.modules)  # of which measuring coverage has some\n"
        "from typer.testing import CliRunner; from hush_aggregator.commands.task import app\n"
        "assert CliRunner().invoke(app, ['check', 'task.json']).exit_code == 0\n"
        "print(sorted({'numpy', 'aiomqtt', 'sqlite3'} & (sys.modules.keys() - before)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.strip() == "[]"


# Close and recall


def stored(directory: Path, task: Task = HEIGHTS) -> Path:
    path = directory / "hush.sqlite3"
    with SqliteStore(path) as store:
        store.add_task(task)
    return path


def hush_task(path: Path, *words: str) -> Shown:
    return run(["task", *words, "--store", str(path)], path.parent)


def test_a_task_is_closed_for_good_and_its_recall_ends(tmp_path: Path) -> None:
    path = stored(tmp_path)
    recalled = hush_task(path, "recall", "heights")
    assert (recalled.code, lacks(recalled.out, ["heights", "60 s"])) == (0, [])
    assert hush_task(path, "close", "heights").code == 0
    with SqliteStore(path) as store:
        assert store.is_closed(HEIGHTS.digest)
        assert store.task_rows()[0].state is TaskState.CLOSED
        assert [row.ended for row in store.recalls()] == [True]
    again = hush_task(path, "recall", "heights")
    assert (again.code, "'heights'" in again.err) == (2, True)


def test_one_round_is_closed_and_the_others_go_on(tmp_path: Path) -> None:
    daily = make_task(DAILY)
    path = stored(tmp_path, daily)
    assert hush_task(path, "close", "heights", "--round", "2").code == 0
    with SqliteStore(path) as store:
        assert [store.is_closed(daily.digest, round_) for round_ in range(4)] == [False, False, True, False]
        assert store.task_rows()[0].state is TaskState.OPEN
    for number in ("4", "-1"):
        refused = hush_task(path, "close", "heights", "--round", number)
        assert (refused.code, lacks(refused.err, [number, "4 rounds"])) == (2, [])


def test_the_commands_print_json_for_programs(tmp_path: Path) -> None:
    path = stored(tmp_path)
    head = {"v": 1, "task": "heights", "digest": HEIGHTS.digest.hex()}
    for words, document in (
        (["recall", "heights"], {"status": "recalled", "over": 60}),
        (["close", "heights"], {"status": "closed"}),
        (["close", "heights", "--round", "0"], {"status": "closed", "round": 0}),
    ):
        assert json.loads(hush_task(path, *words, "--json").out) == head | document


@pytest.mark.parametrize("command", ["close", "recall"])
def test_a_task_or_a_store_that_does_not_exist_is_named(tmp_path: Path, command: str) -> None:
    wrong = hush_task(stored(tmp_path), command, "heigths")
    assert (wrong.code, lacks(wrong.err, ["'heigths'", "hush task list"])) == (2, [])
    missing = hush_task(tmp_path / "other", command, "heights")
    assert missing.code != 0
    assert "other" in missing.err
    assert not (tmp_path / "other").exists()


def test_only_its_own_open_tasks_are_recalled_by_a_store(tmp_path: Path) -> None:
    path = stored(tmp_path)
    with SqliteStore(path) as store:
        store.set_owners([Owner("heights", "f" * 32, 1)])
    other = hush_task(path, "recall", "heights")
    assert (other.code, lacks(other.err, ["'heights'", "f" * 32])) == (2, [])
    now = datetime.now(UTC)
    for name, moment in (("closes", now - timedelta(hours=1)), ("opens", now + timedelta(hours=1))):
        task = make_task({**DRAFT, "id": name, name: moment.strftime("%Y-%m-%dT%H:%M:%SZ")})
        assert hush_task(stored(tmp_path, task), "recall", name).code == 2
    with SqliteStore(path) as store:
        assert [*store.recalls()] == []
