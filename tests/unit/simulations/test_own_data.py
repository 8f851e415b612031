from pathlib import Path

import pytest

from hush_common.errors import OptionError
from hush_simulations.scenarios import csv_file
from hush_simulations.scenarios.csv_file import read_column, read_columns


def write(directory: Path, text: str | bytes) -> Path:
    path = directory / "data.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def complaint(path: Path, column: str | None = "h", *, bits: bool = False) -> str:
    with pytest.raises(OptionError) as caught:
        read_column(path, column, bits=bits)
    text = str(caught.value)
    assert "\n" not in text
    assert caught.value.exit_code == 2
    return text


def test_every_row_is_a_value_in_order(tmp_path: Path) -> None:
    data = read_column(write(tmp_path, "name,h\nann,170\nbob,1.815e2\n"), "h")
    assert data.values == (170.0, 181.5)
    assert data.name == "h"


def test_a_file_of_one_column_needs_no_name(tmp_path: Path) -> None:
    assert read_column(write(tmp_path, "h\n1\n2\n"), None).values == (1.0, 2.0)


@pytest.mark.parametrize("text", ["﻿h,w\n1,2\n", "h;w\n1;2\n", "w , h \r\n2, 1 \r\n", 'h,w\n"1",2\n\n\n'])
def test_what_spreadsheets_write_is_read(tmp_path: Path, text: str) -> None:
    assert read_column(write(tmp_path, text), "h").values == (1.0,)


def test_answers_may_be_written_in_several_ways(tmp_path: Path) -> None:
    assert read_column(write(tmp_path, "q\nyes\nNO\nTrue\nfalse\n1\n0\n"), "q", bits=True).values == (1, 0, 1, 0, 1, 0)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    assert "nothing.csv cannot be read (No such file" in complaint(tmp_path / "nothing.csv")


def test_a_missing_column_is_told_with_one_that_is_like_it(tmp_path: Path) -> None:
    path = write(tmp_path, "name,height\nann,170\n")
    assert "'hight' is not a column" in complaint(path, "hight")
    assert complaint(path, "hight").endswith("did you mean 'height'?")
    assert complaint(path, None).endswith("names 2, write one of them")


def test_a_column_that_is_not_named_is_not_taken_for_a_header_that_is_missing(tmp_path: Path) -> None:
    path = write(tmp_path, "170\n171\n")
    assert "has a value where its first line names the column" in complaint(path, None)
    assert "170" not in complaint(path, None)
    assert read_column(path, "170").values == (171.0,)  # whoever names it means it


@pytest.mark.parametrize("cell", ["", " ", "tall", "1,5", "nan", "inf", "-Infinity", "0x10", "1cm"])
def test_a_cell_that_is_no_number_names_its_row_and_not_its_content(tmp_path: Path, cell: str) -> None:
    text = complaint(write(tmp_path, f'n,h\na,170\nb,"{cell}"\nc,171\n'))
    assert "row 3 of" in text
    assert "correct that row, or remove it" in text
    assert "tall" not in text


def test_a_row_that_is_too_short_names_its_row(tmp_path: Path) -> None:
    assert "row 2 of" in complaint(write(tmp_path, "n,h\na\n"))


def test_a_gap_in_a_file_of_one_column_is_an_empty_cell(tmp_path: Path) -> None:
    assert "row 3 of" in complaint(write(tmp_path, "h\n1\n\n2\n"))


def test_a_number_is_no_answer(tmp_path: Path) -> None:
    assert "row 2 of" in complaint(write(tmp_path, "h\n2\n"), bits=True)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("h\n", "no rows"),
        ("", "is empty"),
        (b"\xff\xfe\x00\x01", "is not UTF-8"),
        (b"h\n" + b"\x80\n", "is not UTF-8"),
        ("h,h\n1,2\n", "appears 2 times"),
        ("h\n" + "1" * 200_000 + "\n", "is not a CSV file"),
    ],
)
def test_a_file_that_is_no_table_is_told(tmp_path: Path, content: str | bytes, words: str) -> None:
    assert words in complaint(write(tmp_path, content))


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    assert "Is a directory" in complaint(tmp_path)


def test_too_many_rows_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_file, "MOST_CLIENTS", 3)
    assert len(read_column(write(tmp_path, "h\n" + "1\n" * 3), "h").values) == 3
    assert "more than 3 rows; take a sample" in complaint(write(tmp_path, "h\n" + "1\n" * 4))


def test_labels_must_be_spelled_exactly_and_a_wrong_one_is_not_repeated(tmp_path: Path) -> None:
    path = write(tmp_path, "way\nbus\non foot\n")
    assert read_column(path, "way", labels=("bus", "on foot")).values == ("bus", "on foot")
    with pytest.raises(OptionError, match=r"row 3 of .*: the cell is not one of the labels") as caught:
        read_column(path, "way", labels=("bus", "walk"))
    assert "on foot" not in str(caught.value)


def test_a_row_of_several_columns_is_a_vector(tmp_path: Path) -> None:
    path = write(tmp_path, "y,name,x\n1,ann,2\n3,bob,4\n")
    assert read_columns(path, ["x", "y"]).values == ((2.0, 1.0), (4.0, 3.0))
    with pytest.raises(OptionError, match="'z' is not a column"):
        read_columns(path, ["x", "z"])
    with pytest.raises(OptionError, match=r"row 2 of .* not a number"):
        read_columns(path, ["x", "name"])
