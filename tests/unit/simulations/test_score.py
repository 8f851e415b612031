from typing import Any

import pytest

from hush_simulations.score import covered, judged, truth

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


def test_a_redelivery_is_no_further_report() -> None:
    assert judged(95, {"duplicate": 40, "wrong_digest": 3}) == 98


def test_duplicates_do_not_hide_reports_that_were_lost() -> None:
    assert 100 - judged(95, {"duplicate": 5}) == 5
