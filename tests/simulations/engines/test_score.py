"""A run next to the truth: which truth, which error, and whether an interval covers it."""

from collections.abc import Mapping, Sequence

import pytest

from hush_aggregator import Estimate, PartEstimate
from hush_aggregator.estimate.estimates import Intervals
from hush_common.domain import CategoryDomain, Coordinate, NumberDomain, VectorDomain
from hush_simulations.engines.experiment import count_handled
from hush_simulations.results.run import Score, covered, errors, score
from hush_simulations.scenarios.population import Value

INTERVALS: Intervals = {"reporters": (10.0, 12.0), "population": (9.0, 13.0)}


def truth(values: Sequence[Value], population: float | None) -> Mapping[str, float]:
    found: Score = score(NumberDomain(0.0, 1.0), Estimate(0), values, population)
    return found.truth


def test_the_truth_is_that_of_the_reporters_and_of_the_population() -> None:
    assert truth([1, 0, 0, 1], 0.3) == {"reporters": 0.5, "population": 0.3}


def test_an_unknown_truth_is_left_out() -> None:
    assert truth([2.0, 4.0], None) == {"reporters": 3.0}
    assert truth([], 170.0) == {"population": 170.0}


def test_the_mean_is_summed_without_rounding_on_the_way() -> None:
    assert truth([1e16, 1.0, -1e16], None)["reporters"] == pytest.approx(1 / 3, rel=1e-12)


def test_an_interval_covers_the_values_between_its_ends() -> None:
    for mean, inside in ((9.999, False), (10.0, True), (11.0, True), (12.0, True), (12.001, False)):
        assert covered(INTERVALS, {}, {"reporters": mean}) == {"reporters": inside}
    assert covered({}, {}, {"reporters": 1.0}) == {}


def test_each_target_is_compared_with_its_own_truth() -> None:
    assert covered(INTERVALS, {}, {"reporters": 13.0, "population": 13.0}) == {"reporters": False, "population": True}


def test_the_anytime_band_is_compared_with_the_truth_of_its_method() -> None:
    band: Intervals = {"anytime": (0.0, 1.0)}
    methods = {"anytime": "population-beta-mixture"}
    assert covered(band, methods, {"reporters": 5.0, "population": 0.5}) == {"anytime": True}
    assert covered(band, methods, {"reporters": 0.5}) == {}


def test_an_error_is_the_estimate_less_the_truth() -> None:
    assert errors(0.5, {"reporters": 0.25, "population": 0.75}) == {"reporters": 0.25, "population": -0.25}
    assert errors(None, {"reporters": 0.25}) == {}


COLOURS = CategoryDomain(("red", "green"))
PLACE = VectorDomain((Coordinate(0, 10, name="x"), Coordinate(0, 10, name="y")))


def colours(red: tuple[float, float], joint: tuple[float, float]) -> Estimate:
    """An estimate with the given intervals for red, and right ones for green."""
    whole = {"reporters": (0.0, 1.0)}
    return Estimate(
        4,
        parts=(
            PartEstimate(n=9, name="red", mean=0.5, intervals={"reporters": red}, joint_intervals={"reporters": joint}),
            PartEstimate(n=9, name="green", mean=0.5, intervals=whole, joint_intervals=whole),
        ),
    )


def test_each_category_is_judged_alone_and_simultaneously() -> None:
    values = ["red", "green", "green", "green"]
    found = score(COLOURS, colours((0.3, 0.6), (0.2, 0.7)), values, (0.4, 0.6))
    assert {name: part.truth for name, part in found.parts.items()} == {
        "red": {"reporters": 0.25, "population": 0.4},
        "green": {"reporters": 0.75, "population": 0.6},
    }
    assert found.parts["red"].error == {"reporters": 0.25, "population": pytest.approx(0.1)}
    assert [part.covered["reporters"] for part in found.parts.values()] == [False, True]
    assert found.joint == {"reporters": True}
    wrong = score(COLOURS, colours((0.3, 0.6), (0.3, 0.7)), values, None)
    assert wrong.joint == {"reporters": False}


def test_a_coordinate_that_nobody_drew_is_not_judged() -> None:
    drawn = PartEstimate(name="x", n=2, mean=2.0, intervals={"reporters": (1, 3)})
    found = score(PLACE, Estimate(2, parts=(drawn, PartEstimate(name="y"))), [(1.0, 5.0), (3.0, 7.0)], None)
    assert [part.truth for part in found.parts.values()] == [{"reporters": 2.0}, {"reporters": 6.0}]
    assert [part.covered for part in found.parts.values()] == [{"reporters": True}, {}]
    assert [part.error for part in found.parts.values()] == [{"reporters": 0.0}, {}]


def test_simultaneous_coverage_needs_every_drawn_part() -> None:
    def drawn(name: str, joint: Intervals) -> PartEstimate:
        return PartEstimate(name=name, n=1, mean=5.0, joint_intervals=joint)

    right: Intervals = {"reporters": (0, 10)}
    for y, said in (
        (drawn("y", right), {"reporters": True}),
        (drawn("y", {}), {}),
        (PartEstimate(name="y"), {"reporters": True}),
    ):
        assert score(PLACE, Estimate(1, parts=(drawn("x", right), y)), [(5.0, 5.0)], None).joint == said


def test_without_reports_nothing_is_judged() -> None:
    found = score(COLOURS, Estimate(0), [], (0.4, 0.6))
    assert found.parts["red"].truth == {"population": 0.4}
    assert [(part.covered, part.joint) for part in found.parts.values()] == [({}, {})] * 2
    assert found.joint == {}


def test_a_duplicate_is_not_a_further_report() -> None:
    assert count_handled(95, {"duplicate": 40, "wrong_digest": 3}) == 98
    assert count_handled(95, {"duplicate": 5}) == 95  # duplicates do not hide reports that were lost
