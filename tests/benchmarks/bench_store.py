"""What a large store costs: counting, a start after a kill, backup, restore, export, check, compaction, forget.

python tests/benchmarks/bench_store.py [--reports 10000000] [--batch 4000] [--again 0.02] [--directory DIR]

Each batch holds, beside new reports, some that were counted before (`--again`, a share), which are looked up exactly.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hush_aggregator import SqliteReader, SqliteStore
from hush_aggregator.store import Accepted
from hush_aggregator.store.sqlite import back_up, compact, put_back
from hush_common.task import make_task
from hush_common.wire import Refusal

_TASK = make_task({"id": "number", "epsilon": "1", "domain": {"kind": "number", "lower": 0.0, "upper": 1.0}})
_MILLION = 1_000_000
_READY = """
import sys, time; from pathlib import Path
from hush_aggregator.store import SqliteStore
began = time.monotonic(); store = SqliteStore(Path(sys.argv[1])); store.counts(); store.commit([], {})
sys.stdout.write(f"{time.monotonic() - began:.2f}")
"""


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def size_mb(store: Path) -> float:
    return sum(file.stat().st_size for file in store.parent.glob(f"{store.name}*")) / 1e6


def resident_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@contextmanager
def timed(what: str) -> Iterator[None]:
    wall, used = time.monotonic(), time.process_time()
    yield
    say(f"{what}: {time.monotonic() - wall:.1f} s, processor {time.process_time() - used:.1f} s")


class Source:
    """Batches of new reports, and of some that were sent before."""

    def __init__(self, batch: int, again: float) -> None:
        self._rng = np.random.default_rng(1)
        self._new, self._again = batch, int(batch * again)
        self._sent = np.zeros((0, 16), dtype=np.uint8)

    def batch(self) -> Accepted:
        new = self._rng.integers(0, 256, (self._new, 16), dtype=np.uint8)
        ids = new
        if len(self._sent):
            ids = np.concatenate([new, self._sent[self._rng.integers(0, len(self._sent), self._again)]])
        keep = new[:: max(1, self._new // 40)]  # the sample that is sent again is of all ages
        self._sent = np.concatenate([self._sent, keep])
        bodies = self._rng.integers(-(1 << 34), 1 << 34, (len(ids), 1))
        return Accepted(_TASK, 0, np.ascontiguousarray(ids).view("V16").reshape(-1), bodies)


def fill(path: Path, reports: int, source: Source, batch: int) -> None:
    """Count, and print the time of each million; end without closing, as where the process is killed."""
    with SqliteStore(path) as store:
        store.add_task(_TASK)
    if os.fork() == 0:
        store, done = SqliteStore(path), 0
        wall = used = 0.0
        while done < reports:
            some = source.batch()
            began, began_used = time.monotonic(), time.process_time()
            outcome = store.commit([some], {})
            wall, used = wall + time.monotonic() - began, used + time.process_time() - began_used
            assert outcome.accepted == batch, outcome
            assert outcome.refused.get(Refusal.DUPLICATE, 0) == len(some.ids) - batch
            done += batch
            if done % _MILLION < batch:
                each = f"{1e6 * wall / _MILLION:5.2f} µs a report, processor {1e6 * used / _MILLION:5.2f} µs"
                size = f"{resident_mb():.0f} MB; {size_mb(path) * 1e6 / done:.1f} bytes each"
                say(f"{done / 1e6:4.0f} M: {each}; {size}")
                wall = used = 0.0
        os._exit(0)
    os.wait()


def while_counting(path: Path, source: Source, work: Callable[[], object]) -> None:
    """Do something while batches are counted; print how long the slowest took."""
    stop, slowest = threading.Event(), 0.0
    with SqliteStore(path) as store:

        def run() -> None:
            work()
            stop.set()

        thread = threading.Thread(target=run)
        thread.start()
        commits = 0
        while not stop.is_set():
            began = time.monotonic()
            store.commit([source.batch()], {})
            slowest, commits = max(slowest, time.monotonic() - began), commits + 1
        thread.join()
    say(f"  meanwhile {commits} commits, the slowest {slowest:.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reports", type=int, default=10_000_000)
    parser.add_argument("--batch", type=int, default=4000)
    parser.add_argument("--again", type=float, default=0.02)
    parser.add_argument("--directory", type=Path, help="on the disk to be measured")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as name:
        path, backup, restored = (Path(name) / file for file in ("store", "backup", "restored"))
        source = Source(options.batch, options.again)
        fill(path, options.reports, source, options.batch)
        ready = subprocess.run([sys.executable, "-c", _READY, str(path)], capture_output=True, text=True, check=True)
        say(f"ready after a kill in {ready.stdout.strip()} s")
        with timed("backup while counting"):
            while_counting(path, source, lambda: back_up(path, backup))
        with timed("restore"):
            put_back(backup, restored, replace=False)
        with timed("read all reports, as an export"), SqliteReader(path) as reader:
            read = sum(1 for _ in reader.reports(_TASK.digest, 0))
        say(f"  {read} reports")
        with timed("check every tally against the reports"):
            command = ["-m", "hush", "store", "check", "--store", str(path)]
            subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
        with timed("compact"):
            before, after = compact(path)
        say(f"  {before / read:.1f} bytes a report before, {after / read:.1f} after")
        with timed("forget"):
            command = ["-m", "hush", "task", "forget", "number", "--yes", "--store", str(path)]
            subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
