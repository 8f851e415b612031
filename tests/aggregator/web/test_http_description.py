"""Every answer over HTTP is one of those that its description names: requests are made from it, legal ones and not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from http_process import TOKEN, running, write_token

from hush_aggregator import SqliteStore
from hush_common.task import make_task

TASK = {"id": "0", "epsilon": "3", "domain": {"kind": "number", "lower": 0.0, "upper": 1.0}}
"""The first id that comes to the mind of schemathesis, so that its requests find something."""

CONFIGURATION = """\
[generation]
database = "none"

[[operations]]
include-name = "POST /v1/tasks"
[operations.checks.positive_data_acceptance]
expected-statuses = ["2xx", "409", "422"]  # what makes a task legal is more than JSON Schema can say
"""


def judged(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """What schemathesis says of a service whose tasks can be written."""
    (directory / "schemathesis.toml").write_text(CONFIGURATION, encoding="utf-8")
    store = directory / "store"
    with SqliteStore(store) as opened:
        opened.add_task(make_task(TASK))
    command = ["http", "--store", str(store), "--write", "--token-file", str(write_token(directory))]
    with running(directory, command) as service:
        judge = [str(Path(sys.executable).with_name("schemathesis")), "--config-file", "schemathesis.toml", "run"]
        judge += [f"{service.url}/v1/openapi.json", "--header", f"Authorization: Bearer {TOKEN}", "--no-color"]
        judge += ["--exclude-path", "/v1/events", *words]  # it has no end; test_event_stream.py reads it
        run = subprocess.run(
            judge, cwd=directory, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONWARNINGS": ""}
        )
        assert service.process.poll() is None
        assert "HTTP: " not in service.log.read_text(encoding="utf-8"), "an error that nobody foresaw"
    return run


@pytest.mark.large
def test_no_request_gets_an_answer_that_is_not_described(tmp_path: Path) -> None:
    run = judged(tmp_path, "--phases", "examples,coverage,fuzzing", "--max-examples", "3", "--seed", "1")
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_nor_does_any_in_a_long_time(tmp_path: Path) -> None:
    seconds = os.environ.get("HUSH_SOAK_SECONDS", "1800")
    run = judged(tmp_path, "--max-time", seconds, "--max-examples", "100000")
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
