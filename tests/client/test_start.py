"""A device starts on what it needs: the standard library for its core, and nothing that only an answer needs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.medium, pytest.mark.face]

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {"aiomqtt", "asyncio", "hush_client.gateway", "hush_common.mechanisms", "paho", "sqlite3", "ssl"}
OF_FILES = {"gzip", "importlib.resources", "tempfile", "tomllib"}


def loaded(statement: str) -> set[str]:
    """Modules in a process of its own, once it has run this."""
    command = [sys.executable, "-c", f"{statement}\nimport sys\nprint(*sys.modules)"]
    return set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())


def test_an_import_spares_what_only_an_answer_or_a_file_needs() -> None:
    started = loaded("")
    assert started & HEAVY == set()  # else it could not be seen
    for statement, spared in (
        ("from hush_client import Client", HEAVY | OF_FILES),
        ("from hush_client import Gateway, SyncClient", OF_FILES | {"aiomqtt", "paho"}),
        ("from hush_client import Client; Client('mqtt://h', device='d', state='s')", {"tomllib"}),
    ):
        assert loaded(statement) & (spared - started) == set(), statement


def test_tasks_are_answered_and_kept_where_nothing_is_installed(tmp_path: Path) -> None:
    folders = [str(ROOT / "common"), str(ROOT / "client")]
    command = [sys.executable, "-I", "-S", str(ROOT / "tests" / "bare_core.py"), *folders, str(tmp_path / "state")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "charged": [["habit", "draw", "1"], ["heights", "draw", "1"], ["habit", "memo", "0"]],
        "same reports": True,
        "same task": True,
        "admitted": True,
        "remembered": True,
        "sent to": [True, True, True],
    }
