"""The OpenAPI description is true: requests and answers fit it, and every kind of document fits its type."""

import json
import os
import subprocess
import sys
from pathlib import Path

import page_states
import pytest
from http_process import TOKEN, running, write_token
from http_world import Service, asked, make_store

from hush_aggregator import SqliteStore
from hush_common.task import make_task

NUMBER = {"kind": "number", "lower": -2, "upper": 3.5, "unit": "m"}
STICKY = {"mechanism": "multilevel", "levels": 3, "repeat": "sticky", "rounds": 9, "round_every": "1d"}
TABLE = {"positions": [-1, 2], "unit": 1, "weights": [[2, 1], [1, 2]]}
POINT = {"kind": "vector", "coordinates": [{"name": "x", "lower": 0.0, "upper": 1.0, "unit": "s"}]}
TASKS: list[dict[str, object]] = [
    {"domain": NUMBER, "enrolled": 90, "title": "A", "purpose": "B", "closes": "2030-01-01T00:00:00.5Z"},
    {"domain": NUMBER, "opens": "2026-01-01T00:00:00Z", **STICKY},
    {"domain": NUMBER, "mechanism": "table", "table": TABLE},
    {"domain": NUMBER, "offers": ["0.5", 1]},
    {"domain": POINT, "sampled": 1},
    {"domain": {"kind": "category", "labels": ["bus", "car"], "other": "car"}},
]


def assert_exact(type_: type, document: dict[str, object], text: str | bytes) -> None:
    """The text fits the type, which needs each field and allows no other."""
    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415 - it takes long to load

    adapter: TypeAdapter[object] = TypeAdapter(type_)
    assert adapter.validate_json(text, strict=True) == document
    for wrong in [{**document, one: None} for one in document.keys() - {"v"}] + [{**document, "more": 1}]:
        with pytest.raises(ValidationError):
            adapter.validate_json(json.dumps(wrong), strict=True)


@pytest.mark.medium
@pytest.mark.virtual_time
async def test_every_document_fits_its_type_exactly(tmp_path: Path) -> None:
    from hush_aggregator.web.schemas import ResultDocument, TaskDocument  # noqa: PLC0415 - as above

    for fields in TASKS:
        payload = make_task({"id": "t", "epsilon": "1", **fields}).payload
        assert_exact(TaskDocument, json.loads(payload), payload)
    service = Service(page_states.fill(tmp_path / "store"), estimator=page_states.FailingEstimator())
    async with asked(service) as client:
        for task_id, task in page_states.ALL.items():
            assert_exact(TaskDocument, json.loads(task.payload), task.payload)
            answer = await client.get(f"/v1/tasks/{task_id}/rounds/latest")
            assert_exact(ResultDocument, answer.json(), answer.content)


@pytest.mark.medium
@pytest.mark.virtual_time
async def test_the_description_is_openapi_with_every_problem_and_token(tmp_path: Path) -> None:
    async with asked(Service(make_store(tmp_path / "store"), root_path="/hush")) as client:
        document = await client.document("/v1/openapi.json")
    assert document["openapi"].startswith("3.1")
    assert document["servers"] == [{"url": "/hush"}]
    text = json.dumps(document)
    named = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert (
        {"TaskDocument", "ResultDocument", "Problem", "Conflict"} <= named <= document["components"]["schemas"].keys()
    )
    operations = [one for place in document["paths"].values() for one in place.values()]
    assert all({"4XX", "5XX"} <= one["responses"].keys() for one in operations)
    writes = {place for place, found in document["paths"].items() if "post" in found}
    guarded = {place for place, found in document["paths"].items() if any("security" in one for one in found.values())}
    assert guarded == writes | {"/v1/tasks/{task_id}/reports.csv", "/v1/tasks/{task_id}/reports.parquet"}


CONFIGURATION = """\
[generation]
database = "none"

[[operations]]
include-name = "POST /v1/tasks"
[operations.checks.positive_data_acceptance]
expected-statuses = ["2xx", "409", "422"]  # what makes a task legal is more than JSON Schema can say
"""


def judged(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """What schemathesis finds in a service whose tasks can be written."""
    (directory / "schemathesis.toml").write_text(CONFIGURATION, encoding="utf-8")
    with SqliteStore(directory / "store") as opened:  # the first id that schemathesis tries
        opened.add_task(
            make_task({"id": "0", "epsilon": "3", "domain": {"kind": "number", "lower": 0.0, "upper": 1.0}})
        )
    command = ["http", "--store", str(directory / "store"), "--write", "--token-file", str(write_token(directory))]
    with running(directory, command) as service:
        judge = [str(Path(sys.executable).with_name("schemathesis")), "--config-file", "schemathesis.toml", "run"]
        judge += [f"{service.url}/v1/openapi.json", "--header", f"Authorization: Bearer {TOKEN}", "--no-color"]
        judge += ["--exclude-path", "/v1/events", *words]  # it has no end
        run = subprocess.run(
            judge, cwd=directory, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONWARNINGS": ""}
        )
        assert service.process.poll() is None
        assert "HTTP: " not in service.log.read_text(encoding="utf-8"), "an error that nobody foresaw"
    return run


@pytest.mark.large
def test_requests_made_from_the_description_get_described_answers(tmp_path: Path) -> None:
    run = judged(tmp_path, "--phases", "examples,coverage,fuzzing", "--max-examples", "3", "--seed", "1")
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_half_an_hour_of_such_requests_is_answered_as_described(tmp_path: Path) -> None:
    seconds = os.environ.get("HUSH_SOAK_SECONDS", "1800")
    run = judged(tmp_path, "--max-time", seconds, "--max-examples", "100000")
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
