"""Whoever writes something that a command reads wants it to crash, to say what it does not mean, or to tell secrets.

Legal calls of all commands are garbled by a seed. Each has to end as documented, with one clear line where it failed,
without a secret, and without anything that a terminal or the reader of a log would take for something else.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

import pytest
from commands import EXIT_CODES, Option, Shown, commands, unprintable
from garbling import FORGED, Garbled, Past, garbled, past_of, shown
from inputs import CALLS, TASKS, example, leaks

# Ctrl-C may be pressed while a weak reference is cleared, where Python can only say so; it is pressed again.
pytestmark = [
    pytest.mark.large,
    pytest.mark.filterwarnings(r"ignore:[\s\S]*KeyboardInterrupt:pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.usefixtures("unrendered"),
]

SEED = 20261122
_ALL, _PART, _SAMPLE = 10_000, 500, 50
_CASES = 14 * _SAMPLE
"""So many that every command is among them."""
_FORGED_LINE = re.compile(rf"^(hush: |[-0-9: ]+INFO )?{FORGED}", re.MULTILINE)


def complaints(case: Garbled, found: Shown, directory: Path) -> list[str]:
    """What is wrong with the way in which a command ended."""
    text = f"{found.out}\n{found.err}\n{found.log}"
    wrong = [f"a traceback: {found.trouble[-2000:]}"] if found.trouble or "Traceback" in text else []
    wrong += [f"exit code {found.code}"] if not found.trouble and found.code not in EXIT_CODES else []
    wrong += ["no clear message"] if found.code in {1, 2} and not _is_clear(case, found) else []
    wrong += [f"prints {sign!a}" for sign in unprintable(text)]
    wrong += ["a forged line"] if _FORGED_LINE.search(text) else []
    return wrong + leaks(found, directory, case.call.files, *case.secrets)


def _is_clear(case: Garbled, found: Shown) -> bool:
    """One line says what is wrong; a bare command shows its help, and a refused report may be told as JSON."""
    *_, last = found.err.splitlines() or [""]
    helps = found.err.lstrip().startswith("Usage: hush")
    refused = found.code == 1 and "--json" in case.arguments and found.out.startswith('{"v": 1, "status": "refused"')
    return last.startswith("hush: ") or helps or refused


@pytest.fixture(scope="module")
def past() -> Iterator[Past]:
    with TemporaryDirectory() as directory:
        yield past_of(Path(directory))


def judge(numbers: Iterable[int], past: Past, memory_path: Path) -> dict[str, list[str]]:
    """All that is wrong in the cases of these numbers."""
    found = {}
    for number in numbers:
        directory = memory_path / str(number)
        directory.mkdir()
        case = garbled(SEED, number, past)
        if wrong := complaints(case, shown(case, directory), directory):
            found[f"{number}: {case.arguments} {dict(case.call.environment)}"] = wrong
    return found


@pytest.mark.parametrize("start", range(0, _CASES, _SAMPLE))
def test_nothing_does_that_was_garbled(start: int, past: Past, memory_path: Path) -> None:
    assert judge(range(start, start + _SAMPLE), past, memory_path) == {}


@pytest.mark.soak
@pytest.mark.parametrize("start", range(0, _ALL, _PART))
def test_nothing_does_in_ten_thousand_cases(start: int, past: Past, memory_path: Path) -> None:
    assert judge(range(start, start + _PART), past, memory_path) == {}


HOSTILE = f"\x1b[2J\x9b2J\x07\r\nhush: {FORGED}\n\u202e\u2066\u2028"


def told(command: str, option: Option, text: str) -> Garbled:
    """The first legal call of a command, which is told `text` by an option."""
    one = example(command).having(option.flag, (text,) * option.width)
    return Garbled(one, one.arguments(), TASKS if command == "report" else None, None, ())


@pytest.mark.parametrize("command", commands())
def test_no_option_does_that_is_told_to_write_to_a_terminal(command: str, memory_path: Path) -> None:
    for option, text in product(commands()[command], (HOSTILE, f"x{HOSTILE}", f"1{HOSTILE}", f"/{HOSTILE}")):
        case = told(command, option, text)
        cases = [case]
        if option.variable is not None:
            bare = replace(case.call.without(option.flag), environment={option.variable: text})
            cases.append(replace(case, call=bare, arguments=bare.arguments()))
        for one in cases:
            place = Path(mkdtemp(dir=memory_path))
            assert complaints(one, shown(one, place), place) == [], option


def test_garbling_reaches_every_command_with_secrets(past: Past) -> None:
    cases = [garbled(SEED, number, past) for number in range(_CASES)]
    assert {case.call.command for case in cases} == {one.command for one in CALLS}
    assert sum(bool(case.secrets) for case in cases) > len(cases) / 2
