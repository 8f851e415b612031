"""What a store holds after a kill at any statement, after a write that was torn, and on a full disk."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from store_kills import Batch, all_ids, batches, count, is_whole

from hush_aggregator import SqliteStore
from hush_common.errors import StoreError

pytestmark = pytest.mark.medium

_CHILD = Path(__file__).parents[2] / "store_kills.py"
_FRAME = 24 + 4096  # bytes of the write-ahead log: a header and a page


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """In memory where that is possible: what a killed process has written is there for the next in any case."""
    if not Path("/dev/shm").is_dir():  # noqa: S108 - a directory of its own below it
        yield tmp_path
        return
    with TemporaryDirectory(dir="/dev/shm") as name:
        yield Path(name)


def killed(folder: Path, work: str, stride: int, *planted: str) -> tuple[int, list[str]]:
    """How often the work was killed, before every `stride`-th statement, and what was wrong then."""
    command = [sys.executable, str(_CHILD), str(folder), work, str(stride), *planted]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return found["kills"], found["wrong"]


@pytest.mark.large
@pytest.mark.parametrize(
    ("work", "stride", "least"), [("count", 11, 30), ("compact", 1, 90), ("forget", 1, 80), ("back-up", 1, 20)]
)
def test_killed_before_any_statement_every_report_is_counted_once(
    folder: Path, work: str, stride: int, least: int
) -> None:
    kills, wrong = killed(folder, work, stride)
    assert wrong == []
    assert kills >= least


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_killed_before_every_statement_every_report_is_counted_once(folder: Path) -> None:
    assert killed(folder, "count", 1)[1] == []


@pytest.mark.large
def test_a_store_that_commits_a_batch_in_two_parts_is_found(folder: Path) -> None:
    assert killed(folder, "count", 9, "planted")[1]


def torn(folder: Path, stride: int) -> int:
    """Cut the log within its last transaction, as where the power fails while it is written; return how often."""
    store, cuts = folder / "store", 0
    *first, last = batches(6)
    count(store, first)
    whole = SqliteStore(store)
    for batch in first[-1:]:  # the log of an open store is not yet in the file
        whole.commit(batch.accepted(), {})
    log = store.with_name("store-wal")
    before = log.stat().st_size
    whole.commit(last.accepted(), {})
    after = log.stat().st_size
    kept = folder / "kept"
    kept.mkdir()
    for file in (store, log):
        shutil.copy(file, kept)
    whole.close()
    assert after > before + _FRAME
    written = (kept / "store-wal").read_bytes()
    for end in [*range(before, after - _FRAME, 16 * stride), *range(after - _FRAME, after, stride)]:
        for rest in (b"", bytes(after - end)):
            for file in folder.glob("store*"):
                file.unlink()
            shutil.copy(kept / "store", store)
            log.write_bytes(written[:end] + rest)
            count(store, [])
            assert is_whole(store, [all_ids(first)]) == "", (end, len(rest))
            count(store, [last])
            assert is_whole(store, [all_ids([*first, last])]) == "", (end, len(rest))
            cuts += 1
    return cuts


def test_a_write_that_was_torn_never_happened(folder: Path) -> None:
    assert torn(folder, 211) > 40


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_write_that_was_torn_at_any_byte_of_the_last_page_never_happened(folder: Path) -> None:
    assert torn(folder, 1) > 2 * _FRAME


def refusal(store: SqliteStore, batch: Batch) -> str:
    try:
        store.commit(batch.accepted(), {})
    except StoreError as error:
        return str(error)
    return ""


def test_a_full_disk_refuses_a_batch_and_keeps_every_other(folder: Path) -> None:
    store, some = folder / "store", batches(60)
    full = 0
    with SqliteStore(store) as opened:
        pages = opened._connection.execute("PRAGMA page_count").fetchone()[0]
        done: list[Batch] = []
        for batch in some:
            problem = "full"
            while problem:
                opened._connection.execute(f"PRAGMA max_page_count = {pages}")
                problem = refusal(opened, batch)
                if problem:
                    assert "full; free some space" in problem
                    assert is_whole(store, [all_ids(done)]) == ""
                    full, pages = full + 1, pages + 1
            done.append(batch)
    assert full > 10
    assert is_whole(store, [all_ids(some)]) == ""
