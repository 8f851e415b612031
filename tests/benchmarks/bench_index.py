"""An exact index of random report ids on disk: RocksDB, LMDB, a table of SQLite, and the tree of hush (with bodies).

python tests/benchmarks/bench_index.py [--ids 4000000] [--which tree rocksdb lmdb table]

Each batch of 4096 ids is looked up, sorted and written durably, in one transaction; each index in a process of its own.
The libraries are not among the groups of pyproject.toml: `pip install rocksdict lmdb`.
"""

import argparse
import importlib
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hush_aggregator import SqliteStore
from hush_aggregator.store import Accepted
from hush_common.task import make_task

_BATCH = 4096
_TASK = make_task({"id": "number", "epsilon": "1", "domain": {"kind": "number", "lower": 0.0, "upper": 1.0}})
_SERIES = bytes(8)

Count = Callable[[list[bytes]], int]
"""Store ids; return how many were new."""


def tree(path: Path) -> Count:
    store = SqliteStore(path / "store")
    store.add_task(_TASK)
    bodies = np.random.default_rng(2).integers(-(1 << 34), 1 << 34, (_BATCH, 1))
    return lambda ids: store.commit([Accepted(_TASK, 0, np.array(ids, dtype="V16"), bodies)], {}).accepted


def rocksdb(path: Path) -> Count:
    rocks: Any = importlib.import_module("rocksdict")
    options, blocks = rocks.Options(raw_mode=True), rocks.BlockBasedOptions()
    blocks.set_bloom_filter(10, False)
    options.set_block_based_table_factory(blocks)
    there, durable = rocks.Rdict(str(path / "rocks"), options), rocks.WriteOptions()
    durable.sync = True

    def count(ids: list[bytes]) -> int:
        keys = [_SERIES + one for one in sorted(ids)]
        new = [key for key, value in zip(keys, there.get(keys), strict=True) if value is None]
        batch = rocks.WriteBatch(raw_mode=True)
        for key in new:
            batch.put(key, b"")
        there.write(batch, durable)
        return len(new)

    return count


def lmdb(path: Path) -> Count:
    there: Any = importlib.import_module("lmdb").open(str(path / "lmdb"), map_size=1 << 36)

    def count(ids: list[bytes]) -> int:
        with there.begin(write=True) as run:
            rows = [(_SERIES + one, b"") for one in sorted(ids)]
            return int(run.cursor().putmulti(rows, overwrite=False)[1])

    return count


def table(path: Path) -> Count:
    there = sqlite3.connect(path / "table", isolation_level=None)
    there.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -32768")
    there.execute("CREATE TABLE report (key BLOB PRIMARY KEY) WITHOUT ROWID")

    def count(ids: list[bytes]) -> int:
        there.execute("BEGIN IMMEDIATE")
        rows = [(_SERIES + one,) for one in sorted(ids)]
        new = there.executemany("INSERT OR IGNORE INTO report VALUES (?)", rows).rowcount
        there.execute("COMMIT")
        return new

    return count


INDEXES: dict[str, Callable[[Path], Count]] = {"tree": tree, "rocksdb": rocksdb, "lmdb": lmdb, "table": table}


def measure(which: str, total: int) -> None:
    """Print the time of an id in the first and the last quarter, the size of an id, and the memory."""
    with tempfile.TemporaryDirectory() as name:
        path, random, took = Path(name), np.random.default_rng(1), []
        count = INDEXES[which](path)
        for _ in range(total // _BATCH):
            raw = random.bytes(16 * _BATCH)
            ids = [raw[i : i + 16] for i in range(0, len(raw), 16)]
            began, used = time.monotonic(), time.process_time()
            assert count(ids) == _BATCH
            took.append((time.monotonic() - began, time.process_time() - used))
        quarters = np.array(took).reshape(-1, 2)
        first, last = (1e6 * part.mean(axis=0) / _BATCH for part in np.array_split(quarters, 4)[::3])
        size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) / total
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        times = f"{first[0]:5.2f} to {last[0]:5.2f} µs an id (processor {first[1]:.2f} to {last[1]:.2f})"
        sys.stdout.write(f"{which:8} {times}, {size:.1f} bytes, {memory:.0f} MB\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ids", type=int, default=4_000_000)
    parser.add_argument("--which", nargs="+", choices=INDEXES, default=list(INDEXES))
    options = parser.parse_args()
    if len(options.which) == 1:
        measure(options.which[0], options.ids)
        return
    for which in options.which:
        subprocess.run([sys.executable, __file__, "--ids", str(options.ids), "--which", which], check=True)


if __name__ == "__main__":
    main()
