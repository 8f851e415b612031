"""The slides of the lecture: every part is there, with its pictures, and the commands on them exist."""

import re
import runpy
from pathlib import Path

from commands import commands

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "lecture.md").read_text(encoding="utf-8")
slides_of = runpy.run_path(str(DOCS / "slides.py"))["slides_of"]


def test_each_part_is_a_slide_with_its_picture_in_it() -> None:
    page = slides_of(TEXT)
    assert page.count("<section ") == TEXT.count("\n---\n") + 1
    assert page.count('src="data:image/png;base64,') == TEXT.count("](images/")
    assert "<img" in page
    assert not re.search(r'(src|href)="(?!data:|https://)', page)


def test_the_commands_of_the_lecture_exist() -> None:
    known = {name.split()[0] for name in commands()}
    named = set(re.findall(r"`hush ([a-z]+)", TEXT))
    assert named
    assert named <= known


def test_every_part_of_the_timetable_has_a_command_on_the_slides() -> None:
    timetable = (
        (DOCS / "tour.md").read_text(encoding="utf-8").partition("## A lecture of 90 minutes")[2].partition("\n## ")[0]
    )
    wanted = set(re.findall(r"`hush ((?:attack|simulate|feasible) [\w-]+)", timetable))
    assert wanted
    assert {one for one in wanted if f"hush {one}" not in TEXT} <= {
        "simulate poisoned",
        "simulate many-rounds",
    }  # shown
