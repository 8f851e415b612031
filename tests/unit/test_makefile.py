"""The Makefile works in an environment that somebody else has made, as README does, with the pip of its Python."""

import os
import subprocess
from pathlib import Path

import pytest

MAKEFILE = Path(__file__).parents[2] / "Makefile"

# Stands for the Python of an environment whose pip is older than 25.1, until it is told to upgrade that.
PYTHON = """#!/bin/sh
echo "$*" >> "$(dirname "$0")/calls"
case "$*" in
    *"--upgrade pip>=25.1"*) touch "$(dirname "$0")/upgraded" ;;
    *--group*) [ -e "$(dirname "$0")/upgraded" ] || { echo "no such option: --group" >&2; exit 2; } ;;
esac
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    (tmp_path / "Makefile").write_text(MAKEFILE.read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "pyproject.toml").touch()
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(PYTHON, encoding="utf-8")
    python.chmod(0o755)
    return tmp_path


def make(clone: Path, *targets: str) -> "subprocess.CompletedProcess[str]":
    """`make`, as in a shell: whatever the make that runs the tests has set."""
    environment = {"PATH": os.environ["PATH"]}
    return subprocess.run(["make", *targets], cwd=clone, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("target", [".venv/dev", ".venv/bench", "docs"])
def test_an_old_pip_is_upgraded_before_a_dependency_group_is_installed(clone: Path, target: str) -> None:
    made = make(clone, target)
    assert (made.returncode, made.stderr) == (0, "")
    calls = (clone / ".venv" / "bin" / "calls").read_text(encoding="utf-8").splitlines()
    assert sum("--upgrade pip>=25.1" in call for call in calls) == 1
    assert sum("--group dev" in call for call in calls) == 1


def test_nothing_is_installed_again(clone: Path) -> None:
    for _ in range(2):
        assert make(clone, ".venv/dev", ".venv/demo").returncode == 0
    assert len((clone / ".venv" / "bin" / "calls").read_text(encoding="utf-8").splitlines()) == 2
