"""Columns of a CSV file: read where there is one way to read them, else refused with the question to answer."""

import gzip
import zipfile
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from hush_common.errors import OptionError
from hush_simulations.scenarios import csv_table
from hush_simulations.scenarios.csv_file import Fault, kind_of_column, read_answers, read_column, read_columns
from hush_simulations.scenarios.csv_table import CsvRules
from hush_simulations.scenarios.population import Observed

Read = Callable[[Path, CsvRules], Observed]
UNTOLD = CsvRules()


def numbers(column: str | None = None) -> Read:
    return lambda path, rules: read_column(path, column, rules=rules)


def answers(column: str, yes: str) -> Read:
    return lambda path, rules: read_answers(path, column, yes, rules=rules)


def labels(*known: str) -> Read:
    return lambda path, rules: read_column(path, None, labels=known, rules=rules)


def written(directory: Path, content: str | bytes) -> Path:
    path = directory / "data.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def refusal(path: Path, read: Read | None = None, rules: CsvRules = UNTOLD) -> str:
    with pytest.raises(OptionError) as caught:
        (read or numbers("h"))(path, rules)
    text = str(caught.value)
    assert "\n" not in text
    assert caught.value.exit_code == 2
    return text


def reading(read: Read, path: Path, rules: CsvRules) -> tuple[object, ...] | None:
    try:
        return read(path, rules).values
    except OptionError:
        return None


@pytest.mark.parametrize(
    ("content", "read", "one", "other", "asked"),
    [
        ("170\n171\n", numbers(), {"header": "yes"}, {"header": "no"}, "--header"),
        ("NA\n171\n", labels("NA", "171"), {"header": "yes"}, {"header": "no"}, "--header"),
        ("Bus\nbus\n", labels("bus", "Bus"), {"header": "yes"}, {"header": "no"}, "--header"),
        ("2;1\n3;4\n", numbers("1"), {"header": "yes"}, {"header": "no"}, "--header"),
        (
            "1,2\n3,4\n",
            numbers("1"),
            {"delimiter": ",", "header": "yes"},
            {"delimiter": ",", "header": "no"},
            "--header",
        ),
        (
            "1,5\n2,5\n",
            numbers("1"),
            {"header": "no", "delimiter": ","},
            {"header": "no", "delimiter": ";", "decimal": ","},
            "--header",
        ),
        ("h\n1.234\n2\n", numbers(), {"decimal": "."}, {"decimal": ","}, "--decimal"),
        ("h\n1,234\n2\n", numbers(), {"decimal": "."}, {"decimal": ","}, "--decimal"),
        ("h;w\n-1.234;x\n", numbers("h"), {"decimal": "."}, {"decimal": ","}, "--decimal"),
        ("h\n1\nNA\n", numbers(), {"missing": "drop"}, {"missing": "replace"}, "--missing"),
        (b"w\nS\xfcd\n", labels("Süd", "Sьd"), {"encoding": "cp1252"}, {"encoding": "cp1251"}, "--encoding"),
    ],
)
def test_a_file_with_two_readings_is_refused_with_the_option(
    content: str | bytes, read: Read, one: dict[str, str], other: dict[str, str], asked: str, *, tmp_path: Path
) -> None:
    path = written(tmp_path, content)
    assert read(path, CsvRules(**one)).values != read(path, CsvRules(**other)).values
    assert asked in refusal(path, read)


def test_two_delimiters_without_a_header_are_refused(tmp_path: Path) -> None:
    path, read = written(tmp_path, "a;a,b\na;b,a\n"), answers("2", "a")
    assert "--delimiter" in refusal(path, read, CsvRules(header="no"))
    assert "--yes" in refusal(path, read, CsvRules(header="no", delimiter=";"))  # it reads, and nobody says yes
    assert read(path, CsvRules(header="no", delimiter=",")).values == (0, 1)
    commas = written(tmp_path, "1,5\n2,5\n")
    assert "--delimiter" in refusal(commas, numbers("1"), CsvRules(header="no"))
    assert "--delimiter" in refusal(commas, numbers())


@pytest.mark.parametrize(
    ("fault", "cells"),
    [
        (
            Fault.NO_NUMBER,
            ["03/04/2021", "2021-03-04", "3/4", "1:30", "5%", "5 %", "170 cm", "5k", "$5", "18-25", "<5"],
        ),
        (Fault.NO_NUMBER, ["inf", "-Infinity", "1e999", "none", "tall", "(5)", "5-", "0x10", "1_000", "\u0661"]),
        (Fault.SIGN, ["1,234", "1\u202f234", "1'234", "1.234.567", "1,23"]),
        (Fault.MARKED, ["NaN", "N/A"]),
        (Fault.EMPTY, ["", " "]),
    ],
)
def test_a_cell_with_several_meanings_is_never_a_number(fault: Fault, cells: list[str], tmp_path: Path) -> None:
    for cell in cells:
        text = refusal(written(tmp_path, f'h;w\n7;y\n"{cell}";x\n'))
        assert f"1 of 2 cells cannot be used: 1 {fault}" in text
        assert "line 3" in text
        assert f"{cell!r}" not in text


@pytest.mark.parametrize("cell", ["7", "+7", "7.0", "7e0", "70E-1", " 7 ", '"7"', "007"])
def test_a_number_with_one_meaning_is_read(cell: str, tmp_path: Path) -> None:
    assert numbers("h")(written(tmp_path, f"h;w\n{cell};x\n"), UNTOLD).values == (7.0,)


def test_a_typographic_minus_is_a_minus(tmp_path: Path) -> None:
    assert numbers("h")(written(tmp_path, "h;w\n\u22125;x\n\u22121.5;x\n"), UNTOLD).values == (-5.0, -1.5)
    path = written(tmp_path, "h;w\n\u22121.234;x\n")
    assert "--decimal" in refusal(path)
    assert numbers("h")(path, CsvRules(decimal=",")).values == (-1234.0,)


@pytest.mark.parametrize(
    ("text", "decimal", "value"),
    [
        ("1.234", ".", 1.234),
        ("1.234", ",", 1234),
        ("1,234", ".", 1234),
        ("1,234", ",", 1.234),
        ("1.234.567,8", ",", 1234567.8),
        ("1,234,567.8", ".", 1234567.8),
        ("1 234,5", ",", 1234.5),
        ("1\u202f234", ",", 1234),
        ("-12,5", ",", -12.5),
        ("1'234.5", ".", 1234.5),
        ("1e3", ",", 1000),
        ("12,5", ".", None),
        ("12.5", ",", None),
        ("1,234,5", ".", None),
        ("1,234.5", ",", None),
        ("0,123", ".", None),
        ("12.04.2021", ",", None),
        ("1_000", ".", None),
        ("\u0661", ".", None),
        ("1.234,567.8", ".", None),
    ],
)
def test_the_decimal_rule_says_how_a_number_is_read(
    text: str, decimal: str, value: float | None, tmp_path: Path
) -> None:
    path = written(tmp_path, f"h\tw\n{text}\tx\n")
    found = reading(numbers("h"), path, CsvRules(decimal=decimal, delimiter="tab"))
    assert found == (None if value is None else (value,))


@pytest.mark.parametrize("other", ["12.5", "0.250", "1234.567", "1.2345"])
def test_one_clear_decimal_point_settles_the_column(other: str, tmp_path: Path) -> None:
    path = written(tmp_path, f"h\n1.234\n{other}\n")
    assert reading(numbers(), path, UNTOLD) == (1.234, float(other))
    assert reading(numbers(), path, CsvRules(decimal=",")) is None


@pytest.mark.medium
def test_an_untold_reading_is_the_only_one_that_fits(tmp_path: Path) -> None:
    rules = [
        CsvRules(delimiter=delimiter, header=header, decimal=decimal, missing="drop")
        for delimiter, header, decimal in product(",;\t", ("yes", "no"), ".,")
    ]
    cells = ("1", "2.5", "1.234", "1,5", "1,234", "x", "NA")
    settled = 0
    for head, delimiter, pair in product(("", "h", "1"), ",;", product(cells, repeat=2)):
        rows = [[one, "x"] for one in pair]
        text = "".join(delimiter.join(row) + "\n" for row in ([[head, "x"]] if head else []) + rows)
        path, read = written(tmp_path, text), numbers(head or "1")
        found = reading(read, path, CsvRules(missing="drop"))
        if found is not None:
            settled += 1
            assert {values for one in rules if (values := reading(read, path, one)) is not None} == {found}, text
    assert settled >= 20


@pytest.mark.parametrize(
    ("yes", "other"),
    [
        ("yes", "Yes"),
        ("1", "1.0"),
        ("true", "1"),
        ("on foot", "on  foot"),
        ("caf\u00e9", "cafe\u0301"),
        ("a b", "a\u00a0b"),
        ("A", "\uff21"),
    ],
)
def test_what_looks_like_yes_is_not_counted_as_no(yes: str, other: str, tmp_path: Path) -> None:
    text = refusal(written(tmp_path, f"q;n\n{yes};1\n{other};1\nzzz;1\n"), answers("q", yes))
    assert f"1 {Fault.NEARLY} (line 3)" in text
    assert answers("q", yes)(written(tmp_path, f"q;n\n{yes};1\nzzz;1\n"), UNTOLD).values == (1, 0)


def test_the_text_for_yes_must_be_in_the_file_and_is_not_repeated(tmp_path: Path) -> None:
    path = written(tmp_path, "q,n\nbus,1\ncar,1\nNA,1\n")
    assert answers("q", "bus")(path, CsvRules(missing="drop")).values == (1, 0)
    text = refusal(path, answers("q", "tram"), CsvRules(missing="drop"))
    assert "--yes" in text
    assert "tram" not in text


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ("yes,no,NA", "answers"),
        ("0,1", "answers"),
        ("TRUE,-", "answers"),
        ("bus,car", "text"),
        ("18-25,26-35", "text"),
        ("250 ml,500 ml", "text"),
        ("1,x", "numbers"),
        ("NA", "numbers"),
    ],
)
def test_the_kind_of_a_column(cells: str, kind: str, tmp_path: Path) -> None:
    assert kind_of_column(written(tmp_path, "\n".join(["q", *cells.split(",")])), "q") == kind


def test_zero_and_one_are_numbers_or_answers_as_asked(tmp_path: Path) -> None:
    path = written(tmp_path, "q\n0\n1\n")
    assert read_column(path, "q").values == (0.0, 1.0)
    assert read_column(path, "q", bits=True).values == (0, 1)


def test_answers_may_be_written_in_several_ways(tmp_path: Path) -> None:
    path = written(tmp_path, "q\nNO\nyes\nTrue\n0\n1\nfalse\n")
    assert read_column(path, "q", bits=True).values == (0, 1, 1, 0, 1, 0)
    number = written(tmp_path, "h\n2\n")
    assert str(Fault.NO_ANSWER) in refusal(number, lambda path, rules: read_column(path, "h", bits=True, rules=rules))


def test_every_row_is_a_value_in_order(tmp_path: Path) -> None:
    data = read_column(written(tmp_path, "name,h\nann,170\nbob,1.815e2\n"), "h")
    assert (data.values, data.name) == ((170.0, 181.5), "h")
    assert read_column(written(tmp_path, "h\n1\n2\n"), None).values == (1.0, 2.0)


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffh,w\n1,2\n2,2\n",
        "h;w\n1;2\n2;2\n",
        "w , h \r\n2, 1 \r\n2,2",
        "h,w\n1,2,\n2,2,,\n",
        'h,w\n"1",2\n2,2\n\n\n',
        "h;w\r1;x\r2;y\r",
    ],
)
def test_what_spreadsheets_write_is_read(text: str, tmp_path: Path) -> None:
    assert read_column(written(tmp_path, text), "h").values == (1.0, 2.0)


@pytest.mark.parametrize("told", ["sep=;\n", "SEP=;\r\n"])
def test_the_first_line_of_excel_names_the_delimiter(told: str, tmp_path: Path) -> None:
    assert read_column(written(tmp_path, told + "h;way\n34;bus\n51;car\n"), "h").values == (34.0, 51.0)
    assert "line 4" in refusal(written(tmp_path, told + "h;way\n34;bus\nx;bus\n"))


def test_lines_are_those_of_the_file(tmp_path: Path) -> None:
    assert "line 4" in refusal(written(tmp_path, 'n,h\n"two\nlines",1\nb,x\n'))
    assert f"1 {Fault.EMPTY} (line 3)" in refusal(written(tmp_path, "h\n1\n\n2\n"))
    assert f"1 {Fault.SHORT} (line 2)" in refusal(written(tmp_path, "n,h\na\n"))


def test_a_column_is_named_or_the_likely_one_suggested(tmp_path: Path) -> None:
    path = written(tmp_path, "name,height\nann,170\n")
    wrong = refusal(path, numbers("hight"))
    assert "'hight'" in wrong
    assert "'height'" in wrong
    assert "ann" not in refusal(path, numbers())


def test_a_number_in_the_first_line_is_not_shown(tmp_path: Path) -> None:
    path = written(tmp_path, "170\n171\n")
    assert "170" not in refusal(path, numbers()).replace(str(path), "")
    assert read_column(path, "170").values == (171.0,)  # naming it says that it is a name


def test_columns_have_numbers_where_no_header_names_them(tmp_path: Path) -> None:
    path, rules = written(tmp_path, "ann,170\nbob,180\n"), CsvRules(header="no")
    data = read_column(path, "2", rules=rules)
    assert (data.values, data.name) == ((170.0, 180.0), "column 2")
    for column in ("3", "h", None):
        assert "ann" not in refusal(path, numbers(column), rules)
    assert read_column(written(tmp_path, "1\n2\n"), None, rules=rules).values == (1.0, 2.0)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("h\n", "no rows"),
        ("", "empty"),
        (b"\xff\xfe\x00\x01\x02", "UTF-8"),
        (b"h\n\x80\n", "UTF-8"),
        ("h\n1\n".encode("utf-16-le"), "UTF-16"),
        ('h,w\n"1"2,3\n', "CSV"),
        ("h,w\n1,2,3\n", "line 2"),
        ("h,h\n1,2\n", "2 times"),
        ("h\n" + "1" * 200_000 + "\n", "CSV"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1", "Excel"),
        (b"PAR1....", ".parquet"),
        (b"BZh91AY", "bzip2"),
        (b"\xfd7zXZ\x00", "xz"),
        (b"(\xb5/\xfd..", "zstd"),
    ],
)
def test_a_file_that_is_not_a_table_is_refused(content: str | bytes, named: str, tmp_path: Path) -> None:
    assert named in refusal(written(tmp_path, content))


def test_a_file_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    assert "nothing.csv" in refusal(tmp_path / "nothing.csv")
    assert str(tmp_path) in refusal(tmp_path)
    with zipfile.ZipFile(tmp_path / "people.xlsx", "w") as book:
        book.writestr("xl/workbook.xml", "<workbook/>")
    assert "Excel" in refusal(tmp_path / "people.xlsx")


def test_a_compressed_file_is_read_whatever_its_name(tmp_path: Path) -> None:
    packed = gzip.compress(b"h;way\n34;bus\n51;car\n")
    assert read_column(written(tmp_path, packed), "h").values == (34.0, 51.0)
    assert "gzip" in refusal(written(tmp_path, packed[:-9]))


def test_a_bomb_is_refused_before_it_fills_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_table, "MOST_BYTES", 1 << 16)
    assert "data.csv" in refusal(written(tmp_path, gzip.compress(b"h\n" + b"0\n" * (1 << 17))))


def test_more_rows_than_a_simulation_has_devices_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_table, "MOST_DEVICES", 321)
    assert len(read_column(written(tmp_path, "h\n" + "1\n" * 321), "h").values) == 321
    assert "321" in refusal(written(tmp_path, "h\n" + "1\n" * 322))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_an_encoding_that_is_certain_is_found(encoding: str, tmp_path: Path) -> None:
    path = written(tmp_path, "größe;w\n1;Süd\n".encode(encoding))
    assert read_column(path, "größe").values == (1.0,)
    assert read_column(path, "w", labels=("Süd",)).values == ("Süd",)


def test_another_encoding_must_be_named(tmp_path: Path) -> None:
    path, western = written(tmp_path, "größe;h;w\n1;2;Süd\n".encode("cp1252")), CsvRules(encoding="cp1252")
    assert "--encoding" in refusal(path)
    assert read_column(path, "w", labels=("Süd",), rules=western).values == ("Süd",)
    assert read_column(path, "größe", rules=western).values == (1.0,)
    assert "utf-16" in refusal(written(tmp_path, b"h\n12\n"), rules=CsvRules(encoding="utf-16-be"))


def test_labels_must_be_spelled_exactly_and_are_not_repeated(tmp_path: Path) -> None:
    path = written(tmp_path, "way\nbus\non foot\n")
    assert labels("bus", "on foot")(path, UNTOLD).values == ("bus", "on foot")
    text = refusal(path, labels("bus", "walk"))
    assert f"1 {Fault.NO_LABEL} (line 3)" in text
    assert "on foot" not in text


def test_capitals_matter_unless_fold_case_is_yes(tmp_path: Path) -> None:
    path, fold = written(tmp_path, "way;n\nbus;1\ncar;2\nBus;3\n"), CsvRules(fold_case="yes")
    assert "--fold-case" in refusal(
        path, lambda path, rules: read_column(path, "way", labels=("bus", "car"), rules=rules)
    )
    assert read_column(path, "way", labels=("bus", "car"), rules=fold).values == ("bus", "car", "bus")
    assert "--fold-case" in refusal(path, answers("way", "BUS"))
    assert answers("way", "BUS")(path, fold).values == (1, 0, 1)
    assert "--fold-case" in refusal(
        path, lambda path, rules: read_column(path, "way", labels=("bus", "BUS"), rules=rules), fold
    )


def test_rows_of_several_columns_are_vectors(tmp_path: Path) -> None:
    path = written(tmp_path, "y,name,x\n1,ann,2\n3,bob,4\n")
    assert read_columns(path, ["x", "y"]).values == ((2.0, 1.0), (4.0, 3.0))
    assert "'z'" in refusal(path, lambda path, rules: read_columns(path, ["x", "z"], rules=rules))
    wrong = refusal(path, lambda path, rules: read_columns(path, ["x", "name"], rules=rules))
    assert f"2 {Fault.NO_NUMBER} (line 2, line 3)" in wrong


def test_missing_cells_are_dropped_or_left_to_the_devices(tmp_path: Path) -> None:
    path = written(tmp_path, "h,n\n1,a\n,b\nNA,c\nn/a,d\nNaN,e\nnull,f\n-,g\n2,h\n")
    text = refusal(path)
    assert f"1 {Fault.EMPTY} (line 3), 5 {Fault.MARKED} (line 4, line 5, line 6, 2 more)" in text
    assert "--missing drop" in text
    assert "--missing replace" in text
    dropped = read_column(path, "h", rules=CsvRules(missing="drop"))
    assert (dropped.values, dropped.rows) == ((1.0, 2.0), 8)
    assert dropped.to_document() == {"rows": 8, "missing": 6, "treatment": "drop", "resampled": False}
    replaced = read_column(path, "h", rules=CsvRules(missing="replace"))
    assert (replaced.values, replaced.rows, replaced.missing) == ((1.0, *[None] * 6, 2.0), 8, 6)


def test_texts_that_mark_a_missing_value_are_named_with_na(tmp_path: Path) -> None:
    path = written(tmp_path, "h,id\n34,1\n-99,2\nk.A.,3\n67,4\n")
    assert f"1 {Fault.NO_NUMBER}" in refusal(path)
    assert f"2 {Fault.EMPTY}" in refusal(path, rules=CsvRules(na="-99,k.A."))
    assert read_column(path, "h", rules=CsvRules(na="-99, k.A.", missing="drop")).values == (34.0, 67.0)


def test_only_missing_cells_are_dropped(tmp_path: Path) -> None:
    path = written(tmp_path, "h,n\n1,a\nnone,b\n12.3.2021,c\n1e,d\n")
    for missing in ("drop", "replace"):
        text = refusal(path, rules=CsvRules(missing=missing))
        assert f"3 {Fault.NO_NUMBER} (line 3, line 4, line 5)" in text


def test_a_mark_of_missing_values_may_be_a_label(tmp_path: Path) -> None:
    path = written(tmp_path, "w,n\nNA,1\nbus,1\n-,1\n")
    data = read_column(path, "w", labels=("NA", "bus"), rules=CsvRules(missing="drop"))
    assert (data.values, data.missing) == (("NA", "bus"), 1)


@pytest.mark.parametrize("missing", ["drop", "replace"])
def test_a_file_without_any_value_is_refused(missing: str, tmp_path: Path) -> None:
    path = written(tmp_path, "h,n\nNA,1\n,1\n")
    assert "data.csv" in refusal(path, rules=CsvRules(missing=missing))


def test_a_coordinate_may_be_missing_alone(tmp_path: Path) -> None:
    path = written(tmp_path, "x,y\n1,2\n3,\n")
    assert read_columns(path, ["x", "y"], rules=CsvRules(missing="replace")).values == ((1.0, 2.0), (3.0, None))
    assert read_columns(path, ["x", "y"], rules=CsvRules(missing="drop")).values == ((1.0, 2.0),)


def test_empty_lines_are_clients_but_not_at_the_end(tmp_path: Path) -> None:
    path = written(tmp_path, "h,id\n34,1\n\n51,2\n\n\n")
    assert read_column(path, "h", rules=CsvRules(missing="replace")).values == (34.0, None, 51.0)


def test_the_content_of_cells_is_shown_only_on_demand(tmp_path: Path) -> None:
    path = written(tmp_path, f"h\n1\ntall\nx{'9' * 30}\n")
    shown = refusal(path, lambda path, rules: read_column(path, "h", rules=rules, reveal=True))
    assert "line 3: 'tall'" in shown
    assert "9" * 25 not in shown
    assert "tall" not in refusal(path)


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
        {"fold_case": "maybe"},
    ],
    ids=str,
)
def test_a_rule_that_does_not_exist_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(OptionError, match=f"^--{next(iter(wrong)).replace('_', '-')}: "):
        CsvRules(**wrong)
