"""An estimate has the same digits, and an interval the same name, wherever people read them."""

import asyncio
import html
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache

import matplotlib.text
import numpy as np
import pytest
from home_assistant import rendered as ha_rendered
from home_assistant import sensors
from rendered import rendered

from hush import SCENARIOS, Run
from hush_aggregator import PartEstimate, home_assistant, presentation
from hush_aggregator.http.page.pages import render_task
from hush_aggregator.http.page.view import TaskView
from hush_aggregator.presentation import NumberFormat, interval_name, rows_of
from hush_aggregator.result import encode
from hush_aggregator.store.base import Origin, TaskState
from hush_aggregator.watch.terminal import figures_of, view_of
from hush_common.formatting import fixed
from hush_simulations.display.progress import estimates_so_far
from hush_simulations.display.run_figure import figure_of
from hush_simulations.display.table import run_blocks
from hush_simulations.engines.experiment import Experiment
from hush_simulations.engines.live import simulate

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KINDS = {"number": "heights", "bit": "survey", "category": "commute", "vector": "offices"}


@cache
def run_of(kind: str) -> Run:
    scenario = SCENARIOS[KINDS[kind]]
    values = tuple(scenario.population.draw(150, np.random.default_rng(4)))
    experiment = Experiment(scenario=scenario, values=values, noise_seed=4, engine="memory", seed=4)
    return Run.of(experiment, asyncio.run(simulate(experiment)))


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
    return "\n".join(
        one.get_text().replace("\n", " ") for one in figure_of(run).findobj(matplotlib.text.Text) if one.get_text()
    )


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


@pytest.mark.large
@pytest.mark.parametrize(("surface", "kind"), ALL)
def test_an_estimate_has_the_same_digits_everywhere(surface: str, kind: str) -> None:
    assert missing(run_of(kind), surface) == []


@pytest.mark.large
@pytest.mark.parametrize(("surface", "kind"), ALL)
def test_other_digits_are_noticed(surface: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (presentation, home_assistant):
        monkeypatch.setattr(module, "DIGITS", 4)
    assert missing(run_of(kind), surface) == wanted(run_of(kind), surface)


NAMED = [
    ("terminal", "number"),
    ("picture", "number"),
    *((name, kind) for name in ("page", "watch", "home assistant") for kind in KINDS),
]


@pytest.mark.parametrize(("surface", "kind"), NAMED)
def test_an_interval_has_the_same_name_everywhere(surface: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(kind)
    method = "" if surface == "home assistant" else run.result.parts[0].methods["anytime"]
    name = interval_name("anytime", method)
    assert name in SURFACES[surface](run).lower()
    for target in ("anytime", "anytime_population"):
        monkeypatch.setitem(presentation._NAMES, target, "whenever")
    assert name not in SURFACES[surface](run).lower()
    assert interval_name("anytime", method) in SURFACES[surface](run).lower()


def test_the_digits_are_those_of_the_format() -> None:
    run = run_of("number")
    (text,) = wanted(run, "page")
    assert run.result.mean is not None
    assert NumberFormat.of(run.result).number(run.result.mean) == text
