"""What the page says of each state, in words: whatever becomes of a task, and whatever its reports look like."""

import dataclasses
import html
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from made_results import changed, result_of, single

from hush_aggregator import Estimate, PartEstimate
from hush_aggregator.http.page.numbers import unbroken
from hush_aggregator.http.page.pages import render_index, render_task
from hush_aggregator.http.page.view import TaskListing, TaskSearch, TaskStatus, TaskView
from hush_aggregator.store.base import Origin, TaskState
from hush_common.task import make_task
from hush_common.wire import Refusal

NOW = datetime(2026, 6, 1, tzinfo=UTC)
NUMBER = {"kind": "number", "lower": 0.0, "upper": 10.0, "unit": "kg"}
DRAFT: dict[str, Any] = {"id": "t", "epsilon": "1", "domain": NUMBER, "purpose": "To know"}
INTERVALS = {"anytime": (1.0, 5.0), "reporters": (2.0, 4.0), "population": (1.9, 4.1)}
FEW = {"anytime": (1.0, 5.0)}
METHODS = {"anytime": "reporters-laplace-mixture"}
GOOD = dataclasses.replace(single(200, 3.0, intervals=INTERVALS, methods=METHODS), monitor="ok")


def shown(
    estimate: Estimate | None = GOOD,
    *,
    final: bool = False,
    draft: dict[str, Any] = DRAFT,
    **view: Any,  # noqa: ANN401
) -> TaskView:
    task = make_task(dict(draft))
    result = None if estimate is None else dataclasses.replace(result_of(task, estimate), final=final)
    settings: dict[str, Any] = {
        "state": TaskState.OPEN,
        "origin": Origin.FILE,
        "ended": final,
        "now": NOW,
        "result": result,
    } | view
    return TaskView(task, **settings)


def detail(view: TaskView) -> str:
    return render_task(view, "/", NOW)


def index(views: list[TaskView], *, total: int = 1, dropped: int = 0) -> str:
    return render_index(TaskListing(TaskSearch(), views, total, total, 1, dropped), "/", NOW)


def text_of(view: TaskView) -> str:
    """What a person reads."""
    return plain(detail(view).partition("<main")[2])


def plain(page: str) -> str:
    """The words of a page."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


@pytest.mark.parametrize(
    ("view", "status"),
    [
        (shown(), TaskStatus.LIVE),
        (shown(state=TaskState.WITHDRAWN), TaskStatus.WITHDRAWN),
        (shown(state=TaskState.CLOSED), TaskStatus.FINAL),
        (shown(ended=True), TaskStatus.FINAL),
        (shown(draft=DRAFT | {"closes": "2026-05-31T23:59:00Z"}), TaskStatus.CLOSING),
        (shown(draft=DRAFT | {"closes": "2026-06-01T00:01:00Z"}), TaskStatus.LIVE),
        (shown(draft=DRAFT | {"opens": "2026-06-01T00:01:00Z"}), TaskStatus.NOT_OPEN),
    ],
)
def test_a_task_says_what_becomes_of_it(view: TaskView, status: TaskStatus) -> None:
    assert view.status is status
    assert f"{status.word} " in text_of(view)
    assert status.sentence in text_of(view)
    assert status.word in index([view])


def test_while_reports_arrive_the_interval_to_watch_comes_first_and_of_final_figures_that_of_the_same_people() -> None:
    assert "probably 1.0 to 5.0 kg for reporters, at any time" in text_of(shown())
    final = text_of(shown(final=True))
    assert "probably 2.0 to 4.0 kg for reporters" in final
    assert "however often you look while reports arrive 0 10" not in final
    other = changed(GOOD, methods={"anytime": "population-beta-mixture"})
    assert "probably 1.9 to 4.1 kg for population" in text_of(shown(other, final=True))


@pytest.mark.parametrize(
    ("monitor", "words"),
    [
        ("ok", "Looks right"),
        ("too_little_noise", "Too little noise"),
        ("outliers", "Impossible reports"),
        (None, "Too early to say"),
        ("something new", "something new"),
    ],
)
def test_the_monitor_has_words_for_each_verdict(monitor: str | None, words: str) -> None:
    assert words in text_of(shown(dataclasses.replace(GOOD, monitor=monitor)))


def test_an_interval_that_rules_nothing_out_says_so() -> None:
    text = text_of(shown(changed(GOOD, intervals={"anytime": (0.0, 10.0)})))
    assert "so far anything from 0.0 to 10.0 kg" in text
    assert "probably" not in text


def test_an_estimate_beyond_the_domain_stays_there_and_the_page_says_why() -> None:
    text = text_of(shown(changed(GOOD, mean=-2.0, intervals={"anytime": (0.0, 1.0)})))
    assert "\N{MINUS SIGN}2.0 kg" in text
    assert "is outside the possible range, because of the noise. Moving it back would bias it. More reports" in text


@pytest.mark.parametrize("monitor", ["too_little_noise", "outliers", "something_new"])
@pytest.mark.parametrize("mean", [3.0, -2.0])
def test_wrong_reports_are_told_before_the_figure_and_nothing_promises_that_more_of_them_help(
    monitor: str, mean: float
) -> None:
    view = shown(dataclasses.replace(changed(GOOD, mean=mean), monitor=monitor))
    word = {"too_little_noise": "Too little noise", "outliers": "Impossible reports"}.get(monitor, "Something new")
    card = plain(index([view]))
    for text in (text_of(view), card):
        above, _, below = text.partition("Average")
        assert f"Do not rely on this. {word}." in above
        assert "if all these reports were correct, 1.0 to 5.0 kg" in below
        assert "probably" not in text
        assert "bring it nearer" not in text
    assert "is outside the possible range. More reports like these do not help." in text_of(view) or mean == 3.0
    assert "95 contain the true value, if all these reports were correct" in text_of(view)


@pytest.mark.parametrize("monitor", ["ok", None])
def test_reports_that_look_right_or_are_too_few_raise_no_alarm(monitor: str | None) -> None:
    view = shown(dataclasses.replace(GOOD, monitor=monitor))
    for text in (text_of(view), index([view])):
        assert "Do not rely on this" not in text
        assert "probably 1.0 to 5.0 kg" in plain(text)


def test_wrong_reports_of_categories_are_told_above_the_table() -> None:
    task = {"id": "t", "epsilon": "1", "domain": {"kind": "category", "labels": ["a", "b"]}}
    parts = tuple(PartEstimate(name=label, n=9, mean=0.5) for label in "ab")
    view = shown(Estimate(200, parts=parts, monitor="outliers"), draft=task)
    assert "Do not rely on this. Impossible reports." in text_of(view).partition("Share")[0]
    assert "Do not rely on this. Impossible reports." in plain(index([view]))


def test_final_figures_do_not_wait_for_more_reports() -> None:
    text = text_of(shown(changed(GOOD, mean=-2.0), final=True, ended=True))
    assert "is outside the possible range, because of the noise" in text
    assert "More reports" not in text


def test_one_is_not_written_as_several() -> None:
    one = dataclasses.replace(GOOD, n=1, monitor=None)
    assert "From 1 report of 1 device that was asked, " in text_of(shown(one, draft=DRAFT | {"enrolled": 1}))
    assert "The estimate from 1 report is being calculated" in text_of(shown(None, n=1))
    page = plain(index([shown(one)], dropped=1))
    assert "1 task " in page
    assert "1 report " in page
    assert "dropped 1 message since" in page
    assert "2 tasks " in plain(index([shown()], total=2))


@pytest.mark.parametrize(("mean", "intervals"), [(1e300, {}), (-1e-300, {"anytime": (0.0, 0.0)}), (5e-324, INTERVALS)])
def test_any_number_can_be_drawn(mean: float, intervals: dict[str, tuple[float, float]]) -> None:
    wide = {"kind": "number", "lower": -8e307, "upper": 8e307}
    for domain in (NUMBER, wide):
        page = detail(shown(single(3, mean, intervals=intervals), draft=DRAFT | {"domain": domain}))
        assert f'value="{mean!r}"' in page
        assert not re.search(r"\b(nan|inf)\b", page)


def test_intervals_that_failed_are_named_and_the_others_stay() -> None:
    text = text_of(shown(changed(GOOD, failures={"population": "not_finite"}, intervals={"anytime": (1.0, 5.0)})))
    assert "The interval for “population”: the calculation did not give a number" in text
    assert "3.0 kg" in text


def test_more_reports_than_devices_is_flagged_and_nobody_is_silent() -> None:
    text = text_of(shown(draft=DRAFT | {"enrolled": 150}))
    assert "More reports came than devices were asked" in text
    assert "Silent or lost" not in text
    assert "Silent or lost 50" in text_of(shown(draft=DRAFT | {"enrolled": 250}))


def test_an_estimate_that_is_still_made_is_no_estimate_of_nothing() -> None:
    assert "The estimate from 1 234 reports is being calculated" in text_of(shown(None, n=1234))
    assert "1 234</data> reports" in index([shown(None, n=1234)])


@pytest.mark.parametrize("origin", Origin)
def test_the_label_says_all_that_somebody_has_to_know(origin: Origin) -> None:
    text = text_of(shown(origin=origin))
    label = text.partition("Privacy label")[2].partition("How sure, from other first guesses")[0]
    rows = [
        "What is asked A number from 0 to 10 kg",
        "Why To know",
        "What leaves the device One report: a noisy number",
    ]
    rows += ["What anybody can conclude From your device's answer", "at most 73.2 % sure", "Who “anybody” is"]
    rows += ["Who guards it Your own device", "For how long Forever", "How often Your device answers at most once"]
    rows += [
        "Who counts The aggregator behind this page. The task comes from",
        "What it does not hide That your device",
    ]
    assert [row for row in rows if row not in label] == []
    assert "This hides little" not in label
    assert "This hides little" in text_of(shown(draft=DRAFT | {"epsilon": "4.1"}))


def test_a_long_list_is_folded_and_a_longer_one_goes_on_elsewhere() -> None:
    labels = [f"label {place}" for place in range(300)]
    task = make_task({"id": "t", "epsilon": "1", "domain": {"kind": "category", "labels": labels}})

    categories = tuple(PartEstimate(name=label, n=9, mean=1 / 300) for label in labels)
    page = detail(
        TaskView(task, TaskState.OPEN, Origin.FILE, False, NOW, result_of(task, Estimate(9, parts=categories)))
    )
    assert [label for label in labels if f">{label}<" in page] == labels[:256]
    assert "232 more" in page
    assert "1 to 256 of 300" in " ".join(page.split())


def test_every_reason_for_a_refusal_has_its_meaning_beside_its_number() -> None:
    view = shown()
    assert view.result is not None
    refused = {reason: 100 + place for place, reason in enumerate(Refusal)}
    text = text_of(dataclasses.replace(view, result=dataclasses.replace(view.result, refused=refused)))
    for reason, number in refused.items():
        assert (
            f"Refused: {reason.value.replace('_', ' ')} {number} {reason.meaning[0].upper()}{reason.meaning[1:]}."
            in text
        )
    assert "No report was refused" in text_of(view)


def test_what_the_broker_has_dropped_is_told() -> None:
    def page(dropped: int) -> str:
        return index([shown()], dropped=dropped)

    assert "has dropped 1 200 messages" in page(1200)
    assert "dropped" not in page(0)


def test_rounds_are_points_with_error_bars_and_never_joined_by_a_line() -> None:
    task = make_task(DRAFT | {"rounds": 3, "round_every": "1d", "opens": "2026-05-30T00:00:00Z"})
    ends: list[tuple[float, float]] = [(1.0, 5.0), (2.0, 4.0), (0.0, 9.0)]
    rounds = [
        dataclasses.replace(result_of(task, changed(GOOD, intervals={"anytime": one})), round=number)
        for number, one in enumerate(ends)
    ]
    page = detail(TaskView(task, TaskState.OPEN, Origin.FILE, False, NOW, rounds[-1], 200, rounds, 2))
    drawn = page[page.index('id="rounds"') :]
    drawn = drawn[: drawn.index("</svg>")]
    assert "polyline" not in drawn
    assert "polygon" not in drawn
    bars = [tuple(map(float, one)) for one in re.findall(r'y1="([^"]+)" x2="[^"]+" y2="([^"]+)" class="error"', drawn)]
    lengths = [low - high for high, low in bars]
    assert lengths == pytest.approx([300 * (high - low) / 10 for low, high in ends], abs=1)
    assert drawn.count('class="dot small"') == 3


def test_a_number_below_zero_has_a_minus_sign_for_people_and_a_hyphen_for_programs() -> None:
    below = single(200, -3.0, intervals={"anytime": (-5.0, -1.0)}, methods=METHODS)
    view = shown(below, draft=DRAFT | {"domain": NUMBER | {"lower": -10.0}})
    text = text_of(view)
    assert "\N{MINUS SIGN}3.0 kg" in text
    assert "probably \N{MINUS SIGN}5.0 to \N{MINUS SIGN}1.0 kg" in text
    assert "A number from \N{MINUS SIGN}10 to 10 kg" in text
    assert not re.search(r"(?<![0-9])-[0-9]", text.partition(">")[2])
    assert '<data value="-3.0" data-figure="mean">' in detail(view)
    assert "\N{MINUS SIGN}3.0" in plain(index([view]))


def test_a_number_in_a_sentence_stays_on_one_line() -> None:
    assert unbroken("About 2 500 a day, 12 of 1 000 000.") == "About 2\xa0500 a day, 12 of 1\xa0000\xa0000."
