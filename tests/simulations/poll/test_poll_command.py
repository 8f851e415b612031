"""What `hush poll` refuses, when a question closes, and what it prints and draws at the end."""

from dataclasses import replace
from pathlib import Path

import pytest
from commands import run
from made_results import result_of, single
from rendered import rendered, squeezed

from hush import Task
from hush_aggregator import Estimate, PartEstimate
from hush_poll.questions import make_question
from hush_poll.result import blocks, write_documents, write_pictures
from hush_poll.session import Answered, origin_of

HOURS = make_question("How many hours did you sleep?", {"kind": "number", "lower": 0, "upper": 14, "unit": "h"}, "2")
DRINKS = make_question("Which drink?", {"kind": "category", "labels": ["tea", "coffee"]}, "1")


def hours(n: int = 31) -> Answered:
    made = single(n, 7.12, stderr={"reporters": 0.45}, intervals={"reporters": (6.2, 8.0), "anytime": (5.6, 8.7)})
    return Answered(replace(result_of(HOURS, made), closed=True, final=True), n)


def drinks() -> Answered:
    parts = tuple(
        PartEstimate(name=name, n=40, mean=share, joint_intervals={"reporters": (share - 0.2, share + 0.2)})
        for name, share in (("tea", 0.6), ("coffee", 0.4))
    )
    return Answered(replace(result_of(DRINKS, Estimate(40, parts)), final=True), 40)


def none(task: Task = HOURS) -> Answered:
    return Answered(result_of(task, Estimate(0)), 7)


def printed(*ended: Answered) -> str:
    return squeezed(rendered(blocks(ended)))


def test_the_end_has_the_anytime_interval_and_the_epsilon_spent() -> None:
    """A poll is ended by a person who watches it: a fixed-n interval would be too narrow."""
    text = printed(hours())
    assert "answers 31" in text
    assert "7.12 h, 5.60 to 8.70 h" in text
    assert "6.2" not in text
    assert "88.1 %" in text  # what epsilon 2 permits
    both = printed(hours(), drinks())
    assert "tea 60" in both
    assert "coffee 40" in both
    assert "epsilon 3" in both


def test_below_ten_answers_there_is_no_estimate() -> None:
    text = printed(none())
    assert "answers 7" in text
    assert "below 10" in text


def test_impossible_reports_are_a_warning() -> None:
    wrong = hours()
    made = replace(wrong.result.estimate, monitor="outliers")
    assert "WARNING" in printed(replace(wrong, result=replace(wrong.result, estimate=made)))
    assert "WARNING" not in printed(wrong)


@pytest.mark.medium
def test_results_are_written_as_documents_and_pictures(tmp_path: Path) -> None:
    assert [path.name for path in write_documents([hours()], tmp_path)] == ["result.json"]
    assert {path.name for path in write_pictures([hours()], tmp_path, "light")} == {"result.png", "result.svg"}
    ended = [hours(), drinks(), none()]
    assert {path.name for path in write_documents(ended, tmp_path)} == {f"question-{n}.json" for n in (1, 2, 3)}
    assert {"question-2-dark.png", "question-3.svg"} <= {path.name for path in write_pictures(ended, tmp_path, "both")}
    assert "7.12 h, 5.60 to 8.70 h" in (tmp_path / "result.svg").read_text(encoding="utf-8")


def test_the_origin_of_a_broker_has_no_password() -> None:
    assert origin_of("wss://phones:pw@broker.example:9443/mqtt") == "wss://broker.example:9443"


ASK = ("poll", "Tea?", "--yes-no")


@pytest.mark.medium
@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["poll"], "QUESTION: "),
        (["poll", "Tea?"], "--number: "),
        (["poll", "Tea?", "--yes-no", "--labels", "a,b"], "--number: "),
        (["poll", "--questions", "none.toml"], "--questions: none.toml"),
        (["poll", "Tea?", "--questions", "none.toml"], "--questions: "),
        ([*ASK, "--epsilon", "5"], "--epsilon: 5"),
        ([*ASK, "--epsilon", "two"], "--epsilon"),
        (["poll", "Tea?", "--labels", "tea"], "--labels"),
        (["poll", "Hours?", "--number", "9", "1", "h"], "--number: "),
        ([*ASK, "--until", "soon"], "--until: 'soon'"),
        ([*ASK, "--until", "0"], "--until: '0'"),
        ([*ASK, "--bind", "here"], "--bind: 'here'"),
        ([*ASK, "--bind", "192.0.2.1"], "--port: 8642 on 192.0.2.1"),
        ([*ASK, "--broker", "mqtts://a@h"], "--websocket: "),
        ([*ASK, "--websocket", "wss://h"], "--websocket: "),
        ([*ASK, "--broker", "mqtts://a@h", "--websocket", "mqtt://h"], "--websocket: "),
        ([*ASK, "--broker", "http://h", "--websocket", "wss://h"], "--broker"),
        ([*ASK, "--theme", "dark"], "--theme"),
    ],
)
def test_a_mistake_is_one_line_with_its_option(tmp_path: Path, arguments: list[str], named: str) -> None:
    shown = run(arguments, tmp_path, patience=120)
    (line,) = shown.err.splitlines()
    assert (shown.code, shown.out) == (2, "")
    assert line.startswith(f"hush: {named}")
