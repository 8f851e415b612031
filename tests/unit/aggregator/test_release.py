import json
from datetime import datetime, timedelta, timezone

import pytest

import hush_aggregator
from hush_aggregator.estimate import Estimate, estimate
from hush_aggregator.release import document, encode
from hush_aggregator.tally import Tally
from hush_common.refusal import Refusal
from hush_common.task_file import make_task

HEIGHTS = make_task(
    {"id": "heights", "epsilon": "0.5", "domain": {"kind": "number", "lower": 0, "upper": 2, "unit": "m"}}
)
SURVEY = make_task({"id": "survey", "epsilon": "1", "domain": {"kind": "bit"}})
NOON = datetime(2026, 1, 1, 13, 0, 0, 999999, tzinfo=timezone(timedelta(hours=1)))


def test_a_result_says_everything_that_is_known() -> None:
    result = document(
        HEIGHTS,
        0,
        estimate(HEIGHTS, Tally(4, 4 << 19, 4 << 38), 0.9),
        {Refusal.DUPLICATE: 3},
        confidence=0.9,
        updated_at=NOON,
    )
    assert result.keys() == {
        "v", "task", "digest", "round", "mechanism", "epsilon", "unit", "confidence", "n", "refused",
        "mean", "stderr", "intervals", "methods", "updated_at",
    }  # fmt: skip
    assert (result["epsilon"], result["unit"], result["n"], result["mean"]) == ("0.5", "m", 4, 1.0)
    assert result["refused"] == {"duplicate": 3}
    assert result["updated_at"] == "2026-01-01T12:00:00Z"
    assert result["intervals"].keys() == result["stderr"].keys() == {"reporters", "population"}
    assert json.loads(encode(result)) == result


def test_nothing_counted_gives_no_mean_and_no_unit_where_there_is_none() -> None:
    result = document(SURVEY, 0, Estimate(0), {}, confidence=0.95, updated_at=NOON)
    assert not {"mean", "stderr", "intervals", "methods", "unit"} & result.keys()
    assert (result["n"], result["refused"]) == (0, {})


def test_a_document_is_json_that_every_reader_reads() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode({"mean": float("nan")})


def test_the_public_names_are_there() -> None:
    assert hush_aggregator.__all__ == sorted(hush_aggregator.__all__)
    for name in hush_aggregator.__all__:
        assert getattr(hush_aggregator, name).__name__ == name
    with pytest.raises(AttributeError):
        hush_aggregator.nothing  # noqa: B018 - the access is the test
