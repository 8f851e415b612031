"""`hush serve` goes on whatever an estimate does: fails, is NaN, takes minutes, or takes its process with it."""

import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from planting import Plants
from servers import Mosquitto, need
from serving import estimate
from waiting import PATIENCE_S, wait_until

from hush import Task
from hush_common.task import make_task
from hush_common.topics import report_topic
from hush_common.wire import Report, encode_json

pytestmark = pytest.mark.large

SLOW = "takes longer than"  # as any estimate may on a machine with other work
NUMBER = {"kind": "number", "lower": 0.0, "upper": 1000.0}
ONE = (1 << 19) + 1  # next to the middle
MIDDLE = pytest.approx(500, abs=0.01)


def number(name: str) -> Task:
    return make_task({"id": name, "epsilon": "1", "domain": NUMBER})


class World:
    """`hush serve` with planted estimates, and devices that report to it."""

    def __init__(self, broker: Mosquitto, directory: Path, tasks: Sequence[Task], plants: Plants) -> None:
        self._broker, self._environment = broker, plants.environment()
        self._sent = dict.fromkeys(tasks, 0)
        self._log = directory / "log"
        options = ["--broker", broker.url, "--store", str(directory / "hush.sqlite")]
        for task in tasks:
            (directory / f"{task.id}.json").write_bytes(task.payload)
            options += ["--task", str(directory / f"{task.id}.json")]
        self._command = [sys.executable, "-m", "hush", "serve", *options]

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Until the block ends; it must end by itself."""
        with (
            self._log.open("wb") as log,
            subprocess.Popen(self._command, stderr=log, env=self._environment) as server,
        ):
            try:
                wait_until(lambda: "connected to" in self.log)
                yield
                server.send_signal(signal.SIGTERM)
                assert server.wait(PATIENCE_S) == 0
            finally:
                server.kill()

    def send(self, task: Task, count: int = 1) -> None:
        reports = [Report(task.report_digest, 0, secrets.token_bytes(16), (ONE,)) for _ in range(count)]
        lines = b"".join(encode_json(task.id, report) + b"\n" for report in reports)
        program = [need("mosquitto_pub"), "-p", str(self._broker.port), "-q", "1", "-l"]
        subprocess.run([*program, "-t", report_topic(task.id, "device")], input=lines, check=True, timeout=PATIENCE_S)
        self._sent[task] += count

    def fresh(self, task: Task) -> dict[str, Any]:
        """The estimate of all that was sent."""
        return estimate(self._broker.port, self._sent[task], task.id)

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8")

    @property
    def troubles(self) -> list[tuple[str, str]]:
        """What the log says of tasks, by their name."""
        return re.findall(r"WARNING.*task ([a-z-]+), round 0: (.*)", self.log)


def test_what_fails_is_named_and_delays_no_other_task(mosquitto: Mosquitto, tmp_path: Path) -> None:
    kinds = ("dies", "has-no-interval", "is-no-number", "raises")
    bad, healthy = {kind: number(kind) for kind in kinds}, number("healthy")
    plants = Plants(tmp_path, {kind: kind for kind in kinds})
    world = World(mosquitto, tmp_path, [*bad.values(), healthy], plants)
    with world.serving():
        for _ in range(3):
            for task in (*bad.values(), healthy):
                world.send(task)
            world.fresh(healthy)
        documents = {kind: world.fresh(task) for kind, task in bad.items()}
    assert {kind: found["failures"] for kind, found in documents.items()} == {
        "dies": {"estimate": "crashed"},
        "has-no-interval": {"population": "not_finite"},
        "is-no-number": {"estimate": "not_finite"},
        "raises": {"estimate": "failed"},
    }
    assert not {"mean", "intervals", "stderr"} & documents["raises"].keys()
    sound = documents["has-no-interval"]
    assert {"reporters", "anytime"} <= sound["intervals"].keys() == sound["methods"].keys()
    assert "population" not in sound["intervals"]
    assert sound["mean"] == MIDDLE
    assert sorted(name for name, line in world.troubles if SLOW not in line) == sorted(kinds)  # one line each
    assert str(ONE) not in world.log  # no sum of reports, though the planted error has it in its message
    assert "Traceback" not in world.log
    before = plants.attempts()
    with world.serving():  # a start tries each again
        wait_until(lambda: all(plants.attempts()[kind] != before[kind] for kind in kinds))


def test_an_estimate_that_takes_minutes_delays_no_other_task(mosquitto: Mosquitto, tmp_path: Path) -> None:
    kinds = {"clings": "clings 600", "spins": "spins 600", "takes-seconds": "sleeps 3"}
    *minutes, second = [number(name) for name in kinds]
    healthy = number("healthy")
    world = World(mosquitto, tmp_path, [*minutes, second, healthy], Plants(tmp_path, kinds, quick_s=1.5))
    with world.serving():
        world.send(second)
        for task in minutes:
            world.send(healthy)
            world.fresh(healthy)
            world.send(task)
        assert world.fresh(second)["mean"] == MIDDLE
        for task in (second, *minutes):
            world.send(task)
        world.send(healthy, 500)
        assert world.fresh(healthy)["mean"] == MIDDLE
    names = [name for name, _ in world.troubles if name in kinds]  # on a busy machine the healthy one takes long, too
    assert len({*names}) == len(names) >= 2  # one line each
