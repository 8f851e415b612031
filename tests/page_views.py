"""Pages of tasks that no store has, and what a person reads of them."""

import dataclasses
import html
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from made_results import result_of, single

from hush_aggregator import Estimate
from hush_aggregator.store import Origin, TaskState
from hush_aggregator.web.page.pages import render_index, render_task
from hush_aggregator.web.page.view import TaskListing, TaskSearch, TaskView
from hush_common.task import make_task

__all__ = ["DRAFT", "GOOD", "NOW", "NUMBER", "card", "listing", "page", "plain", "read", "view_of"]

NOW = datetime(2026, 6, 10, 15, 40, tzinfo=UTC)
NUMBER: Mapping[str, Any] = {"kind": "number", "lower": 0.0, "upper": 10.0, "unit": "kg"}
DRAFT: Mapping[str, Any] = {"id": "t", "epsilon": "1", "domain": NUMBER, "purpose": "To know"}
INTERVALS = {"anytime": (1.0, 5.0), "reporters": (2.0, 4.0), "population": (1.9, 4.1)}
METHODS = {"anytime": "reporters-laplace-mixture"}
GOOD = dataclasses.replace(single(1000, 3.0, intervals=INTERVALS, methods=METHODS), monitor="ok")


def view_of(
    estimate: Estimate | None = GOOD,
    *,
    final: bool = False,
    draft: Mapping[str, Any] = DRAFT,
    **view: Any,  # noqa: ANN401 - of TaskView
) -> TaskView:
    """What a page shows of a task with an estimate."""
    task = make_task(dict(draft))
    made = result_of(task, estimate, round_=view.get("latest", 0)) if estimate is not None else None
    result = None if made is None else dataclasses.replace(made, final=final)
    known: dict[str, Any] = {
        "state": TaskState.OPEN,
        "origin": Origin.FILE,
        "ended": final,
        "now": NOW,
        "result": result,
        "n": 1000,
    }
    return TaskView(task, **(known | view))


def page(view: TaskView) -> str:
    """The HTML of the page of a task."""
    return render_task(view, "/", NOW)


def listing(views: Sequence[TaskView], *, total: int = 1, dropped: int = 0, text: str = "") -> str:
    """The HTML of a list."""
    return render_index(TaskListing(TaskSearch(text), views, total, total, 1, dropped), "/", NOW)


def card(view: TaskView) -> str:
    """The HTML of a list with one task."""
    return listing([view])


def plain(text: str) -> str:
    """What a person reads of HTML."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).split())


def read(view: TaskView) -> str:
    """What a person reads of the page of a task."""
    return plain(page(view).partition("<main")[2])
