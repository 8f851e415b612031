"""An estimate has the same digits, and an interval the same name, wherever people read them."""

import html
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any

import pytest
from home_assistant import rendered as ha_rendered
from home_assistant import sensors
from rendered import rendered

from hush import Run, simulate
from hush_aggregator import PartEstimate
from hush_aggregator.estimate.result import encode
from hush_aggregator.ops.watch.terminal import figures_of, view_of
from hush_aggregator.publish import home_assistant
from hush_aggregator.publish.presentation import NumberFormat, interval_name, rows_of
from hush_aggregator.store.base import Origin, TaskState
from hush_aggregator.web.page.pages import render_task
from hush_aggregator.web.page.view import TaskView
from hush_common.formatting import fixed
from hush_simulations.display.progress import estimates_so_far
from hush_simulations.display.table import run_blocks

pytestmark = pytest.mark.large

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KINDS = {"number": "heights", "bit": "survey", "category": "commute", "vector": "offices"}


@cache
def run_of(kind: str) -> Run:
    return simulate(KINDS[kind], engine="bulk", draw="devices", clients=150, seed=4)


def page(run: Run) -> str:
    view = TaskView(run.task, TaskState.OPEN, Origin.FILE, False, NOW, run.result)
    text = html.unescape(re.sub(r"<[^>]+>", "", render_task(view, "/", NOW)))
    return text.replace("\xa0", " ").replace("\N{MINUS SIGN}", "-")


def announced(run: Run) -> str:
    payload = encode(run.result.to_document())
    found = sensors(home_assistant.announcement(run.task, "status")).values()
    return "\n".join(f"{one['name']} {ha_rendered(str(one['value_template']), payload)}" for one in found)


def watched(run: Run) -> str:
    return figures_of(view_of(run.task.id, run.result.to_document(), run.task))


def picture(run: Run) -> str:
    texts: list[Any] = run.figure().findobj(lambda one: hasattr(one, "get_text"))
    return "\n".join(one.get_text().replace("\n", " ") for one in texts if one.get_text())


SURFACES: Mapping[str, Callable[[Run], str]] = {
    "terminal": lambda run: rendered(run_blocks(run)),
    "terminal, live": lambda run: "\n".join(
        f"{one.label} {one.value} {one.remark}" for one in estimates_so_far(run.result)
    ),
    "results": lambda run: "\n".join(" ".join(row.shown.values()) for row in rows_of(run.result)),
    "page": page,
    "watch": watched,
    "home assistant": announced,
    "picture": picture,
}
WITHOUT_ESTIMATES = {("picture", "category"), ("picture", "vector")}  # they draw them on an axis
ALL = [(surface, kind) for surface in SURFACES for kind in KINDS if (surface, kind) not in WITHOUT_ESTIMATES]


def wanted(run: Run, surface: str) -> list[str]:
    """The estimates with the digits that people see; live the first four, in a line of the watch the largest five."""
    result = run.result
    parts = sorted(result.parts, key=lambda part: -(part.mean or 0.0)) if result.is_share else list(result.parts)
    most = {"terminal, live": 4, "watch": 5}.get(surface, len(parts))

    def text(part: PartEstimate) -> str:
        assert part.mean is not None
        error = max(part.stderr.values())
        factor = 100 if result.is_share else 1
        places = max(0, 1 - int(f"{error * factor:e}".partition("e")[2]))  # two digits of the standard error
        return fixed(part.mean, places, scale=factor)

    grouped = [text(part) for part in parts[:most]]
    return [one.replace(" ", "") for one in grouped] if surface == "home assistant" else grouped  # it groups itself


def missing(run: Run, surface: str) -> list[str]:
    words = SURFACES[surface](run)
    return [text for text in wanted(run, surface) if not re.search(rf"(?<![\d.]){re.escape(text)}(?![\d.]*\d)", words)]


@pytest.mark.parametrize(("surface", "kind"), ALL)
def test_an_estimate_has_the_same_digits_everywhere(surface: str, kind: str) -> None:
    assert missing(run_of(kind), surface) == []


NAMED = [
    ("terminal", "number"),
    ("picture", "number"),
    *((name, kind) for name in ("page", "watch", "home assistant") for kind in KINDS),
]


@pytest.mark.parametrize(("surface", "kind"), NAMED)
def test_an_interval_has_the_same_name_everywhere(surface: str, kind: str) -> None:
    run = run_of(kind)
    method = "" if surface == "home assistant" else run.result.parts[0].methods["anytime"]
    assert interval_name("anytime", method) in SURFACES[surface](run).lower()


def test_the_digits_are_those_of_the_format() -> None:
    run = run_of("number")
    (text,) = wanted(run, "page")
    assert run.result.mean is not None
    assert NumberFormat.of(run.result).number(run.result.mean) == text
