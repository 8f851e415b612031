"""The file of a store: whose it is, and what becomes of an older and of a damaged one."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hush_aggregator import SqliteReader, SqliteStore
from hush_aggregator.store import Accepted, Limits, Origin, SqliteEditor, TaskRow, TaskState
from hush_aggregator.store.quotas import quota_file
from hush_aggregator.tally import Tally
from hush_common.errors import StoreError
from hush_common.task import make_task
from hush_common.wire import Refusal

HEIGHTS = make_task({"id": "heights", "epsilon": "1", "domain": {"kind": "number", "lower": 0.0, "upper": 1.0}})


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
    assert identities[0] == identities[1] != identities[2]
    assert all(len(identity) == 32 for identity in identities)


@pytest.mark.parametrize("opened", [SqliteStore, SqliteReader, SqliteEditor])
@pytest.mark.parametrize("version", [1, 7])
def test_a_store_of_an_earlier_version_is_refused_with_one_line_and_left_alone(
    path: Path, version: int, opened: Callable[[Path], SqliteReader]
) -> None:
    fill(path)
    with closing(sqlite3.connect(path)) as old:
        old.execute(f"PRAGMA user_version = {version}")
    before = path.read_bytes()
    words = rf"an earlier hush that was never released \(schema {version}\), and this one reads 10; name another file"
    with pytest.raises(StoreError, match=words) as caught:
        opened(path)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == before


def test_whoever_gives_a_task_that_had_only_appeared_is_written_down(path: Path) -> None:
    with SqliteStore(path) as store:
        store.add_task(HEIGHTS, Origin.BROKER)
        row = TaskRow("heights", HEIGHTS.digest, HEIGHTS.payload, Origin.BROKER, TaskState.OPEN, "", 0, "")
        assert store.task_rows() == [row]
        store.add_task(HEIGHTS, Origin.FILE)
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
            command.set_state("heights", TaskState.WITHDRAWN)
        assert store.changes() != before
        assert store.task_rows()[0].state is TaskState.WITHDRAWN


def test_a_command_makes_no_store(path: Path) -> None:
    with pytest.raises(StoreError, match="there is no such file"):
        SqliteEditor(path)
    assert not path.exists()
    path.touch()
    with pytest.raises(StoreError, match="is empty; name the store of an aggregator"):
        SqliteEditor(path)
    assert not path.stat().st_size


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


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="this system does not list the files of a process")
@pytest.mark.parametrize("damaged", ["salt", "quotas"])
def test_a_store_that_does_not_open_leaves_nothing_open(path: Path, damaged: str) -> None:
    fill(path)
    if damaged == "salt":
        with closing(sqlite3.connect(path)) as writer, writer:
            writer.execute("UPDATE identity SET salt = x'00'")
    else:
        quota_file(path).mkdir()
    with pytest.raises(StoreError) as caught:
        SqliteStore(path, Limits(1))
    opened = [str(entry.readlink()) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    assert not [name for name in opened if name.startswith(str(path.parent))], caught.value


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
