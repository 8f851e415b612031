"""A simulation in bulk that is stopped, or whose disk fills: what is drawn counts, and no file is half-written.

Each is a process of its own that is sent Ctrl-C (SIGINT) where it is in a phase, or that may write no large file.
"""

import json
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

FILES = {"result.json", "run.json", "scenario.toml", "result.png", "result.svg"}
SCRIPT = """
import os, signal, sys, threading

def once(owner, name, before):
    '''Ctrl-C where a function is called for the first time, or after it was.'''
    inner, seen = getattr(owner, name), []

    def called(*arguments, **options):
        first = not seen
        seen.append(1)
        if first and before:
            press()
        found = inner(*arguments, **options)
        if first and not before:
            press()
        return found

    setattr(owner, name, called)

def press():
    os.kill(os.getpid(), signal.SIGINT)
    if threading.current_thread() is not threading.main_thread():
        arrived.wait(30)  # until the main thread has heard of it

phase = sys.argv.pop(1)
arrived = threading.Event()
from hush_simulations.commands import simulate
from hush_simulations.engines.bulk import devices, engine
from pathlib import Path

class Heard(threading.Event):
    def set(self):
        super().set()
        arrived.set()

if phase in ("drawing", "estimating", "a tally"):
    engine.Event = Heard  # what tells the thread that draws

if phase == "reading":
    once(simulate, "options_of", True)
if phase == "drawing":
    once(devices._Work, "_block", False)
if phase == "a tally":
    once(engine, "draw_tallies", True)
if phase == "estimating":
    once(engine, "estimate", True)
if phase == "writing":
    once(os, "fsync", True)
if phase == "renaming":
    once(Path, "replace", True)

from hush.cli import main
sys.argv[0] = "hush"
main()
"""


def stopped(phase: str, out: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", SCRIPT, phase, "simulate", *options, "--engine", "bulk", "--out", str(out)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert "Traceback" not in ended.stderr, ended.stderr
    return ended


def kept(out: Path) -> set[str]:
    return {path.name for path in out.iterdir()} if out.exists() else set()


@pytest.mark.large
@pytest.mark.parametrize("workers", ["2", pytest.param("1", marks=pytest.mark.soak)])
def test_while_devices_are_drawn_those_that_were_drawn_are_shown_and_kept(tmp_path: Path, workers: str) -> None:
    ended = stopped("drawing", tmp_path, "heights", "--clients", "50000000", "--draw", "devices", "--workers", workers)
    assert ended.returncode == 130, ended.stderr
    assert "hush: interrupted" in ended.stderr
    assert "estimate" in ended.stdout
    found = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    assert found["stopped"] is True
    assert 0 < found["result"]["n"] < 50_000_000
    assert found["published"] == found["result"]["n"]
    assert found["declined"] == {}
    assert kept(tmp_path) == FILES


@pytest.mark.soak  # a process each
@pytest.mark.parametrize("phase", ["a tally", "estimating"])
def test_while_a_tally_is_drawn_or_estimated_that_ends_and_is_kept(tmp_path: Path, phase: str) -> None:
    ended = stopped(phase, tmp_path, "commute", "--seed", "1")
    assert ended.returncode == 130, ended.stderr
    assert json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))["stopped"] is True
    assert kept(tmp_path) == FILES


@pytest.mark.large
@pytest.mark.parametrize("phase", ["writing", pytest.param("reading", marks=pytest.mark.soak)])
def test_before_anything_is_drawn_or_while_files_are_written_none_is_left(tmp_path: Path, phase: str) -> None:
    ended = stopped(phase, tmp_path, "survey", "--seed", "1")
    assert (ended.returncode, ended.stderr.splitlines()[-1]) == (130, "hush: stopped")
    assert kept(tmp_path) == set()


@pytest.mark.soak
def test_while_files_are_put_in_place_each_is_whole(tmp_path: Path) -> None:
    ended = stopped("renaming", tmp_path, "survey", "--seed", "1")
    assert ended.returncode == 130
    for name in kept(tmp_path):
        assert name in FILES
        assert (tmp_path / name).stat().st_size > 50


def limited(size: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@pytest.mark.large
def test_a_disk_that_fills_is_one_line_and_leaves_what_was_there(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hush", "simulate", "survey", "--engine", "bulk", "--out", str(tmp_path)]
    assert subprocess.run([*command, "--seed", "1"], capture_output=True, timeout=240, check=False).returncode == 0
    before = {name: (tmp_path / name).read_bytes() for name in kept(tmp_path)}
    limit = limited(20_000)  # result.json fits, and the picture does not
    ended = subprocess.run(
        [*command, "--seed", "2"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        preexec_fn=limit,
    )
    assert ended.returncode == 2, ended.stderr
    last = ended.stderr.splitlines()[-1]
    assert last == f"hush: --out: {tmp_path} cannot be written (File too large); make room there"
    assert "Traceback" not in ended.stderr
    assert "estimate" in ended.stdout  # what was found is shown all the same
    assert {name: (tmp_path / name).read_bytes() for name in kept(tmp_path)} == before
