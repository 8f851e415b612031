"""`hush store check` finds tallies that are not of their reports; `hush store copy` takes all to another place."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from datetime import date
from pathlib import Path

import numpy as np
import pytest
from stores import StorePlace, in_postgres
from typer.testing import CliRunner

from hush_aggregator.commands import store as command
from hush_aggregator.ops.copy import check_reports, copy_store
from hush_aggregator.store import UNKNOWN, Accepted, Owner, StoredRecall, TaskState
from hush_aggregator.store.base import PublishedStep, Step
from hush_aggregator.store.postgres_url import PostgresUrl
from hush_common.errors import StoreError
from hush_common.recall import Recall
from hush_common.task import make_task
from hush_common.wire import Refusal

DAILY = make_task(
    {"id": "daily", "epsilon": "3", "domain": {"kind": "number", "lower": 0.0, "upper": 1.0}, "rounds": 3}
    | {"round_every": "1d", "opens": "2026-01-01T00:00:00Z"}
)
WAY = make_task({"id": "way", "epsilon": "1", "domain": {"kind": "category", "labels": ["a", "b", "c"]}})
GONE = make_task({"id": "gone", "epsilon": "1", "domain": {"kind": "bit"}})
SLOW = make_task({"id": "slow", "epsilon": "1", "domain": {"kind": "bit"}, "release_from": 5, "release_every": "1h"})
OLD = make_task({"id": "old", "epsilon": "1", "domain": {"kind": "bit"}, "retention": "1d"})


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.large)])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StorePlace]:
    with ExitStack() as inside:
        in_file = StorePlace(tmp_path / "copy.sqlite")
        server = None if request.param == "sqlite" else request.getfixturevalue("postgres_server")
        yield in_file if server is None else inside.enter_context(in_postgres(server))


def fill(place: StorePlace) -> None:
    rng = np.random.default_rng(20_261_123)

    def some(task: object, round_: int, count: int, high: int) -> Accepted:
        ids = np.frombuffer(rng.bytes(16 * count), dtype="V16")
        return Accepted(task, round_, ids, rng.integers(0, high, (count, 1)))  # type: ignore[arg-type]

    with place.open() as store:
        store.add_tasks([DAILY, WAY, GONE, SLOW, OLD])
        store.commit([some(DAILY, 0, 5000, 1 << 40), some(DAILY, 2, 30, 200)], {("daily", Refusal.CLOSED): 4})
        store.commit([some(WAY, 0, 70, 3), some(GONE, 0, 9, 2)], {(UNKNOWN, Refusal.MALFORMED): 2})
        store.commit([some(SLOW, 0, 6, 2), some(OLD, 0, 8, 2)], {("slow", Refusal.CLOSED): 1})
        store.release([SLOW.digest], 3600)
        store.commit([some(SLOW, 0, 3, 2)], {("slow", Refusal.CLOSED): 1})
        while store.drop_reports(OLD.digest, 0):
            pass
        steps = [Step(400_000 * 3600, 10, 0.1, (0.0, 0.3), 0.9), Step(400_001 * 3600, 20)]
        store.put_steps([PublishedStep(task.digest, 0, one) for task in (DAILY, GONE) for one in steps])
        store.set_owners([Owner("way", "f" * 32, 7, "e" * 32)])
        store.close_task("daily", 0)
        store.recall([StoredRecall(Recall("daily", DAILY.digest, bytes(range(16)), 60), 1_700_000_000)])
        store.note_day(date(2026, 11, 23))
    with place.edit() as editor:
        editor.set_state("way", TaskState.WITHDRAWN)
        editor.forget("gone")


def everything(place: StorePlace) -> object:
    with place.read() as store:
        rows = store.stored_rows()
        all_tasks = (DAILY, WAY, GONE, SLOW, OLD)
        reports = {(task.id, k): [*store.reports(task.digest, k)] for task in all_tasks for k in range(3)}
        tallies = {(task.id, k): store.tally(task.digest, k) for task in all_tasks for k in range(3)}
        raw = {(task.id, k): store.counted_tally(task.digest, k) for task in all_tasks for k in range(3)}
        assert {key: len(steps) for key, steps in rows.steps.items()} == {(DAILY.digest, 0): 2}
        assert (tallies["slow", 0].n, raw["slow", 0].n, raw["old", 0].n) == (6, 9, 8)
        assert store.refusals("slow") == {Refusal.CLOSED: 1}
        rest = store.counted_refusals(), store.stored_rounds(), store.counts(), store.refused()
        return rows, reports, tallies, raw, rest


@pytest.mark.large
def test_a_copy_has_everything_and_goes_on(place: StorePlace, target: StorePlace) -> None:
    fill(place)
    before = everything(place)
    assert copy_store(place.address, target.address) == 5109
    assert everything(target) == before
    with place.read() as old, target.read() as new:
        assert new.version() > old.version()
        assert new.restored
    with target.open() as store:
        assert check_reports(target.address) == (5109, [])
        again = Accepted(DAILY, 2, *next(store.arrays(DAILY.digest, 2)))
        assert store.commit([again], {}).refused == {Refusal.DUPLICATE: 30}
        assert store.identity == before[0].session  # type: ignore[index]
    with pytest.raises(StoreError, match=r"exists|there is"):
        copy_store(place.address, target.address)


def test_a_copy_that_fails_leaves_nothing_that_looks_like_a_store(place: StorePlace, target: StorePlace) -> None:
    fill(place)
    calls = 0

    def failing(_reports: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy_store(place.address, target.address, failing)
    with pytest.raises(StoreError, match=r"no such file|interrupted"):
        target.read()
    if isinstance(target.address, Path):
        assert [file.name for file in target.address.parent.glob("copy*")] == []


def test_a_tally_that_is_not_that_of_its_reports_is_named(place: StorePlace, tmp_path: Path) -> None:
    fill(place)
    assert check_reports(place.address) == (5109, [])
    if isinstance(place.address, PostgresUrl):
        place.execute("DELETE FROM report WHERE id = (SELECT id FROM report ORDER BY id LIMIT 1)")
    else:
        from hush_aggregator.store.reading import seal  # noqa: PLC0415 - of SQLite

        with closing(sqlite3.connect(place.address)) as there:
            moments = there.execute("SELECT moments FROM tally WHERE round = 2").fetchone()[0]
            there.execute("UPDATE tally SET n = 31, seal = ? WHERE round = 2", (seal(DAILY.digest, 2, 31, moments),))
            there.commit()
    reports, (found,) = check_reports(place.address)
    assert found.counted == found.stored + 1
    assert reports == 5109 - isinstance(place.address, PostgresUrl)
    with pytest.raises(StoreError, match="reports"):
        copy_store(place.address, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


@pytest.mark.medium
def test_the_commands_say_what_they_did(tmp_path: Path) -> None:
    place = StorePlace(tmp_path / "store")
    fill(place)
    run = CliRunner().invoke
    checked = run(command.app, ["check", "--store", str(place.address), "--json"])
    assert (checked.exit_code, json.loads(checked.stdout)["reports"]) == (0, 5109)
    assert json.loads(checked.stdout)["dropped"] == 8
    assert " 8 " in run(command.app, ["check", "--store", str(place.address)]).stdout  # dropped, so not checked
    copied = run(command.app, ["copy", str(place.address), str(tmp_path / "copy"), "--json"])
    assert (copied.exit_code, json.loads(copied.stdout)["reports"]) == (0, 5109)
    with place.open():
        in_use = run(command.app, ["copy", str(place.address), str(tmp_path / "second")])
    assert "another aggregator" in str(in_use.exception)
