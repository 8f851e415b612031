"""Reports in runs, through the store: each is there once, through merges, restarts, deletions and failures."""

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from stored import stored_ids

from hush import Task
from hush_aggregator import SqliteStore
from hush_aggregator.store import Accepted, SqliteEditor, lsm, sqlite
from hush_common.errors import StoreError
from hush_common.task import make_task
from hush_common.wire import Refusal

NUMBER = {"kind": "number", "lower": 0.0, "upper": 1.0}
ROUNDS = {"rounds": 3, "round_every": "1d", "opens": "2026-01-01T00:00:00Z", "epsilon": "3"}
NARROW = make_task(ROUNDS | {"id": "narrow", "domain": NUMBER})
WIDE = make_task({"id": "wide", "epsilon": "1", "domain": NUMBER, "offers": ["0.5", "1"]})  # two integers a body
SERIES = [(NARROW, 0), (NARROW, 1), (NARROW, 2), (WIDE, 0)]
Known = dict[tuple[Task, int], dict[bytes, tuple[int, ...]]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "hush.sqlite"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small chunks and runs, so that a few thousand reports reach every level."""
    for name, value in {"CHUNK": 16, "HEAD": 16, "FAN_IN": 3, "LARGEST": 1500}.items():
        monkeypatch.setattr(lsm, name, value)


def accepted(of: tuple[Task, int], reports: Mapping[bytes, tuple[int, ...]]) -> Accepted:
    return Accepted(*of, np.frombuffer(b"".join(reports), dtype="V16"), np.array([*reports.values()], dtype=np.int64))


def reports_of(one: Accepted) -> dict[bytes, tuple[int, ...]]:
    return dict(zip(one.ids.tolist(), map(tuple, one.bodies.tolist()), strict=True))


def batch(rng: np.random.Generator, count: int, known: Known) -> list[Accepted]:
    """New reports of each series, which are added to those that are known."""
    found = []
    for of in SERIES:
        values = rng.integers(-(1 << 40), 1 << int(rng.integers(1, 41)), count).tolist()
        bodies = [(k % 2, value) if of[0] is WIDE else (value,) for k, value in enumerate(values)]
        ids = np.frombuffer(rng.bytes(16 * count), dtype="V16").tolist()
        new = dict(zip(ids, bodies, strict=True))
        known.setdefault(of, {}).update(new)
        found.append(accepted(of, new))
    return found


def check(store: SqliteStore, known: Known, rng: np.random.Generator) -> None:
    """Compare all that is stored; a replay is a duplicate, and an id that differs by a bit is not."""
    for of, reports in known.items():
        found = [(report.id, report.body) for report in store.reports(of[0].digest, of[1])]
        assert found == sorted(reports.items())
        assert store.tally(of[0].digest, of[1]).n == len(reports)
    check_replay(store, known, rng)


def check_replay(store: SqliteStore, known: Known, rng: np.random.Generator, most: int = 1 << 20) -> None:
    replay = []
    for of, reports in known.items():
        ids = list(reports)
        replay.append(accepted(of, {ids[k]: reports[ids[k]] for k in rng.permutation(len(ids))[:most].tolist()}))
    outcome = store.commit(replay, {})
    assert (outcome.accepted, outcome.refused) == (0, {Refusal.DUPLICATE: sum(len(one.ids) for one in replay)})


def levels(path: Path) -> list[tuple[int, int]]:
    """Level and number of reports of each run that counts."""
    with closing(sqlite3.connect(path)) as reader:
        return reader.execute("SELECT level, n FROM run WHERE level >= 0 ORDER BY id").fetchall()


@pytest.mark.medium
@pytest.mark.usefixtures("small")
def test_every_report_is_there_once_through_merges_and_restarts(path: Path) -> None:
    rng, known, seen = np.random.default_rng(1), Known(), set[int]()
    for turns in (16, 27, 20):  # it ends in the middle of merges
        with SqliteStore(path) as store:
            for _ in range(turns):
                store.commit(batch(rng, int(rng.integers(1, 30)), known), {})
                check_replay(store, known, rng, 8)
                seen |= {level for level, _ in levels(path)}
    with SqliteStore(path) as store:
        check(store, known, rng)
        other = {bytes([*id_[:4], id_[4] ^ 1, *id_[5:]]): body for id_, body in known[NARROW, 1].items()}
        assert store.commit([accepted((NARROW, 1), other)], {}).accepted == len(other)
    assert max(seen) >= 3


@pytest.mark.medium
def test_a_hundred_thousand_reports_are_there_once(path: Path) -> None:
    """They are in a run that has more reports than the keys that stay in memory."""
    rng, known = np.random.default_rng(2), Known()
    with SqliteStore(path) as store:
        for _ in range(8):
            store.commit(batch(rng, 3200, known), {})
    sqlite.compact(path)
    assert max(n for _, n in levels(path)) > 1 << 16
    with SqliteStore(path) as store:
        check_replay(store, known, rng, 500)
        for (task, round_), reports in known.items():
            ids = [id_ for portion, _ in store.arrays(task.digest, round_) for id_ in portion.tolist()]
            assert ids == sorted(reports)
        other = {id_[:15] + bytes([id_[15] ^ 1]): body for id_, body in [*known[NARROW, 0].items()][:2000]}
        assert store.commit([accepted((NARROW, 0), other)], {}).accepted == len(other)


@pytest.mark.medium
@pytest.mark.usefixtures("small")
def test_all_runs_are_merged_into_one_and_counting_goes_on(path: Path) -> None:
    rng, known = np.random.default_rng(3), Known()
    for _ in range(2):
        with SqliteStore(path) as store:
            for _ in range(20):
                store.commit(batch(rng, 20, known), {})
        before, after = sqlite.compact(path)
        assert after < before
        assert [n for _, n in levels(path)] == [sum(map(len, known.values()))]
        with SqliteStore(path) as store:
            check(store, known, rng)


@pytest.mark.medium
@pytest.mark.usefixtures("small")
def test_a_round_is_dropped_while_runs_are_merged(path: Path) -> None:
    rng, known = np.random.default_rng(4), Known()
    with SqliteStore(path) as store, SqliteEditor(path) as command:
        for _ in range(40):
            store.commit(batch(rng, 12, known), {})
        for of, dropping in (((WIDE, 0), command), ((NARROW, 0), store)):
            lost = accepted(of, known.pop(of))
            while dropping.drop_reports(of[0].digest, of[1]):
                new = [one for one in batch(rng, 3, {}) if (one.task, one.round) in known]
                assert store.commit(new, {}).accepted == 3 * len(new)
                for one in new:
                    known[one.task, one.round] |= reports_of(one)
            assert store.commit([lost], {}).refused == {Refusal.CLOSED: len(lost.ids)}
            for _ in range(10):  # merges that were under way go on
                new = [one for one in batch(rng, 9, {}) if (one.task, one.round) in known]
                store.commit(new, {})
                for one in new:
                    known[one.task, one.round] |= reports_of(one)
            assert not {*lost.ids.tolist()} & {*stored_ids(path)}
            check(store, known, rng)
    sqlite.compact(path)
    with SqliteStore(path) as store:
        check(store, known, rng)


@pytest.mark.medium
@pytest.mark.usefixtures("small")
def test_runs_of_which_everything_was_deleted_can_be_merged(path: Path) -> None:
    rng, known = np.random.default_rng(5), Known()
    with SqliteStore(path) as store:
        store.add_tasks([NARROW, WIDE])
        for _ in range(10):
            store.commit(batch(rng, 20, {}), {})
        with SqliteEditor(path) as command:
            command.forget("narrow")
            command.forget("wide")
        other = make_task({"id": "other", "epsilon": "1", "domain": NUMBER})
        for _ in range(60):
            new = {rng.bytes(16): (k,) for k in range(9)}
            known.setdefault((other, 0), {}).update(new)
            assert store.commit([accepted((other, 0), new)], {}).accepted == 9
        check(store, known, rng)


@pytest.mark.medium
@pytest.mark.usefixtures("small")
def test_a_batch_that_failed_leaves_no_report_behind(path: Path) -> None:
    rng, known = np.random.default_rng(6), Known()
    with SqliteStore(path) as store, closing(sqlite3.connect(path, isolation_level=None)) as other:
        for turn in range(11):
            lost: Known = {}
            failing = batch(rng, 12, lost)
            other.execute("CREATE TRIGGER fault AFTER INSERT ON refusal BEGIN SELECT RAISE(ABORT, 'planted'); END")
            with pytest.raises(StoreError, match="planted"):
                store.commit(failing, {("narrow", Refusal.CLOSED): 1})
            other.execute("DROP TRIGGER fault")
            store.commit(batch(rng, 8, known), {})
            check_replay(store, known, rng, 10)
            if turn % 10 == 0:  # none of the lost ones is taken for a duplicate
                assert store.commit(failing, {}).accepted == 48
                for of in SERIES:
                    known[of] |= lost[of]
        check(store, known, rng)


def test_ids_that_end_in_zeros_are_different_ids(path: Path) -> None:
    ids = [bytes([1] * k).ljust(16, b"\0") for k in range(17)]
    with SqliteStore(path) as store:
        assert store.commit([accepted((NARROW, 0), dict.fromkeys(ids[::2], (1,)))], {}).accepted == 9
        outcome = store.commit([accepted((NARROW, 0), dict.fromkeys(ids, (1,)))], {})
        assert (outcome.accepted, outcome.refused) == (8, {Refusal.DUPLICATE: 9})
        assert [report.id for report in store.reports(NARROW.digest, 0)] == sorted(ids)


@pytest.mark.medium
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("column", ["ids", "bodies"])
def test_damaged_reports_are_never_merged(path: Path, column: str) -> None:
    rng = np.random.default_rng(7)
    with SqliteStore(path) as store:
        for _ in range(20):
            store.commit(batch(rng, 12, {}), {})
    with closing(sqlite3.connect(path)) as other, other:
        rows = other.execute(f"SELECT number, {column} FROM chunk").fetchall()  # noqa: S608 - our names
        for number, blob in rows:
            changed = (blob[:5] + bytes([blob[5] ^ 4]) + blob[6:], number)
            other.execute(f"UPDATE chunk SET {column} = ? WHERE number = ?", changed)  # noqa: S608 - our names
    with SqliteStore(path) as store, pytest.raises(StoreError, match="damaged"):
        any(store.commit(batch(rng, 12, {}), {}).accepted == 0 for _ in range(20))


@pytest.mark.medium
def test_a_thief_of_the_file_does_not_learn_which_report_is_the_newest(path: Path) -> None:
    """At least a thousand others are in the same place, and those that leave the head are chosen at random."""
    rng, stays = np.random.default_rng(8), list[float]()
    with SqliteStore(path) as store:
        for _ in range(24):
            newest = {rng.bytes(16): (1,) for _ in range(300)}
            store.commit([accepted((NARROW, 0), newest)], {})
            found = levels(path)
            (head,) = [n for level, n in found if level == 0]
            assert head <= 2 * lsm.HEAD
            assert all(n >= lsm.HEAD for level, n in found if level > 0)
            if head == lsm.HEAD:  # it was full, and a half has left it
                with closing(sqlite3.connect(path)) as reader:
                    runs = [run for run in lsm.read_runs(reader) if run.level == 0]
                    (section,) = lsm.merge(reader, runs)
                stays.append(len(newest.keys() & set(lsm.ids_of(section.keys).tolist())) / 300)
    assert len(stays) >= 4
    assert all(0.3 < share < 0.7 for share in stays)


def test_without_the_salt_nobody_can_prepare_ids_that_collide(tmp_path: Path) -> None:
    rng, filters = np.random.default_rng(9), []
    some = {rng.bytes(16): (1,) for _ in range(1000)}
    for name in ("a", "b"):
        with SqliteStore(tmp_path / name) as store:
            store.commit([accepted((NARROW, 0), some)], {})
        with closing(sqlite3.connect(tmp_path / name)) as reader:
            filters.append(np.frombuffer(reader.execute("SELECT filter FROM run").fetchone()[0], dtype=np.uint64))
    first, second = filters
    assert not np.array_equal(first, second)
    bits = np.unpackbits(first.view(np.uint8)).sum() / 1000
    assert 4 < bits < 5  # five a key, of which some coincide
