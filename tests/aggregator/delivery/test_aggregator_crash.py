"""SIGKILL at random moments: 20 000 reports on mosquitto are counted exactly once each."""

import json
import random
import secrets
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from servers import Mosquitto
from stored import counted_ids
from waiting import wait_until

from hush_aggregator import SqliteReader
from hush_common.task import make_task
from hush_common.wire import Report, encode_frame

REPORTS = 20_000
KILLS = 6
DOCUMENT = {"id": "heights", "epsilon": "1", "domain": {"kind": "number", "lower": 120.0, "upper": 220.0}}
HEIGHTS = make_task(DOCUMENT)
BODIES = range(-REPORTS // 2, REPORTS // 2)


def publish_evenly(port: int, seconds: float, turns: threading.Semaphore) -> None:
    """All reports at QoS 1, spread over `seconds`, in equal parts for each turn, each acknowledged by the broker."""
    client = paho.Client(CallbackAPIVersion.VERSION2, client_id=f"p-{secrets.token_hex(4)}")
    client.max_inflight_messages_set(1000)
    client.connect("127.0.0.1", port)
    client.loop_start()
    sent = []
    for k, body in enumerate(BODIES):
        if k % -(-REPORTS // KILLS) == 0:
            turns.acquire()
        frame = encode_frame([Report(HEIGHTS.report_digest, 0, secrets.token_bytes(16), (body,))])
        sent.append(client.publish("hush/v1/reports/heights/device", frame, qos=1))
        if k % 100 == 0:
            time.sleep(100 * seconds / REPORTS)
    for message in sent:
        message.wait_for_publish(60)
    client.disconnect()
    client.loop_stop()


class Server:
    """`hush serve` in a process of its own."""

    def __init__(self, url: str, directory: Path) -> None:
        self._log = directory / "serve.log"
        self.store = directory / "hush.sqlite"
        task = directory / "task.json"
        task.write_text(json.dumps(DOCUMENT), encoding="utf-8")
        self._command = [sys.executable, "-m", "hush", "serve", "--broker", url]
        self._command += ["--store", str(self.store), "--task", str(task)]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start, and wait until it has subscribed."""
        before = self.log().count("connected")
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stderr=log)
        wait_until(lambda: self.log().count("connected") > before)

    def end(self, number: signal.Signals) -> int:
        assert self._process is not None
        self._process.send_signal(number)
        return self._process.wait(60)

    def log(self) -> str:
        return self._log.read_text(encoding="utf-8") if self._log.exists() else ""

    def steps(self) -> list[int]:
        """The counts of the steps of the round."""
        with SqliteReader(self.store) as reader:
            return [step.n for step in reader.steps(HEIGHTS.digest, 0)]

    def counted(self) -> tuple[int, int]:
        """Rows, and n of the tally, at one moment."""
        ids, n = counted_ids(self.store)
        return len(ids), n


@pytest.mark.large
@pytest.mark.parametrize("seed", [2026])
def test_a_report_counts_once_however_often_the_aggregator_is_killed(
    mosquitto: Mosquitto, tmp_path: Path, seed: int
) -> None:
    moments = random.Random(seed)  # noqa: S311 - repeatable on purpose
    server = Server(mosquitto.url, tmp_path)
    turns = threading.Semaphore(0)
    publisher = threading.Thread(target=publish_evenly, args=(mosquitto.port, 4.0, turns), name="publisher")
    publisher.start()
    server.start()
    on_the_way = 0
    for kill in range(KILLS):
        turns.release()  # reports come before, while and after it is killed, however slow this machine is
        time.sleep(moments.uniform(0.02, 0.6))
        if on_the_way or kill:  # only the first may come before anything is counted
            wait_until(lambda: server.counted()[1])
        assert server.end(signal.SIGKILL) == -signal.SIGKILL
        rows, n = server.counted()
        assert rows == n
        assert all(step <= n for step in server.steps())
        on_the_way += 0 < n < REPORTS
        server.start()
    assert on_the_way >= KILLS // 2  # or else the kills came too late to prove anything
    publisher.join()
    wait_until(lambda: server.counted() == (REPORTS, REPORTS))
    assert server.end(signal.SIGTERM) == 0
    assert server.counted() == (REPORTS, REPORTS)
    assert server.steps()[-1] == REPORTS
    assert len(server.steps()) <= 2  # an hour may have ended meanwhile
    with closing(sqlite3.connect(server.store)) as reader:
        (moments_text,) = reader.execute("SELECT moments FROM tally").fetchone()
        reasons = {reason for (reason,) in reader.execute("SELECT reason FROM refusal")}
    assert json.loads(moments_text)[:2] == [sum(BODIES), sum(k * k for k in BODIES)]
    assert reasons <= {"duplicate"}
    assert "Traceback" not in server.log()
