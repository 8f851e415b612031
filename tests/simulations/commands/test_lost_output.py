"""A result is not lost, and an exit code tells the truth, whatever standard output is."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from commands import EXIT_CODES

pytestmark = pytest.mark.timeout(900)  # the first test makes all the runs

HUSH = Path(sys.executable).with_name("hush")
DONE = {
    *("report", "sync", "export", "store backup", "store restore", "store compact", "store copy", "scenario new"),
    *("task publish", "task withdraw", "task take-over", "task forget", "task close", "task recall"),
    *("broker config", "broker add", "broker remove"),
}
"""What these have done stays done: their exit codes do not depend on who can read of it."""
Ran = Mapping[str, Any]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Ran]:
    """Each call with each kind of standard output."""
    program = Path(__file__).parents[2] / "many_outputs.py"
    command = [sys.executable, "-W", "ignore", str(program), str(tmp_path_factory.mktemp("outputs"))]
    path = os.environ | {"PYTHONPATH": str(program.parent)}
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=path)
    assert ran.returncode == 0, ran.stderr
    return {(one["call"], one["kind"]): one for one in json.loads(ran.stdout)}


@pytest.mark.large
def test_no_command_ends_in_an_unknown_way(runs: Mapping[tuple[str, str], Ran]) -> None:
    assert len({one["command"] for one in runs.values()}) > 25
    for one in runs.values():
        assert "Traceback" not in one["err"], one
        assert "Exception ignored" not in one["err"], one
        assert one["code"] in EXIT_CODES, one


@pytest.mark.large
def test_an_output_that_cannot_be_written_is_an_error_unless_it_is_closed(runs: Mapping[tuple[str, str], Ran]) -> None:
    for (call, kind), one in runs.items():
        whole = runs[call, "file"]
        if kind == "closed":
            assert one["code"] == whole["code"], one
        if kind not in {"full", "ended"} or not whole["out"]:
            continue
        done = one["command"] in DONE or "--forget" in call
        assert one["code"] == (whole["code"] if done else 1 if kind == "full" else 141), one
        if kind == "full" and not done:
            assert "No space left" in one["err"].splitlines()[-1], one


@pytest.mark.large
def test_all_files_are_made_whatever_can_be_printed(runs: Mapping[tuple[str, str], Ran]) -> None:
    made = 0
    for (call, _), one in runs.items():
        assert one["made"] == runs[call, "file"]["made"], one
        made += "made/result.json" in one["made"] or "cells/sweep.csv" in one["made"]
    assert made >= 9


@pytest.mark.large
def test_an_output_in_ascii_says_the_same(runs: Mapping[tuple[str, str], Ran]) -> None:
    for (call, kind), one in runs.items():
        whole = runs[call, "file"]
        if kind != "ascii":
            continue
        assert one["code"] == whole["code"], one
        assert bool(one["out"]) == bool(whole["out"]), one
        if one["command"] in {"plan", "feasible", "task check", "scenario list", "tour"}:  # which draw no noise
            assert one["out"].count("\n") == whole["out"].count("\n"), one
            assert "--json" not in call or json.loads(one["out"]) == json.loads(whole["out"])


def run(redirected: str, **environment: str) -> subprocess.CompletedProcess[str]:
    words = f"{HUSH} plan --epsilon 1 --error 5% --domain bit"
    return subprocess.run(
        ["sh", "-c", redirected.format(words)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
        encoding="latin-1",
    )


@pytest.mark.large
def test_a_shell_sees_the_exit_codes() -> None:
    assert (run("{} >&-").returncode, run("{} >&- 2>&- <&-").returncode) == (0, 0)
    full = run("{} > /dev/full")
    assert (full.returncode, len(full.stderr.splitlines())) == (1, 1)
    assert run("{} 2> /dev/full --nonsense").returncode == 2
    assert run("{{ {}; echo $? >&2; }} | true").stderr == "141\n"


@pytest.mark.large
def test_signs_that_an_encoding_lacks_are_written_in_ascii() -> None:
    for encoding, sign in (("latin-1", "±"), ("ascii", "+-")):
        ran = subprocess.run(
            [HUSH, "feasible", "--people", "900", "--domain", "bit"],
            capture_output=True,
            check=True,
            env=os.environ | {"PYTHONIOENCODING": encoding},
        )
        text = ran.stdout.decode(encoding)
        assert sign in text
        assert "\\u" not in text


@pytest.mark.medium
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_pipe_that_does_not_block_gets_everything(stream: str) -> None:
    """A process fills a pipe, from which it reads only while it waits for room: else nobody would wait."""
    program = f"""
import os, sys, hush_common.output as output
reading, writing = os.pipe()
os.set_blocking(writing, False)
os.dup2(writing, sys.{stream}.fileno())
read = []
output.select = lambda *_: read.append(os.read(reading, 1 << 20))
output.open_outputs()
sys.{stream}.write("x" * 10**6)
sys.{stream}.flush()
os._exit(not 900_000 < sum(map(len, read)) <= 10**6)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, timeout=60)
    assert ran.returncode == 0, ran
