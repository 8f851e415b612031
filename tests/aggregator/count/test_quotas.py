"""Quotas of senders: whatever crashes, no honest report is refused, and none counts twice."""

import re
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hush_aggregator import SqliteStore
from hush_aggregator.store import Accepted, Limits, quota_file
from hush_common.errors import StoreError
from hush_common.task import make_task
from hush_common.wire import Refusal

HEIGHTS = make_task({"id": "heights", "epsilon": "1", "domain": {"kind": "number", "lower": 0.0, "upper": 1.0}})
SENDERS = ("kitchen", "meter-3", "house-4")


def batch(*numbers: int, sender: str | tuple[str, ...] = "kitchen", round_: int = 0) -> Accepted:
    """Reports with these ids."""
    ids = np.frombuffer(b"".join(number.to_bytes(16) for number in numbers), dtype="V16")
    names = (sender,) * len(numbers) if isinstance(sender, str) else sender
    return Accepted(HEIGHTS, round_, ids, np.ones((len(numbers), 1), dtype=np.int64), senders=names)


def commit(store: SqliteStore, *reports: Accepted) -> tuple[int, dict[Refusal, int]]:
    outcome = store.commit(reports, {})
    return outcome.accepted, dict(outcome.refused)


def opened(path: Path, each: int = 3, **gateways: int) -> SqliteStore:
    store = SqliteStore(path, Limits(each, gateways))
    store.add_task(HEIGHTS)
    return store


@pytest.fixture
def path(memory_path: Path) -> Path:
    return memory_path / "hush.sqlite"


def test_without_a_quota_nobody_is_charged_and_no_file_is_made(path: Path) -> None:
    with SqliteStore(path) as store:
        store.add_task(HEIGHTS)
        assert commit(store, batch(*range(100))) == (100, {})
    assert not quota_file(path).exists()


# Crashes


class Killed(BaseException):
    """The process ends here."""


class Files:
    """The connections to both files, of which one may end the process, fill its disk, or lie about the last batch.

    Attributes:
        kill: the file (`store` or `quotas`), and whether the process ends `before` or `after` its next commit.
        lie: which charges the store claims to have counted: all (`hold`) or none (`forget`), whatever happened.
    """

    def __init__(self) -> None:
        self.kill: tuple[str, str] | None = None
        self.lie = ""
        self.opened: dict[str, sqlite3.Connection] = {}
        self.connect = sqlite3.connect

    def open(self, path: Path | str, *arguments: Any, **options: Any) -> sqlite3.Connection:  # noqa: ANN401 - as SQLite's
        file = "quotas" if str(path).endswith(".quota") else "store"
        factory = type("Watched", (_Watched,), {"files": self, "file": file})
        self.opened[file] = self.connect(path, *arguments, **{"factory": factory, **options})
        return self.opened[file]

    def claimed(self) -> str:
        """The query that lies."""
        return (
            "SELECT CASE WHEN pending = x'' THEN held ELSE pending END FROM token"
            if self.lie == "hold"
            else ("SELECT held FROM token")
        )


class _Watched(sqlite3.Connection):
    files: Files
    file: str

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:  # noqa: ANN401 - as SQLite's
        if self.files.lie and sql == "SELECT charged FROM identity":
            return self.files.opened["quotas"].execute(self.files.claimed())
        ends = self.files.kill if sql == "COMMIT" and self.files.kill and self.files.kill[0] == self.file else None
        if ends and ends[1] == "before":
            raise Killed
        cursor = super().execute(sql, parameters)
        if ends:
            raise Killed
        return cursor


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> Files:
    files = Files()
    monkeypatch.setattr(sqlite3, "connect", files.open)
    return files


CRASHES = [("quotas", "before"), ("quotas", "after"), ("store", "before"), ("store", "after")]


def survived(path: Path, files: Files, crashes: Sequence[tuple[str, str]]) -> tuple[int, dict[Refusal, int]]:
    """Three reports of an honest sender with a quota of three, in two batches, each delivered again after crashes."""
    for numbers in ((1, 2), (3,)):
        for crash in crashes:
            with opened(path) as store:
                files.kill = crash
                with suppress(Killed):
                    store.commit([batch(*numbers)], {})
                    pytest.fail("it was to be killed")
                files.kill = None
        with opened(path) as store:
            commit(store, batch(*numbers))
    with opened(path) as store:
        return store.tally(HEIGHTS.digest, 0).n, store.refusals("heights")


@pytest.mark.parametrize("second", CRASHES)
@pytest.mark.parametrize("first", CRASHES)
def test_a_crash_refuses_no_honest_report_and_counts_none_twice(
    path: Path, files: Files, first: tuple[str, str], second: tuple[str, str]
) -> None:
    n, refused = survived(path, files, [first, second])
    assert n == 3
    assert refused.keys() <= {Refusal.DUPLICATE}
    with opened(path) as store:  # and what was counted is charged, each report once
        assert commit(store, batch(7, 8)) == (0, {Refusal.QUOTA: 2})
        assert commit(store, batch(7, 8, 9, 10, sender="meter-3")) == (3, {Refusal.QUOTA: 1})


def test_the_twin_that_holds_every_charge_refuses_honest_reports(path: Path, files: Files) -> None:
    files.lie = "hold"
    n, refused = survived(path, files, [("store", "before")])
    assert n < 3
    assert Refusal.QUOTA in refused


def test_the_twin_that_forgets_every_charge_charges_nobody(path: Path, files: Files) -> None:
    files.lie = "forget"
    with opened(path) as store:
        commit(store, batch(1, 2, 3))
        assert commit(store, batch(4)) == (1, {})


def test_a_disk_that_is_full_counts_nothing_and_charges_nobody(path: Path, files: Files) -> None:
    many = tuple(f"device-{number}" for number in range(1000))
    with opened(path) as store:
        (pages,) = files.opened["quotas"].execute("PRAGMA page_count").fetchone()
        files.opened["quotas"].execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StoreError, match=r"hush.sqlite.quota: .*full"):
            store.commit([batch(*range(1000), sender=many)], {})
        assert store.tally(HEIGHTS.digest, 0).n == 0
    with opened(path) as store:
        assert commit(store, batch(*range(1000), sender=many)) == (1000, {})


# Whose counts they are


def copy(path: Path, to: Path) -> None:
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(to)) as target:
        source.backup(target)


@pytest.mark.parametrize("what", ["store", "quotas"])
def test_after_a_copy_is_put_back_nobody_is_refused(path: Path, tmp_path: Path, what: str) -> None:
    file = path if what == "store" else quota_file(path)
    with opened(path) as store:
        commit(store, batch(1))
        copy(file, tmp_path / "copy")
        commit(store, batch(2))
        commit(store, batch(3))
    for side in ("-wal", "-shm"):
        path.with_name(path.name + side).unlink(missing_ok=True)
    shutil.move(tmp_path / "copy", file)
    with opened(path) as store:
        accepted, refused = commit(store, batch(1, 2, 3))  # as a recall brings them again
        assert accepted == (2 if what == "store" else 0)
        assert refused.keys() == {Refusal.DUPLICATE}
        assert commit(store, batch(4))[0] == 1


@pytest.mark.parametrize("content", [None, b"not a database" * 100])
def test_a_file_that_is_gone_or_damaged_is_made_anew(path: Path, content: bytes | None) -> None:
    with opened(path) as store:
        commit(store, batch(1, 2, 3))
    quota_file(path).unlink() if content is None else quota_file(path).write_bytes(content)
    with opened(path) as store:
        assert commit(store, batch(4, 5, 6, 7)) == (3, {Refusal.QUOTA: 1})


# What can be learned from them


def dump(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        return "\n".join(connection.iterdump())


def test_neither_file_has_a_sender_or_a_time(path: Path) -> None:
    began = datetime.now(UTC)
    with opened(path, 10) as store:
        commit(store, batch(*range(9), sender=SENDERS * 3))
        commit(store, batch(100))  # so that the charges above hold
        kept = dump(path) + dump(quota_file(path))
    raw = b"".join(file.read_bytes() for file in path.parent.iterdir())
    for sender in SENDERS:
        assert sender not in kept
        assert sender.encode() not in raw
        assert sender.encode().hex().upper() not in kept
    assert quota_file(path).stat().st_mode & 0o777 == 0o600
    numbers = re.sub("X'[0-9A-F]*'", "", dump(quota_file(path)))  # a key may happen to hold any digits
    seconds = [int(moment.timestamp()) for moment in (began, datetime.now(UTC))]
    assert all(str(one)[:6] not in numbers for one in seconds)
    assert any(f",{one // 86_400})" in numbers for one in seconds)  # of the key alone: its age in days


def rows(path: Path, table: str) -> int:
    with closing(sqlite3.connect(path)) as connection:
        (count,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()  # noqa: S608 - a constant
    return int(count)


def key_of(path: Path) -> bytes:
    with closing(sqlite3.connect(path)) as connection:
        (key,) = connection.execute("SELECT key FROM round").fetchone()
    assert isinstance(key, bytes)
    return key


@pytest.mark.parametrize("round_", [None, 0])
def test_they_are_deleted_with_their_key_when_the_round_closes(path: Path, round_: int | None) -> None:
    with opened(path) as store:
        commit(store, batch(1, 2))
        commit(store, batch(3))
        key = key_of(quota_file(path))
        store.forget_senders()
        assert rows(quota_file(path), "round") == 1  # it is open
        store.close_task("heights", round_)
        store.forget_senders()
        assert [rows(quota_file(path), table) for table in ("round", "charge", "pending")] == [0, 0, 0]
    assert all(key not in file.read_bytes() for file in path.parent.iterdir())


def grow_old(path: Path, days: int) -> None:
    """Let the keys be of so many days ago."""
    with closing(sqlite3.connect(quota_file(path), isolation_level=None)) as connection:
        connection.execute("UPDATE round SET day = day - ?", (days,))


def test_a_round_that_never_closes_has_another_key_after_thirty_days(path: Path) -> None:
    with opened(path) as store:
        commit(store, batch(1, 2, 3))
        key = key_of(quota_file(path))
        grow_old(path, 28)  # midnight may come
        assert commit(store, batch(4)) == (0, {Refusal.QUOTA: 1})
        assert key_of(quota_file(path)) == key
        grow_old(path, 2)
        assert commit(store, batch(5, 6, 7, 8)) == (3, {Refusal.QUOTA: 1})
        assert key_of(quota_file(path)) != key
    grow_old(path, 40)
    with opened(path):
        assert rows(quota_file(path), "round") == 0  # where nothing came meanwhile, too
