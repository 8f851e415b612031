"""The pages of a poll: the participant's, the screen for the audience, and the one for a wrong code."""

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from importlib.resources import files

import segno

from hush_aggregator.web.page.environment import assets, template_environment
from hush_aggregator.web.page.figures import PartsPage, RoundFigures
from hush_aggregator.web.page.label import PrivacyLabel
from hush_aggregator.web.page.view import TaskView
from hush_common.formatting import exact
from hush_poll.logins import Login
from hush_poll.questions import RELEASE_FROM
from hush_poll.scripts import digest, listing, scripts
from hush_poll.server import Page

_ENVIRONMENT = template_environment(__package__)
_ENVIRONMENT.filters["exact"] = exact
_OWN = {"poll.css": "text/css; charset=utf-8", "screen.js": "text/javascript; charset=utf-8"}
_SCRIPT = "text/javascript; charset=utf-8"
_JSON = "application/json"


@dataclass(frozen=True, slots=True)
class ShownQuestion:
    """A question on the screen: its figures, and the number of answers, also of those that are not released."""

    view: TaskView
    answers: int


def files_of_pages(address: str) -> dict[str, Page]:
    """Return what the pages load, by the path below the code."""
    own = files(__package__).joinpath("assets")
    found = {f"assets/{name}": Page(own.joinpath(name).read_bytes(), kind) for name, kind in _OWN.items()}
    for name in ("hush.css", "hush.svg"):
        found[f"assets/{name}"] = Page(assets()[name].body, assets()[name].media_type)
    found |= {f"js/{name}": Page(body, _SCRIPT) for name, body in scripts().items()}
    found["scripts.txt"] = Page(listing(), "text/plain; charset=utf-8")
    found["qr.svg"] = Page(_qr(address), "image/svg+xml")
    return found


def _qr(address: str) -> bytes:
    out = io.BytesIO()
    segno.make(address, error="m", micro=False).save(
        out, kind="svg", border=4, light="#fff", dark="#000", omitsize=True, xmldecl=False
    )
    return out.getvalue()


def render_participant(views: Sequence[TaskView], base: str, broker: str, *, login: str = "") -> Page:
    """Render the page on which a person answers.

    `broker` is its WebSocket, relative to the page or absolute, and `login` where the page gets its own login.
    """
    text = _ENVIRONMENT.get_template("poll.html").render(
        questions=[(view, PrivacyLabel.of(view)) for view in views],
        base=base,
        broker=broker,
        login=login,
        modules=[name for name in scripts() if name != "poll.js"],
        digest=digest(),
        title=views[0].title if len(views) == 1 else "A poll",
    )
    return Page(text.encode())


def render_screen(shown: Sequence[ShownQuestion], base: str, address: str) -> Page:
    """Render the screen for the audience."""
    text = _ENVIRONMENT.get_template("screen.html").render(
        questions=_questions(shown), base=base, address=address, least=RELEASE_FROM, title=_title(shown)
    )
    return Page(text.encode())


def render_figures(shown: Sequence[ShownQuestion], base: str) -> Page:
    """Render the part of the screen that changes."""
    text = _ENVIRONMENT.get_template("screen_figures.html").render(
        questions=_questions(shown), least=RELEASE_FROM, base=base
    )
    return Page(text.encode())


def _title(shown: Sequence[ShownQuestion]) -> str:
    return shown[0].view.title if len(shown) == 1 else "A poll"


def _questions(shown: Sequence[ShownQuestion]) -> list[tuple[ShownQuestion, RoundFigures | None, PartsPage | None]]:
    found = []
    for one in shown:
        figures = None
        if one.view.result is not None and one.view.has_estimate:  # the audience has watched: n was not fixed before
            figures = RoundFigures.of(replace(one.view, result=replace(one.view.result, final=False)))
        parts = None if figures is None else PartsPage.of(figures.parts, in_order=True)
        found.append((one, figures, parts))
    return found


def login_page(login: Login | None) -> Page:
    """Return the login of a browser for its page, or that there is none left."""
    if login is None:
        return Page(b"{}", _JSON, HTTPStatus.CONFLICT)
    return Page(json.dumps({"user": login.user, "password": login.password}).encode(), _JSON)


def render_refusal(base: str, *, is_wrong: bool) -> Page:
    """Render the page for a request without the code, or with a wrong one."""
    text = _ENVIRONMENT.get_template("poll_code.html").render(base=base, is_wrong=is_wrong, title="The code is missing")
    return Page(text.encode(), status=HTTPStatus.FORBIDDEN)
