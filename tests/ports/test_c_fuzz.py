"""A fuzzer over everything that the C port parses: tasks, recalls, values and the records of its state.

The sanitizers end it at the first read or write out of place, and `fuzz_c.c` at a task that was read and is not
answered.
"""

import json
import subprocess
from pathlib import Path

import pytest
from port_cases import VECTORS
from port_programs import C_PORT, compiled_device, hexadecimal
from servers import need

pytestmark = pytest.mark.large

FEW, MANY = 3_000, 1_000_000
"""Inputs."""
TARGET = Path(__file__).parent / "fuzz_c.c"
TASK, RECALL, VALUE, ACCOUNT, ANSWER = (bytes([kind]) for kind in range(5))
BITS = (
    '{"domain":{"kind":"bit"},"epsilon":"1","id":"bits","levels":[],"mechanism":"randomized_response",'
    '"opens":"2026-01-01T00:00:00Z","repeat":"sticky","round_every":"1d","rounds":3}'
)


def fuzzer(directory: Path) -> Path:
    """The target, built by clang with its fuzzer and both sanitizers."""
    program = directory / "fuzz"
    flags = ["-std=c11", "-O1", "-g", "-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all", f"-I{C_PORT}"]
    sources = [str(C_PORT / "hush.c"), str(C_PORT / "hush_device.c"), str(TARGET)]
    subprocess.run([need("clang"), *flags, *sources, "-o", str(program)], check=True)
    return program


def seeds(directory: Path, state: Path) -> Path:
    """Tasks and recalls of the vectors, values, and the records of a device."""
    lines = compiled_device(directory, C_PORT / "hush_line.c", sanitized=False)
    orders = ["limits 4 4 yes", "time 1767225600000", f"task bits {hexadecimal(BITS)}", f"value {hexadecimal('yes')}"]
    subprocess.run(
        [str(lines), str(state), "dev", "broker", "0"],
        input="\n".join(orders),
        capture_output=True,
        text=True,
        check=True,
    )
    recalls = json.loads((TARGET.parents[1] / "vectors" / "v1" / "recalls.json").read_text(encoding="utf-8"))
    tasks = {vector["task"].encode() for vector in VECTORS["answers"]}
    found = [TASK + payload for payload in tasks if len(payload) < 4000]
    found += [RECALL + recall["payload"].encode() for recall in recalls["good"]]
    found += [VALUE + value for value in (b"1e-5", b"-inf", b"x", b'"y\\', b"0.5, -1")]
    found += [ACCOUNT + one.read_bytes()[:-8] for one in state.glob("t-*")]
    found += [ANSWER + one.read_bytes()[:-8] for one in state.glob("a-*")]
    assert {one[:1] for one in found} >= {TASK, RECALL, VALUE, ACCOUNT, ANSWER}
    corpus = directory / "corpus"
    corpus.mkdir()
    for number, one in enumerate(found):
        (corpus / str(number)).write_bytes(one)
    return corpus


def fuzz(program: Path, corpus: Path, inputs: int) -> "subprocess.CompletedProcess[str]":
    options = [f"-runs={inputs}", "-seed=25", "-max_len=4096", "-timeout=60"]
    artifacts = f"-artifact_prefix={corpus.parent}/"
    return subprocess.run([str(program), *options, artifacts, str(corpus)], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("inputs", [FEW, pytest.param(MANY, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])])
def test_no_input_makes_the_c_port_read_or_write_out_of_place(tmp_path: Path, inputs: int) -> None:
    run = fuzz(fuzzer(tmp_path), seeds(tmp_path, tmp_path / "state"), inputs)
    assert run.returncode == 0, run.stderr[-4000:]
    assert f"Done {inputs} runs" in run.stderr
