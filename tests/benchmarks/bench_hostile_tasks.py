"""What others pay for hostile tasks: how late an honest estimate comes, and how much memory `hush serve` takes.

A real mosquitto keeps the hostile tasks; a real `hush serve` counts whatever is published there, which it does not by
itself. One honest report a second; each is waited for in the estimate. `python tests/benchmarks/bench_hostile_tasks.py`
"""

import json
import random
import secrets
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

sys.path.insert(0, str(Path(__file__).parents[1]))
from servers import Mosquitto

from hush import Task
from hush_common.task import make_task
from hush_common.topics import estimate_topic, report_topic, task_topic
from hush_common.wire import Report, encode_frame

HONEST = make_task({"id": "honest", "epsilon": "1", "domain": {"kind": "number", "lower": 0.0, "upper": 1.0}})
LABELS = [f"{number:04d}" + "x" * 90 for number in range(590)]
AXES = [{"name": f"c{number}", "lower": 0.0, "upper": 1.0} for number in range(1024)]


def none() -> Iterator[Task]:
    yield from ()


def many_large() -> Iterator[Task]:
    """10 000 tasks of 58 KB."""
    for number in range(10_000):
        yield make_task({"id": f"a{number}", "epsilon": "1", "domain": {"kind": "category", "labels": LABELS}})


def many_small() -> Iterator[Task]:
    """10 000 tasks of a bit."""
    for number in range(10_000):
        yield make_task({"id": f"a{number}", "epsilon": "1", "domain": {"kind": "bit"}})


def wide() -> Iterator[Task]:
    """Four vectors of 1024 coordinates, 1024 levels and 8 epsilons."""
    offers = [str(number) for number in range(1, 9)]
    for number in range(4):
        yield make_task(
            {"id": f"a{number}", "mechanism": "vector", "epsilon": "8", "offers": offers, "levels": [1024] * 8}
            | {"domain": {"kind": "vector", "coordinates": AXES}}
        )


def rounds() -> Iterator[Task]:
    """A million rounds that have passed, of a vector."""
    yield make_task(
        {"id": "a", "mechanism": "vector", "epsilon": "50", "rounds": 1_000_000, "round_every": "1m"}
        | {"opens": "2020-01-01T00:00:00Z", "levels": 1024, "domain": {"kind": "vector", "coordinates": AXES}}
    )


class Attack:
    """A broker with hostile tasks, and a client that publishes them and watches the honest estimate."""

    def __init__(self, place: Path, hostile: list[Task]) -> None:
        self.hostile = hostile
        self.seen: dict[int, float] = {}  # when which number of honest reports was first told
        self.broker = Mosquitto(place)
        self.broker.start()
        self.client = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv311)
        self.client.on_message = self._told
        self.client.max_inflight_messages_set(1000)
        self.client.connect("127.0.0.1", self.broker.port)
        self.client.loop_start()
        for task in hostile:
            self.client.publish(task_topic(task.id), task.payload, 1, retain=True)
        self.client.publish("x", b"", 1).wait_for_publish(60)
        self.client.subscribe(estimate_topic("honest"))

    def _told(self, _client: object, _data: object, message: paho.MQTTMessage) -> None:
        self.seen.setdefault(json.loads(message.payload)["n"], time.monotonic())

    def report(self) -> float:
        """A report to each of some hostile tasks, then an honest one; when the broker had it."""
        for task in random.sample(self.hostile, min(len(self.hostile), 200)):
            self.client.publish(report_topic(task.id, "evil"), frame(task), 1)
        self.client.publish(report_topic("honest", "d"), frame(HONEST), 1).wait_for_publish(30)
        return time.monotonic()

    def stop(self) -> None:
        self.client.loop_stop()
        self.broker.stop()


def attack(name: str, tasks: Callable[[], Iterator[Task]], reports: int) -> None:
    with TemporaryDirectory() as folder:
        place = Path(folder)
        made = Attack(place, list(tasks()))
        file = place / "honest.json"
        file.write_bytes(HONEST.payload)
        command = [sys.executable, "-m", "hush", "serve", "--broker", made.broker.url, "--store", str(place / "store")]
        command += ["--task", str(file), *(["--any-task"] if _has_any_task() else [])]
        began, peak, sent = time.monotonic(), 0, list[float]()
        server = subprocess.Popen(command, stderr=(place / "log").open("wb"))
        try:
            while 0 not in made.seen and time.monotonic() - began < 300:
                time.sleep(0.02)
                peak = max(peak, memory(server.pid))
            for _ in range(reports):
                sent.append(made.report())
                while time.monotonic() < sent[-1] + 1.1:
                    time.sleep(0.05)
                    peak = max(peak, memory(server.pid))
            time.sleep(5)
        finally:
            server.kill()
            server.wait()
            made.stop()
        told = [min((at for n, at in made.seen.items() if n > k), default=float("inf")) for k in range(reports)]
        late = [at - when for at, when in zip(told, sent, strict=True)]
        grown = sum(file.stat().st_size for file in place.glob("store*"))
        print(  # noqa: T201 - a report to a person
            f"{name:12} first estimate after {made.seen.get(0, float('inf')) - began:6.1f} s; "
            f"delay: median {statistics.median(late):5.2f} s, longest {max(late):5.2f} s; "
            f"memory {peak / 1e6:5.0f} MB; store {grown / 1e6:5.0f} MB",
            flush=True,
        )


def frame(task: Task) -> bytes:
    width = task.randomizer.width
    round_ = secrets.randbelow(task.rounds) if task.rounds > 1 else 0
    body = tuple(range(width)) if width > 1 else (0,)
    return encode_frame([Report(task.report_digest, round_, secrets.token_bytes(16), body)])


def memory(process: int) -> int:
    """Resident bytes of a process and what it started."""
    try:
        status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
        children = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii").split()
    except OSError:
        return 0
    resident = next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")), 0)
    return 1024 * resident + sum(map(memory, map(int, children)))


def _has_any_task() -> bool:
    shown = subprocess.run(
        [sys.executable, "-m", "hush", "serve", "--help"], capture_output=True, text=True, check=True
    )
    return "--any-task" in shown.stdout


if __name__ == "__main__":
    ATTACKS = {"none": none, "many-large": many_large, "many-small": many_small, "wide": wide, "rounds": rounds}
    for wanted in sys.argv[1:] or ATTACKS:
        attack(wanted, ATTACKS[wanted], 20)
