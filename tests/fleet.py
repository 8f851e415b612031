"""Devices of all languages that answer one task, each killed and started again between rounds."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import exp, lgamma, log, log1p
from pathlib import Path

from port_programs import CLIENT, micropython_module
from servers import Mosquitto, need

from hush_common.mechanisms.mechanism import Mechanism
from hush_common.task import Task
from hush_common.wire import Frame, decode

__all__ = ["LANGUAGES", "Fleet", "Observed", "unlikely_outputs"]

LANGUAGES = ("python", "c", "node", "micropython")
_TESTS = Path(__file__).parent
FALSE_ALARM = 1e-9


def command(language: str, client: Path, directory: Path) -> list[str]:
    """The program of a device by the contract of docs/conform.md."""
    match language:
        case "python":
            return [sys.executable, str(_TESTS / "conform_client.py")]
        case "c":
            return [sys.executable, str(_TESTS / "ports" / "line_device.py"), str(directory / "hush_line")]
        case "node":
            words = ["{broker}", "--device", "{sender}", "--state", "{state}", "--value-file", "{value_file}"]
            limits = ["--task", "{task}", "--spread", "0", "--max-epsilon", "{epsilon}", "--lifetime", "{epsilon}"]
            return [need("node"), str(client / "ports" / "js" / "bin" / "hush-device.js"), *words, *limits]
        case _:
            port = str(client / "ports" / "micropython")
            return [need("node"), str(_TESTS / "ports" / "micropython_device.mjs"), str(micropython_module()), port]


@dataclass
class Observed:
    """What another subscriber of the broker received."""

    frames: dict[tuple[int, str], list[bytes]] = field(default_factory=lambda: defaultdict(list))
    counted: Counter[int] = field(default_factory=Counter)  # the reports of each round, by the aggregator

    def round(self, number: int) -> set[str]:
        """The senders whose report of a round arrived."""
        return {sender for (round_, sender), _ in self.frames.items() if round_ == number}

    def bodies(self, language: str) -> list[tuple[int, ...]]:
        """The bodies of the reports of one language, each once."""
        found = [decode(payloads[0]) for (_, sender), payloads in self.frames.items() if sender.startswith(language)]
        return [report.body for frame in found if isinstance(frame, Frame) for report in frame.reports]

    def ids(self) -> set[bytes]:
        found = [decode(payload) for payloads in self.frames.values() for payload in payloads]
        return {report.id for frame in found if isinstance(frame, Frame) for report in frame.reports}


@dataclass
class Fleet:
    """`size` devices of each language, that answer a task on a broker.

    Args:
        clients: where the ports of a language are; of those that are missing, `CLIENT`.
    """

    broker: Mosquitto
    directory: Path
    size: int
    value: str
    languages: Sequence[str] = LANGUAGES
    clients: Mapping[str, Path] = field(default_factory=dict)

    @property
    def senders(self) -> list[str]:
        return [f"{language}-{number}" for language in self.languages for number in range(self.size)]

    @contextmanager
    def running(self, task: str, epsilon: str) -> Iterator[None]:
        """All devices, until they are killed at the end of the block."""
        processes = [self._started(sender, task, epsilon) for sender in self.senders]
        try:
            yield
        finally:
            for process in processes:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _started(self, sender: str, task: str, epsilon: str) -> "subprocess.Popen[bytes]":
        place = self.directory / sender
        (place / "state").mkdir(parents=True, exist_ok=True)
        place.chmod(0o700)
        (place / "value").write_text(f"{self.value}\n", encoding="utf-8")
        told = {"broker": self.broker.url, "task": task, "sender": sender, "state": str(place / "state")}
        told |= {"value_file": str(place / "value"), "max_epsilon": epsilon, "spread": "0"}
        language = sender.partition("-")[0]
        words = command(language, self.clients.get(language, CLIENT), self.directory)
        words = [word.format(**told, epsilon=epsilon) if "{" in word else word for word in words]
        environment = os.environ | {f"HUSH_{name.upper()}": text for name, text in told.items()}
        with (place / "log").open("ab") as log_file:
            return subprocess.Popen(words, env=environment, stdout=log_file, stderr=log_file, start_new_session=True)

    @contextmanager
    def observed(self) -> Iterator[Path]:
        """A subscriber to reports and estimates, and the file that it writes."""
        path = self.directory / "observed"
        topics = ["-t", "hush/v1/reports/#", "-t", "hush/v1/estimates/#"]
        with path.open("wb") as out:
            arguments = [need("mosquitto_sub"), "-p", str(self.broker.port), "-q", "1", *topics, "-F", "%t %x"]
            watcher = subprocess.Popen(arguments, stdout=out)
            try:
                yield path
            finally:
                watcher.terminate()
                watcher.wait()


def read(path: Path) -> Observed:
    found = Observed()
    whole, _, _ = path.read_text(encoding="utf-8").rpartition("\n")  # the last line may be in the middle of its writing
    for line in whole.splitlines():
        topic, _, text = line.partition(" ")
        payload = bytes.fromhex(text)
        if topic.startswith("hush/v1/reports/"):
            frame = decode(payload)
            if isinstance(frame, Frame):
                found.frames[frame.round, topic.rpartition("/")[2]].append(payload)
        elif payload:
            document = json.loads(payload)
            if "n" in document:  # else it is a probe of the aggregator's rights
                found.counted[document["round"]] = document["n"]
    return found


def wait(path: Path, number: int, senders: Sequence[str], until: datetime, *, counted: bool = False) -> None:
    """Wait until every sender's report of a round has arrived, or is counted; or the time is over."""
    while datetime.now(UTC) < until:
        found = read(path)
        if found.round(number) == set(senders) and (not counted or found.counted[number] >= len(senders)):
            return
        time.sleep(0.1)


def answer_rounds(fleet: Fleet, path: Path, task: Task, epsilon: str) -> Observed:
    """Let a fleet answer every round of a task; it is killed as soon as the reports of a round are on the broker."""
    assert task.opens is not None
    assert task.round_every is not None
    for number in range(task.rounds):
        opens = task.opens + number * task.round_every
        time.sleep(max((opens - datetime.now(UTC)).total_seconds(), 0))
        with fleet.running(task.id, epsilon):
            wait(path, number, fleet.senders, opens + task.round_every - timedelta(seconds=1))
        wait(path, number, fleet.senders, opens + task.round_every, counted=True)
    return read(path)


def unlikely_outputs(mechanism: Mechanism, index: int, bodies: Sequence[tuple[int, ...]]) -> dict[tuple[int, ...], int]:
    """The outputs whose number is too unlikely under the law: exact binomial tails, `FALSE_ALARM` for all together."""
    counts, outputs = Counter(bodies), list(mechanism.outputs())
    found = {body: count for body, count in counts.items() if body not in outputs}
    for body in outputs:
        p, n, k = float(mechanism.probability(body, index)), len(bodies), counts[body]
        low = sum(_binomial(n, j, p) for j in range(k + 1))
        high = sum(_binomial(n, j, p) for j in range(k, n + 1))
        if min(low, high) < FALSE_ALARM / (2 * len(outputs)):
            found[body] = k
    return found


def _binomial(n: int, k: int, p: float) -> float:
    return exp(lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1) + k * log(p) + (n - k) * log1p(-p))
