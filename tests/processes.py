"""`hush serve` in a process of its own: start, kill and restart it, and compare what it stored with what was made."""

import asyncio
import atexit
import hashlib
import os
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

from waiting import wait_until

from hush import Task
from hush_common.mechanisms import Offers
from hush_common.rng import SystemRng
from hush_common.task import make_task
from hush_common.topics import report_topic
from hush_common.wire import Report, encode_frame

if TYPE_CHECKING:
    from hush_aggregator.delivery.recalls import RecallReason

HEIGHTS = make_task({"id": "heights", "epsilon": "1", "domain": {"kind": "number", "lower": 0.0, "upper": 1.0}})
_STARTED: "list[subprocess.Popen[bytes]]" = []


@atexit.register
def _end_all() -> None:
    """End what a test that failed has left behind."""
    for process in _STARTED:
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(60)
    _STARTED.clear()


@dataclass
class Serve:
    """`hush serve`, with its helpers a group of processes of its own.

    Args:
        url: the broker.
        directory: where its store, its task and its log are.
        over: seconds over which its recalls are spread at least, in a hurry (`hasty_serve`); 0 for no recalls; None for
            `hush serve` as it is.
        per_second: reports that a recall brings each second.
        task: a task of its own, if any.
        options: further ones.
        name: of its log.
        database: the address of its store, if that is no file.
    """

    url: str
    directory: Path
    over: int | None = 2
    per_second: int = 20_000
    task: Task | None = HEIGHTS
    options: Sequence[str] = ()
    name: str = "serve"
    database: str = ""
    process: "subprocess.Popen[bytes] | None" = field(default=None, repr=False)

    @property
    def store(self) -> Path:
        return self.directory / "hush.sqlite3"

    def start(self) -> Self:
        program = ["-m", "hush"]
        if self.over is not None:
            program = [str(Path(__file__).parent / "hasty_serve.py"), str(self.over), str(self.per_second)]
        words = ["serve", "--broker", self.url, "--store", self.database or str(self.store), *self.options]
        if self.task is not None:
            file = self.directory / "task.json"
            file.write_bytes(self.task.payload)
            words += ["--task", str(file)]
        with (self.directory / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen([sys.executable, *program, *words], stderr=log, start_new_session=True)
        _STARTED.append(self.process)
        return self

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def send_signal(self, number: int) -> None:
        """To the process and its helpers."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End the process; SIGKILL ends its helpers, too. Return its code."""
        assert self.process is not None
        process = self.process
        if number == signal.SIGKILL:
            self.send_signal(number)
        else:
            self.send_signal(signal.SIGCONT)
            process.send_signal(number)
        self.process = None
        return process.wait(60)

    @property
    def log(self) -> str:
        """What it has said since the first start."""
        path = self.directory / f"{self.name}.log"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def until_connected(self, times: int = 1) -> None:
        wait_until(lambda: self.log.count("aggregator: connected") >= times)

    async def connected(self, times: int = 1) -> None:
        """Wait until it has connected as often as this."""
        await asyncio.to_thread(self.until_connected, times)

    def until_subscribed(self) -> None:
        """Wait until reports wait for it on the broker, whether it runs or not."""
        wait_until(lambda: self._select("SELECT session FROM broker"))

    @property
    def n(self) -> int:
        """How many reports its tallies have."""
        return self._select("SELECT coalesce(sum(n), 0) FROM tally")

    def _select(self, query: str) -> int:
        if self.store.exists():
            with suppress(sqlite3.OperationalError), closing(sqlite3.connect(self.store, timeout=30)) as reader:
                return int(reader.execute(query).fetchone()[0])
        return 0  # it is being made

    def ids(self) -> list[bytes]:
        """The ids of all reports, of which the tallies have as many."""
        from stored import counted_ids  # noqa: PLC0415 - not of an earlier hush that a benchmark compares with

        ids, n = counted_ids(self.store)
        assert len(ids) == n
        return ids

    def counted(self) -> tuple[int, int]:
        """How many reports are stored, and how many the tallies have, at one moment."""
        from stored import counted_ids  # noqa: PLC0415 - as above

        if not self.store.exists():
            return 0, 0
        ids, n = counted_ids(self.store)
        return len(ids), n

    def told(self) -> "dict[RecallReason, int]":
        """How often it recalled, and why."""
        from hush_aggregator.delivery.recalls import RecallReason  # noqa: PLC0415 - as above

        return {cause: self.log.count(cause.value) for cause in RecallReason}

    @property
    def processor_s(self) -> float:
        """Its processor time in seconds, without that of its helpers."""
        assert self.process is not None
        return processor_s(self.process.pid)

    @property
    def resident_mb(self) -> float:
        """The most memory that the process that counts has had, in MB."""
        assert self.process is not None
        with suppress(FileNotFoundError):
            for line in Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii").splitlines():
                if line.startswith("VmHWM"):
                    return int(line.split()[1]) / 1024
        return 0.0


def processor_s(pid: int) -> float:
    """Processor time of a process in seconds, without that of its helpers."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def slowed(service: Serve, running: float = 0.05, stopped: float = 0.15) -> Iterator[None]:
    """Give the service a share of a core: it runs and stands still in turn."""
    over = threading.Event()

    def alternate() -> None:
        while not over.is_set():
            service.send_signal(signal.SIGSTOP)
            time.sleep(stopped)
            service.send_signal(signal.SIGCONT)
            over.wait(running)

    turns = threading.Thread(target=alternate)
    turns.start()
    try:
        yield
    finally:
        over.set()
        turns.join()
        service.send_signal(signal.SIGCONT)


def spent(state: Path) -> tuple[int, int]:
    """Charges in the ledgers of a device or gateway, and devices that they are of."""
    from hush_client.state.database import FILE_NAME  # noqa: PLC0415 - not of an earlier hush

    with closing(sqlite3.connect(state / FILE_NAME)) as reader:
        charges, devices = reader.execute("SELECT count(*), count(DISTINCT device) FROM charge").fetchone()
    return charges, devices


# A backlog of reports whose ids are known

_UNDER_WAY = 2000
_PIECE = 500


def report_id(number: int) -> bytes:
    """The id of a report, as random as any, and known in advance."""
    return hashlib.blake2b(b"%d" % number, digest_size=16).digest()


def _publish(topic: str, payload: bytes, packet_id: int, *, retain: bool = False) -> bytes:
    name = topic.encode()
    body = struct.pack(">H", len(name)) + name + struct.pack(">H", packet_id) + payload
    length, digits = len(body), bytearray()
    while length > 0x7F:
        digits.append(length & 0x7F | 0x80)
        length >>= 7
    digits.append(length)
    return bytes((0x32 | retain,)) + bytes(digits) + body


class _Publisher:
    """A client of MQTT 3.1.1 that publishes at QoS 1 as quickly as the broker acknowledges."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        identifier = b"filler-" + os.urandom(6).hex().encode()
        body = b"\x00\x04MQTT\x04\x02\x00\x00" + struct.pack(">H", len(identifier)) + identifier
        self._socket.sendall(bytes((0x10, len(body))) + body)
        assert self._socket.recv(4) == b"\x20\x02\x00\x00"
        self._left = b""
        self._unanswered = self._number = 0

    def send(self, messages: Sequence[tuple[str, bytes]], *, retain: bool = False) -> None:
        packets = []
        for topic, payload in messages:
            self._number = self._number % 65_535 + 1
            packets.append(_publish(topic, payload, self._number, retain=retain))
        self._socket.sendall(b"".join(packets))
        self._unanswered += len(packets)
        self.wait(_UNDER_WAY)

    def wait(self, most: int = 0) -> None:
        while self._unanswered > most:
            data = self._left + self._socket.recv(65_536)
            assert data, "the broker hung up"
            self._unanswered -= len(data) // 4
            self._left = data[len(data) // 4 * 4 :]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.wait()
        self._socket.sendall(b"\xe0\x00")
        self._socket.close()


def fill(
    port: int,
    task: Task,
    numbers: range,
    *,
    senders: int = 20_000,
    frame: int = 1,
    bodies: Sequence[tuple[int, ...]] = (),
) -> None:
    """Publish reports with these numbers, a frame a message, each sender on a topic of its own; of 100 bodies."""
    randomizer, rng = task.randomizer, SystemRng()
    assert not isinstance(randomizer, Offers)
    bodies = bodies or [randomizer.perturb(0, rng) for _ in range(100)]
    digest = getattr(task, "report_digest", task.digest)  # benchmarks run this file with an earlier hush, too
    topics = [report_topic(task.id, f"device-{sender}") for sender in range(senders)]
    with _Publisher(port) as publisher:
        for start in range(numbers.start, numbers.stop, _PIECE * frame):
            messages = []
            for first in range(start, min(start + _PIECE * frame, numbers.stop), frame):
                reports = [
                    Report(digest, 0, report_id(number), bodies[number % 100])
                    for number in range(first, min(first + frame, numbers.stop))
                ]
                messages.append((topics[first // frame % senders], encode_frame(reports)))
            publisher.send(messages)


def retain(port: int, messages: Sequence[tuple[str, bytes]]) -> None:
    """Leave retained messages on the broker."""
    with _Publisher(port) as publisher:
        for start in range(0, len(messages), 100):
            publisher.send(messages[start : start + 100], retain=True)
