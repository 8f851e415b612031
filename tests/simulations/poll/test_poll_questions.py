"""The questions of a poll, from options and from a file."""

from pathlib import Path

import pytest

from hush_common.errors import OptionError, TaskError
from hush_poll.questions import (
    DEFAULT_EPSILON,
    RELEASE_FROM,
    labels_domain,
    make_question,
    number_domain,
    read_questions,
)

FILE = """
order = "in turn"

[[question]]
title = "How many hours did you sleep?"
number = [0, 14, "h"]
epsilon = 2

[[question]]
title = "Tea?"
yes_no = true
epsilon = "0.5"
purpose = "Planning of breaks"

[[question]]
title = "Which drink?"
labels = ["tea", "coffee"]
epsilon = 1
"""


def read(path: Path, text: str) -> object:
    file = path / "questions.toml"
    file.write_text(text, encoding="utf-8")
    return read_questions(file)


def test_a_file_has_several_questions(tmp_path: Path) -> None:
    file = tmp_path / "questions.toml"
    file.write_text(FILE, encoding="utf-8")
    found = read_questions(file)
    assert found.in_turn
    assert [(task.title, task.domain.kind) for task in found.tasks] == [
        ("How many hours did you sleep?", "number"),
        ("Tea?", "bit"),
        ("Which drink?", "category"),
    ]
    assert [str(task.epsilon) for task in found.tasks] == ["2", "1/2", "1"]
    assert [task.purpose for task in found.tasks][1:] == ["Planning of breaks", "Poll: Which drink?"]
    assert {task.release_from for task in found.tasks} == {RELEASE_FROM}


def test_a_question_without_epsilon_has_the_one_of_the_command(tmp_path: Path) -> None:
    file = tmp_path / "questions.toml"
    file.write_text('[[question]]\ntitle = "Tea?"\nyes_no = true\n', encoding="utf-8")
    (task,) = read_questions(file).tasks
    assert str(task.epsilon) == DEFAULT_EPSILON


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"in turn"', '"backwards"', 'order: .*"together" or "in turn"'),
        ("yes_no = true", "", "question 2: "),
        ("yes_no = true", 'yes_no = true\nlabels = ["a", "b"]', "question 2: "),
        ('[0, 14, "h"]', '[14, 0, "h"]', "question 1: .*lower"),
        ('[0, 14, "h"]', '"0 to 14"', "question 1.number: "),
        ('[0, 14, "h"]', "[0]", "question 1: .*lower"),
        ("epsilon = 1\n", "epsilon = 5\n", "question 3: epsilon: 5"),
        ("epsilon = 1\n", "epsilon = 1\nepslon = 2\n", "question 3.epslon: "),
        ('title = "Tea?"', 'title = " "', "question 2: title"),
        ("[[question]]", "[[questions]]", "question: "),
        ('order = "in turn"', "order =", "questions.toml"),
    ],
)
def test_a_mistake_in_a_file_names_its_question(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(OptionError, match=f"--questions: .*{message}"):
        read(tmp_path, FILE.replace(old, new))


def test_a_missing_or_too_long_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"none\.toml"):
        read_questions(tmp_path / "none.toml")
    many = '[[question]]\ntitle = "a"\nyes_no = true\nepsilon = 1\n' * 21
    with pytest.raises(OptionError, match="21 questions"):
        read(tmp_path, many)


def test_an_id_is_new_each_time_and_of_plain_letters() -> None:
    first, second = (make_question("Größe: 你好?", {"kind": "bit"}, 1) for _ in range(2))
    assert first.id != second.id
    assert first.id.startswith("groe-")
    assert make_question("你好", {"kind": "bit"}, 1).id.startswith("poll-")


def test_a_question_is_one_line_of_moderate_length() -> None:
    for title in ("", "a" * 201):
        with pytest.raises(TaskError, match="200"):
            make_question(title, {"kind": "bit"}, 1)
    with pytest.raises(TaskError, match="line"):
        make_question("a\nb", {"kind": "bit"}, 1)


def test_options_become_domains() -> None:
    assert number_domain("0", "14.5", "h") == {"kind": "number", "lower": 0, "upper": 14.5, "unit": "h"}
    assert labels_domain("tea, coffee") == {"kind": "category", "labels": ["tea", "coffee"]}
    with pytest.raises(OptionError, match="--number 0 14 h"):
        number_domain("zero", "14", "h")
    with pytest.raises(OptionError, match="--labels tea,coffee,water"):
        labels_domain("tea,,coffee")
