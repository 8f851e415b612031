"""Every public name of every package has a type that no type checker has to guess."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.large

ROOT = Path(__file__).resolve().parents[2]
_BUILD = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
PACKAGES: list[str] = _BUILD["targets"]["wheel"]["packages"]


def completeness(package: str, place: Path) -> dict[str, Any]:
    """What pyright says of the package, which it looks for with the Python of this test."""
    binaries = Path(sys.executable).parent
    environment = os.environ | {
        "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(place),
        "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1",
    }
    command = [sys.executable, "-m", "pyright", "--verifytypes", package, "--ignoreexternal", "--outputjson"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, timeout=280)
    found: dict[str, Any] = json.loads(done.stdout)["typeCompleteness"]
    return found


@pytest.mark.parametrize("package", [one for one in PACKAGES if not one.startswith("docs/")])  # those are programs
def test_every_public_name_has_a_type(package: str) -> None:
    found = completeness(Path(package).name, ROOT / Path(package).parent)
    guessed = [
        f"{symbol['name']}: {problem['message']}"
        for symbol in found["symbols"]
        for problem in symbol["diagnostics"]
        if not symbol["isTypeKnown"] and symbol["isExported"]
    ]
    assert guessed == []
    assert found["completenessScore"] == 1
    assert sum(found["exportedSymbolCounts"].values()) > 0
