"""Values that a program hands over: read from whatever holds them, and never repeated in a message."""

import importlib
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hush_common.domain import BitDomain, CategoryDomain, Coordinate, Domain, NumberDomain, VectorDomain
from hush_common.errors import OptionError
from hush_simulations.scenarios import python_data
from hush_simulations.scenarios.python_data import observed

NUMBER = NumberDomain(0.0, 110.0)
WAYS = CategoryDomain(("bus", "car"))
VECTOR = VectorDomain((Coordinate(0, 1, name="x"), Coordinate(0, 1, name="y")))
# Nobody types them here: the product does not depend on one of them.
pandas, polars, pyarrow = (importlib.import_module(name) for name in ("pandas", "polars", "pyarrow"))
FRAMES = [pandas.DataFrame, polars.DataFrame, pyarrow.table]


def complaint(data: object, domain: Domain = NUMBER, column: str | None = None) -> str:
    with pytest.raises(OptionError) as caught:
        observed(data, domain, column)
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 250
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
def test_numbers_are_read_in_their_order_from_whatever_holds_them(data: object) -> None:
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
    assert complaint(table) == "column: is missing; the header of data names 2, write one of them"
    assert complaint(table, column="ages") == "column: 'ages' is not a column of data; did you mean 'age'?"
    assert complaint(table, column="x") == "column: 'x' is not a column of data; write one of the names in its header"


def test_where_the_header_is_lost_no_cell_is_taken_for_a_name() -> None:
    assert "1987" not in complaint(pandas.DataFrame({"1987.5": [30.0], "bus": ["car"]}))
    assert complaint(pandas.DataFrame({"1987.5": [30.0]})).startswith("data: has a value where its header names the")
    assert complaint(pandas.DataFrame({"bus": ["car"]}), WAYS).startswith("data: has a value where its header names")
    assert observed(pandas.DataFrame({0: [30.0]}), NUMBER).values == (30.0,)
    assert observed(pandas.DataFrame({"2024": [30.0]}), NUMBER, "2024").values == (30.0,)
    assert observed(pandas.Series([30.0], name="1987.5"), NUMBER).name == ""


@pytest.mark.parametrize("frame", FRAMES)
def test_columns_named_as_the_coordinates_are_the_vectors(frame: Callable[[dict[str, object]], object]) -> None:
    assert observed(frame({"y": [1, 0], "n": ["a", "b"], "x": [0.5, 1]}), VECTOR).values == ((0.5, 1.0), (1.0, 0.0))
    assert complaint(frame({"x": [1]}), VECTOR).startswith("domain.coordinates: 'y' is not a column")
    assert "leave it out" in complaint(frame({"x": [1], "y": [1]}), VECTOR, "x")


@pytest.mark.parametrize("rows", [[(0, 1)], [[0, 1]], [{"y": 1, "x": 0}], np.array([[0, 1]]), [np.array([0, 1])]])
def test_rows_are_vectors(rows: object) -> None:
    assert observed(rows, VECTOR).values == ((0.0, 1.0),)


@pytest.mark.parametrize("data", [[True, False, 1, 0.0], np.array([True, False, True, False])])
def test_answers_are_truth_values_or_0_and_1(data: object) -> None:
    assert observed(data, BitDomain()).values == (1, 0, 1, 0)


def test_an_unknown_label_is_other_where_there_is_one() -> None:
    assert observed(["bus", "tram"], CategoryDomain(("bus", "rest"), "rest")).values == ("bus", "rest")
    assert observed(pandas.Series(["car", "bus"], dtype="category"), WAYS).values == ("car", "bus")


@pytest.mark.parametrize(
    "data",
    [
        [171.25, None, float("nan"), 3],
        np.array([171.25, np.nan, np.nan, 3]),
        np.ma.masked_invalid([171.25, np.nan, np.nan, 3]),
        pandas.Series([171.25, None, np.nan, 3]),
        pandas.Series([171, None, pandas.NA, 3], dtype="Int64"),
        polars.Series([171.25, None, float("nan"), 3.0]),
        pyarrow.chunked_array([[171.25, None, None, 3]]),
        pandas.DataFrame({"h": [171.25, None, None, 3]}),
    ],
)
def test_missing_values_are_counted_with_a_remedy_and_nothing_else(data: object) -> None:
    assert complaint(data) == (
        "data: 2 of 4 rows have no value (None or NaN), the first is row 1 (counted from 0); "
        'pass missing="drop" or missing="replace"'
    )


@pytest.mark.parametrize(
    ("data", "domain"),
    [
        (pandas.Series(["bus", None]), WAYS),
        (polars.Series(["bus", None]), WAYS),
        (["bus", float("nan")], WAYS),
        ([True, None], BitDomain()),
        ([[0, 1], [0, None]], VECTOR),
        ([[0, 1], None], VECTOR),
        ([{"x": 1, "y": 1}, {"x": 1}], VECTOR),
        ([1.0, np.datetime64("NaT", "ns")], NUMBER),
        ([1.0, pandas.NaT], NUMBER),
    ],
)
def test_a_missing_value_of_any_kind_is_one(data: object, domain: Domain) -> None:
    assert "1 of 2 rows have no value (None or NaN), the first is row 1" in complaint(data, domain)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("secret", "text"),
        (b"secret", "of type bytes"),
        (True, "a truth value"),
        (date(1987, 6, 5), "a date or a time"),
        (datetime(1987, 6, 5, tzinfo=UTC), "a date or a time"),
        (np.datetime64("1987-06-05", "ns"), "a date or a time"),
        (timedelta(days=1987), "a date or a time"),
        (1987j, "of type complex"),
        ([1987], "of type list"),
        (float("inf"), "infinite"),
        (10**400, "a number that no float can hold"),
    ],
)
def test_a_value_of_another_kind_is_told_by_its_row_and_kind(value: object, kind: str) -> None:
    text = complaint([1.0, 2.0, value])
    assert text.startswith(f"data: row 2 (counted from 0) is {kind}")
    assert ";" in text
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
def test_dates_in_a_column_of_numbers_are_no_numbers(data: object) -> None:
    assert complaint(data).startswith("data: row 0 (counted from 0) is a date or a time, and a number is asked for")


@pytest.mark.parametrize(
    ("data", "domain", "words"),
    [
        ([0, 7], BitDomain(), "row 1 (counted from 0) is a number other than 0 and 1"),
        ([0, "yes"], BitDomain(), "row 1 (counted from 0) is text, and yes or no"),
        (["bus", "tram"], WAYS, "row 1 (counted from 0) is not one of the labels"),
        (["bus", 4], WAYS, "row 1 (counted from 0) is a number, and a label is asked for"),
        ([[0, 1], [0, 1, 1]], VECTOR, "row 1 (counted from 0) is of 3 numbers, and 2 are asked for"),
        ([[0, 1], 3], VECTOR, "row 1 (counted from 0) is a number, and 2 numbers are asked for"),
        (np.zeros((3, 2)), NUMBER, "is an array of shape (3, 2); pass one with one dimension"),
        (np.zeros(3), VECTOR, "is an array of shape (3,); pass one with a row for each client"),
        ([], NUMBER, "has no values"),
        (pandas.DataFrame(), NUMBER, "without columns"),
        (pandas.DataFrame([[1, 2]], columns=["a", "a"]), NUMBER, "two columns of one name"),
        ({"age": [1]}, NUMBER, "is a mapping; pass a list"),
        ({1, 2}, NUMBER, "is of type set; pass a list"),
        ("172", NUMBER, "names no .csv or .parquet file; pass the path"),
        (polars.LazyFrame({"age": [1]}), NUMBER, "a lazy one collected"),
    ],
)
def test_what_cannot_be_used_is_one_line_with_a_remedy(data: object, domain: Domain, words: str) -> None:
    text = complaint(data, domain)
    assert words in text
    assert "tram" not in text


@pytest.mark.parametrize("data", [[1, 2], pandas.Series([1, 2])])
def test_a_column_is_chosen_of_a_data_frame_alone(data: object) -> None:
    assert complaint(data, column="age").startswith("column: chooses a column of a data frame, and data is")


def test_more_values_than_a_simulation_has_devices_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_data, "MOST_DEVICES", 3)
    assert len(observed([1, 2, 3], NUMBER).values) == 3
    assert "4 values are more than 3; take a sample" in complaint([1, 2, 3, 4])


def test_what_was_observed_shows_no_value() -> None:
    data: Any = observed([1987.5], NUMBER)
    assert "1987" not in repr(data)


def test_missing_values_are_dropped_or_left_to_the_devices_and_counted() -> None:
    for data in ([171.25, None, 3], pandas.Series([171.25, None, 3]), polars.Series([171.25, None, 3.0])):
        dropped, replaced = observed(data, NUMBER, None, "drop"), observed(data, NUMBER, None, "replace")
        assert (dropped.values, dropped.rows, dropped.missing) == ((171.25, 3.0), 3, 1)
        assert (replaced.values, replaced.rows, replaced.missing) == ((171.25, None, 3.0), 3, 1)
    assert observed([1, 2], NUMBER, None, "drop").to_document() == {"rows": 2, "missing": 0, "resampled": False}
    with pytest.raises(OptionError, match="at least one client needs one"):
        observed([None, None], NUMBER, None, "replace")


def test_a_coordinate_is_missing_alone() -> None:
    data = [[0, 1], [0, None], None]
    assert observed(data, VECTOR, None, "replace").values == ((0.0, 1.0), (0.0, None), None)
    dropped = observed(data, VECTOR, None, "drop")
    assert (dropped.values, dropped.missing) == (((0.0, 1.0),), 2)


def test_a_parquet_file_is_read_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "people.parquet"
    pandas.DataFrame({"age": [30, 41], "way": ["bus", "car"]}).to_parquet(path)
    assert observed(path, NUMBER, "age").values == (30.0, 41.0)
    assert observed(str(path), WAYS, "way").values == ("bus", "car")
    assert "cannot be read (No such file" in complaint(tmp_path / "none.parquet")
    (tmp_path / "text.parquet").write_text("age\n170\n", encoding="utf-8")
    assert "is not a Parquet file; pass the path" in complaint(tmp_path / "text.parquet")
    assert "names no .csv or .parquet file" in complaint(str(tmp_path / "people.ods"))


def test_without_pyarrow_a_parquet_file_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    (tmp_path / "people.parquet").write_bytes(b"PAR1")
    assert "pip install pyarrow" in complaint(tmp_path / "people.parquet")
