"""Devices of all languages that answer one task, each killed and started again between rounds.

A device in a browser is a page: Chromium has one page for each, of an origin that no other has, all in one profile on
the disk. A signal that kills Chromium kills all its pages.
"""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fractions import Fraction
from math import exp, lgamma, log, log1p
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

from browser_site import served_page
from page_browser import CHROMIUM, CHROMIUM_ARGUMENTS
from port_programs import CLIENT, micropython_module
from servers import Mosquitto, free_port, missing, need

from hush import Task
from hush_client.state.database import FILE_NAME
from hush_common.mechanisms.mechanism import Mechanism
from hush_common.wire import Frame, decode

__all__ = ["FALSE_ALARM", "LANGUAGES", "PROGRAMS", "Fleet", "Observed", "answer_rounds", "p_value", "spent"]

PROGRAMS = ("python", "c", "node", "micropython")
LANGUAGES = (*PROGRAMS, "browser")
_TESTS = Path(__file__).parent
FALSE_ALARM = 1e-9
_BROWSER = "browser-"
_PAGE = """<!doctype html><meta charset="utf-8">
<script type="module">
import { Device, openIndexedDB } from "/hush/index.js";
const asked = new URLSearchParams(location.search), { url, task, sender, value, epsilon } = Object.fromEntries(asked);
for (const address of asked.getAll("open")) window.open(address, "_blank", "noopener");
if (sender) {
  const limits = { maxEpsilon: epsilon, lifetime: epsilon }, storage = await openIndexedDB();
  const device = await new Device({ url, storage, device: sender, spread: 0, ...limits }).open();
  document.title = `${sender} ${(await device.ledger()).total}`;
  await device.answerEachRound(task, () => value, { sourceTimeout: 0 });
}
</script>
"""


def command(language: str, client: Path, directory: Path) -> list[str]:
    """The program of a device by the contract of docs/conform.md. `directory` has what was compiled."""
    match _kind(language):
        case "python":
            return [sys.executable, str(_TESTS / "conform_client.py")]
        case "c":
            return [sys.executable, str(_TESTS / "ports" / "line_device.py"), str(directory / "hush_line")]
        case "node":
            words = ["{broker}", "--device", "{sender}", "--state", "{state}", "--value-file", "{value_file}"]
            limits = ["--task", "{task}", "--spread", "0", "--max-epsilon", "{epsilon}", "--lifetime", "{epsilon}"]
            limits.append("--sticky")
            return [need("node"), str(client / "ports" / "js" / "bin" / "hush-device.js"), *words, *limits]
        case _:
            port = str(client / "ports" / "micropython")
            return [need("node"), str(_TESTS / "ports" / "micropython_device.mjs"), str(micropython_module()), port]


def _kind(name: str) -> str:
    """The language of a group or sender, which may have more in its name: `c` of `c.mirrored-7`."""
    return name.partition("-")[0].partition(".")[0]


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
        ours = [payloads for (_, sender), payloads in self.frames.items() if sender.startswith(f"{language}-")]
        found = [decode(payloads[0]) for payloads in ours]
        return [report.body for frame in found if isinstance(frame, Frame) for report in frame.reports]

    def ids(self) -> set[bytes]:
        found = [decode(payload) for payloads in self.frames.values() for payload in payloads]
        return {report.id for frame in found if isinstance(frame, Frame) for report in frame.reports}


@dataclass
class Running:
    """The devices that run, by sender, and Chromium with all pages."""

    processes: "dict[str, subprocess.Popen[bytes]]"
    browser: "subprocess.Popen[bytes] | None" = None
    pages: AbstractSet[str] = frozenset()

    def kill(self, senders: AbstractSet[str]) -> bool:
        """Kill devices, and the browser if these are all its pages; return whether none is left."""
        for sender in senders & self.processes.keys():
            _kill(self.processes.pop(sender))
        if self.browser is not None and self.pages <= senders:
            _kill(self.browser)
            self.browser = None
        return not self.processes and self.browser is None


@dataclass
class Fleet:
    """`size` devices of each language, that answer a task on a broker.

    Args:
        languages: the groups. One may have a dot and a name after its language.
        clients: where the ports of a group are, and its compiled programs; of those that are missing, `CLIENT` and
            `directory`.
    """

    broker: Mosquitto
    directory: Path
    size: int
    value: str
    languages: Sequence[str] = LANGUAGES
    clients: Mapping[str, Path] = field(default_factory=dict)
    page_port: int = field(default_factory=free_port)  # always the same: the state of a page belongs to its origin

    @property
    def senders(self) -> list[str]:
        return [f"{language}-{number}" for language in self.languages for number in range(self.size)]

    @contextmanager
    def page(self) -> Iterator[None]:
        """A server of the page that is a device, if there are any."""
        if "browser" not in self.languages:
            yield
            return
        if not CHROMIUM.exists():
            missing(f"{CHROMIUM} is not installed")
        source = self.clients.get("browser", CLIENT) / "ports" / "js" / "src"
        modules = {file.name: file for file in source.glob("*.js")}
        with served_page(self.directory / "site", _PAGE, modules, self.page_port):
            yield

    @contextmanager
    def running(self, task: str, epsilon: str) -> Iterator["Running"]:
        """All devices; those that are left at the end of the block are killed then."""
        told = {"broker": self.broker.url, "task": task, "max_epsilon": epsilon, "spread": "0"}
        told["source_timeout"] = "5"  # of Python: a value that is late on a busy machine would be replaced
        pages = {sender for sender in self.senders if sender.startswith(_BROWSER)}
        devices = Running({sender: self._started(sender, told) for sender in self.senders if sender not in pages})
        if pages:
            devices.browser, devices.pages = self._browser(told, sorted(pages)), pages
        try:
            yield devices
        finally:
            devices.kill(set(self.senders))

    def _started(self, sender: str, told: Mapping[str, str]) -> "subprocess.Popen[bytes]":
        place = self.directory / sender
        (place / "state").mkdir(parents=True, exist_ok=True)
        place.chmod(0o700)
        (place / "value").write_text(f"{self.value}\n", encoding="utf-8")
        told = {**told, "sender": sender, "state": str(place / "state"), "value_file": str(place / "value")}
        language = sender.partition("-")[0]
        words = command(language, self.clients.get(language, CLIENT), self.clients.get(language, self.directory))
        words = [word.format(**told, epsilon=told["max_epsilon"]) if "{" in word else word for word in words]
        environment = os.environ | {f"HUSH_{name.upper()}": text for name, text in told.items()}
        return _process(words, place / "log", environment)

    def _browser(self, told: Mapping[str, str], pages: Sequence[str]) -> "subprocess.Popen[bytes]":
        """Chromium with a page for each device, of the host that is named after it."""
        (websocket,) = self.broker.listeners
        addresses = []
        for sender in pages:
            about = {"sender": sender, "task": told["task"], "value": self.value, "epsilon": told["max_epsilon"]}
            about["url"] = f"ws://127.0.0.1:{websocket}/"
            addresses.append(f"http://{sender}.hush.test:{self.page_port}/?{urlencode(about)}")
        options = ["--headless", "--no-first-run", "--remote-debugging-port=0", *CHROMIUM_ARGUMENTS]
        options += [f"--user-data-dir={self.profile}", "--host-resolver-rules=MAP *.hush.test 127.0.0.1"]
        options += ["--disable-background-timer-throttling", "--disable-popup-blocking"]
        first = f"http://fleet.hush.test:{self.page_port}/?{urlencode([('open', address) for address in addresses])}"
        return _process([str(CHROMIUM), *options, first], self.directory / "chromium.log", os.environ)

    @property
    def profile(self) -> Path:
        """Where Chromium has the state of all pages."""
        return self.directory / "profile"

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


def answer_rounds(fleet: Fleet, path: Path, task: Task, epsilon: str) -> Observed:
    """Let a fleet answer every round of a task: started when it opens, each killed when the broker has its report.

    What it does not know to be acknowledged then, it sends again in the next round. The pages have the processor for
    themselves first: they take longest.
    """
    assert task.opens is not None
    assert task.round_every is not None
    browsers = replace(fleet, languages=[language for language in fleet.languages if language == "browser"])
    programs = replace(fleet, languages=[language for language in fleet.languages if language != "browser"])
    with fleet.page():
        for number in range(task.rounds):
            opens, ends = (task.opens + place * task.round_every for place in (number, number + 1))
            time.sleep(max((opens - datetime.now(UTC)).total_seconds(), 0))
            for part in (browsers, programs):
                with part.running(task.id, epsilon) as devices:
                    while datetime.now(UTC) < ends and not devices.kill(read(path).round(number)):
                        time.sleep(0.2)
        while datetime.now(UTC) < ends and read(path).counted[number] < len(fleet.senders):
            time.sleep(0.2)
    return read(path)


# ---- what the devices have spent, as their own state says


def spent(fleet: Fleet, task: str, epsilon: str) -> dict[str, Fraction]:
    """What each device has spent by its own ledger."""
    read_by = {"python": _spent_python, "c": _spent_c, "node": _spent_node, "micropython": _spent_micropython}
    found = {}
    for sender in fleet.senders:
        reader = read_by.get(_kind(sender))
        if reader is not None:
            found[sender] = reader(fleet, fleet.directory / sender / "state")
    return found | _spent_browsers(fleet, task, epsilon)


def _spent_python(_: Fleet, state: Path) -> Fraction:
    with closing(sqlite3.connect(state / FILE_NAME)) as reader:
        return sum((Fraction(text) for (text,) in reader.execute("SELECT epsilon FROM charge")), Fraction(0))


def _spent_c(fleet: Fleet, state: Path) -> Fraction:
    command = [str(fleet.directory / "hush_line"), str(state), state.parent.name, fleet.broker.url]
    run = subprocess.run(command, input="spent\n", capture_output=True, text=True, check=True)
    return Fraction(run.stdout.split()[1])


def _spent_node(_: Fleet, state: Path) -> Fraction:
    (record,) = state.glob("task.*.record")
    return Fraction(json.loads(record.read_text(encoding="utf-8")[65:])["spent"])


def _spent_micropython(fleet: Fleet, state: Path) -> Fraction:
    port = fleet.clients.get("micropython", CLIENT) / "ports" / "micropython"
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import hush_device; files = hush_device.Files(sys.argv[2])\n"
    )
    program += "for name in files.names(): print(*hush_device.decode(files.load(name)).spent, sep='/')"
    words = [sys.executable, "-c", program, str(port), str(state)]
    return Fraction(subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip())


def _spent_browsers(fleet: Fleet, task: str, epsilon: str) -> dict[str, Fraction]:
    """The titles of the pages, opened once more: each has what its ledger says."""
    if "browser" not in fleet.languages:
        return {}
    browsers = replace(fleet, languages=("browser",))
    (fleet.profile / "DevToolsActivePort").unlink(missing_ok=True)
    with browsers.page(), browsers.running(task, epsilon):
        for _ in range(600):
            found = {sender: Fraction(total) for sender, total in map(str.split, _titles(fleet.profile))}
            if len(found) == len(browsers.senders):
                return found
            time.sleep(0.1)
    raise AssertionError(f"only the ledgers of {sorted(found)}")


def _titles(profile: Path) -> list[str]:
    try:
        port = (profile / "DevToolsActivePort").read_text(encoding="ascii").split()[0]
        with urlopen(f"http://127.0.0.1:{port}/json/list", timeout=10) as answer:
            titles = [page["title"] for page in json.load(answer)]
            return [title for title in titles if title.startswith(_BROWSER) and " " in title]  # else it is loading
    except (OSError, IndexError):
        return []  # it has not started yet


def _kill(process: "subprocess.Popen[bytes]") -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _process(words: Sequence[str], log: Path, environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    """A process in a group that can be killed as one."""
    with log.open("ab") as out:
        return subprocess.Popen(
            words, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )


# ---- whether they follow the law


def p_value(mechanism: Mechanism, index: int, bodies: Sequence[tuple[int, ...]]) -> float:
    """How likely the least likely number of an output is: exact binomial tails, times how many there are.

    Below `FALSE_ALARM` in at most as many of all honest fleets.
    """
    counts, outputs = Counter(bodies), list(mechanism.outputs())
    if not set(counts) <= set(outputs):
        return 0.0
    n, least = len(bodies), 1.0
    for body in outputs:
        p, k = float(mechanism.probability(body, index)), counts[body]
        low = sum(_binomial(n, j, p) for j in range(k + 1))
        high = sum(_binomial(n, j, p) for j in range(k, n + 1))
        least = min(least, low, high)
    return min(2 * len(outputs) * least, 1.0)


def _binomial(n: int, k: int, p: float) -> float:
    return exp(lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1) + k * log(p) + (n - k) * log1p(-p))
