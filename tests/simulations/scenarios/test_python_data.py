"""Values that a program hands over: read from any container, and never repeated in a message."""

import importlib
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import hush
from hush_common.domain import BitDomain, CategoryDomain, Coordinate, Domain, NumberDomain, VectorDomain
from hush_common.errors import OptionError
from hush_simulations.scenarios import python_data
from hush_simulations.scenarios.population import Observed, Value
from hush_simulations.scenarios.python_data import hints, observed

NUMBER = NumberDomain(0.0, 110.0, "years")
SCALE = NumberDomain(1, 5)
WAYS = CategoryDomain(("bus", "car"))
OTHERS = CategoryDomain(("bus", "rest"), "rest")
VECTOR = VectorDomain((Coordinate(0, 1, name="x"), Coordinate(0, 1, name="y")))
# The product depends on none of them, so they have no types here.
pandas, polars, pyarrow = (importlib.import_module(name) for name in ("pandas", "polars", "pyarrow"))
FRAMES = [pandas.DataFrame, polars.DataFrame, pyarrow.table]


def refusal(data: object, domain: Domain = NUMBER, column: str | None = None, **csv: str) -> str:
    with pytest.raises(OptionError) as caught:
        observed(data, domain, column, csv=csv or None)
    text = str(caught.value)
    assert "\n" not in text
    assert "--" not in text.replace(str(data), "")  # options of the command are not the words of a program
    return text


@pytest.mark.parametrize(
    "data",
    [
        [1, 2.5, 3],
        (1, 2.5, 3),
        [Fraction(1), Decimal("2.5"), np.int8(3)],
        np.array([1, 2.5, 3], dtype=np.float32),
        np.array([1, 2.5, 3], dtype=object),
        pandas.Series([1, 2.5, 3]),
        pandas.Series([1, 2.5, 3], dtype="Float64"),
        polars.Series([1.0, 2.5, 3.0]),
        pyarrow.chunked_array([[1.0, 2.5, 3.0]]),
    ],
)
def test_numbers_are_read_in_their_order_from_any_container(data: object) -> None:
    values = observed(data, NUMBER).values
    assert values == (1.0, 2.5, 3.0)
    assert {type(value) for value in values} == {float}


@pytest.mark.parametrize("frame", FRAMES)
def test_a_column_of_a_data_frame_is_chosen_by_its_name(frame: Callable[[dict[str, object]], object]) -> None:
    table = frame({"age": [30, 41], "way": ["bus", "car"]})
    ages, ways = observed(table, NUMBER, "age"), observed(table, WAYS, "way")
    assert (ages.values, ages.name) == ((30.0, 41.0), "age")
    assert (ways.values, ways.name) == (("bus", "car"), "way")
    assert observed(frame({"age": [30]}), NUMBER).values == (30.0,)
    assert refusal(table).startswith("column: ")
    assert "'age'" in refusal(table, column="ages")
    assert "'age'" not in refusal(table, column="x")


def test_a_cell_in_the_header_is_not_shown() -> None:
    assert "1987" not in refusal(pandas.DataFrame({"1987.5": [30.0], "bus": ["car"]}))
    assert "1987" not in refusal(pandas.DataFrame({"1987.5": [30.0]}))
    assert "bus" not in refusal(pandas.DataFrame({"bus": ["car"]}), WAYS)
    assert observed(pandas.DataFrame({0: [30.0]}), NUMBER).values == (30.0,)
    assert observed(pandas.DataFrame({"2024": [30.0]}), NUMBER, "2024").values == (30.0,)
    assert observed(pandas.Series([30.0], name="1987.5"), NUMBER).name == ""


@pytest.mark.parametrize("frame", FRAMES)
def test_columns_named_as_the_coordinates_are_vectors(frame: Callable[[dict[str, object]], object]) -> None:
    assert observed(frame({"y": [1, 0], "n": ["a", "b"], "x": [0.5, 1]}), VECTOR).values == ((0.5, 1.0), (1.0, 0.0))
    assert "'y'" in refusal(frame({"x": [1]}), VECTOR)
    assert refusal(frame({"x": [1], "y": [1]}), VECTOR, "x").startswith("column: ")


@pytest.mark.parametrize("rows", [[(0, 1)], [[0, 1]], [{"y": 1, "x": 0}], np.array([[0, 1]]), [np.array([0, 1])]])
def test_rows_are_vectors(rows: object) -> None:
    assert observed(rows, VECTOR).values == ((0.0, 1.0),)


@pytest.mark.parametrize("data", [[True, False, 1, 0.0], np.array([True, False, True, False])])
def test_answers_are_truth_values_or_0_and_1(data: object) -> None:
    assert observed(data, BitDomain()).values == (1, 0, 1, 0)


def test_an_unknown_label_is_other_where_there_is_one() -> None:
    assert observed(["bus", "tram"], OTHERS).values == ("bus", "rest")
    assert observed(pandas.Series(["car", "bus"], dtype="category"), WAYS).values == ("car", "bus")


@pytest.mark.parametrize(
    ("data", "domain", "missing"),
    [
        ([171.25, None, float("nan"), 3], NUMBER, 2),
        (np.array([171.25, np.nan, np.nan, 3]), NUMBER, 2),
        (np.ma.masked_invalid([171.25, np.nan, np.nan, 3]), NUMBER, 2),
        (pandas.Series([171.25, None, np.nan, 3]), NUMBER, 2),
        (pandas.Series([171, None, pandas.NA, 3], dtype="Int64"), NUMBER, 2),
        (polars.Series([171.25, None, float("nan"), 3.0]), NUMBER, 2),
        (pyarrow.chunked_array([[171.25, None, None, 3]]), NUMBER, 2),
        (pandas.DataFrame({"h": [171.25, None, None, 3]}), NUMBER, 2),
        (pandas.Series(["bus", None]), WAYS, 1),
        (polars.Series(["bus", None]), WAYS, 1),
        (["bus", float("nan")], WAYS, 1),
        ([True, None], BitDomain(), 1),
        ([[0, 1], [0, None]], VECTOR, 1),
        ([[0, 1], None], VECTOR, 1),
        ([{"x": 1, "y": 1}, {"x": 1}], VECTOR, 1),
        ([1.0, np.datetime64("NaT", "ns")], NUMBER, 1),
        ([1.0, pandas.NaT], NUMBER, 1),
    ],
)
def test_missing_values_are_counted_and_need_a_treatment(data: object, domain: Domain, missing: int) -> None:
    text = refusal(data, domain)
    assert f"{missing} of {2 * missing} rows" in text
    assert "row 1" in text
    assert 'missing="drop"' in text
    assert 'missing="replace"' in text
    assert "171" not in text
    assert observed(data, domain, None, "drop").missing == missing


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("secret", "text"),
        (b"secret", "bytes"),
        (True, "truth"),
        (date(1987, 6, 5), "date"),
        (datetime(1987, 6, 5, tzinfo=UTC), "date"),
        (np.datetime64("1987-06-05", "ns"), "date"),
        (timedelta(days=1987), "time"),
        (1987j, "complex"),
        ([1987], "list"),
        (float("inf"), "infinite"),
        (10**400, "float"),
    ],
)
def test_a_value_of_another_kind_is_told_by_its_row_and_kind(value: object, kind: str) -> None:
    text = refusal([1.0, 2.0, value])
    assert text.startswith("data: row 2")
    assert kind in text
    assert not any(content in text for content in ("secret", "1987", "True", "1" + "0" * 9))


@pytest.mark.parametrize(
    "data",
    [
        np.array(["1987-06-05"], dtype="datetime64[ns]"),
        np.array([1987], dtype="timedelta64[ns]"),
        pandas.Series(pandas.to_datetime(["1987-06-05"])),
        polars.Series([date(1987, 6, 5)]),
        pyarrow.table({"day": [date(1987, 6, 5)]}),
    ],
)
def test_dates_in_a_column_of_numbers_are_refused(data: object) -> None:
    assert refusal(data).startswith("data: row 0")


@pytest.mark.parametrize(
    ("data", "domain", "named"),
    [
        ([0, 7], BitDomain(), "row 1"),
        ([0, "yes"], BitDomain(), "row 1"),
        (["bus", "tram"], WAYS, "row 1"),
        (["bus", 4], WAYS, "row 1"),
        ([[0, 1], [0, 1, 1]], VECTOR, "row 1"),
        ([[0, 1], 3], VECTOR, "row 1"),
        (np.zeros((3, 2)), NUMBER, "(3, 2)"),
        (np.zeros(3), VECTOR, "(3,)"),
        ([], NUMBER, "data"),
        (pandas.DataFrame(), NUMBER, "columns"),
        (pandas.DataFrame([[1, 2]], columns=["a", "a"]), NUMBER, "columns"),
        ({"age": [1]}, NUMBER, "mapping"),
        ({1, 2}, NUMBER, "set"),
        ("172", NUMBER, ".csv"),
        ("people.ods", NUMBER, ".parquet"),
        (polars.LazyFrame({"age": [1]}), NUMBER, "collected"),
    ],
)
def test_unusable_data_is_refused_in_one_line(data: object, domain: Domain, named: str) -> None:
    text = refusal(data, domain)
    assert named in text
    assert "tram" not in text


@pytest.mark.parametrize("data", [[1, 2], pandas.Series([1, 2])])
def test_only_a_data_frame_has_a_column_to_choose(data: object) -> None:
    assert refusal(data, column="age").startswith("column: ")


def test_more_values_than_a_simulation_has_devices_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_data, "MOST_DEVICES", 3)
    assert len(observed([1, 2, 3], NUMBER).values) == 3
    assert "4 values" in refusal([1, 2, 3, 4])


def test_observed_values_are_not_in_a_repr() -> None:
    assert "1987" not in repr(observed([1987.5], NUMBER))


@pytest.mark.parametrize("kind", [list, pandas.Series, polars.Series])
def test_missing_values_are_dropped_or_left_to_the_devices(kind: Callable[[list[float | None]], object]) -> None:
    data = kind([171.25, None, 3.0])
    dropped, replaced = observed(data, NUMBER, None, "drop"), observed(data, NUMBER, None, "replace")
    assert (dropped.values, dropped.rows, dropped.missing) == ((171.25, 3.0), 3, 1)
    assert (replaced.values, replaced.rows, replaced.missing) == ((171.25, None, 3.0), 3, 1)


def test_without_missing_values_nothing_is_treated() -> None:
    assert observed([1, 2], NUMBER, None, "drop").to_document() == {"rows": 2, "missing": 0, "resampled": False}
    with pytest.raises(OptionError, match="data"):
        observed([None, None], NUMBER, None, "replace")


def test_a_coordinate_may_be_missing_alone() -> None:
    data = [[0, 1], [0, None], None]
    assert observed(data, VECTOR, None, "replace").values == ((0.0, 1.0), (0.0, None), None)
    dropped = observed(data, VECTOR, None, "drop")
    assert (dropped.values, dropped.missing) == (((0.0, 1.0),), 2)


def test_a_parquet_file_is_read_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "people.parquet"
    pandas.DataFrame({"age": [30, 41], "way": ["bus", "car"]}).to_parquet(path)
    assert observed(path, NUMBER, "age").values == (30.0, 41.0)
    assert observed(str(path), WAYS, "way").values == ("bus", "car")
    assert "none.parquet" in refusal(tmp_path / "none.parquet")
    (tmp_path / "text.parquet").write_text("age\n170\n", encoding="utf-8")
    assert "Parquet" in refusal(tmp_path / "text.parquet")


def test_without_pyarrow_a_parquet_file_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    (tmp_path / "people.parquet").write_bytes(b"PAR1")
    assert "pyarrow" in refusal(tmp_path / "people.parquet")


@pytest.fixture
def people(tmp_path: Path) -> Path:
    path = tmp_path / "people.csv"
    path.write_text("age;way;smokes;x;y\n34,5;bus;no;0;1\n51;car;yes;1;0\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("domain", "column", "csv", "values"),
    [
        (NUMBER, "age", {"decimal": ","}, (34.5, 51.0)),
        (WAYS, "way", None, ("bus", "car")),
        (OTHERS, "way", None, ("bus", "rest")),
        (BitDomain(), "smokes", None, (0, 1)),
        (BitDomain(), "way", {"yes": "bus"}, (1, 0)),
        (VECTOR, None, None, ((0.0, 1.0), (1.0, 0.0))),
    ],
)
def test_a_csv_file_is_read_by_its_path_for_every_kind_of_value(
    people: Path, domain: Domain, column: str | None, csv: dict[str, str] | None, values: tuple[object, ...]
) -> None:
    for path in (people, str(people)):
        data = observed(path, domain, column, csv=csv)
        assert data.values == values
        assert data.name == (column or "x, y")


def test_what_a_csv_file_needs_is_said_as_arguments(people: Path, tmp_path: Path) -> None:
    assert refusal(people).startswith("column: ")
    decimal = refusal(people, column="age")
    assert 'csv={"decimal": ","}' in decimal
    assert "34" not in decimal.replace(str(people), "")
    (tmp_path / "bare.csv").write_text("170\n171\n", encoding="utf-8")
    assert 'csv={"header": "yes"}' in refusal(tmp_path / "bare.csv")
    (tmp_path / "gap.csv").write_text("h,w\n,1\n2,1\n", encoding="utf-8")
    assert 'missing="drop"' in refusal(tmp_path / "gap.csv", column="h")


def test_a_wrong_rule_of_a_csv_file_is_named(people: Path) -> None:
    assert "'sep'" in refusal(people, column="age", sep=";")
    assert refusal(people, column="age", decimal=";").startswith('csv["decimal"]: ')
    assert refusal(people, column="age", yes="bus").startswith('csv["yes"]: ')
    assert refusal(people, VECTOR, "x").startswith("column: ")
    assert refusal([1.0], decimal=",").startswith("csv: ")


def test_a_label_in_other_capitals_is_not_other(tmp_path: Path) -> None:
    path = tmp_path / "ways.csv"
    path.write_text("way,n\nBus,1\ntram,1\n", encoding="utf-8")
    assert "line 2" in refusal(path, OTHERS, "way")


@pytest.mark.medium
def test_a_simulation_reports_the_rows_of_its_data(tmp_path: Path) -> None:
    path = tmp_path / "ages.csv"
    path.write_text("age,n\n34,1\n,2\n51,3\n", encoding="utf-8")
    run = hush.simulate(data=path, column="age", domain=NUMBER, missing="drop", clients=40, engine="bulk", seed=1)
    assert run.to_document()["data"] == {"rows": 3, "missing": 1, "treatment": "drop", "resampled": True}
    assert run.result.n == 40
    assert hush.feasible(path, NUMBER, column="age", missing="drop").people == 2
    with pytest.raises(OptionError, match="csv"):
        hush.simulate(csv={"decimal": ","})


def ages(*codes: float, times: int = 40) -> list[float]:
    """200 ages from 0 to 90, and each code so many times."""
    drawn = np.random.default_rng(1).integers(0, 91, 200).astype(float).tolist()
    return [0.0, 1.0, 90.0, *drawn, *(code for code in codes for _ in range(times))]


def hinted(values: list[float], domain: Domain = NUMBER) -> list[str]:
    """What a hint says before its first comma: the code, and how many rows have it."""
    return [line.split(",")[0] for line in hints(Observed(tuple(values), "age"), domain)]


@pytest.mark.parametrize("code", [999, 9999, -1, -9, -99, -999.9, 998, 888, -8, 999.9])
def test_a_usual_code_for_missing_beyond_the_bounds_is_hinted(code: float) -> None:
    assert hinted(ages(code)) == [f"age: 40 of 243 rows have {code:g}"]


def test_codes_for_missing_values_are_hinted_by_frequency() -> None:
    both = [*ages(998, times=20), *[999.0] * 30]
    assert hinted(both) == ["age: 30 of 253 rows have 999", "age: 20 of 253 rows have 998"]
    scale = [float(x) for x in range(1, 6)] * 30
    assert hinted([*scale, *[9.0] * 6], SCALE) == ["age: 6 of 156 rows have 9"]
    heights = [float(x) for x in range(150, 200)]
    assert hinted([*heights, *[0.0] * 5], NumberDomain(120, 220)) == ["age: 5 of 55 rows have 0"]


def test_a_code_within_the_bounds_is_hinted_if_far_from_all_others() -> None:
    young = [float(age) for age in range(18, 66)]
    assert hinted([*young, *[99.0] * 10]) == ["age: 10 of 58 rows have 99"]
    assert hinted([float(age) for age in range(18, 100)] * 4) == []  # somebody is 99


def test_another_value_that_many_share_is_not_shown() -> None:
    (line,) = hints(Observed(tuple(ages(4321)), "age"), NUMBER)
    assert "40 of 243 rows" in line
    assert "4321" not in line


@pytest.mark.parametrize(
    ("values", "domain"),
    [
        (ages(), NUMBER),
        (ages(999, times=2), NUMBER),  # too few
        (ages(4321, times=2), NUMBER),
        ([float(x) for x in range(-50, 51)] * 5, NumberDomain(-50, 50)),
        ([float(x) for x in range(-50, 51)] * 5, NumberDomain(-20, 20)),  # bounds that are too narrow
        ([float(x) for x in range(1, 11)] * 30, SCALE),
        ([float(x) for x in range(1, 10)] * 30, NumberDomain(1, 9)),
        ([999.0] * 30, NUMBER),  # nothing to compare with
        ([120.0, 150.0, 180.0] * 9, NumberDomain(120, 220)),
        ([], NUMBER),
    ],
)
def test_ordinary_values_are_not_taken_for_codes(values: list[float], domain: Domain) -> None:
    assert hinted(values, domain) == []


def test_each_coordinate_is_searched_for_codes() -> None:
    domain = VectorDomain((Coordinate(0, 50, "cm", name="x"), Coordinate(0, 50, "cm", name="y")))
    rows: list[Value] = [(float(n), None if n % 2 else -99.0 if n % 4 else 3.0) for n in range(40)]
    (line,) = hints(Observed((*rows, None), ""), domain)
    assert line.startswith("y: 10 of 41 rows have -99")
    assert list(hints(Observed((1, 0, 1), ""), BitDomain())) == []


def test_a_program_is_warned_of_codes_which_stay_values() -> None:
    hint = r'40 of 243 rows have 999.*missing="drop"'
    with pytest.warns(UserWarning, match=hint):
        run = hush.simulate(data=ages(999), domain=NUMBER, engine="bulk")
    assert run.result.n == 243
    with pytest.warns(UserWarning, match=hint):
        hush.feasible(ages(999), NUMBER, epsilons=[1])
    with pytest.warns(UserWarning, match=hint):
        hush.plan(NUMBER, ages(999), epsilon=1, people=50)
