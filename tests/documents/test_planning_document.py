"""docs/planning.md shows what the commands print, and recomputed figures: alter a digit, and this fails."""

import os
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

from hush_common.domain import BitDomain
from hush_common.epsilon import at_most_sure
from hush_common.formatting import percent_at_most, whole
from hush_simulations.planning.plan import central, offered, people_for, references

_WIDE = {**os.environ, "COLUMNS": "120"}
DOCUMENT = (Path(__file__).resolve().parents[2] / "docs" / "planning.md").read_text(encoding="utf-8")


def test_the_plan_that_is_shown_is_the_plan_that_is_printed() -> None:
    start = DOCUMENT.index("$ hush plan ")
    command, _, shown = DOCUMENT[start : DOCUMENT.index("```", start)].partition("\n")
    asked = [sys.executable, "-m", "hush", *command.split()[2:]]
    printed = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=60, env=_WIDE).stdout
    assert [line.rstrip() for line in printed.rstrip().splitlines()] == shown.rstrip().splitlines()


@pytest.mark.parametrize("epsilon", ["0.1", "1"])
def test_the_people_of_a_trusted_collector_and_of_others_are_as_computed(epsilon: str) -> None:
    families = (central(BitDomain()), *offered(BitDomain()).values(), *references(BitDomain()).values())
    lines = [family(Fraction(epsilon)) for family in families]
    people = [people_for(line, "reporters", 0.01, None) for line in lines if line is not None]
    assert f"| {epsilon} | " + " | ".join(map(whole, filter(None, people))) + " |" in DOCUMENT


def test_what_an_audit_may_show_is_as_computed() -> None:
    start = DOCUMENT.index("$ hush audit laplace")
    shown = DOCUMENT[start : DOCUMENT.index("```", start)]
    assert f"epsilon 1: no observer is right more often than {percent_at_most(at_most_sure(Fraction(1)))}" in shown
    right, guesses = (int(figure.replace(" ", "")) for figure in re.findall(r"([\d ]+) of ([\d ]+) guesses", shown)[0])
    assert f"({100 * right / guesses:.2f} %)" in shown
