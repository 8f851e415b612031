"""Quotas of senders: whatever crashes, no honest report is refused, and none counts twice."""

import re
import sqlite3
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from hush_aggregator import SqliteStore
from hush_aggregator.store import Accepted, Limits, quota_file
from hush_aggregator.store import quotas as module
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
def path(tmp_path: Path) -> Path:
    return tmp_path / "hush.sqlite"


def test_without_a_quota_nobody_is_charged_and_no_file_is_made(path: Path) -> None:
    with SqliteStore(path) as store:
        store.add_task(HEIGHTS)
        assert commit(store, batch(*range(100))) == (100, {})
    assert not quota_file(path).exists()


# Crashes


class Killed(BaseException):
    """The process ends here."""


class Connection:
    """A connection that ends the process before or after one of its commits."""

    def __init__(self, real: sqlite3.Connection, place: str) -> None:
        self._real = real
        self._place = place

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)

    def execute(self, text: str, *rest: object) -> object:
        if text == "COMMIT" and self._place == "before":
            raise Killed
        result = self._real.execute(text, *rest)  # type: ignore[arg-type]
        if text == "COMMIT" and self._place == "after":
            raise Killed
        return result


def crash(store: SqliteStore, file: str, place: str, reports: Accepted) -> None:
    """A batch whose transaction in one of both files is cut off."""
    owner = store if file == "store" else store._quotas
    assert owner is not None
    owner._connection = Connection(owner._connection, place)  # type: ignore[assignment]
    with suppress(Killed):
        store.commit([reports], {})
        pytest.fail("it was to be killed")


CRASHES = [("quotas", "before"), ("quotas", "after"), ("store", "before"), ("store", "after")]


def survived(path: Path, crashes: list[tuple[str, str]]) -> tuple[int, dict[Refusal, int]]:
    """Three reports of an honest sender with a quota of three, in two batches, each delivered again after crashes."""
    for numbers in ((1, 2), (3,)):
        for file, place in crashes:
            with opened(path) as store:
                crash(store, file, place, batch(*numbers))
        with opened(path) as store:
            commit(store, batch(*numbers))
    with opened(path) as store:
        return store.tally(HEIGHTS.digest, 0).n, store.refusals("heights")


@pytest.mark.parametrize("second", CRASHES)
@pytest.mark.parametrize("first", CRASHES)
def test_a_crash_refuses_no_honest_report_and_counts_none_twice(
    path: Path, first: tuple[str, str], second: tuple[str, str]
) -> None:
    n, refused = survived(path, [first, second])
    assert n == 3
    assert refused.keys() <= {Refusal.DUPLICATE}
    with opened(path) as store:  # and what was counted is charged, each report once
        assert commit(store, batch(7, 8)) == (0, {Refusal.QUOTA: 2})
        assert commit(store, batch(7, 8, 9, 10, sender="meter-3")) == (3, {Refusal.QUOTA: 1})


def test_charges_that_hold_whatever_became_of_the_reports_would_refuse_honest_ones(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hold(run: sqlite3.Connection, _token: bytes) -> None:
        run.execute(module._HOLD)
        run.execute("DELETE FROM pending")

    monkeypatch.setattr(module, "_settle", hold)
    n, refused = survived(path, [("store", "before")])
    assert n < 3
    assert Refusal.QUOTA in refused


def test_charges_that_are_forgotten_whatever_became_of_the_reports_would_charge_nobody(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_settle", lambda run, _token: run.execute("DELETE FROM pending"))
    with opened(path) as store:
        commit(store, batch(1, 2, 3))
        assert commit(store, batch(4)) == (1, {})


def test_a_disk_that_is_full_counts_nothing_and_charges_nobody(path: Path) -> None:
    with opened(path) as store:
        assert store._quotas is not None
        (pages,) = store._quotas._connection.execute("PRAGMA page_count").fetchone()
        store._quotas._connection.execute(f"PRAGMA max_page_count = {pages}")
        many = tuple(f"device-{number}" for number in range(1000))
        with pytest.raises(StoreError, match=r"hush.sqlite.quota: database or disk is full; free some space"):
            store.commit([batch(*range(1000), sender=many)], {})
        assert store.tally(HEIGHTS.digest, 0).n == 0
    with opened(path) as store:
        assert commit(store, batch(*range(1000), sender=many)) == (1000, {})


# Whose counts they are


def copy(path: Path, to: Path) -> None:
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(to)) as target:
        source.backup(target)


@pytest.mark.parametrize("what", ["store", "quotas"])
def test_after_a_copy_is_put_back_nobody_is_refused_for_reports_that_are_gone(
    path: Path, tmp_path: Path, what: str
) -> None:
    file = path if what == "store" else quota_file(path)
    with opened(path) as store:
        commit(store, batch(1))
        copy(file, tmp_path / "copy")
        commit(store, batch(2))
        commit(store, batch(3))
    for side in ("-wal", "-shm"):
        path.with_name(path.name + side).unlink(missing_ok=True)
    (tmp_path / "copy").replace(file)
    with opened(path) as store:
        accepted, refused = commit(store, batch(1, 2, 3))  # as a recall brings them again
        assert accepted == (2 if what == "store" else 0)
        assert refused.keys() == {Refusal.DUPLICATE}
        assert commit(store, batch(4))[0] == 1


@pytest.mark.parametrize("content", [None, b"", b"not a database" * 100])
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


def test_a_round_that_never_closes_has_another_key_after_thirty_days(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = datetime(2026, 3, 1, 12, tzinfo=UTC)
    real = module.Quotas
    monkeypatch.setattr("hush_aggregator.store.sqlite.Quotas", lambda file, limits: real(file, limits, lambda: now))
    with opened(path) as store:
        commit(store, batch(1, 2, 3))
        key = key_of(quota_file(path))
        now += timedelta(days=29)
        assert commit(store, batch(4)) == (0, {Refusal.QUOTA: 1})
        assert key_of(quota_file(path)) == key
        now += timedelta(days=1)
        assert commit(store, batch(5, 6, 7, 8)) == (3, {Refusal.QUOTA: 1})
        assert key_of(quota_file(path)) != key
    now += timedelta(days=40)
    with opened(path):
        assert rows(quota_file(path), "round") == 0  # where nothing came meanwhile, too
