"""docs/wire.md is true: its blocks compile and run, and what they send a real aggregator counts once."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from port_programs import PORTS, micropython
from servers import Mosquitto, need
from serving import estimate, serving

from hush_common.recall import decode_recall
from hush_common.task import decode_task
from hush_common.wire import Frame, decode

DOCUMENT = (Path(__file__).parents[2] / "docs" / "wire.md").read_text(encoding="utf-8")
TASK, REPORT, RECALL = (json.loads(text) for text in re.findall(r"```json\n(.*?)```", DOCUMENT, re.DOTALL))
PAYLOAD = re.findall(r"```json\n(.*?)\n```", DOCUMENT, re.DOTALL)[0].encode()
HEIGHTS = """
id = "heights"
title = "Mean height of adults"
purpose = "Sizing of workplaces"
epsilon = "1"
[domain]
kind = "number"
lower = 120.0
upper = 220.0
unit = "cm"
"""
PORTS_GUIDE = (Path(__file__).parents[2] / "docs" / "ports.md").read_text(encoding="utf-8")
RUN_TWICE = """
import os
import sys

sys.path.insert(0, "{ports}")
{block}

os.mkdir("state")

def publish(topic, frame):
    print("publish", topic, "".join("%02x" % byte for byte in frame))
    if sent.pop():
        raise OSError  # the connection is lost before the acknowledgement

with open("heights.json", "rb") as file:
    message = "hush/v1/tasks/heights", file.read()
sent, now = [False, True], [0]  # the first time it is lost

def clock():
    now[0] += 2000  # a report is sent within a second
    return now[0]

for run in range(2):
    try:
        run_device("state", "sensor-17", clock, [message], [("heights", lambda: "172.0")], publish)
    except OSError:
        pass
"""


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOCUMENT, re.DOTALL)


def counted_then_refused(port: int, first: dict[str, object], body: int) -> bool:
    """Whether one report of that body was counted once, and the same bytes again were refused."""
    again = estimate(port, 2)
    mean = pytest.approx(120 + 100 * body / 2**20)
    return [
        (first["n"], first["refused"], first["mean"] == mean),
        (again["n"], again["refused"], again["mean"] == mean),
    ] == [(1, {}, True), (1, {"duplicate": 1}, True)]


def body_of(frame: bytes) -> int:
    decoded = decode(frame)
    assert isinstance(decoded, Frame)
    return decoded.reports[0].body[0]


@pytest.mark.large
def test_the_shell_recipe_is_counted_once_however_often_it_runs(mosquitto: Mosquitto, tmp_path: Path) -> None:
    (recipe,) = blocks("sh")
    for program in ("mosquitto_pub", "mosquitto_sub"):
        recipe = recipe.replace(f"{program} -h broker.local", f"{need(program)} -p {mosquitto.port}")
    recipe = recipe.replace("gcc ", need("gcc") + " ")
    shutil.copytree(PORTS, tmp_path / "client" / "ports")
    with serving(mosquitto.url, tmp_path, HEIGHTS):
        assert estimate(mosquitto.port, 0)["n"] == 0
        subprocess.run(["sh", "-c", recipe], cwd=tmp_path, check=True)
        first = estimate(mosquitto.port, 1)
        subprocess.run(["sh", "-c", recipe], cwd=tmp_path, check=True)
        state = tmp_path / "hush-state"
        assert (state / "heights.json").read_bytes() == PAYLOAD
        assert "epsilon 1\n" in (state / "heights.charge").read_text(encoding="utf-8")
        assert counted_then_refused(mosquitto.port, first, body_of((state / "heights.frame").read_bytes()))


def recipe(language: str, directory: Path) -> list[str]:
    """The command that answers twice by the recipe for a language, in a directory that has the task."""
    (block,) = re.findall(r"```python\n(.*?)```", PORTS_GUIDE, re.DOTALL)
    (directory / "run.py").write_text(RUN_TWICE.format(ports=PORTS / "micropython", block=block), encoding="utf-8")
    program = directory / "run.py"
    return micropython(program, directory, PORTS) if language == "micropython" else [sys.executable, "-I", str(program)]


@pytest.mark.parametrize("language", ["micropython", "cpython"])
def test_a_recipe_that_is_not_compiled_draws_once_and_is_counted_once(
    mosquitto: Mosquitto, tmp_path: Path, language: str
) -> None:
    (tmp_path / "heights.json").write_bytes(PAYLOAD)
    command = recipe(language, tmp_path)
    run = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert "answered: this round is answered" in run.stdout
    sent, again = (line for line in run.stdout.splitlines() if line.startswith("publish"))
    assert sent == again, "the second run sends the bytes of the first"
    _, topic, frame = sent.split()
    (tmp_path / "frame").write_bytes(bytes.fromhex(frame))
    publish = [need("mosquitto_pub"), "-p", str(mosquitto.port), "-q", "1", "-t", topic, "-f", str(tmp_path / "frame")]
    with serving(mosquitto.url, tmp_path, HEIGHTS):
        assert estimate(mosquitto.port, 0)["n"] == 0
        subprocess.run(publish, check=True)
        first = estimate(mosquitto.port, 1)
        subprocess.run(publish, check=True)
        assert counted_then_refused(mosquitto.port, first, body_of(bytes.fromhex(frame)))


def test_the_python_block_without_hush_holds() -> None:
    subprocess.run([sys.executable, "-I", "-c", blocks("python")[0]], check=True)


def test_the_task_and_the_json_report_are_those_of_the_protocol() -> None:
    task = decode_task(PAYLOAD)
    assert json.loads(task.payload) == TASK
    frame = decode(json.dumps(REPORT).encode())
    assert isinstance(frame, Frame)
    assert (frame.task, frame.digest) == (task.id, task.report_digest)


def test_the_recall_is_one_of_the_task_beside_it() -> None:
    recall = decode_recall(json.dumps(RECALL).encode())
    assert recall is not None
    assert (recall.task, recall.digest) == (TASK["id"], decode_task(PAYLOAD).digest)
