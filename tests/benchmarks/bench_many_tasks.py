"""What many tasks cost: a batch of reports for one task or thousands, a start with 10 000, minutes of their reports.

python tests/benchmarks/bench_many_tasks.py cost | start [TASKS] | minutes [TASKS] [SECONDS]   (the last two: mosquitto)
"""

import json
import os
import secrets
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from threading import Thread

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion
from servers import Mosquitto
from stored import stored_ids

from hush import Task
from hush_aggregator import SqliteStore
from hush_aggregator.count.intake import admit, decode, receive
from hush_common.task import make_task
from hush_common.topics import Delivery, report_topic
from hush_common.wire import HEADER, VERSION, Report, encode_frame, encode_json

_BATCH = 2000
_NUMBER: dict[str, object] = {"domain": {"kind": "number", "lower": 0.0, "upper": 1.0}, "mechanism": "laplace"}
_BIT: dict[str, object] = {"domain": {"kind": "bit"}}


def make(count: int, fields: dict[str, object]) -> list[Task]:
    return [make_task({"id": f"t{k}", "epsilon": "1", **fields}) for k in range(count)]


# The cost of a batch


def batch(tasks: list[Task], *, as_json: bool) -> list[Delivery]:
    found = []
    for k in range(_BATCH):
        task = tasks[k % len(tasks)]
        report = Report(task.report_digest, 0, secrets.token_bytes(16), (secrets.randbelow(2),))
        payload = encode_json(task.id, report) if as_json else encode_frame([report])
        found.append(Delivery(report_topic(task.id, f"device-{k % 50}"), payload))
    return found


def cost(turns: int = 15) -> None:
    """Processor time of a report, by tasks in the batch and by its form; medians of batches in turns."""
    for name, fields in {"laplace": _NUMBER, "randomized_response": _BIT}.items():
        tasks = make(_BATCH, fields)
        known = {task.id: task for task in tasks}
        kinds = [(1, False), (100, False), (_BATCH, False), (1, True), (_BATCH, True)]
        seconds: dict[tuple[int, bool], list[float]] = {kind: [] for kind in kinds}
        with tempfile.TemporaryDirectory() as directory:
            stores = {kind: SqliteStore(Path(directory) / f"{kind}") for kind in kinds}
            for _ in range(turns):
                for (count, as_json), store in stores.items():
                    messages = batch(tasks[:count], as_json=as_json)
                    began = time.process_time()
                    admitted = admit(decode(receive(messages).reports), known, datetime.now(UTC))
                    outcome = store.commit(admitted.accepted, admitted.refused)
                    seconds[count, as_json].append(time.process_time() - began)
                    assert outcome.accepted == _BATCH
            for store in stores.values():
                store.close()
        least = median(seconds[1, False])
        for (count, as_json), times in seconds.items():
            form, each = "JSON" if as_json else "frames", 1e6 * median(times) / _BATCH
            print(f"{name}, {form}, {count} tasks: {each:.1f} us a report, {median(times) / least:.2f}")  # noqa: T201


# A real service


class Watcher:
    """What is published of tasks, and when last."""

    def __init__(self, port: int) -> None:
        self.first: dict[str, dict[str, float]] = {"tasks": {}, "estimates": {}}
        self.times: dict[str, list[float]] = {}
        self._client = paho.Client(CallbackAPIVersion.VERSION2)
        self._client.on_message = self._take
        self._client.connect("127.0.0.1", port)
        self._client.subscribe([("hush/v1/tasks/+", 0), ("hush/v1/estimates/+", 0)])
        self._client.loop_start()

    def _take(self, _: object, __: object, message: paho.MQTTMessage) -> None:
        kind, name = message.topic.split("/")[2:]
        self.first[kind].setdefault(name, time.monotonic())
        if kind == "estimates":
            self.times.setdefault(name, []).append(time.monotonic())

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


@contextmanager
def world(count: int) -> Iterator[tuple[Mosquitto, Path, list[Task]]]:
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        (place / "broker").mkdir()
        broker, tasks = Mosquitto(place / "broker"), make(count, _NUMBER)
        with SqliteStore(place / "store") as store:
            store.add_tasks(tasks)
        broker.start()
        try:
            yield broker, place / "store", tasks
        finally:
            broker.stop()


def serve(broker: Mosquitto, store: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "hush", "serve", "--broker", broker.url, "--store", str(store)]
    return subprocess.Popen(command, stderr=store.with_name("log").open("ab"))


def processor(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def stop(server: "subprocess.Popen[bytes]") -> float:
    began = time.monotonic()
    server.send_signal(signal.SIGTERM)
    server.wait(60)
    return time.monotonic() - began


def start(count: int) -> None:
    """Seconds from the start of the process until all tasks are published, and all estimates."""
    with world(count) as (broker, store, _):
        watcher = Watcher(broker.port)
        began, server = time.monotonic(), serve(broker, store)
        try:
            while min(len({*seen} - {"probe"}) for seen in watcher.first.values()) < count:
                time.sleep(0.05)
                assert time.monotonic() - began < 170, {kind: len(seen) for kind, seen in watcher.first.items()}
            spent, ended = processor(server.pid), stop(server)
            for kind, seen in watcher.first.items():
                found = sorted(at - began for at in seen.values())
                print(f"{kind}: first after {found[0]:.1f} s, all {count} after {found[count - 1]:.1f} s")  # noqa: T201
            print(f"processor time of the service: {spent:.1f} s; it stopped within {ended:.1f} s")  # noqa: T201
        finally:
            server.kill()
            watcher.close()


def send(port: int, tasks: list[Task], until: float, sent: list[bytes]) -> None:
    """One frame a second for each task at QoS 1, spread evenly; ids in `sent`."""
    with socket.create_connection(("127.0.0.1", port)) as broker:
        name = b"bench-many-tasks"
        rest = b"\x00\x04MQTT\x04\x02\x00\x00" + len(name).to_bytes(2, "big") + name
        broker.sendall(bytes([0x10, len(rest)]) + rest)
        Thread(target=lambda: [None for _ in iter(lambda: broker.recv(1 << 16), b"")], daemon=True).start()
        heads = [
            (report_topic(task.id, "d").encode(), HEADER.pack(VERSION, 0, 8, task.report_digest, 0)) for task in tasks
        ]
        began, number, slices = time.monotonic(), 0, 50
        for turn in range(1 << 30):
            if time.monotonic() >= until:
                time.sleep(2)
                return
            packets = bytearray()
            for topic, head in heads[turn % slices :: slices]:
                number = number % 65_535 + 1
                sent.append(secrets.token_bytes(16))
                payload = head + sent[-1] + struct.pack(">q", secrets.randbelow(1 << 20))
                body = struct.pack(">H", len(topic)) + topic + struct.pack(">H", number) + payload
                packets += bytes([0x32, len(body)]) + body
            broker.sendall(packets)
            time.sleep(max(0.0, began + (turn + 1) / slices - time.monotonic()))


def minutes(count: int, seconds: float) -> None:
    """One frame a second for each task: what is counted, and how old the oldest estimate was."""
    with world(count) as (broker, store, tasks):
        watcher, server = Watcher(broker.port), serve(broker, store)
        sent: list[bytes] = []
        try:
            while len(watcher.first["estimates"]) < count:
                time.sleep(0.1)
            watcher.times.clear()
            spent, began = processor(server.pid), time.monotonic()
            send(broker.port, tasks, began + seconds, sent)
            waited = time.monotonic()
            with closing(sqlite3.connect(store, timeout=30)) as reader:
                while (n := reader.execute("SELECT sum(n) FROM tally").fetchone()[0]) < len(sent):
                    time.sleep(0.2)
                    assert time.monotonic() - waited < 60, f"{n} of {len(sent)}"
            late, end = time.monotonic() - waited, began + seconds
            spent = (processor(server.pid) - spent) / (time.monotonic() - began)
            assert {*stored_ids(store)} == set(sent)
            gaps = [
                max(after - before for before, after in zip([began, *inside], [*inside, end], strict=True))
                for times in (watcher.times.get(task.id, []) for task in tasks)
                for inside in [[at for at in times if at < end]]
            ]
            print(  # noqa: T201
                f"{len(sent)} reports, all counted {late:.1f} s after the last; the oldest estimate was {max(gaps):.1f}"
                f" s old, {median(gaps):.1f} s the median of the tasks; {spent:.2f} of a core"
            )
            print(json.dumps({"stopped_s": stop(server)}))  # noqa: T201
        finally:
            server.kill()
            watcher.close()


def main() -> None:
    """See the module."""
    what, *rest = sys.argv[1:] or ["cost"]
    numbers = [int(text) for text in rest]
    if what == "cost":
        cost()
    elif what == "start":
        start(*numbers or [10_000])
    else:
        minutes(numbers[0] if numbers else 10_000, numbers[1] if numbers[1:] else 300)


if __name__ == "__main__":
    main()
