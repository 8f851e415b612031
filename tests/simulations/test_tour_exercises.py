"""The exercises of the tour: each answer is computed here without hush."""

import math

import pytest
from typer.testing import CliRunner

from hush_common.errors import OptionError
from hush_tour.command import app
from hush_tour.contents import CHAPTERS
from hush_tour.exercises import EXERCISES

ANSWERS = {
    "heights": (100 * math.sqrt(2 / 500), 100 / math.sqrt(500)),  # the second takes b² for 2b²
    "mechanism": (20_000, 10_000),
    "slides": (math.exp(1.2), 1.2),
    "notes": (4 * math.log(20), math.log(20)),
    "lecture": (math.log(9), 9),
}


def test_each_chapter_has_an_exercise() -> None:
    assert [one.name for one in CHAPTERS] == list(EXERCISES) == list(ANSWERS)


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_is_checked(name: str) -> None:
    right, wrong = ANSWERS[name]
    accepted = CliRunner().invoke(app, [name, "--answer", f"{right:.3g}"])
    refused = CliRunner().invoke(app, [name, "--answer", f"{wrong:.3g}"])
    assert (accepted.exit_code, refused.exit_code) == (0, 0)
    assert accepted.output.rstrip().endswith(" is right.")
    assert "is not right." in refused.output
    assert EXERCISES[name].hint in " ".join(refused.output.split())


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("answer", [math.nan, math.inf, 0.0])
def test_a_number_that_is_no_answer_is_not_right(name: str, answer: float) -> None:
    assert not EXERCISES[name].is_right(answer)


@pytest.mark.parametrize("words", [[], ["heights", "--open"], ["heights", "--edit"]])
def test_an_answer_needs_a_chapter_alone(words: list[str]) -> None:
    with pytest.raises(OptionError, match="needs a chapter"):
        CliRunner().invoke(app, [*words, "--answer", "5"], catch_exceptions=False)
