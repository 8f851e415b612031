"""What one answer costs a device, without the network: python tests/benchmarks/bench_device.py [repetitions].

Medians in microseconds: the index of the value, the draw, the encoding, and the whole transaction without and with
its fsync. Then, each in a process of its own: what an import takes, and a gateway of ten thousand devices.
"""

import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from hush import Task
from hush_client import Policy
from hush_client.privacy.answer import Question, answer
from hush_client.state import database, ledger, outbox
from hush_common.rng import SystemRng
from hush_common.task import make_task
from hush_common.topics import report_topic
from hush_common.wire import Report, encode_frame

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
    index = task.domain.index(value)
    report = Report.new(task.report_digest, 0, task.perturb(index, rng, 0), rng)
    with tempfile.TemporaryDirectory() as directory, closing(connect(Path(directory))) as store:

        def transact(device: str) -> None:
            question = Question(task, report_topic(task.id, "b"), Policy(), datetime.now(UTC))
            store.execute("BEGIN IMMEDIATE")
            answer(store, question, {device: task.domain.read(value)}, rng)
            store.execute("COMMIT")

        found = {
            "index": median(lambda _: task.domain.index(value), repetitions),
            "perturb": median(lambda _: task.perturb(index, rng, 0), repetitions),
            "encode": median(lambda _: encode_frame((report,)), repetitions),
            "with fsync": median(lambda k: transact(f"durable-{k}"), repetitions),
        }
        store.execute("PRAGMA synchronous = OFF")
        return found | {"without fsync": median(lambda k: transact(f"device-{k}"), repetitions)}


def connect(directory: Path) -> sqlite3.Connection:
    """A fresh state of a device, durable as on one."""
    store = sqlite3.connect(directory / "hush.sqlite3", isolation_level=None)
    store.execute("PRAGMA journal_mode = WAL")
    store.execute("PRAGMA synchronous = FULL")
    for part in (ledger, outbox, database):
        store.executescript(part.SCHEMA)
    return store


MEASURED = """
import time
began = time.process_time()
{program}
spent = time.process_time() - began
with open("/proc/self/status") as status:
    peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
print(spent, peak / 1024)
"""

MOST_SECONDS = 0.080
"""Of processor time, for what a device imports."""

IMPORTED = "the class Client"
IMPORTS = {
    "import hush_client": "import hush_client",
    IMPORTED: "from hush_client import Client",
    "all that answers": "from hush_client import Client, Gateway, SyncClient",
    "a Client with MQTT": "from hush_client import Client; Client('mqtt://h', device='d', state='s')",
}

GATEWAY = """
import asyncio, itertools, tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from hush_client import Gateway
from hush_common.task import make_task
from hush_common.topics import task_topic

TASK = make_task({"id": "heights", "epsilon": "1", "domain": {"kind": "number", "lower": 120.0, "upper": 220.0}})

class Link:
    def __init__(self):
        self.inbox = asyncio.Queue()
    async def publish(self, topic, payload):
        await asyncio.sleep(0)
    async def subscribe(self, topic):
        self.inbox.put_nowait((task_topic("heights"), TASK.payload))
    async def receive(self):
        return await self.inbox.get()

class Transport:
    name = "memory"
    @asynccontextmanager
    async def connect(self):
        yield Link()

async def main():
    with tempfile.TemporaryDirectory() as directory:
        async with Gateway(Transport(), name="g", state=Path(directory), spread=SPREAD, capacity=20000) as gateway:
            await gateway.task("heights")
            if SOURCES:
                for k in range(10000):
                    gateway.answer(f"d{k}", "heights", value, source_timeout=1)
                await done.wait()
                await asyncio.sleep(1)  # the last of them are being stored
            else:
                calls = (gateway.report(f"d{k}", "heights", 172.0, timeout=TIMEOUT) for k in range(10000))
                assert {receipt.status for receipt in await asyncio.gather(*calls)} == {STATUS}
            assert await gateway.flush(timeout=None) if TIMEOUT is None else True

count = itertools.count(1)
done = asyncio.Event()
async def value():
    if next(count) == 10000:
        done.set()
    return 172.0
asyncio.run(main())
"""

GATEWAYS: dict[str, dict[str, object]] = {
    "10 000 devices report at once": {"SPREAD": 0, "SOURCES": False, "TIMEOUT": None, "STATUS": "sent"},
    "10 000 reports wait for their moment": {"SPREAD": 3600, "SOURCES": False, "TIMEOUT": 0, "STATUS": "queued"},
    "10 000 devices answer from sources": {"SPREAD": 0, "SOURCES": True, "TIMEOUT": None, "STATUS": ""},
}


def measured(program: str) -> tuple[float, float]:
    """Medians of processor time and peak memory of a program, run in processes of its own."""
    command = [sys.executable, "-c", MEASURED.format(program=program)]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() for _ in range(5)]
    seconds, megabytes = (statistics.median(map(float, column)) for column in zip(*runs, strict=True))
    return seconds, megabytes


def show(name: str, program: str) -> float:
    """Measure a program, print it, and return the seconds."""
    seconds, megabytes = measured(program)
    print(f"{name}: {seconds:.3f} s of processor time, {megabytes:.1f} MB at most")  # noqa: T201 - a report
    return seconds


def main(repetitions: int) -> int:
    """0; or 1 if a device takes longer to import hush than it may."""
    for name, document in TASKS.items():
        found = figures(make_task(document), VALUES[name], repetitions)
        print(name, "  ".join(f"{stage} {micro:.1f} µs" for stage, micro in found.items()))  # noqa: T201 - a report
    imports = {name: show(name, program) for name, program in IMPORTS.items()}
    for name, settings in GATEWAYS.items():
        assignments = "; ".join(f"{setting} = {value!r}" for setting, value in settings.items())
        show(name, f"{assignments}{GATEWAY}")
    if imports[IMPORTED] <= MOST_SECONDS:
        return 0
    print(f"{IMPORTED}: more than {MOST_SECONDS} s")  # noqa: T201
    return 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000))
