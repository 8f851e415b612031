"""A backlog of reports at a real broker, and `hush serve` that counts it, slowed down or killed."""

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
from pathlib import Path
from typing import Self

from hush import Task
from hush_common.mechanisms import Offers
from hush_common.rng import SystemRng
from hush_common.topics import report_topic
from hush_common.wire import Report, encode_frame

__all__ = ["Service", "counted_ids", "fill", "report_id", "retain", "slowed", "subscribed"]

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


def fill(port: int, task: Task, numbers: range, *, senders: int = 20_000, frame: int = 1) -> None:
    """Publish reports with these numbers, a frame a message, each sender on a topic of its own."""
    randomizer, rng = task.randomizer, SystemRng()
    assert not isinstance(randomizer, Offers)
    bodies = [randomizer.perturb(0, rng) for _ in range(100)]
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


def subscribed(store: Path) -> bool:
    """Whether the store knows that it has a session on the broker."""
    with suppress(sqlite3.OperationalError), closing(sqlite3.connect(store, timeout=30)) as reader:
        return bool(reader.execute("SELECT session FROM broker").fetchone()[0])
    return False  # it is being made


def counted_ids(store: Path) -> list[bytes]:
    """The ids of all reports that are counted."""
    from stored import stored_ids  # noqa: PLC0415 - not of an earlier hush that a benchmark compares with

    return stored_ids(store)


def processor_s(pid: int) -> float:
    """Processor time of a process in seconds, without that of its helpers."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Service:
    """`hush serve` as a process, with its helpers a group of its own.

    Args:
        url: of the broker.
        store: its file.
        options: further ones.
    """

    def __init__(self, url: str, store: Path, *options: str) -> None:
        self.store = store
        self.log = store.with_suffix(".log")
        command = [sys.executable, "-m", "hush", "serve", "--broker", url, "--store", str(store), *options]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stderr=log, start_new_session=True)

    def counted(self) -> int:
        """How many reports are counted."""
        with suppress(sqlite3.OperationalError), closing(sqlite3.connect(self.store, timeout=30)) as reader:
            return int(reader.execute("SELECT coalesce(sum(n), 0) FROM tally").fetchone()[0])
        return 0

    def until_subscribed(self, timeout: float = 60) -> None:
        """Wait until reports wait for it, whether it runs or not."""
        end = time.monotonic() + timeout
        while not (self.store.exists() and subscribed(self.store)):
            assert time.monotonic() < end, self.text
            time.sleep(0.05)

    def signal(self, number: int) -> None:
        """To the process and its helpers."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.wait(60)

    def stop(self, timeout: float = 60) -> float:
        """SIGTERM; the seconds that it took."""
        began = time.monotonic()
        self.signal(signal.SIGCONT)
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout)
        assert code == 0, f"{code}: {self.text}"
        return time.monotonic() - began

    @property
    def resident_mb(self) -> float:
        """The most memory that the process that counts has had, in MB."""
        with suppress(FileNotFoundError):
            for line in Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii").splitlines():
                if line.startswith("VmHWM"):
                    return int(line.split()[1]) / 1024
        return 0.0

    @property
    def processor_s(self) -> float:
        """Its processor time in seconds, without that of its helpers."""
        return processor_s(self.process.pid)

    @property
    def text(self) -> str:
        """Its log, of all starts with this store."""
        return self.log.read_text(encoding="utf-8")


@contextmanager
def slowed(service: Service, running: float = 0.05, stopped: float = 0.15) -> Iterator[None]:
    """Give the service a share of a core: it runs and stands still in turn."""
    over = threading.Event()

    def alternate() -> None:
        while not over.is_set():
            service.signal(signal.SIGSTOP)
            time.sleep(stopped)
            service.signal(signal.SIGCONT)
            over.wait(running)

    turns = threading.Thread(target=alternate)
    turns.start()
    try:
        yield
    finally:
        over.set()
        turns.join()
        service.signal(signal.SIGCONT)
