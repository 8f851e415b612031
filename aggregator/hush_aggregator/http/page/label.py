"""Label: what a task does to the privacy of whoever answers, as food says what is in it. To be read on a phone."""

from fractions import Fraction

from hush_aggregator.http.page.drawings import meter
from hush_aggregator.http.page.markup import Html, Part, element, foreign, fragment, tabular
from hush_aggregator.http.page.view import View
from hush_aggregator.http.page.words import ORIGINS, question, times
from hush_aggregator.tasks.explain import EVEN, Loss, dearest, factor, from_to, losses, sure
from hush_common.domain import CategoryDomain, NumberDomain, VectorDomain
from hush_common.epsilon import decimal_text
from hush_common.task import Task

__all__ = ["label", "promise"]

_GUARDED = (
    "Your own device, before it sends anything. Nobody here has to be trusted with it, not this page either. It holds "
    "for programs that answer by the rules of hush."
)
_CHOSEN = "How much your device chose to give: it stands in the report."
_PRIORS = (Fraction(1, 100), EVEN, Fraction(9, 10))


def promise(task: Task) -> Html:
    """The most that anybody can conclude, in one sentence."""
    return element("p", "Whatever you answer: somebody who guessed fifty-fifty can become ", _sure(dearest(task)), ".")


def label(view: View) -> Html:
    """The whole label."""
    task = view.task
    most = dearest(task)
    return element(
        "section",
        element("h2", "Privacy label", id="label"),
        element(
            "div",
            element(
                "p", "Whatever you answer, somebody who guessed fifty-fifty can become ", _sure(most), class_="verdict"
            ),
            meter(
                float(most.bound), ("How sure anybody can become", f"{most.sentence} The bar begins at a fair guess.")
            ),
            element("p", element("span", "a fair guess"), element("span", "certain"), class_="ends"),
            _weak(most),
            class_="dose",
        ),
        element("dl", *_rows(view, most)),
        element("details", element("summary", "How sure, from where"), _table(task), id="label-odds"),
        class_="label",
        aria_labelledby="label",
    )


def _rows(view: View, most: Loss) -> list[Html]:
    task = view.task
    return [
        _row("What is asked", question(task)),
        _row("Why", foreign(task.purpose) if task.purpose else "Its authors do not say."),
        _row("What leaves the device", _leaves(task)),
        _row("What anybody can conclude", *(element("p", loss.sentence) for loss in losses(task))),
        _row(
            "Who is meant by anybody",
            "Everybody: this service, the network, whoever steals its files. Whatever they know already, and whatever "
            "computers they have.",
        ),
        _row("Who guards it", _GUARDED),
        _row("For how long", "For ever: nothing that comes later can take the noise off again."),
        _row("How often", *(element("p", one) for one in times(task, view.now))),
        _row("Who counts", _counts(view)),
        _row("What it does not hide", *(element("p", one) for one in _seen(task, most))),
    ]


def _leaves(task: Task) -> Html:
    what = {
        CategoryDomain.kind: "labels drawn by chance, yours more likely than others",
        VectorDomain.kind: "one of your numbers, picked by chance, and made noisy",
        NumberDomain.kind: "a noisy number, made of yours and of chance",
    }.get(task.domain.kind, "yes or no, drawn by chance: more often your answer than the other one")
    return fragment(
        element("p", f"One report: {what}. The noise is made on the device, before anything is sent."),
        element("p", "Your answer itself never leaves it."),
    )


def _counts(view: View) -> Html:
    return fragment(
        element("p", f"The aggregator behind this page. The task was given by {ORIGINS[view.origin]}."),
        element("p", "It keeps the noisy reports, without sender or time, until its owners delete them."),
    )


def _seen(task: Task, most: Loss) -> list[Html]:
    lines: list[Part] = [
        "That your device takes part, when it sends, and its network address: the broker sees them.",
        "What other tasks ask: each adds to this one. Your device keeps count, and stops at its limit.",
        most.besides or None,
        _CHOSEN if task.offers else None,
    ]
    return [fragment(line) for line in lines if line is not None]


def _table(task: Task) -> Html:
    """What a chance becomes at most, and the number behind it."""
    most = dearest(task)
    rows = [
        element("tr", element("th", before, scope="row"), element("td", after))
        for before, after in (from_to(most.epsilon, prior) for prior in _PRIORS)
    ]
    return fragment(
        tabular(
            element("caption", "How likely somebody held your answer to be, and what that can become at most"),
            element("thead", element("tr", element("th", "Before", scope="col"), element("th", "After", scope="col"))),
            element("tbody", *rows),
        ),
        element(
            "p",
            f"In the terms of the field: pure local differential privacy, epsilon = {decimal_text(most.epsilon)} for "
            f"everything a device sends for this task. The odds between any two answers change {factor(most.epsilon)} "
            f"at most.",
        ),
    )


def _weak(most: Loss) -> Html | None:
    if not most.weak:
        return None
    return element("p", "That hides little. Answer only if it may be known.", class_="warning")


def _sure(loss: Loss) -> Html:
    return element("strong", sure(loss.epsilon))


def _row(name: str, *parts: Part) -> Html:
    return element("div", element("dt", name), element("dd", *parts))
