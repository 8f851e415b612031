"""What `hush watch` shows: the figures of a result, its bands as bars, and nothing that could write to a terminal."""

import json
from dataclasses import replace
from typing import Any

import pytest
from commands import unprintable
from made_results import result_of, single

from hush import Task
from hush_aggregator import Estimate, PartEstimate
from hush_aggregator.estimate.result import encode, result_in
from hush_aggregator.ops.watch.terminal import (
    Event,
    EventKind,
    PastIntervals,
    View,
    WatchedTask,
    figures_of,
    picture,
    view_of,
)
from hush_aggregator.publish.charts import ASCII, HEAVY, draw_interval
from hush_aggregator.publish.presentation import report_problems, rows_of
from hush_common.task import make_task
from hush_common.terminal import Screen
from hush_common.wire import Refusal


def task(task_id: str, domain: dict[str, Any], **more: object) -> Task:
    return make_task({"id": task_id, "title": "How tall", "epsilon": "3", "domain": domain, **more})


NUMBER = task("heights", {"kind": "number", "lower": 120.0, "upper": 220.0, "unit": "cm"})
DAILY = task("daily", {"kind": "bit"}, rounds=3, round_every="1d", opens="2027-01-01T00:00:00Z")
WAYS = task("ways", {"kind": "category", "labels": [f"way {n}" for n in range(40)]})
POWER = {"name": "power", "lower": 0.0, "upper": 11.0, "unit": "kW"}
PAIR = task("pair", {"kind": "vector", "coordinates": [POWER, {"name": "charge", "lower": 0.0, "upper": 100.0}]})


def number(
    n: int, low: float, high: float, mean: float, refused: dict[Refusal, int] | None = None
) -> dict[str, object]:
    intervals = {"anytime": (low, high), "reporters": (mean - 1, mean + 1)}
    return result_of(
        NUMBER, single(n, mean, stderr={"reporters": 1.0}, intervals=intervals), refused=refused
    ).to_document()


def seen(view: View, width: int = 80, height: int = 40, past: PastIntervals | None = None) -> str:
    return "\n".join(picture(view, past or PastIntervals(), Screen(width), height))


def results() -> dict[str, tuple[Task, dict[str, object]]]:
    category = [
        PartEstimate(
            n=9,
            name=f"way {n}",
            mean=n / 780,
            intervals={"anytime": (0.0, 0.4), "reporters": (0.0, 0.2)},
            joint_intervals={"anytime": (max(0.0, n / 780 - 0.02), n / 780 + 0.0312345678)},
        )
        for n in range(40)
    ]
    coordinates = (
        PartEstimate(name="power", unit="kW", n=9, mean=2.5, intervals={"anytime": (1.0, 4.125)}),
        PartEstimate(name="charge", unit="%"),
    )
    bit = single(40, 0.123456789, intervals={"anytime": (0.0, 1 / 3), "anytime_population": (0.0, 0.5)})
    return {
        "number": (NUMBER, number(1234, 150.0, 200.5, 171.23456789)),
        "bit": (DAILY, result_of(DAILY, bit, round_=1).to_document()),
        "categories": (WAYS, result_of(WAYS, Estimate(500, parts=tuple(category))).to_document()),
        "vector": (PAIR, result_of(PAIR, Estimate(17, parts=coordinates)).to_document()),
        "no report": (NUMBER, result_of(NUMBER, Estimate(0)).to_document()),
        "failed": (NUMBER, result_of(NUMBER, Estimate(9, failures={"estimate": "too slow"})).to_document()),
    }


@pytest.mark.parametrize("name", results())
def test_no_line_is_wider_than_the_screen(name: str) -> None:
    task, document = results()[name]
    for published in (task, None):  # withdrawn
        for width in (30, 60, 200):
            for line in seen(view_of(task.id, document, published), width).splitlines():
                assert len(line) <= width, line
                assert line == line.rstrip()


@pytest.mark.parametrize("name", ["number", "bit", "vector"])
def test_its_figures_are_those_that_results_prints_to_the_last_digit(name: str) -> None:
    task, document = results()[name]
    view = view_of(task.id, json.loads(encode(document)), task)
    words = seen(view).split()
    found = replace(result_in(json.loads(encode(document))), is_share=task.domain.is_share)
    for row in rows_of(found):
        if row.target.startswith("anytime") or not row.target:
            for cell in ("value", "low", "high"):
                shown = row.shown[cell].split()
                assert all(part in words for part in shown), (row, words)
                assert row.shown[cell] in figures_of(view)


def test_live_figures_have_only_the_interval_that_holds_at_any_time() -> None:
    live = view_of("heights", number(9, 150.0, 200.0, 170.0), NUMBER)
    assert [[*part.intervals] for part in live.parts] == [["anytime"]]
    final = number(9, 150.0, 200.0, 170.0) | {"final": True}
    assert [[*part.intervals] for part in view_of("heights", final, NUMBER).parts] == [["reporters"]]


def test_wrong_reports_are_a_warning_above_the_estimate() -> None:
    wrong = number(1234, 150.0, 200.5, 171.0) | {"monitor": "too_little_noise", "flags": ["more_than_enrolled"]}
    problems = report_problems("too_little_noise", ["more_than_enrolled"])
    for width in (30, 200):
        above, _, _ = " ".join(seen(view_of("heights", wrong, NUMBER), width).split()).partition("estimate 171")
        assert [one.word for one in problems if one.word not in above] == []
        for right in ({"monitor": "ok"}, {}):
            shown = seen(view_of("heights", number(1234, 150.0, 200.5, 171.0) | right, NUMBER), width)
            assert [one.word for one in problems if one.word in shown] == []


def test_of_many_categories_the_largest_have_simultaneous_intervals() -> None:
    task, document = results()["categories"]
    view = view_of(task.id, document, task)
    shown = seen(view, height=20)
    assert "way 39" in shown
    assert "way 2 " not in shown
    assert f"{100 * (39 / 780 + 0.0312345678):.1f}" in shown
    assert "simultaneous" in shown
    assert len(shown.splitlines()) <= 20
    assert "and 35 more" in figures_of(view)


def test_an_interval_is_drawn_where_its_figures_are() -> None:
    def drawn(low: float, high: float, value: float | None, axis: tuple[float, float], width: int) -> str:
        return draw_interval((low, high), axis, width, value=value, signs=HEAVY)

    assert drawn(0, 1, None, (0, 1), 4) == "━━━━"
    assert drawn(0.25, 0.6, 0.3, (0, 1), 11) == "──━●━━━────"
    assert (drawn(0, 0.3, -7, (0, 1), 4), drawn(0.9, 1, 7, (0, 1), 4)) == ("◂━──", "───▸")
    assert drawn(3, 3, 3, (3, 3), 5) == "──●──"
    assert draw_interval((1, 100), (1, 100), 5, value=10, truth=10, logarithmic=True, signs=ASCII) == "|-*-|"


WILD = "\x1b]0;x\x07\x9b2J\u202e\ud800\n[red]"
HOSTILE: list[Any] = [
    {"n": WILD, "mean": WILD, "intervals": {WILD: [1, 2]}},
    {"n": -1, "mean": True, "intervals": {"anytime": [2, 1], WILD: [WILD, None]}, "round": -7},
    {"n": 10**4000, "mean": 10**4000, "intervals": {"anytime": [1e308, 10**4000]}, "confidence": float("inf")},
    {"n": 1, "mean": 1.0, "unit": WILD, "intervals": {"anytime" + WILD: [1, 2], "anytime": [-1e308, 1e308]}},
    {"n": 1, "categories": [{"label": WILD, "frequency": 9e99, "joint_intervals": {"anytime": [0, 1]}}, 3, None]},
    {"n": 1, "coordinates": [{"name": WILD, "unit": WILD, "n": 2, "mean": 1, "intervals": {"anytime": [5, 5]}}]},
    {"refused": {WILD: 3, "closed": "x"}, "flags": [WILD, 3], "failures": {WILD: WILD}, "monitor": WILD},
    {"updated_at": WILD, "mechanism": WILD, "epsilon": WILD, "final": "yes", "categories": {}, "coordinates": 7},
]


@pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)))
def test_nothing_that_is_published_can_write_to_the_terminal(hostile: dict[str, object]) -> None:
    wild = make_task({"id": "heights", "title": "<b>[red]:smile:", "epsilon": "1", "domain": {"kind": "bit"}})
    for published in (wild, None):
        view = view_of("heights", hostile, published)
        past = PastIntervals()
        past.add(view)
        for height in (3, 40):
            assert unprintable(seen(view, 60, height, past)) == []


def applied(watched: WatchedTask, *events: Event) -> list[bool]:
    return [watched.update(one) for one in events]


def estimate(document: dict[str, object]) -> Event:
    return Event(EventKind.ESTIMATE, json.dumps(document).encode())


def test_the_same_figures_again_are_no_change() -> None:
    watched = WatchedTask("heights")
    first = number(9, 150.0, 200.0, 170.0)
    again = first | {"updated_at": "2030-01-01T00:00:00Z", "term": 5}
    more = number(9, 150.0, 200.0, 170.0, refused={Refusal.CLOSED: 1})
    assert applied(watched, estimate(first), estimate(again), estimate(more)) == [True, False, True]


def test_it_is_over_when_the_last_round_is_final_or_the_task_is_gone() -> None:
    def over(*events: Event) -> bool:
        watched = WatchedTask("daily")
        applied(watched, *events)
        return watched.is_over

    task, gone = Event(EventKind.TASK, DAILY.payload), Event(EventKind.TASK)
    assert not over(task, estimate({"n": 1, "round": 0, "final": True}))
    assert not over(task, estimate({"n": 1, "round": 2}))
    assert over(task, estimate({"n": 1, "round": 2, "final": True}))
    assert over(task, estimate({"n": 1, "round": 0, "final": True}), gone)
    assert over(estimate({"n": 1, "round": 0, "final": True}))


def test_a_withdrawn_task_and_a_lost_connection_are_reported() -> None:
    watched = WatchedTask("heights")
    applied(
        watched, Event(EventKind.TASK, NUMBER.payload), estimate(number(9, 150.0, 200.0, 170.0)), Event(EventKind.TASK)
    )
    assert "withdrawn" in watched.notice
    assert not watched.is_over
    assert watched.view.title == "How tall"  # what is known of it stays
    applied(watched, Event(EventKind.LOST, b"mqtt://x: vanished; trying again"))
    assert "vanished" in seen_with(watched)
    applied(watched, Event(EventKind.CONNECTED))
    assert "vanished" not in seen_with(watched)


def seen_with(watched: WatchedTask) -> str:
    return "\n".join(picture(watched.view, PastIntervals(), Screen(200), 40, watched.notice))


@pytest.mark.parametrize("payload", [b"[" * 100_000, b'{"n":NaN}', b"[]", b"\xff"])
def test_an_invalid_estimate_is_reported_and_the_last_one_stays(payload: bytes) -> None:
    watched = WatchedTask("heights")
    applied(watched, estimate({"n": 3}), Event(EventKind.ESTIMATE, payload))
    assert watched.notice
    assert watched.view.n == 3
