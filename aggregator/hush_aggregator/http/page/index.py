"""The first page: all tasks, a card for each."""

from collections.abc import Sequence

from hush_aggregator.http.page.detail import standing
from hush_aggregator.http.page.drawings import Axis, bar
from hush_aggregator.http.page.figures import alarm, headline, strip
from hush_aggregator.http.page.frame import Around, framed
from hush_aggregator.http.page.label import promise
from hush_aggregator.http.page.markup import Html, element, foreign, fragment, tabular
from hush_aggregator.http.page.numbers import UNKNOWN, Scale, count
from hush_aggregator.http.page.view import View, primary
from hush_aggregator.tasks.explain import dearest
from hush_common.formatting import whole

__all__ = ["index"]

_TOP = 3


def index(views: Sequence[View], around: Around, *, total: int, page: int, pages: int, dropped: int = 0) -> str:
    """The whole document.

    Args:
        views: the tasks of this page.
        around: the service.
        total: tasks in all.
        page: from 1.
        pages: how many there are.
        dropped: messages that the broker says it has dropped since it started.
    """
    cards = element("ul", *(_card(view) for view in views), class_="cards") if views else _empty()
    turn = _turn(page, pages) if pages > 1 else None
    tasks = "1 task" if total == 1 else f"{whole(total)} tasks"
    lines = element("p", tasks, f", page {page} of {pages}" if pages > 1 else None, class_="note")
    return framed(around, "", _about(), lines if total else None, _lost(dropped), cards, turn)


def _about() -> Html:
    return element(
        "div",
        element("h1", "What many devices say together, and none of them alone"),
        element(
            "p",
            "Every device mixes chance into its answer before it sends it. From many such reports comes the truth "
            "about all of them; about a single one, no more than is written here with every task.",
            class_="lead",
        ),
        class_="about",
    )


def _lost(dropped: int) -> Html | None:
    if not dropped:
        return None
    messages = "1 message" if dropped == 1 else f"{whole(dropped)} messages"
    said = f"The broker says that it has dropped {messages} since it started. Devices are asked to send again what "
    return element("p", said, "they have kept, and nothing counts twice.", class_="warning")


def _empty() -> Html:
    return element("p", "No task is counted here yet.", class_="none")


def _card(view: View) -> Html:
    task = view.task
    title = element("h2", element("a", foreign(view.title), href=view.address))
    purpose = element("p", foreign(task.purpose), class_="purpose") if task.purpose else None
    return element(
        "li",
        element("p", standing(view), class_="badges"),
        title,
        purpose,
        _figures(view),
        element("div", promise(task), class_="promise weak" if dearest(task).weak else "promise"),
        id=f"task-{task.id}",
        class_="card",
    )


def _figures(view: View) -> Html:
    result = view.result
    if result is None:
        return fragment(_word("Being worked out"), _reports(view))
    if view.failed:
        return fragment(_word("No estimate"), _reports(view))
    if not result.n:
        return _word("No report yet")
    if result.categories or result.coordinates:
        return fragment(alarm(view, brief=True), _parts(view), _reports(view))
    return fragment(alarm(view, brief=True), headline(view), strip(view, legend=False), _reports(view))


def _word(word: str) -> Html:
    return element("div", element("p", word, class_="estimate none"), class_="headline")


def _reports(view: View) -> Html:
    n = view.n if view.result is None else view.result.n
    return element("p", count(n, "n"), " report" if n == 1 else " reports", class_="from")


def _parts(view: View) -> Html:
    """The most frequent categories, or the first coordinates."""
    result = view.result
    assert result is not None  # noqa: S101 - called where there is one
    rows: list[tuple[str, str | Html, Html | None]] = []
    order = sorted(range(len(result.categories)), key=lambda place: -result.categories[place].frequency)[:_TOP]
    largest = Axis(0.0, max([0.01, *(result.categories[place].frequency for place in order)]))
    for place in order:
        one = result.categories[place]
        target = primary(one.joint_intervals, result.estimate.methods, final=result.final)
        scale = view.scale.fitting(None if target is None else one.joint_intervals[target])
        shown = scale.figure(one.frequency, f"categories.{place}.frequency")
        rows.append((one.label, shown, bar(largest, one.frequency, None)))
    for place, part in enumerate(result.coordinates[:_TOP]):
        target = primary(part.joint_intervals, part.methods, final=result.final)
        scale = Scale(part.unit).fitting(None if target is None else part.joint_intervals[target])
        there = UNKNOWN if part.mean is None else scale.figure(part.mean, f"coordinates.{place}.mean")
        rows.append((part.name, there, None))
    more = len(result.categories or result.coordinates) - len(rows)
    lines = [
        element("tr", element("th", foreign(name), drawn, scope="row"), element("td", figure))
        for name, figure, drawn in rows
    ]
    return fragment(
        tabular(element("tbody", *lines), class_="top-parts"),
        element("p", f"and {more} more", class_="note") if more else None,
    )


def _turn(page: int, pages: int) -> Html:
    back = element("a", "Tasks before these", href=f"/?page={page - 1}", rel="prev") if page > 1 else None
    on = element("a", "More tasks", href=f"/?page={page + 1}", rel="next") if page < pages else None
    return element("nav", back, on, aria_label="Pages", class_="turn")
