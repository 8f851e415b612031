from pathlib import Path

import pytest

from hush_common.errors import OptionError
from hush_simulations.scenarios import csv_file
from hush_simulations.scenarios.csv_file import CsvRules, kind_of_column, read_answers, read_column, read_columns


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
    assert "could be the name of its column, or a client; write --header" in complaint(path, None)
    assert "170" not in complaint(path, None).replace(str(path), "")
    assert read_column(path, "170").values == (171.0,)  # whoever names it means it


@pytest.mark.parametrize("cell", ["", " ", "tall", "1,5", "nan", "inf", "-Infinity", "0x10", "1cm"])
def test_a_cell_that_is_no_number_names_its_row_and_not_its_content(tmp_path: Path, cell: str) -> None:
    text = complaint(write(tmp_path, f'n,h\na,170\nb,"{cell}"\nc,171\n'))
    assert "1 of 3 cells cannot be used" in text
    assert "(line 3); " in text
    assert not cell.strip() or repr(cell) not in text


def test_a_row_that_is_too_short_names_its_row(tmp_path: Path) -> None:
    assert "in a row that ends before it (line 2)" in complaint(write(tmp_path, "n,h\na\n"))


def test_a_gap_in_a_file_of_one_column_is_an_empty_cell(tmp_path: Path) -> None:
    assert "1 empty (line 3)" in complaint(write(tmp_path, "h\n1\n\n2\n"))


def test_a_number_is_no_answer(tmp_path: Path) -> None:
    assert "1 with neither yes nor no (line 2)" in complaint(write(tmp_path, "h\n2\n"), bits=True)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("h\n", "no rows"),
        ("", "is empty"),
        (b"\xff\xfe\x00\x01\x02", "is not UTF-8"),
        (b"h\n" + b"\x80\n", "is not UTF-8"),
        ("h\n1\n".encode("utf-16-le"), "null characters; if it is UTF-16"),
        ('h,w\n"1"2,3\n', "is not a CSV file"),
        ("h,w\n1,2,3\n", "line 2 of "),
        ("h,h\n1,2\n", "appears 2 times"),
        ("h\n" + "1" * 200_000 + "\n", "is not a CSV file"),
    ],
)
def test_a_file_that_is_no_table_is_told(tmp_path: Path, content: str | bytes, words: str) -> None:
    assert words in complaint(write(tmp_path, content))


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    assert "Is a directory" in complaint(tmp_path)


def test_too_many_rows_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_file, "MOST_DEVICES", 3)
    assert len(read_column(write(tmp_path, "h\n" + "1\n" * 3), "h").values) == 3
    assert "more than 3 rows; take a sample" in complaint(write(tmp_path, "h\n" + "1\n" * 4))


def test_labels_must_be_spelled_exactly_and_a_wrong_one_is_not_repeated(tmp_path: Path) -> None:
    path = write(tmp_path, "way\nbus\non foot\n")
    assert read_column(path, "way", labels=("bus", "on foot")).values == ("bus", "on foot")
    with pytest.raises(OptionError, match=r"1 with none of the labels \(line 3\)") as caught:
        read_column(path, "way", labels=("bus", "walk"))
    assert "on foot" not in str(caught.value)


def test_a_row_of_several_columns_is_a_vector(tmp_path: Path) -> None:
    path = write(tmp_path, "y,name,x\n1,ann,2\n3,bob,4\n")
    assert read_columns(path, ["x", "y"]).values == ((2.0, 1.0), (4.0, 3.0))
    with pytest.raises(OptionError, match="'z' is not a column"):
        read_columns(path, ["x", "z"])
    with pytest.raises(OptionError, match=r"2 of 4 cells .* 2 with text \(line 2, line 3\)"):
        read_columns(path, ["x", "name"])


def test_missing_cells_are_counted_and_dropped_or_left_to_the_devices(tmp_path: Path) -> None:
    path = write(tmp_path, "h,n\n1,a\n,b\nNA,c\nn/a,d\nNaN,e\nnull,f\n-,g\n2,h\n")
    text = complaint(path)
    assert "6 of 8 cells cannot be used: 1 empty (line 3), 5 marked as missing (line 4, line 5, line 6, 2 more)" in text
    assert "--missing drop" in text
    assert "--missing replace" in text
    dropped = read_column(path, "h", rules=CsvRules(missing="drop"))
    assert (dropped.values, dropped.rows) == ((1.0, 2.0), 8)
    assert dropped.to_document() == {"rows": 8, "missing": 6, "treatment": "drop", "resampled": False}
    replaced = read_column(path, "h", rules=CsvRules(missing="replace"))
    assert (replaced.values, replaced.rows, replaced.missing) == ((1.0, *[None] * 6, 2.0), 8, 6)


def test_what_is_no_missing_cell_is_never_dropped(tmp_path: Path) -> None:
    path = write(tmp_path, "h,n\n1,a\nnone,b\n12.3.2021,c\n1e,d\n")
    for missing in ("drop", "replace"):
        with pytest.raises(OptionError, match=r"3 of 4 cells .* 1 with text .*, 1 with a date.*, 1 with a unit"):
            read_column(path, "h", rules=CsvRules(missing=missing))


def test_a_mark_of_missing_values_is_a_label_where_it_is_listed(tmp_path: Path) -> None:
    path = write(tmp_path, "w,n\nNA,1\nbus,1\n-,1\n")
    data = read_column(path, "w", labels=("NA", "bus"), rules=CsvRules(missing="drop"))
    assert (data.values, data.missing) == (("NA", "bus"), 1)


def test_a_file_without_any_value_is_refused_even_so(tmp_path: Path) -> None:
    path = write(tmp_path, "h,n\nNA,1\n,1\n")
    for missing in ("drop", "replace"):
        with pytest.raises(OptionError, match=r"no row of .* has a value there"):
            read_column(path, "h", rules=CsvRules(missing=missing))


def test_a_coordinate_may_be_missing_alone(tmp_path: Path) -> None:
    path = write(tmp_path, "x,y\n1,2\n3,\n")
    assert read_columns(path, ["x", "y"], rules=CsvRules(missing="replace")).values == ((1.0, 2.0), (3.0, None))
    assert read_columns(path, ["x", "y"], rules=CsvRules(missing="drop")).values == ((1.0, 2.0),)


def test_the_content_of_cells_is_shown_only_where_it_is_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path, f"h\n1\ntall\nx{'9' * 30}\n")
    with pytest.raises(OptionError, match=r"2 with text \(line 3: 'tall', line 4: 'x9{19}…'\)"):
        read_column(path, "h", reveal=True)
    assert "tall" not in complaint(path)


def test_lines_are_those_of_the_file(tmp_path: Path) -> None:
    assert "1 with text (line 4)" in complaint(write(tmp_path, 'n,h\n"two\nlines",1\nb,x\n'))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_an_encoding_that_is_certain_is_found(tmp_path: Path, encoding: str) -> None:
    path = write(tmp_path, "größe;w\n1;Süd\n".encode(encoding))
    assert read_column(path, "größe").values == (1.0,)
    assert read_column(path, "w", labels=("Süd",)).values == ("Süd",)


def test_in_another_encoding_only_what_is_the_same_in_all_is_read_untold(tmp_path: Path) -> None:
    path = write(tmp_path, "größe;h;w\n1;2;Süd\n".encode("cp1252"))
    assert read_column(path, "h").values == (2.0,)
    for column, labels in (("w", ("Süd",)), ("größe", ())):
        with pytest.raises(OptionError, match=r"--(encoding|column)"):
            read_column(path, column, labels=labels)
        assert read_column(path, column, labels=labels, rules=CsvRules(encoding="cp1252")).values in (("Süd",), (1.0,))
    with pytest.raises(OptionError, match=r"--encoding: .* is not text in utf-16"):
        read_column(write(tmp_path, b"h\n12\n"), "h", rules=CsvRules(encoding="utf-16-be"))


def test_columns_have_numbers_where_nothing_names_them(tmp_path: Path) -> None:
    path, rules = write(tmp_path, "ann,170\nbob,180\n"), CsvRules(header="no")
    data = read_column(path, "2", rules=rules)
    assert (data.values, data.name) == ((170.0, 180.0), "column 2")
    for column, words in (("3", "is not a column"), ("h", "is not a column"), (None, "has 2 columns")):
        with pytest.raises(OptionError, match=words) as caught:
            read_column(path, column, rules=rules)
        assert "ann" not in str(caught.value)
    assert read_column(write(tmp_path, "1\n2\n"), None, rules=rules).values == (1.0, 2.0)


def test_one_text_means_yes_and_no_other_spelling_of_it(tmp_path: Path) -> None:
    path = write(tmp_path, "q,n\nbus,1\ncar,1\nNA,1\n")
    assert read_answers(path, "q", "bus", rules=CsvRules(missing="drop")).values == (1, 0)
    with pytest.raises(OptionError, match="--yes: no cell") as caught:
        read_answers(path, "q", "tram", rules=CsvRules(missing="drop"))
    assert "tram" not in str(caught.value)
    with pytest.raises(OptionError, match=r"1 that say almost what means yes \(line 3\)"):
        read_answers(write(tmp_path, "q\nbus\nBus\n"), "q", "bus")


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ("yes,no,NA", "answers"),
        ("0,1", "answers"),
        ("TRUE,-", "answers"),
        ("bus,car", "text"),
        ("1,x", "numbers"),
        ("NA", "numbers"),
    ],
)
def test_what_a_column_looks_like(tmp_path: Path, cells: str, kind: str) -> None:
    assert kind_of_column(write(tmp_path, "\n".join(["q", *cells.split(",")])), "q") == kind


@pytest.mark.parametrize(
    "wrong",
    [
        {"delimiter": ""},
        {"delimiter": "ab"},
        {"delimiter": '"'},
        {"delimiter": "1"},
        {"encoding": "utf-9"},
        {"encoding": "rot13"},
        {"encoding": "a\0"},
        {"header": "maybe"},
        {"decimal": ";"},
        {"missing": "ignore"},
    ],
    ids=str,
)
def test_a_rule_that_is_none_says_which_there_are(wrong: dict[str, str]) -> None:
    with pytest.raises(OptionError, match=rf"^--{next(iter(wrong))}: .*; write "):
        CsvRules(**wrong)
