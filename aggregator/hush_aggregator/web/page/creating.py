"""The page `/new`: a form for a task, with its privacy label before it is published.

A preview stores nothing. It has the very bytes that the script then gives to `POST /v1/tasks`, so that the task that is
published is the one whose label was shown. The token of the administrator is in the header of both requests alone.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from hush_aggregator.count.tasks import ClosedError, TakenError, stored_as, stored_task
from hush_aggregator.estimate.result import utc_now
from hush_aggregator.publish.explain import PEOPLE, expected_words, warnings
from hush_aggregator.store.base import Origin, StoreReader, TaskState
from hush_aggregator.web.page.draft import LABELS, CheckedDraft, check_draft, read_form
from hush_aggregator.web.page.environment import ENVIRONMENT
from hush_aggregator.web.page.label import PrivacyLabel
from hush_aggregator.web.page.pages import HTML, base_of, here_of
from hush_aggregator.web.page.view import TaskView
from hush_aggregator.web.security import UNFRAMED, administrators_of, may_check
from hush_aggregator.web.service import JSON, ProblemError, ProblemType, ServiceDep, StoreDep
from hush_common.domain import KINDS
from hush_common.mechanisms.registry import known
from hush_common.task import Task

NEW_PATH = "/new"

creating_routes: APIRouter = APIRouter(include_in_schema=False)

_KINDS: Mapping[str, str] = {
    "number": "A number",
    "bit": "Yes or no",
    "category": "One of several answers",
    "vector": "Several numbers",
}
_EMPTY = CheckedDraft({"kind": "number", "epsilon": "1"}, {})


@creating_routes.get(NEW_PATH)
async def show_form(request: Request, service: ServiceDep) -> Response:
    """The empty form, or what the operator has to do first."""
    is_open = service.write and bool(administrators_of(service))
    return _page(request, _EMPTY, is_open=is_open)


@creating_routes.post(NEW_PATH)
async def check_form(request: Request, store: StoreDep, _: Annotated[str, Depends(may_check)]) -> Response:
    """The form with the label of the task, or with the errors of its fields."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
        raise ProblemError(ProblemType.WRONG_MEDIA_TYPE, f"the Content-Type of the form must be {JSON}; set it")
    body = await request.body()
    checked = await store.run_slow(lambda: check_draft(read_form(body)))
    known_as = ""
    if checked.task is not None:
        checked, known_as = await store.run(lambda opened: _compare(opened, checked))
    return _page(request, checked, known_as=known_as)


def _compare(store: StoreReader, checked: CheckedDraft) -> tuple[CheckedDraft, str]:
    """Compare the task with the one that is stored under its id; return that one and its state, if it is the same."""
    assert checked.task is not None  # noqa: S101 - for the type checker
    try:
        row = stored_as(store, checked.task, "id")
    except TakenError:
        wrong = "another task of this service has or had this id, and tasks never change; choose another id"
    except ClosedError:
        wrong = "this task is closed permanently; choose another id to ask again"
    else:
        if row is None:
            return checked, ""
        state = "withdrawn" if row.state is TaskState.WITHDRAWN else "open"
        return replace(checked, task=stored_task(row.payload)), state
    return replace(checked, task=None, errors={"id": wrong}), ""


def _page(request: Request, checked: CheckedDraft, *, is_open: bool = True, known_as: str = "") -> Response:
    task, now = checked.task, utc_now()
    view = None if task is None else TaskView(task, TaskState.OPEN, Origin.HTTP, ended=False, now=now)
    page = ENVIRONMENT.get_template("new.html").render(
        is_open=is_open,
        values=checked.values,
        errors=checked.errors,
        labels=LABELS,
        kinds=[(name, _KINDS.get(name, name)) for name in KINDS],
        mechanisms=[("auto", "The most precise one (auto)"), *((kind.name, kind.name) for kind in known())],
        view=view,
        label=None if view is None else PrivacyLabel.of(view),
        expected=[] if task is None else _expected(task),
        warnings=[] if task is None else [_bare(text) for text in warnings(task, datetime.now(UTC))],
        known_as=known_as,
        here=here_of(request),
        now=now,
        title="New task",
        script="new.js",
        base=base_of(request),
    )
    return Response(page, headers=UNFRAMED, media_type=HTML)


def _expected(task: Task) -> list[tuple[int, str]]:
    """Return the error to expect from some numbers of devices, and from all that are asked."""
    asked = {task.enrolled} if task.enrolled else set()
    return [(people, expected_words(task, people)[0]) for people in sorted(asked.union(PEOPLE))]


def _bare(warning: str) -> str:
    text = warning.removeprefix("warning: ")
    return f"{text[:1].upper()}{text[1:]}."
