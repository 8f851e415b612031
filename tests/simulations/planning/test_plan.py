"""`hush.plan` and `hush.feasible`, in Python and at the command: two of people, epsilon and error give the third."""

import json
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import Shown, run

import hush
from hush_aggregator.estimate.finite_channel import Values
from hush_common.domain import NumberDomain, VectorDomain
from hush_simulations.planning.asking import parse_error
from hush_simulations.planning.clamping import clampings
from hush_simulations.planning.feasibility import feasibility

AGES: Mapping[str, object] = {"kind": "number", "lower": 0, "upper": 110, "unit": "years"}
BIT: Mapping[str, object] = {"kind": "bit"}
HOURS = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 19.0, 25.0]
BETWEEN: Mapping[str, object] = {"kind": "number", "lower": 2, "upper": 10, "unit": "h"}
SHARE, ERROR = 0.3, float(np.clip(HOURS, 2, 10).mean() - np.mean(HOURS))
OWN = ("--csv", "people.csv", "--column", "age", "--lower", "0", "--upper", "100", "--unit", "years")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "people.csv").write_text(
        "age;way;smokes\n20;bus;no\n30;bus;yes\n70;car;no\n;bus;no\n", encoding="utf-8"
    )
    return tmp_path


def planned(directory: Path, *arguments: str) -> Shown:
    return run(["plan", *arguments], directory)


def document(directory: Path, *arguments: str) -> Any:  # noqa: ANN401 - JSON
    shown = planned(directory, *arguments, "--json")
    assert (shown.code, shown.err) == (0, "")
    assert "null" not in shown.out
    return json.loads(shown.out)


@pytest.mark.medium
@pytest.mark.face
@pytest.mark.parametrize(
    ("unknown", "options"),
    [
        ("people", ("--epsilon", "1", "--error", "5%")),
        ("epsilon", ("--people", "2_000", "--error", "10%")),
        ("error", ("--people", "2e3", "--epsilon", "1")),
    ],
)
@pytest.mark.parametrize(
    "domain",
    [
        ("number", "--lower", "-5", "--upper", "5"),
        ("bit",),
        ("category", "--categories", "16"),
        ("vector", "--coordinates", "8"),
    ],
)
def test_any_two_give_the_third(
    unknown: str, options: tuple[str, ...], domain: tuple[str, ...], tmp_path: Path
) -> None:
    found = document(tmp_path, *options, "--domain", *domain)
    assert found["unknown"] == unknown
    assert {*found["auto"].values(), *found["cheapest"].values()} <= {line["mechanism"] for line in found["mechanisms"]}


@pytest.mark.medium
@pytest.mark.parametrize(
    "options",
    [
        ("--epsilon", "1", "--error", "5%"),
        ("--epsilon", "5", "--error", "5%"),
        ("--epsilon", "8", "--people", "1000"),
        ("--people", "40", "--error", "30%"),
    ],
)
def test_the_cheapest_mechanism_is_named_for_each_target(options: tuple[str, ...], tmp_path: Path) -> None:
    found = document(tmp_path, *options)
    shown = " ".join(planned(tmp_path, *options).out.split())
    for target in ("reporters", "population"):
        relatives = {one["mechanism"]: one["relative"][target] for one in found["mechanisms"]}
        cheapest = min(relatives, key=relatives.__getitem__)
        assert found["cheapest"][target] == cheapest
        assert relatives[found["auto"][target]] == 1
        assert found["auto"][target] in shown
        assert cheapest in shown


@pytest.mark.medium
@pytest.mark.parametrize("domain", [("number",), ("category", "--categories", "1024")])
def test_planning_ends_where_no_epsilon_helps(domain: tuple[str, ...], tmp_path: Path) -> None:
    found = document(tmp_path, "--people", "5", "--error", "0.01%", "--domain", *domain)
    assert not any({"reporters", "population"} & one.keys() for one in found["mechanisms"])


def laplace(found: Any) -> Any:  # noqa: ANN401 - JSON
    return next(line for line in found["mechanisms"] if line["mechanism"] == "laplace")


def test_a_plan_for_data_uses_their_spread(place: Path) -> None:
    size = ("--people", "400", "--epsilon", "1")
    found = document(place, *size, *OWN, "--missing", "drop", "--rms")
    assert found["values"] == "of the data"
    assert found["data"] == {
        "column": "age",
        "rows": 4,
        "missing": 1,
        "treatment": "drop",
        "resampled": False,
        "standard_deviation": pytest.approx((1400 / 3) ** 0.5),
    }
    assert laplace(found)["population"] == pytest.approx(100 * ((2 + 1400 / 3 / 1e4) / 400) ** 0.5)
    shown = " ".join(planned(place, *size, *OWN, "--missing", "drop").out.split())
    assert "21.6 years (21.6 %)" in shown
    assert "not private" in shown
    dropped, replaced = (laplace(document(place, *size, *OWN, "--missing", how)) for how in ("drop", "replace"))
    assert replaced["population"] > dropped["population"]


def test_data_that_are_alike_have_another_cheapest_mechanism(tmp_path: Path) -> None:
    """Everybody is 50: at epsilon 2 multilevel has a level there, which answers with less noise than the table."""
    (tmp_path / "people.csv").write_text("age\n50\n50\n50\n", encoding="utf-8")
    found = document(tmp_path, "--people", "400", "--epsilon", "2", *OWN)
    for target in ("reporters", "population"):
        assert (found["auto"][target], found["cheapest"][target]) == ("table", "multilevel")


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [(("--column", "way", "--labels", "bus,car"), "category"), (("--column", "smokes", "--yes", "yes"), "bit")],
)
def test_a_column_may_be_of_categories_or_answers(place: Path, arguments: tuple[str, ...], kind: str) -> None:
    found = document(place, "--people", "400", "--epsilon", "1", "--csv", "people.csv", *arguments)
    assert (found["domain"]["kind"], found["data"]["rows"]) == (kind, 4)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((), "--people, --epsilon, --error"),
        (("--nonsense",), "--nonsense"),
        (("--people",), "--people"),
        (("--categories", "many"), "--categories"),
        (("--people", "10"), "--people: "),
        (("--people", "10", "--epsilon", "1", "--error", "5%"), "--error"),
        (("--people", "many", "--epsilon", "1"), "--people: 'many'"),
        (("--people", "0", "--epsilon", "1"), "--people: 0"),
        (("--people", "10", "--epsilon", "0"), "--epsilon: 0"),
        (("--people", "10", "--epsilon", "nan"), "--epsilon: 'nan'"),
        (("--people", "10", "--error", "5"), "--error: 5"),
        (("--people", "10", "--error", "0%"), "--error: '0%'"),
        (("--people", "10", "--error", "1.2.3"), "--error: '1.2.3'"),
        (("--people", "10", "--error", "5", "--domain", "bit"), "--error: 5"),
        (("--people", "10", "--epsilon", "1", "--confidence", "95"), "--confidence: 95"),
        (("--people", "10", "--epsilon", "1", "--rms", "--confidence", "0.9"), "--rms: "),
        (("--people", "10", "--epsilon", "1", "--lower", "3"), "--upper: "),
        (("--people", "10", "--epsilon", "1", "--lower", "3", "--upper", "1"), "--lower: 3"),
        (("--people", "10", "--epsilon", "1", "--domain", "word"), "--domain: 'word'"),
        (("--people", "10", "--epsilon", "1", "--domain", "category"), "--categories: "),
        (("--people", "10", "--epsilon", "1", "--domain", "vector", "--coordinates", "0"), "1024"),
        (("--people", "10", "--epsilon", "1", "--domain", "bit", "--unit", "cm"), "--unit: "),
        (("--people", "10", "--epsilon", "1", "--missing", "drop"), "--csv FILE"),
        (("--people", "10", "--epsilon", "1", *OWN), "--missing drop"),
        (("--people", "10", "--epsilon", "1", *OWN[:2]), "--column: "),
        (("--people", "10", "--epsilon", "1", *OWN[:2], "--column", "way"), "--labels"),
        (("--people", "10", "--epsilon", "1", *OWN[:2], "--column", "smokes"), "--yes VALUE"),
        (("--people", "10", "--epsilon", "1", *OWN[:6]), "--upper: "),
        (("--people", "10", "--epsilon", "1", *OWN, "--domain", "number"), "--domain: "),
        (("--people", "10", "--epsilon", "1", *OWN, "--categories", "3"), "--categories: "),
    ],
)
def test_a_mistake_in_planning_is_one_line(place: Path, arguments: tuple[str, ...], named: str) -> None:
    shown = planned(place, *arguments)
    (line,) = shown.err.splitlines()
    assert (shown.code, shown.out) == (2, "")
    assert named in line


@pytest.mark.medium
def test_feasible_and_plan_agree_for_the_mechanism_of_auto() -> None:
    for domain in ({"kind": "number", "lower": 0, "upper": 1}, BIT, {"kind": "category", "labels": ["a", "b", "c"]}):
        for line in hush.feasible(domain, people=3000, epsilons=[0.3, 2], error="5%").lines:
            error = hush.plan(domain, people=3000, epsilon=line.epsilon)
            people = hush.plan(domain, error="5%", epsilon=line.epsilon)
            by_name = {one.mechanism: one.amounts for one in error.mechanisms}
            needed = {one.mechanism: one.amounts for one in people.mechanisms}
            for target in ("reporters", "population"):
                assert line.mechanism == error.auto[target]
                assert line.half_widths[target] == by_name[line.mechanism][target]
                assert line.trusted[target] == error.trusted_collector.amounts[target]
                assert line.people[target] == needed[line.mechanism][target]


def test_no_interval_is_wider_than_the_range() -> None:
    (line,) = feasibility(NumberDomain(-5.0, 5.0), people=1, epsilons=[Fraction(1, 100)]).lines
    assert set(line.half_widths.values()) | set(line.trusted.values()) == {5.0}


@pytest.mark.medium
def test_data_count_by_their_spread_and_are_never_shown() -> None:
    values = [73.125, 73.125, 41.5, 18.75, *[30.0] * 400]
    found = hush.feasible(values, AGES, error=20)
    alone = hush.feasible(AGES, people=len(values), error=20)
    assert found.people == len(values)
    assert found.lines[-1].half_widths["population"] < 0.8 * alone.lines[-1].half_widths["population"]
    for text in (str(found), repr(found), json.dumps(found.to_document()), str(found.columns())):
        assert not any(value in text for value in ("73.125", "41.5", "18.75"))


@pytest.mark.medium
@pytest.mark.parametrize("answer", [0, 1])
def test_people_without_a_value_answer_with_any(answer: int) -> None:
    found = hush.feasible([answer] * 300 + [None] * 100, BIT, missing="replace", epsilons=[4])
    share = (300 * answer + 50) / 400
    sampling = 1.96 * (share * (1 - share) / 400) ** 0.5
    assert sampling < found.lines[0].half_widths["population"] < 1.6 * sampling


@pytest.mark.medium
def test_the_goal_is_reached_from_the_smallest_sufficient_epsilon() -> None:
    found = hush.feasible(BIT, people=20_000, error="2%")
    line = found.reaching("population")
    assert line is not None
    widths = {one.epsilon: one.half_widths["population"] for one in found.lines}
    assert line.epsilon == min(epsilon for epsilon, width in widths.items() if width <= 0.02)
    assert hush.feasible(BIT, people=100, error="2%").reaching("population") is None


@pytest.mark.medium
def test_without_people_only_their_number_is_planned() -> None:
    found = hush.feasible({"kind": "category", "labels": ["a", "b", "c"]}, error=0.02, epsilons=[2, 0.5])
    assert [line.epsilon for line in found.lines] == [Fraction(1, 2), 2]
    assert not any(line.half_widths or line.trusted for line in found.lines)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"data": [1, 2]}, "domain: "),
        ({}, "data: "),
        ({"data": BIT}, "people: "),
        ({"data": BIT, "people": 1e6}, "people: '1000000.0'"),
        ({"data": BIT, "people": 9, "error": 3}, "error: 3"),
        ({"data": BIT, "people": 9, "error": "x"}, "error: 'x'"),
        ({"data": BIT, "people": 9, "epsilons": [0]}, "epsilon: 0"),
        ({"data": BIT, "people": 9, "confidence": 95}, "confidence: 95"),
        ({"data": [1, None], "domain": AGES}, "missing="),
        ({"data": [(1, 2)] * 3, "domain": VectorDomain.of_size(2)}, "domain: "),
    ],
)
def test_a_mistake_names_the_argument(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(hush.HushError) as caught:
        hush.feasible(**arguments)
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_error_is_a_share_of_the_range() -> None:
    for text, share in (("5%", 0.05), ("5.5", 0.05), ("1e-1 %", 0.001)):
        assert parse_error(text, NumberDomain(0.0, 110.0), "error") == pytest.approx(share, rel=1e-15)


@pytest.mark.parametrize("seed", range(4))
def test_values_are_shared_between_the_nodes_next_to_them(seed: int) -> None:
    source = np.random.default_rng(seed)
    places = source.choice([0.0, 0.25, 0.5, 1.0, *source.random(9)], size=int(source.integers(1, 40)))
    shares = source.random(len(places))
    values = Values(places, shares / shares.sum())
    for size in range(2, 9):
        nodes = np.linspace(0, 1, size)
        weights = np.maximum(0, 1 - np.abs(values.places[:, None] - nodes) * (size - 1))  # hat functions
        assert values.at(nodes) == pytest.approx(values.shares @ weights, abs=1e-14)
        assert values.at(nodes).min() >= 0


@pytest.mark.medium
@pytest.mark.parametrize(
    "asked",
    [
        ("feasible", "--epsilon", "1"),
        ("plan", "--epsilon", "1", "--error", "25%"),
        ("simulate", "--engine", "memory"),
        ("simulate", "--engine", "bulk"),
    ],
)
def test_values_beyond_the_bounds_are_the_first_thing_said(asked: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "hours.csv").write_text("h\n" + "".join(f"{one}\n" for one in HOURS * 40), encoding="utf-8")
    command = [*asked, "--csv", "hours.csv", "--lower", "2", "--upper", "10", "--unit", "h"]
    first = run(command, tmp_path).out.strip().split("\n\n")[0]
    assert "30 %" in first
    assert f"{abs(ERROR):.3g} h" in " ".join(first.split())
    found = json.loads(run([*command, "--json"], tmp_path).out)
    clamping = found["clamping"] if asked[0] == "simulate" else [found["data"]["clamping"]]
    assert clamping == [{"share": pytest.approx(SHARE), "error": pytest.approx(ERROR)}]
    if asked[0] == "simulate":
        assert found["truth"]["reporters"] == pytest.approx(np.mean(HOURS))  # the values as they are


def test_bounds_that_hold_every_value_are_not_mentioned() -> None:
    wide = dict(BETWEEN, lower=0, upper=30)
    for found in (hush.feasible(HOURS, wide, epsilons=[1]), hush.plan(wide, HOURS, epsilon=1, people=50)):
        assert "clamping" not in json.dumps(found.to_document())
    assert hush.simulate(data=HOURS, domain=wide, engine="bulk").clampings == ()


@pytest.mark.medium
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


@pytest.mark.medium
def test_the_error_of_the_bounds_is_part_of_the_goal() -> None:
    together = hush.plan(BETWEEN, HOURS, error=4, epsilon=1)
    inside = hush.plan(BETWEEN, list(np.clip(HOURS, 2, 10)), error=4 + ERROR, epsilon=1)
    for one, other in zip(together.mechanisms, inside.mechanisms, strict=True):
        assert one.amounts["reporters"] == other.amounts["reporters"]


@pytest.mark.parametrize("large", [1e307, -1.7e308])
def test_the_error_of_the_bounds_does_not_overflow(large: float) -> None:
    (found,) = clampings(NumberDomain(0.0, 10.0), [large] * 30 + [5.0] * 10)
    assert found.error == pytest.approx(-0.75 * large)
    assert found.mean == pytest.approx(0.75 * large)


@pytest.mark.medium
def test_each_coordinate_with_values_beyond_its_bounds_is_named() -> None:
    rows = [(float(n), 20.0, None if n % 2 else 3.0) for n in range(100)]
    coordinates = [
        {"name": "steps", "lower": 0, "upper": 79, "unit": "k"},
        {"name": "warmth", "lower": 0, "upper": 40, "unit": "C"},
        {"name": "noise", "lower": 4, "upper": 8, "unit": "dB"},
    ]
    domain = {"kind": "vector", "coordinates": coordinates}
    run = hush.simulate(data=rows, domain=domain, missing="replace", engine="bulk")
    steps, noise = run.clampings
    assert [steps.part.name, noise.part.name] == ["steps", "noise"]
    assert [steps.share, steps.error, noise.share, noise.error] == pytest.approx([0.2, -2.1, 1.0, 1.0])
    first = " ".join(str(run).split("\n\n")[0].split())
    assert 0 <= first.index("noise: 100 %") < first.index("steps: 20 %")
    assert "warmth" not in first
    drawn = hush.simulate("offices", clients=3000, engine="bulk", seed=5)
    assert 0 < max(one.share for one in drawn.clampings) < 0.1
