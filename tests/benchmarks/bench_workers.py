"""How quickly workers count a backlog into one PostgreSQL, next to `mosquitto_sub` (C) that drains the same one.

python tests/benchmarks/bench_workers.py [--reports 200000] [--rounds 3] [--workers 1 2] [--share 0.25]

With `--share` each worker is held to that share of a core: it is stopped and continued a hundred times a second. The
server is durable (fsync), on the disk of the directory. One topic for each of 20 000 devices.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from processes import fill, processor_s
from servers import Mosquitto, Postgres, need

from hush_aggregator.store.postgres_url import PostgresUrl
from hush_common.task import make_task

_TASK = make_task({"id": "number", "epsilon": "1", "domain": {"kind": "number", "lower": 0.0, "upper": 1.0}})
_SETTINGS = "max_queued_messages 0\nmax_inflight_messages 1000"
_DURABLE = "max_connections = 40\nshared_buffers = 256MB\nmax_wal_size = 4GB\nlog_min_messages = fatal\n"
_PERIOD_S = 0.01


def counted(url: PostgresUrl) -> int:
    with url.connect() as there:
        row = there.execute("SELECT coalesce(sum(n), 0)::bigint FROM tally").fetchone()
        return int(row[0]) if row else 0


def hold(process: subprocess.Popen[bytes], share: float, stop: threading.Event) -> None:
    """Let a process run for a share of the time."""
    while not stop.is_set() and process.poll() is None:
        os.kill(process.pid, signal.SIGCONT)
        time.sleep(_PERIOD_S * share)
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(_PERIOD_S * (1 - share))
    os.kill(process.pid, signal.SIGCONT)


def start(number: int, broker: Mosquitto, store: str, directory: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "hush", "serve", "--broker", broker.url, "--store", store, "--group", "g"]
    command += ["--worker", str(number), "--task", str(directory / "task.json")]
    log = (directory / f"{number}.log").open("wb")
    return subprocess.Popen(command, stderr=log)


def until_connected(number: int, directory: Path) -> None:
    while b"connected to" not in (directory / f"{number}.log").read_bytes():
        time.sleep(0.02)


def drained(workers: int, reports: int, share: float, directory: Path) -> tuple[float, float]:
    """Reports a second from the first commit on, and processor time of a report in µs, of all workers."""
    (directory / "task.json").write_bytes(_TASK.payload)
    (directory / "broker").mkdir()
    broker, server = Mosquitto(directory / "broker", settings=_SETTINGS), Postgres(directory / "postgres", _DURABLE)
    with ExitStack() as inside:
        broker.start()
        inside.callback(broker.stop)
        server.start()
        inside.callback(server.stop, "immediate")
        url = PostgresUrl.parse(server.url)
        for again in range(2):  # the first time only so that the broker keeps their sessions
            running = [start(number, broker, server.url, directory) for number in range(1, workers + 1)]
            for number in range(1, workers + 1):
                until_connected(number, directory)
            if not again:
                for process in running:
                    process.kill()
                    process.wait()
                fill(broker.port, _TASK, range(reports), frame=1)
        stop = threading.Event()
        if share < 1:
            for process in running:
                threading.Thread(target=hold, args=(process, share, stop), daemon=True).start()
        while not (before := counted(url)):
            time.sleep(0.002)
        began, used = time.monotonic(), sum(processor_s(one.pid) for one in running)
        while (now := counted(url)) < reports:
            time.sleep(0.02)
        seconds = time.monotonic() - began
        spent = sum(processor_s(one.pid) for one in running) - used
        stop.set()
        for process in running:
            process.kill()
            process.wait()
        return (now - before) / seconds, 1e6 * spent / (now - before)


def sub(reports: int, directory: Path) -> float:
    """Reports a second of the C client, which keeps nothing."""
    (directory / "broker").mkdir()
    broker = Mosquitto(directory / "broker", settings=_SETTINGS)
    broker.start()
    try:
        command = [need("mosquitto_sub"), "-p", str(broker.port), "-i", "sub", "-c", "-q", "1"]
        command += ["-t", "hush/v1/reports/#"]
        subprocess.run([*command, "-E"], check=True)
        fill(broker.port, _TASK, range(reports), frame=1)
        began = time.monotonic()
        subprocess.run([*command, "-C", str(reports), "-F", "%%"], check=True, stdout=subprocess.DEVNULL)
        return reports / (time.monotonic() - began)
    finally:
        broker.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reports", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--share", type=float, default=1.0)
    options = parser.parse_args()
    found: dict[str, list[tuple[float, float]]] = {}
    for _ in range(options.rounds):
        for workers in options.workers:
            with tempfile.TemporaryDirectory() as name:
                Path(name).chmod(0o755)
                one = drained(workers, options.reports, options.share, Path(name))
                found.setdefault(f"workers: {workers}", []).append(one)
        with tempfile.TemporaryDirectory() as name:
            found.setdefault("mosquitto_sub", []).append((sub(options.reports, Path(name)), 0.0))
    first = median(rate for rate, _ in next(iter(found.values())))
    for name, runs in found.items():
        rate, each = median(rate for rate, _ in runs), median(each for _, each in runs)
        used = f"; {each:.1f} µs of processor time a report" if each else ""
        sys.stdout.write(f"{name}: {rate:.0f} a second, {rate / first:.2f} times the first{used}\n")


if __name__ == "__main__":
    main()
