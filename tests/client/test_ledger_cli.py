"""`hush ledger` in words and in JSON: draws, memories, refusals and what an observer could infer at most."""

import asyncio
import json
import re
import sqlite3
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import pytest
from answers import answer_one
from heights import make_heights
from scripted_broker import ScriptedBroker
from typer.testing import CliRunner

from hush_client import Client, Policy, Reason
from hush_client.commands.ledger import app
from hush_client.privacy.answer import Question
from hush_client.state import ledger
from hush_client.state.database import FILE_NAME, DeviceState
from hush_common.errors import StateError
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
        state = await DeviceState.open(tmp_path)
        await state.run(write)
        await state.close()

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


def test_a_total_is_shown_beside_what_was_spent_of_it(directory: Path) -> None:
    text = run(directory, "--total", "6", "--lifetime", "1")
    assert "epsilon 2/3 of 1" in text
    assert "(epsilon 5/3 of 6 in total)" in text
    assert "No program" not in text


def test_json_tells_a_cap_that_was_stated_from_the_default(directory: Path) -> None:
    for arguments, cap, origin in (((), "4", "default"), (("--lifetime", "10"), "10", "stated")):
        document = json.loads(run(directory, "--json", *arguments))
        assert ({account["cap"] for account in document["accounts"]}, document["cap_is"]) == ({cap}, origin)


async def open_once(directory: Path, policy: Policy) -> None:
    async with Client("mqtt://127.0.0.1:1", device="d", state=directory, policy=policy, transport=ScriptedBroker()):
        pass


def test_the_caps_are_those_of_the_last_program_unless_others_are_stated(directory: Path) -> None:
    asyncio.run(open_once(directory, Policy(lifetime=10)))
    asyncio.run(open_once(directory, Policy(lifetime=Fraction(7, 3), total=6)))
    text = run(directory)
    assert "epsilon 2/3 of 7/3" in text
    assert "(epsilon 5/3 of 6 in total)" in text
    assert "No program" not in text
    assert json.loads(run(directory, "--json"))["cap_is"] == "program"
    assert "epsilon 2/3 of 5\n" in run(directory, "--lifetime", "5")


@pytest.mark.parametrize("content", [b"", b"{}", b'{"lifetime":"x","total":null}', b'{"lifetime":"1/0","total":null}'])
def test_damaged_limits_are_as_if_there_were_none(directory: Path, content: bytes) -> None:
    (directory / "policy.json").write_bytes(content)
    assert "4 is the default" in run(directory)


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_the_state_that_nobody_named_is_named_here(
    directory: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    home = directory.with_name(f"{directory.name}-home")
    home.mkdir()
    place = directory.rename(home / "hush")
    monkeypatch.setenv("XDG_STATE_HOME", str(home))
    monkeypatch.delenv("HUSH_STATE", raising=False)
    unnamed = CliRunner().invoke(app, arguments)
    assert unnamed.stderr.startswith("hush: used the state")
    named = CliRunner().invoke(app, ["--state", str(place), *arguments])
    assert (named.exit_code, named.stdout, named.stderr) == (0, unnamed.stdout, "")


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


def test_neither_value_nor_memory_is_ever_printed(directory: Path) -> None:
    text = (run(directory) + run(directory, "--json")).replace(str(directory), "")
    assert "172" not in re.sub("[0-9a-f]{32}", "", text)  # an id may happen to hold it
    assert "threshold" not in text


def test_a_refusal_of_a_reason_that_is_not_known_here_is_shown_as_it_is(directory: Path) -> None:
    with sqlite3.connect(directory / FILE_NAME) as connection:
        connection.execute("UPDATE refusal SET reason = 'of_a_newer_hush'")
    connection.close()
    assert "d refused steps, round 2 (epsilon 1/3): of_a_newer_hush." in run(directory)


def test_an_account_that_is_not_the_sum_of_its_charges_is_told(directory: Path) -> None:
    with sqlite3.connect(directory / FILE_NAME) as connection:
        connection.execute("UPDATE account SET spent = '1/2' WHERE purpose = 'health'")
    connection.close()
    with pytest.raises(StateError, match="account"):
        run(directory)


def test_a_device_that_only_refused_has_spent_nothing(tmp_path: Path) -> None:
    async def prepare() -> None:
        state = await DeviceState.open(tmp_path)
        question = Question(STICKY, "topic", Policy(), NOW)
        await state.run(
            lambda connection: answer_one(connection, question, question.task.domain.read(172.0), SystemRng())
        )
        await state.close()

    asyncio.run(prepare())
    first, second = run(tmp_path).splitlines()
    assert "nothing" in first
    assert second.startswith("d refused sticky, round 0 (epsilon 1)")


def test_a_directory_that_cannot_be_is_told() -> None:
    with pytest.raises(StateError, match="File name too long"):
        run(Path(300 * "x"))


def test_a_purpose_that_was_altered_cannot_write_to_the_terminal(directory: Path) -> None:
    with sqlite3.connect(directory / FILE_NAME) as connection:
        for table in ("account", "charge"):
            connection.execute(f"UPDATE {table} SET purpose = 'x' || char(27) || '[2J' WHERE purpose = 'health'")  # noqa: S608
    connection.close()
    assert r"for x\x1b[2J: epsilon" in run(directory)


def test_a_time_that_is_none_is_damage(directory: Path) -> None:
    with sqlite3.connect(directory / FILE_NAME) as connection:
        connection.execute("UPDATE charge SET charged_at = 'noon'")
    connection.close()
    with pytest.raises(StateError, match="the ledger holds 'noon' as a time; it is damaged"):
        run(directory)
