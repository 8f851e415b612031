"""How an estimate came about, as the page remembers it: by number of reports, thinned out, and never by time."""

import dataclasses
import itertools

from made_results import result_of, single

from hush_aggregator.estimate import Estimate
from hush_aggregator.http.page.view import History, Point
from hush_aggregator.result import Result
from hush_common.task import make_task

TASK = make_task({"id": "t", "epsilon": "1", "domain": {"kind": "number", "lower": 0.0, "upper": 1.0}})
OTHER = make_task({"id": "o", "epsilon": "1", "domain": {"kind": "bit"}})


def after(n: int, mean: float = 0.5) -> Result:
    return result_of(TASK, single(n, mean, intervals={"anytime": (0.0, 1.0)}))


def test_neighbours_differ_by_a_twelfth_and_the_last_is_always_there() -> None:
    history = History()
    for n in range(1, 2001):
        history.add(after(n, mean=n / 2000))
    points = history.until(after(2000))
    assert (points[0].n, points[-1].n, points[-1].value) == (1, 2000, 1.0)
    assert len(points) < 90
    assert all(12 * one.n <= 11 * later.n + 12 for one, later in itertools.pairwise(points[:-1]))


def test_a_round_without_an_estimate_or_an_interval_is_left_out() -> None:
    history = History()
    history.add(result_of(TASK, single(5, 0.5)))
    history.add(result_of(TASK, Estimate(6, failures={"estimate": "failed"})))
    assert history.until(after(6)) == ()


def test_an_older_page_sees_no_later_figure_and_forgets_none() -> None:
    history = History()
    for n in (10, 20, 30):
        history.add(after(n))
    assert [point.n for point in history.until(after(20))] == [10, 20]
    assert [point.n for point in history.until(after(30))] == [10, 20, 30]


def test_a_store_that_is_put_back_begins_anew() -> None:
    history = History()
    for n in (10, 20, 30, 5):
        history.add(after(n))
    assert [point.n for point in history.until(after(30))] == [5]


def test_an_estimate_that_is_made_again_replaces_the_last() -> None:
    history = History()
    history.add(after(10, 0.1))
    history.add(after(10, 0.2))
    assert history.until(after(10)) == (Point(10, 0.2, (0.0, 1.0)),)


def test_other_tasks_and_rounds_have_their_own() -> None:
    history = History()
    history.add(after(10))
    assert history.until(dataclasses.replace(after(10), round=1)) == ()
    assert history.until(result_of(OTHER, single(10, 0.5))) == ()


def test_it_knows_no_time() -> None:
    assert {field.name for field in dataclasses.fields(Point)} == {"n", "value", "band"}
