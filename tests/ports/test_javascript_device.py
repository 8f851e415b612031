"""The JavaScript device in node against real brokers: answers, kills at each step, the program in docs/ports.md."""

import json
import os
import re
import select
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority
from port_programs import PORTS
from reports_seen import seeing_reports
from servers import Mosquitto, free_port, need
from serving import estimate, serving

from hush_common.wire import Frame, decode
from hush_simulations.brokers.embedded import embedded_broker

pytestmark = pytest.mark.large

PROGRAM = PORTS / "js" / "bin" / "hush-device.js"
CHILD = Path(__file__).parents[1] / "ports" / "js" / "crash_child.mjs"
HEIGHTS = """id = "heights"
title = "Mean height of adults"
epsilon = "1"
mechanism = "laplace"
domain = {kind = "number", lower = 120.0, upper = 220.0, unit = "cm"}
"""
TASK = {
    "domain": {"kind": "number", "lower": 120.0, "outside": "clamp", "unit": "cm", "upper": 220.0},
    "epsilon": "1",
    "id": "heights",
    "mechanism": "laplace",
    "rounds": 1,
}
STEPS = [
    *("open", "opened", "written", "synced", "rename", "renamed"),  # of the record with the charge and the report
    *("publish", "published"),
    *("rename 2", "renamed 2"),  # of the record after the acknowledgement
]


def device(url: str, state: Path, *arguments: str, check: bool = True) -> list[dict[str, Any]]:
    """The receipts of hush-device."""
    command = [need("node"), str(PROGRAM), url, "--device", "d1", "--state", str(state), *arguments]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert run.returncode == 0 or not check, run.stderr
    return [json.loads(line) for line in run.stdout.splitlines()]


def publish(mosquitto: Mosquitto, task: dict[str, object], *login: str) -> None:
    command = [need("mosquitto_pub"), "-p", str(mosquitto.port), "-q", "1", "-r", "-t", f"hush/v1/tasks/{task['id']}"]
    subprocess.run([*command, *login, "-m", json.dumps(task)], check=True)


def test_a_report_of_the_program_is_counted_once(mosquitto: Mosquitto, tmp_path: Path) -> None:
    once = ["--task", "heights", "--value", "172", "--once", "--spread", "0"]
    with serving(mosquitto.url, tmp_path, HEIGHTS):
        assert estimate(mosquitto.port, 0)["n"] == 0
        (first,) = device(mosquitto.url, tmp_path / "state", *once)
        (second,) = device(mosquitto.url, tmp_path / "state", *once)
        document = estimate(mosquitto.port, 1)
    assert (first["status"], second["status"], first["report"]) == ("sent", "answered", second["report"])
    (number,) = first["body"]
    assert (document["n"], document["refused"]) == (1, {})
    assert document["mean"] == pytest.approx(120 + 100 * number / 2**20)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("step", STEPS)
def test_a_killed_device_is_charged_once_and_sends_the_same_bytes(
    mosquitto: Mosquitto, tmp_path: Path, step: str
) -> None:
    publish(mosquitto, TASK)
    state = tmp_path / "state"
    child = [need("node"), str(CHILD), step, mosquitto.url, str(state), "150", "heights"]
    with seeing_reports(mosquitto, tmp_path / "reports") as seen:
        run = subprocess.run(child, capture_output=True, text=True, check=False, timeout=60)
        assert run.returncode == -9, f"it was not killed: {run.stdout} {run.stderr}"
        (receipt,) = device(mosquitto.url, state, "--task", "heights", "--value", "190", "--once", "--spread", "0")
        frames = seen.distinct()
    record = json.loads((state / "task.heights.record").read_text(encoding="utf-8").split("\n", 1)[1])
    assert record["spent"] == "1/1"
    assert record["answered"] == [[0, 0]]
    assert receipt["status"] in ("sent", "answered")
    assert len(frames) == 1, "nothing was drawn twice"
    found = decode(bytes.fromhex(frames.pop()))
    assert isinstance(found, Frame)
    assert found.reports[0].id.hex() == receipt["report"]


async def test_a_device_answers_at_the_embedded_broker(tmp_path: Path) -> None:
    async with embedded_broker() as url:
        port = url.rsplit(":", 1)[1]
        publish(Mosquitto(tmp_path, port=int(port)), TASK)
        (receipt,) = device(url, tmp_path / "state", "--task", "heights", "--value", "172", "--once", "--spread", "0")
    assert receipt["status"] == "sent"


def test_a_device_answers_each_round_of_a_task(mosquitto: Mosquitto, tmp_path: Path) -> None:
    opens = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    bit = {"domain": {"kind": "bit"}, "epsilon": "4", "id": "often", "mechanism": "randomized_response"}
    publish(mosquitto, {**bit, "opens": opens, "round_every": "1s", "rounds": 1_000_000, "epsilon": "4"})
    command = [need("node"), str(PROGRAM), mosquitto.url, "--device", "d1", "--state", str(tmp_path / "state")]
    command += ["--value", "yes", "--spread", "0", "--task", "often"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        receipts = [json.loads(process.stdout.readline()) for _ in range(3)]
        process.terminate()
        process.communicate(timeout=60)
        assert process.returncode == 0
    assert [one["status"] for one in receipts] == ["queued"] * 3
    assert len({one["round"] for one in receipts}) == 3


def test_a_device_in_node_answers_only_a_broker_that_it_trusts(tmp_path: Path) -> None:
    authority, stranger, port = Authority(tmp_path), Authority(tmp_path, "stranger"), free_port()
    certificate, key = authority.issue("broker", host="127.0.0.1")
    broker = Mosquitto(tmp_path, listeners={port: f"certfile {certificate}\nkeyfile {key}"})
    broker.start()
    try:
        publish(broker, TASK)
        common = [need("node"), str(PROGRAM), f"mqtts://127.0.0.1:{port}", "--device", "d1", "--task", "heights"]
        common += ["--value", "172", "--once", "--spread", "0"]
        for ca, timeout, expected in ((authority, "60", 0), (stranger, "5", 1)):
            state = tmp_path / f"state-{expected}"
            command = [*common, "--ca", str(ca.pem), "--state", str(state), "--timeout", timeout]
            run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
            assert run.returncode == expected, run.stderr
            if expected == 0:
                assert json.loads(run.stdout)["status"] == "sent"
                assert run.stderr == ""
            else:
                assert run.stdout == ""
                assert "certificate" in run.stderr
                assert list(state.glob("*.record")) == []  # nothing was charged
    finally:
        broker.stop()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["mqtt://localhost"], "--device"),
        (["mqtt://localhost", "--device", "d1"], "--state"),
        (["--device", "d1", "--state", "s"], "mqtt://localhost"),
        (["mqtt://localhost", "--device", "d1", "--state", "s", "--once"], "--once needs --task"),
        (["mqtt://localhost", "--divice", "d1"], "--divice"),
        (["mqtt://localhost", "--device"], "--device"),
        (["http://localhost", "--device", "d1", "--state", "s"], "mqtt://"),
        (["mqtt://h", "--device", "-d", "--state", "s"], "name"),
        (["mqtt://h", "--device", "d", "--state", "s", "--lifetime", "x"], "lifetime"),
        (["mqtt://h", "--device", "d", "--state", "s"], "--value-file"),
        (["mqtt://h", "--device", "d", "--state", "s", "--spread", "x"], "--spread"),
        (["mqtt://h", "--device", "d", "--state", "s", "--password-file", "x"], "--password-file"),
        (["mqtt://u@h", "--device", "d", "--state", "s", "--password-file", "nosuch"], "nosuch"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line(arguments: list[str], named: str, tmp_path: Path) -> None:
    run = subprocess.run(
        [need("node"), str(PROGRAM), *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert run.returncode == 2
    assert run.stderr.startswith("hush-device: ")
    assert named in run.stderr
    assert run.stderr.count("\n") == 1


LOGIN = "s3cret-word"


def test_the_value_and_the_password_are_in_no_process_list(tmp_path: Path) -> None:
    """They come from a file or from standard input, and the address from the environment."""
    port, passwords, state = free_port(), tmp_path / "passwords", tmp_path / "state"
    subprocess.run([need("mosquitto_passwd"), "-b", "-c", str(passwords), "d1", LOGIN], check=True, capture_output=True)
    passwords.chmod(0o644)
    (tmp_path / "password").write_text(f"{LOGIN}\nanother line\n", encoding="utf-8")
    (tmp_path / "value").write_text("172\n", encoding="utf-8")
    broker = Mosquitto(tmp_path, listeners={port: f"allow_anonymous false\npassword_file {passwords}"})
    broker.start()
    try:
        for task in ("heights", "weights"):
            publish(broker, {**TASK, "id": task}, "-u", "d1", "-P", LOGIN)
        environment = {**os.environ, "HUSH_BROKER": f"mqtt://127.0.0.1:{port}", "HUSH_STATE": str(state)}
        common = [need("node"), str(PROGRAM), "--device", "d1", "--user", "d1", "--once", "--spread", "0"]
        common += ["--password-file", str(tmp_path / "password"), "--task"]
        for task, value in (("heights", ["--value-file", str(tmp_path / "value")]), ("weights", ["--value", "-"])):
            command = [*common, task, *value]
            assert LOGIN not in " ".join(command)
            assert "172" not in command
            run = subprocess.run(
                command, env=environment, input="172\n", capture_output=True, text=True, check=False, timeout=60
            )
            assert run.returncode == 0, run.stderr
            assert json.loads(run.stdout)["status"] == "sent"
            assert LOGIN not in run.stdout + run.stderr
            assert all(LOGIN not in file.read_text(encoding="utf-8") for file in state.iterdir())
    finally:
        broker.stop()


FIRE_AND_FORGET = """
import {{ Device, openDirectory }} from {node};
import fs from "node:fs";
const storage = await openDirectory("state");
const device = await new Device({{ url: {url}, device: "d1", storage, spread: 0 }}).open();
await device.task("heights", {{ timeout: 60 }});
fs.renameSync("state", "gone");
device.answerEachRound("heights", () => 172);
while (!device.trouble.startsWith("storage")) await new Promise((resolve) => setTimeout(resolve, 10));
for (let i = 0; i < 10; i++) await new Promise((resolve) => setImmediate(resolve));
console.log("alive", device.trouble);
process.exit(0);
"""


def test_a_storage_that_fails_does_not_end_the_program_around_a_device(mosquitto: Mosquitto, tmp_path: Path) -> None:
    publish(mosquitto, TASK)
    names = {"node": json.dumps(str(PORTS / "js" / "src" / "node.js")), "url": json.dumps(mosquitto.url)}
    (tmp_path / "run.mjs").write_text(FIRE_AND_FORGET.format(**names), encoding="utf-8")
    run = subprocess.run(
        [need("node"), "run.mjs"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.startswith("alive storage")


def test_the_node_program_of_the_document_runs(mosquitto: Mosquitto, tmp_path: Path) -> None:
    publish(mosquitto, TASK)
    text = (PORTS.parents[1] / "docs" / "ports.md").read_text(encoding="utf-8")
    block = re.findall(r"```js\n(.*?)```", text, re.DOTALL)[0]
    block = block.replace('"hush-ldp/node"', json.dumps(str(PORTS / "js" / "src" / "node.js")))
    (tmp_path / "run.mjs").write_text(block.replace("mqtt://localhost", mosquitto.url), encoding="utf-8")
    run = subprocess.run(
        [need("node"), "run.mjs"], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
    )
    assert re.fullmatch(r"sent -?[0-9.]+ cm\n", run.stdout)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no pipe that does not block")
def test_a_value_that_comes_slowly_from_a_pipe_is_read_whole(mosquitto: Mosquitto, tmp_path: Path) -> None:
    publish(mosquitto, {**TASK, "epsilon": "50"})
    command = [need("node"), str(PROGRAM), mosquitto.url, "--device", "d1", "--state", str(tmp_path / "state")]
    command += ["--task", "heights", "--once", "--spread", "0", "--max-epsilon", "50", "--lifetime", "50"]
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    with ours, subprocess.Popen([*command, "--value", "-"], stdin=theirs.fileno(), stdout=subprocess.PIPE) as process:
        ours.sendall(b"21")  # cm: alone it counts as 120
        while select.select([theirs], [], [], 0)[0]:
            time.sleep(0.01)  # until it is read
        theirs.close()
        ours.sendall(b"9\n")
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    (number,) = json.loads(output)["body"]
    assert 120 + 100 * number / 2**20 > 150, "noise of 69 cm is 34 times its scale"
