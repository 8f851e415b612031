"""What a screen says beside its figures: what the best mechanism would give, and why an odd figure is no mistake."""

from dataclasses import replace
from fractions import Fraction

import pytest
from rendered import rendered
from screens import document, screen

from hush import SCENARIOS, simulate
from hush_aggregator.explain import blocks as task_blocks
from hush_common.domain import NumberDomain
from hush_common.task import make_task
from hush_simulations.display.table import remarks
from hush_simulations.planning.plan import PlanQuestion, solve
from hush_simulations.results.run import auto_mechanism, planned_document

HEIGHTS = SCENARIOS["heights"].task()


def words(name: str) -> str:
    return " ".join(screen(name, 120).split())


def test_the_default_simulation_says_what_the_best_mechanism_would_have_given() -> None:
    plan = solve(
        PlanQuestion(
            domain=NumberDomain(120.0, 220.0, "cm"), people=500, epsilon=Fraction(1), error=None, confidence=0.95
        )
    )
    errors = {line.mechanism: line.amounts["reporters"] for line in plan.mechanisms}
    best = document("simulate")["best_mechanism"]
    assert best == {
        "mechanism": plan.auto["reporters"],
        "half_width": {name: errors[name] for name in ("laplace", "table")},
        "people_ratio": pytest.approx(1.989, abs=0.001),
    }
    assert "--mechanism auto takes table: about ± 8.8 instead of ± 12.4 cm." in words("simulate")
    assert errors["table"] / errors["laplace"] == pytest.approx(8.8 / 12.4, abs=0.01)


def test_the_mechanism_that_auto_takes_is_named() -> None:
    assert "table is what auto takes here." in words("simulate-best")


@pytest.mark.parametrize("epsilon", ["0.1", "0.5", "1", "2", "3", "5", "8"])
@pytest.mark.parametrize("mechanism", ["laplace", "multilevel", "table"])
def test_the_look_up_says_what_the_planner_computes(mechanism: str, epsilon: str) -> None:
    domain = NumberDomain(120.0, 220.0, "cm")
    question = PlanQuestion(domain=domain, people=500, epsilon=Fraction(epsilon), error=None, confidence=None)
    plan = solve(question)
    line = next((one for one in plan.mechanisms if one.mechanism == mechanism), None)
    if line is None:  # no table is shipped for this epsilon
        assert (mechanism, epsilon) == ("table", "0.1")
        return
    task = make_task(
        {
            "id": "t",
            "epsilon": epsilon,
            "mechanism": mechanism,
            "domain": {"kind": "number", "lower": 120, "upper": 220},
        }
    )
    found = auto_mechanism(task)
    assert found is not None
    assert found[0] == plan.auto["reporters"]
    assert found[1] == pytest.approx(line.relative["reporters"], rel=1e-9)


def test_there_is_no_best_mechanism_of_several_epsilons_nor_of_no_report() -> None:
    assert auto_mechanism(SCENARIOS["sleep"].task()) is None
    assert planned_document(SCENARIOS["sleep"].task(), 300, 0.95) is None
    assert planned_document(HEIGHTS, 0, 0.95) is None
    assert "best_mechanism" not in document("simulate-sleep")


def test_an_estimate_that_nobody_can_have_is_said_to_be_deliberate() -> None:
    assert "An estimate outside 120 to 220 cm is not an error: it is unbiased" in words("simulate-one")
    assert words("simulate-one").count("120 to 220 cm the whole range") == 4
    assert "An estimate outside 0 to 100 % (otherwise) is not an error" in words("simulate-commute")
    assert "deliberate" not in words("simulate")


def test_of_two_estimates_each_is_named_by_what_it_is_for() -> None:
    text = words("simulate-sleep")
    assert "estimate, reporters 4.6 h 2.4 h too low estimate, population 7.5 h 0.4 h too high" in text
    assert "the one for the reporters describes those who answered" in text
    assert "if the choice of an epsilon is unrelated to the value" in text


def test_each_column_of_judged_intervals_has_a_legend_and_the_truth_that_it_is_about() -> None:
    for name in ("simulate-commute", "simulate-offices", "simulate-rounds"):
        text = words(name)
        assert "covers: whether the interval holds the truth." in text
        assert "!" not in text
        assert "about true off 95 % interval covers" in text


def test_every_round_has_error_band_and_verdict_and_all_rounds_are_one_estimate() -> None:
    lines = screen("simulate-rounds", 120).splitlines()
    assert len([line for line in lines if " reporters, at " in line]) == 3
    (last,) = [line for line in lines if line.strip().startswith("all ")]
    together = document("simulate-rounds")["together"]
    assert isinstance(together, dict)
    assert last.split()[1:3] == ["4", "500"]
    assert together["rounds"] == 3
    assert together["result"]["n"] == 4500
    assert together["result"]["methods"]["population"] == "reporters-and-sampling"
    assert together["covered"] == {"reporters": True, "population": True}


def test_a_plan_of_an_error_states_the_confidence_of_its_interval() -> None:
    assert "500 people, epsilon 1, half-width of the interval at 95 %" in words("plan-error")


def test_an_audit_that_is_consistent_has_no_figure_above_its_limit_and_a_violation_no_word_of_comfort() -> None:
    assert "epsilon 1: no observer is right more often than 73.2 %" in words("audit")
    assert "an observer is right in at least 70.96 %, at 99 % confidence" in words("audit")
    assert "guesses 12 000 g if the report (g) > 13 317.4" in words("audit-task")
    assert "Consistent is not a proof" in words("audit")
    assert "Consistent" not in words("audit-violation")


def test_times_and_thousands_are_written_in_one_way() -> None:
    document_ = {"id": "t", "epsilon": "1", "domain": {"kind": "number", "lower": 0, "upper": 20_000}}
    rounds = {"rounds": 3, "round_every": "20s", "opens": "2026-01-01T00:00:00Z"}
    text = " ".join(rendered(task_blocks(make_task({**document_, **rounds}))).split())
    assert "3, one every 20 s" in text
    assert "a number from 0 to 20 000;" in text


def test_a_stopped_simulation_says_what_its_intervals_are_worth() -> None:
    told = [*remarks(replace(simulate("heights", clients=5, engine="memory"), stopped=True), None)]
    assert told[0].startswith("Stopped with 5 of 5 answers sent")
    assert "use those at any time" in told[0]
