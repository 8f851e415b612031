"""What HTTP costs the intake, and how quickly a service of a thousand tasks and ten million reports answers.

A real mosquitto, a real `hush serve --http`, a real `hush http`. `python tests/benchmarks/bench_service.py [WHAT …]`:
`intake` and `size`, by default both.
"""

import asyncio
import json
import os
import secrets
import signal
import socket
import sqlite3
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from servers import Mosquitto, free_port

from hush import Task
from hush_aggregator import SqliteStore
from hush_aggregator.estimate.mechanisms import sums
from hush_aggregator.store import Accepted
from hush_aggregator.store.reading import seal
from hush_common.task import make_task
from hush_common.topics import report_topic
from hush_common.wire import Report, encode_frame

BIT = {"epsilon": "1", "domain": {"kind": "bit"}}
TASK = make_task({"id": "intake", **BIT})
REPORTS = 60_000
PAIRS = 7
STREAMS = 500
LORIS = 100
BODY = 100 * 1000 * 1000
TASKS, EACH = 1000, 10_000


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - a report to a person


@contextmanager
def service(*arguments: str) -> Iterator[tuple[httpx.Client, int]]:
    """A command of hush that serves HTTP, which it is told the place of last."""
    port = free_port()
    with (
        subprocess.Popen([sys.executable, "-m", "hush", *arguments, f"127.0.0.1:{port}"]) as process,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client,
    ):
        try:
            wait(lambda: client.get("/readyz").status_code == 200)
            yield client, process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def wait(there: Callable[[], bool]) -> None:
    for _ in range(3000):
        with suppress(httpx.HTTPError):
            if there():
                return
        time.sleep(0.02)
    raise TimeoutError


# The intake, beside whoever wants to hold it up


def packets(count: int) -> bytes:
    """As many reports, as packets of MQTT 3.1.1: the fastest publisher."""
    topic = report_topic(TASK.id, "bench").encode()
    found = bytearray()
    for number in range(count):
        payload = encode_frame([Report(TASK.report_digest, 0, secrets.token_bytes(16), (1,))])
        body = len(topic).to_bytes(2, "big") + topic + (number % 65_535 + 1).to_bytes(2, "big") + payload
        found += b"\x32" + length(len(body)) + body
    return bytes(found)


def length(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number % 128 | 128, number // 128])


def publish(port: int, sent: bytes, count: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as link:
        hello = b"\x00\x04MQTT\x04\x02\x00\x3c\x00\x05bench"
        link.sendall(b"\x10" + length(len(hello)) + hello)
        link.recv(4)
        threading.Thread(target=link.sendall, args=(sent,), daemon=True).start()
        left = 4 * count
        while left:
            left -= len(link.recv(1 << 16))


def counted(path: Path) -> int:
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as reader:
        return int(reader.execute("SELECT coalesce(sum(n), 0) FROM tally").fetchone()[0])


def worked(process: int) -> float:
    """Seconds of processor time of a process, which others on the machine do not change."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Attack:
    """Idle streams of events, connections that send a byte a second, and a body that is far too long, again and again.

    In a process of its own, so that the intake does not wait for the attacker.
    """

    def __init__(self, port: int) -> None:
        command = [sys.executable, __file__, "attack", str(port)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._out = self._process.stdout
        assert "ready" in self._out.readline()

    def end(self) -> str:
        self._process.send_signal(signal.SIGTERM)
        told = self._out.read()
        self._process.wait(30)
        return told.strip()


async def attack(port: int) -> None:  # noqa: C901 - three attackers, one after the other
    """500 streams, 100 slow-loris connections, and bodies of 100 MB one after the other."""
    loop = asyncio.get_running_loop()
    end = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, end.set)
    opening = asyncio.Semaphore(16)
    seen = {"streams": 0, "events": 0, "bodies": 0, "slow": 0}

    async def stream() -> None:
        status, reader = b"", asyncio.StreamReader()
        while b"200" not in status:
            async with opening:  # so many requests at once are answered
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"GET /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                status = await reader.readline()
        seen["streams"] += 1
        while data := await reader.read(1 << 16):
            seen["events"] += data.count(b"event: result")

    async def slow() -> None:
        while True:
            with suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                seen["slow"] += 1
                for byte in b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * 10_000:
                    writer.write(bytes([byte]))
                    await writer.drain()
                    await asyncio.sleep(1)

    async def body() -> None:
        head = f"POST /v1/tasks HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n{BODY:x}\r\n".encode()
        while True:
            with suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(head)
                for _ in range(BODY // 100_000):
                    writer.write(bytes(100_000))
                    await writer.drain()
            seen["bodies"] += 1
            await asyncio.sleep(0.1)

    tasks = [asyncio.create_task(stream()) for _ in range(STREAMS)]
    tasks += [asyncio.create_task(slow()) for _ in range(LORIS)]
    tasks += [asyncio.create_task(body())]
    async with asyncio.timeout(60):
        while seen["streams"] < STREAMS:  # noqa: ASYNC110 - a count has no event
            await asyncio.sleep(0.1)
    await asyncio.sleep(2)
    say("ready")
    with suppress(TimeoutError):
        async with asyncio.timeout(120):
            await end.wait()
    say(json.dumps(seen))


def intake() -> None:
    """Reports a second with the attack and without, in turn, in one service."""
    with TemporaryDirectory() as folder, ExitStack() as inside:
        place = Path(folder)
        broker = Mosquitto(place)
        broker.start()
        inside.callback(broker.stop)
        (place / "task.json").write_bytes(TASK.payload)
        store = place / "store.sqlite"
        arguments = ["--broker", broker.url, "--store", str(store), "--task", str(place / "task.json"), "--http"]
        client, process = inside.enter_context(service("serve", *arguments))
        port = client.base_url.port
        assert port is not None
        ratios, works, total = [], [], 0
        for pair in range(-1, PAIRS):  # the first is not counted
            rates, work = {}, {}
            for attacked in (False, True) if pair % 2 else (True, False):
                attacker = Attack(port) if attacked else None
                sent = packets(REPORTS)
                total += REPORTS
                began, before = time.perf_counter(), worked(process)
                publish(broker.port, sent, REPORTS)
                while counted(store) < total:
                    time.sleep(0.01)
                rates[attacked] = REPORTS / (time.perf_counter() - began)
                work[attacked] = worked(process) - before
                told = "" if attacker is None else attacker.end()
                if told:
                    say(f"  the attacker saw {told}")
            say(f"pair {pair}: {rates[False]:.0f}/s alone, {rates[True]:.0f}/s attacked")
            if pair >= 0:
                ratios.append(rates[True] / rates[False])
                works.append(work[False] / work[True])
        for what, found in (
            ("reports a second, attacked / alone", ratios),
            ("processor time, alone / attacked", works),
        ):
            each = ", ".join(f"{ratio:.2f}" for ratio in found)
            say(f"{what}: median {statistics.median(found):.2f} of {each}")


# A large store


def planted(path: Path) -> list[Task]:
    """A store of a thousand tasks and ten million counted reports. The reports themselves nothing here looks at."""
    tasks = [make_task({"id": f"t{number:04d}", **BIT, "title": f"Question {number}"}) for number in range(TASKS)]
    with SqliteStore(path) as store:
        for number, task in enumerate(tasks):
            store.add_task(task)
            bodies = np.zeros((EACH, 1), dtype=np.int64)
            bodies[: EACH // 3 + number] = 1
            row = task.digest, 0, EACH, json.dumps(sums(task.randomizer, bodies))
            store._connection.execute("INSERT INTO tally VALUES (?, ?, ?, ?, ?)", (*row, seal(*row)))
    return tasks


def size() -> None:
    with TemporaryDirectory() as folder, ExitStack() as inside:
        path = Path(folder) / "store.sqlite"
        tasks = planted(path)
        began = time.perf_counter()
        client, _ = inside.enter_context(service("http", "--store", str(path), "--bind"))
        say(f"`hush http` answers {time.perf_counter() - began:.2f} s after its start")
        timed("the page, first of all requests", lambda: client.get("/"), 1, 0)
        came, first, stream = listening(inside, client)
        wait(lambda: len(first) == TASKS)
        say(f"all {TASKS} documents have come {max(first.values()) - stream:.2f} s after the stream was opened")
        timed("/metrics", lambda: client.get("/metrics"), 20, 1.05)
        timed("the page", lambda: client.get("/"), 20, 0.1)
        timed("the page of a task", lambda: client.get("/tasks/t0500"), 20, 0.1)
        late = []
        with SqliteStore(path) as store:
            for number in range(30):
                task = tasks[37 * number % TASKS]
                ids = np.frombuffer(secrets.token_bytes(16), dtype="V16")
                came.pop(task.id, None)
                store.commit([Accepted(task, 0, ids, np.ones((1, 1), dtype=np.int64))], {})
                committed = time.perf_counter()
                wait(lambda task=task: task.id in came)  # type: ignore[misc]  # of this turn
                late.append(came[task.id] - committed)
                time.sleep(secrets.randbelow(1000) / 1000)
        median, longest = statistics.median(late), max(late)
        say(f"an event after its commit: median {median:.2f} s, longest {longest:.2f} s of {len(late)}")


def timed(what: str, ask: Callable[[], httpx.Response], times: int, pause: float) -> None:
    """Milliseconds until the whole answer is there."""
    took = []
    for _ in range(times):
        time.sleep(pause)
        began = time.perf_counter()
        answer = ask()
        took.append(1000 * (time.perf_counter() - began))
        assert answer.status_code == 200, answer.text
    median = statistics.median(took)
    say(f"{what}: median {median:.0f} ms, longest {max(took):.0f} ms of {times}; {len(answer.content)} bytes")


def listening(inside: ExitStack, client: httpx.Client) -> tuple[dict[str, float], dict[str, float], float]:
    """When the document of each task came last, and first; when the stream was opened."""
    last: dict[str, float] = {}
    first: dict[str, float] = {}
    began = time.perf_counter()
    stream = inside.enter_context(client.stream("GET", "/v1/events"))

    def listen() -> None:
        with suppress(httpx.HTTPError):
            for line in stream.iter_lines():
                if line.startswith("data: {") and '"task":"' in line:
                    task = json.loads(line[6:])["task"]
                    last[task] = time.perf_counter()
                    first.setdefault(task, last[task])

    threading.Thread(target=listen, daemon=True).start()
    return last, first, began


if __name__ == "__main__":
    wanted = sys.argv[1:] or ["intake", "size"]
    if wanted[0] == "attack":
        asyncio.run(attack(int(wanted[1])))
    else:
        for name in wanted:
            {"intake": intake, "size": size}[name]()
