from typing import Any

import pytest

from hush_common.domain import CategoryDomain, Coordinate, VectorDomain
from hush_simulations.engines.experiment import judged
from hush_simulations.results.score import covered, errors, score, truth

RESULT: dict[str, Any] = {"intervals": {"reporters": [10.0, 12.0], "population": [9.0, 13.0]}}


def test_the_truth_is_the_mean_of_those_who_reported_and_of_the_population() -> None:
    assert truth([1, 0, 0, 1], 0.3) == {"reporters": 0.5, "population": 0.3}


def test_what_nobody_knows_is_left_out() -> None:
    assert truth([2.0, 4.0], None) == {"reporters": 3.0}
    assert truth([], 170.0) == {"population": 170.0}


def test_the_mean_is_summed_without_rounding_on_the_way() -> None:
    assert truth([1e16, 1.0, -1e16], None)["reporters"] == pytest.approx(1 / 3, rel=1e-12)


@pytest.mark.parametrize(
    ("mean", "inside"), [(9.999, False), (10.0, True), (11.0, True), (12.0, True), (12.001, False)]
)
def test_an_interval_covers_what_lies_between_its_ends(mean: float, inside: bool) -> None:
    assert covered(RESULT, {"reporters": mean}) == {"reporters": inside}


def test_each_target_is_judged_against_its_own_truth() -> None:
    assert covered(RESULT, {"reporters": 13.0, "population": 13.0}) == {"reporters": False, "population": True}


def test_without_intervals_nothing_is_covered_and_nothing_missed() -> None:
    assert covered({}, {"reporters": 1.0}) == {}


def test_the_watched_band_is_judged_by_the_truth_that_its_method_names() -> None:
    result = {"intervals": {"anytime": [0.0, 1.0]}, "methods": {"anytime": "population-beta-mixture"}}
    assert covered(result, {"reporters": 5.0, "population": 0.5}) == {"anytime": True}
    assert covered(result, {"reporters": 0.5}) == {}


def test_an_error_is_the_estimate_less_the_truth() -> None:
    assert errors(0.5, {"reporters": 0.25, "population": 0.75}) == {"reporters": 0.25, "population": -0.25}
    assert errors(None, {"reporters": 0.25}) == {}


COLOURS = CategoryDomain(("red", "green"))
PLACE = VectorDomain((Coordinate(0, 10, name="x"), Coordinate(0, 10, name="y")))


def colours(red: tuple[float, float], joint: tuple[float, float]) -> dict[str, Any]:
    """A result with the given intervals for red, and right ones for green."""
    facts = [
        {"label": "red", "frequency": 0.5, "intervals": {"reporters": red}, "joint_intervals": {"reporters": joint}},
        {
            "label": "green",
            "frequency": 0.5,
            "intervals": {"reporters": (0, 1)},
            "joint_intervals": {"reporters": (0, 1)},
        },
    ]
    return {"categories": facts}


def test_each_category_is_judged_alone_and_all_at_once() -> None:
    values = ["red", "green", "green", "green"]
    found = score(COLOURS, colours((0.3, 0.6), (0.2, 0.7)), values, (0.4, 0.6))
    assert found.truth["categories"] == [
        {"label": "red", "reporters": 0.25, "population": 0.4},
        {"label": "green", "reporters": 0.75, "population": 0.6},
    ]
    assert found.error["categories"][0] == {"label": "red", "reporters": 0.25, "population": pytest.approx(0.1)}
    assert [one["intervals"]["reporters"] for one in found.covered["categories"]] == [False, True]
    assert found.covered["joint"] == {"reporters": True}
    wrong = score(COLOURS, colours((0.3, 0.6), (0.3, 0.7)), values, None)
    assert wrong.covered["joint"] == {"reporters": False}


def test_each_coordinate_is_judged_against_its_own_mean_and_one_that_nobody_drew_is_not() -> None:
    result = {"coordinates": [{"name": "x", "mean": 2.0, "intervals": {"reporters": [1, 3]}}, {"name": "y", "n": 0}]}
    found = score(PLACE, result, [(1.0, 5.0), (3.0, 7.0)], None)
    assert found.truth["coordinates"] == [{"name": "x", "reporters": 2.0}, {"name": "y", "reporters": 6.0}]
    assert found.covered["coordinates"] == [{"name": "x", "intervals": {"reporters": True}}, {"name": "y"}]
    assert found.error["coordinates"] == [{"name": "x", "reporters": 0.0}, {"name": "y"}]


def test_without_reports_there_is_a_population_and_nothing_to_judge() -> None:
    found = score(COLOURS, {}, [], (0.4, 0.6))
    assert found.truth["categories"][0] == {"label": "red", "population": 0.4}
    assert found.covered == {"categories": [{"label": "red"}, {"label": "green"}]}


def test_a_redelivery_is_no_further_report() -> None:
    assert judged(95, {"duplicate": 40, "wrong_digest": 3}) == 98


def test_duplicates_do_not_hide_reports_that_were_lost() -> None:
    assert 100 - judged(95, {"duplicate": 5}) == 5
