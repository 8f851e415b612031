"""Processes of a group of workers, what readers of their estimates see, and a database that does not answer one."""

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion
from servers import Mosquitto
from stores import StorePlace
from waiting import wait_until

from hush_aggregator.store.postgres_url import PostgresUrl
from hush_common.task import make_task
from hush_common.wire import Report, encode_frame

__all__ = ["HEIGHTS", "Watcher", "Worker", "by_worker", "freeze", "holder", "two_workers"]

HEIGHTS = make_task({"id": "heights", "epsilon": "1", "domain": {"kind": "number", "lower": 0.0, "upper": 1.0}})


class Worker:
    """A process of `hush serve --group`."""

    def __init__(self, name: str, login: Sequence[str], place: StorePlace, directory: Path) -> None:
        assert isinstance(place.address, PostgresUrl)
        (directory / "task.json").write_bytes(HEIGHTS.payload)
        port = place.address.options["port"]
        store = f"postgresql://hush@127.0.0.1:{port}/postgres?schema={place.address.schema}"
        self._command = [sys.executable, "-m", "hush", "serve", *login, "--store", store]
        self._command += ["--group", "g", "--worker", name, "--task", str(directory / "task.json")]
        self._log = directory / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stderr=log)

    @property
    def said(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def send_signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def end(self, number: int = signal.SIGTERM) -> int:
        assert self.process is not None
        with suppress(ProcessLookupError):
            self.process.send_signal(number)
        return self.process.wait(60)

    def is_connected(self) -> bool:
        return "connected to" in self.said.rpartition("stopped")[2]


class Watcher:
    """Every estimate that is published, with the time, and every recall."""

    def __init__(self, broker: Mosquitto) -> None:
        self.seen: list[tuple[float, dict[str, object]]] = []
        self.states: dict[str, str] = {}  # of the workers
        self.recalls: list[bytes] = []
        self._client = paho.Client(CallbackAPIVersion.VERSION2, client_id=secrets.token_hex(4))
        self._client.on_connect = lambda client, *_: client.subscribe(
            [("hush/v1/estimates/heights", 1), ("hush/v1/status/+", 1), ("hush/v1/recalls/+", 1)]
        )
        self._client.on_message = self._take
        self._client.reconnect_delay_set(1, 1)
        self._client.connect("127.0.0.1", broker.port)
        self._client.loop_start()

    def _take(self, _client: object, _data: object, message: paho.MQTTMessage) -> None:
        if message.topic.startswith("hush/v1/status/"):
            self.states[message.topic.rpartition("-")[2]] = message.payload.decode()
        elif message.topic.startswith("hush/v1/recalls/"):
            self.recalls.append(bytes(message.payload))
        elif message.payload:
            self.seen.append((time.monotonic(), json.loads(message.payload)))

    def has_seen(self, *, lease: int, n: int) -> bool:
        """Whether there was an estimate under this lease or a later one, of so many reports at least."""
        return any(document["lease"] >= lease and document["n"] >= n for _, document in self.seen)  # type: ignore[operator]

    def send(self, count: int, ids: list[bytes]) -> None:
        """Publish so many reports of so many devices; note their ids once the broker has acknowledged them."""
        sent = []
        for _ in range(count):
            one = Report(HEIGHTS.report_digest, 0, secrets.token_bytes(16), (1,))
            topic = f"hush/v1/reports/heights/device-{secrets.randbelow(50)}"
            sent.append((one.id, self._client.publish(topic, encode_frame([one]), qos=1)))
        for id_, info in sent:
            info.wait_for_publish(60)
            ids.append(id_)

    def publish_estimate(self, document: dict[str, object]) -> None:
        self._client.publish("hush/v1/estimates/heights", json.dumps(document), qos=1, retain=True)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


@contextmanager
def two_workers(broker: Mosquitto, place: StorePlace, directory: Path) -> Iterator[tuple[Worker, Worker]]:
    login = "--broker", broker.url
    both = Worker("1", login, place, directory), Worker("2", login, place, directory)
    with ExitStack() as inside:
        for one in both:
            one.start()
            inside.callback(one.end, signal.SIGKILL)
            inside.callback(one.send_signal, signal.SIGCONT)
        wait_until(lambda: all(one.is_connected() for one in both))
        yield both


def holder(place: StorePlace) -> tuple[str, int]:
    with place.read() as reader:
        found: tuple[str, int] = reader.lease()  # type: ignore[attr-defined]  # of PostgreSQL
        return found


def by_worker(place: StorePlace) -> dict[str, int]:
    assert isinstance(place.address, PostgresUrl)
    with place.address.connect() as there:
        return dict(there.execute("SELECT worker, sum(n)::int FROM tally GROUP BY worker").fetchall())


def freeze(place: StorePlace, worker: str, number: int) -> None:
    """Stop the server's processes that serve a worker, so that none of its questions gets an answer."""
    assert isinstance(place.address, PostgresUrl)
    with place.address.connect() as there:
        query = "SELECT pid FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'advisory'"
        pids = [row[0] for row in there.execute(f"{query} AND objid = %s", (_lock(place, worker),)).fetchall()]
    if number == signal.SIGSTOP:
        assert pids, worker
        _FROZEN[place.address.schema, worker] = pids
    for pid in _FROZEN.get((place.address.schema, worker), pids):
        with suppress(ProcessLookupError):
            os.kill(pid, number)


_FROZEN: dict[tuple[str, str], list[int]] = {}


def _lock(place: StorePlace, worker: str) -> int:
    assert isinstance(place.address, PostgresUrl)
    with place.address.connect() as there:
        text = f"hush {place.address.schema} {worker}"
        row = there.execute("SELECT (hashtextextended(%s, 0) & 4294967295)::bigint", (text,)).fetchone()
        assert row is not None
        return int(row[0])
