# ruff: noqa: T201 - printing is its job
"""What readers cost the intake at a steady 10 000 reports a second.

A real mosquitto and a real `hush serve --http`; readers with 200 streams of events and 50 requests a second, or none,
in turn. `python tests/benchmarks/bench_readers.py [people]` takes about two minutes. With `people`, each stream is that
of somebody who has the page of the task open: it is fetched within a second of a change, and at most every 1.5 s.
"""

import asyncio
import json
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
from bench_service import TASK, counted, length, packets, service, wait, worked
from servers import Mosquitto

RATE = 10_000
SECONDS = 8
PAIRS = 5
STREAMS = 200
REQUESTS = 50
PAGE = f"/tasks/{TASK.id}"
PLACES = ("/healthz", "/", PAGE, f"/v1/tasks/{TASK.id}/rounds/latest", "/v1/tasks")


class Seen:
    """What readers saw."""

    def __init__(self) -> None:
        self.statuses: Counter[int] = Counter()
        self.events = 0
        self.took = dict[str, list[float]](healthz=[], others=[])

    def __str__(self) -> str:
        return json.dumps({"statuses": self.statuses, "events": self.events, **self.took})


class Person:
    """A reader with an address of its own: follows a stream and, with the page open, fetches it when it has changed."""

    def __init__(self, number: int, port: int, seen: Seen) -> None:
        self._number, self._port, self._seen = number, port, seen

    async def follow(self, *, page: bool) -> None:
        reader, _ = await self._get("/v1/events" + f"?task={TASK.id}" * page)
        self._seen.statuses[int((await reader.readline()).split()[1])] += 1
        last = -1.5 * self._number / STREAMS
        fetch = await self._connect() if page else None
        while data := await reader.read(1 << 16):
            self._seen.events += data.count(b"event: result")
            if fetch and b"event: result" in data and time.perf_counter() > last + 1.5:
                await asyncio.sleep(random.random())  # noqa: S311 - it hides nothing
                last = time.perf_counter()
                await self._fetch(*fetch)

    async def _fetch(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        began = time.perf_counter()
        writer.write(self._request(PAGE))
        head = await reader.readuntil(b"\r\n\r\n")
        found = re.search(rb"content-length: (\d+)", head)
        assert found, head
        await reader.readexactly(int(found[1]))
        self._seen.took["others"].append(time.perf_counter() - began)
        self._seen.statuses[int(head.split()[1])] += 1

    async def _get(self, place: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await self._connect()
        writer.write(self._request(place))
        return reader, writer

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self._port, local_addr=(f"127.0.1.{1 + self._number}", 0))

    @staticmethod
    def _request(place: str) -> bytes:
        return f"GET {place} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept-Encoding: gzip\r\n\r\n".encode()


async def until_ended() -> asyncio.Event:
    end = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end.set)
    return end


async def follow(port: int, *, pages: bool) -> None:
    """Follow all streams until SIGTERM; then print what was seen."""
    end, seen = await until_ended(), Seen()
    streams = [asyncio.create_task(Person(k, port, seen).follow(page=pages)) for k in range(STREAMS)]
    async with asyncio.timeout(60):
        while seen.statuses.total() < STREAMS:  # noqa: ASYNC110 - a count has no event
            await asyncio.sleep(0.1)
    print("ready", flush=True)
    await end.wait()
    for task in streams:
        task.cancel()
    print(seen, flush=True)


async def ask(port: int) -> None:
    """Make requests at a steady rate until SIGTERM; then print what was seen."""
    end, seen = await until_ended(), Seen()

    async def request(client: httpx.AsyncClient, place: str) -> None:
        began = time.perf_counter()
        answer = await client.get(place)
        seen.took["healthz" if place == "/healthz" else "others"].append(time.perf_counter() - began)
        seen.statuses[answer.status_code] += 1

    print("ready", flush=True)
    limits = httpx.Limits(max_connections=REQUESTS, max_keepalive_connections=REQUESTS)
    async with (
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30, limits=limits) as client,
        asyncio.TaskGroup() as group,
    ):
        began = time.perf_counter()
        for number in range(10**6):
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, began + number / REQUESTS - time.perf_counter())):
                    await end.wait()
            if end.is_set():
                break
            group.create_task(request(client, PLACES[number % len(PLACES)]))
    print(seen, flush=True)


def quantiles(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    at = {"median": 0.5, "p99": 0.99, "longest": 1.0}
    found = {name: ordered[min(len(ordered) - 1, int(share * len(ordered)))] for name, share in at.items()}
    return ", ".join(f"{name} {1000 * second:.1f} ms" for name, second in found.items()) + f" of {len(ordered)}"


class Publisher:
    """Publishes at a steady rate, however quickly the broker answers."""

    def __init__(self, port: int) -> None:
        self._link = socket.create_connection(("127.0.0.1", port))
        hello = b"\x00\x04MQTT\x04\x02\x00\x00\x00\x05bench"
        self._link.sendall(b"\x10" + length(len(hello)) + hello)
        self._link.recv(4)
        threading.Thread(target=self._drain, daemon=True).start()

    def _drain(self) -> None:
        with suppress(OSError):
            while self._link.recv(1 << 16):
                pass

    def publish(self, sent: list[bytes], store: Path, before: int) -> list[int]:
        """Send a piece each tenth of a second. Return the backlog at each: how many are sent and not counted."""
        began, backlog = time.perf_counter(), []
        for number, piece in enumerate(sent):
            time.sleep(max(0.0, began + number / 10 - time.perf_counter()))
            backlog.append(before + number * RATE // 10 - counted(store))
            self._link.sendall(piece)
        return backlog


def child(process: int) -> int:
    """The process of HTTP."""
    for pid in Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii").split():
        if b"http.process" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return int(pid)
    raise LookupError


def main() -> None:
    with TemporaryDirectory() as folder, ExitStack() as inside:
        place = Path(folder)
        broker = Mosquitto(place)
        broker.start()
        inside.callback(broker.stop)
        (place / "task.json").write_bytes(TASK.payload)
        store = place / "store.sqlite"
        arguments = ["--broker", broker.url, "--store", str(store), "--task", str(place / "task.json"), "--http"]
        client, process = inside.enter_context(service("serve", *arguments))
        http, publisher = child(process), Publisher(broker.port)
        ratios, total, seconds = [], 0, defaultdict[str, list[float]](list)
        for pair in range(-1, PAIRS):  # the first is not counted
            cost = dict[bool, float]()
            for is_read in (False, True) if pair % 2 else (True, False):
                sent = [packets(RATE // 10) for _ in range(10 * SECONDS)]
                readers = []
                for name in (sys.argv[1] if sys.argv[1:] else "streams", "ask") if is_read else ():
                    command = [sys.executable, __file__, name, str(client.base_url.port)]
                    reader = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
                    assert reader.stdout is not None
                    reader.stdout.readline()
                    readers.append((name, reader))
                before, http_before = worked(process), worked(http)
                backlog = publisher.publish(sent, store, total)
                total += RATE * SECONDS
                wait(lambda total=total: counted(store) >= total)  # type: ignore[misc]  # of this turn
                cost[is_read] = 1e6 * (worked(process) - before) / (RATE * SECONDS)
                http_s = worked(http) - http_before
                half = len(backlog) // 2
                told = f"{cost[is_read]:.1f} us a report, HTTP {http_s / SECONDS:.2f} of a core"
                told += (
                    f", backlog {statistics.median(backlog[:half]):.0f} then {statistics.median(backlog[half:]):.0f}"
                )
                told += f", at most {max(backlog)}"
                print(f"pair {pair}, {'readers' if is_read else 'alone'}: {told}", flush=True)
                for name, reader in readers:
                    reader.send_signal(signal.SIGTERM)
                    seen = json.loads(reader.communicate(timeout=30)[0])
                    print(f"  {name}: statuses {seen['statuses']}, {seen['events']} events", flush=True)
                    for kind in ("healthz", "others") if pair >= 0 else ():
                        seconds[kind if name == "ask" else f"{name}, {kind}"] += seen[kind]
            if pair >= 0:
                ratios.append(cost[True] / cost[False])
        each = ", ".join(f"{ratio:.2f}" for ratio in ratios)
        for name, found in seconds.items():
            if found:
                print(f"{name}: {quantiles(found)}")
        median = statistics.median(ratios)
        print(f"processor time of the intake a report, with readers / alone: median {median:.2f} of {each}")


if __name__ == "__main__":
    if sys.argv[2:]:
        asyncio.run(
            ask(int(sys.argv[2])) if sys.argv[1] == "ask" else follow(int(sys.argv[2]), pages=sys.argv[1] == "people")
        )
    else:
        main()
