"""Codes for missing values in somebody's own data are hinted at, and never changed or guessed."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import without_progress

import hush
from hush_common.domain import BitDomain, Coordinate, Domain, NumberDomain, VectorDomain
from hush_simulations.scenarios.population import Observed, Value
from hush_simulations.scenarios.python_data import hints

AGES = NumberDomain(0, 110, "years")
SCALE = NumberDomain(1, 5)


def people(*codes: float, times: int = 40, seed: int = 1) -> list[float]:
    """200 ages from 0 to 90, and each code so many times."""
    ages = np.random.default_rng(seed).integers(0, 91, 200).astype(float).tolist()
    return [0.0, 1.0, 90.0, *ages, *(code for code in codes for _ in range(times))]


def found(values: list[float], domain: Domain = AGES) -> list[str]:
    return list(hints(Observed(tuple(values), "age"), domain))


@pytest.mark.parametrize("code", [999, 9999, -1, -9, -99, -999.9, 998, 888, -8, 999.9])
def test_a_usual_code_beyond_the_bounds_is_named(code: float) -> None:
    assert found(people(code)) == [f"age: 40 of 243 rows have {code:g}, beyond the bounds"]


def test_two_codes_are_two_sentences_the_most_frequent_first() -> None:
    both = [*people(998, times=20), *[999.0] * 30]
    assert [line.split(", ")[0] for line in found(both)] == [
        "age: 30 of 253 rows have 999",
        "age: 20 of 253 rows have 998",
    ]


def test_a_code_that_the_bounds_admit_is_named_where_it_is_far_from_all_others() -> None:
    young = [float(age) for age in range(18, 66)]
    assert found([*young, *[99.0] * 10]) == ["age: 10 of 58 rows have 99, far from all others"]
    assert found([*young, *[99.0] * 10], NumberDomain(0, 98)) == ["age: 10 of 58 rows have 99, beyond the bounds"]
    assert found([float(age) for age in range(18, 100)] * 4) == []  # somebody is 99


def test_another_value_that_many_share_is_not_shown() -> None:
    (line,) = found(people(4321))
    assert line == "age: 40 of 243 rows have one and the same number, beyond the bounds"


@pytest.mark.parametrize(
    ("values", "domain"),
    [
        (people(), AGES),
        (people(999, times=2), AGES),  # too few
        (people(4321, times=2), AGES),
        ([float(x) for x in range(-50, 51)] * 5, NumberDomain(-50, 50)),
        ([float(x) for x in range(-50, 51)] * 5, NumberDomain(-20, 20)),  # bounds that are too narrow
        ([float(x) for x in range(1, 11)] * 30, SCALE),
        ([float(x) for x in range(1, 10)] * 30, NumberDomain(1, 9)),
        ([999.0] * 30, AGES),  # nothing to compare with
        ([120.0, 150.0, 180.0] * 9, NumberDomain(120, 220)),
        ([], AGES),
    ],
)
def test_values_are_not_taken_for_codes(values: list[float], domain: Domain) -> None:
    assert found(values, domain) == []


def test_a_nine_is_a_code_on_a_scale_from_one_to_five() -> None:
    assert found([float(x) for x in range(1, 6)] * 30 + [9.0] * 6, SCALE) == [
        "age: 6 of 156 rows have 9, beyond the bounds"
    ]


def test_zero_heights_are_hinted_at() -> None:
    heights = [float(x) for x in range(150, 200)]
    assert found([*heights, *[0.0] * 5], NumberDomain(120, 220)) == ["age: 5 of 55 rows have 0, beyond the bounds"]


def test_each_coordinate_is_looked_at_and_other_kinds_are_not() -> None:
    domain = VectorDomain((Coordinate(0, 50, "cm", name="x"), Coordinate(0, 50, "cm", name="y")))
    rows: list[Value] = [(float(n), None if n % 2 else -99.0 if n % 4 else 3.0) for n in range(40)]
    assert list(hints(Observed((*rows, None), ""), domain)) == ["y: 10 of 41 rows have -99, beyond the bounds"]
    assert list(hints(Observed((1, 0, 1), ""), BitDomain())) == []


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "people.csv"
    path.write_text("age\n" + "".join(f"{age:g}\n" for age in people(999, -99)), encoding="utf-8")
    return path


@pytest.mark.large
@pytest.mark.parametrize("command", [("simulate", "--engine", "bulk"), ("plan", "--epsilon", "1", "--error", "5")])
def test_the_commands_hint_on_standard_error_and_change_nothing(file: Path, command: tuple[str, ...]) -> None:
    asked = [sys.executable, "-m", "hush", *command, "--csv", str(file), "--lower", "0", "--upper", "110", "--json"]
    done = subprocess.run([*asked, "--header", "yes"], capture_output=True, text=True, check=False, timeout=240)
    remedy = (
        "if that is a code for a missing value, name it with --na (in a Parquet file: empty those cells) and write "
        "--missing drop"
    )
    warning = "WARNING: " * (command[0] == "simulate")
    assert done.returncode == 0
    assert without_progress(done.stderr).splitlines() == [
        f"hush: {warning}age: 40 of 283 rows have {code}, beyond the bounds; {remedy}" for code in (-99, 999)
    ]
    assert '"rows": 283' in done.stdout


def test_a_program_is_warned() -> None:
    words = r'^40 of 243 rows have 999, beyond the bounds; [^-]* None [^-]*missing="drop"$'
    with pytest.warns(UserWarning, match=words):
        run = hush.simulate(data=people(999), domain=AGES, engine="bulk")
    assert run.result.n == 243
    with pytest.warns(UserWarning, match=words):
        hush.feasible(people(999), AGES, epsilons=[1])
    with pytest.warns(UserWarning, match=words):
        hush.plan(AGES, people(999), epsilon=1, people=50)
