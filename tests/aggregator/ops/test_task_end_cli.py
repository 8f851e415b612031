"""`hush task close` and `hush task recall` on the file of a store: what they write and what they refuse."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hush import HushError, Task
from hush_aggregator import SqliteStore
from hush_aggregator.commands.task import app
from hush_aggregator.store import Owner, TaskState
from hush_common.errors import StoreError, TaskError
from hush_common.task import make_task

DRAFT = {"id": "heights", "epsilon": "1", "domain": {"kind": "number", "lower": 0.0, "upper": 1.0}}
HEIGHTS = make_task(DRAFT)


def stored(directory: Path, task: Task = HEIGHTS) -> Path:
    path = directory / "hush.sqlite3"
    with SqliteStore(path) as store:
        store.add_task(task)
    return path


def hush_task(path: Path, *words: str) -> str:
    result = CliRunner().invoke(app, [*words, "--store", str(path)])
    if isinstance(result.exception, HushError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_task_is_closed_for_good_and_its_recall_ends(tmp_path: Path) -> None:
    path = stored(tmp_path)
    assert "recalled: heights; devices send what they have kept again, over 60 s" in hush_task(
        path, "recall", "heights"
    )
    assert hush_task(path, "close", "heights") == "closed: heights; nothing more is counted, whatever still comes\n"
    with SqliteStore(path) as store:
        assert store.is_closed(HEIGHTS.digest)
        assert store.task_rows()[0].state is TaskState.CLOSED
        assert [row.ended for row in store.recalls()] == [True]
    with pytest.raises(TaskError, match="'heights' is closed or not open yet"):
        hush_task(path, "recall", "heights")


def test_one_round_is_closed_and_the_others_go_on(tmp_path: Path) -> None:
    daily = make_task(DRAFT | {"rounds": 3, "round_every": "1d", "opens": "2026-01-01T00:00:00Z"})
    path = stored(tmp_path, daily)
    told = hush_task(path, "close", "heights", "--round", "2")
    assert told == "closed: round 2 of heights; nothing more is counted, whatever still comes\n"
    with SqliteStore(path) as store:
        assert [store.is_closed(daily.digest, round_) for round_ in range(3)] == [False, False, True]
        assert store.task_rows()[0].state is TaskState.OPEN
    for number in ("3", "-1"):
        with pytest.raises(HushError, match=rf"round: {number} is not one of the 3 rounds of 'heights'"):
            hush_task(path, "close", "heights", "--round", number)


def test_what_is_done_is_told_in_json_too(tmp_path: Path) -> None:
    path = stored(tmp_path)
    head = {"v": 1, "task": "heights", "digest": HEIGHTS.digest.hex()}
    recalled, closed = (hush_task(path, command, "heights", "--json") for command in ("recall", "close"))
    assert json.loads(recalled) == head | {"status": "recalled", "over": 60}
    assert json.loads(closed) == head | {"status": "closed"}
    again = hush_task(path, "close", "heights", "--round", "0", "--json")
    assert json.loads(again) == head | {"status": "closed", "round": 0}


@pytest.mark.parametrize("command", ["close", "recall"])
def test_a_task_or_a_store_that_is_not_there_is_named(tmp_path: Path, command: str) -> None:
    path = stored(tmp_path)
    with pytest.raises(TaskError, match="task: 'heigths' is not in this store; see hush task list --store"):
        hush_task(path, command, "heigths")
    with pytest.raises(StoreError, match="there is no such file"):
        hush_task(tmp_path / "other", command, "heights")
    assert not (tmp_path / "other").exists()


def test_what_another_store_publishes_is_for_that_store_to_recall(tmp_path: Path) -> None:
    path = stored(tmp_path)
    with SqliteStore(path) as store:
        store.set_owners([Owner("heights", "f" * 32, 1)])
    with pytest.raises(TaskError, match=f"'heights' is another store's, {'f' * 32}"):
        hush_task(path, "recall", "heights")


def test_a_task_that_is_over_or_not_open_yet_cannot_be_recalled(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    for name, moment in (("closes", now - timedelta(hours=1)), ("opens", now + timedelta(hours=1))):
        task = make_task(DRAFT | {"id": name, name: moment.strftime("%Y-%m-%dT%H:%M:%SZ")})
        path = stored(tmp_path, task)
        with pytest.raises(TaskError, match="is closed or not open yet"):
            hush_task(path, "recall", name)
