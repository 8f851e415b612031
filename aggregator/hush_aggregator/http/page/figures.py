"""Figures of one round: the estimate, its intervals, the parts of a category or a vector, drawn over tables."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hush_aggregator.estimate.estimates import Interval, Intervals
from hush_aggregator.http.page.drawings import Axis, band, bar, row
from hush_aggregator.http.page.markup import Html, element, foreign, fragment, tabular
from hush_aggregator.http.page.numbers import UNKNOWN, Scale, count
from hush_aggregator.http.page.view import ORDER, Standing, View, band_of, primary
from hush_aggregator.http.page.words import FAILURES, about, meaning, quantity
from hush_aggregator.report_problems import Verdict, report_problems
from hush_aggregator.result import Result
from hush_common.domain import VectorDomain
from hush_common.formatting import exact

__all__ = ["alarm", "alone", "failures", "headline", "intervals", "parts", "reason", "strip"]

_ALONE = 64  # parts of which each is listed for experts, too
_LISTED = 24  # rows of a table before the rest is folded away


@dataclass(frozen=True, slots=True)
class _Row:
    """A part of the value: a category, or a coordinate of a vector."""

    name: str
    place: str  # in the document
    value: float | None
    field: str
    alone: Intervals
    joint: Intervals
    methods: Mapping[str, str]
    scale: Scale
    axis: Axis | None
    n: int | None = None


def alarm(view: View, *, brief: bool = False) -> Html:
    """The warning above figures whose reports do not look right; nothing above others.

    Args:
        view: the task.
        brief: whether the meaning of each problem is left out, as on a card.
    """
    problems = _problems(view)
    if not problems:
        return fragment()
    told = element("strong", "Do not rely on this. ", class_="verdict bad")
    if brief:
        return element("p", told, *(f"{one.word}. " for one in problems), class_="warning alarm")
    meant = [element("p", element("strong", one.word, "."), " ", one.sentence) for one in problems]
    return element("div", element("p", told), *meant, class_="warning alarm")


def _problems(view: View) -> list[Verdict]:
    result = view.result
    return [] if result is None or not result.n else report_problems(result.estimate.monitor, result.flags)


def headline(view: View) -> Html:
    """The estimate in large, and in what it lies."""
    result = view.result
    if result is None or result.mean is None:
        return fragment()
    methods = result.estimate.methods
    target = primary(result.intervals, methods, final=result.final)
    interval = None if target is None else result.intervals[target]
    scale = view.scale.fitting(interval)
    lines: list[Html] = [
        element("p", quantity(view.task), class_="quantity"),
        element("p", scale.figure(result.mean, "mean"), class_="estimate"),
    ]
    if target is not None and interval is not None:
        place = f"intervals.{target}"
        lines.append(element("p", _guess(view, interval), scale.interval(interval, place), class_="within"))
        whom = about(target, methods.get(target, ""))
        lines.append(element("p", f"for {whom[0].lower()}{whom[1:]}", class_="note"))
    return element("div", *lines, class_="headline")


def _guess(view: View, interval: Interval) -> str:
    """What to say before an interval: one that rules nothing out says nothing, and one of wrong reports is no guess."""
    if _problems(view):
        return "if all these reports were right, "
    low, high = view.limits
    return "as yet anything from " if interval[0] <= low and high <= interval[1] else "probably "


def strip(view: View, *, legend: bool = True) -> Html:
    """The estimate on the axis of what it can be; the legend says what its bands are."""
    result = view.result
    if result is None or result.mean is None:
        return fragment()
    (low, high), unit = view.limits, view.task.unit
    targets = _bands(result)
    scale = view.scale
    words = "; ".join(
        f"{about(name, result.estimate.methods.get(name, ''))}: {_said(scale, ends)}" for name, ends in targets
    )
    bands = [(band_of(target), interval) for target, interval in targets]
    described = f"{quantity(view.task)}: {scale.plain(result.mean)}", words or "No interval."
    scaled = 100 if scale.percent else 1
    ends = [
        fragment(
            exact(end, scale=scaled), " %" if scale.percent else None, fragment(" ", foreign(unit)) if unit else None
        )
        for end in (low, high)
    ]
    return element(
        "div",
        band(Axis(low, high), bands, result.mean, described),
        element("p", *(element("span", end) for end in ends), class_="ends"),
        _legend(targets) if legend else None,
        _beyond(view, result.mean),
        class_="strip",
    )


def intervals(view: View) -> Html:
    """The table of all intervals of the estimate, with what each is about."""
    result = view.result
    if result is None or result.mean is None or not result.intervals:
        return fragment()
    methods = result.estimate.methods
    scale = view.scale.fitting(result.intervals.get(primary(result.intervals, methods, final=True) or ""))
    axis = Axis.around(list(result.intervals.values()), [result.mean])
    first = primary(result.intervals, methods, final=result.final)
    listed = sorted(result.intervals, key=lambda target: (target != first, ORDER.index(target)))
    rows = [_interval_row(result, target, scale, axis) for target in listed]
    percent = exact(result.confidence, scale=100)
    condition = ", if all these reports were right" if _problems(view) else ""
    return tabular(
        element("caption", f"Of 100 such intervals, {percent} contain what they are about{condition}"),
        _head("About", "Between"),
        element("tbody", *rows),
        class_="intervals",
    )


def parts(view: View) -> Html:
    """The table of categories or coordinates, with bars."""
    result = view.result
    if result is None or not (result.categories or result.coordinates):
        return fragment()
    rows = list(_categories(result) if result.categories else _coordinates(view, result))
    targets = [primary(one.joint, one.methods, final=result.final) for one in rows]
    first = next((target for target in targets if target), None)
    shown = [_part(*one, drawn=place < _LISTED) for place, one in enumerate(zip(rows, targets, strict=True))]
    what = "Category" if result.categories else "Number"
    kind = "categories" if result.categories else "coordinates"
    caption = fragment(
        f"{quantity(view.task)}, and an interval for each. ",
        f"{about(first, _method(result, first))}; all at once." if first else None,
    )
    head = _head(what, quantity(view.task), "Between")
    listed = tabular(element("caption", caption), head, element("tbody", *shown[:_LISTED]), class_=f"parts {kind}")
    if len(shown) <= _LISTED:
        return listed
    rest = tabular(head, element("tbody", *shown[_LISTED:]), class_=f"parts {kind}")
    summary = element("summary", f"{len(shown) - _LISTED} more")
    return fragment(listed, element("details", summary, rest, id="parts-more"))


def alone(view: View) -> Html:
    """The intervals of each part looked at alone, for each target: narrower than those for all at once."""
    result = view.result
    if result is None or not (result.categories or result.coordinates):
        return fragment()
    rows = list(_categories(result) if result.categories else _coordinates(view, result))
    targets = [target for target in ORDER if any(target in one.alone for one in rows)]
    if len(rows) > _ALONE:
        return element("p", "The intervals of each looked at alone are in the document for programs.", class_="note")
    listed = tabular(
        element("caption", "Each looked at alone, without the others"),
        _head("", *(about(target, _method(result, target)) for target in targets)),
        element("tbody", *(_alone(one, targets) for one in rows)),
    )
    return element("div", listed, class_="wide", role="region", tabindex="0", aria_label="Each looked at alone")


def failures(reasons: Mapping[str, str], place: str = "failures") -> Html:
    """What could not be made, and why."""
    if not reasons:
        return fragment()
    lines = [
        element(
            "li", f"{_named(name)}: ", element("data", FAILURES.get(why, why), value=why, data_figure=f"{place}.{name}")
        )
        for name, why in reasons.items()
    ]
    return element("ul", *lines, class_="failures")


def reason(why: str, place: str) -> Html:
    """Why something could not be made, in words."""
    return element("data", FAILURES.get(why, why), value=why, data_figure=place)


def _named(name: str) -> str:
    target = name.removeprefix("joint_")
    return "The estimate" if target == "estimate" else f"The interval for “{about(target).lower()}”"


def _interval_row(result: Result, target: str, scale: Scale, axis: Axis | None) -> Html:
    interval = result.intervals[target]
    method = result.estimate.methods.get(target, "")
    return element(
        "tr",
        element(
            "th",
            about(target, method),
            element("small", meaning(target)),
            row(axis, interval, result.mean, band_of(target)) if axis else None,
            scope="row",
        ),
        element("td", scale.interval(interval, f"intervals.{target}")),
    )


def _bands(result: Result) -> list[tuple[str, Interval]]:
    """The interval to watch, and within it the one for the population; of final figures the latter alone."""
    methods = result.estimate.methods
    wanted = [primary(result.intervals, methods, final=final) for final in (result.final, True)]
    found: list[str] = []
    for target in wanted:
        if target is not None and target not in found:
            found.append(target)
    return [(target, result.intervals[target]) for target in found]


def _legend(targets: Sequence[tuple[str, Interval]]) -> Html | None:
    if len(targets) < len(("watched", "at the end")):
        return None
    words = ("may be watched as reports arrive", "for one look, when all have answered")
    names = ("anytime", "population")
    keys = [element("span", element("i", class_=f"key {name}"), word) for name, word in zip(names, words, strict=True)]
    return element("p", *keys, class_="legend")


def _said(scale: Scale, interval: Interval) -> str:
    fitted = scale.fitting(interval)
    return f"{fitted.text(interval[0])} to {fitted.plain(interval[1])}"


def _beyond(view: View, mean: float) -> Html | None:
    low, high = view.limits
    if low <= mean <= high:
        return None
    if _problems(view):
        return element(
            "p", "The estimate is beyond what is possible. More reports like these do not help.", class_="note"
        )
    why = "The estimate is beyond what is possible. That is the noise: moved back, it would be biased."
    return element(
        "p", why, None if view.standing is Standing.FINAL else " More reports bring it nearer.", class_="note"
    )


def _categories(result: Result) -> Iterator[_Row]:
    reached = [end for one in result.categories for ends in one.joint_intervals.values() for end in ends]
    reached += [one.frequency for one in result.categories]
    axis = Axis(0.0, min(1.0, max(0.01, *reached)) if reached else 1.0)
    for place, one in enumerate(result.categories):
        where = f"categories.{place}"
        scale = Scale(percent=True)
        intervals_ = one.intervals, one.joint_intervals
        yield _Row(one.label, where, one.frequency, "frequency", *intervals_, result.estimate.methods, scale, axis)


def _coordinates(view: View, result: Result) -> Iterator[_Row]:
    domain = view.task.domain
    bounds = domain.coordinates if isinstance(domain, VectorDomain) else ()
    for place, (one, bound) in enumerate(zip(result.coordinates, bounds, strict=True)):
        where, axis = f"coordinates.{place}", Axis(bound.lower, bound.upper)
        intervals_ = one.intervals, one.joint_intervals
        yield _Row(one.name, where, one.mean, "mean", *intervals_, one.methods, Scale(one.unit), axis, one.n)


def _part(one: _Row, target: str | None, *, drawn: bool) -> Html:
    interval = None if target is None else one.joint.get(target)
    scale = one.scale.fitting(interval)
    drawing = None
    if drawn and one.axis is not None:
        drawing = bar(one.axis, one.value, interval) if one.n is None else _on_its_range(one, target, interval)
    return element(
        "tr",
        element("th", foreign(one.name), _counted(one), drawing, scope="row"),
        element("td", UNKNOWN if one.value is None else scale.figure(one.value, f"{one.place}.{one.field}")),
        element(
            "td", UNKNOWN if interval is None else scale.interval(interval, f"{one.place}.joint_intervals.{target}")
        ),
    )


def _on_its_range(one: _Row, target: str | None, interval: Interval | None) -> Html | None:
    if one.axis is None or interval is None or target is None:
        return None
    return row(one.axis, interval, one.value, band_of(target))


def _counted(one: _Row) -> Html | None:
    if one.n is None or one.axis is None:
        return None
    ends = f" · from {exact(one.axis.low)} to {exact(one.axis.high)}"
    return element("small", count(one.n, f"{one.place}.n"), " report" if one.n == 1 else " reports", ends)


def _alone(one: _Row, targets: Sequence[str]) -> Html:
    cells = []
    for target in targets:
        interval = one.alone.get(target)
        scale = one.scale.fitting(interval)
        shown = UNKNOWN if interval is None else scale.interval(interval, f"{one.place}.intervals.{target}")
        cells.append(element("td", shown))
    return element("tr", element("th", foreign(one.name), scope="row"), *cells)


def _head(*names: str) -> Html:
    cells = [element("th" if name else "td", name or None, scope="col" if name else None) for name in names]
    return element("thead", element("tr", *cells))


def _method(result: Result, target: str | None) -> str:
    if target is None:
        return ""
    if result.coordinates:
        return next((one.methods[target] for one in result.coordinates if target in one.methods), "")
    return result.estimate.methods.get(target, "")
