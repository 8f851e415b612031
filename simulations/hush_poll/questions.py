"""The questions of a poll: from the options of `hush poll`, or from a file."""

import re
import secrets
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hush_common.epsilon import decimal_text
from hush_common.errors import HushError, OptionError, TaskError, printable
from hush_common.task import Task, make_task
from hush_common.untrusted import DRAFT, Fields, read_file, read_toml, text

RELEASE_FROM = 10
"""Answers below which no estimate is shown."""

MOST_QUESTIONS = 20
LARGEST_EPSILON = 4
"""The limit of the page for one question, and for all questions with the same purpose."""

DEFAULT_EPSILON = "2"
"""Of a question that states none."""

_TITLE = 200
_PURPOSE = 500
_SLUG = 40


@dataclass(frozen=True, slots=True)
class Questions:
    """What a poll asks; `in_turn` is one question after the other."""

    tasks: Sequence[Task] = field(repr=False)
    in_turn: bool = False


def make_question(title: str, domain: Mapping[str, object], epsilon: object, purpose: str = "") -> Task:
    """Return the task of a question, under a new id.

    Raises:
        TaskError: naming the field and the remedy.
    """
    if not title.strip() or len(title) > _TITLE:
        raise TaskError("title", f"a question has 1 to {_TITLE} characters; write one line")
    task = make_task(
        {
            "id": f"{_slug(title)}-{secrets.token_hex(6)}",
            "title": title,
            "purpose": purpose or f"Poll: {title}"[:_PURPOSE],
            "epsilon": epsilon,
            "mechanism": "auto",
            "domain": domain,
            "release_from": RELEASE_FROM,
        }
    )
    if task.epsilon > LARGEST_EPSILON:
        raise TaskError(
            "epsilon",
            f"{decimal_text(task.epsilon)} hides too little: phones answer at most {LARGEST_EPSILON} of one purpose; "
            "write 1 or 2",
        )
    return task


def _slug(title: str) -> str:
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain)[:_SLUG].strip("-") or "poll"


def number_domain(lower: str, upper: str, unit: str) -> dict[str, object]:
    """Return the domain of `--number`."""
    return {"kind": "number", "lower": _number(lower), "upper": _number(upper), "unit": unit}


def _number(written: str) -> float:
    try:
        return int(written)
    except ValueError:
        pass
    try:
        return float(written)
    except ValueError:
        shown = printable(written[:40])
        raise OptionError(
            "--number", f"{shown!r} is not a number; write the bounds and the unit, as --number 0 14 h"
        ) from None


def labels_domain(labels: str) -> dict[str, object]:
    """Return the domain of `--labels`."""
    names = [name.strip() for name in labels.split(",")]
    if not all(names):
        raise OptionError("--labels", "one of them is empty; write for example --labels tea,coffee,water")
    return {"kind": "category", "labels": names}


def read_questions(path: Path) -> Questions:
    """Read a file of questions.

    Raises:
        OptionError: it cannot be read, or is not TOML.
        TaskError: naming the field and the remedy.
    """
    try:
        document = read_toml(read_file(path, DRAFT), DRAFT)
    except OSError as error:
        raise OptionError("--questions", f"{path} cannot be read ({error.strerror}); name a TOML file") from error
    except ValueError as error:
        raise OptionError("--questions", f"{path} cannot be read: {error}; docs/poll.md has an example") from error
    try:
        return questions_of(document)
    except TaskError as error:
        raise OptionError("--questions", f"{path}: {error}") from error


def questions_of(document: Mapping[str, object]) -> Questions:
    """Return the questions in a document; raises TaskError."""
    fields = Fields(document)
    order = fields.text("order", "together")
    if order not in ("together", "in turn"):
        raise TaskError("order", f'{printable(order[:40])!r} is not an order; write "together" or "in turn"')
    questions = fields.items("question")
    fields.end()
    if not 1 <= len(questions) <= MOST_QUESTIONS:
        raise TaskError("question", f"{len(questions)} questions; a poll has 1 to {MOST_QUESTIONS}")
    tasks = [_question(one, f"question {number}") for number, one in enumerate(questions, 1)]
    return Questions(tasks, in_turn=order == "in turn")


def _question(document: object, where: str) -> Task:
    fields = Fields(document, where)
    title, purpose = fields.text("title"), fields.text("purpose", "")
    epsilon = fields.anything("epsilon", DEFAULT_EPSILON)
    kinds = {name: fields.anything(name, None) for name in ("number", "yes_no", "labels")}
    fields.end()
    given = [name for name, value in kinds.items() if value is not None and value is not False]
    if len(given) != 1:
        raise TaskError(where, 'asks one kind of answer; write number = [0, 14, "h"], yes_no = true or labels = ["a"]')
    try:
        return make_question(title, _domain(given[0], kinds[given[0]], where), epsilon, purpose)
    except HushError as error:
        raise TaskError(where, str(error)) from error


def _domain(kind: str, value: object, where: str) -> Mapping[str, object]:
    if kind == "yes_no":
        return {"kind": "bit"}
    if not isinstance(value, list):
        raise TaskError(f"{where}.{kind}", "is not a list; write it in brackets")
    if kind == "labels":
        return {"kind": "category", "labels": value}
    lower, upper, unit = [*value, ""] if len(value) == 2 else value if len(value) == 3 else (None, None, "")  # noqa: PLR2004 - with and without a unit
    return {"kind": "number", "lower": lower, "upper": upper, "unit": text(f"{where}.number", unit)}
