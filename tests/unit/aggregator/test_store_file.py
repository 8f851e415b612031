"""The file of a store: whose it is, how an older one comes up to date, and what becomes of a damaged one."""

import os
import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hush_aggregator.store import Accepted, Origin, SqliteEditor, SqliteReader, SqliteStore, State, TaskRow
from hush_aggregator.tally import Tally
from hush_common.errors import StoreError
from hush_common.refusal import Refusal
from hush_common.task_file import make_task

HEIGHTS = make_task({"id": "heights", "epsilon": "1", "domain": {"kind": "number", "lower": 0.0, "upper": 1.0}})
VERSION_1 = """
CREATE TABLE task (id TEXT PRIMARY KEY, digest BLOB NOT NULL UNIQUE, payload BLOB NOT NULL) WITHOUT ROWID, STRICT;
CREATE TABLE report (digest BLOB NOT NULL, round INTEGER NOT NULL, id BLOB NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (digest, round, id)) WITHOUT ROWID, STRICT;
CREATE TABLE tally (digest BLOB NOT NULL, round INTEGER NOT NULL, n INTEGER NOT NULL, moments TEXT NOT NULL,
    PRIMARY KEY (digest, round)) WITHOUT ROWID, STRICT;
CREATE TABLE refusal (task TEXT NOT NULL, reason TEXT NOT NULL, count INTEGER NOT NULL,
    PRIMARY KEY (task, reason)) WITHOUT ROWID, STRICT;
INSERT INTO tally VALUES (CAST('8 bytes!' AS BLOB), 0, 2, '[30, 500]');
PRAGMA application_id = 1752527720;
PRAGMA user_version = 1;
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "hush.sqlite"


def fill(path: Path) -> None:
    ids = np.frombuffer(bytes(range(160)), dtype="V16")
    bodies = np.arange(10, dtype=np.int64)[:, None]
    with SqliteStore(path) as store:
        store.add_task(HEIGHTS)
        store.commit([Accepted(HEIGHTS, 0, ids, bodies)], {("heights", Refusal.CLOSED): 3})


def everything(path: Path) -> tuple[list[bytes], Tally, dict[Refusal, int]]:
    with SqliteStore(path) as store:
        return store.tasks(), store.tally(HEIGHTS.digest, 0), store.refusals("heights")


def test_nobody_else_can_read_a_store_or_lock_it(path: Path) -> None:
    before = os.umask(0)
    try:
        with SqliteStore(path) as store:
            store.add_task(HEIGHTS)
            modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(modes, 0o600)
    assert len(modes) >= 3


@pytest.mark.parametrize(("found", "left"), [(0o644, 0o640), (0o666, 0o660), (0o640, 0o640), (0o600, 0o600)])
def test_a_store_of_an_earlier_version_is_taken_from_everybodys_eyes(path: Path, found: int, left: int) -> None:
    fill(path)
    path.chmod(found)
    SqliteStore(path).close()
    assert path.stat().st_mode & 0o777 == left


def test_every_store_has_an_identity_of_its_own_that_stays(tmp_path: Path) -> None:
    identities = []
    for name in ("a", "a", "b"):
        with SqliteStore(tmp_path / name) as store:
            identities.append(store.identity)
            assert not store.has_former_session
    assert identities[0] == identities[1] != identities[2]
    assert all(len(identity) == 32 for identity in identities)


def test_a_store_of_version_1_keeps_its_tallies_and_knows_of_its_former_session(path: Path) -> None:
    with sqlite3.connect(path) as old:
        old.executescript(VERSION_1)
    old.close()
    for has_former in (True, False):
        with SqliteStore(path) as store:
            assert store.tally(b"8 bytes!", 0) == Tally(2, (30, 500))
            assert len(store.identity) == 32
            assert store.has_former_session == has_former
            store.former_session_ended()


def test_a_task_of_a_store_from_before_its_origin_was_written_down_stays_counted(path: Path) -> None:
    with sqlite3.connect(path) as old:
        old.executescript(VERSION_1)
        old.execute("INSERT INTO task VALUES (?, ?, ?)", (HEIGHTS.id, HEIGHTS.digest, HEIGHTS.payload))
    old.close()
    with SqliteStore(path) as store:
        assert store.tasks() == [HEIGHTS.payload]
        row = TaskRow("heights", HEIGHTS.digest, HEIGHTS.payload, Origin.BROKER, State.OPEN, "", 0, "")
        assert store.task_rows() == [row]
        store.add_task(HEIGHTS, Origin.FILE)  # and whoever gives it now is written down
        assert store.task_rows() == [replace(row, origin=Origin.FILE)]
        store.add_task(HEIGHTS, Origin.BROKER)
        assert store.task_rows() == [replace(row, origin=Origin.FILE)]


def test_the_name_that_estimates_bear_does_not_open_the_session_at_the_broker(tmp_path: Path) -> None:
    public = []
    for name in ("a", "a", "b"):
        with SqliteStore(tmp_path / name) as store, SqliteReader(tmp_path / name) as reader:
            public.append(store.public_identity)
            assert reader.public_identity == store.public_identity != store.identity
    assert public[0] == public[1] != public[2]
    assert all(len(identity) == 32 for identity in public)


def test_a_command_writes_a_store_that_an_aggregator_has_open_and_that_one_notices(path: Path) -> None:
    with SqliteStore(path) as store:
        before = store.changes()
        store.add_task(HEIGHTS)
        assert store.changes() == before  # its own writing is no news
        with SqliteEditor(path) as command:
            command.set_state("heights", State.WITHDRAWN)
        assert store.changes() != before
        assert store.task_rows()[0].state is State.WITHDRAWN


def test_a_command_makes_no_store_and_brings_none_up_to_date(path: Path) -> None:
    with pytest.raises(StoreError, match="there is no such file"):
        SqliteEditor(path)
    assert not path.exists()
    with sqlite3.connect(path) as old:
        old.executescript(VERSION_1)
    old.close()
    with pytest.raises(StoreError, match="by an earlier hush"):
        SqliteEditor(path)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE tally SET moments = replace(moments, '45', '46')",
        "UPDATE tally SET moments = '[45'",
        "UPDATE tally SET n = n + 1",
        "UPDATE tally SET round = 0, seal = x'00'",
        "UPDATE task SET payload = CAST(replace(payload, '\"1\"', '\"2\"') AS BLOB)",
        "UPDATE refusal SET reason = 'clozed'",
    ],
)
def test_a_damaged_row_is_told_and_never_estimated(path: Path, damage: str) -> None:
    fill(path)
    with sqlite3.connect(path) as writer:
        assert writer.execute(damage).rowcount == 1
    writer.close()
    with pytest.raises(StoreError, match=r"hush\.sqlite: .* is not what was written; .*restore it from a backup"):
        everything(path)


def test_no_flipped_bit_changes_an_estimate_in_silence(path: Path) -> None:
    fill(path)
    sound, right = path.read_bytes(), everything(path)
    rng = np.random.default_rng(7)
    used = [at for at in range(len(sound)) if sound[at]]
    outcomes = {"told": 0, "harmless": 0}
    for at in rng.choice(used, 150, replace=False).tolist():
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 1 << int(rng.integers(8))]) + sound[at + 1 :])
        for side in ("-wal", "-shm"):
            path.with_name(path.name + side).unlink(missing_ok=True)
        try:
            found = everything(path)
        except StoreError:
            outcomes["told"] += 1
        else:
            outcomes["harmless"] += 1
            assert found[:2] == right[:2], at
    assert min(outcomes.values()) > 10
