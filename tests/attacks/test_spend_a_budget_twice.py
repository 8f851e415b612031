"""Whoever can alter one row of a state wants its device to forget what it spent."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from scripted_broker import ScriptedBroker

from hush_client import Gateway
from hush_client.commands.report import app
from hush_common.errors import BrokerError, StateError

CHARGE = """
INSERT INTO charge (epsilon, device, task, round, digest, report_id, purpose, mechanism, charged_at)
VALUES ('3', 'd', 'heights', 0, x'00', x'01', 'health', 'laplace', '2026-01-01T00:00:00+00:00');
"""
ACCOUNT = "INSERT INTO account VALUES ('d', 'health', '3/1');"


@pytest.fixture
async def state(tmp_path: Path) -> Callable[[str], Path]:
    async with Gateway(ScriptedBroker(), name="d", state=tmp_path / "state"):
        pass

    def altered(script: str) -> Path:
        with closing(sqlite3.connect(tmp_path / "state" / "hush.sqlite3")) as connection:
            connection.executescript(script)
        return tmp_path / "state"

    return altered


def report(directory: Path) -> None:
    options = ["--broker", "mqtt://127.0.0.1:1", "--state", str(directory), "--timeout", "0.2"]
    app(["heights", "170", "--device", "d", *options], standalone_mode=False)


@pytest.mark.parametrize(
    "alteration",
    [
        "UPDATE account SET spent = '1/1'",
        "DELETE FROM account",
        "UPDATE charge SET epsilon = '1/1'",
        "DELETE FROM charge",
    ],
)
def test_a_device_whose_account_does_not_add_up_answers_nothing(state: Callable[[str], Path], alteration: str) -> None:
    directory = state(CHARGE + ACCOUNT + alteration)
    with pytest.raises(StateError, match="'d'"):
        report(directory)


@pytest.mark.medium
def test_one_whose_account_adds_up_goes_on(state: Callable[[str], Path]) -> None:
    with pytest.raises(BrokerError):
        report(state(CHARGE + ACCOUNT))
