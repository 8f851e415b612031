"""The core of a device needs the standard library and nothing else: shown in an interpreter that has nothing else."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tests" / "bare_core.py"
FOLDERS = [str(ROOT / "common"), str(ROOT / "client")]


def bare(tmp_path: Path, *, script: Path = SCRIPT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", "-S", str(script), *FOLDERS, str(tmp_path / "state")]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.medium
def test_tasks_are_answered_and_kept_where_nothing_is_installed(tmp_path: Path) -> None:
    result = bare(tmp_path)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == {
        "charged": [["habit", "draw", "1"], ["heights", "draw", "1"], ["habit", "memo", "0"]],
        "same reports": True,
        "same task": True,
        "admitted": True,
        "remembered": True,
        "sent to": [True, True, True],
    }


@pytest.mark.medium
@pytest.mark.parametrize("module", ["pydantic", "aiomqtt", "typer", "hush_client.sending.mqtt"])
def test_the_bare_interpreter_has_indeed_nothing_else(tmp_path: Path, module: str) -> None:
    script = tmp_path / "planted.py"
    script.write_text(SCRIPT.read_text(encoding="utf-8") + f"\nimport {module}\n", encoding="utf-8")
    result = bare(tmp_path, script=script)
    assert result.returncode == 1
    assert "is not of the standard library" in result.stderr
