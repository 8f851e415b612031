"""Whole screens as people see them, and what holds of each: it fits its width, and has every number of `--json`."""

import re
import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest
from screens import SCREENS, document, screen
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

pytestmark = [pytest.mark.medium, pytest.mark.face, pytest.mark.usefixtures("unrendered")]

WIDTHS = (60, 80, 120)
STORED = (
    *("help", "help-of-report", "simulate", "plan-error", "sweep", "audit", "conform", "task-check", "ledger", "watch"),
    *("doctor", "tour"),
)
"""Screens that share no sentence: a message that is reworded changes at most one of them."""


class TextFiles(SingleFileSnapshotExtension):
    """A file of text for each screen."""

    _write_mode = WriteMode.TEXT
    file_extension = "txt"


@pytest.mark.parametrize("name", STORED)
def test_screen(name: str, snapshot: SnapshotAssertion) -> None:
    """After an intended change: pytest tests/command_line --snapshot-update, and read the difference."""
    assert screen(name, 80) == snapshot(extension_class=TextFiles)


@pytest.mark.parametrize("name", [name for name in SCREENS if name != "watch"])  # which writes a log to a pipe
def test_a_screen_fits_every_width(name: str) -> None:
    for width in WIDTHS:
        lines = screen(name, width).splitlines()
        assert all(line == line.rstrip() for line in lines)
        assert max(map(len, lines)) <= width
        assert not any("…" in line or "-0.0 " in line for line in lines)


# ---- numbers

FIGURE = re.compile(r"[+-]?\d{1,3}(?: \d{3})+(?:\.\d+)?(?!\d)|[+-]?\d+(?:\.\d+)?(?:e[+-]\d+)?(?:/\d+(?:\.\d+)?)?")
WITH_NUMBERS = [
    name
    for name in SCREENS
    if name.startswith(("simulate", "plan", "audit", "task", "ledger", "feasible"))
    and name not in {"simulate-commute-plot", "plan-plot"}
]
IN_FULL = ("simulate-all", "simulate-commute-all")
SUMMED_UP = {
    *("stderr", "stderr_plug_in", "joint_intervals", "winsorised", "worst_case_bias", "replacement_bias", "pooled"),
    *("consistent", "connections", "rounds", "together", "elapsed_s"),
}
"""Of a simulation: what its table leaves to `--all`."""


def numbers(place: tuple[str, ...], value: Any) -> Iterator[tuple[tuple[str, ...], Fraction]]:  # noqa: ANN401 - of a document
    """Every number of a document, those that are written as text too."""
    match value:
        case bool() | None:
            return
        case dict():
            for name, part in value.items():
                yield from numbers((*place, name), part)
        case list():
            for part in value:
                yield from numbers(place, part)
        case int() | float():
            yield place, Fraction(value)
        case str() if re.fullmatch(r"\d+(\.\d+)?(/\d+)?", value) and place[-1] not in {"digest", "report_id"}:
            yield place, Fraction(value)


def figures(text: str) -> list[tuple[Fraction, Fraction]]:
    """Every figure of a screen, and the unit of its last digit."""
    found = []
    for words in FIGURE.findall(text.replace("\n", "  ")):
        shown = words.replace(" ", "").removeprefix("+")
        over, _, under = shown.partition("/")
        mantissa, _, power = over.partition("e")
        unit = Fraction(1, 10 ** len(mantissa.partition(".")[2])) * Fraction(10) ** int(power or 0)
        found.append((Fraction(over) / Fraction(under or 1), Fraction(0) if under else unit))
    return found


def is_shown(value: Fraction, shown: list[tuple[Fraction, Fraction]]) -> bool:
    """Whether a figure is the number, or it in per cent, its size, or its inverse; rounded to the last digit."""
    wanted = [value, 100 * value, -value, -100 * value, *([1 / value] if value else [])]
    return any(abs(figure - one) <= unit for figure, unit in shown for one in wanted)


def left_out(name: str, place: tuple[str, ...]) -> bool:
    if name in IN_FULL:
        return False
    if name.startswith("simulate"):
        is_part = {"categories", "coordinates"} & set(place)
        return bool(SUMMED_UP & set(place)) or (is_part and "anytime" in place) or place[:2] == ("error", "population")
    return place == ("v",)  # of the document


@pytest.mark.parametrize("name", WITH_NUMBERS)
def test_every_number_of_the_document_is_on_the_screen(name: str) -> None:
    wanted = [(place, value) for place, value in numbers((), document(name)) if not left_out(name, place)]
    assert len(wanted) >= 2
    for width in WIDTHS:
        shown = figures(screen(name, width))
        missing = {".".join(place): float(value) for place, value in wanted if not is_shown(value, shown)}
        assert missing == {}, width


@pytest.mark.parametrize("name", [name for name in SCREENS if name not in {"help", "help-of-report", "doctor"}])
def test_every_width_shows_the_same_figures(name: str) -> None:
    halves_of_a_digest = re.compile(r"([0-9a-f]{32})\n +([0-9a-f]{32})\b")
    texts = (halves_of_a_digest.sub(r"\1\2", screen(name, width)) for width in WIDTHS)
    first, *others = [{value for value, _ in figures(text)} for text in texts]
    assert all(other == first for other in others)


def test_a_process_obeys_columns_and_pipes() -> None:
    asked = [sys.executable, "-m", "hush", "plan", "--epsilon", "1", "--people", "500"]
    narrow, piped = (
        subprocess.run(asked, capture_output=True, text=True, check=True, env={"PATH": "/usr/bin", **more}).stdout
        for more in ({"COLUMNS": "60"}, {})
    )
    assert max(map(len, narrow.splitlines())) <= 60
    assert max(len(line) for line in piped.splitlines() if "±" in line) <= 100
    assert sorted(figures(piped)) == sorted(figures(narrow))
