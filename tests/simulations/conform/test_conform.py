"""`hush conform` passes correct devices, and finds each planted fault."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import fleet
import pytest
from conform_forks import DEVICE, forks
from port_programs import C_PORT, CLIENT, compiled_device
from waiting import wait_until

from hush_common.errors import TaskError
from hush_common.task import decode_task
from hush_conform.checks.check import Check, CheckOutcome, Knowledge
from hush_conform.conform import CHECKS, OPTIONAL, Order, conform
from hush_conform.device import Setup
from hush_conform.findings import Rule
from hush_conform.tasks import hostile, task

HUSH = str(Path(sys.executable).with_name("hush"))
REPORT = (HUSH, "report", "{task}", "-", "--device", "{sender}", "--spread", "{spread}")

TRIES = 2
"""Further runs where a check found the machine too busy to judge."""

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
    "offers": {"any-offer": "offer", "offer-by-value": "offer"},
    "sticky": {"redraws": "memory", "sticky-by-round": "budget"},
    "recalls": {
        "fresh-recall": "same_bytes",
        "every-recall": "recall_limits",
        "any-recall": "recall_limits",
        "live-recalls": "recalled",
        "at-once": "spread",
    },
    "hostile": {"lenient": "refuses", "locked-out": "recovers"},
    "limits": {
        "any-epsilon": "refuses",
        "any-budget": "budget",
        "any-time": "refuses",
        "unpinned": "pinned",
    },
    "times": {"slow": "times"},
    "noise": {
        "sign": "law",
        "twice-epsilon": "epsilon",
        "no-noise": "epsilon",
        "wrong-offer": "law",
        "without-coins": "law",
        "other-is-drawn": "law",
    },
    "ids": {"fixed-ids": "fresh_ids"},
}


LAWS = {
    "sign": "laplace",
    "twice-epsilon": "laplace",
    "no-noise": "laplace",
    "wrong-offer": "offers",
    "without-coins": "coins",
    "other-is-drawn": "other",
}
"""The law under which a fault of the noise shows."""


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Start the device of the tests as a fork."""
    with forks() as server:
        monkeypatch.setattr(asyncio, "create_subprocess_exec", server.start)
        yield


def setup_of(directory: Path, fault: str = "") -> Setup:
    command = (sys.executable, str(DEVICE), *([fault] if fault else []))
    return Setup(command, directory / (fault or "correct"), timeout=4, jobs=6, batch=120, stops=bool(fault))


async def found_in(check: Check, fault: str, directory: Path) -> CheckOutcome:
    """What a check finds in a device with a fault; the times of an answer are given."""
    setup = setup_of(directory, fault)
    setup.slowest = 0.2
    laws = [LAWS[fault]] if check.name == "noise" else ()
    samples = {"twice-epsilon": None, "without-coins": 1000}.get(fault, 240)  # so many miss a fault once in 10^9
    knowledge = Knowledge(setup, samples=samples, seconds=3600, laws=laws, answers=0.5)
    if check.name == "ids":
        await CHECKS[0].run(knowledge)
    return await check.run(knowledge)


@pytest.mark.large
@pytest.mark.usefixtures("forked")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_a_check_finds_its_faults(check: Check, tmp_path: Path) -> None:
    faults = PLANTED[check.name]
    found = await asyncio.gather(*(found_in(check, fault, tmp_path) for fault in faults))
    for outcome, (fault, rule) in zip(found, faults.items(), strict=True):
        for number in range(TRIES):  # on a busy machine a check may refuse to judge: then alone, as it tells a user
            if outcome.is_judged:
                break
            again = tmp_path / f"again-{number}"
            again.mkdir(exist_ok=True)
            outcome = await found_in(check, fault, again)  # noqa: PLW2901 - the one that counts
        assert rule in {broken.rule.name.lower() for broken in outcome.faults}, (fault, outcome)


@pytest.mark.large
@pytest.mark.usefixtures("forked")
@pytest.mark.timeout(1200)
async def test_a_correct_device_passes(tmp_path: Path) -> None:
    open_checks: list[str] = []
    for number in range(1 + TRIES):
        directory = tmp_path / str(number)
        directory.mkdir()
        order = Order(checks=open_checks, samples=60, seconds=3600)
        found = await conform(setup_of(directory), order, lambda *_: None)
        assert not any(one.status == "failed" for one in found.findings), found.faults
        open_checks = [one.check for one in found.findings if one.status != "passed"]
        if not open_checks:
            break
    assert open_checks == [], found.findings


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


@pytest.mark.medium
@pytest.mark.face
def test_after_a_program_that_does_nothing_nothing_else_is_tried() -> None:
    found = command("--timeout", "1", program=["false"], expected=1)
    statuses = [one["status"] for one in found["findings"]]
    assert statuses[0] == "failed"
    assert set(statuses[1:]) == {"not run"}
    assert "1 s" in found["findings"][0]["faults"][0]["what"]


@pytest.mark.large
@pytest.mark.face
def test_hush_report_answers_and_resends() -> None:
    found = command("--check", "resend", "--websockets", program=REPORT, expected=0)
    assert [(one["check"], one["status"]) for one in found["findings"]] == [("answers", "passed"), ("resend", "passed")]


@pytest.mark.medium
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
    assert "Traceback" not in said
    wait_until(lambda: not group_exists(int((tmp_path / "pid").read_text())))
    assert not list(tmp_path.glob("hush-conform-*"))


@pytest.mark.large
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere only the process group is killed")
def test_no_process_of_a_program_is_left(tmp_path: Path) -> None:
    """Background processes of a program that has ended: in its session, in another one, and without its environment."""
    program = tmp_path / "leaver"
    kinds = {"session": "setsid", "bare": "env -i setsid", "group": "nohup"}
    lines = [f"{how} sh -c 'echo $$ >> {tmp_path}/{name}; sleep 600' >/dev/null 2>&1 &" for name, how in kinds.items()]
    started = " && ".join(f"[ -s {tmp_path}/{name} ]" for name in kinds)
    program.write_text("#!/bin/sh\n" + "\n".join(lines) + f"\nuntil {started}; do sleep 0.05; done\n")
    program.chmod(0o700)
    found = command("--check", "answers", "--timeout", "10", program=[str(program)], expected=1)
    assert found["findings"][0]["faults"][0]["rule"] == "answers"
    for name in kinds:
        pids = [int(line) for line in (tmp_path / name).read_text().split()]
        assert pids
        assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == [], name


@pytest.mark.large
def test_a_program_that_floods_gets_its_verdict(tmp_path: Path) -> None:
    """A hundred megabytes of output and 5 000 subscriptions: the last line is shown, and neither is stored."""
    program = tmp_path / "flood.py"
    program.write_text(FLOOD)
    measured = (
        "import resource, subprocess, sys\n"
        "code = subprocess.call(sys.argv[1:])\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)\n"
        "sys.exit(code)\n"
    )
    words = (HUSH, "conform", "--json", "--check", "answers", "--timeout", "20", "--", sys.executable, str(program))
    ended = subprocess.run(
        [sys.executable, "-I", "-c", measured, *words, "{broker}"],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    (found,) = [one for one in json.loads(ended.stdout)["findings"] if one["check"] == "answers"]
    assert "the last line" in found["faults"][0]["what"]
    assert any("more than" in fault["what"] for fault in found["faults"])
    assert int(ended.stderr.split()[-1]) < 400_000  # KiB; the output alone made it more


FLOOD = """
import contextlib, socket, struct, sys, time
for _ in range(1000):
    sys.stdout.write("x" * 100_000)
print("\\nthe last line", flush=True)
host, port = sys.argv[1].removeprefix("mqtt://").split(":")
link = socket.create_connection((host, int(port)))
link.sendall(bytes.fromhex("101000044d5154540402003c0004") + b"name")
link.recv(4)
body = struct.pack(">H", 1) + b"\\0\\1a\\1" * 5_000
length = bytes((len(body) & 127 | 128, len(body) >> 7 & 127 | 128, len(body) >> 14))
with contextlib.suppress(OSError):
    link.sendall(b"\\x82" + length + body)
    link.recv(1 << 20)
time.sleep(600)
"""


def group_exists(number: int) -> bool:
    try:
        os.killpg(number, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.medium
def test_a_command_that_cannot_be_started_is_named_without_its_arguments() -> None:
    ended = subprocess.run(
        [HUSH, "conform", "--", "./no-such-program", "geheim"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, "geheim" in ended.stderr) == (2, False)
    assert "'./no-such-program'" in ended.stderr


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("language", fleet.PROGRAMS)
def test_a_device_of_ours_conforms(language: str, tmp_path: Path) -> None:
    if language == "c":
        compiled_device(tmp_path, C_PORT / "hush_line.c", sanitized=False)
    program = [word.replace("{epsilon}", "{max_epsilon}") for word in fleet.command(language, CLIENT, tmp_path)]
    needed = [f"--require={name}" for name in OPTIONAL]
    options = ("--samples", "100", "--seconds", "300", "--batch", "25", *needed)
    found = command(*options, program=program, expected=0, patience=800)
    assert {one["status"] for one in found["findings"]} == {"passed"}
