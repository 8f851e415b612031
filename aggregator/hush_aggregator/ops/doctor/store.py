"""Checks of a store: can it be read, by whom, how long the disk lasts, when it was backed up, and the clock."""

import stat
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hush_aggregator.delivery.closing import MADE
from hush_aggregator.ops.doctor.check_result import CheckResult, failed, failure, ok, size, warning
from hush_aggregator.store.disk import BackupMark, StoreDisk, disk_of, is_in_use, read_backup
from hush_aggregator.store.location import StoreAddress, open_reader
from hush_aggregator.store.postgres_url import PostgresUrl
from hush_common.errors import StoreError
from hush_common.files import find_world_writable_parent
from hush_common.formatting import significant, whole

_LEAST_FREE = 500_000_000
_FEW_DAYS, _SOON_DAYS = 7, 30
_BACKUP_EVERY = timedelta(days=2)
_YEAR = 365


def check_store(address: StoreAddress, now: datetime) -> Iterator[CheckResult]:
    """Yield the findings about a store; it is read, and nothing is written."""
    try:
        with open_reader(address) as store:
            counts, newest = store.counts(), store.newest_day
            reports = sum(one.n for one in store.stored_rounds())
            tasks = "1 task" if len(counts) == 1 else f"{len(counts)} tasks"
            what = f"{address}: {tasks}, {whole(reports)} reports, and every sum is as it was written"
            yield ok("store", what, tasks=len(counts), reports=reports)
    except StoreError as error:
        yield failed("store", error)
        return
    yield from _check_file(address, now) if isinstance(address, Path) else _check_workers(address)
    today = now.astimezone(UTC).date()
    earliest = MADE if newest is None else max(MADE, newest)
    if today < earliest:
        reason = (
            f"this store was in use on {newest}" if newest == earliest else f"this hush was made on {MADE} or later"
        )
        yield failure(
            "calendar",
            f"the clock says {today}, but {reason}",
            "set the clock; until then hush serve counts nothing",
            today=str(today),
        )
    else:
        yield ok("calendar", f"the clock says {today}, not before {earliest}", today=str(today))


def _check_workers(url: PostgresUrl) -> Iterator[CheckResult]:
    from hush_aggregator.store.postgres import PostgresReader  # noqa: PLC0415 - psycopg, of an extra

    with PostgresReader(url) as store:
        workers, (holder, lease) = store.workers(), store.lease()
    running = [name for name, runs in workers.items() if runs]
    away = [name for name, runs in workers.items() if not runs]
    figures: dict[str, int | float] = {"running": len(running), "away": len(away), "lease": lease}
    if not running:
        yield warning("service", "no aggregator counts into this store", "start hush serve", running=False)
        return
    yield ok("service", "an aggregator counts into this store", running=True)
    what = f"{_named(running)} running"
    if holder:
        what += f"; {holder} publishes, under lease {lease}"
    if away:
        remedy = "start it again, or delete its session on the broker: what waits there is counted by nobody else"
        yield warning("workers", f"{what}; not running: {_named(away)}", remedy, **figures)
    else:
        yield ok("workers", what, **figures)


def _named(workers: list[str]) -> str:
    return f"worker{'s' if len(workers) > 1 else ''} {', '.join(workers)}"


def _check_file(path: Path, now: datetime) -> Iterator[CheckResult]:
    yield _access(path)
    yield _service(path)
    mark, disk = read_backup(path), disk_of(path)
    yield _disk(disk, mark, now)
    yield _backup(path, mark, now)


def _access(path: Path) -> CheckResult:
    if sys.platform == "win32":
        return ok("access", "not checked on Windows")
    above = find_world_writable_parent(path)
    if above is not None:
        return failure(
            "access", f"every user may write to {above}, and so replace the store", f"run: chmod o-w {above}"
        )
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & stat.S_IRWXO:
        return warning(
            "access", f"every user may open {path} (mode {mode:o})", f"run: chmod o= {path}", mode=f"{mode:o}"
        )
    return ok("access", f"the store has mode {mode:o}", mode=f"{mode:o}")


def _service(path: Path) -> CheckResult:
    try:
        used = is_in_use(path)
    except OSError as error:
        return warning("service", f"the lock of the store cannot be read ({error.strerror})", "run this as its owner")
    if used:
        return ok("service", "an aggregator counts into this store", running=True)
    return warning("service", "no aggregator counts into this store", "start hush serve", running=False)


def _disk(disk: StoreDisk, mark: BackupMark | None, now: datetime) -> CheckResult:
    figures: dict[str, int | float] = {"used_bytes": disk.used, "free_bytes": disk.free}
    what = f"{size(disk.free)} free, and the store takes {size(disk.used)}"
    growth = None if mark is None else mark.growth(now, disk.used)
    days = None
    if growth is None:
        what += "; its growth is known six hours after the first backup"
    else:
        since, rate = growth
        figures["bytes_a_day"] = round(rate)
        if rate > 0:
            days = disk.free / rate
            figures["days"] = round(days, 1)
            what += f"; at {size(rate)} a day, as since {since.at:%Y-%m-%d}, it lasts {_long(days)}"
        else:
            what += f"; it has not grown since {since.at:%Y-%m-%d}"
    full = "a full disk ends hush serve, and reports wait on the broker"
    if disk.free < _LEAST_FREE or (days is not None and days < _FEW_DAYS):
        return failure("disk", what, f"make room, or move the store: {full}", **figures)
    if days is not None and days < _SOON_DAYS:
        return warning("disk", what, f"make room, or move the store: {full}", **figures)
    if disk.free < disk.used:
        return warning("disk", what, "a backup has no room next to the store: write it to another disk", **figures)
    return ok("disk", what, **figures)


def _long(days: float) -> str:
    return f"{significant(days / _YEAR)} years" if days > 2 * _YEAR else f"{significant(days)} days"


def _backup(path: Path, mark: BackupMark | None, now: datetime) -> CheckResult:
    remedy = f"run: hush store backup FILE --store {path}"
    if mark is None:
        return warning("backup", "there is no backup of this store by hush store backup", remedy)
    age = now - mark.at
    days = age / timedelta(days=1)
    what = f"the last backup is {significant(days)} days old" if days >= 1 else "the last backup is less than a day old"
    if age > _BACKUP_EVERY:
        return warning("backup", what, remedy, age_days=round(days, 2))
    return ok("backup", what, age_days=round(days, 2))
