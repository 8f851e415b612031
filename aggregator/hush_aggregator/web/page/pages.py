"""The pages: `/` has all tasks, `/tasks/{id}` one of them; `/assets` has what they load. HTML is in templates/.

The guard around the application tells browsers to load files of this service only.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Literal, cast

from fastapi import APIRouter, Depends, Query, Request, Response

from hush_aggregator.estimate.result import utc_now
from hush_aggregator.publish.explain import largest_loss
from hush_aggregator.web.page.environment import ASSETS, ENVIRONMENT, LONGEST, assets
from hush_aggregator.web.page.figures import PartsPage, RoundFigures, Rounds
from hush_aggregator.web.page.label import PrivacyLabel
from hush_aggregator.web.page.rendered import RenderedPages, Shown, shown_of
from hush_aggregator.web.page.timeline import Rate, TimeCourse, course_to_come, forecast
from hush_aggregator.web.page.view import ListedState, ListOrder, TaskListing, TaskSearch, TaskView, TaskViews
from hush_common.errors import StoreError
from hush_common.task import ROUND_LIMIT, is_task_id

if TYPE_CHECKING:
    from hush_aggregator.web.service import Service

HTML = "text/html; charset=utf-8"
"""The media type of a page."""
_MOST_PAGES = 10**6
_MOST_PARTS = 10**6

page_routes: APIRouter = APIRouter(include_in_schema=False)


def compile_templates() -> None:
    """Compile all templates, which takes a fifth of a second: the first visitor should not wait for it."""
    for name in ENVIRONMENT.list_templates():
        ENVIRONMENT.get_template(name)


def render_message(here: str, now: datetime, title: str, status: int, base: str = "") -> str:
    """Render a page that has only a message."""
    template = ENVIRONMENT.get_template("message.html")
    return template.render(here=here, now=now, title=title, status=status, base=base)


def render_index(tasks: TaskListing, here: str, now: datetime, base: str = "", *, is_open: bool = False) -> str:
    """Render a page of the list of tasks.

    Args:
        tasks: to list.
        here: the address of the page.
        now: when it is rendered.
        base: the path below which a proxy has the pages.
        is_open: whether administrators may create tasks here.
    """
    search = tasks.search
    asked = {"find": search.text, "state": search.state, "order": search.order}
    context = {
        "tasks": tasks,
        "cards": [(view, RoundFigures.of(view), largest_loss(view.task)) for view in tasks.views],
        "asked": {name: str(value) for name, value in asked.items() if value},
        "states": [(one.value, word) for one, word in _STATES.items()],
        "orders": [(one.value, word) for one, word in _ORDERS.items()],
        "is_open": is_open,
    }
    return ENVIRONMENT.get_template("index.html").render(context, here=here, now=now, title="", base=base)


_STATES = {
    ListedState.ALL: "All",
    ListedState.OPEN: "Open",
    ListedState.WITHDRAWN: "Withdrawn",
    ListedState.ENDED: "Ended",
}
_ORDERS = {ListOrder.STATE: "Open first", ListOrder.NAME: "By name", ListOrder.REPORTS: "Most reports first"}


async def _search(
    find: Annotated[str, Query(max_length=LONGEST)] = "",
    state: ListedState = ListedState.ALL,
    order: ListOrder = ListOrder.STATE,
    page: Annotated[int, Query(ge=1, le=_MOST_PAGES)] = 1,
) -> TaskSearch:
    return TaskSearch(find, state, order, page)


@dataclass(frozen=True, slots=True)
class Choice:
    """What an address chooses of a task: a round, and of many categories those with `text`, from number `start` on.

    `order` is `task` for categories in the order of the task, not by share. `goal` is the half-width that somebody
    wants, in the unit that the page shows.
    """

    round: int | None = None
    text: str = ""
    start: int = 0
    goal: float | None = None
    order: Literal["", "task"] = ""

    @property
    def asked(self) -> Mapping[str, str | int]:
        """The part of the address that its links and forms keep."""
        return {
            name: value for name, value in (("round", self.round), ("order", self.order or None)) if value is not None
        }


async def _choice(
    number: Annotated[int | None, Query(alias="round", ge=0, lt=ROUND_LIMIT)] = None,
    find: Annotated[str, Query(max_length=LONGEST)] = "",
    start: Annotated[int, Query(ge=0, lt=_MOST_PARTS)] = 0,
    goal: Annotated[float | None, Query(gt=1e-12, lt=1e12)] = None,
    order: Literal["", "task"] = "",
) -> Choice:
    return Choice(number, find, start, goal, order)


def render_task(view: TaskView, here: str, now: datetime, base: str = "", choice: Choice | None = None) -> str:
    """Render the page of one task."""
    choice = choice or Choice()
    figures = RoundFigures.of(view)
    goal = None if figures is None or figures.parts else figures.goal(choice.goal)
    return ENVIRONMENT.get_template("task.html").render(
        view=view,
        figures=figures,
        shown=None
        if figures is None
        else PartsPage.of(figures.parts, choice.text, choice.start, in_order=bool(choice.order)),
        asked=choice.asked,
        goal=goal,
        forecast="" if goal is None or goal.reports is None else forecast(view, goal.reports),
        rate=Rate.of(view),
        course=TimeCourse.of(view),
        to_come=course_to_come(view),
        rounds=Rounds.of(view),
        label=PrivacyLabel.of(view),
        here=here,
        now=now,
        title=view.title,
        base=base,
    )


async def _views(request: Request) -> TaskViews:
    return cast("TaskViews", request.app.state.views)


ViewsDep = Annotated[TaskViews, Depends(_views)]


@page_routes.get("/")
async def show_all(request: Request, views: ViewsDep, search: Annotated[TaskSearch, Depends(_search)]) -> Response:
    """All tasks."""
    now = utc_now()
    try:
        tasks = await views.some(search, now)
    except StoreError:
        return _unread(request, now)
    here, minute = here_of(request), _minute(now)
    counts = tasks.total, tasks.found, tasks.page, tasks.pages, tasks.dropped
    seen = [str(minute), *counts, *chain(*map(shown_of, tasks.views))]
    return _rendered(
        request, seen, lambda: render_index(tasks, here, minute, base_of(request), is_open=_service(request).write)
    )


@page_routes.get("/tasks/{task_id}")
async def show_one(
    request: Request, task_id: str, views: ViewsDep, choice: Annotated[Choice, Depends(_choice)]
) -> Response:
    """One task."""
    now = utc_now()
    try:
        view = await views.one(task_id, choice.round, now) if is_task_id(task_id) else None
    except StoreError:
        return _unread(request, now)
    if view is None:
        return _html(render_message(here_of(request), now, "There is no such task", 404, base_of(request)), 404)
    here, minute = here_of(request), _minute(now)
    seen = [str(minute), *shown_of(view)]
    return _rendered(request, seen, lambda: render_task(view, here, minute, base_of(request), choice))


@page_routes.get("/assets/{name}")
async def show_asset(name: str) -> Response:
    """A file that the page loads."""
    asset = next((one for one in assets().values() if one.address == f"{ASSETS}{name}"), None)
    if asset is None:
        return Response(status_code=404)
    headers = {"cache-control": "public, max-age=31536000, immutable"}
    return Response(asset.body, headers=headers, media_type=asset.media_type)


def _unread(request: Request, now: datetime) -> Response:
    """Answer without the reason: operators find it in `/readyz`."""
    return _html(
        render_message(here_of(request), now, "The figures cannot be read right now", 503, base_of(request)), 503
    )


def base_of(request: Request) -> str:
    """Return the path below which a proxy has the pages."""
    return _service(request).root_path


def _service(request: Request) -> "Service":
    return cast("Service", request.app.state.service)


def here_of(request: Request) -> str:
    """Return the address of the page that is asked for, as links have it."""
    query = f"?{request.url.query}" if request.url.query else ""
    return f"{base_of(request)}{request.url.path}{query}"


def _minute(now: datetime) -> datetime:
    """Return the time that a page shows: in full minutes, so that a page without news stays the same."""
    return now.replace(second=0, microsecond=0)


def _rendered(request: Request, seen: Shown, render: Callable[[], str]) -> Response:
    pages = cast("RenderedPages", request.app.state.pages)
    return Response(pages.get(here_of(request), seen, render), media_type=HTML)


def _html(text: str, status: int = 200) -> Response:
    return Response(text, status, media_type=HTML)
