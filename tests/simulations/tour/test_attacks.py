"""`hush attack`: each attack succeeds against the naive twin as the literature says, and meets its bound at hush."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from commands import run

from hush_attacks.catalogue import ATTACKS, play
from hush_attacks.demonstration import Demonstration
from hush_attacks.linking import matched
from hush_simulations.display.style import DARK, LIGHT

pytestmark = pytest.mark.large

_PLAYED: dict[str, Demonstration] = {}


def played(name: str) -> Demonstration:
    """An attack, played once for all tests."""
    if name not in _PLAYED:
        _PLAYED[name] = play(name, 2026)
    return _PLAYED[name]


def test_floating_point_gives_away_values_and_hush_does_not() -> None:
    figures = played("float").figures
    for epsilon, known in ((0.1, 0.813), (0.5, 0.809), (1, 0.807), (2, 0.837), (4, 0.938)):  # of 20 000 draws each
        label = f"{epsilon:g}"
        deviation = math.sqrt(known * (1 - known) / 2000)
        assert figures[f"naive identified, epsilon {label}"] == pytest.approx(known, abs=4.5 * deviation + 0.01)
        assert figures[f"naive wrong, epsilon {label}"] == 0
        most = math.exp(epsilon) / (1 + math.exp(epsilon))
        assert figures[f"allowed, epsilon {label}"] == pytest.approx(most)
        verdicts = figures[f"hush verdicts, epsilon {label}"]
        right = figures[f"hush right among verdicts, epsilon {label}"]
        assert right <= most + 6 * math.sqrt(most * (1 - most) / verdicts)  # hush draws anew in every run
    bounds = [row[-1] for row in played("float").rows]
    assert bounds == ["52.5 %", "62.3 %", "73.2 %", "88.1 %", "98.3 %"]  # rounded up, as every promise is


def test_a_year_of_fresh_noise_averages_away_and_a_ledger_stays() -> None:
    figures = played("averaging").figures
    assert figures["devices"] == 24
    for day in (1, 32, 365):
        exact = 100 * math.sqrt(2 / day)
        assert figures[f"naive exact error, day {day}"] == pytest.approx(exact)
        assert exact / 2.3 < figures[f"naive error, day {day}"] < exact * 2.3
        assert figures[f"hush exact error, day {day}"] == pytest.approx(100 * math.sqrt(2 / min(day, 4)))
    for kind in ("", ", reworded"):
        assert (figures[f"hush spent{kind}"], figures[f"hush reports{kind}"]) == (4, 4)
    # four reports of epsilon 1 each: 100·sqrt(2/4) cm; of 24 devices the root mean square is within its 0.0001-range
    assert 71 / 2.3 < figures["hush error, day 365"] < 71 * 2.3
    assert figures["hush error, day 365"] == figures["hush error, day 4"]


def test_liars_move_the_mean_within_worst_case_bias() -> None:
    figures = played("poison").figures
    moved = [key for key in figures if key.endswith(": shift") and not key.startswith("sybils")]
    assert len(moved) == 12
    for key in moved:
        bound = figures[key.replace(": shift", ": bound")]
        noise = 0.0 if "extreme" in key else 30.0  # a liar who follows the protocol has noise like everybody
        assert abs(figures[key]) <= bound + noise * 0.2, key
    assert figures["laplace, reports the extreme, 10: shift"] > 30  # the naive mean, 10 liars among 1010
    assert figures["laplace, reports the extreme, 10: winsorised shift"] < 12
    assert figures["auto, reports the extreme, 10: shift"] < 2
    assert (figures["sybils, quota 0: counted"], figures["sybils, quota 1: counted"]) == (50, 1)
    assert figures["sybils, quota 1: shift"] < figures["sybils, quota 0: shift"] / 20


def test_only_who_runs_the_broker_links_reports() -> None:
    assert dict(played("link").figures) == {
        "a naive aggregator": 1.0,
        "the broker": 1.0,
        "the broker, before a gateway": pytest.approx(0.1),
        "hush's store": pytest.approx(0.1),
        "hush's log": pytest.approx(0.1),
        "the broker, a resend": 1.0,
    }


def test_marks_that_differ_match_and_shared_marks_are_guesses() -> None:
    assert matched("abcd", "abcd") == 1
    assert matched("aaaa", "aaaa") == pytest.approx(1 / 4)
    assert matched("aabb", "aabb") == pytest.approx(1 / 2)
    assert matched("abcd", "wxyz") == pytest.approx(1 / 4)
    assert matched("abcd", "badc") == 0


def test_silence_halves_the_naive_value_and_moves_hush_by_epsilon() -> None:
    figures = played("silence").figures
    for k in (1, 2, 4, 8, 16, 25):
        assert figures[f"naive width, task {k}"] == pytest.approx(150 / 2**k)
        assert figures[f"hush spent, task {k}"] == pytest.approx(k * 1e-6)
        assert figures[f"hush log-odds, task {k}"] <= k * 1e-6 * (1 + 1e-9)
    assert figures["hush answered"] == 25


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_has_a_table_and_a_picture_for_both_themes(name: str) -> None:
    done = played(name)
    for palette in (LIGHT, DARK):
        figure = done.draw(palette=palette)
        assert figure.axes[0].get_title(loc="left")
        ground = [int(palette.ground[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        assert figure.get_facecolor()[:3] == pytest.approx(ground)
    assert all(len(row) == len(done.columns) for row in done.rows)


def test_the_pictures_draw_the_figures() -> None:
    axes = played("float").draw(palette=DARK).axes[0]
    bars = [
        float(np.ptp(np.asarray(bar.get_path().get_extents(bar.get_patch_transform()))[:, 1])) for bar in axes.patches
    ]
    for place, epsilon in enumerate(("0.1", "0.5", "1", "2", "4")):
        for start, key in ((0, "naive"), (5, "hush")):
            figure = played("float").figures[f"{key} right among verdicts, epsilon {epsilon}"]
            assert bars[start + place] == pytest.approx(100 * figure)
    lines = played("averaging").draw(palette=DARK).axes[0].lines
    drawn = [float(y) for line in lines for y in np.asarray(line.get_ydata())]
    for day in (1, 32, 365):
        assert played("averaging").figures[f"naive error, day {day}"] in drawn


def test_the_command_lists_plays_and_writes_the_picture(tmp_path: Path) -> None:
    listed = run(["attack"], tmp_path)
    assert all(name in listed.out for name in ATTACKS)
    done = run(["attack", "silence", "--out", "new", "--json"], tmp_path)
    assert done.code == 0
    assert json.loads(done.out)["figures"]["hush answered"] == 25
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["attack-silence.png", "attack-silence.svg"]
    wrong = run(["attack", "nonsense"], tmp_path)
    assert (wrong.code, wrong.out) == (2, "")
    assert all(name in wrong.err for name in ATTACKS)
    (tmp_path / "file").write_text("")
    refused = run(["attack", "silence", "--out", "file"], tmp_path)
    assert (refused.code, refused.out) == (2, "")
    assert "--out" in refused.err
