"""The page of one task."""

from collections.abc import Callable

from hush_aggregator.http.page.course import course, series
from hush_aggregator.http.page.figures import alarm, alone, failures, headline, intervals, parts, reason, strip
from hush_aggregator.http.page.frame import Around, framed
from hush_aggregator.http.page.label import label
from hush_aggregator.http.page.markup import Html, Part, element, foreign, fragment, tabular
from hush_aggregator.http.page.numbers import count
from hush_aggregator.http.page.view import View
from hush_aggregator.http.page.words import moment, people
from hush_aggregator.report_problems import MONITOR, Verdict, report_problems
from hush_aggregator.result import WHOLE, Result
from hush_common.epsilon import decimal_text
from hush_common.formatting import exact, significant, whole
from hush_common.wire import Refusal

__all__ = ["detail", "standing"]

_OF_REFUSALS = "What is refused counts all rounds. A duplicate is no fault: it came twice, and counts once."


def detail(view: View, around: Around) -> str:
    """The whole document."""
    return framed(
        around,
        view.title,
        element(
            "article",
            element("div", _head(view), _figures(view), class_="hero", id="hero"),
            element("div", label(view), class_="aside"),
            element("div", *(part(view) for part in _REST), class_="rest"),
            class_="task",
            data_task=view.task.id,
        ),
    )


def standing(view: View) -> Html:
    """A word for what becomes of the task."""
    return element("span", view.standing.word, class_=f"badge {view.standing.name.lower()}")


def _head(view: View) -> Html:
    purpose = view.task.purpose
    return fragment(
        element("p", standing(view), class_="badges"),
        element("h1", foreign(view.title)),
        element("p", foreign(purpose), class_="purpose") if purpose else None,
        element("p", view.standing.sentence, class_="note"),
    )


def _figures(view: View) -> Html:
    result = view.result
    if result is None:
        return _nothing("Being worked out", f"The estimate of {people(view.n)} is being made. Look again soon.")
    if view.failed:
        return fragment(
            _nothing(
                "No estimate",
                fragment(
                    count(result.n, "n"),
                    " report is counted and kept" if result.n == 1 else " reports are counted and kept",
                    ", and no estimate could be made: ",
                    reason(result.failures[WHOLE], f"failures.{WHOLE}"),
                    ". The next report, or a mended hush, makes it again.",
                ),
            )
        )
    if not result.n:
        return _nothing("No report yet", "Once devices answer, the estimate stands here.")
    partly = {name: why for name, why in result.failures.items() if name != WHOLE}
    return fragment(alarm(view), headline(view), strip(view), _from(view, result), parts(view), failures(partly))


def _nothing(word: str, sentence: Part) -> Html:
    return element("div", element("p", word, class_="estimate none"), element("p", sentence), class_="headline")


def _from(view: View, result: Result) -> Html:
    asked = view.task.enrolled
    of = (
        None
        if asked is None
        else fragment(
            " of ", count(asked, "enrolled"), " device that was asked" if asked == 1 else " devices that were asked"
        )
    )
    which = f", round {result.round} of {whole(view.task.rounds)} (counted from 0)" if view.task.rounds > 1 else ""
    return element(
        "p", "From ", count(result.n, "n"), " report" if result.n == 1 else " reports", of, which, ".", class_="from"
    )


def _sure(view: View) -> Html | None:
    shown = intervals(view)
    if not shown:
        return None
    return element("section", element("h2", "How sure is that?"), shown, id="sure")


def _counts(view: View) -> Html | None:
    result = view.result
    if result is None:
        return None
    refused = [_refusal(reason, number) for reason, number in result.refused.items()]
    asked = view.task.enrolled
    silent = None
    if asked is not None and asked >= result.n:
        silent = _row(
            "Silent or lost",
            whole(asked - result.n),
            fragment("Of ", count(asked, "enrolled"), " that were asked: no report of theirs is counted."),
        )
    head = element("tr", *(element("th", name, scope="col") for name in ("Reports", "How many", "Meaning")))
    return element(
        "section",
        element("h2", "What was counted"),
        tabular(
            element("thead", head),
            element(
                "tbody",
                _row("Counted", count(result.n, "n"), "Each once, however often it came."),
                silent,
                *refused,
                None if refused else _row("Refused", "0", "None was refused."),
            ),
            class_="counts",
        ),
        element(
            "p",
            "What is refused counts all rounds. A duplicate is no fault: it came twice, and counts once.",
            class_="note",
        )
        if refused
        else None,
    )


def _refusal(reason: Refusal, number: int) -> Html:
    name = f"Refused: {reason.value.replace('_', ' ')}"
    return _row(name, count(number, f"refused.{reason.value}"), f"{reason.meaning[0].upper()}{reason.meaning[1:]}.")


def _row(name: str, number: Part, meaning: Part) -> Html:
    return element("tr", element("th", name, scope="row"), element("td", number), element("td", meaning))


def _sound(view: View) -> Html | None:
    result = view.result
    if result is None or not result.n or view.failed:
        return None
    estimate = result.estimate
    word, sentence = MONITOR.get(estimate.monitor, Verdict(str(estimate.monitor), ""))
    verdict = element("data", word, value=estimate.monitor or "", data_figure="monitor") if estimate.monitor else word
    kind = {"ok": "good", None: "early"}.get(estimate.monitor, "bad")
    lies = estimate.worst_case_bias
    scale = view.scale.differences
    return element(
        "section",
        element("h2", "Can it be trusted?"),
        element("p", element("strong", verdict, class_=f"verdict {kind}"), " ", sentence),
        *(
            element("p", element("strong", one.word, "."), " ", one.sentence)
            for one in report_problems(None, result.flags)
        ),
        element(
            "p",
            "Whoever lies moves the estimate: one false report by up to ",
            scale.figure(lies["1"], "worst_case_bias.1"),
            ", one in a hundred by up to ",
            scale.figure(lies["1%"], "worst_case_bias.1%"),
            ".",
        )
        if {"1", "1%"} <= lies.keys()
        else None,
        element("p", "It shows mistakes of programs. It proves nothing about people.", class_="note"),
        id="sound",
    )


def _experts(view: View) -> Html:
    task, result = view.task, view.result
    rows: list[tuple[str, Part]] = [
        ("Task", task.id),
        ("Digest", task.digest.hex()),
        ("Mechanism", task.mechanism),
        ("Epsilon", f"{decimal_text(task.epsilon)} in all, {decimal_text(task.epsilon_per_round)} per report"),
    ]
    if task.offers:
        rows.append(("Offers", ", ".join(map(decimal_text, task.offers))))
    if result is not None:
        rows += _further(view, result)
        rows.append(("Figures of", moment(result.updated_at)))
    rows.append(
        ("For programs", element("a", f"/v1/tasks/{task.id}/rounds/latest", href=f"/v1/tasks/{task.id}/rounds/latest"))
    )
    listed = [element("div", element("dt", name), element("dd", value)) for name, value in rows]
    return element(
        "details",
        element("summary", "For experts"),
        element("dl", *listed),
        alone(view),
        class_="experts",
        id="experts",
    )


def _further(view: View, result: Result) -> list[tuple[str, Part]]:
    """Second views of the estimate, and how its intervals are made."""
    estimate, scale = result.estimate, view.scale
    rows: list[tuple[str, Part]] = [
        (f"Standard error ({target})", scale.differences.figure(value, f"stderr.{target}"))
        for target, value in estimate.stderr.items()
    ]
    rows += [(f"Method ({target})", method) for target, method in estimate.methods.items()]
    if estimate.winsorised is not None:
        w = estimate.winsorised
        shown = scale.figure(w.mean, "winsorised.mean")
        rows.append(
            ("Winsorised", fragment(shown, f" ({people(w.touched)} moved, to within {significant(w.threshold)})"))
        )
    if estimate.pooled is not None:
        weights = ", ".join(f"{name}: {exact(round(weight, 4))}" for name, weight in estimate.pooled.weights.items())
        shown = scale.figure(estimate.pooled.mean, "pooled.mean")
        rows.append(("Pooled", fragment(shown, f" (weights {weights}; assumes {estimate.pooled.assumes})")))
    if estimate.manski is not None:
        rows.append(("Whatever the silent would say", scale.interval(estimate.manski, "manski")))
    if "1%" in estimate.replacement_bias:
        rows.append(
            (
                "If 1 in 100 had no value",
                fragment("± ", scale.differences.figure(estimate.replacement_bias["1%"], "replacement_bias.1%")),
            )
        )
    return rows


_REST: tuple[Callable[[View], Html | None], ...] = (course, series, _sure, _counts, _sound, _experts)
"""What stands below the estimate and the label, in its order."""
