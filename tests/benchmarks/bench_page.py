# ruff: noqa: T201 - printing is its job
"""The page with a thousand tasks and ten million reports: how long until the first byte and the last.

`python tests/benchmarks/bench_page.py [tasks]`. The reports are tallies that were written at once: what the page reads
is what ten million reports leave behind, but for the table of the reports themselves, which it never touches.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

import httpx
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from page_server import served

from hush_aggregator import SqliteStore
from hush_aggregator.store import Accepted
from hush_common.rng import SystemRng
from hush_common.task import make_task

REPORTS = 10_000_000
DOMAINS = (
    {"kind": "number", "lower": 0, "upper": 100},
    {"kind": "bit"},
    {"kind": "category", "labels": [f"label {place}" for place in range(12)]},
)
VALUES: tuple[object, ...] = (40.0, True, "label 3")


def fill(path: Path, tasks: int) -> None:
    """As many tasks, each with its share of the reports: a hundred are drawn, and the tally is multiplied."""
    rng = SystemRng()
    each = REPORTS // tasks
    with SqliteStore(path) as store:
        for number in range(tasks):
            kind = number % len(DOMAINS)
            draft = {"id": f"task-{number:04}", "title": f"Task {number}", "epsilon": "1", "domain": DOMAINS[kind]}
            task = make_task(draft)
            store.add_task(task)
            bodies = [task.perturb(task.domain.index(VALUES[kind]), rng, 0) for _ in range(100)]
            ids = np.frombuffer(rng_bytes(100), dtype="V16")
            store.commit([Accepted(task, 0, ids, np.array(bodies, dtype=np.int64))], {})
        multiply(store, each // 100)


def rng_bytes(count: int) -> bytes:
    return np.random.default_rng().bytes(16 * count)


def multiply(store: SqliteStore, times: int) -> None:
    """Every tally as if each report had come so many times."""
    run = store._connection
    run.execute(
        "UPDATE tally SET n = n * :times, moments = (SELECT json_group_array(value * :times) FROM json_each(moments))",
        {"times": times},
    )
    run.execute("UPDATE tally SET seal = seal(digest, round, n, moments)")


def measure(client: httpx.Client, where: str, times: int = 15) -> tuple[float, float, int]:
    """The first time and the median of the others, in seconds, and the bytes."""
    took, size = [], 0
    for _ in range(times):
        start = time.perf_counter()
        answer = client.get(where)
        took.append(time.perf_counter() - start)
        answer.raise_for_status()
        size = len(answer.content)
    return took[0], statistics.median(took[1:]), size


def main() -> None:
    tasks = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "hush.sqlite3"
        fill(path, tasks)
        with served(path) as address, httpx.Client(base_url=address) as client:
            client.get("/healthz").raise_for_status()
            print(f"{tasks} tasks, {REPORTS} reports")
            for where in ("/", "/?page=2", f"/?page={max(1, tasks // 24)}", "/tasks/task-0000", "/tasks/task-0002"):
                first, median, size = measure(client, where)
                print(f"{where:20} first {first * 1000:6.0f} ms, then {median * 1000:6.0f} ms, {size} bytes")


if __name__ == "__main__":
    main()
