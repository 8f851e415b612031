"""A fuzzer over everything that the C port parses: tasks, recalls, values and the records of its state.

Four seconds in `make test-all`, a minute in CI (`HUSH_FUZZ_SECONDS`). The sanitizers end it at the first read or write
out of place, and `fuzz_c.c` at a task that was read and is not answered.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest
from port_cases import VECTORS
from port_programs import C_PORT, compiled_device, hexadecimal
from servers import need

pytestmark = pytest.mark.large

SECONDS = int(float(os.environ.get("HUSH_FUZZ_SECONDS", "4")))
TARGET = Path(__file__).parent / "fuzz_c.c"
TASK, RECALL, VALUE, ACCOUNT, ANSWER = (bytes([kind]) for kind in range(5))
BITS = (
    '{"domain":{"kind":"bit"},"epsilon":"1","id":"bits","levels":[],"mechanism":"randomized_response",'
    '"opens":"2026-01-01T00:00:00Z","repeat":"sticky","round_every":"1d","rounds":3}'
)


def fuzzer(directory: Path, port: Path = C_PORT) -> Path:
    """The target, built by clang with its fuzzer and both sanitizers."""
    program = directory / "fuzz"
    flags = ["-std=c11", "-O1", "-g", "-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all", f"-I{C_PORT}"]
    sources = [str(port / "hush.c"), str(C_PORT / "hush_device.c"), str(TARGET)]
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


def fuzz(program: Path, corpus: Path, seconds: int) -> "subprocess.CompletedProcess[str]":
    options = [f"-max_total_time={seconds}", "-seed=25", "-max_len=4096", "-timeout=20", "-print_final_stats=1"]
    artifacts = f"-artifact_prefix={corpus.parent}/"
    return subprocess.run([str(program), *options, artifacts, str(corpus)], capture_output=True, text=True, check=False)


@pytest.mark.timeout(300)
def test_no_input_makes_the_c_port_read_or_write_out_of_place(tmp_path: Path) -> None:
    run = fuzz(fuzzer(tmp_path), seeds(tmp_path, tmp_path / "state"), SECONDS)
    assert run.returncode == 0, run.stderr[-4000:]
    (done,) = (line for line in run.stderr.splitlines() if "number_of_executed_units" in line)
    assert int(done.split()[-1]) > 500


def test_a_planted_read_out_of_place_is_found(tmp_path: Path) -> None:
    source = (C_PORT / "hush.c").read_text(encoding="utf-8")
    right = "while (from->at < from->end && hush_is_one_of("
    assert source.count(right) == 1
    (tmp_path / "hush.c").write_text(source.replace(right, "while (hush_is_one_of("), encoding="utf-8")
    run = fuzz(fuzzer(tmp_path, tmp_path), seeds(tmp_path, tmp_path / "state"), 60)
    assert "heap-buffer-overflow" in run.stderr
