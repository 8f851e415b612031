"""`hush simulate` and `hush broker run` as processes and commands: files, exit codes, and how a run is stopped."""

import json
import os
import pty
import resource
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO

import pytest
from commands import PROGRESS, run, without_progress
from servers import need

HUSH = (sys.executable, "-m", "hush")
FILES = {"result.json", "run.json", "scenario.toml", "result.png", "result.svg"}

# The same command with a line of progress as often as something is counted: a test waits for that, and not for a time.
TELLING = "from hush_simulations.display import progress; progress.EVERY_S = 0; from hush.cli import main; main()"

# The same whose broker loses each report after the first hundred, so that a stopped run waits for them.
NEVER_DONE = f"""
from hush_simulations.brokers.memory import MemoryBroker
deliver, reports = MemoryBroker.deliver, []
def lossy(broker, topic, payload, **options):
    reports.extend([1] * ("/reports/" in topic))
    if len(reports) <= 100 or "/reports/" not in topic:
        deliver(broker, topic, payload, **options)
MemoryBroker.deliver = lossy
{TELLING}
"""

# Ctrl-C where a function is called for the first time.
AT_A_PHASE = """
import os, signal, sys, threading
from pathlib import Path
from hush_simulations.commands import simulate
from hush_simulations.engines.bulk import engine

arrived = threading.Event()

def once(owner, name):
    inner, seen = getattr(owner, name), []
    def called(*arguments, **options):
        if not seen:
            seen.append(1)
            os.kill(os.getpid(), signal.SIGINT)
            if threading.current_thread() is not threading.main_thread():
                arrived.wait(30)  # until the main thread has received it
        return inner(*arguments, **options)
    setattr(owner, name, called)

class Received(threading.Event):
    def set(self):
        super().set()
        arrived.set()

phase = sys.argv.pop(1)
if phase == "estimating":
    engine.Event = Received
places = {
    "reading": (simulate, "options_of"),
    "estimating": (engine, "estimate"),
    "writing": (os, "fsync"),
    "renaming": (Path, "replace"),
}
once(*places[phase])
from hush.cli import main
sys.argv[0] = "hush"
main()
"""


def started(code: str, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )


def line_of(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline()


def wait_until_counted(process: "subprocess.Popen[str]") -> None:
    while not ((told := PROGRESS.fullmatch(line_of(process.stderr))) and told[1] != "0"):
        assert process.poll() is None


def kept(out: Path) -> set[str]:
    return {path.name for path in out.iterdir()} if out.exists() else set()


@pytest.mark.medium
def test_each_part_has_its_truth_its_verdict_and_its_error(tmp_path: Path) -> None:
    for name, kind in (("commute", "categories"), ("offices", "coordinates")):
        shown = run(["simulate", name, "--clients", "60", "--seed", "1", "--engine", "memory", "--json"], tmp_path)
        found = json.loads(shown.out)
        parts = len(found["result"][kind])
        assert [len(found[view][kind]) for view in ("truth", "covered", "error")] == [parts] * 3
        assert "joint" in found["covered"]


@pytest.mark.medium
@pytest.mark.usefixtures("unrendered")
def test_results_are_written_where_asked(tmp_path: Path) -> None:
    shown = run(["simulate", "--clients", "20", "--out", "results", "--engine", "memory"], tmp_path)
    assert (shown.code, "results/result.json" in shown.err) == (0, True)
    assert kept(tmp_path / "results") == FILES | {"reports.csv"}
    assert len((tmp_path / "results" / "reports.csv").read_text(encoding="utf-8").splitlines()) == 21


@pytest.mark.medium
def test_deterministic_noise_is_announced_and_repeats(tmp_path: Path) -> None:
    command = ("simulate", "--clients", "20", "--seed", "4", "--engine", "memory", "--deterministic-noise", "--json")
    first, second = run(command, tmp_path), run(command, tmp_path)
    assert "NOT private" in first.err
    assert "NOT private" in json.loads(first.out)["noise"]
    assert json.loads(first.out)["result"]["mean"] == json.loads(second.out)["result"]["mean"]


@pytest.mark.medium
def test_an_unreachable_broker_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    shown = run(["simulate", "--broker", "mqtt://ann:secret@127.0.0.1:1"], tmp_path)
    (line,) = shown.err.splitlines()
    assert (shown.code, shown.out) == (1, "")
    assert "ann@127.0.0.1:1" in line
    assert "secret" not in line


@pytest.mark.medium
@pytest.mark.face
def test_standard_input_is_read_as_a_file() -> None:
    command = [*HUSH, "simulate", "--csv", "-", "--column", "ill", "--yes", "yes", "--engine", "bulk", "--json"]
    done = subprocess.run(command, input="ill;n\nyes;1\nno;2\nno;3\n", capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["truth"]["reporters"] == pytest.approx(1 / 3)


@pytest.mark.large
def test_on_a_terminal_the_confidence_sequence_is_seen() -> None:
    terminal, inner = pty.openpty()
    command = [*HUSH, "simulate", "--clients", "3000", "--seed", "1"]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=inner, env={**os.environ, "TERM": "xterm"}
    ) as process:
        os.close(inner)
        seen = b""
        with suppress(OSError):  # how a pseudo-terminal ends
            while block := os.read(terminal, 65536):
                seen += block
        assert process.wait(60) == 0
    os.close(terminal)
    assert b"at any time" in seen


@pytest.mark.large
@pytest.mark.face
@pytest.mark.parametrize(
    ("broker", "sent"),
    [("embedded", signal.SIGINT), ("embedded", signal.SIGTERM), ("mosquitto", signal.SIGINT)],
)
def test_a_stopped_simulation_leaves_nothing_and_shows_what_was_counted(
    broker: str, sent: signal.Signals, tmp_path: Path
) -> None:
    if broker == "mosquitto":
        need("mosquitto")
    arguments = ("simulate", "--clients", "200000", "--broker", broker, "--json")
    with started(TELLING, *arguments, TMPDIR=str(tmp_path)) as process:
        wait_until_counted(process)
        process.send_signal(sent)
        out, err = process.communicate(timeout=60)
    if sent == signal.SIGTERM:
        assert (process.returncode, out, len(without_progress(err).splitlines())) == (143, "", 1)
    else:
        assert process.returncode == 130
        found = json.loads(out)
        assert found["stopped"] is True
        assert 0 < found["result"]["n"] == found["published"] < 200_000
        assert found["lost"] == 0
        assert found["covered"].keys() >= {"reporters", "anytime"}
    assert list(tmp_path.iterdir()) == []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            assert str(tmp_path).encode() not in path.read_bytes()  # no broker is left


@pytest.mark.medium
def test_a_second_ctrl_c_stops_at_once_and_shows_nothing() -> None:
    with started(NEVER_DONE, "simulate", "--clients", "200000", "--engine", "memory") as process:
        wait_until_counted(process)
        process.send_signal(signal.SIGINT)
        while PROGRESS.fullmatch(line_of(process.stderr)):
            continue
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")


@pytest.mark.large
def test_ctrl_c_while_devices_are_drawn_keeps_those_that_were_drawn(tmp_path: Path) -> None:
    bulk = ("--engine", "bulk", "--draw", "devices", "--workers", "2", "--clients", "50000000")
    with started(TELLING, "simulate", "heights", *bulk, "--out", str(tmp_path), "--json") as process:
        wait_until_counted(process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=240)
    assert (process.returncode, "Traceback" in err) == (130, False)
    found = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    assert found["stopped"] is True
    assert 0 < found["published"] == found["result"]["n"] < 50_000_000
    assert json.loads(out)["result"]["n"] == found["result"]["n"]
    assert kept(tmp_path) == FILES


@pytest.mark.large
@pytest.mark.parametrize("phase", ["reading", "estimating", "writing", "renaming"])
def test_ctrl_c_in_a_phase_of_a_bulk_run_leaves_no_half_file(tmp_path: Path, phase: str) -> None:
    out = tmp_path / "out"
    with started(
        AT_A_PHASE, phase, "simulate", "survey", "--seed", "1", "--engine", "bulk", "--out", str(out)
    ) as process:
        _, err = process.communicate(timeout=240)
    assert (process.returncode, "Traceback" in err) == (130, False)
    if phase in {"reading", "writing"}:
        assert kept(out) == set()
    if phase == "estimating":
        assert json.loads((out / "result.json").read_text(encoding="utf-8"))["stopped"] is True
        assert kept(out) == FILES
    for name in kept(out):
        assert name in FILES
        assert (out / name).stat().st_size > 50


@pytest.mark.large
def test_a_full_disk_is_one_line_and_leaves_the_files_that_were_there(tmp_path: Path) -> None:
    command = [*HUSH, "simulate", "survey", "--engine", "bulk", "--out", str(tmp_path)]
    subprocess.run([*command, "--seed", "1"], capture_output=True, check=True)
    before = {name: (tmp_path / name).read_bytes() for name in kept(tmp_path)}
    ended = subprocess.run(
        [*command, "--seed", "2"],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)),  # the picture is larger
    )
    last = ended.stderr.splitlines()[-1]
    assert (ended.returncode, "Traceback" in ended.stderr) == (2, False)
    assert str(tmp_path) in last
    assert "--out" in last
    assert ended.stdout  # the result is still shown
    assert {name: (tmp_path / name).read_bytes() for name in kept(tmp_path)} == before


INTERRUPTED = """
import asyncio, hush, signal, sys, tempfile, threading
signal.signal(signal.SIGINT, signal.default_int_handler)
tempfile.tempdir = sys.argv[1]
first = threading.Lock()
def started(counted, total):
    if first.acquire(blocking=False): print("running", flush=True)
def simulate():
    hush.simulate(clients=200_000, engine="mqtt", progress=started)
async def cell():
    simulate()
try:
    CALL
except KeyboardInterrupt:
    print("interrupted", "hush-simulate" in {thread.name for thread in threading.enumerate()}, flush=True)
"""
CALLS = ["simulate()", "asyncio.run(cell())", "asyncio.new_event_loop().run_until_complete(cell())"]


@pytest.mark.large
@pytest.mark.face
@pytest.mark.parametrize("call", CALLS, ids=["program", "asyncio", "notebook"])
def test_ctrl_c_ends_a_simulation_of_a_program(call: str, tmp_path: Path) -> None:
    with started(INTERRUPTED.replace("CALL", call), str(tmp_path)) as process:
        assert line_of(process.stdout) == "running\n"
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=60)
    assert (out, error, process.returncode) == ("interrupted False\n", "", 0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.medium
@pytest.mark.face
def test_the_embedded_broker_serves_until_ctrl_c(tmp_path: Path) -> None:
    command = [*HUSH, "broker", "run", "--port", "0", "--host", "0.0.0.0"]  # noqa: S104 - it must warn of it
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        port = line_of(process.stderr).partition("0.0.0.0:")[2].partition(",")[0]
        assert "WARNING" in line_of(process.stderr)
        served = run(["simulate", "--clients", "30", "--broker", f"mqtt://127.0.0.1:{port}", "--json"], tmp_path)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert json.loads(served.out)["result"]["n"] == 30
    assert (process.returncode, out) == (130, "")


@pytest.mark.medium
def test_a_taken_port_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        shown = run(["broker", "run", "--port", str(port)], tmp_path)
    (line,) = shown.err.splitlines()
    assert (shown.code, shown.out) == (1, "")
    assert f"127.0.0.1:{port}" in line
