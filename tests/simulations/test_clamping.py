"""Bounds that cut off values: the first words of every face tell the share and the error, and no goal hides them."""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

import hush
from hush.cli import main
from hush_common.domain import NumberDomain
from hush_simulations.planning.clamping import clampings
from hush_simulations.planning.plan import offered, own_values, people_for

HOURS = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 19.0, 25.0]
BETWEEN: Mapping[str, object] = {"kind": "number", "lower": 2, "upper": 10, "unit": "h"}
SHARE, ERROR = 0.3, float(np.clip(HOURS, 2, 10).mean() - np.mean(HOURS))

Run = Callable[..., str]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """A command about a file of these values, in this process."""
    file = tmp_path / "hours.csv"
    file.write_text("h\n" + "".join(f"{one}\n" for one in HOURS * 40), encoding="utf-8")

    def run(name: str, *arguments: str) -> str:
        asked = ["--csv", str(file), "--lower", "2", "--upper", "10", "--unit", "h"]
        monkeypatch.setattr(sys, "argv", ["hush", name, *asked, *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code
        return capsys.readouterr().out

    return run


COMMANDS = [
    ("feasible", "--epsilon", "1"),
    ("plan", "--epsilon", "1", "--error", "25%"),
    ("simulate", "--engine", "memory"),
    ("simulate", "--engine", "bulk"),
]


@pytest.mark.parametrize("asked", COMMANDS)
def test_the_first_sentence_has_the_share_and_the_error(command: Run, asked: tuple[str, ...]) -> None:
    first = command(*asked).strip().split("\n\n")[0]
    assert "30 %" in first
    assert "2 to 10 h" in first
    assert f"{abs(ERROR):.3g} h too low" in " ".join(first.split())


@pytest.mark.parametrize("large", [1e307, -1.7e308])
def test_the_error_is_a_number_where_the_sum_of_the_values_is_none(large: float) -> None:
    (found,) = clampings(NumberDomain(0.0, 10.0), [large] * 30 + [5.0] * 10)
    assert found.error == pytest.approx(-0.75 * large)
    assert found.mean == pytest.approx(0.75 * large)


@pytest.mark.parametrize("asked", COMMANDS)
def test_json_has_both(command: Run, asked: tuple[str, ...]) -> None:
    document = json.loads(command(*asked, "--json"))
    (found,) = document["clamping"] if asked[0] == "simulate" else [document["data"]["clamping"]]
    assert found == {"share": pytest.approx(SHARE), "error": pytest.approx(ERROR)}
    if asked[0] == "simulate":
        assert document["truth"]["reporters"] == pytest.approx(np.mean(HOURS))  # the values as they are


def test_results_in_python_have_both() -> None:
    plan = hush.plan(BETWEEN, HOURS, epsilon=1, people=500)
    feasible = hush.feasible(HOURS, BETWEEN, epsilons=[1])
    assert plan.question.data is not None
    assert feasible.data is not None
    simulated = hush.simulate(data=HOURS, domain=BETWEEN, engine="memory").clampings
    for one in (plan.question.data.clamping, feasible.data.clamping, *simulated):
        assert one is not None
        assert [one.share, one.error] == pytest.approx([SHARE, ERROR])


def test_bounds_that_hold_every_value_are_not_mentioned() -> None:
    wide = dict(BETWEEN, lower=0, upper=30)
    for found in (hush.feasible(HOURS, wide, epsilons=[1]), hush.plan(wide, HOURS, epsilon=1, people=50)):
        assert "beyond the bounds" not in str(found)
        assert "clamping" not in json.dumps(found.to_document())
    run = hush.simulate(data=HOURS, domain=wide, engine="memory")
    assert run.clampings == ()
    assert "beyond the bounds" not in str(run)


@pytest.mark.parametrize(("goal", "reached"), [(2.2, False), (5.0, True)])
def test_a_goal_that_the_bounds_alone_miss_is_not_reached(goal: float, reached: bool) -> None:
    many = [one + turn / 4000 for turn in range(400) for one in HOURS]
    found = hush.feasible(many, BETWEEN, epsilons=[8], error=goal)
    assert found.lines[0].half_widths["population"] < 0.5
    assert (found.reaching("population") is not None) == reached
    assert ("population" in found.lines[0].people) == reached
    for known in ({"epsilon": 8}, {"people": 4000}):
        plan = hush.plan(BETWEEN, HOURS, error=goal, **known)  # type: ignore[arg-type] # of their types
        assert bool(plan.cheapest) == reached
        assert ("widen" in str(plan)) != reached


def test_people_are_those_for_whom_interval_and_bounds_together_keep_the_error() -> None:
    (line,) = [one for one in hush.plan(BETWEEN, HOURS, error=4, epsilon=1).mechanisms if one.mechanism == "laplace"]
    values = own_values(NumberDomain(2, 10), HOURS, {}, "")
    cost = offered(NumberDomain(2, 10), values.known)["laplace"](hush.feasible(HOURS, BETWEEN).lines[2].epsilon)
    assert cost is not None
    for target in ("reporters", "population"):
        assert line.amounts[target] == people_for(cost, target, (4 + ERROR) / 8, 0.95)


def test_of_a_vector_each_coordinate_with_values_beyond_its_bounds_is_named() -> None:
    rows = [(float(n), 20.0, None if n % 2 else 3.0) for n in range(100)]
    domain = {
        "kind": "vector",
        "coordinates": [
            {"name": "steps", "lower": 0, "upper": 79, "unit": "k"},
            {"name": "warmth", "lower": 0, "upper": 40, "unit": "C"},
            {"name": "noise", "lower": 4, "upper": 8, "unit": "dB"},
        ],
    }
    run = hush.simulate(data=rows, domain=domain, missing="replace", engine="memory")
    steps, noise = run.clampings
    assert [steps.part.name, noise.part.name] == ["steps", "noise"]
    assert [steps.share, steps.error, noise.share, noise.error] == pytest.approx([0.2, -2.1, 1.0, 1.0])
    first = " ".join(str(run).split("\n\n")[0].split())
    assert first.index("noise: 100 %") < first.index("steps: 20 %")
    assert "warmth" not in first


def test_a_population_of_a_scenario_is_told_as_well() -> None:
    run = hush.simulate("offices", clients=3000, engine="bulk", seed=5)
    assert run.clamped
    assert 0 < max(one.share for one in run.clampings) < 0.1
    assert "beyond the bounds" in str(run).split("\n\n")[0]
