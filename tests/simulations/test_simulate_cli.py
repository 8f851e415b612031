"""`hush simulate` and `hush broker` as a person meets them: what is printed where, and how they end."""

import json
import os
import pty
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

from hush import SCENARIOS

HUSH = (sys.executable, "-m", "hush")


# The same command with a line of progress as often as something is counted: a test waits for that, and not for a time.
TELLING = "from hush_simulations.display import progress; progress.EVERY_S = 0; from hush.cli import main; main()"


# The same with an estimate on the screen at each look, however long the one before took.
LOOKING = "from hush_simulations.engines import live; live._LOOK_SHARE = 1e9; from hush.cli import main; main()"

# The same that never has all its reports, so that a second Ctrl-C comes before the end.
NEVER_DONE = f"import asyncio; from hush_simulations.engines import live; \
live._Run._count = lambda *_: asyncio.sleep(3600); {TELLING}"


def hush_process(*arguments: str) -> subprocess.CompletedProcess[str]:
    ended = subprocess.run([*HUSH, *arguments], capture_output=True, text=True, timeout=240, check=False)
    return subprocess.CompletedProcess(ended.args, ended.returncode, ended.stdout, without_progress(ended.stderr))


def hush(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The same in this process, which has imported everything already."""
    shown = run(arguments, cwd, patience=240)
    assert shown.trouble == ""
    assert shown.code is not None
    return subprocess.CompletedProcess(arguments, shown.code, shown.out, without_progress(shown.err))


def line_of(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline()


def counted(line: str) -> bool:
    """Whether it is a line of progress, and something is done."""
    told = PROGRESS.fullmatch(line)
    return told is not None and told[1] != "0"


@pytest.mark.large
def test_the_default_run_prints_a_table_and_nothing_else() -> None:
    ended = hush_process("simulate", "--clients", "50", "--seed", "1")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "Mean height of adults: 50 devices, laplace, epsilon 1, over MQTT (embedded)" in ended.stdout
    assert "50 accepted, 0 refused" in ended.stdout


def test_json_is_one_object_and_nothing_else(tmp_path: Path) -> None:
    ended = hush("simulate", "survey", "--clients", "50", "--seed", "1", "--json", "--confidence", "0.9", cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    found = json.loads(ended.stdout)
    assert (found["result"]["n"], found["published"], found["seed"]) == (50, 50, 1)
    assert found["result"]["confidence"] == 0.9
    assert found["truth"]["population"] == 0.3


@pytest.mark.large
@pytest.mark.parametrize(("name", "kind"), [("commute", "categories"), ("offices", "coordinates")])
def test_each_part_has_its_truth_its_verdict_and_its_error(name: str, kind: str, tmp_path: Path) -> None:
    ended = hush("simulate", name, "--clients", "60", "--seed", "1", "--json", cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    found = json.loads(ended.stdout)
    parts = len(found["result"][kind])
    assert [len(found[view][kind]) for view in ("truth", "covered", "error")] == [parts] * 3
    assert "joint" in found["covered"]


@pytest.mark.large
def test_on_a_terminal_the_confidence_sequence_is_seen() -> None:
    command = [sys.executable, "-c", LOOKING, "simulate", "--clients", "3000", "--seed", "1"]
    terminal, inner = pty.openpty()
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
    assert b"reports counted" in seen
    assert b"at any time" in seen


def test_results_are_written_where_asked(tmp_path: Path) -> None:
    ended = hush("simulate", "--clients", "20", "--out", "results", "--engine", "memory", cwd=tmp_path)
    assert ended.returncode == 0
    assert ended.stderr.startswith("hush: wrote results/result.json")
    assert sorted(path.name for path in (tmp_path / "results").iterdir()) == [
        "reports.csv",
        "result.json",
        "result.png",
        "result.svg",
        "run.json",
        "scenario.toml",
    ]
    assert len((tmp_path / "results" / "reports.csv").read_text(encoding="utf-8").splitlines()) == 21


def test_deterministic_noise_is_announced_loudly_and_repeats(tmp_path: Path) -> None:
    command = ("simulate", "--clients", "20", "--seed", "4", "--engine", "memory", "--deterministic-noise", "--json")
    first, second = hush(*command, cwd=tmp_path), hush(*command, cwd=tmp_path)
    assert "WARNING: the noise is NOT private" in first.stderr
    assert "NOT private" in json.loads(first.stdout)["noise"]
    assert json.loads(first.stdout)["result"]["mean"] == json.loads(second.stdout)["result"]["mean"]


def test_a_persons_own_data_are_simulated_row_by_row(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("h\n" + "".join(f"{150 + i}\n" for i in range(40)), encoding="utf-8")
    ended = hush("simulate", "--csv", "data.csv", "--lower", "-20", "--upper", "180", "--json", cwd=tmp_path)
    found = json.loads(ended.stdout)
    assert (found["clients"], found["truth"], found["clamped"]) == (40, {"reporters": 169.5}, 9)
    assert "population" not in found["covered"]


@pytest.mark.large
def test_the_result_counts_rows_without_a_value_and_says_what_became_of_them(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("h\n" + "".join(f"{10 + i}\n" for i in range(20)) + "NA\n" * 4, encoding="utf-8")
    own = ("simulate", "--csv", "data.csv", "--lower", "0", "--upper", "100", "--engine", "memory")
    refused = hush(*own, "--json", cwd=tmp_path)
    assert refused.returncode == 2
    assert "4 of 24 cells cannot be used: 4 marked as missing (line 22, line 23, line 24, 1 more)" in refused.stderr
    for missing, devices in (("drop", 20), ("replace", 24)):
        ended = hush(*own, "--missing", missing, "--json", "--out", missing, cwd=tmp_path)
        found = json.loads(ended.stdout)
        assert found["data"] == {"rows": 24, "missing": 4, "treatment": missing, "resampled": False}
        assert (found["clients"], found["truth"], found["result"]["n"]) == (devices, {"reporters": 19.5}, devices)
        assert found["result"]["replacement_bias"]
    drawn = hush(*own, "--missing", "replace", "--clients", "60", cwd=tmp_path)
    assert "60 devices drawn from them" in " ".join(drawn.stdout.split())
    assert "4 of 24" in drawn.stdout


@pytest.mark.large
@pytest.mark.parametrize("kind", ["categories", "vectors"])
def test_devices_without_a_value_answer_and_are_no_part_of_the_truth(kind: str, tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("x,y\n1,0\nNA,1\n1,NA\n0,1\n", encoding="utf-8")
    domain = 'kind = "category"\nlabels = ["0", "1"]\n'
    if kind == "vectors":
        part = "lower = 0.0\nupper = 1.0\nname = "
        domain = f'kind = "vector"\n[[task.domain.coordinates]]\n{part}"x"\n[[task.domain.coordinates]]\n{part}"y"\n'
    people = '[population]\nkind = "csv"\nfile = "data.csv"\nmissing = "replace"\n'
    column = 'column = "x"\n' if kind == "categories" else ""
    task = f'[task]\nid = "own"\nepsilon = "1"\n[task.domain]\n{domain}'
    (tmp_path / "own.toml").write_text(f"{task}{people}{column}", encoding="utf-8")
    ended = hush("simulate", "./own.toml", "--engine", "memory", "--json", "--out", "out", cwd=tmp_path)
    found = json.loads(ended.stdout)
    assert found["result"]["n"] == 4
    truths = [one["reporters"] for one in next(iter(found["truth"].values()))]
    assert truths == (pytest.approx([1 / 3, 2 / 3]) if kind == "categories" else pytest.approx([2 / 3, 2 / 3]))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--clients", "0"), "--clients: 0 is outside"),
        (("--clients",), "Option '--clients' requires an argument; see hush simulate --help"),
        (("--client", "5"), "No such option: --client"),
        (("--clients", "-1"), "--clients: -1 is outside"),
        (("--epsilon", "nan"), "--epsilon: 'nan' is not a decimal number"),
        (("--confidence", "1"), "--confidence: 1 is not between 0 and 1"),
        (("--epsilon", "-1"), "--epsilon: -1 is outside [0.000001, 50]"),
        (("--mechanism", "randomized_response"), "does not fit a number"),
        (("--mechanism", "gauss"), "use 'laplace', 'multilevel', 'table' or, in a draft, 'auto'"),
        (("census",), f"there are {', '.join(SCENARIOS)}"),
        (
            ("heights", "--shares", "1,2"),
            "--shares: 2 shares, and the task has one epsilon and no offers to choose from; leave",
        ),
        (("sleep", "--shares", "1,x,2"), "--shares: 'x' is not a number"),
        (("--csv", "nothing.csv", "--lower", "0", "--upper", "1"), "nothing.csv cannot be read"),
        (("--csv", "nothing.csv", "--lower", "0"), "never from the data"),
        (("--broker", "rabbit"), "write embedded, mosquitto or mqtt://host:port"),
        (("--out", "/dev/null"), "/dev/null is a file; name a directory"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(arguments: tuple[str, ...], words: str, tmp_path: Path) -> None:
    ended = hush("simulate", *arguments, cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert len(ended.stderr.splitlines()) == 1
    assert words in ended.stderr


def test_a_broker_that_is_not_there_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    ended = hush("simulate", "--broker", "mqtt://ann:secret@127.0.0.1:1", cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert len(ended.stderr.splitlines()) == 1
    assert "mqtt://ann@127.0.0.1:1: cannot connect" in ended.stderr
    assert "secret" not in ended.stderr


@pytest.mark.large
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("broker", ["embedded", "mosquitto"])
def test_a_stopped_simulation_leaves_no_broker_and_after_ctrl_c_shows_what_is_there(
    broker: str, sent: signal.Signals, tmp_path: Path
) -> None:
    if broker == "mosquitto":
        need("mosquitto")
    command = [sys.executable, "-c", TELLING, "simulate", "--clients", "200000", "--broker", broker, "--json"]
    environment = {"TMPDIR": str(tmp_path), "PATH": "/usr/bin:/usr/sbin"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        while not counted(line_of(process.stderr)):
            assert process.poll() is None
        assert list(tmp_path.glob("hush-simulation-*/gateway-19"))
        process.send_signal(sent)
        out, rest = process.communicate(timeout=60)
    err = without_progress(rest)
    if sent == signal.SIGTERM:
        assert (process.returncode, out, err) == (143, "", "hush: stopped\n")
    else:
        assert process.returncode == 130
        assert err.startswith("hush: stopping; what was sent is counted.")
        assert err.endswith("hush: interrupted\n")
        found = json.loads(out)
        assert found["stopped"] is True
        assert 0 < found["result"]["n"] == found["published"] < 200_000
        assert found["lost"] == 0
        assert found["covered"].keys() >= {"reporters", "anytime"}
    assert list(tmp_path.iterdir()) == []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert str(tmp_path).encode() not in path.read_bytes()
        except OSError:
            continue


def test_a_second_ctrl_c_stops_at_once_and_shows_nothing() -> None:
    command = [sys.executable, "-c", NEVER_DONE, "simulate", "--clients", "200000", "--engine", "memory"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while not counted(line_of(process.stderr)):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        while PROGRESS.fullmatch(line := line_of(process.stderr)):
            continue
        assert "Ctrl-C again stops at once" in line
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, without_progress(err)) == (130, "", "hush: stopped\n")


@pytest.mark.large
def test_the_embedded_broker_serves_until_ctrl_c() -> None:
    command = [*HUSH, "broker", "run", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        said = line_of(process.stderr)
        address = said.removeprefix("hush: broker on ").partition(",")[0]
        served = hush_process("simulate", "--clients", "30", "--broker", address, "--json")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert json.loads(served.stdout)["result"]["n"] == 30
    assert (process.returncode, out, err) == (130, "", "hush: stopped\n")


def test_a_taken_port_is_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = hush_process("broker", "run", "--port", str(port))
    assert (ended.returncode, ended.stdout) == (1, "")
    assert len(ended.stderr.splitlines()) == 1
    assert f"mqtt://127.0.0.1:{port}: cannot listen there (address already in use)" in ended.stderr


def test_a_broker_for_everybody_says_so() -> None:
    command = [*HUSH, "broker", "run", "--port", "0", "--host", "0.0.0.0"]  # noqa: S104 - that is what is tested
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        first, second = line_of(process.stderr), line_of(process.stderr)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert "broker on mqtt://0.0.0.0:" in first
    assert "WARNING: anybody" in second
