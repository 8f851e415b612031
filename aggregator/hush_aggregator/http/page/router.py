"""Router: the addresses of the page: `/` has all tasks, `/tasks/{id}` one of them; what they load is beside them.

The guard around the application says what a browser may do with them: load the files of this service, and nothing else.
"""

from datetime import UTC, datetime
from importlib.metadata import version
from typing import Annotated, cast

from fastapi import APIRouter, Depends, Query, Request, Response

from hush_aggregator.http.page.assets import Asset, addresses, assets
from hush_aggregator.http.page.detail import detail
from hush_aggregator.http.page.frame import Around, framed
from hush_aggregator.http.page.index import index
from hush_aggregator.http.page.markup import Html, element
from hush_aggregator.http.page.reading_views import Views
from hush_common.errors import StoreError
from hush_common.task import ROUND_LIMIT, is_task_id

__all__ = ["router"]

_MOST_PAGES = 10**6
_VERSION = version("hush-ldp")

router: APIRouter = APIRouter(include_in_schema=False)


async def _views(request: Request) -> Views:
    return cast("Views", request.app.state.views)


Shown = Annotated[Views, Depends(_views)]


@router.get("/")
async def show_all(request: Request, views: Shown, page: Annotated[int, Query(ge=1, le=_MOST_PAGES)] = 1) -> Response:
    """All tasks."""
    now = datetime.now(UTC)
    try:
        shown, total, pages, dropped = await views.some(page, now)
    except StoreError:
        return _unread(request, now)
    at = min(page, pages)
    return _html(index(shown, _around(request, now), total=total, page=at, pages=pages, dropped=dropped))


@router.get("/tasks/{task_id}")
async def show_one(
    request: Request,
    task_id: str,
    views: Shown,
    round_: Annotated[int | None, Query(alias="round", ge=0, lt=ROUND_LIMIT)] = None,
) -> Response:
    """One task."""
    now = datetime.now(UTC)
    try:
        view = await views.one(task_id, round_, now) if is_task_id(task_id) else None
    except StoreError:
        return _unread(request, now)
    around = _around(request, now)
    if view is None:
        back = element("p", element("a", "All tasks", href="/"))
        return _told(around, 404, "There is no such task here", back)
    return _html(detail(view, around))


@router.get("/assets/{name}")
async def show_asset(name: str) -> Response:
    """A file that the page loads. Its name changes with its bytes, so that it may be kept for ever."""
    asset = _by_address().get(name)
    if asset is None:
        return Response(status_code=404)
    headers = {"cache-control": "public, max-age=31536000, immutable"}
    return Response(asset.body, headers=headers, media_type=asset.media_type)


def _unread(request: Request, now: datetime) -> Response:
    """What is wrong with the store is for its owners, who find it in `/readyz`."""
    again = element("p", "It is not lost for that. Its owners see what is wrong; look again soon.")
    return _told(_around(request, now), 503, "What is counted cannot be read just now", again)


def _told(around: Around, status: int, what: str, more: Html) -> Response:
    return _html(framed(around, what, element("div", element("h1", what), more, class_="about")), status)


def _by_address() -> dict[str, Asset]:
    return {asset.address.rpartition("/")[2]: asset for asset in assets().values()}


def _around(request: Request, now: datetime) -> Around:
    query = f"?{request.url.query}" if request.url.query else ""
    return Around(addresses(), f"{request.url.path}{query}", now, _VERSION)


def _html(text: str, status: int = 200) -> Response:
    return Response(text, status, media_type="text/html; charset=utf-8")
