"""The attacker puts modules into a directory, named like those that hush imports, and waits for a command there."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from servers import Mosquitto, free_port

from hush_aggregator import Estimate, ProcessEstimator, SqliteStore
from hush_aggregator.estimate.tally import Tally
from hush_common.child_python import python_command
from hush_common.task import make_task

pytestmark = [pytest.mark.medium, pytest.mark.face]

HUSH = Path(sys.executable).with_name("hush")
PATIENCE_S = 60
HEIGHTS = {"id": "heights", "epsilon": "1", "domain": {"kind": "number", "lower": 0.0, "upper": 250.0}}
INSTALLED = {name for name in packages_distributions() if name.isidentifier()} | {"sitecustomize", "usercustomize"}


def trapped(directory: Path, names: set[str]) -> Path:
    """A directory in which any of these modules, once imported, leaves a file and fails."""
    trap = directory / "trap"
    trap.mkdir()
    for name in names:
        left = str(directory / f"{name}.ran")
        (trap / f"{name}.py").write_text(f"open({left!r}, 'w').close()\nraise ImportError\n", encoding="utf-8")
    return trap


@pytest.fixture
def trap(tmp_path: Path) -> Iterator[Path]:
    """A directory with a module for each of Python's and each that is installed: none is run."""
    yield trapped(tmp_path, INSTALLED | set(sys.stdlib_module_names) - {"__main__"})
    assert not list(tmp_path.glob("*.ran"))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    (tmp_path / "broker").mkdir()
    with Mosquitto(tmp_path / "broker").running() as broker:
        yield broker


@contextmanager
def running(words: Sequence[str], trap: Path, **environment: str) -> "Iterator[subprocess.Popen[str]]":
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        [HUSH, *words],
        cwd=trap,
        env=os.environ | environment,
        stdout=pipe,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.communicate(timeout=PATIENCE_S)


def answer(address: str) -> bytes:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            with urllib.request.urlopen(address, timeout=PATIENCE_S) as response:  # noqa: S310 - our own
                found: bytes = response.read()
                return found
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


@pytest.mark.large
@pytest.mark.parametrize("source", ["serve", "http"])
def test_a_service_with_http_and_estimates_runs_none(
    tmp_path: Path, trap: Path, broker: Mosquitto, source: str
) -> None:
    bind, store, task = f"127.0.0.1:{free_port()}", tmp_path / "store", tmp_path / "task.json"
    task.write_text(json.dumps(HEIGHTS), encoding="utf-8")
    serve = ["serve", "--broker", broker.url, "--store", str(store), "--task", str(task), "--http", bind]
    if source == "http":
        SqliteStore(store).close()
    with running(serve if source == "serve" else ["http", "--store", str(store), "--bind", bind], trap):
        assert answer(f"http://{bind}/v1/tasks")
        if source == "serve":
            assert json.loads(answer(f"http://{bind}/v1/tasks/heights/rounds/latest"))["n"] == 0


@pytest.mark.large
def test_the_workers_of_a_sweep_run_none(tmp_path: Path, trap: Path) -> None:
    grid = tmp_path / "grid.toml"
    grid.write_text('scenario = "heights"\n[grid]\nclients = [100, 200]\n', encoding="utf-8")
    words = ["sweep", str(grid), "--out", str(tmp_path / "out"), "--trials", "2", "--workers", "2"]
    ran = subprocess.run([HUSH, *words], cwd=trap, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.large
@pytest.mark.parametrize("how", ["--open", "--edit"])
def test_a_chapter_of_the_tour_in_a_browser_runs_none(tmp_path: Path, trap: Path, how: str) -> None:
    with running(["tour", "notes", how], trap, BROWSER="true", HOME=str(tmp_path)) as process:
        assert process.stdout is not None
        address = next(found[0] for line in process.stdout if (found := re.search(r"http://\S+", line)))
        assert answer(address.replace("localhost", "127.0.0.1"))


async def test_estimates_come_from_a_process_that_runs_none(trap: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(trap)
    for place in ("", str(trap), "."):
        monkeypatch.setattr(sys, "path", [place, *sys.path])
        with ProcessEstimator() as estimator:
            await estimator.prepare()
            assert isinstance(await estimator(make_task(HEIGHTS), Tally(), 0.95), Estimate)


def test_python_m_hush_runs_no_module_of_the_directory(tmp_path: Path) -> None:
    names = INSTALLED - {name for name in INSTALLED if name.startswith("hush")} | {
        "asyncio",
        "json",
        "pickle",
        "socket",
    }
    words = [sys.executable, "-m", "hush", "plan", "--epsilon", "1", "--error", "5%", "--domain", "bit"]
    ran = subprocess.run(words, cwd=trapped(tmp_path, names), capture_output=True, check=False, timeout=PATIENCE_S)
    assert ran.returncode == 0, ran.stderr
    assert not list(tmp_path.glob("*.ran"))


def test_another_python_finds_what_this_one_finds_in_the_same_order(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "json.py").write_text(f"NAME = {name!r}", encoding="utf-8")
    first = [str(tmp_path / "two"), str(tmp_path / "one")]
    program = f"import sys\nsys.path[:0] = {first!r}\n"
    program += "import subprocess; from hush_common.child_python import python_command\n"
    program += "subprocess.run(python_command('import json, sys, hush; print(json.NAME, *sys.argv[1:])', 'a', 'b'))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "two a b\n"


def test_another_python_starts_where_the_directory_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert subprocess.run(python_command("import hush_common"), check=False).returncode == 0


def test_another_python_reads_no_more_of_the_environment_than_this_one(tmp_path: Path) -> None:
    program = "import subprocess; from hush_common.child_python import python_command\n"
    program += "subprocess.run(python_command('import asyncio'))"
    trap = trapped(tmp_path, {"asyncio", "sitecustomize"})
    subprocess.run([sys.executable, "-I", "-c", program], check=True, env=os.environ | {"PYTHONPATH": str(trap)})
    assert not list(tmp_path.glob("*.ran"))
