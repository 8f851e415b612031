"""The screens of every command: one width is stored; every width fits, and has every number of `--json`."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from commands import run
from screens import GOLDEN, GOLDEN_WIDTH, SCREENS, WIDTHS, document, screen

from hush import cli

FIGURE = re.compile(r"[+-]?\d{1,3}(?: \d{3})+(?:\.\d+)?(?!\d)|[+-]?\d+(?:\.\d+)?(?:e[+-]\d+)?(?:/\d+(?:\.\d+)?)?")

IN_FULL = ("simulate-all", "simulate-commute-all")
SUMMED_UP = {
    "stderr", "stderr_plug_in", "joint_intervals", "winsorised", "worst_case_bias", "replacement_bias", "consistent",
    "pooled", "connections", "rounds", "together", "elapsed_s",
}  # fmt: skip
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
        shown = words.replace(" ", "").replace("+", "", 1) if words[0] == "+" else words.replace(" ", "")
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


@pytest.mark.parametrize("name", SCREENS)
def test_a_screen_is_as_stored(name: str) -> None:
    """After a change on purpose: python tests/tools/screens.py, and read what it writes."""
    assert screen(name, GOLDEN_WIDTH) == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", SCREENS)
def test_a_screen_fits_its_width(name: str, width: int) -> None:
    text = screen(name, width)
    lines = text.splitlines()
    assert all(line == line.rstrip() for line in lines)
    assert max(map(len, lines)) <= width
    assert "…" not in text
    assert "-0.0 " not in text


@pytest.mark.parametrize("name", SCREENS)
def test_every_number_of_the_document_is_there_at_every_width(name: str) -> None:
    wanted = [(place, value) for place, value in numbers((), document(name)) if not left_out(name, place)]
    assert len(wanted) >= 2
    for width in WIDTHS:
        shown = figures(screen(name, width))
        missing = {".".join(place): float(value) for place, value in wanted if not is_shown(value, shown)}
        assert missing == {}, width


@pytest.mark.parametrize("name", SCREENS)
def test_no_width_has_a_figure_that_another_one_has_not(name: str) -> None:
    shown = (_HALVES.sub(r"\1\2", screen(name, width)) for width in WIDTHS)
    first, *others = [{value for value, _ in figures(text)} for text in shown]
    assert all(other == first for other in others)


_HALVES = re.compile(r"([0-9a-f]{32})\n +([0-9a-f]{32})\b")  # of a digest, whose digits are no figure


def test_a_number_that_is_missing_would_be_noticed() -> None:
    shown = figures("an error of 2.5 cm, 12 345 people, 1/25.7 of them, -0.5 and 1.2e-07")
    assert all(is_shown(Fraction(str(value)), shown) for value in (2.5, 2.45, 12_345, 0.5, 1.2e-07))
    assert not any(is_shown(Fraction(str(value)), shown) for value in (2.2, 12_347, 77, 345.0))


@pytest.mark.parametrize("width", WIDTHS)
def test_the_list_of_commands_says_all_of_each(width: int, tmp_path: Path) -> None:
    for arguments in ((), ("task",), ("broker",)):
        shown = run([*arguments, "--help"], tmp_path, environment={"COLUMNS": str(width)}).out
        assert max(map(len, shown.splitlines())) <= width
        assert "..." not in shown.replace("[ARGS]...", "")
    shown = " ".join(run(["--help"], tmp_path, environment={"COLUMNS": str(width)}).out.split())
    for name, command in cli._COMMANDS.items():
        assert f"{name} {command.summary}" in shown


def test_columns_and_a_pipe_are_obeyed_by_a_real_process() -> None:
    asked = [sys.executable, "-m", "hush", "plan", "--epsilon", "1", "--people", "500"]
    narrow = subprocess.run(
        asked, capture_output=True, text=True, check=True, env={"COLUMNS": "60", "PATH": "/usr/bin"}
    )
    assert max(map(len, narrow.stdout.splitlines())) <= 60
    piped = subprocess.run(asked, capture_output=True, text=True, check=True, env={"PATH": "/usr/bin"})
    assert max(len(line) for line in piped.stdout.splitlines() if "±" in line) <= 100
    assert sorted(figures(piped.stdout)) == sorted(figures(narrow.stdout))
    assert json.loads(json.dumps(piped.stdout)) == "\n".join(line.rstrip() for line in piped.stdout.splitlines()) + "\n"
