"""`hush conform` passes correct devices, and finds each planted fault."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HUSH = str(Path(sys.executable).with_name("hush"))
REPORT = (HUSH, "report", "{task}", "-", "--device", "{sender}", "--spread", "{spread}")


def conform(command: Sequence[str], *options: str, expected: int) -> dict[str, Any]:
    """The document that `hush conform` prints of a program."""
    ended = subprocess.run(
        [HUSH, "conform", "--json", *options, "--", *command], capture_output=True, text=True, timeout=110, check=False
    )
    assert ended.returncode == expected, ended.stdout + ended.stderr
    document: dict[str, Any] = json.loads(ended.stdout)
    return document


def test_the_command_report_answers_and_resends() -> None:
    found = conform(REPORT, "--check", "resend", expected=0)
    assert [(one["check"], one["status"]) for one in found["findings"]] == [("answers", "passed"), ("resend", "passed")]


def test_a_program_that_does_nothing_is_told_so_and_nothing_else_is_tried() -> None:
    found = conform(["false"], "--timeout", "1", expected=1)
    statuses = [one["status"] for one in found["findings"]]
    assert statuses[0] == "failed"
    assert set(statuses[1:]) == {"not run"}
    assert found["findings"][0]["faults"][0]["what"].startswith("a legal task: no report within 1 s")
