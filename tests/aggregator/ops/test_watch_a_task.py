"""`hush watch` at a real mosquitto and a real `hush serve`: on a terminal, in a pipe, as JSON."""

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from commands import unprintable
from counting import shell
from servers import Mosquitto, free_port
from serving import serving
from waiting import PATIENCE_S

from hush_aggregator import SqliteStore
from hush_aggregator.store import SqliteEditor, TaskState
from hush_common.task import make_task

pytestmark = [pytest.mark.medium, pytest.mark.face]

HUSH = [sys.executable, "-m", "hush"]
TASK = make_task(
    {
        "id": "heights",
        "title": "How tall <b>are</b> you",
        "epsilon": "4",
        "domain": {"kind": "number", "lower": 120.0, "upper": 220.0, "unit": "cm"},
    }
)


def published(mosquitto: Mosquitto, n: int, low: float, high: float, **more: object) -> None:
    """An estimate with these figures, as its aggregator publishes it."""
    intervals = {"anytime": [low, high], "reporters": [171.0, 172.0]}
    document = {"v": 1, "task": "heights", "round": 0, "n": n, "mean": 171.25, "unit": "cm", "intervals": intervals}
    document |= {"confidence": 0.95, "refused": {"closed": 2}, "stderr": {"reporters": 0.5}, **more}
    put(mosquitto, "estimates", json.dumps(document))


def put(mosquitto: Mosquitto, kind: str, payload: str) -> None:
    arguments = ("-n",) if not payload else ("-m", payload)
    shell("mosquitto_pub", mosquitto.port, "-t", f"hush/v1/{kind}/heights", "-r", "-q", "1", *arguments)


@dataclass
class Watching:
    """A `hush watch` that runs, and what it has shown."""

    process: subprocess.Popen[bytes]
    ear: int
    shown: str = field(default="")

    def until(self, words: str) -> None:
        """Read until it has shown these words."""
        deadline = time.monotonic() + PATIENCE_S
        while words not in self.shown:
            ready, _, _ = select.select([self.ear], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, self.shown
            self.shown += os.read(self.ear, 65536).decode()

    def forget(self) -> None:
        self.shown = ""

    def end(self) -> tuple[int, str]:
        """Read to its end; its exit code, and all that it had left to show."""
        while True:
            try:
                chunk = os.read(self.ear, 65536)
            except OSError:  # Linux says so when the last program has closed the terminal
                chunk = b""
            if not chunk:
                return self.process.wait(PATIENCE_S), self.shown
            self.shown += chunk.decode()


@contextmanager
def watching(mosquitto: Mosquitto, *options: str, columns: int = 0, **environment: str) -> Iterator[Watching]:
    """It runs until the block ends; on a terminal with so many columns, or in a pipe."""
    source = () if "--http" in options else ("--broker", mosquitto.url)
    command = [*HUSH, "watch", "heights", *source, *options]
    if columns:
        ear, theirs = pty.openpty()
        resize(ear, columns)
    else:
        ear, theirs = os.pipe()
    variables = {**os.environ, "TERM": "xterm-256color", **environment}
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env=variables) as process:
        os.close(theirs)
        try:
            yield Watching(process, ear)
        finally:
            process.kill()
            os.close(ear)


def resize(terminal: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))


def test_on_a_terminal_it_is_drawn_in_its_place_until_the_end(mosquitto: Mosquitto) -> None:
    put(mosquitto, "tasks", TASK.payload.decode())
    published(mosquitto, 5, 120.0, 220.0)
    with watching(mosquitto, columns=60) as it:
        it.until("120.00 to 220.00 cm")
        assert "How tall <b>are</b> you" in it.shown
        it.forget()
        published(mosquitto, 900, 160.0, 180.0)
        it.until("160.00 to 180.00 cm")
        assert "\x1b[" in it.shown  # the cursor goes back up
        resize(it.ear, 100)
        it.forget()
        it.until("━" * 50)  # the band of before, on an axis that has grown
        published(mosquitto, 1000, 160.0, 180.0, final=True, closed=True)
        put(mosquitto, "tasks", "")
        code, shown = it.end()
    assert code == 0
    table = shown.rpartition("\x1b")[2]
    command = [*HUSH, "results", "heights", "--broker", mosquitto.url]
    environment = {**os.environ, "COLUMNS": "100"}
    results = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    assert [line.split() for line in results.splitlines()][2:] == [
        line.split() for line in table.splitlines() if line.strip().startswith("heights")
    ]


def test_a_terminal_without_colours_or_a_moving_cursor_is_respected(mosquitto: Mosquitto) -> None:
    put(mosquitto, "tasks", TASK.payload.decode())
    published(mosquitto, 5, 120.0, 220.0)
    with watching(mosquitto, columns=80, NO_COLOR="1") as it:
        it.until("5 counted")
        assert not [style for style in ("\x1b[1m", "\x1b[2m", "\x1b[31m") if style in it.shown]
    with watching(mosquitto, columns=80, TERM="dumb") as it:
        it.until("120.00 to 220.00")
        assert "\x1b" not in it.shown


def test_ctrl_c_leaves_the_terminal_as_it_was(mosquitto: Mosquitto) -> None:
    put(mosquitto, "tasks", TASK.payload.decode())
    with watching(mosquitto, columns=80) as it:
        it.until("no estimate")
        it.process.send_signal(signal.SIGINT)
        code, shown = it.end()
    assert code == 130
    assert "Traceback" not in shown
    assert shown.rfind("\x1b[?25h") > shown.rfind("\x1b[?25l")  # the cursor is visible again


def test_in_a_pipe_each_change_is_a_printable_line(mosquitto: Mosquitto) -> None:
    wild = "\x1b]0;x\x07\x9b2J\u202e"
    put(mosquitto, "tasks", TASK.payload.decode())
    published(mosquitto, 5, 120.0, 220.0)
    with watching(mosquitto) as it:
        it.until("2 closed, live\n")
        assert "171.25 cm" in it.shown
        published(mosquitto, 5, 120.0, 220.0, updated_at="2027-01-01T00:00:00Z")  # no change
        published(mosquitto, 6, 121.0, 220.0, unit=wild, mechanism=wild)
        it.until("heights: 6 counted")
        put(mosquitto, "tasks", "")
        it.until("withdrawn")
        mosquitto.stop()
        it.until("trying again")
        mosquitto.start()
        put(mosquitto, "tasks", "")
        published(mosquitto, 7, 121.0, 220.0, final=True)
        code, shown = it.end()
    assert (code, shown.count("5 counted")) == (0, 1)
    assert unprintable(shown) == []
    assert "final" in shown


def test_a_task_that_does_not_exist_is_one_line(mosquitto: Mosquitto) -> None:
    with watching(mosquitto, "--json") as it:
        code, shown = it.end()
    assert (code, len(shown.splitlines())) == (1, 1)
    assert mosquitto.url in shown
    assert "heights" in shown


def test_a_task_that_is_deleted_meanwhile_ends_it(mosquitto: Mosquitto) -> None:
    put(mosquitto, "tasks", TASK.payload.decode())
    published(mosquitto, 5, 120.0, 220.0)
    with watching(mosquitto, "--json") as it:
        it.until('"n":5')
        put(mosquitto, "tasks", "")
        put(mosquitto, "estimates", "")
        code, shown = it.end()
    assert code == 1
    assert mosquitto.url in shown.splitlines()[-1]


@contextmanager
def over_http(store: str) -> Iterator[str]:
    """`hush http` on a store; its address."""
    port = free_port()
    with subprocess.Popen(
        [*HUSH, "http", "--store", store, "--bind", f"127.0.0.1:{port}"], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert "HTTP on" in process.stderr.readline()
        yield f"http://127.0.0.1:{port}"
        process.kill()


@pytest.mark.large
def test_what_serve_counts_is_json_until_the_task_is_closed(mosquitto: Mosquitto, tmp_path: Path) -> None:
    task = 'id = "heights"\nepsilon = "4"\n[domain]\nkind = "number"\nlower = 120.0\nupper = 220.0\n'
    store = str(tmp_path / "hush.sqlite3")
    with serving(mosquitto.url, tmp_path, task):
        shell("mosquitto_sub", mosquitto.port, "-t", "hush/v1/tasks/heights", "-C", "1", "-W", "60")  # it is published
        with over_http(store) as url, watching(mosquitto, "--json", "--http", url) as it:
            it.until('"n":0')
            report = [*HUSH, "report", "heights", "170", "--broker", mosquitto.url, "--state", str(tmp_path / "device")]
            subprocess.run([*report, "--spread", "0"], check=True, capture_output=True)
            it.until('"n":1')
            subprocess.run([*HUSH, "task", "close", "heights", "--store", store], check=True, capture_output=True)
            code, shown = it.end()
    assert code == 0
    *_, last = (json.loads(line) for line in shown.splitlines() if line.startswith("{"))
    command = [*HUSH, "results", "heights", "--store", store, "--json"]
    (stored,) = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["results"]
    same = last.keys() - {"updated_at", "store", "term"}
    assert {name: last[name] for name in same} == {name: stored[name] for name in same}
    assert (last["n"], last["final"]) == (1, True)


def test_an_address_without_a_server_is_one_line() -> None:
    for option, scheme in (("--broker", "mqtt"), ("--http", "http")):
        command = [*HUSH, "watch", "heights", option, f"{scheme}://127.0.0.1:{free_port()}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)


@pytest.mark.large  # a comment of the stream comes every fifteen seconds
def test_over_http_a_withdrawal_and_a_missing_task_are_reported(tmp_path: Path) -> None:
    store = tmp_path / "hush.sqlite3"
    with SqliteStore(store) as opened:
        opened.add_task(TASK)
    with over_http(str(store)) as url, watching(Mosquitto(tmp_path), "--http", url) as it:
        command = [*HUSH, "watch", "weights", "--http", url]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
        assert (done.returncode, done.stdout) == (1, "")
        assert url in done.stderr
        assert "weights" in done.stderr
        it.until("heights: 0 counted")
        with SqliteEditor(store) as editor:
            editor.set_state("heights", TaskState.WITHDRAWN)
        it.until("withdrawn")
