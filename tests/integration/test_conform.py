"""`hush conform` passes correct devices, and finds each planted fault."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import fleet
import pytest
from port_programs import C_PORT, CLIENT, compiled_device

from hush_common.errors import TaskError
from hush_common.mechanisms.registry import known
from hush_common.task import decode_task
from hush_simulations.conformance.conform import CHECKS, Order, conform
from hush_simulations.conformance.device import Setup
from hush_simulations.conformance.findings import Conformance, Rule
from hush_simulations.conformance.tasks import hostile, task

HUSH = str(Path(sys.executable).with_name("hush"))
REPORT = (HUSH, "report", "{task}", "-", "--device", "{sender}", "--spread", "{spread}")
DEVICE = (sys.executable, str(Path(__file__).parents[1] / "conform_device.py"))

PLANTED = {  # by check: each fault, and the rule that it breaks
    "answers": {
        "topic": "topic",
        "qos": "qos",
        "retained": "retained",
        "own-digest": "digest",
        "forgets": "charged_once",
        "one-client-id": "mqtt",
        "frame": "frame",
        "round": "round",
        "body": "body",
    },
    "values": {
        "drops-outside": "answers",
        "drops-missing": "answers",
        "size": "same_size",
        "prints": "output",
        "stores": "state",
    },
    "resend": {
        "second-draw": "same_bytes",
        "new-id": "same_bytes",
        "never-again": "resent",
    },
    "crashes": {"forgets": "charged_once"},
    "rounds": {"twice": "charged_once", "any-time": "refuses", "first-round": "rounds"},
    "recalls": {
        "fresh-recall": "same_bytes",
        "every-recall": "recall_limits",
        "any-recall": "recall_limits",
        "live-recalls": "recalled",
    },
    "hostile": {"lenient": "refuses", "locked-out": "recovers"},
    "limits": {
        "any-epsilon": "refuses",
        "any-budget": "budget",
        "any-time": "refuses",
        "unpinned": "pinned",
    },
    "times": {"slow": "times"},
    "noise": {"sign": "law", "too-much-epsilon": "law", "no-noise": "epsilon"},
    "ids": {"fixed-ids": "fresh_ids"},
}


async def checked(directory: Path, order: Order, fault: str = "", *, stops: bool = True) -> Conformance:
    """What `hush conform` finds in the device of the tests."""
    command = (*DEVICE, fault) if fault else DEVICE
    setup = Setup(command, directory / (fault or "correct"), timeout=20, jobs=6, batch=120, stops=stops)
    return await conform(setup, order, lambda *_: None)


LONG = {"noise": [pytest.mark.soak]}
"""The law of the noise takes minutes where other work takes the processor, too."""


@pytest.mark.timeout(400)
@pytest.mark.parametrize("check", [pytest.param(check, marks=LONG.get(check, [])) for check in PLANTED])
async def test_a_check_finds_its_faults(check: str, tmp_path: Path) -> None:
    faults, order = PLANTED[check], Order((check,), samples=480, seconds=300)
    found = await asyncio.gather(*(checked(tmp_path, order, fault) for fault in faults))
    for one, (fault, rule) in zip(found, faults.items(), strict=True):
        assert not one.passed, fault
        assert rule in {broken.rule.name.lower() for broken in one.faults}, (fault, one.faults)


@pytest.mark.soak
@pytest.mark.timeout(600)
async def test_a_correct_device_passes(tmp_path: Path) -> None:
    found = await checked(tmp_path, Order(samples=96, seconds=300), stops=False)
    assert found.passed, found.faults
    assert {finding.status for finding in found.findings} == {"passed"}


def test_each_check_and_each_rule_has_a_planted_fault() -> None:
    assert list(PLANTED) == [check.name for check in CHECKS]
    assert {rule for faults in PLANTED.values() for rule in faults.values()} == {rule.name.lower() for rule in Rule}


def is_legal(payload: bytes, identifier: str) -> bool:
    try:
        return decode_task(payload).id == identifier
    except TaskError:
        return False


def test_no_hostile_task_is_legal_and_the_one_they_are_made_of_is() -> None:
    legal = task("conform-hostile")
    assert is_legal(legal.payload, legal.id)
    cases = hostile(legal)
    assert len({case.name for case in cases}) == len(cases) > 40
    assert [case.name for case in cases if is_legal(case.payload, legal.id)] == []


def command(*options: str, program: Sequence[str], expected: int, patience: float = 110) -> dict[str, Any]:
    """The document that `hush conform` prints of a program."""
    ended = subprocess.run(
        [HUSH, "conform", "--json", *options, "--", *program],
        capture_output=True,
        text=True,
        timeout=patience,
        check=False,
    )
    assert ended.returncode == expected, ended.stdout + ended.stderr
    document: dict[str, Any] = json.loads(ended.stdout)
    return document


def test_a_program_that_does_nothing_is_told_so_and_nothing_else_is_tried() -> None:
    found = command("--timeout", "1", program=["false"], expected=1)
    statuses = [one["status"] for one in found["findings"]]
    assert statuses[0] == "failed"
    assert set(statuses[1:]) == {"not run"}
    assert found["findings"][0]["faults"][0]["what"].startswith("a legal task: no report within 1 s")


def test_the_command_report_answers_and_resends() -> None:
    found = command("--check", "resend", program=REPORT, expected=0)
    assert [(one["check"], one["status"]) for one in found["findings"]] == [("answers", "passed"), ("resend", "passed")]


def test_over_websockets() -> None:
    found = command("--check", "answers", "--websockets", program=REPORT, expected=0)
    assert found["findings"][0]["status"] == "passed"


def test_a_stop_ends_the_programs_and_removes_their_files(tmp_path: Path) -> None:
    program = tmp_path / "sleeper"
    program.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; sleep 600 & wait\n")
    program.chmod(0o700)
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [HUSH, "conform", "--", str(program)], env=environment, stderr=subprocess.PIPE, text=True
    ) as running:
        wait_until((tmp_path / "pid").exists)
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=60)
    assert running.returncode == 130
    assert said.endswith("hush: stopped\n")
    wait_until(lambda: not group_exists(int((tmp_path / "pid").read_text())))
    assert not list(tmp_path.glob("hush-conform-*"))


def group_exists(number: int) -> bool:
    try:
        os.killpg(number, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.05)


def test_a_command_that_cannot_be_started_is_named_without_its_arguments() -> None:
    ended = subprocess.run(
        [HUSH, "conform", "--", "./no-such-program", "geheim"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, "geheim" in ended.stderr) == (2, False)
    assert "'./no-such-program' cannot be started (No such file or directory)" in ended.stderr


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("language", fleet.PROGRAMS)
def test_a_device_of_ours_conforms(language: str, tmp_path: Path) -> None:
    if language == "c":
        compiled_device(tmp_path, C_PORT / "hush_line.c", sanitized=False)
    program = [word.replace("{epsilon}", "{max_epsilon}") for word in fleet.command(language, CLIENT, tmp_path)]
    needed = [f"--require={name}" for name in ("rounds", "recalls", *(part.name for part in known()))]
    many = ("--batch", "25") if language in ("python", "node") else ()
    found = command("--samples", "100", "--seconds", "120", *many, *needed, program=program, expected=0, patience=800)
    assert {one["status"] for one in found["findings"]} <= {"passed", "not judged"}
