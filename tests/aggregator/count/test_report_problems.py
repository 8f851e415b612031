"""What is wrong with reports, in words."""

from hush_aggregator.estimate.diagnostics import OK, OUTLIERS, TOO_LITTLE_NOISE
from hush_aggregator.presentation import MONITOR, report_problems
from hush_aggregator.result import MORE_THAN_ENROLLED


def test_every_verdict_of_the_monitor_has_its_words() -> None:
    assert MONITOR.keys() == {OK, OUTLIERS, TOO_LITTLE_NOISE, None}
    assert [report_problems(verdict, []) for verdict in (OK, None)] == [[], []]
    for verdict in (OUTLIERS, TOO_LITTLE_NOISE):
        assert report_problems(verdict, []) == [MONITOR[verdict]]


def test_a_flag_is_a_problem_and_so_is_what_a_later_version_says() -> None:
    assert [one.word for one in report_problems("ok", [MORE_THAN_ENROLLED, "too_good"])] == [
        "Too many reports",
        "Too good",
    ]
    assert [one.word for one in report_problems("quite_odd", [])] == ["Quite odd"]
