"""Pictures: colours that everybody tells apart, a headline that its rows support, and the quantities that are drawn."""

import re
import warnings
from fractions import Fraction
from importlib import import_module
from itertools import combinations
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from numpy.typing import NDArray

import hush
from hush import SCENARIOS, Run
from hush_aggregator.estimate.mechanisms import analysis_of, fold
from hush_aggregator.publish.presentation import interval_name
from hush_common.domain import CategoryDomain, VectorDomain
from hush_simulations.display.distributions import estimate_ranges, reported_numbers, reported_part, true_numbers
from hush_simulations.display.run_figure import figure_of, picture_of
from hush_simulations.display.style import (
    DARK,
    LIGHT,
    Palette,
    Picture,
    canvas,
    styled,
    write_picture,
)
from hush_simulations.engines.bulk.laws import law_of

pytestmark = pytest.mark.medium

# Machado, Oliveira and Fernandes 2009, severity 1: what a colour, in linear RGB, looks like to the colour-blind.
SEEN = {
    "by everybody else": np.eye(3),
    "without green cones": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "without red cones": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "without blue cones": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
FAR = 20.0
"""In CIELAB; what can just be told apart side by side is 2.3."""


def linear(colour: str) -> NDArray[np.float64]:
    levels = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    return np.where(levels <= 0.04045, levels / 12.92, ((levels + 0.055) / 1.055) ** 2.4)


def lab(rgb: NDArray[np.float64]) -> NDArray[np.float64]:
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ np.clip(rgb, 0, 1) / np.array([0.9505, 1, 1.089])
    x, y, z = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def nearest(colours: tuple[str, ...]) -> float:
    """The least distance of two of these colours, to whoever tells them apart worst."""
    return min(
        float(np.linalg.norm(lab(seen @ linear(one)) - lab(seen @ linear(other))))
        for seen in SEEN.values()
        for one, other in combinations(colours, 2)
    )


def contrast(one: str, other: str) -> float:
    """Of WCAG 2: the ratio of luminances."""
    low, high = sorted(float(np.array([0.2126, 0.7152, 0.0722]) @ linear(colour)) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("palette", [LIGHT, DARK])
def test_the_colour_blind_tell_any_two_lines_apart(palette: Palette) -> None:
    assert nearest(palette.lines) >= FAR
    assert min(contrast(colour, palette.ground) for colour in palette.lines) >= 3
    assert contrast(palette.ink, palette.ground) >= 7
    assert contrast(palette.faint, palette.ground) >= 4.5


def ran(name: str, **options: object) -> Run:
    return hush.simulate(name, seed=1, engine="bulk", **options)  # type: ignore[arg-type] # of any type


@pytest.mark.large
@pytest.mark.parametrize("name", ["survey", "commute"])
def test_files_have_a_title_a_description_and_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("hush_simulations.display.style.DPI", 50)  # small pictures are drawn sooner
    picture = picture_of(ran(name))
    for folder in ("one", "other"):
        (tmp_path / folder).mkdir()
        paths = write_picture(picture, tmp_path / folder, "result", "both")
        assert [path.name for path in paths] == ["result.png", "result.svg", "result-dark.png", "result-dark.svg"]
    for path in paths:
        assert path.read_bytes() == (tmp_path / "one" / path.name).read_bytes()
    imread: Any = import_module("matplotlib.image").imread
    light, dark = (imread(paths[place]) for place in (0, 2))
    assert light.shape[1] == dark.shape[1] == 320
    assert light[0, 0, :3] == pytest.approx(1)
    assert dark[0, 0, :3] == pytest.approx(np.array([0x16, 0x1C, 0x22]) / 255, abs=0.01)
    root = ET.fromstring(paths[1].read_text(encoding="utf-8"))  # noqa: S314 - ours
    space = "{http://www.w3.org/2000/svg}"
    assert root.get("role") == "img"
    by_id = {one.get("id"): one.text for one in root.iter() if one.tag in (f"{space}title", f"{space}desc")}
    assert set((root.get("aria-labelledby") or "").split()) == by_id.keys()
    assert all(by_id.values())
    assert [one for one in root.iter(f"{space}text") if one.text]
    assert not re.search(r"\d{4}-\d\d-\d\d", paths[1].read_text(encoding="utf-8"))


def test_names_that_look_like_code_break_no_picture(tmp_path: Path) -> None:
    def draw(palette: Palette) -> object:
        with styled(palette):
            figure = canvas(3)
            axes = figure.subplots()
            axes.barh(["_hidden", "$x^", "日本 😀", "<b>&amp;", "a\x07b"], [1, 2, 3, 4, 5])
            axes.set_title("cost in $ or $")
            figure.draw_without_rendering()
        return figure

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        paths = write_picture(Picture("a < b", "c & d\x01", draw), tmp_path, "odd")  # type: ignore[arg-type]
    root = ET.fromstring(paths[1].read_text(encoding="utf-8"))  # noqa: S314 - ours
    texts = {one.text for one in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"_hidden", "$x^", "日本 😀", "<b>&amp;", "ab", "cost in $ or $"} <= texts


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_a_tally_counts_values_as_its_reports_do(name: str) -> None:
    task = SCENARIOS[name].task()
    if task.offers:
        pytest.skip("a mechanism for each epsilon, as of heights")
    mechanism, rng = task.randomizer, np.random.default_rng(5)
    domain = task.domain
    shape = (400, len(domain.sizes)) if isinstance(domain, VectorDomain) else (400,)
    indices = rng.integers(0, np.array(domain.sizes), size=shape)
    bodies = law_of(mechanism).bodies(mechanism, indices, rng)  # type: ignore[arg-type]
    tally, analysis = fold(mechanism, bodies), analysis_of(mechanism)  # type: ignore[arg-type]
    places = len(domain.labels) if isinstance(domain, CategoryDomain) else len(domain.sizes)
    for place in range(places):
        known = analysis.spread(mechanism, domain, tally, place)
        if known is None:
            assert mechanism.name == "laplace"
            continue
        said = analysis.said(mechanism, domain, bodies, place)
        for value, count in zip(*known, strict=True):
            assert count == np.count_nonzero(np.isclose(said, value)), (place, value)
        assert known[1].sum() == len(said)


def test_in_bulk_the_bars_are_those_of_the_tally() -> None:
    few = ran("poisoned", clients=10**6)
    (spread,) = reported_numbers(few)
    assert few.last.tally is not None
    assert spread.counts.sum() == few.result.n
    assert tuple(spread.counts) == few.last.tally.moments
    bars: list[Any] = list(figure_of(few).axes[1].patches)
    heights = sum(
        bar.get_height()
        for bar in bars
        if bar.get_width() < 10  # the legal values are a broad band
    )
    assert heights == few.result.n
    (noise,) = reported_numbers(ran("heights", clients=10**6))
    assert noise.counts.sum() == pytest.approx(10**6)
    mean = np.average(noise.values, weights=noise.counts)
    deviation = np.sqrt(np.average((noise.values - mean) ** 2, weights=noise.counts))
    assert mean == pytest.approx(170, abs=5 * 142 / np.sqrt(len(noise.values)))
    assert deviation == pytest.approx(np.sqrt(2 * 100**2 + 108), rel=0.02)  # scale 100 cm, beside the people's own


def test_the_drawn_people_are_those_who_answer() -> None:
    run = ran("two-groups", clients=10**6)
    seen = true_numbers(run)
    assert seen.counts.sum() == pytest.approx(run.result.n)
    assert np.average(seen.values, weights=seen.counts) == pytest.approx(run.truth["reporters"], abs=0.01)
    everybody = np.array(run.experiment.scenario.population.draw(10**4, np.random.default_rng(1)), dtype=np.float64)
    assert abs(everybody.mean() - run.truth["reporters"]) > 0.3  # planted: those of everybody would be noticed


def test_drawing_changes_no_figure() -> None:
    run = ran("heights", clients=1000)
    before = run.to_document()
    figure_of(run)
    assert {**run.to_document(), "elapsed_s": 0} == {**before, "elapsed_s": 0}


def test_ticks_of_a_short_interval_have_whole_labels() -> None:
    axes = figure_of(ran("heights", clients=10**9)).axes[2]
    labels = [float(label.get_text()) for label in axes.get_xticklabels()]
    assert labels == pytest.approx(axes.get_xticks(), abs=1e-6)  # no offset that stands elsewhere
    assert len(labels) <= 7


@pytest.mark.parametrize("name", ["commute", "offices"])
def test_reports_of_parts_are_those_of_the_tally(name: str) -> None:
    run = ran(name, clients=10**6)
    assert run.last.tally is not None
    every = [reported_part(run, place) for place in range(len(run.score.parts))]
    if name == "offices":
        assert [count for one in every for count in one.counts] == list(run.last.tally.moments)
    else:
        assert [one.counts[1] for one in every] == list(run.last.tally.moments)
    assert len(figure_of(run, DARK).axes) == (12 if name == "offices" else 3)  # an axis for each unit


@pytest.mark.parametrize(("scenario", "seed"), [("two-groups", 12), ("two-groups", 3), ("heights", 2)])
def test_the_headline_counts_every_interval_that_is_drawn(scenario: str, seed: int) -> None:
    run = hush.simulate(scenario, engine="bulk", seed=seed)
    missing = [name for name, holds in run.covered.items() if not holds]
    words = picture_of(run).title
    assert ("miss" in words) == bool(missing)
    assert ("cover" in words) or missing
    if len(missing) == 1:
        assert interval_name(missing[0], run.result.estimate.methods.get(missing[0], "")) in words


@pytest.mark.parametrize("seed", range(3))
def test_the_headline_of_parts_has_both_targets(seed: int) -> None:
    run = hush.simulate("commute", engine="bulk", seed=seed, clients=300)
    held = [[part.covered[target] for part in run.score.parts.values()] for target in ("reporters", "population")]
    counts = [f"{sum(one)} of {len(one)}" for one in held]
    assert re.findall(r"\d+ of \d+", picture_of(run).title) == list(dict.fromkeys(counts))


@pytest.mark.parametrize(("data", "seed", "sign"), [([True] * 3, 1, ">"), ([False] * 4, 2, "<")])
def test_an_estimate_beyond_the_axis_is_drawn_at_its_end(data: list[bool], seed: int, sign: str) -> None:
    run = hush.simulate(data=data, domain={"kind": "bit"}, engine="bulk", seed=seed)
    mean = run.result.mean
    assert mean is not None
    assert not 0 <= mean <= 1
    axes = figure_of(run).axes[2]
    low, high = axes.get_xlim()
    arrows = [line for line in axes.lines if line.get_marker() == sign]
    assert len(arrows) == len(run.result.intervals)
    assert all(low < float(np.asarray(line.get_xdata())[0]) < high for line in arrows)
    assert f"{100 * mean:.0f} %".replace("-", "\N{MINUS SIGN}") in {text.get_text() for text in axes.texts}
    inside = figure_of(ran("survey")).axes[2]
    assert not [line for line in inside.lines if line.get_marker() in {"<", ">"}]


def test_each_interval_is_drawn_next_to_its_truth() -> None:
    run = ran("heights", clients=200)
    truths = {one.name: one.truth for one in estimate_ranges(run)}
    for name, truth in truths.items():
        assert truth == run.truth["population" if name.startswith("population") else "reporters"]
    assert len(truths) == 4


def test_coordinates_have_axes_of_their_units() -> None:
    run = ran("offices", clients=2000)
    every = figure_of(run).axes
    rows = [every[start : start + 3] for start in range(0, 12, 3)]
    for row, part, one in zip(rows, run.task.domain.parts, run.result.parts, strict=True):
        kept, _, estimated = row
        assert kept.get_xlim() == (part.lower, part.upper)
        assert part.unit in kept.get_xlabel()
        truth = run.score.parts[part.name].truth["reporters"]
        points = {float(np.asarray(line.get_xdata())[0]) for line in estimated.lines}
        assert {one.mean, truth, one.intervals["reporters"][0]} == points
        low, high = estimated.get_xlim()
        assert all(low < point < high for point in points)


def test_the_picture_of_rounds_ends_with_all_of_them_together() -> None:
    run = ran("heights", clients=200, rounds=2)
    axes, together = figure_of(run).axes[2], run.together
    assert len(axes.get_xticklabels()) == 3
    assert together is not None
    assert together.result.mean in [np.asarray(line.get_ydata())[0] for line in axes.lines]


@pytest.mark.parametrize(("upper", "line"), [(60, 5.0), (50, 5.0 - 50 / 60), (20, None)])
def test_the_line_of_a_goal_is_what_the_bounds_leave_of_it(upper: int, line: float | None) -> None:
    data = [float(i % 60) + 0.5 + i / 1e5 for i in range(900)]
    domain = {"kind": "number", "lower": 0, "upper": upper}
    axes = hush.feasible(data, domain, error=5, epsilons=[1, Fraction(2)]).figure().axes[0]
    (goal,) = [one for one in axes.lines if one.get_linestyle() == ":"]
    drawn = np.asarray(goal.get_ydata(), dtype=float)
    assert (drawn[0] if len(drawn) else None) == (None if line is None else pytest.approx(line, abs=0.05))
