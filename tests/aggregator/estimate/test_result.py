"""The document of a result: what it has, and what it leaves out."""

import json
from datetime import datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest

import hush_aggregator
from hush_aggregator import Estimate, Result
from hush_aggregator.estimate import estimate
from hush_aggregator.estimate.mechanisms import fold
from hush_aggregator.estimate.result import encode
from hush_common.task import make_task
from hush_common.wire import Refusal

HEIGHTS = make_task(
    {"id": "heights", "epsilon": "0.5", "domain": {"kind": "number", "lower": 0, "upper": 2, "unit": "m"}}
)
SURVEY = make_task({"id": "survey", "epsilon": "1", "domain": {"kind": "bit"}})
NOON = datetime(2026, 1, 1, 13, 0, 0, 999999, tzinfo=timezone(timedelta(hours=1)))


def test_a_result_says_everything_that_is_known() -> None:
    made = estimate(HEIGHTS, fold(HEIGHTS.randomizer, np.full((4, 1), 1 << 19)), 0.9)
    result = Result(HEIGHTS, 0, made, {Refusal.DUPLICATE: 3}, 0.9, NOON).to_document()
    assert result.keys() == {
        "v", "task", "digest", "round", "mechanism", "epsilon", "unit", "confidence", "n", "refused",
        "mean", "stderr", "intervals", "methods", "winsorised", "worst_case_bias", "replacement_bias",
        "updated_at",
    }  # fmt: skip
    assert (result["epsilon"], result["unit"], result["n"], result["mean"]) == ("0.5", "m", 4, 1.0)
    assert result["refused"] == {"duplicate": 3}
    assert result["updated_at"] == "2026-01-01T12:00:00Z"
    assert result["stderr"].keys() == {"reporters", "population"}
    targets = {"reporters", "population", "anytime", "anytime_population"}
    assert result["intervals"].keys() == result["methods"].keys() == targets
    assert json.loads(encode(result)) == result


def test_without_reports_there_is_no_mean_and_perhaps_no_unit() -> None:
    result = Result(SURVEY, 0, Estimate(0), {}, 0.95, NOON).to_document()
    assert not {"mean", "stderr", "intervals", "methods", "unit"} & result.keys()
    assert (result["n"], result["refused"]) == (0, {})


def test_what_failed_is_named_and_nothing_is_said_where_nothing_did() -> None:
    failed = Result(SURVEY, 0, Estimate(7, failures={"estimate": "failed"}), {}, 0.95, NOON).to_document()
    assert (failed["n"], failed["failures"]) == (7, {"estimate": "failed"})
    assert "failures" not in Result(SURVEY, 0, Estimate(7), {}, 0.95, NOON).to_document()


def result_of(document_of: dict[str, object], bodies: list[tuple[int, ...]]) -> dict[str, Any]:
    asked = make_task({"id": "t", "epsilon": "1", **document_of})
    given = estimate(asked, fold(asked.randomizer, np.array(bodies, dtype=np.int64)), 0.95)
    result = Result(asked, 0, given, {}, 0.95, NOON).to_document()
    assert json.loads(encode(result)) == result
    assert None not in result.values()
    return result


def test_rounds_that_share_their_noise_are_told() -> None:
    rounds = {"rounds": 3, "round_every": "1d", "opens": "2026-01-01T00:00:00Z", "domain": {"kind": "bit"}}
    assert "repeat" not in result_of(rounds, [(1,)])
    sticky = result_of({**rounds, "repeat": "sticky"}, [(1,)])
    assert (sticky["repeat"], sticky["epsilon"], sticky["epsilon_per_round"]) == ("sticky", "1", "0.5")


def test_categories_come_with_both_kinds_of_intervals_and_the_second_view() -> None:
    labels = ["red", "green", "blue"]
    result = result_of({"domain": {"kind": "category", "labels": labels}, "enrolled": 9}, [(1,), (2,), (2,)])
    assert not {"mean", "stderr", "intervals", "winsorised"} & result.keys()
    assert isinstance(result["categories"], list)
    assert [fact["label"] for fact in result["categories"]] == labels
    names = {"label", "frequency", "stderr", "stderr_plug_in", "intervals", "joint_intervals", "manski"}
    targets = {"reporters", "population", "enrolled"}
    for fact in result["categories"]:
        assert fact.keys() == names
        assert fact["stderr"].keys() == targets
        assert fact["intervals"].keys() == fact["joint_intervals"].keys() == targets | {"anytime"}
    assert isinstance(result["consistent"], list)
    assert sum(result["consistent"]) == pytest.approx(1)
    assert result["enrolled"] == 9


@pytest.mark.parametrize("n", [1, 3, 4, 40])
@pytest.mark.parametrize("domain", [{"kind": "bit"}, {"kind": "number", "lower": 0, "upper": 1}])
def test_more_reports_than_devices_are_flagged_and_estimated_all_the_same(n: int, domain: dict[str, object]) -> None:
    result = result_of({"domain": domain, "enrolled": 3}, [(1,)] * n)
    assert result.get("flags", []) == (["more_than_enrolled"] if n > 3 else [])
    assert {"mean", "intervals", "stderr"} <= result.keys()
    assert "flags" not in result_of({"domain": domain}, [(1,)] * n)


def test_coordinates_come_by_name_and_one_that_nobody_drew_has_no_mean() -> None:
    parts = [{"name": name, "lower": 0.0, "upper": 1.0} for name in "xy"]
    result = result_of({"domain": {"kind": "vector", "coordinates": parts}}, [(0, 1), (0, 0)])
    assert isinstance(result["coordinates"], list)
    assert [fact["name"] for fact in result["coordinates"]] == ["x", "y"]
    assert result["coordinates"][0]["intervals"].keys() == {"reporters", "population", "anytime"}
    assert result["coordinates"][1] == {"name": "y", "n": 0}


def test_several_epsilons_have_a_pooled_mean_and_its_assumption() -> None:
    domain = {"kind": "number", "lower": 0.0, "upper": 1.0}
    result = result_of({"offers": ["0.5", "1"], "domain": domain}, [(0, 7), (1, 1 << 20)])
    assert result["offers"] == ["0.5", "1"]
    assert isinstance(result["pooled"], dict)
    assert result["pooled"].keys() == {"mean", "weights", "assumes"}
    assert result["pooled"]["weights"].keys() == {"0.5", "1"}
    assert list(result)[-1] == "updated_at"


def test_a_document_is_json_that_every_reader_reads() -> None:
    with pytest.raises(ValueError, match="JSON"):
        encode({"mean": float("nan")})


def test_the_public_names_are_there() -> None:
    assert hush_aggregator.__all__ == sorted(hush_aggregator.__all__)
    for name in hush_aggregator.__all__:
        assert getattr(hush_aggregator, name).__name__ == name
    with pytest.raises(AttributeError):
        hush_aggregator.nothing  # type: ignore[attr-defined]  # noqa: B018 - the access is the test
