"""`hush attack`: each attack succeeds against the naive twin as the literature says, and meets its bound at hush."""

import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hush_attacks.catalogue import ATTACKS, play
from hush_attacks.demonstration import Demonstration
from hush_attacks.linking import matched
from hush_simulations.display.style import DARK, LIGHT

pytestmark = pytest.mark.medium

_PLAYED: dict[str, Demonstration] = {}


def played(name: str) -> Demonstration:
    """An attack, played once for all tests."""
    if name not in _PLAYED:
        _PLAYED[name] = play(name, 2026)
    return _PLAYED[name]


def test_floating_point_names_four_values_in_five_and_is_a_guess_at_hush() -> None:
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


@pytest.mark.large
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


def test_the_table_of_averaging_states_for_how_many_devices_and_what_is_exact() -> None:
    """Naive and hush have the same law on the first day: the same number of devices, the same exact value."""
    done = played("averaging")
    assert [title for title in done.columns if "error" in title] == [
        "naive: error of 24 devices",
        "hush: error of 24 devices",
        "hush, purpose reworded: error of 24 devices",
    ]
    first = dict(zip(done.columns, done.rows[0], strict=True))
    assert first["naive: exact"] == first["hush: exact"] == "141.4 cm"
    assert dict(zip(done.columns, done.rows[-1], strict=True))["hush: exact"] == "70.7 cm"


def test_liars_move_the_mean_no_farther_than_worst_case_bias_says() -> None:
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


def test_a_mark_that_differs_is_a_match_and_one_that_all_share_is_a_guess() -> None:
    assert matched("abcd", "abcd") == 1
    assert matched("aaaa", "aaaa") == pytest.approx(1 / 4)
    assert matched("aabb", "aabb") == pytest.approx(1 / 2)
    assert matched("abcd", "wxyz") == pytest.approx(1 / 4)
    assert matched("abcd", "badc") == 0


def test_silence_halves_the_naive_value_each_time_and_moves_hush_by_what_was_charged() -> None:
    figures = played("silence").figures
    for k in (1, 2, 4, 8, 16, 25):
        assert figures[f"naive width, task {k}"] == pytest.approx(150 / 2**k)
        assert figures[f"hush spent, task {k}"] == pytest.approx(k * 1e-6)
        assert figures[f"hush log-odds, task {k}"] <= k * 1e-6 * (1 + 1e-9)
    assert figures["hush answered"] == 25


@pytest.mark.large
@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_has_a_picture_for_both_grounds_and_a_row_for_each_figure_that_matters(name: str) -> None:
    done = played(name)
    for palette in (LIGHT, DARK):
        figure = done.draw(palette=palette)
        assert figure.axes[0].get_title(loc="left")
        assert figure.get_facecolor()[:3] == pytest.approx(
            [int(palette.ground[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        )
    assert all(len(row) == len(done.columns) for row in done.rows)
    assert done.meaning.endswith(".")


def hush(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hush", "attack", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.large
def test_the_command_lists_plays_and_writes_the_picture(tmp_path: Path) -> None:
    listed = hush()
    assert all(name in listed.stdout for name in ATTACKS)
    done = hush("silence", "--out", str(tmp_path / "new"))
    waited = re.compile(r"hush: playing the attack silence, which takes up to a minute, \d+ s")  # every five seconds
    (wrote,) = [line for line in done.stderr.splitlines() if not waited.fullmatch(line)]
    assert str(tmp_path / "new" / "attack-silence.png") in wrote
    assert done.returncode == 0
    assert "learns no more than was charged" in done.stdout
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["attack-silence.png", "attack-silence.svg"]
    document = json.loads(hush("silence", "--json").stdout)
    assert document["figures"]["hush answered"] == 25
    wrong = hush("nonsense")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "'nonsense' is not an attack; choose one of float, averaging, poison, link, silence" in wrong.stderr
    (tmp_path / "file").write_text("")
    refused = hush("silence", "--out", str(tmp_path / "file"))
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "cannot create this directory (File exists)" in refused.stderr
