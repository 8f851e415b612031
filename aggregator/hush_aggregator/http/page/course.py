"""Course: how an estimate came about as reports arrived, and how it went from round to round. Drawings over tables."""

import math
from collections.abc import Sequence

from hush_aggregator.estimate.estimates import Interval
from hush_aggregator.http.page.drawings import Axis, chart
from hush_aggregator.http.page.markup import Html, element, fragment, tabular
from hush_aggregator.http.page.numbers import UNKNOWN, Scale, count
from hush_aggregator.http.page.view import Point, View, primary
from hush_aggregator.result import Result
from hush_common.formatting import whole

__all__ = ["course", "series"]

_FEW = 3
_TABLED = 12
_SINCE = "As far as this service has seen it since it started. Neither it nor its store keeps times."


def course(view: View) -> Html:
    """The interval that may be watched, over the number of reports; nothing where fewer than three are known."""
    points = view.history
    axis = Axis.around([point.band for point in points], [point.value for point in points], view.limits)
    if len(points) < _FEW or axis is None:
        return fragment()
    first, last = points[0], points[-1]
    scale = view.scale.fitting(last.band)
    logs = [math.log(point.n) for point in points]
    places = [(one - logs[0]) / (logs[-1] - logs[0]) for one in logs]
    described = (
        "The interval as reports arrived",
        f"After {whole(first.n)} reports {_said(scale, first.band)}; after {whole(last.n)} {_said(scale, last.band)}.",
    )
    drawn = chart(places, [point.value for point in points], [point.band for point in points], axis, described)
    rows = [_point(point, scale) for point in _spread(points)]
    head = [element("th", name, scope="col") for name in ("Reports", "Estimate", "Between")]
    listed = tabular(element("thead", element("tr", *head)), element("tbody", *rows))
    return element(
        "section",
        element("h2", "As reports arrived"),
        element("p", "The band stays right at every moment at once: you may look as often as you like.", class_="note"),
        _framed(drawn, axis, scale, (f"{whole(first.n)} reports", f"{whole(last.n)} reports")),
        element("details", element("summary", "The same as a table"), listed, id="course-table"),
        element(
            "p",
            "As far as this service has seen it since it started. Neither it nor its store keeps times.",
            class_="note",
        ),
        class_="course",
        id="course",
    )


def series(view: View) -> Html:
    """The rounds one after the other, with a band; the estimates are of each round alone."""
    rounds = view.rounds
    if view.task.rounds == 1:
        return fragment()
    shown = [one for one in rounds if one.n]
    means = [one for one in shown if one.mean is not None]
    kept = [_interval(one) for one in means]
    values = [one.mean for one in means if one.mean is not None]
    axis = Axis.around([one for one in kept if one is not None], values, view.limits)
    drawn = fragment()
    if len(means) > 1 and axis is not None:
        scale = view.scale.fitting(kept[-1])
        places = [(one.round - means[0].round) / (means[-1].round - means[0].round) for one in means]
        described = (
            "The rounds one after the other",
            f"From round {means[0].round} to round {means[-1].round}, each estimated from its own reports.",
        )
        ends = f"round {means[0].round}", f"round {means[-1].round}"
        drawn = _framed(chart(places, values, kept, axis, described), axis, scale, ends)
    head = [element("th", name, scope="col") for name in ("Round", "Reports", "Estimate", "Between")]
    rows = [_round(view, one) for one in reversed(rounds)]
    return element(
        "section",
        element("h2", "Rounds"),
        drawn,
        tabular(
            element("caption", f"{_how_many(view)} Counted from 0; each is estimated from its own reports alone."),
            element("thead", element("tr", *head)),
            element("tbody", *rows),
        ),
        class_="rounds",
        id="rounds",
    )


def _how_many(view: View) -> str:
    listed, of = len(view.rounds), view.task.rounds
    return (
        f"The last {listed} of {whole(of)} rounds."
        if view.latest >= listed
        else f"{listed} of {whole(of)} rounds so far."
    )


def _interval(result: Result) -> Interval | None:
    target = primary(result.intervals, result.estimate.methods, final=result.final)
    return None if target is None else result.intervals[target]


def _round(view: View, result: Result) -> Html:
    interval = _interval(result)
    target = primary(result.intervals, result.estimate.methods, final=result.final)
    scale = view.scale.fitting(interval)
    place = f"rounds.{result.round}"
    here = result.round == view.round
    link = element(
        "a", str(result.round), href=f"{view.address}?round={result.round}", aria_current="page" if here else None
    )
    return element(
        "tr",
        element("th", link, scope="row"),
        element("td", count(result.n, f"{place}.n")),
        element("td", UNKNOWN if result.mean is None else scale.figure(result.mean, f"{place}.mean")),
        element("td", UNKNOWN if interval is None else scale.interval(interval, f"{place}.intervals.{target}")),
    )


def _point(point: Point, scale: Scale) -> Html:
    return element(
        "tr",
        element("th", whole(point.n), scope="row"),
        element("td", scale.plain(point.value)),
        element("td", _said(scale, point.band)),
    )


def _spread(points: Sequence[Point]) -> list[Point]:
    """A dozen of them at most, the first and the last among them."""
    if len(points) <= _TABLED:
        return list(points)
    step = (len(points) - 1) / (_TABLED - 1)
    return [points[round(place * step)] for place in range(_TABLED)]


def _framed(drawn: Html, axis: Axis, scale: Scale, across: tuple[str, str]) -> Html:
    """A chart with its axes in words."""
    middle = axis.low / 2 + axis.high / 2
    fitted = scale.fitting((axis.low, axis.high))
    up = [element("span", fitted.plain(value)) for value in (axis.high, middle, axis.low)]
    return element(
        "div",
        element("div", *up, class_="up", aria_hidden="true"),
        drawn,
        element("p", *(element("span", end) for end in across), class_="ends", aria_hidden="true"),
        class_="framed",
    )


def _said(scale: Scale, interval: Interval) -> str:
    return f"{scale.text(interval[0])} to {scale.plain(interval[1])}"
