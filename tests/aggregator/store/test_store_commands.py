"""Commands on the file of a store: `hush task list`, `withdraw` and `forget`, `hush results`, `export` and `store`."""

import csv
import json
import secrets
import sqlite3
import sys
from contextlib import closing
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from stored import counted_ids
from typer.testing import CliRunner

from hush import HushError, Task
from hush_aggregator import SqliteReader, SqliteStore
from hush_aggregator.commands import results, store
from hush_aggregator.commands.task import app as task_app
from hush_aggregator.count.tasks import KnownTasks, check_files
from hush_aggregator.store import Accepted, TaskState
from hush_common.errors import OptionError, StoreError, TaskError
from hush_common.task import make_task
from hush_common.wire import Refusal

DAILY = {"rounds": 3, "round_every": "1d", "opens": "2026-01-01T00:00:00Z"}
DRAFT = {"id": "heights", "epsilon": "3", "domain": {"kind": "number", "lower": 0.0, "upper": 1.0}, **DAILY}
HEIGHTS = make_task(DRAFT)
WAY = make_task({"id": "way", "epsilon": "1", "domain": {"kind": "category", "labels": ["bus", "car"]}})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "hush.sqlite3"
    with SqliteStore(path) as opened:
        for task in (HEIGHTS, WAY):
            opened.add_task(task)
        count(opened, HEIGHTS, 0, 40)
        count(opened, HEIGHTS, 2, 5)
        count(opened, WAY, 0, 7)
    return path


def count(opened: SqliteStore, task: Task, round_: int, reports: int) -> None:
    ids = np.frombuffer(secrets.token_bytes(16 * reports), dtype="V16")
    bodies = np.arange(reports, dtype=np.int64)[:, None] % (2 if task is WAY else 1000) + 1
    opened.commit([Accepted(task, round_, ids, bodies)], {(task.id, Refusal.CLOSED): 1})


def told(app: typer.Typer, *words: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    if isinstance(result.exception, HushError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def rows(path: Path) -> dict[str, TaskState | None]:
    with SqliteReader(path) as reader:
        return {row.id: row.state if row.payload else None for row in reader.task_rows()}


def test_the_list_says_of_each_task_what_the_store_knows(path: Path) -> None:
    listed = json.loads(told(task_app, "list", "--store", path, "--json"))["tasks"]
    assert [(one["task"], one["state"], one["origin"], one["round"], one["n"]) for one in listed] == [
        ("heights", "open", "file", 2, 5),
        ("way", "open", "file", 0, 7),
    ]
    text = told(task_app, "list", "--store", path)
    assert all(half in text for half in HEIGHTS.digest.hex(" ", 16).split())


def test_a_task_is_given_to_a_store_once_withdrawn_and_opened_again(path: Path, tmp_path: Path) -> None:
    file = tmp_path / "steps.json"
    file.write_text(json.dumps(DRAFT | {"id": "steps"}), encoding="utf-8")
    said = []
    for command, state in (("publish", "open"), ("publish", "open"), ("withdraw", "withdrawn"), ("publish", "open")):
        said.append(told(task_app, command, file if command == "publish" else "steps", "--store", path))
        assert rows(path)["steps"] is TaskState(state)
        assert "steps" in said[-1]
    assert len({text.partition(":")[0] for text in said}) == 4


def test_a_changed_draft_is_refused_with_both_digests_and_the_file(path: Path, tmp_path: Path) -> None:
    file, changed = tmp_path / "changed.json", DRAFT | {"title": "other"}
    file.write_text(json.dumps(changed), encoding="utf-8")
    with pytest.raises(TaskError, match=r"changed\.json.*heights") as caught:
        told(task_app, "publish", file, "--store", path)
    assert all(task.digest.hex() in str(caught.value) for task in (make_task(changed), HEIGHTS))


def test_a_forgotten_task_is_gone_and_its_id_is_never_used_again(path: Path, tmp_path: Path) -> None:
    file = tmp_path / "heights.json"
    file.write_text(json.dumps(DRAFT), encoding="utf-8")
    for _ in range(2):  # again does no harm, and goes on where the first was interrupted
        assert "heights" in told(task_app, "forget", "heights", "--store", path, "--yes")
    assert rows(path) == {"heights": None, "way": TaskState.OPEN}
    assert counted_ids(path)[1] == len(counted_ids(path)[0]) == 7
    with pytest.raises(TaskError, match="forgotten"):
        told(task_app, "publish", file, "--store", path)
    with SqliteStore(path) as opened:
        assert opened.is_closed(HEIGHTS.digest)
        count(opened, HEIGHTS, 0, 3)  # a replay
        assert opened.tally(HEIGHTS.digest, 0).n == 0


def test_a_file_whose_task_was_forgotten_is_named_at_the_start(path: Path) -> None:
    told(task_app, "forget", "heights", "--store", path, "--yes")
    with SqliteStore(path) as opened:
        with pytest.raises(TaskError, match=r"a\.toml.*heights.*forgotten"):
            check_files(opened, {Path("a.toml"): HEIGHTS})
        with pytest.raises(TaskError, match=r"heights.*forgotten"):
            KnownTasks(opened, [HEIGHTS]).load()


def test_nothing_is_forgotten_without_a_yes(path: Path) -> None:
    result = CliRunner().invoke(task_app, ["forget", "way", "--store", str(path)], input="n\n")
    assert result.exit_code != 0
    assert rows(path)["way"] is TaskState.OPEN


def documents(*words: object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(told(results.app, *words, "--json"))["results"]
    return found


def test_results_are_of_the_latest_round_of_one_or_of_all(path: Path) -> None:
    assert [(one["round"], one["n"]) for one in documents("heights", "--store", path)] == [(2, 5)]
    assert [one["n"] for one in documents("heights", "--store", path, "--round", 0)] == [40]
    assert [one["n"] for one in documents("heights", "--store", path, "--round", "all")] == [40, 0, 5]
    for wrong in ("3", "x", "-1", "9" * 30):
        with pytest.raises(HushError, match="round"):
            documents("heights", "--store", path, "--round", wrong)


def test_results_as_csv_have_a_line_for_each_interval(path: Path) -> None:
    text = told(results.app, "heights", "--store", path, "--round", "all", "--csv")
    table = list(csv.DictReader(StringIO(text)))
    assert {(row["round"], row["n"]) for row in table} == {("0", "40"), ("1", "0"), ("2", "5")}
    (document,) = documents("heights", "--store", path, "--round", "0")
    (mine,) = [row for row in table if row["round"] == "0" and row["target"] == "reporters"]
    assert [float(mine["low"]), float(mine["high"])] == document["intervals"]["reporters"]
    assert float(mine["value"]) == document["mean"]
    parts = {row["part"] for row in csv.DictReader(StringIO(told(results.app, "way", "--store", path, "--csv")))}
    assert parts == {"bus", "car"}
    assert "reporters" in told(results.app, "way", "--store", path)


def test_an_export_without_pyarrow_names_it_and_leaves_nothing(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(OptionError, match="pip install pyarrow"):
        told(results.export_app, "heights", "--store", path, "--out", tmp_path / "reports.parquet")
    assert not list(tmp_path.glob("reports*"))


@pytest.mark.parametrize("ending", ["csv", pytest.param("parquet", marks=pytest.mark.medium)])
def test_an_export_has_every_report_and_no_file_is_overwritten(path: Path, tmp_path: Path, ending: str) -> None:
    out = tmp_path / f"reports.{ending}"
    said = told(results.export_app, "heights", "--store", path, "--out", out)
    assert all(word in said for word in (str(out), "45"))
    with SqliteReader(path) as reader:
        wanted = {
            (report.round, report.id.hex(), report.body[0])
            for number in (0, 2)
            for report in reader.reports(HEIGHTS.digest, number)
        }
    if ending == "csv":
        lines = csv.DictReader(StringIO(out.read_text(encoding="utf-8")))
        found = {(int(row["round"]), row["id"], int(row["body_0"])) for row in lines}
    else:
        parquet = pytest.importorskip("pyarrow.parquet")
        table = parquet.read_table(out).to_pylist()
        found = {(row["round"], row["id"].hex(), row["body_0"]) for row in table}
    assert found == wanted
    assert out.stat().st_mode & 0o777 == 0o600
    with pytest.raises(OptionError, match="already exists"):
        told(results.export_app, "heights", "--store", path, "--out", out)
    other = tmp_path / f"other.{ending}"
    assert " 5 " in told(results.export_app, "heights", "--store", path, "--out", other, "--round", 2)
    assert not list(tmp_path.glob("*.part"))


def test_a_backup_of_a_store_in_use_is_whole_and_put_back_says_so(path: Path, tmp_path: Path) -> None:
    copy, place = tmp_path / "copy", tmp_path / "place.sqlite3"
    with SqliteStore(path) as opened:
        count(opened, HEIGHTS, 1, 3)  # in the log of the store, and not in its main file yet
        assert ", 55 " in told(store.app, "backup", copy, "--store", path)
        count(opened, HEIGHTS, 1, 9)
        with pytest.raises(StoreError, match="another aggregator"):
            told(store.app, "restore", copy, "--store", path, "--replace")
    assert copy.stat().st_mode & 0o777 == 0o600
    with pytest.raises(StoreError, match="already exists"):
        told(store.app, "backup", copy, "--store", path)
    with pytest.raises(StoreError, match="--replace"):
        told(store.app, "restore", copy, "--store", path)
    told(store.app, "restore", copy, "--store", place)
    told(store.app, "restore", copy, "--store", path, "--replace")
    with SqliteReader(copy) as kept:
        assert not kept.restored
        identity = kept.public_identity
    for restored in (place, path):
        with SqliteStore(restored) as opened:
            assert (opened.restored, opened.public_identity, opened.tally(HEIGHTS.digest, 1).n) == (True, identity, 3)
            opened.reacted_to_restoring()
            assert not opened.restored


def test_a_restore_that_fails_leaves_the_store_as_it_is(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "copy"
    told(store.app, "backup", copy, "--store", path)
    with SqliteReader(path):  # while somebody reads, what is counted stays in the log of the store
        with SqliteStore(path) as opened:
            count(opened, HEIGHTS, 1, 9)

        def fail(*_: object) -> None:
            raise OSError(5, "Input/output error")

        with monkeypatch.context() as patched:
            patched.setattr(Path, "replace", fail)
            with pytest.raises(StoreError, match="cannot be written"):
                told(store.app, "restore", copy, "--store", path, "--replace")
    with SqliteStore(path) as opened:
        assert (opened.restored, opened.tally(HEIGHTS.digest, 1).n) == (False, 9)


def test_a_damaged_backup_is_not_put_back(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    told(store.app, "backup", copy, "--store", path)
    with closing(sqlite3.connect(copy)) as writer, writer:
        writer.execute("UPDATE tally SET n = n + 1")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="damaged"):
        told(store.app, "restore", copy, "--store", path, "--replace")
    assert path.read_bytes() == before
    for wrong in (tmp_path / "missing", tmp_path):
        with pytest.raises(StoreError, match="no such file"):
            told(store.app, "restore", wrong, "--store", tmp_path / "new")
    assert not list(tmp_path.glob("*.part"))
    assert not (tmp_path / "new").exists()


@pytest.mark.medium
def test_a_compacted_store_is_smaller_and_has_the_same_reports(path: Path) -> None:
    with SqliteStore(path) as opened:
        for _ in range(60):
            count(opened, HEIGHTS, 2, 500)
    before = counted_ids(path)
    with SqliteStore(path), pytest.raises(StoreError, match="another aggregator"):
        told(store.app, "compact", "--store", path)
    said = json.loads(told(store.app, "compact", "--store", path, "--json"))
    assert said["after"] == path.stat().st_size < said["before"]
    assert (sorted(counted_ids(path)[0]), counted_ids(path)[1]) == (sorted(before[0]), before[1])
    with pytest.raises(StoreError, match="no such file"):
        told(store.app, "compact", "--store", path.with_name("none"))
