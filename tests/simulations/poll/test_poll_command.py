"""What `hush poll` refuses, when a question closes, and what it prints and draws at the end."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from commands import run
from made_results import result_of, single
from rendered import rendered, squeezed

from hush import Task
from hush_aggregator import Estimate, PartEstimate
from hush_simulations.commands.poll import _until
from hush_simulations.poll.questions import make_question
from hush_simulations.poll.result import blocks, write_documents, write_pictures
from hush_simulations.poll.session import Answered, Until, origin_of

HOURS = make_question("How many hours did you sleep?", {"kind": "number", "lower": 0, "upper": 14, "unit": "h"}, "2")
DRINKS = make_question("Which drink?", {"kind": "category", "labels": ["tea", "coffee"]}, "1")

GOLDEN = """\
How many hours did you sleep?
answers 31
average 7.12 h, 5.60 to 8.70 h
intervals 95 %, at any time
each phone spent epsilon 2 From your device's answer, somebody who guessed fifty-fifty can become at most 88.1 % sure.

A phone that answered the question spent epsilon 2. Its limit is 4 for one purpose; its page shows what it has spent.
"""


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


def test_the_end_has_answers_estimate_and_what_each_phone_spent() -> None:
    assert printed(hours()) == GOLDEN.rstrip("\n")


def test_the_interval_is_right_however_often_somebody_looked() -> None:
    """A poll is ended by a person who watches it: a fixed-n interval would be too narrow."""
    made = single(31, 7.0, stderr={"reporters": 0.4}, intervals={"reporters": (6.0, 8.0), "anytime": (5.0, 9.0)})
    text = printed(Answered(replace(result_of(HOURS, made), closed=True, final=True), 31))
    assert "5.00 to 9.00 h" in text
    assert "6.00 to 8.00" not in text


def test_below_ten_answers_there_is_no_estimate() -> None:
    text = printed(none())
    assert "answers 7" in text
    assert "none: hush poll shows no estimate below 10 answers" in text


def test_labels_have_a_line_each_and_epsilons_add_up() -> None:
    text = printed(hours(), drinks())
    assert "tea 60" in text
    assert "coffee 40" in text
    assert "all 2 questions spent epsilon 3." in text


def test_reports_that_look_wrong_are_named() -> None:
    wrong = hours()
    made = replace(wrong.result.estimate, monitor="outliers")
    assert "WARNING Impossible reports" in printed(replace(wrong, result=replace(wrong.result, estimate=made)))


@pytest.mark.large
def test_results_are_written_as_documents_and_pictures(tmp_path: Path) -> None:
    assert [path.name for path in write_documents([hours()], tmp_path)] == ["result.json"]
    assert {path.name for path in write_pictures([hours()], tmp_path, "light")} == {"result.png", "result.svg"}
    ended = [hours(), drinks(), none()]
    assert {path.name for path in write_documents(ended, tmp_path)} == {f"question-{n}.json" for n in (1, 2, 3)}
    assert {"question-2-dark.png", "question-3.svg"} <= {path.name for path in write_pictures(ended, tmp_path, "both")}
    text = (tmp_path / "result.svg").read_text(encoding="utf-8")
    assert "31 answers. average: 7.12 h, 5.60 to 8.70 h" in text
    assert "7 answers. no estimate" in (tmp_path / "question-3.svg").read_text(encoding="utf-8")


def test_an_end_is_a_count_a_time_or_a_clock_time() -> None:
    assert _until(None) == Until()
    assert _until("30") == Until(answers=30)
    assert _until("20m") == Until(after=timedelta(minutes=20))
    at = _until("00:00").at
    assert at is not None
    assert (at.hour, at.minute) == (0, 0)


def test_the_origin_of_a_broker_has_no_password() -> None:
    assert origin_of("wss://phones:pw@broker.example:9443/mqtt") == "wss://broker.example:9443"


ASK = ("poll", "Tea?", "--yes-no")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["poll"], "QUESTION: is missing"),
        (["poll", "Tea?"], "--number: a question has one kind of answer"),
        (["poll", "Tea?", "--yes-no", "--labels", "a,b"], "--number: a question has one kind of answer"),
        (["poll", "--questions", "none.toml"], "--questions: none.toml cannot be read"),
        (["poll", "Tea?", "--questions", "none.toml"], "--questions: a file has everything"),
        ([*ASK, "--epsilon", "5"], "--epsilon: 5 hides too little"),
        ([*ASK, "--epsilon", "two"], "--epsilon"),
        (["poll", "Tea?", "--labels", "tea"], "--labels"),
        (["poll", "Hours?", "--number", "9", "1", "h"], "--number: "),
        ([*ASK, "--until", "soon"], "--until: 'soon' is not an end"),
        ([*ASK, "--until", "0"], "--until: '0' is not an end"),
        ([*ASK, "--bind", "here"], "--bind: 'here' is not an address of this machine"),
        ([*ASK, "--bind", "192.0.2.1"], "--port: 8642 on 192.0.2.1 cannot be used"),
        ([*ASK, "--broker", "mqtts://a@h"], "--websocket: where do phones reach that broker?"),
        ([*ASK, "--websocket", "wss://h"], "--websocket: is for a real broker"),
        ([*ASK, "--broker", "mqtts://a@h", "--websocket", "mqtt://h"], "--websocket: browsers speak MQTT"),
        ([*ASK, "--broker", "http://h", "--websocket", "wss://h"], "--broker"),
        ([*ASK, "--theme", "dark"], "--theme"),
    ],
)
def test_a_mistake_is_one_line_with_its_remedy(tmp_path: Path, arguments: list[str], message: str) -> None:
    shown = run(arguments, tmp_path, patience=120)
    assert shown.code == 2
    assert shown.out == ""
    assert f"hush: {message}" in shown.err
    assert shown.err.count("\n") == 1
