"""Without the extra `service` all but HTTP works, and what needs it says what to install."""

import subprocess
import sys
from pathlib import Path

import pytest

BARE = """
import sys
sys.modules |= dict.fromkeys(["fastapi", "starlette", "uvicorn", "prometheus_client"])  # as if they were not installed
sys.argv = ["hush", *sys.argv[1:]]
from hush.__main__ import main
main()
"""


def bare(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BARE, *words], cwd=directory, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize(
    "words",
    [
        ("http", "--store", "store"),
        ("serve", "--broker", "mqtt://127.0.0.1:9", "--store", "store", "--http", "127.0.0.1:0"),
    ],
)
def test_http_names_its_extra_before_anything_starts(tmp_path: Path, words: tuple[str, ...]) -> None:
    run = bare(tmp_path, *words)
    assert run.returncode == 1
    assert "needs uvicorn, which comes with hush-ldp[service]" in run.stderr
    assert run.stderr.count("\n") == 1
    assert not (tmp_path / "store").exists()


def test_what_is_not_http_needs_no_extra(tmp_path: Path) -> None:
    assert bare(tmp_path, "http", "--help").returncode == 0
    run = bare(tmp_path, "serve", "--broker", "mqtt://127.0.0.1:9", "--store", "no/store")
    assert "the directory no does not exist" in run.stderr
