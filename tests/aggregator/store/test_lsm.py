"""Reports in runs: exactly what was inserted is found and read, through merges, restarts and failures."""

import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from hush_aggregator.store import lsm
from hush_aggregator.store.base import DamagedError
from hush_aggregator.store.lsm import (
    ReportTree,
    Section,
    SeriesDeletion,
    ids_of,
    make_keys,
    merge,
    read_runs,
    series_number,
)
from hush_aggregator.store.reading import prepare

SALT = bytes(range(32))
Model = dict[bytes, tuple[int, ...]]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small chunks and runs, so that a few thousand reports reach every level."""
    for name, value in {"CHUNK": 16, "HEAD": 16, "FAN_IN": 3, "LARGEST": 1500, "_RECENT": 100}.items():
        monkeypatch.setattr(lsm, name, value)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tree.sqlite"
    with closing(opened(path)) as connection:
        prepare(path, connection)
    return path


def opened(file: Path) -> sqlite3.Connection:
    return sqlite3.connect(file, isolation_level=None)


def sections(rng: np.random.Generator, count: int, known: Model) -> Iterator[Section]:
    """New reports of some rounds, with bodies of one or three integers."""
    for width, rounds in ((1, 3), (3, 2)):
        keys, bodies = [], []
        for ordinal in range(rounds):
            ids = np.frombuffer(rng.bytes(16 * count), dtype="V16")
            keys.append(make_keys(series_number(width, ordinal), ids))
            high = 1 << int(rng.integers(1, 63))
            bodies.append(rng.integers(-high, high, (count, width)))
        joined, values = np.concatenate(keys), np.concatenate(bodies)
        order = np.argsort(joined)
        yield Section(joined[order], values[order])
        known.update(zip(padded(joined), map(tuple, values.tolist()), strict=True))


def padded(keys: lsm.Keys) -> list[bytes]:
    return [bytes(key).ljust(24, b"\0") for key in keys]


def content(connection: sqlite3.Connection, after: bytes = b"") -> Model:
    found: Model = {}
    keys: list[bytes] = []
    for section in merge(connection, read_runs(connection), after):
        keys += padded(section.keys)
        found.update(zip(padded(section.keys), map(tuple, section.bodies.tolist()), strict=True))
    assert keys == sorted(keys)
    assert len(keys) == len(found)  # none twice
    return found


def insert(connection: sqlite3.Connection, tree: ReportTree, new: list[Section]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    tree.refresh()
    tree.insert(new)
    connection.execute("COMMIT")


def flags(connection: sqlite3.Connection, tree: ReportTree, keys: lsm.Keys) -> list[bool]:
    connection.execute("BEGIN IMMEDIATE")
    tree.refresh()
    found: list[bool] = tree.find(keys).tolist()
    connection.execute("COMMIT")
    return found


@pytest.mark.large
@pytest.mark.parametrize("seed", range(3))
def test_all_that_was_inserted_is_there_once_through_merges_and_restarts(file: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    known: Model = {}
    connection = opened(file)
    tree = ReportTree(connection, SALT)
    levels = set()
    for turn in range(120):
        insert(connection, tree, list(sections(rng, int(rng.integers(1, 30)), known)))
        levels |= {run.level for run in read_runs(connection)}
        if turn % 37 == 20:  # in the middle of a merge
            connection.close()
            connection = opened(file)
            tree = ReportTree(connection, SALT)
    assert content(connection) == known
    assert max(levels) >= 3
    assert sum(run.n for run in read_runs(connection)) == len(known)
    stored = np.array(sorted(known), dtype="S24")
    assert all(flags(connection, tree, rng.permutation(stored)))
    foreign = stored.copy()
    foreign.view(np.uint8).reshape(-1, 24)[:, 12] ^= 1
    assert not any(flags(connection, tree, foreign))
    middle = padded(stored)[len(stored) // 2]
    assert content(connection, middle) == {key: body for key, body in known.items() if key > middle}
    connection.close()


@pytest.mark.large
@pytest.mark.parametrize("most", [1, 100, 1_000_000])
def test_all_runs_are_merged_into_one_and_the_tree_goes_on(file: Path, most: int) -> None:
    rng = np.random.default_rng(6)
    known: Model = {}
    with closing(opened(file)) as connection:
        tree = ReportTree(connection, SALT)
        for _ in range(40):
            insert(connection, tree, list(sections(rng, 20, known)))
        for turn in range(2):
            tree = ReportTree(connection, SALT)  # as the command does
            more, steps = True, 0
            while more:
                if turn == 0 and steps == 3:
                    tree = ReportTree(connection, SALT)  # interrupted
                connection.execute("BEGIN IMMEDIATE")
                tree.refresh()
                more, steps = tree.compact(most), steps + 1
                connection.execute("COMMIT")
            assert [run.n for run in read_runs(connection)] == [len(known)]
            assert content(connection) == known
            assert all(flags(connection, tree, np.array(sorted(known), dtype="S24")))
            chunks = connection.execute("SELECT count(*) FROM chunk").fetchone()[0]
            assert chunks <= len(known) // lsm.CHUNK + 2
            insert(connection, tree, list(sections(rng, 20, known)))
            assert content(connection) == known


def test_runs_of_which_everything_was_deleted_can_be_merged(file: Path) -> None:
    rng = np.random.default_rng(8)
    known: Model = {}
    with closing(opened(file)) as connection:
        tree = ReportTree(connection, SALT)
        for _ in range(3 * lsm.FAN_IN):
            insert(connection, tree, list(sections(rng, 20, known)))
        for series in {int.from_bytes(key[:8], "big") for key in known}:
            connection.execute("BEGIN IMMEDIATE")
            deletion = SeriesDeletion(connection, series)
            while deletion.go_on(1000):
                pass
            connection.execute("COMMIT")
        assert content(connection) == {}
        later: Model = {}
        tree = ReportTree(connection, SALT)
        for _ in range(40):
            insert(connection, tree, list(sections(rng, 5, later)))
        assert content(connection) == later
        assert all(flags(connection, tree, np.array(sorted(later), dtype="S24")))
        assert not any(flags(connection, tree, np.array(sorted(known), dtype="S24")))


def test_a_filter_that_says_yes_to_everything_changes_nothing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    known: Model = {}
    with closing(opened(file)) as connection:
        tree = ReportTree(connection, SALT)
        for _ in range(60):
            insert(connection, tree, list(sections(rng, 10, known)))
        monkeypatch.setattr(lsm.Filter, "may_contain", lambda _, hashes: np.arange(len(hashes.high)))
        stored = np.array(sorted(known), dtype="S24")
        assert all(flags(connection, tree, stored))
        foreign = np.array([key[:-1] + bytes([key[-1] ^ 1]) for key in sorted(known)], dtype="S24")
        assert not any(flags(connection, tree, foreign))


def test_ids_with_zeros_at_their_end_are_different_ids(file: Path) -> None:
    ids = np.frombuffer(b"".join(bytes([1] * k).ljust(16, b"\0") for k in range(17)), dtype="V16")
    keys = make_keys(series_number(1, 0), ids)
    assert ids_of(keys).tolist() == ids.tolist()
    with closing(opened(file)) as connection:
        tree = ReportTree(connection, SALT)
        insert(connection, tree, [Section(keys[::2], np.arange(9).reshape(-1, 1))])
        assert flags(connection, tree, keys) == [True, False] * 8 + [True]


def test_a_rolled_back_batch_leaves_no_trace(file: Path) -> None:
    rng = np.random.default_rng(7)
    known: Model = {}
    with closing(opened(file)) as connection:
        tree = ReportTree(connection, SALT)
        for turn in range(80):
            lost: Model = {}
            connection.execute("BEGIN IMMEDIATE")
            tree.refresh()
            tree.insert(list(sections(rng, 12, lost)))
            connection.execute("ROLLBACK")
            tree.forget_memory()
            insert(connection, tree, list(sections(rng, 8, known)))
            some = rng.choice(np.array(sorted(known), dtype="S24"), 40)
            assert all(flags(connection, tree, some))
            if turn % 10 == 0:
                assert not any(flags(connection, tree, np.array(sorted(lost), dtype="S24")))
        assert content(connection) == known


@pytest.mark.large
@pytest.mark.parametrize("most", [1, 50, 100_000])
def test_a_series_is_deleted_while_runs_are_merged(file: Path, most: int) -> None:
    rng = np.random.default_rng(9)
    known: Model = {}
    gone = series_number(3, 1)
    with closing(opened(file)) as connection, closing(opened(file)) as editor:
        tree = ReportTree(connection, SALT)
        for _ in range(61):
            insert(connection, tree, list(sections(rng, 12, known)))
        left = {key: body for key, body in known.items() if key[:8] != gone.to_bytes(8, "big")}
        assert len(left) < len(known)
        more: Model = {}
        deletion, is_left = SeriesDeletion(editor, gone), True
        while is_left:
            editor.execute("BEGIN IMMEDIATE")
            is_left = deletion.go_on(most)
            editor.execute("COMMIT")
            fresh = [section for section in sections(rng, 3, more) if section.bodies.shape[1] == 1]
            insert(connection, tree, fresh)
        left |= {key: body for key, body in more.items() if len(body) == 1}
        assert content(connection) == left
        lost = np.array([key for key in known if key not in left], dtype="S24")
        assert not any(flags(connection, tree, lost))
        for _ in range(40):
            insert(connection, tree, list(sections(rng, 12, left)))
        assert content(connection) == left
        connection.execute("BEGIN IMMEDIATE")
        compacting = ReportTree(connection, SALT)
        compacting.refresh()
        while compacting.compact(100):
            pass
        connection.execute("COMMIT")
        assert content(connection) == left
        assert sum(run.n for run in read_runs(connection)) == len(left)


@pytest.mark.parametrize("column", ["series", "ids", "bodies"])
def test_damage_is_reported_and_never_merged(file: Path, column: str) -> None:
    rng = np.random.default_rng(11)
    known: Model = {}
    with closing(opened(file)) as connection:
        tree = ReportTree(connection, SALT)
        for _ in range(30):
            insert(connection, tree, list(sections(rng, 12, known)))
        rows = connection.execute(f"SELECT number, {column} FROM chunk").fetchall()  # noqa: S608 - our names
        number, blob = rows[len(rows) // 2]
        changed = blob[:5] + bytes([blob[5] ^ 4]) + blob[6:]
        connection.execute(f"UPDATE chunk SET {column} = ? WHERE number = ?", (changed, number))  # noqa: S608 - likewise
        with pytest.raises(DamagedError, match="not what was written"):
            content(connection)


def test_the_newest_report_is_in_the_head_or_anywhere(file: Path) -> None:
    """Of 400 new reports, in batches of 40, those of the last batch are not the ones that form a run."""
    rng = np.random.default_rng(13)
    with closing(opened(file)) as connection:
        tree = ReportTree(connection, SALT)
        tree._random = np.random.default_rng(1)
        for _ in range(40):
            ids = np.frombuffer(rng.bytes(16 * 7), dtype="V16")
            keys = np.sort(make_keys(series_number(1, 0), ids))
            insert(connection, tree, [Section(keys, np.zeros((7, 1), dtype=np.int64))])
            head = [run for run in read_runs(connection) if run.level == 0]
            assert len(head) == 1
            assert all(run.n >= 16 for run in read_runs(connection) if run.level > 0)
            assert head[0].n <= 32


def test_secret_salt_decides_what_collides() -> None:
    """Keys that collide under one salt do not under another: without it nobody can prepare any."""
    keys = make_keys(series_number(1, 0), np.frombuffer(secrets.token_bytes(16 * 4096), dtype="V16"))
    with closing(sqlite3.connect(":memory:")) as connection:
        one, other = (ReportTree(connection, salt)._hashes(keys) for salt in (SALT, SALT[::-1]))
    assert not np.array_equal(one.masks, other.masks)
    bits = np.unpackbits(one.masks.view(np.uint8)).mean() * 64
    assert 4.5 < bits < 5  # five bits a key, of which some coincide


def test_what_was_just_inserted_is_found_whatever_was_looked_up_before(file: Path) -> None:
    rng = np.random.default_rng(17)
    known: Model = {}
    with closing(opened(file)) as connection:
        tree = ReportTree(connection, SALT)
        for _ in range(40):
            insert(connection, tree, list(sections(rng, 1, known)))
            assert all(flags(connection, tree, np.array(sorted(known), dtype="S24")))
