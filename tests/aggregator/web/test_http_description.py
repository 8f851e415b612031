"""The OpenAPI description is true: requests and answers fit it, and every kind of document fits its type."""

import dataclasses
import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from http_process import TOKEN, running, write_token
from http_world import Service, asked, make_store
from made_results import result_of

from hush import Task
from hush_aggregator import Estimate, SqliteStore
from hush_aggregator.estimate import estimate
from hush_aggregator.estimate.mechanisms import fold
from hush_aggregator.estimation import Failure
from hush_aggregator.result import RoundCounts
from hush_aggregator.result import result_of as result_of_counted
from hush_aggregator.tally import Tally
from hush_common.rng import SystemRng
from hush_common.task import make_task
from hush_common.wire import Refusal

NUMBER = {"kind": "number", "lower": -2, "upper": 3.5, "unit": "m"}
POINT = {"kind": "vector", "coordinates": [{"name": "x", "lower": 0.0, "upper": 1.0, "unit": "s"}]}
DAILY = {"rounds": 200, "round_every": "1d", "opens": "2026-01-01T00:00:00Z", "closes": "2030-01-01T00:00:00.5Z"}
TABLE = {"positions": [-1, 2], "unit": 1, "weights": [[2, 1], [1, 2]]}
COINS = {"truth": "0.5", "yes": "0.5"}
WAYS = {"kind": "category", "labels": ["bus", "car"], "other": "car"}


def draft(**fields: object) -> dict[str, object]:
    return {"id": "t", "epsilon": "1", **fields}


CASES: dict[str, tuple[dict[str, object], object]] = {
    "laplace": (draft(domain=NUMBER, enrolled=90, title="A", purpose="B"), 1.0),
    "coins": ({"id": "t", "domain": {"kind": "bit"}, "mechanism": "randomized_response", "coins": COINS}, True),
    "sticky": (draft(domain=NUMBER, mechanism="multilevel", levels=3, repeat="sticky", **DAILY), 1.0),
    "table": (draft(domain=NUMBER, mechanism="table", table=TABLE), 1.0),
    "category": (draft(domain=WAYS, epsilon=2, **DAILY), "bus"),
    "vector": (draft(domain=POINT, sampled=1), [0.5]),
    "offers": (draft(domain=NUMBER, offers=["0.5", 1]), 1.0),
}


def results(task: Task, value: object) -> list[dict[str, object]]:
    """Without a report, with one, with enough for the monitor, failed, and final."""
    rng, index, found = SystemRng(), task.domain.index(value), []
    for count in (0, 1, 150):
        bodies = [task.perturb(index, rng, k % (len(task.offers) or 1)) for k in range(count)]
        tally = fold(task.randomizer, np.array(bodies, dtype=np.int64)) if bodies else Tally()
        made = result_of(task, estimate(task, tally, 0.95), refused={Refusal.DUPLICATE: 2})
        found += [made, dataclasses.replace(made, closed=True, final=True)]
    now = datetime(2026, 1, 1, tzinfo=UTC)
    found.append(result_of_counted(RoundCounts(task, 0, Tally(5), {}), Failure("crashed", "it ended"), 0.95, now))
    found.append(result_of(task, Estimate(3, failures={"population": "failed"})))
    return [json.loads(json.dumps(one.to_document())) for one in found]


@pytest.mark.parametrize("name", CASES)
def test_every_document_fits_its_type_exactly(name: str) -> None:
    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415 - it takes long to load

    from hush_aggregator.http.schemas import ResultDocument, TaskDocument  # noqa: PLC0415 - as above

    given, value = CASES[name]
    task, types = make_task(given), TypeAdapter(ResultDocument)
    for text in (json.dumps(given), task.payload):
        assert TypeAdapter(TaskDocument).validate_json(text, strict=True) == json.loads(text)
    for document in results(task, value):
        assert types.validate_json(json.dumps(document), strict=True) == document
        for wrong in [{**document, one: None} for one in document.keys() - {"v"}] + [{**document, "more": 1}]:
            with pytest.raises(ValidationError):
                types.validate_json(json.dumps(wrong), strict=True)


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
