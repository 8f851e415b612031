"""Devices in every language answer one task, killed and started again between rounds: each counts once a round."""

import os
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from fleet import PROGRAMS, command
from port_programs import C_PORT, CLIENT, compiled_device
from processes import Serve
from servers import Mosquitto, need
from waiting import wait_until

from hush import Task
from hush_common.task import make_task
from hush_common.wire import Frame, decode

SIZE, ROUNDS, ROUND_S = 10, 5, 35  # enough to start 40 devices on two cores, which takes some 10 s


class Device:
    """A process of one language, with its state."""

    def __init__(self, language: str, number: int, directory: Path) -> None:
        self.sender, self._language, self._directory = f"{language}-{number}", language, directory
        self._place = directory / self.sender
        (self._place / "state").mkdir(parents=True)
        self._place.chmod(0o700)
        (self._place / "value").write_text("15\n", encoding="utf-8")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, broker: Mosquitto, task: Task) -> None:
        """Its budget is what all rounds cost: a device that is charged twice for one misses the last."""
        files = {"state": str(self._place / "state"), "value_file": str(self._place / "value")}
        told = {"broker": broker.url, "task": task.id, "max_epsilon": str(task.epsilon), "spread": "0", **files}
        told |= {"sender": self.sender, "source_timeout": "5"}
        words = command(self._language, CLIENT, self._directory)
        words = [word.format(**told, epsilon=told["max_epsilon"]) if "{" in word else word for word in words]
        environment = os.environ | {f"HUSH_{name.upper()}": text for name, text in told.items()}
        with (self._place / "log").open("ab") as out:
            self._process = subprocess.Popen(
                words, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )

    def kill(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


@contextmanager
def observed(broker: Mosquitto, path: Path) -> Iterator[None]:
    """Another subscriber to reports, which writes what it receives into a file."""
    with path.open("wb") as out:
        words = [need("mosquitto_sub"), "-p", str(broker.port), "-q", "1", "-t", "hush/v1/reports/#", "-F", "%t %x"]
        with subprocess.Popen(words, stdout=out) as watcher:
            try:
                yield
            finally:
                watcher.terminate()


def frames(path: Path) -> dict[tuple[int, str], list[bytes]]:
    """What arrived, by round and sender."""
    found: dict[tuple[int, str], list[bytes]] = defaultdict(list)
    whole, _, _ = path.read_text(encoding="utf-8").rpartition("\n")  # the last line may not be written to its end
    for topic, _, text in (line.partition(" ") for line in whole.splitlines()):
        frame = decode(bytes.fromhex(text))
        assert isinstance(frame, Frame)
        found[frame.round, topic.rpartition("/")[2]].append(bytes.fromhex(text))
    return found


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_mixed_fleet_is_charged_once_a_round_and_counted_once(mosquitto: Mosquitto, tmp_path: Path) -> None:
    opens = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=20)
    draft = {"id": "room", "epsilon": str(2 * ROUNDS), "domain": {"kind": "number", "lower": 15.0, "upper": 30.0}}
    task = make_task(
        {**draft, "mechanism": "auto", "rounds": ROUNDS, "round_every": f"{ROUND_S}s", "opens": opens.isoformat()}
    )
    compiled_device(tmp_path, C_PORT / "hush_line.c", sanitized=False)
    fleet = [Device(language, number, tmp_path) for language in PROGRAMS for number in range(SIZE)]
    path, serve = tmp_path / "observed", Serve(mosquitto.url, tmp_path, None, task=task).start()
    serve.until_connected()
    with observed(mosquitto, path), ExitStack() as inside:
        for device in fleet:
            inside.callback(device.kill)
        for number in range(ROUNDS):
            begins = opens + number * timedelta(seconds=ROUND_S)
            time.sleep(max((begins - datetime.now(UTC)).total_seconds(), 0))
            for device in fleet:
                device.start(mosquitto, task)
            waiting = {device.sender: device for device in fleet}
            while waiting and datetime.now(UTC) < begins + timedelta(seconds=ROUND_S):
                there = frames(path)
                for sender in [sender for sender in waiting if (number, sender) in there]:
                    waiting.pop(sender).kill()  # when the broker has its report
                time.sleep(0.2)
            assert not waiting
        wait_until(lambda: serve.n == len(fleet) * ROUNDS)
    assert serve.end() == 0
    found = frames(path)
    assert found.keys() == {(number, device.sender) for number in range(ROUNDS) for device in fleet}
    assert {len(set(payloads)) for payloads in found.values()} == {1}, "the same bytes, however often"
    made = {report.id for payloads in found.values() for report in decode(payloads[0]).reports}  # type: ignore[union-attr]
    assert sorted(serve.ids()) == sorted(made)
