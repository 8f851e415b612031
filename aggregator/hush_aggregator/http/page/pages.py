"""The pages: `/` has all tasks, `/tasks/{id}` one of them; `/assets` has what they load. HTML is in templates/.

The guard around the application tells browsers to load files of this service only.
"""

import hashlib
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from types import MappingProxyType
from typing import Annotated, cast

from fastapi import APIRouter, Depends, Query, Request, Response
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from hush_aggregator.explain import certainty, largest_loss
from hush_aggregator.http.page.figures import FAILURES, Course, RoundFigures, Rounds, band_of, meaning
from hush_aggregator.http.page.label import PrivacyLabel
from hush_aggregator.http.page.view import TaskView, TaskViews
from hush_common.epsilon import decimal_text
from hush_common.errors import StoreError
from hush_common.formatting import significant, whole
from hush_common.task import ROUND_LIMIT, is_task_id

ASSETS = "/assets/"
_TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
_LONGEST = 500  # characters of one text: as long as a title may be
_MARKS = 6  # combining marks on one letter: as many as any script needs, and no tower over the next line
_HIDDEN = "\N{REPLACEMENT CHARACTER}"
_MOST_PAGES = 10**6

page_routes: APIRouter = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True)
class Asset:
    """A file that a page loads. Its address changes with its bytes, so that browsers may cache it forever."""

    body: bytes
    media_type: str
    address: str


@cache
def assets() -> Mapping[str, Asset]:
    """Return the assets, by the names of their files."""
    found = {}
    for one in files(__package__).joinpath("assets").iterdir():
        stem, _, kind = one.name.rpartition(".")
        if kind in _TYPES:
            body = one.read_bytes()
            digest = hashlib.sha256(body).hexdigest()[:12]
            found[one.name] = Asset(body, _TYPES[kind], f"{ASSETS}{stem}.{digest}.{kind}")
    return MappingProxyType(found)


def sanitize(text: str, longest: int = _LONGEST) -> str:
    """Return text of the author of a task without what could overwrite its neighbours.

    Control characters, direction marks, lone surrogates and line separators become a replacement character; a letter
    keeps six combining marks; text of more than `longest` characters ends in an ellipsis.
    """
    kept: list[str] = []
    marks = 0
    for one in text[:longest]:
        marks = marks + 1 if unicodedata.category(one) in {"Mn", "Me"} else 0
        if marks <= _MARKS:
            kept.append(one if one.isprintable() or one == " " else _HIDDEN)
    shown = "".join(kept)
    return shown if len(text) <= longest else f"{shown}…"


def untrusted(text: str, longest: int = _LONGEST) -> Markup:
    """Return text of the author of a task as markup: sanitized, escaped, and with its direction isolated."""
    return Markup("<bdi>{}</bdi>").format(sanitize(text, longest))


def _moment(time: datetime) -> Markup:
    utc = time.astimezone(UTC)
    return Markup('<time datetime="{}">{:%d %b %Y, %H:%M} UTC</time>').format(utc.isoformat(timespec="seconds"), utc)


def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.globals |= {
        "assets": {name: asset.address for name, asset in assets().items()},
        "version": version("hush-ldp"),
    }
    made.filters |= {
        "band": band_of,
        "capitalize_first": lambda text: text[:1].upper() + text[1:],
        "decimal": decimal_text,
        "failure": lambda why: FAILURES.get(why, why),
        "machine": lambda value: repr(float(value)),
        "meaning": meaning,
        "moment": _moment,
        "points": lambda points: " ".join(f"{x:.1f},{y:.1f}" for x, y in points),
        "px": lambda length: f"{round(length, 2):g}",
        "sanitize": sanitize,
        "significant": significant,
        "sure": certainty,
        "untrusted": untrusted,
        "whole": whole,
    }
    return made


ENVIRONMENT: Environment = _environment()
"""The templates: markup is escaped unless a filter or a template made it, and an unknown name is an error."""


def render_message(here: str, now: datetime, title: str, status: int) -> str:
    """Render a page that has only a message."""
    return ENVIRONMENT.get_template("message.html").render(here=here, now=now, title=title, status=status)


def render_index(
    views: Sequence[TaskView], here: str, now: datetime, *, total: int, page: int, pages: int, dropped: int = 0
) -> str:
    """Render a page (from 1) of the list of tasks; `dropped` counts messages that the broker dropped."""
    cards = [(view, RoundFigures.of(view), largest_loss(view.task)) for view in views]
    context = {"cards": cards, "total": total, "page": page, "pages": pages, "dropped": dropped}
    return ENVIRONMENT.get_template("index.html").render(context, here=here, now=now, title="")


def render_task(view: TaskView, here: str, now: datetime) -> str:
    """Render the page of one task."""
    return ENVIRONMENT.get_template("task.html").render(
        view=view,
        figures=RoundFigures.of(view),
        course=Course.of(view),
        rounds=Rounds.of(view),
        label=PrivacyLabel.of(view),
        here=here,
        now=now,
        title=view.title,
    )


async def _views(request: Request) -> TaskViews:
    return cast("TaskViews", request.app.state.views)


ViewsDep = Annotated[TaskViews, Depends(_views)]


@page_routes.get("/")
async def show_all(
    request: Request, views: ViewsDep, page: Annotated[int, Query(ge=1, le=_MOST_PAGES)] = 1
) -> Response:
    """All tasks."""
    now = datetime.now(UTC)
    try:
        shown, total, pages, dropped = await views.some(page, now)
    except StoreError:
        return _unread(request, now)
    at = min(page, pages)
    return _html(render_index(shown, _here(request), now, total=total, page=at, pages=pages, dropped=dropped))


@page_routes.get("/tasks/{task_id}")
async def show_one(
    request: Request,
    task_id: str,
    views: ViewsDep,
    round_: Annotated[int | None, Query(alias="round", ge=0, lt=ROUND_LIMIT)] = None,
) -> Response:
    """One task."""
    now = datetime.now(UTC)
    try:
        view = await views.one(task_id, round_, now) if is_task_id(task_id) else None
    except StoreError:
        return _unread(request, now)
    if view is None:
        return _html(render_message(_here(request), now, "There is no such task", 404), 404)
    return _html(render_task(view, _here(request), now))


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
    return _html(render_message(_here(request), now, "The figures cannot be read right now", 503), 503)


def _here(request: Request) -> str:
    query = f"?{request.url.query}" if request.url.query else ""
    return f"{request.url.path}{query}"


def _html(text: str, status: int = 200) -> Response:
    return Response(text, status, media_type="text/html; charset=utf-8")
