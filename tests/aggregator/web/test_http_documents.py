"""The types by which HTTP is described are true: every kind of document fits them, and what is none does not."""

import dataclasses
import json
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from made_results import result_of
from pydantic import TypeAdapter, ValidationError

from hush import Task
from hush_aggregator import Estimate
from hush_aggregator.estimate import estimate
from hush_aggregator.estimate.mechanisms import fold
from hush_aggregator.estimation import Failure
from hush_aggregator.http.app import create_app
from hush_aggregator.http.schemas import ResultDocument, TaskDocument
from hush_aggregator.http.service import Service
from hush_aggregator.result import RoundCounts
from hush_aggregator.result import result_of as result_of_counted
from hush_aggregator.tally import Tally
from hush_common.rng import SystemRng
from hush_common.task import make_task
from hush_common.wire import Refusal

RESULT: TypeAdapter[ResultDocument] = TypeAdapter(ResultDocument)
TASK: TypeAdapter[TaskDocument] = TypeAdapter(TaskDocument)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
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
    "bit": (draft(domain={"kind": "bit"}), True),
    "coins": ({"id": "t", "domain": {"kind": "bit"}, "mechanism": "randomized_response", "coins": COINS}, True),
    "multilevel": (draft(domain=NUMBER, mechanism="multilevel", levels=3), 1.0),
    "sticky": (draft(domain=NUMBER, mechanism="multilevel", levels=3, repeat="sticky", **DAILY), 1.0),
    "table": (draft(domain=NUMBER, mechanism="table", table=TABLE), 1.0),
    "category": (draft(domain=WAYS, epsilon=2, **DAILY), "bus"),
    "vector": (draft(domain=POINT, sampled=1), [0.5]),
    "offers": (draft(domain=NUMBER, offers=["0.5", 1]), 1.0),
}


def results(asked: Task, value: object) -> list[dict[str, object]]:
    """Without a report, with one, with enough to be watched, failed, and final."""
    rng, index, found = SystemRng(), asked.domain.index(value), []
    for count in (0, 1, 150):
        bodies = [asked.perturb(index, rng, k % (len(asked.offers) or 1)) for k in range(count)]
        tally = fold(asked.randomizer, np.array(bodies, dtype=np.int64)) if bodies else Tally()
        made = result_of(asked, estimate(asked, tally, 0.95), refused={Refusal.DUPLICATE: 2})
        found += [made, dataclasses.replace(made, closed=True, final=True)]
    failed = RoundCounts(asked, 0, Tally(5), {})
    found.append(result_of_counted(failed, Failure("crashed", "it ended"), 0.95, NOW))
    found.append(result_of(asked, Estimate(3, failures={"population": "failed"})))
    return [json.loads(json.dumps(one.to_document())) for one in found]


@pytest.mark.parametrize("name", CASES)
def test_every_document_fits_its_type_and_nothing_in_it_is_missing_there(name: str) -> None:
    given, value = CASES[name]
    asked = make_task(given)
    for text in (json.dumps(given), asked.payload):
        assert TASK.validate_json(text, strict=True) == json.loads(text)
    for document in results(asked, value):
        assert RESULT.validate_json(json.dumps(document), strict=True) == document
        for name_ in document.keys() - {"v"}:
            with pytest.raises(ValidationError):
                RESULT.validate_json(json.dumps({**document, name_: None}), strict=True)
        with pytest.raises(ValidationError):
            RESULT.validate_json(json.dumps({**document, "more": 1}), strict=True)


def test_the_description_is_openapi_3_1_and_refers_to_what_is_there(tmp_path: Path) -> None:
    document = create_app(Service(tmp_path / "store")).openapi()
    assert document["openapi"].startswith("3.1")
    text = json.dumps(document)
    forms = document["components"]["schemas"]
    named = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert named <= forms.keys()
    assert {"TaskDocument", "ResultDocument", "Problem", "Conflict"} <= named
    assert "HTTPValidationError" not in text
    operations = [one for place in document["paths"].values() for one in place.values()]
    assert all({"4XX", "5XX"} <= one["responses"].keys() for one in operations)
    writes = {place for place, found in document["paths"].items() if "post" in found}
    needing = {place for place, found in document["paths"].items() if any("security" in one for one in found.values())}
    assert needing == writes | {"/v1/tasks/{task_id}/reports.csv", "/v1/tasks/{task_id}/reports.parquet"}
