"""Reports as a log-structured merge tree in tables of SQLite.

Random ids make every insert into a B-tree touch another page. Here a batch is written as one sorted *run*, and runs are
merged in the background (O'Neil, Cheng, Gawlick and O'Neil, The log-structured merge-tree, Acta Informatica 33, 1996).
A run is a row with a filter and a directory, and chunks of at most 1024 reports. The filter (Bloom, 1970) says "new"
or "perhaps known"; what is perhaps known is looked up exactly, so no report is ever refused because of the filter.

All of it is in the tables of the store: the transaction that counts a batch writes its run, and a merge that was
interrupted is rolled back with its transaction or discarded at the next start.

The order of arrival is not kept. New reports go to the *head*, a run of up to 2048. When it is full, a random half
stays and the rest becomes a run, so at least 1023 others are in the same place as the newest report.
"""

import sqlite3
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hush_aggregator.store.base import DamagedError

Keys = NDArray[np.bytes_]
"""Sorted or not: the series in 8 bytes and the report id in 16, big-endian (dtype `S24`)."""

Bodies = NDArray[np.int64]
"""Shape (count, width)."""

SALT_BYTES = 32
_KEY_BYTES = 24
_SERIES_BYTES = 8
_WIDTH_SHIFT = 48  # of a series: its top bits are the width of its bodies, so that equal widths are neighbours
CHUNK = 1024  # reports: what an exact look-up reads
HEAD = 1024  # reports that stay in the head when it is full
FAN_IN = 16  # runs of one level that are merged into one of the next
LARGEST = 1 << 20  # reports of a merged run at most; in a store of more than 32 times as many up to four times that
_RECENT = 1 << 16  # reports of a run whose keys stay in memory
_CACHED_CHUNKS = 512  # ids of chunks of larger runs in memory: 9 MB
_READ_AHEAD = 8  # chunks of a run that a merge reads at a time
_CHUNK_SHIFT = 20  # of a chunk's number: its run and its position
_BUILDING, _DEAD = -1, -2  # levels of runs that do not count yet, or no longer
_U64 = np.uint64
_READ = """
SELECT series, ids, ids_check, bodies, bodies_check FROM chunk WHERE number >= ? AND number < ? ORDER BY number
"""


def series_number(width: int, ordinal: int) -> int:
    """Return the number of a series: the reports of one round, with bodies of `width` integers."""
    return (width << _WIDTH_SHIFT) | ordinal


def last_key(series: int) -> bytes:
    """Return the highest key that a report of a series can have."""
    return series.to_bytes(_SERIES_BYTES, "big") + b"\xff" * 16


def make_keys(series: int, ids: NDArray[np.void]) -> Keys:
    """Return the keys of reports of one series, in the order of their ids."""
    raw = np.empty((len(ids), _KEY_BYTES), dtype=np.uint8)
    raw[:, :_SERIES_BYTES] = np.frombuffer(series.to_bytes(_SERIES_BYTES, "big"), dtype=np.uint8)
    raw[:, _SERIES_BYTES:] = np.ascontiguousarray(ids).view(np.uint8).reshape(-1, 16)
    return as_keys(raw)


def ids_of(keys: Keys) -> NDArray[np.void]:
    """Return the report ids of keys (dtype `V16`)."""
    return np.ascontiguousarray(bytes_of(keys)[:, _SERIES_BYTES:]).view("V16").reshape(-1)


class Section(NamedTuple):
    """Reports with bodies of one width, sorted by their keys."""

    keys: Keys
    bodies: Bodies


@dataclass(slots=True)
class SortedRun:
    """A sorted sequence of reports on disk.

    Attributes:
        n: reports when it was written; some may have been deleted since.
        firsts: the first key of each chunk.
        filter: of its keys; None where nothing is looked up.
        recent: all its keys, of a small run that was looked into.
    """

    id: int
    level: int
    n: int
    firsts: Keys
    filter: "Filter | None" = None
    recent: Keys | None = None


class Filter:
    """A Bloom filter that sets five bits of one word for each key.

    With 32 bits a key it takes 1 of 2000 new keys for known ones, with 64 bits 1 of 13 000. The hash is keyed by a
    secret of the store, so that nobody can choose ids that collide.
    """

    def __init__(self, words: NDArray[np.uint64]) -> None:
        self.words = words

    @classmethod
    def for_size(cls, n: int) -> "Filter":
        """Return an empty filter for n keys."""
        return cls(np.zeros(max(1, n // (2 if n > _RECENT else 1)), dtype=_U64))

    def add(self, hashes: "Hashes") -> None:
        np.bitwise_or.at(self.words, hashes.places(len(self.words)), hashes.masks)

    def may_contain(self, hashes: "Hashes") -> NDArray[np.intp]:
        """Return the places of the keys that are perhaps in the run; no other key is."""
        found = self.words.take(hashes.places(len(self.words)), mode="wrap")  # which checks no place: each is there
        np.bitwise_and(found, hashes.masks, out=found)
        return np.flatnonzero(found == hashes.masks)


@dataclass(slots=True)
class Hashes:
    """What filters need of keys."""

    high: NDArray[np.uint64]  # the upper 32 bits, which choose the word
    masks: NDArray[np.uint64]  # five bits each
    _places: dict[int, NDArray[np.intp]] = field(default_factory=dict)

    def places(self, words: int) -> NDArray[np.intp]:
        """Return the word of each key in a filter of so many."""
        if (places := self._places.get(words)) is None:
            places = self._places[words] = ((self.high * _U64(words)) >> _U64(32)).view(np.intp)
        return places


class ReportTree:
    """The reports of a store. Every method runs inside a transaction of the caller.

    Args:
        run: the connection.
        salt: 32 secret bytes of the store, for the filters.
    """

    def __init__(self, run: sqlite3.Connection, salt: bytes) -> None:
        self._run = run
        self._salt = np.frombuffer(salt, dtype=_U64)
        self._random = np.random.default_rng()
        self._runs: list[SortedRun] = []
        self._merges: dict[int, _Merge] = {}
        self._dead: list[int] = []
        self._chunks: dict[int, StoredIds] = {}
        self._version: int | None = None

    def forget_memory(self) -> None:
        """Read everything again at the next call: the transaction was rolled back."""
        self._version = None

    def refresh(self) -> None:
        """Read the runs again if another connection has written since the last call."""
        (version,) = self._run.execute("PRAGMA data_version").fetchone()
        if version == self._version:
            return
        self._merges.clear()
        self._chunks.clear()
        rows = self._run.execute("SELECT id, level, n, firsts, filter FROM run ORDER BY id").fetchall()
        self._runs = [
            SortedRun(id_, level, n, as_keys(firsts), Filter(np.frombuffer(words, dtype=_U64).copy()))
            for id_, level, n, firsts, words in rows
            if level >= 0
        ]
        self._dead = [row[0] for row in rows if row[1] < 0]
        self._run.execute("UPDATE run SET level = ? WHERE level = ?", (_DEAD, _BUILDING))
        self._version = version

    def find(self, keys: Keys) -> NDArray[np.bool_]:
        """Return which of these keys are stored."""
        found = np.zeros(len(keys), dtype=np.bool_)
        hashes = self._hashes(keys)
        for run in self._runs:
            assert run.filter is not None  # noqa: S101 - for the type checker: the tree reads it with the run
            some = run.filter.may_contain(hashes)
            if len(some) and len(some := some[~found[some]]):
                found[some] = self._find_in(run, keys[some])
        return found

    def insert(self, sections: Sequence[Section]) -> None:
        """Store reports that are new, and go on with merges.

        Args:
            sections: in ascending order of their widths.
        """
        count = sum(len(section.keys) for section in sections)
        if not count:
            return
        head = next((run for run in self._runs if run.level == 0), None)
        if head is not None:
            sections = _merged([*self._sections(head), *sections])
            self._delete(head)
        total = sum(len(section.keys) for section in sections)
        if total <= 2 * HEAD:
            self._write(sections, 0)
        else:
            stays = np.zeros(total, dtype=np.bool_)
            stays[self._random.choice(total, HEAD, replace=False)] = True
            self._write(_chosen(sections, stays), 0)
            self._write(_chosen(sections, ~stays), 1)
        self._go_on(count)

    def compact(self, most: int) -> bool:
        """Go on with the merge of all runs into one, by at most some reports; return whether something is left to do.

        No reports may be inserted until it is done.
        """
        if len(self._runs) > 1 and not self._merges:
            self._merges[0] = _Merge(self._run, self._runs[:])
        if self._merges:
            (everything,) = self._merges.values()
            if everything.go_on(most, self._hashes):
                self._merges.clear()
                self._replace(everything, 1 + max(run.level for run in everything.runs))
        elif self._dead:
            self._drop_dead(most)
        return bool(self._merges or self._dead)

    def _find_in(self, run: SortedRun, keys: Keys) -> NDArray[np.bool_]:
        """Look keys up exactly."""
        if run.n <= _RECENT:
            if run.recent is None:
                first = run.id << _CHUNK_SHIFT
                run.recent = np.concatenate([read_ids(self._run, first | k).keys() for k in range(len(run.firsts))])
            return is_in(run.recent, keys)
        places = np.searchsorted(run.firsts, keys, side="right") - 1
        raw = bytes_of(keys)
        asked = zip(places.tolist(), raw, strict=True)
        return np.array([place >= 0 and key.tobytes() in self._ids(run, place) for place, key in asked], dtype=np.bool_)

    def _ids(self, run: SortedRun, position: int) -> "StoredIds":
        number = run.id << _CHUNK_SHIFT | position
        ids = self._chunks.pop(number, None)
        if ids is None:
            ids = read_ids(self._run, number)
        self._chunks[number] = ids  # the one used last comes last
        if len(self._chunks) > _CACHED_CHUNKS:
            del self._chunks[next(iter(self._chunks))]
        return ids

    def _hashes(self, keys: Keys) -> Hashes:
        words = bytes_of(keys).view(_U64)
        hashes = np.full(len(keys), self._salt[3], dtype=_U64)
        for column in range(3):
            hashes = _mix((hashes + words[:, column]) ^ self._salt[column])
        masks = np.zeros_like(hashes)
        for k in range(0, 30, 6):
            masks |= _U64(1) << ((hashes >> _U64(k)) & _U64(63))
        return Hashes(hashes >> _U64(32), masks)

    def _sections(self, run: SortedRun) -> list[Section]:
        return list(merge(self._run, [run]))

    def _write(self, sections: Sequence[Section], level: int) -> None:
        n = sum(len(section.keys) for section in sections)
        writer = _Writer(self._run, n)
        for section in sections:
            writer.add(section, self._hashes(section.keys))
        self._runs.append(writer.close(level))

    def _delete(self, run: SortedRun) -> None:
        """Delete a small run."""
        delete_chunks(self._run, run.id)
        self._run.execute("DELETE FROM run WHERE id = ?", (run.id,))
        self._runs.remove(run)
        for position in range(len(run.firsts)):
            self._chunks.pop(run.id << _CHUNK_SHIFT | position, None)

    def _go_on(self, count: int) -> None:
        """Go on with merges and delete chunks of merged runs.

        A merge takes 1.25 times as many reports of each level as were inserted, so it ends before the next can begin.
        """
        budget = max(count * 5 // 4, CHUNK)
        for level in range(1, 1 + max(run.level for run in self._runs)):
            if level not in self._merges and (runs := self._mergeable(level)):
                self._merges[level] = _Merge(self._run, runs)
            if level in self._merges and self._merges[level].go_on(budget, self._hashes):
                self._replace(self._merges.pop(level), level + 1)
        self._drop_dead(8 * budget)

    def _mergeable(self, level: int) -> list[SortedRun]:
        """Return the runs of a level that are to be merged: so many, or as many as make a run of the largest size.

        To look into 32 runs takes as long as to merge a report once more.
        """
        largest = min(max(sum(run.n for run in self._runs) // 32, LARGEST), 4 * LARGEST)
        runs = [run for run in self._runs if run.level == level and run.n <= largest // 2][: FAN_IN + 1]
        together = list(accumulate(run.n for run in runs))
        most = min(FAN_IN, bisect_right(together, largest))
        return runs[:most] if len(runs) > most or most == FAN_IN else []

    def _drop_dead(self, most: int) -> None:
        """Delete chunks of merged runs, of about some reports at most."""
        chunks = max(1, most // CHUNK)
        while self._dead and chunks > 0:
            chunks -= delete_chunks(self._run, self._dead[0], chunks)
            if chunks > 0:
                self._run.execute("DELETE FROM run WHERE id = ?", (self._dead.pop(0),))

    def _replace(self, done: "_Merge", level: int) -> None:
        merged = done.writer.close(level)
        for run in done.runs:
            self._run.execute("UPDATE run SET level = ?, firsts = x'', filter = x'' WHERE id = ?", (_DEAD, run.id))
            self._runs.remove(run)
            self._dead.append(run.id)
        self._runs.append(merged)


class _Writer:
    """Writes a run, chunk by chunk; it counts once it is closed."""

    def __init__(self, run: sqlite3.Connection, n: int) -> None:
        self._run = run
        values = (_BUILDING, n)
        cursor = run.execute("INSERT INTO run (level, n, firsts, filter) VALUES (?, ?, x'', x'')", values)
        assert cursor.lastrowid is not None  # noqa: S101 - for the type checker: it has inserted a row
        self.id = cursor.lastrowid
        self._n = 0
        self._filter = Filter.for_size(n)
        self._firsts: list[Keys] = []
        self._rest: list[Section] = []  # not a whole chunk yet; all of one width

    def add(self, section: Section, hashes: Hashes) -> None:
        self._n += len(section.keys)
        self._filter.add(hashes)
        if self._rest and self._rest[0].bodies.shape[1] != section.bodies.shape[1]:
            self._flush(whole=False)
        self._rest.append(section)
        if sum(len(rest.keys) for rest in self._rest) >= CHUNK:
            self._flush(whole=True)

    def close(self, level: int) -> SortedRun:
        if self._rest:
            self._flush(whole=False)
        firsts = np.concatenate([as_keys(b""), *self._firsts])  # none where all of a merge was deleted before
        self._run.execute(
            "UPDATE run SET level = ?, n = ?, firsts = ?, filter = ? WHERE id = ?",
            (level, self._n, firsts.tobytes(), self._filter.words.data, self.id),
        )
        return SortedRun(self.id, level, self._n, firsts, self._filter)

    def _flush(self, *, whole: bool) -> None:
        """Write what there is, or only its whole chunks."""
        keys = np.concatenate([rest.keys for rest in self._rest])
        bodies = np.concatenate([rest.bodies for rest in self._rest])
        end = len(keys) // CHUNK * CHUNK if whole else len(keys)
        rows = []
        for start in range(0, end, CHUNK):
            stop = min(start + CHUNK, end)
            number = self.id << _CHUNK_SHIFT | (len(self._firsts))
            self._firsts.append(keys[start : start + 1].copy())  # a view would hold all of them
            rows.append((number, *_encode(keys[start:stop], bodies[start:stop])))
        self._run.executemany("INSERT INTO chunk VALUES (?, ?, ?, ?, ?, ?)", rows)
        self._rest = [Section(keys[end:], bodies[end:])] if end < len(keys) else []


class _Merge:
    """A merge of runs, done in steps."""

    def __init__(self, run: sqlite3.Connection, runs: Sequence[SortedRun]) -> None:
        self.runs = runs
        self.writer = _Writer(run, sum(one.n for one in runs))
        self._sections = merge(run, runs)
        self._allowed = 0

    def go_on(self, count: int, hashes: Callable[[Keys], Hashes]) -> bool:
        """Merge about so many more reports, counted over all calls; return whether all are done."""
        self._allowed += count
        while self._allowed > 0:
            section = next(self._sections, None)
            if section is None:
                return True
            self.writer.add(section, hashes(section.keys))
            self._allowed -= len(section.keys)
        return False


@dataclass(slots=True)
class _Source:
    """A run that is read in order."""

    id: int
    chunks: int
    position: int
    keys: Keys = field(default_factory=lambda: as_keys(b""))
    bodies: Bodies = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))


def merge(run: sqlite3.Connection, runs: Sequence[SortedRun], after: bytes = b"") -> Iterator[Section]:
    """Yield the reports of runs in the order of their keys, those after a key, in sections of some thousand.

    It reads a chunk when it needs it, so runs may not be deleted meanwhile.
    """
    start = np.frombuffer(after.ljust(_KEY_BYTES, b"\0"), dtype=f"S{_KEY_BYTES}")
    sources = []
    for one in runs:
        place = max(0, int(np.searchsorted(one.firsts, start, side="right")[0]) - 1) if after else 0
        sources.append(_Source(one.id, len(one.firsts), place))
    while True:
        for source in sources:
            while not len(source.keys) and source.position < source.chunks:
                chunks = min(_READ_AHEAD, source.chunks - source.position)
                number = source.id << _CHUNK_SHIFT | source.position
                used, (keys, bodies) = read_chunks(run, number, chunks)
                source.position += used
                first = int(np.searchsorted(keys, start, side="right")[0]) if after else 0
                source.keys, source.bodies = keys[first:], bodies[first:]
        sources = [source for source in sources if len(source.keys)]
        if not sources:
            return
        width = min(source.bodies.shape[1] for source in sources)
        of_width = [source for source in sources if source.bodies.shape[1] == width]
        bound = min((source.keys[-1:] for source in of_width), key=bytes)
        parts = []
        for source in of_width:
            end = int(np.searchsorted(source.keys, bound, side="right")[0])
            parts.append(Section(source.keys[:end], source.bodies[:end]))
            source.keys, source.bodies = source.keys[end:], source.bodies[end:]
        yield parts[0] if len(parts) == 1 else sort_sections(parts)


def read_runs(run: sqlite3.Connection) -> list[SortedRun]:
    """Return the runs of a store, without their filters."""
    rows = run.execute("SELECT id, level, n, firsts FROM run WHERE level >= 0 ORDER BY id")
    return [SortedRun(id_, level, n, as_keys(firsts)) for id_, level, n, firsts in rows.fetchall()]


class StoredIds:
    """The keys of a chunk, as they are stored: a few are looked up without decoding all.

    Args:
        series: of each series its number and how many reports it has, in 8 bytes each.
        ids: 16 bytes each, sorted within a series.
    """

    def __init__(self, series: bytes, ids: bytes) -> None:
        self._series = series
        self._ids = ids
        self._places: dict[bytes, tuple[int, int]] = {}
        end = 0
        for at in range(0, len(series), 2 * _SERIES_BYTES):
            start, end = end, end + int.from_bytes(series[at + _SERIES_BYTES : at + 2 * _SERIES_BYTES], "big")
            self._places[series[at : at + _SERIES_BYTES]] = start, end

    def __contains__(self, key: bytes) -> bool:
        """Return whether a key is there, by bisection."""
        ids, wanted = self._ids, key[_SERIES_BYTES:]
        low, high = self._places.get(key[:_SERIES_BYTES], (0, 0))
        while low < high:
            middle = (low + high) // 2
            there = ids[16 * middle : 16 * middle + 16]
            if there == wanted:
                return True
            if there < wanted:
                low = middle + 1
            else:
                high = middle
        return False

    def keys(self) -> Keys:
        """Return all of them."""
        return _decode_keys(self._series, self._ids)


def read_ids(run: sqlite3.Connection, number: int) -> StoredIds:
    """Return the keys of a chunk."""
    row = run.execute("SELECT series, ids, ids_check FROM chunk WHERE number = ?", (number,)).fetchone()
    if row is None or zlib.crc32(row[1], zlib.crc32(row[0])) != row[2]:
        raise DamagedError("the ids of some reports")
    return StoredIds(row[0], row[1])


def read_chunks(run: sqlite3.Connection, number: int, count: int) -> tuple[int, Section]:
    """Return the reports of up to `count` chunks of one run from this one on, and of how many chunks they are.

    The section ends where the width of the bodies changes.
    """
    rows = run.execute(_READ, (number, number + count)).fetchall()
    if len(rows) < count:
        raise DamagedError("a part of the reports")
    sections: list[Section] = []
    for row in rows:
        section = _decode(*row)
        if sections and section.bodies.shape[1] != sections[0].bodies.shape[1]:
            break
        sections.append(section)
    if len(sections) == 1:
        return 1, sections[0]
    keys = np.concatenate([section.keys for section in sections])
    return len(sections), Section(keys, np.concatenate([section.bodies for section in sections]))


def _decode(series: bytes, ids: bytes, ids_check: int, bodies: bytes, bodies_check: int) -> Section:
    if zlib.crc32(ids, zlib.crc32(series)) != ids_check or zlib.crc32(bodies) != bodies_check:
        raise DamagedError("a part of the reports")
    if not series:  # all of them were deleted
        return Section(as_keys(b""), np.zeros((0, 1), dtype=np.int64))
    keys = _decode_keys(series, ids)
    width = int.from_bytes(series[:2], "big")
    item = len(bodies) // (len(keys) * width)
    return Section(keys, np.frombuffer(bodies, dtype=f">i{item}").astype(np.int64).reshape(-1, width))


def delete_chunks(run: sqlite3.Connection, of: int, most: int = 1 << _CHUNK_SHIFT) -> int:
    """Delete chunks of a run, at most some; return how many there were."""
    first = of << _CHUNK_SHIFT
    where = "SELECT number FROM chunk WHERE number >= ? AND number < ? LIMIT ?"
    cursor = run.execute(f"DELETE FROM chunk WHERE number IN ({where})", (first, first + (1 << _CHUNK_SHIFT), most))  # noqa: S608 - a constant
    return cursor.rowcount


class SeriesDeletion:
    """Deletes the reports of a series in steps, each in a transaction of the caller.

    A `ReportTree` of another connection reads the runs again, and starts its merges again, because the database has
    changed. What runs that do not count hold of the series is deleted last.
    """

    def __init__(self, run: sqlite3.Connection, series: int) -> None:
        self._run = run
        self._series = series
        self._start, self._end = (
            as_keys(number.to_bytes(_SERIES_BYTES, "big").ljust(_KEY_BYTES, b"\0")) for number in (series, series + 1)
        )
        self._next = 0  # number of a chunk; those before it were looked at, but for what was merged since then
        self._deleted = 0  # since the first chunk

    def go_on(self, most: int) -> bool:
        """Delete some reports, at most some thousand more than `most`; return whether something may be left."""
        deleted = 0
        for number in self._chunks():
            gone = self._delete_from(number)
            deleted, self._next = deleted + gone, number + 1
            if deleted >= most:
                break
        else:
            if not self._deleted + deleted:
                self._forget_firsts()
                return _delete_copies(self._run, self._series)
            self._next = self._deleted = deleted = 0  # once more, because runs may have been merged meanwhile
        self._deleted += deleted
        return True

    def _forget_firsts(self) -> None:
        """Replace the ids among the first keys of chunks by the lowest id: the order stays."""
        for one in read_runs(self._run):
            places = slice(*(int(np.searchsorted(one.firsts, key)[0]) for key in (self._start, self._end)))
            if (one.firsts[places] != self._start).any():
                firsts = one.firsts.copy()
                firsts[places] = self._start
                self._run.execute("UPDATE run SET firsts = ? WHERE id = ?", (firsts.tobytes(), one.id))

    def _chunks(self) -> Iterator[int]:
        """Numbers of the chunks from the next one on that may have some."""
        for one in read_runs(self._run):
            first = max(0, int(np.searchsorted(one.firsts, self._start, side="right")[0]) - 1)
            for position in range(first, int(np.searchsorted(one.firsts, self._end)[0])):
                if (number := one.id << _CHUNK_SHIFT | position) >= self._next:
                    yield number

    def _delete_from(self, number: int) -> int:
        keys, bodies = read_chunks(self._run, number, 1)[1]
        others = (keys < self._start) | (keys >= self._end)
        gone = len(keys) - int(np.count_nonzero(others))
        if gone:
            _rewrite_chunk(self._run, number, keys[others], bodies[others])
        return gone


def _delete_copies(run: sqlite3.Connection, series: int) -> bool:
    """Delete chunks that hold reports of a series in runs that do not count; return whether there were any."""
    run.execute("UPDATE run SET level = ? WHERE level = ?", (_DEAD, _BUILDING))
    deleted = 0
    for (dead,) in run.execute("SELECT id FROM run WHERE level = ?", (_DEAD,)).fetchall():
        first = dead << _CHUNK_SHIFT
        query = "SELECT number, series FROM chunk WHERE number >= ? AND number < ?"
        for number, table in run.execute(query, (first, first + (1 << _CHUNK_SHIFT))).fetchall():
            if series in np.frombuffer(table, dtype=">i8")[::2]:
                run.execute("DELETE FROM chunk WHERE number = ?", (number,))
                deleted += 1
    return deleted > 0


def _rewrite_chunk(run: sqlite3.Connection, number: int, keys: Keys, bodies: Bodies) -> None:
    values = _encode(keys, bodies) if len(keys) else (b"", b"", 0, b"", 0)
    run.execute(
        "UPDATE chunk SET series = ?, ids = ?, ids_check = ?, bodies = ?, bodies_check = ? WHERE number = ?",
        (*values, number),
    )


def _encode(keys: Keys, bodies: Bodies) -> tuple[bytes, bytes, int, bytes, int]:
    """Series with how many reports each has, ids, and bodies in as few bytes an integer as all of them fit in."""
    raw = bytes_of(keys)
    numbers = np.ascontiguousarray(raw[:, :_SERIES_BYTES]).view(">u8").reshape(-1)
    starts = np.flatnonzero(np.concatenate(([True], numbers[1:] != numbers[:-1])))
    counts = np.diff(np.append(starts, len(numbers)))
    series = np.stack([numbers[starts].astype(np.int64), counts], axis=1).astype(">i8").tobytes()
    ids = raw[:, _SERIES_BYTES:].tobytes()
    low, high = int(bodies.min()), int(bodies.max())
    item = next(size for size in (1, 2, 4, 8) if -(1 << 8 * size - 1) <= low and high < 1 << 8 * size - 1)
    packed = bodies.astype(f">i{item}").tobytes()
    return series, ids, zlib.crc32(ids, zlib.crc32(series)), packed, zlib.crc32(packed)


def _decode_keys(series: bytes, ids: bytes) -> Keys:
    table = np.frombuffer(series, dtype=">i8").reshape(-1, 2)
    raw = np.empty((len(ids) // 16, _KEY_BYTES), dtype=np.uint8)
    numbers = np.ascontiguousarray(table[:, 0]).view(np.uint8).reshape(-1, _SERIES_BYTES)
    raw[:, :_SERIES_BYTES] = np.repeat(numbers, table[:, 1].astype(np.int64), axis=0)
    raw[:, _SERIES_BYTES:] = np.frombuffer(ids, dtype=np.uint8).reshape(-1, 16)
    return as_keys(raw)


def as_keys(raw: NDArray[np.uint8] | bytes) -> Keys:
    """Return the keys in these bytes, 24 each."""
    found: Keys = np.frombuffer(raw, dtype=f"S{_KEY_BYTES}")
    return found


def bytes_of(keys: Keys) -> NDArray[np.uint8]:
    """Return the bytes of keys, shape (count, 24)."""
    return np.ascontiguousarray(keys).view(np.uint8).reshape(-1, _KEY_BYTES)


def sort_sections(parts: Sequence[Section]) -> Section:
    """Join sections of one width, sorted by their keys."""
    keys = np.concatenate([part.keys for part in parts])
    bodies = np.concatenate([part.bodies for part in parts])
    order = np.argsort(keys, kind="stable")
    return Section(keys[order], bodies[order])


def _merged(sections: Sequence[Section]) -> list[Section]:
    """Join and sort the sections of each width."""
    widths = sorted({section.bodies.shape[1] for section in sections})
    return [sort_sections([one for one in sections if one.bodies.shape[1] == width]) for width in widths]


def _chosen(sections: Sequence[Section], flags: NDArray[np.bool_]) -> list[Section]:
    """The flagged reports of sections; flags go over all of them."""
    found, start = [], 0
    for keys, bodies in sections:
        some = flags[start : start + len(keys)]
        start += len(keys)
        if some.any():
            found.append(Section(keys[some], bodies[some]))
    return found


def is_in(stored: Keys, keys: Keys) -> NDArray[np.bool_]:
    """Return which keys are among those stored, which are sorted."""
    if not len(stored):
        return np.zeros(len(keys), dtype=np.bool_)
    places = np.minimum(np.searchsorted(stored, keys), len(stored) - 1)
    found: NDArray[np.bool_] = stored[places] == keys
    return found


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finalizer of MurmurHash3 (Appleby, 2011): each bit of the input changes half of those of the output."""
    values = (values ^ (values >> _U64(33))) * _U64(0xFF51AFD7ED558CCD)
    values = (values ^ (values >> _U64(33))) * _U64(0xC4CEB9FE1A85EC53)
    return values ^ (values >> _U64(33))
