"""Frame: what stands around every page: its head, where it is, and how to see newer figures."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from hush_aggregator.http.page.markup import Html, element, fragment, harmless, void
from hush_aggregator.http.page.words import moment

__all__ = ["EVENTS", "Around", "framed"]

EVENTS = "/v1/events"
"""The stream that tells which task has changed."""

_DESCRIPTION = "Statistics of devices that keep their values to themselves."


@dataclass(frozen=True, slots=True)
class Around:
    """What a page has to know of its service.

    Args:
        assets: the address of each asset, by its name.
        here: the address of the page itself, to load it again.
        now: aware: when it was made.
        version: of hush.
    """

    assets: Mapping[str, str]
    here: str
    now: datetime
    version: str


def framed(around: Around, title: str, *main: Html | None) -> str:
    """A whole document. `title` may be a stranger's: what could turn its letters round is shown, not obeyed."""
    named = f"{harmless(title, 120)} · hush" if title else "hush"
    document = element(
        "html",
        element(
            "head",
            void("meta", charset="utf-8"),
            element("title", named),
            void("meta", name="viewport", content="width=device-width, initial-scale=1"),
            void("meta", name="description", content=_DESCRIPTION),
            void("meta", name="color-scheme", content="light dark"),
            void("meta", name="referrer", content="no-referrer"),
            void("link", rel="icon", type="image/svg+xml", href=around.assets["hush.svg"]),
            void("link", rel="stylesheet", href=around.assets["hush.css"]),
            element("script", src=around.assets["hush.js"], type="module"),
        ),
        element(
            "body", _top(around), element("main", *main, id="main", tabindex="-1"), _bottom(around), data_events=EVENTS
        ),
        lang="en",
    )
    return f"<!doctype html>{document}"


def _top(around: Around) -> Html:
    sign = void("img", src=around.assets["hush.svg"], alt="", width=28, height=28)
    return fragment(
        element("a", "Skip to the figures", href="#main", class_="skip"),
        element(
            "header",
            element(
                "a",
                sign,
                "hush",
                href="/",
                class_="home",
            ),
            _state(around),
            class_="top",
        ),
    )


def _state(around: Around) -> Html:
    """How fresh the figures are: without a script a link, with one what it says."""
    still = element("span", "As of ", moment(around.now), ". ", element("a", "Reload", href=around.here), id="still")
    return element("div", still, element("span", id="live", role="status", aria_live="polite"), class_="state")


def _bottom(around: Around) -> Html:
    return element(
        "footer",
        element(
            "p",
            "These figures are estimates from reports that devices made noisy before they sent them. Nobody here has "
            "the values themselves: not this page, not the service behind it.",
        ),
        element("p", "This page asks nothing of other hosts, sets no cookie, and counts no visitors."),
        element("p", f"hush {around.version} · ", element("a", "for programs", href="/v1/tasks"), class_="faint"),
        class_="bottom",
    )
