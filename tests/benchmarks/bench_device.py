"""What one answer costs a device, without the network: python tests/benchmarks/bench_device.py [repetitions].

Medians in microseconds: the index of the value, the draw, the encoding, and the whole transaction (fsync included).
"""

import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from hush_client import identity, ledger, outbox
from hush_client.answer import Question, answer
from hush_client.policy import Policy
from hush_common.codec import encode_frame
from hush_common.mechanisms import perturb
from hush_common.report import Report
from hush_common.rng import SystemRng
from hush_common.task import Task
from hush_common.task_file import make_task
from hush_common.topics import report_topic

__all__: list[str] = []

TASKS = {
    "laplace": {"id": "heights", "epsilon": "1", "domain": {"kind": "number", "lower": 120.0, "upper": 220.0}},
    "randomized_response": {"id": "survey", "epsilon": "1", "domain": {"kind": "bit"}},
}
VALUES: dict[str, object] = {"laplace": 172.3, "randomized_response": True}


def median(function: Callable[[int], object], repetitions: int) -> float:
    """Median microseconds of a call."""
    times = []
    for k in range(repetitions):
        began = time.perf_counter_ns()
        function(k)
        times.append(time.perf_counter_ns() - began)
    return statistics.median(times) / 1000


def figures(task: Task, value: object, repetitions: int) -> dict[str, float]:
    """Medians by stage."""
    rng = SystemRng()
    mechanism, index = task.randomizer, task.domain.index(value)
    report = Report.new(task.digest, 0, perturb(mechanism, index, rng), rng)
    with tempfile.TemporaryDirectory() as directory, closing(connect(Path(directory))) as store:

        def transact(k: int) -> None:
            question = Question(f"device-{k}", task, value, report_topic(task.id, "b"), Policy(), datetime.now(UTC))
            store.execute("BEGIN IMMEDIATE")
            answer(store, question, rng)
            store.execute("COMMIT")

        return {
            "index": median(lambda _: task.domain.index(value), repetitions),
            "perturb": median(lambda _: perturb(mechanism, index, rng), repetitions),
            "encode": median(lambda _: encode_frame((report,)), repetitions),
            "transaction": median(transact, repetitions),
        }


def connect(directory: Path) -> sqlite3.Connection:
    """A fresh state of a device, durable as on one."""
    store = sqlite3.connect(directory / "hush.sqlite3", isolation_level=None)
    store.execute("PRAGMA journal_mode = WAL")
    store.execute("PRAGMA synchronous = FULL")
    for part in (ledger, outbox, identity):
        store.executescript(part.SCHEMA)
    return store


def main(repetitions: int) -> None:
    for name, document in TASKS.items():
        found = figures(make_task(document), VALUES[name], repetitions)
        print(name, "  ".join(f"{stage} {micro:.1f} µs" for stage, micro in found.items()))  # noqa: T201 - a report


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
