"""What hostile and idle clients of HTTP cost the intake: a head that never ends, 500 streams, bodies of 100 MB.

python tests/benchmarks/bench_http_intake.py [PAIRS]    (seven pairs in turn take five minutes)
"""

import asyncio
import logging
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench_sizing import Load, counted, fill, processor, subscribed
from servers import Mosquitto, free_port

from hush_common.task_file import make_task

_MESSAGES = 20_000
_STREAMS = 500
_DRIPPING = 20
_BODY = 100_000_000
_HEAD = b"Host: localhost\r\n"
_DRAFT = {"id": "number", "epsilon": "1", "domain": {"kind": "number", "lower": 0.0, "upper": 1.0}}
_LOAD = Load("a number, a message each", make_task(_DRAFT), _MESSAGES, 1)


async def _drip(port: int) -> None:
    while True:
        with suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\n" + _HEAD)
            while not writer.is_closing():
                writer.write(b"X: y\r\n")
                await writer.drain()
                await asyncio.sleep(0.5)


async def _follow(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /v1/events HTTP/1.1\r\n" + _HEAD + b"\r\n")
    while await reader.read(65_536):
        pass


async def _flood(port: int) -> None:
    while True:
        with suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"POST /v1/tasks HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + _HEAD + b"\r\n")
            portion, sent = b"10000\r\n" + bytes(65_536) + b"\r\n", 0
            while sent < _BODY:
                writer.write(portion)
                await writer.drain()
                sent += len(portion)
        await asyncio.sleep(1)


async def attack(port: int) -> None:
    """All at once, until the process ends."""
    async with asyncio.TaskGroup() as group:
        for _ in range(_STREAMS):
            group.create_task(_follow(port))
            await asyncio.sleep(0.002)
        for _ in range(_DRIPPING):
            group.create_task(_drip(port))
        group.create_task(_flood(port))
        sys.stdout.write("attacking\n")
        sys.stdout.flush()


def measure(directory: Path, *, attacked: bool) -> tuple[float, float]:
    """Reports a second, and processor time of a report in µs."""
    (directory / "broker").mkdir()
    broker = Mosquitto(directory / "broker", settings="max_queued_messages 0\nmax_inflight_messages 1000")
    broker.start()
    store, task, port = directory / "store", directory / "task.json", free_port()
    task.write_bytes(_LOAD.task.payload)
    command = [sys.executable, "-m", "hush", "serve", "--broker", broker.url, "--store", str(store)]
    command += ["--task", str(task), "--http", f"127.0.0.1:{port}"]
    others = []
    try:
        first = subprocess.Popen(command, stderr=subprocess.DEVNULL)  # so that its session is there
        while not (store.exists() and subscribed(store)):
            time.sleep(0.2)
        first.send_signal(signal.SIGTERM)
        first.wait(30)
        asyncio.run(fill(broker, _LOAD))
        broker_process = broker.process
        assert broker_process is not None
        os.kill(broker_process.pid, signal.SIGSTOP)  # the attack stands before the intake begins
        server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        while socket.socket().connect_ex(("127.0.0.1", port)):
            time.sleep(0.05)
        if attacked:
            others.append(
                subprocess.Popen([sys.executable, __file__, "attack", str(port)], stdout=subprocess.PIPE, text=True)
            )
            assert others[0].stdout is not None
            assert others[0].stdout.readline() == "attacking\n"
        os.kill(broker_process.pid, signal.SIGCONT)
        while not (before := counted(store)):
            time.sleep(0.005)
        began, used = time.monotonic(), processor(server.pid)
        while counted(store) < _MESSAGES:
            time.sleep(0.02)
        seconds, spent = time.monotonic() - began, processor(server.pid) - used
        server.send_signal(signal.SIGTERM)
        server.wait(30)
    finally:
        for other in others:
            other.kill()
            other.wait()
        broker.stop()
    return (_MESSAGES - before) / seconds, 1e6 * spent / (_MESSAGES - before)


def main() -> None:
    """Pairs in turn; the median of their ratios."""
    if sys.argv[1:2] == ["attack"]:
        asyncio.run(attack(int(sys.argv[2])))
        return
    logging.getLogger("mqtt").setLevel(logging.CRITICAL)  # aiomqtt tells of each publication that waits
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    ratios, costs = [], []
    for pair in range(pairs):
        found = {}
        for attacked in (False, True) if pair % 2 else (True, False):
            with tempfile.TemporaryDirectory() as directory:
                found[attacked] = measure(Path(directory), attacked=attacked)
        ratios.append(found[True][0] / found[False][0])
        costs.append(found[True][1] / found[False][1])
        quiet, hostile = (f"{rate:.0f} reports/s, {cost:.0f} us each" for rate, cost in (found[False], found[True]))
        sys.stdout.write(f"quiet {quiet}; attacked {hostile}; ratio {ratios[-1]:.2f}\n")
        sys.stdout.flush()
    middle = f"{statistics.median(ratios):.2f}, of processor time {statistics.median(costs):.2f}"
    sys.stdout.write(f"median ratio of intake {middle}\n")


if __name__ == "__main__":
    main()
