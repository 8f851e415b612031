"""`hush ledger` in words and in JSON: draws, memories, refusals and what an observer could infer at most."""

import asyncio
import json
import re
import sqlite3
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import partial
from pathlib import Path

import pytest
from answers import answer_one
from device_state import execute, opened_state
from heights import make_heights
from scripted_broker import ScriptedBroker
from typer.testing import CliRunner

from hush_client import Client, Policy, Reason
from hush_client.commands.ledger import app
from hush_client.privacy.answer import Question
from hush_client.state import ledger
from hush_common.errors import OptionError, StateError
from hush_common.rng import SystemRng
from hush_common.task import decode_task

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
DAILY = {"rounds": 3, "round_every": "1d", "opens": "2026-01-01T00:00:00Z"}
CERTAINTY = "84.2 %"
"""How sure somebody who was 50/50 can become: exp(5/3) / (1 + exp(5/3))."""
STEPS = decode_task(make_heights(id="steps", purpose="health", **DAILY))
STICKY = decode_task(make_heights(id="sticky", repeat="sticky", **DAILY))


def write(connection: sqlite3.Connection) -> None:
    for task, days, policy in (
        (STEPS, (0, 1), Policy()),
        (STICKY, (0, 1, 2), Policy(sticky=True)),
        (STEPS, (2,), Policy(total=1)),
    ):
        for day in days:
            question = Question(task, "topic", policy, NOW + timedelta(days=day))
            receipt, _ = answer_one(connection, question, question.task.domain.read(172.0), SystemRng())
    assert receipt.status == "refused"
    ledger.resent(connection, {ledger.charges(connection, "d", "health")[1].sequence or 0: 1})


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    async def prepare() -> None:
        async with opened_state(tmp_path) as state:
            await state.run(write)

    asyncio.run(prepare())
    return tmp_path


def run(directory: Path, *arguments: str) -> str:
    result = CliRunner().invoke(app, ["--state", str(directory), *arguments])
    if result.exception is not None:
        raise result.exception
    return result.stdout


def test_the_ledger_command_shows_spent_refused_and_certainty(directory: Path) -> None:
    text = run(directory)
    rows = [line.split() for line in text.splitlines() if line.startswith("  2026")]
    assert [row[2:] for row in rows] == [
        ["steps", "0", "1/3", "laplace", "0"],
        ["steps", "1", "1/3", "laplace", "up", "to", "1"],
        ["sticky", "0", "1", "multilevel", "0"],
        ["sticky", "1", "0", "multilevel,", "from", "memory", "0"],
        ["sticky", "2", "0", "multilevel,", "from", "memory", "0"],
    ]
    for part in ("d, for health: epsilon 2/3 of 4", "d, for workplaces: epsilon 1 of 4", Reason.OVER_TOTAL.meaning):
        assert part in text
    assert CERTAINTY in text
    assert "5 of these" in text, "the reports that wait"


async def open_once(directory: Path, policy: Policy) -> None:
    async with Client("mqtt://127.0.0.1:1", device="d", state=directory, policy=policy, transport=ScriptedBroker()):
        pass


@pytest.mark.parametrize("content", [b"", b"{}", b'{"lifetime":"x","total":null}', b'{"lifetime":"1/0","total":null}'])
def test_damaged_limits_are_as_if_there_were_none(directory: Path, content: bytes) -> None:
    (directory / "policy.json").write_bytes(content)
    assert "4 is the default" in run(directory)


def test_json_has_everything_exactly(directory: Path) -> None:
    document = json.loads(run(directory, "--json", "--total", "6"))
    (device,) = document["devices"]
    assert (device["spent"], device["cap"]) == ("5/3", "6")
    assert device["at_most_sure"]["0.5"] == pytest.approx(0.8411308951190849, rel=1e-15)
    assert device["at_most_sure"]["0.5"] >= 0.8411308951190849
    assert device["at_most_sure"]["0.01"] == pytest.approx(0.0507620, rel=1e-4)
    kinds = [[charge["kind"] for charge in account["charges"]] for account in document["accounts"]]
    assert kinds == [["draw", "draw"], ["draw", "memo", "memo"]]
    assert [charge["resends"] for charge in document["accounts"][0]["charges"]] == [0, 1]
    assert document["refused"] == [
        {
            "at": "2026-01-03T12:00:00+00:00",
            "device": "d",
            "purpose": "health",
            "task": "steps",
            "round": 2,
            "reason": "over_total",
            "epsilon": "1/3",
        }
    ]
    assert document["waiting"] == 5


def test_no_value_and_no_memory_is_printed(directory: Path) -> None:
    text = (run(directory) + run(directory, "--json")).replace(str(directory), "")
    assert "172" not in re.sub("[0-9a-f]{32}", "", text)  # an id may happen to hold it
    assert "threshold" not in text


def test_the_caps_are_those_stated_or_of_the_last_program(directory: Path) -> None:
    def cap(*options: str) -> tuple[str, str]:
        document = json.loads(run(directory, "--json", *options))
        (found,) = {account["cap"] for account in document["accounts"]}
        return found, document["cap_is"]

    assert cap() == ("4", "default")
    for lifetime, total in ((Fraction(10), None), (Fraction(7, 3), Fraction(6))):
        asyncio.run(open_once(directory, Policy(lifetime=lifetime, total=total)))
    text = run(directory)
    assert "epsilon 2/3 of 7/3" in text
    assert "epsilon 5/3 of 6" in text
    assert cap() == ("7/3", "program")
    assert cap("--lifetime", "5") == ("5", "stated")


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_a_state_that_was_not_named_is_named(
    directory: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    home = directory.with_name(f"{directory.name}-home")
    home.mkdir()
    place = directory.rename(home / "hush")
    monkeypatch.setenv("XDG_STATE_HOME", str(home))
    monkeypatch.delenv("HUSH_STATE", raising=False)
    unnamed = CliRunner().invoke(app, arguments)
    assert str(place) in unnamed.stderr
    named = CliRunner().invoke(app, ["--state", str(place), *arguments])
    assert (named.exit_code, named.stdout, named.stderr) == (0, unnamed.stdout, "")


def test_what_another_program_wrote_is_shown_without_harm(directory: Path) -> None:
    execute(directory, "UPDATE refusal SET reason = 'of_a_newer_hush'")
    for table in ("account", "charge"):
        execute(directory, f"UPDATE {table} SET purpose = 'x' || char(27) || '[2J' WHERE purpose = 'health'")  # noqa: S608
    text = run(directory)
    assert "of_a_newer_hush" in text
    assert r"for x\x1b[2J: epsilon" in text


@pytest.mark.parametrize(
    ("damage", "word"),
    [
        ("UPDATE account SET spent = '1/2' WHERE purpose = 'health'", "account"),
        ("UPDATE charge SET charged_at = 'noon'", "'noon'"),
    ],
)
def test_a_damaged_ledger_is_not_shown(directory: Path, damage: str, word: str) -> None:
    execute(directory, damage)
    with pytest.raises(StateError, match=word):
        run(directory)


def test_a_directory_without_a_state_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("missing", "empty", "x" * 300):
        for extra in ((), ("--json",), ("--forget", "heights")):
            with pytest.raises((OptionError, StateError), match=name):
                run(tmp_path / name, *extra)
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]
    assert not any((tmp_path / "empty").iterdir())


def test_a_device_that_only_refused_has_spent_nothing(tmp_path: Path) -> None:
    async def prepare() -> None:
        question = Question(STICKY, "topic", Policy(), NOW)
        async with opened_state(tmp_path) as state:
            await state.run(partial(answer_one, question=question, value=STICKY.domain.read(172.0), rng=SystemRng()))

    asyncio.run(prepare())
    first, second = run(tmp_path).splitlines()
    assert "nothing" in first
    assert second.startswith("d refused sticky, round 0 (epsilon 1)")
