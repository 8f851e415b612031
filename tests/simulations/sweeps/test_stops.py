"""A sweep that is stopped, by whatever: what is made stays, nothing is half-written, and the same call goes on."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from waiting import wait_until

import hush
from hush import HushError, SweepResult
from hush_common.errors import OptionError
from hush_simulations.sweeps import directory as cell_file

GRID = {"task.mechanism": ["multilevel", "laplace"], "task.epsilon": [0.5, 1, 2]}


def swept(out: Path, **more: object) -> SweepResult:
    return hush.sweep(GRID, out=out, trials=10, seed=7, **more)  # type: ignore[arg-type]


def content(directory: Path) -> dict[str, bytes]:
    files = sorted(path for path in directory.rglob("*") if path.is_file() and path.name != "lock")
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What an uninterrupted sweep leaves."""
    directory = tmp_path_factory.mktemp("whole")
    swept(directory)
    return content(directory)


KILLS = """
import os, signal, sys
from pathlib import Path
import hush
from hush_simulations.sweeps import directory, worker

out = Path(sys.argv[1])
grid = {"task.mechanism": ["multilevel", "laplace"], "task.epsilon": [0.5, 1, 2]}

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def inside_a_write():
    fsync, seen = os.fsync, []
    def cut(number):
        seen.append(number)
        if len(seen) == 3:  # the manifest, a cell, and half of another
            os.ftruncate(number, 100)
            die()
        fsync(number)
    os.fsync = cut

def before_a_rename():
    replace, seen = Path.replace, []
    def cut(path, target):
        seen.append(path)
        if len(seen) == 2:
            die()
        return replace(path, target)
    Path.replace = cut

def inside_a_cell():
    make = worker.evaluate_cell
    def cut(work):
        rows = make(work)
        if work.number == 4:
            die()
        return rows
    worker.evaluate_cell = cut

for fuse in (inside_a_write, before_a_rename, inside_a_cell):
    child = os.fork()
    if not child:
        fuse()
        hush.sweep(grid, out=out, trials=10, seed=7)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL, status
    print(len(list((out / "cells").glob("0*.json"))), len(list((out / "cells").glob("*.part"))))
"""


@pytest.mark.medium
def test_a_sweep_killed_three_times_ends_with_the_same_bytes(tmp_path: Path, whole: dict[str, bytes]) -> None:
    ran = subprocess.run([sys.executable, "-c", KILLS, str(tmp_path)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["1", "1", "2", "1", "4", "0"]  # cells made, and drafts that a killed one left
    made: list[int] = []
    swept(tmp_path, progress=lambda done, _: made.append(done))
    assert made == [4, 5, 6]
    assert content(tmp_path) == whole


@pytest.mark.medium
def test_a_cut_or_changed_cell_file_is_not_used(whole: dict[str, bytes]) -> None:
    (text, *_) = (text for name, text in whole.items() if name.startswith("cells"))
    assert cell_file.decode(text) is not None
    for cut in range(0, len(text), 5):
        assert cell_file.decode(text[:cut]) is None
    for place in range(0, len(text), 11):
        assert cell_file.decode(text[:place] + bytes([text[place] ^ 1]) + text[place + 1 :]) is None
    assert cell_file.decode(text + b"\n") is None


@pytest.mark.medium
def test_a_second_sweep_in_a_directory_is_refused(tmp_path: Path) -> None:
    refusals: list[str] = []

    def second(_: int, __: int) -> None:
        with pytest.raises(OptionError, match="--out") as refused:
            swept(tmp_path)
        refusals.append(str(refused.value))

    swept(tmp_path, progress=second)
    assert len(refusals) == 7
    swept(tmp_path)


@pytest.mark.medium
def test_a_killed_worker_is_an_error_and_the_rest_is_made_later(tmp_path: Path, whole: dict[str, bytes]) -> None:
    def kill(made: int, _: int) -> None:
        if made == 1:
            for child in Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split():
                if b"sweeps.worker" in Path(f"/proc/{child}/cmdline").read_bytes():
                    os.kill(int(child), signal.SIGKILL)

    with pytest.raises(HushError, match="worker"):
        swept(tmp_path, workers=2, progress=kill)
    swept(tmp_path)
    assert content(tmp_path) == whole


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """`hush sweep` in a process of its own, which does not outlive the test."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> "subprocess.Popen[str]":
        words = [sys.executable, "-m", "hush", "sweep", "mine.toml", "--out", "out", *arguments]
        pipe = subprocess.PIPE
        process = subprocess.Popen(words, cwd=tmp_path, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
        started.append(process)
        return process

    shutil.copyfile(Path(cell_file.__file__).parent / "shipped" / "epsilon.toml", tmp_path / "mine.toml")
    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.large
@pytest.mark.parametrize(("workers", "number", "status"), [("2", signal.SIGINT, 130), ("1", signal.SIGTERM, 143)])
def test_ctrl_c_keeps_what_is_made_and_says_how_to_go_on(
    tmp_path: Path,
    command: Callable[..., "subprocess.Popen[str]"],
    workers: str,
    number: signal.Signals,
    status: int,
) -> None:
    process = command("--workers", workers, "--trials", "100")  # many seconds after the first cell
    cells = tmp_path / "out" / "cells"
    wait_until(lambda: list(cells.glob("0*.json")))
    (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)  # a terminal sends it to workers as well
    _, err = process.communicate(timeout=60)
    assert process.returncode == status, err
    kept = sorted(path.name for path in cells.iterdir())
    assert 0 < len(kept) < 45
    assert not [name for name in kept if name.endswith(".part")]
    assert f"{len(kept)} of 45" in err.splitlines()[-1]
    assert "Traceback" not in err
    told = command("--trials", "100", "--status")
    out, _ = told.communicate(timeout=60)
    assert f"{len(kept)} made, {45 - len(kept)} missing" in out
