"""The table, the picture and the files of categories and vectors, and what is seen live."""

import json
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_results import result_of, single
from rendered import rendered

from hush import SCENARIOS, Run, Scenario
from hush_aggregator import Estimate, PartEstimate
from hush_simulations.display.files import write_files
from hush_simulations.display.progress import caption, estimates_so_far, render
from hush_simulations.display.table import run_blocks
from hush_simulations.engines.experiment import Experiment
from hush_simulations.engines.live import simulate
from hush_simulations.scenarios.population import Frequencies, Value


def with_labels(count: int) -> Scenario:
    labels = ["a label that is far too long for any row of a table", *(f"label {place}" for place in range(1, count))]
    document_ = {"id": "l", "epsilon": "1", "domain": {"kind": "category", "labels": labels}}
    return Scenario(document_, Frequencies(tuple(labels), tuple(range(count, 0, -1))))


async def run(scenario: Scenario, count: int = 60, rounds: int = 1) -> Run:
    values: tuple[Value, ...] = tuple(scenario.population.draw(count, np.random.default_rng(1)))
    offers = len(scenario.task().offers)
    choices = [number % offers for number in range(count)] if offers else []
    if rounds > 1:
        scenario = scenario.asking(rounds=rounds, round_every="1d", opens="2026-01-01T00:00:00Z")
    experiment = Experiment(
        scenario=scenario, values=values, choices=choices, engine="memory", connections=2, noise_seed=1
    )
    return Run.of(experiment, await simulate(experiment))


def table(done: Run, width: int = 80) -> str:
    return rendered(run_blocks(done), width, wraps=True)


@pytest.mark.parametrize("count", [2, 30])
@pytest.mark.parametrize("width", [60, 80])
async def test_a_table_of_categories_fits_and_cuts_nothing(count: int, width: int) -> None:
    done = await run(with_labels(count))
    text = table(done, width)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    assert "…" not in text
    for word in ["a", "label", "that", "is", "far", "too", "long", "for", "any", "row", "of", "a", "table"]:
        assert word in text.split() or f"{word}," in text.split()
    rows = [line for line in lines if line.strip().startswith(("a label that", "label "))]
    assert len(rows) == count
    assert len([line for line in lines if " to " in line and line.endswith(("yes", "no"))]) == 2 * count
    assert any("simultaneous, reporters" in line for line in lines)


async def test_of_very_many_categories_each_has_a_row() -> None:
    done = await run(with_labels(100))
    rows = [line for line in table(done).splitlines() if line.strip().startswith("label ")]
    assert [row.split()[1] for row in rows] == [str(place) for place in range(1, 100)]


async def test_an_interval_that_misses_says_no_in_a_column_that_is_explained() -> None:
    done = await run(with_labels(3))
    missed = replace(done.score.parts["label 1"], covered={"reporters": False, "population": False})
    judged = replace(done.score, parts={**done.score.parts, "label 1": missed})
    text = table(replace(done, rounds=(replace(done.last, score=judged),)))
    lines = text.splitlines()
    place = next(place for place, line in enumerate(lines) if line.strip().startswith("label 1"))
    assert [line.split()[-1] for line in lines if " to " in line].count("no") == 2
    assert all(line.endswith("no") for line in lines[place : place + 2])
    assert "covers: whether the interval holds the truth" in " ".join(text.split())
    assert "!" not in text


async def test_coordinates_have_their_units_and_their_own_digits() -> None:
    done = await run(SCENARIOS["offices"], 400)
    text = table(done, 100)
    assert "temperature (°C)" in text
    assert "carbon dioxide (ppm)" in text
    assert "of 4" in text


async def test_rounds_of_categories_are_a_row_each() -> None:
    done = await run(with_labels(3), rounds=2)
    text = table(done)
    assert len([line for line in text.splitlines() if " of 3" in line]) == 2
    assert "points (" in text


async def test_a_choice_of_epsilon_is_told() -> None:
    done = await run(SCENARIOS["sleep"])
    text = table(done)
    assert "epsilon 0.5, 1 or 2" in text
    assert "20 devices" in text
    assert "at most 2" in text
    assert "estimate, population" in text


@pytest.mark.large
@pytest.mark.parametrize("name", ["commute", "offices", "sleep", "thirty", "hundred", "rounds"])
async def test_files_hold_a_picture_and_the_reports_and_the_object(tmp_path: Path, name: str) -> None:
    several = {"thirty": with_labels(30), "hundred": with_labels(100), "rounds": with_labels(4)}
    done = await run(several.get(name) or SCENARIOS[name], rounds=2 if name == "rounds" else 1)
    result, reports, picture, _ = write_files(tmp_path, done)
    assert json.loads(result.read_text(encoding="utf-8"))["clients"] == 60
    assert struct.unpack(">I", picture.read_bytes()[16:20]) == (1440,)
    lines = reports.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 1 + 60 * len(done.rounds)
    assert lines[0] == "round,epsilon,body,decoded"


SHARES = (0.1, 0.4, 0.05, 0.2, 0.15, 0.06, 0.04)
CATEGORIES = result_of(
    with_labels(7).task(),
    Estimate(
        99,
        parts=tuple(
            PartEstimate(
                n=9,
                name=f"l{place}",
                mean=share,
                stderr={"reporters": 0.02},
                intervals={"reporters": (0, 0.1), "anytime": (share - 0.05, share + 0.05)},
                joint_intervals={"reporters": (0, 0.2), "anytime": (share - 0.08, share + 0.08)},
            )
            for place, share in enumerate(SHARES)
        ),
    ),
)


def test_the_band_seen_live_is_the_anytime_one_and_never_that_of_a_fixed_n() -> None:
    result = result_of(
        SCENARIOS["heights"].task(),
        single(
            9,
            170.0,
            stderr={"reporters": 1.0},
            intervals={"reporters": (168.0, 172.0), "population": (167.0, 173.0), "anytime": (165.0, 175.0)},
        ),
    )
    (line,) = estimates_so_far(result)
    assert (line.label, line.value, line.remark) == ("mean", "170.0 cm", "165.0 to 175.0 cm")
    assert "at any time" in caption(result)
    assert "final intervals are narrower" in caption(result)


def test_of_categories_the_most_frequent_are_seen_live_with_their_joint_bands() -> None:
    lines = estimates_so_far(CATEGORIES)
    assert [line.label for line in lines] == ["l1", "l3", "l4", "l0", "l5"]
    assert lines[0].remark == "32.0 to 48.0 %"
    assert caption(CATEGORIES).startswith("so far; the largest 5 of 7; simultaneous")


@pytest.mark.parametrize("width", [40, 60, 80])
def test_what_is_seen_live_is_as_wide_as_the_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    text = render(CATEGORIES).plain
    assert max(map(len, text.splitlines())) <= width
    assert "the largest 5 of 7; simultaneous 95 % intervals, at any time" in " ".join(text.split())
    assert "32.0 to 48.0 %" in text


def test_of_coordinates_the_first_that_were_drawn_are_seen_live() -> None:
    drawn = PartEstimate(name="", n=3, mean=1.0, stderr={"reporters": 0.1}, intervals={"anytime": (0.5, 1.5)})
    coordinates = (PartEstimate(name="empty"), *(replace(drawn, name=f"c{place}") for place in range(9)))
    found = result_of(SCENARIOS["offices"].task(), Estimate(9, parts=coordinates), confidence=0.9)
    assert [line.label for line in estimates_so_far(found)] == ["c0", "c1", "c2", "c3", "c4"]
    assert caption(found).startswith("so far; the first 5 of 10; 90 % intervals, at any time")


def test_nothing_is_seen_before_the_first_report() -> None:
    assert estimates_so_far(result_of(SCENARIOS["heights"].task(), Estimate(0))) == []
