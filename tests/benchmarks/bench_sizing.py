"""How large a machine: what a report costs `hush serve` in time, memory and disk, from a full queue of a mosquitto.

python tests/benchmarks/bench_sizing.py [ROUNDS]            (a minute a round; the table of docs/operations.md)
"""

import asyncio
import json
import logging
import secrets
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import aiomqtt
from servers import Mosquitto

from hush import Task
from hush_common.mechanisms import Offers
from hush_common.rng import SystemRng
from hush_common.task import make_task
from hush_common.topics import report_topic
from hush_common.wire import Report, encode_frame

_SETTINGS = "max_queued_messages 0\nmax_inflight_messages 1000"
_UNDER_WAY = 500


@dataclass(frozen=True)
class Load:
    """What waits on the broker."""

    name: str
    task: Task
    messages: int
    frame: int


def loads() -> list[Load]:
    """One kind of report each way."""
    number = make_task({"id": "number", "epsilon": "1", "domain": {"kind": "number", "lower": 0.0, "upper": 1.0}})
    labels = [f"way {n}" for n in range(16)]
    ways = make_task({"id": "ways", "epsilon": "1", "domain": {"kind": "category", "labels": labels}})
    return [
        Load("a number, a message each", number, 20_000, 1),
        Load("a number, frames of 100", number, 3_000, 100),
        Load("one of 16, a message each", ways, 20_000, 1),
    ]


async def fill(broker: Mosquitto, load: Load) -> None:
    """Leave it all waiting."""
    topic, randomizer, rng = report_topic(load.task.id, "bench"), load.task.randomizer, SystemRng()
    assert not isinstance(randomizer, Offers)
    async with aiomqtt.Client("127.0.0.1", broker.port, max_inflight_messages=_UNDER_WAY) as client:
        limit = asyncio.Semaphore(_UNDER_WAY)

        async def send(payload: bytes) -> None:
            async with limit:
                await client.publish(topic, payload, qos=1, timeout=60)

        async with asyncio.TaskGroup() as group:
            for _ in range(load.messages):
                bodies = [randomizer.perturb(0, rng) for _ in range(load.frame)]
                reports = [Report(load.task.report_digest, 0, secrets.token_bytes(16), body) for body in bodies]
                group.create_task(send(encode_frame(reports)))


def counted(store: Path) -> int:
    with closing(sqlite3.connect(store, timeout=30)) as reader:
        return int(reader.execute("SELECT coalesce(sum(n), 0) FROM tally").fetchone()[0])


def measure(load: Load, directory: Path) -> tuple[float, float, float, float]:
    """Reports a second, processor time of a report in µs, resident MB at most, bytes of the store a report."""
    (directory / "broker").mkdir()
    broker = Mosquitto(directory / "broker", settings=_SETTINGS)
    broker.start()
    store, task = directory / "store", directory / "task.json"
    task.write_bytes(load.task.payload)
    command = [
        sys.executable,
        "-m",
        "hush",
        "serve",
        "--broker",
        broker.url,
        "--store",
        str(store),
        "--task",
        str(task),
    ]
    try:
        first = subprocess.Popen(command, stderr=subprocess.DEVNULL)  # so that its session is there
        while not (store.exists() and subscribed(store)):
            time.sleep(0.2)
        first.send_signal(signal.SIGTERM)
        first.wait(30)
        asyncio.run(fill(broker, load))
        total = load.messages * load.frame
        server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        while not (before := counted(store)):
            time.sleep(0.005)
        began, used = time.monotonic(), processor(server.pid)
        while counted(store) < total:
            time.sleep(0.02)
        seconds, spent = time.monotonic() - began, processor(server.pid) - used
        memory = resident(server.pid)
        server.send_signal(signal.SIGTERM)
        server.wait(30)
    finally:
        broker.stop()
    rest = total - before
    return rest / seconds, 1e6 * spent / rest, memory, store.stat().st_size / total


def subscribed(store: Path) -> bool:
    """Whether the store knows that it has a session."""
    with closing(sqlite3.connect(store, timeout=30)) as reader, suppress(sqlite3.OperationalError):
        return bool(reader.execute("SELECT session FROM broker").fetchone()[0])
    return False  # it is being made


def processor(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def resident(process: int) -> float:
    """With its helpers, the most that the process itself has had."""
    peak = 0
    helpers = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii").split()
    for one in (process, *map(int, helpers)):
        lines = Path(f"/proc/{one}/status").read_text(encoding="ascii").splitlines()
        peak += next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    return peak / 1024


def main() -> None:
    """Each load so many times, in turn; medians."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    logging.getLogger("mqtt").setLevel(logging.CRITICAL)  # aiomqtt tells of each publication that waits
    found: dict[str, list[tuple[float, float, float, float]]] = {load.name: [] for load in loads()}
    for _ in range(rounds):
        for load in loads():
            with tempfile.TemporaryDirectory() as directory:
                found[load.name].append(measure(load, Path(directory)))
            sys.stderr.write(f"{load.name}: {found[load.name][-1]}\n")
    rows = {name: [median(column) for column in zip(*runs, strict=True)] for name, runs in found.items()}
    first = next(iter(rows.values()))
    for name, (rate, cost, memory, disk) in rows.items():
        sys.stdout.write(
            f"{name}: {rate:.0f} reports/s ({rate / first[0]:.2f}), {cost:.1f} µs, {memory:.0f} MB, {disk:.0f} bytes\n"
        )
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
