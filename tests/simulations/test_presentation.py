"""The table, the picture and the files of a simulation, from a run that is made up."""

import csv
import io
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_results import changed, result_of, single
from rendered import rendered

from hush import SCENARIOS, Run
from hush_aggregator import Estimate
from hush_aggregator.presentation import NumberFormat
from hush_common.wire import Refusal
from hush_simulations.display.files import to_json, write_files
from hush_simulations.display.table import run_blocks
from hush_simulations.engines.experiment import NOT_PRIVATE, Experiment, Outcome, Received, RoundOutcome
from hush_simulations.scenarios.population import Value


def made_up(
    name: str = "heights",
    values: tuple[Value, ...] = (170.0, 180.0),
    *,
    mean: float | None = 174.0,
    rounds: int = 1,
    refused: dict[Refusal, int] | None = None,
    declined: dict[str, int] | None = None,
    clamped: int = 0,
    noise_seed: int | None = None,
    seed: int | None = 7,
) -> Run:
    scenario = SCENARIOS[name]
    task = scenario.task()
    experiment = Experiment(scenario=scenario, values=values, noise_seed=noise_seed, seed=seed)
    estimate = Estimate(0)
    if mean is not None:
        spread = 0.05 if name == "survey" else 5.0
        estimate = single(
            len(values),
            mean,
            stderr={"reporters": spread, "population": spread},
            intervals=dict.fromkeys(("reporters", "population"), (mean - 2 * spread, mean + 2 * spread)),
        )
    bodies = np.arange(len(values) if mean is not None else 0, dtype=np.int64)
    if name == "survey":
        bodies %= 2
    received = Received(b"".join(number.to_bytes(16) for number in range(len(bodies))), bodies[:, None])
    reporters = tuple(range(len(values))) if mean is not None else ()
    results = [result_of(task, estimate, round_=number, refused=refused) for number in range(rounds)]
    done = [RoundOutcome(result, reporters, clamped, declined or {}, 0.5, received) for result in results]
    return Run.of(experiment, Outcome(task, tuple(done)))


def with_estimate(run: Run, estimate: Estimate, refused: dict[Refusal, int] | None = None) -> Run:
    """The same run, of one round, where something else was estimated."""
    done = run.rounds[0]
    found = result_of(run.task, estimate, refused=refused)
    outcome = RoundOutcome(found, done.reporters, done.clamped, done.declined, done.elapsed, done.received)
    return Run.of(run.experiment, Outcome(run.task, (outcome,)))


def table(run: Run) -> str:
    return rendered(run_blocks(run))


def row(text: str, label: str) -> str:
    return next(line for line in text.splitlines() if line.strip().startswith(label))


def test_the_table_says_what_was_true_what_was_estimated_and_what_it_cost() -> None:
    text = table(made_up())
    assert "Mean height of adults: 2 devices, laplace, epsilon 1, over MQTT (embedded)" in text
    assert "175.0 cm" in row(text, "true mean, reporters")
    assert "170.0 cm" in row(text, "true mean, population")
    assert "174.0 cm" in row(text, "estimate")
    assert "1.0 cm too low" in row(text, "estimate")
    assert "164.0 to 184.0 cm" in row(text, "95 % interval, reporters")
    assert "covers the truth" in row(text, "95 % interval, reporters")
    assert "2 accepted, 0 refused" in row(text, "reports")
    assert row(text, "epsilon spent by each device").split()[-1] == "1"
    assert "4 reports/s" in row(text, "time")
    assert row(text, "seed").split()[-1] == "7"


def test_an_interval_that_misses_says_so() -> None:
    assert "misses the truth" in row(table(made_up(mean=200.0)), "95 % interval, reporters")


def test_shares_are_per_cent_and_their_distance_is_points() -> None:
    text = table(made_up("survey", (1, 0, 0, 0), mean=0.3))
    assert "25.0 %" in row(text, "true share of yes, reporters")
    assert "5.0 points too high" in row(text, "estimate")


def test_the_table_names_refusals_declined_answers_and_clamped_values() -> None:
    text = table(made_up(refused={Refusal.DUPLICATE: 2}, declined={"out_of_domain": 1}, clamped=1))
    assert "2 duplicate" in text
    assert "a report with this id is already counted" in text
    assert "the device declined: out_of_domain" in text
    assert "not included in the intervals" in row(text, "values clamped")


def test_each_round_is_a_row() -> None:
    text = table(made_up(rounds=3))
    rows = [line.split() for line in text.splitlines() if " reporters " in line]
    assert [words[:3] for words in rows if words[0] in ("0", "1", "2", "all")] == [
        ["0", "2", "174.0"],
        ["1", "2", "174.0"],
        ["2", "2", "174.0"],
        ["all", "6", "120.0"],
    ]
    assert "over 3 rounds" in row(text, "epsilon spent by each device")


def test_no_report_is_no_estimate() -> None:
    text = table(made_up(mean=None, declined={"not_open": 2}))
    assert "none: no report was counted" in row(text, "estimate")


def test_noise_that_is_not_private_is_named_in_table_and_object() -> None:
    run = made_up(noise_seed=3)
    assert NOT_PRIVATE in row(table(run), "noise")
    assert "NOT private" in run.to_document()["noise"]


def test_the_object_has_the_fields_of_the_design() -> None:
    found = json.loads(to_json(made_up()))
    assert found["truth"] == {"reporters": 175.0, "population": 170.0}
    assert found["covered"] == {"reporters": True, "population": True}
    assert {name: found[name] for name in ("clients", "published", "lost", "elapsed_s", "reports_per_s")} == {
        "clients": 2,
        "published": 2,
        "lost": 0,
        "elapsed_s": 0.5,
        "reports_per_s": 4.0,
    }
    assert (found["engine"], found["broker"], found["seed"], found["epsilon_spent"]) == ("mqtt", "embedded", 7, "1")
    assert "rounds" not in found


def test_a_report_that_never_arrived_is_lost_and_a_refused_one_is_not() -> None:
    run = made_up()

    def lost(n: int, refused: dict[Refusal, int] | None = None) -> int:
        return with_estimate(run, Estimate(n), refused).lost

    assert lost(1) == 1
    assert lost(1, {Refusal.WRONG_DIGEST: 1}) == 0
    assert lost(1, {Refusal.DUPLICATE: 1}) == 1  # a redelivery of the other one


@pytest.mark.parametrize("error", [0.00042, 0.42, 4.2, 42.0, 4.2e7])
def test_a_number_has_two_digits_of_its_error(error: float) -> None:
    wording = NumberFormat.of(result_of(SCENARIOS["heights"].task(), single(9, stderr={"reporters": error})))
    shown = float(wording.number(error).replace(" ", ""))
    assert shown == pytest.approx(error, rel=0.013)
    assert len(wording.number(error).replace(".", "").replace(" ", "").lstrip("0")) <= 8


def test_a_huge_number_stays_short() -> None:
    wording = NumberFormat.of(result_of(SCENARIOS["heights"].task(), single(9, stderr={"reporters": 1e300})))
    assert wording.value(1.23456789e300) == "1.23457e+300 cm"


@pytest.mark.large
@pytest.mark.parametrize(
    ("name", "values", "options"),
    [
        ("heights", tuple(float(value) for value in range(150, 190)), {}),
        ("heights", (170.0,), {"mean": -300.0}),
        ("heights", (170.0, 170.0), {"rounds": 4}),
        ("heights", (170.0, 170.0), {"mean": None}),
        ("survey", (0, 1, 1), {"mean": 0.5}),
        ("survey", (0, 1, 1), {"mean": 0.5, "rounds": 3}),
        ("survey", (0,), {"mean": None}),
    ],
)
def test_files_hold_a_picture_the_reports_and_the_object(
    tmp_path: Path, name: str, values: tuple[Value, ...], options: dict[str, Any]
) -> None:
    run = made_up(name, values, **options)
    result, reports, picture, _ = write_files(tmp_path, run)
    assert json.loads(result.read_text(encoding="utf-8"))["clients"] == len(values)
    header = picture.read_bytes()[:24]
    assert header.startswith(b"\x89PNG")
    assert struct.unpack(">I", header[16:20]) == (1440,)
    rows = list(csv.DictReader(io.StringIO(reports.read_text(encoding="utf-8"))))
    assert len(rows) == sum(len(done.received.ids) for done in run.rounds)


def test_reports_are_kept_as_received_and_without_true_values(tmp_path: Path) -> None:
    write_files(tmp_path, made_up(values=(171.25, 181.5)))
    text = (tmp_path / "reports.csv").read_text(encoding="utf-8")
    assert text.splitlines()[:2] == ["round,report_id,epsilon,body,decoded", f"0,{0:032x},1,0,120.0"]
    assert "171.25" not in text
    assert "181.5" not in text


def test_reports_with_noise_of_a_seed_are_sorted_and_without_ids(tmp_path: Path) -> None:
    write_files(tmp_path, made_up(values=(171.25, 181.5), noise_seed=3))
    head, *rows = (tmp_path / "reports.csv").read_text(encoding="utf-8").splitlines()
    assert (head, rows[0]) == ("round,epsilon,body,decoded", "0,1,0,120.0")
    assert [int(row.split(",")[2]) for row in rows] == sorted(int(row.split(",")[2]) for row in rows)


def test_an_interval_that_could_not_be_made_is_named_and_the_others_stay(tmp_path: Path) -> None:
    run = made_up()
    estimate = run.result.estimate
    sound = {"population": estimate.intervals["population"]}
    failed = with_estimate(run, changed(estimate, intervals=sound, failures={"reporters": "not_finite"}))
    text = table(failed)
    assert "reporters (not_finite)" in row(text, "could not be made")
    assert "164.0 to 184.0 cm" in row(text, "95 % interval, population")
    write_files(tmp_path, failed)
    text = table(with_estimate(run, changed(estimate, intervals={}, stderr={})))
    assert "174.0 cm" in row(text, "estimate")


def test_further_intervals_are_named_by_what_they_are_about() -> None:
    run = made_up()
    wider = {"anytime_population": (150.0, 200.0), "enrolled": (160.0, 190.0)}
    estimate = changed(run.result.estimate, intervals={**run.result.intervals, **wider})
    text = table(with_estimate(run, estimate))
    assert "150.0 to 200.0 cm" in row(text, "95 % interval, population, at any time")
    assert "covers the truth" in row(text, "95 % interval, population, at any time")
    assert "truth unknown" in row(text, "95 % interval, all enrolled")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    run = made_up(clamped=1, rounds=1)
    lines = rendered(run_blocks(run), width, wraps=True).splitlines()
    assert max(map(len, lines)) <= width
    assert any("covers the truth" in line for line in lines)
