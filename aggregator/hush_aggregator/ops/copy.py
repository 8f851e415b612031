"""`hush store check` and `hush store copy`: what a store says against its reports, and a store in another place."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hush_aggregator.count.tasks import stored_task
from hush_aggregator.estimate.mechanisms import fold
from hush_aggregator.estimate.tally import Tally
from hush_aggregator.store.base import Accepted, FillableStore, OpenedStore
from hush_aggregator.store.location import StoreAddress, open_reader
from hush_aggregator.store.postgres_url import PostgresUrl
from hush_aggregator.store.sqlite import SIDES, SqliteStore, take_lock
from hush_common.errors import StoreError
from hush_common.files import draft_of, sync
from hush_common.task import Task


class Mismatch(NamedTuple):
    """A round whose tally is not that of its reports."""

    task: str
    round: int
    counted: int  # reports in the tally
    stored: int  # reports that are stored
    what: str


def check_reports(address: StoreAddress, progress: Callable[[int], object] = id) -> tuple[int, list[Mismatch]]:
    """Fold all reports again; return how many there are, and each round whose tally says something else.

    Args:
        address: of the store; an aggregator may count meanwhile, and a round is then looked at twice.
        progress: called with the reports read so far.

    Raises:
        StoreError: the store cannot be read, or a part of it is not what was written.
    """
    read, found = 0, []
    with open_reader(address) as store:
        for task, round_ in _rounds(store):
            mismatch = None
            for _ in range(2):  # what was counted since the tally was read is no mismatch
                before = store.counted_tally(task.digest, round_)
                stored, what = _fold(store, task, round_)
                after = store.counted_tally(task.digest, round_)
                mismatch = None
                if what or stored not in (before, after):
                    mismatch = Mismatch(task.id, round_, after.n, stored.n, what or "the sums differ")
                else:
                    break
                if before == after:
                    break
            read += stored.n
            progress(read)
            if mismatch is not None and not _is_dropped(store, task, round_):  # perhaps meanwhile
                found.append(mismatch)
        found += _check_steps(store)
    return read, found


def _check_steps(store: OpenedStore) -> Iterator[Mismatch]:
    """Yield the rounds of which a step has more reports than were ever counted."""
    for row in store.task_rows():
        for one in store.stored_rounds(row.digest) if row.payload else ():
            steps = store.steps(row.digest, one.round)
            counted = store.counted_tally(row.digest, one.round).n if steps else 0
            if steps and steps[-1].n > counted:
                yield Mismatch(row.id, one.round, counted, one.n, f"a step has {steps[-1].n} reports")


def count_dropped(address: StoreAddress) -> tuple[int, int]:
    """Return in how many rounds reports were dropped by policy, and how many: nothing is left to compare there."""
    with open_reader(address) as store:
        dropped = [one.n for one in store.stored_rounds() if one.dropped]
    return len(dropped), sum(dropped)


def _is_dropped(store: OpenedStore, task: Task, round_: int) -> bool:
    return any(one.dropped for one in store.stored_rounds(task.digest) if one.round == round_)


def copy_store(source: StoreAddress, target: StoreAddress, progress: Callable[[int], object] = id) -> int:
    """Copy a store to where none is; return how many reports there are. It is there as a whole, or not at all.

    The copy goes on under the identity of the source: no aggregator may use the source any more. It is marked as
    restored, so that devices send again what they keep.

    Raises:
        StoreError: the source cannot be read or is in use, a tally is not that of its reports, or something is at the
            target already.
    """
    lock = take_lock(source) if isinstance(source, Path) else None
    try:
        with open_reader(source) as there:
            if isinstance(target, PostgresUrl):
                from hush_aggregator.store.postgres import PostgresStore  # noqa: PLC0415 - psycopg, of an extra

                with PostgresStore.unfinished(target) as copy:
                    return _fill(there, copy, progress)
            return _copy_to_file(there, target, progress)
    finally:
        if lock is not None:
            lock.release()


def _copy_to_file(source: OpenedStore, target: Path, progress: Callable[[int], object]) -> int:
    if target.exists():
        raise StoreError(f"{target}: already exists; name a new file, or remove it")
    try:
        with draft_of(target) as draft:
            try:
                with SqliteStore(draft) as copy:
                    reports = _fill(source, copy, progress)
                    copy.compact()
            finally:
                for side in (*SIDES, ".lock"):
                    draft.with_name(f"{draft.name}{side}").unlink(missing_ok=True)
            sync(draft)
            draft.replace(target)
    except OSError as error:
        raise StoreError(f"{target}: cannot be written ({error.strerror}); name a directory with room") from error
    return reports


def _fill(source: OpenedStore, copy: FillableStore, progress: Callable[[int], object]) -> int:
    rows = source.stored_rows()
    copy.add_tasks([stored_task(row.payload) for row in rows.tasks if row.payload])
    copied = 0
    for task, round_ in _rounds(source):
        for ids, bodies in source.arrays(task.digest, round_):
            copied += copy.commit([Accepted(task, round_, ids, bodies)], {}).accepted
            progress(copied)
        if copy.counted_tally(task.digest, round_) != source.counted_tally(task.digest, round_):
            raise StoreError(
                f"the tally of round {round_} of {task.id} is not that of its reports: the store is damaged, or an "
                "aggregator counts into it; see hush store check"
            )
    copy.commit([], source.counted_refusals())
    copy.put_rows(rows)
    return copied


def _rounds(store: OpenedStore) -> Iterator[tuple[Task, int]]:
    """Tasks that are not forgotten, with each of their rounds that has reports which were not dropped."""
    for row in store.task_rows():
        if row.payload:
            task = stored_task(row.payload)
            for one in store.stored_rounds(row.digest):
                if not one.dropped:
                    yield task, one.round


def _fold(store: OpenedStore, task: Task, round_: int) -> tuple[Tally, str]:
    """The tally of the reports that are stored, and what else is wrong with them."""
    found, last, what = Tally(), b"", ""
    for ids, bodies in store.arrays(task.digest, round_):
        found = found.merge(fold(task.randomizer, bodies))
        ordered = np.concatenate([np.frombuffer(last, dtype="V16"), ids]).view("S16")
        if not (ordered[:-1] < ordered[1:]).all():
            what = "a report is stored twice"
        last = ids[-1].tobytes()
    return found, what
