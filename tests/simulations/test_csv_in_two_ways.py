"""Files that two plausible rules read differently: each is refused with the question, and never guessed."""

from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hush_common.errors import OptionError
from hush_simulations.scenarios import csv_file
from hush_simulations.scenarios.csv_file import CsvRules, kind_of_column, read_answers, read_column
from hush_simulations.scenarios.population import Observed

Read = Callable[[Path, CsvRules], Observed]


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


@pytest.mark.parametrize(
    ("content", "read", "one", "other", "asked"),
    [
        ("170\n171\n", numbers(), CsvRules(header="yes"), CsvRules(header="no"), "--header: "),
        ("NA\n171\n", labels("NA", "171"), CsvRules(header="yes"), CsvRules(header="no"), "--header: "),
        ("Bus\nbus\n", labels("bus", "Bus"), CsvRules(header="yes"), CsvRules(header="no"), "--header: "),
        (
            "1,2\n3,4\n",
            numbers("1"),
            CsvRules(delimiter=",", header="yes"),
            CsvRules(delimiter=",", header="no"),
            "--delimiter: ",
        ),
        ("2;1\n3;4\n", numbers("1"), CsvRules(header="yes"), CsvRules(header="no"), "--header: "),
        (
            "1,5\n2,5\n",
            numbers("1"),
            CsvRules(header="no", delimiter=","),
            CsvRules(header="no", delimiter=";", decimal=","),
            "--delimiter: ",
        ),
        ("h\n1.234\n2\n", numbers(), CsvRules(decimal="."), CsvRules(decimal=","), "--decimal . or --decimal ,"),
        ("h\n1,234\n2\n", numbers(), CsvRules(decimal="."), CsvRules(decimal=","), "--decimal . or --decimal ,"),
        ("h;w\n-1.234;x\n", numbers("h"), CsvRules(decimal="."), CsvRules(decimal=","), "--decimal . or --decimal ,"),
        ("h\n1\nNA\n", numbers(), CsvRules(missing="drop"), CsvRules(missing="replace"), "--missing drop"),
        (
            b"w\nS\xfcd\n",
            labels("S\u00fcd", "S\u044cd"),
            CsvRules(encoding="cp1252"),
            CsvRules(encoding="cp1251"),
            "--encoding: ",
        ),
    ],
)
def test_a_file_with_two_readings_is_refused_with_the_question(
    content: str | bytes, read: Read, one: CsvRules, other: CsvRules, asked: str, *, tmp_path: Path
) -> None:
    path = written(tmp_path, content)
    assert read(path, one).values != read(path, other).values
    with pytest.raises(OptionError) as caught:
        read(path, CsvRules())
    assert asked in str(caught.value)


def test_two_delimiters_without_a_header_are_refused_with_the_question(tmp_path: Path) -> None:
    path, read = written(tmp_path, "a;a,b\na;b,a\n"), answers("2", "a")
    with pytest.raises(OptionError, match=r"--delimiter: .* comma or semicolon"):
        read(path, CsvRules(header="no"))
    with pytest.raises(OptionError, match="--yes: no cell"):  # it reads
        read(path, CsvRules(header="no", delimiter=";"))
    assert read(path, CsvRules(header="no", delimiter=",")).values == (0, 1)


def bits(column: str | None = None) -> Read:
    return lambda path, rules: read_column(path, column, bits=True, rules=rules)


@pytest.mark.parametrize(
    ("cell", "kind", "asked"),
    [
        ("03/04/2021", "with a date", "write the number that is meant"),  # 3 April, 4 March, or its year
        ("3.4.21", "with a date", "write the number that is meant"),
        ("2021-03-04", "with a date", "write the number that is meant"),
        ("3/4", "with a date, a time or a fraction", "write the number that is meant"),  # 0.75, or a day
        ("1:30", "with a date, a time", "write the number that is meant"),  # 90 s, 90 min, or 1.5
        ("5%", "with a per cent sign", "5 or 0.05"),
        ("5 %", "with a per cent sign", "5 or 0.05"),
        ("5\u2030", "with a per cent sign", "write the number alone"),
        ("170 cm", "with a unit", "in the unit of the bounds"),  # 170, or 1.7 where the others are metres
        ("5k", "with a unit", "write the number alone"),  # 5, or 5000
        ("$5", "with a unit", "write the number alone"),
        ("5 \u20ac", "with a unit", "write the number alone"),
        ("18-25", "with a range", "name the categories with --labels"),  # 18, 25, or between
        ("18\u201325", "with a range", "write one number"),
        ("<5", "with a range or a limit", "write one number"),
        ("90+", "with a range or a limit", "write one number"),
        ("1,234", "with a separator of thousands or decimals", "--decimal . or --decimal ,"),
        ("1\u202f234", "with a separator of thousands or decimals", "--decimal . or --decimal ,"),
        ("1'234", "with a separator of thousands or decimals", "--decimal . or --decimal ,"),
        ("1.234.567", "with a separator of thousands or decimals", "--decimal . or --decimal ,"),
        ("1,23", "with a decimal comma", "--decimal , if the comma separates decimals"),
        ("inf", "infinite", "correct those rows, or remove them"),  # the bound, or no value
        ("1e999", "infinite", "correct those rows, or remove them"),
        ("NaN", "marked as missing", "--missing drop"),
        ("N/A", "marked as missing", "--missing drop"),
        ("none", "with text", "correct those rows"),  # no value, or the number of none: 0
        ("(5)", "with text", "correct those rows"),  # 5, or what accountants write for -5
        ("5-", "with text", "correct those rows"),
        ("1,23,456", "with text", "correct those rows"),
        ("0x10", "with text", "correct those rows"),
        ("1_000", "with text", "correct those rows"),
        ("\u0661", "with text", "correct those rows"),
    ],
)
def test_a_cell_with_several_meanings_is_refused_by_its_kind_and_never_a_number(
    cell: str, kind: str, asked: str, tmp_path: Path
) -> None:
    path = written(tmp_path, f"h;w\n{cell};x\n7;y\n")
    with pytest.raises(OptionError) as caught:
        numbers("h")(path, CsvRules())
    assert f"1 of 2 cells cannot be used: 1 {kind}" in str(caught.value)
    assert asked in str(caught.value)
    assert f"{cell!r}" not in str(caught.value)


@pytest.mark.parametrize("cell", ["7", "+7", "7.0", "7e0", "70E-1", " 7 ", '"7"', "007"])
def test_a_number_with_one_meaning_is_read_without_a_question(cell: str, tmp_path: Path) -> None:
    assert numbers("h")(written(tmp_path, f"h;w\n{cell};x\n"), CsvRules()).values == (7.0,)


def test_a_typographic_minus_is_one(tmp_path: Path) -> None:
    assert numbers("h")(written(tmp_path, "h;w\n\u22125;x\n\u22121.5;x\n"), CsvRules()).values == (-5.0, -1.5)
    path = written(tmp_path, "h;w\n\u22121.234;x\n")
    with pytest.raises(OptionError, match=r"--decimal \. or --decimal ,"):
        numbers("h")(path, CsvRules())
    assert numbers("h")(path, CsvRules(decimal=",")).values == (-1234.0,)


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
    path = written(tmp_path, f"q;n\n{yes};1\n{other};1\nzzz;1\n")
    with pytest.raises(OptionError, match=r"1 that say almost what means yes \(line 3\)"):
        answers("q", yes)(path, CsvRules())
    assert answers("q", yes)(written(tmp_path, f"q;n\n{yes};1\nzzz;1\n"), CsvRules()).values == (1, 0)


def test_zero_and_one_are_numbers_or_answers_as_it_is_asked_and_nobody_guesses(tmp_path: Path) -> None:
    path = written(tmp_path, "q\n0\n1\n")
    assert kind_of_column(path, "q") == "answers"
    assert numbers("q")(path, CsvRules()).values == (0.0, 1.0)
    assert bits("q")(path, CsvRules()).values == (0, 1)


@pytest.mark.parametrize("line", ["\n", "\r\n", "\r"])
def test_lines_end_as_any_system_ends_them(line: str, tmp_path: Path) -> None:
    assert numbers("h")(written(tmp_path, line.join(["h;w", "1;x", "2;y", ""])), CsvRules()).values == (1.0, 2.0)


def test_age_groups_are_categories(tmp_path: Path) -> None:
    assert kind_of_column(written(tmp_path, "g\n18-25\n26-35\n"), "g") == "text"
    assert kind_of_column(written(tmp_path, "g\n250 ml\n500 ml\n"), "g") == "text"


CELLS = ("1", "2.5", "1.234", "1,5", "1,234", "x", "NA", "0.250")


@st.composite
def tables(draw: st.DrawFn) -> tuple[str, str | None]:
    """A file and a column of it: few kinds of cells, one or two delimiters, and a header that fits, or none."""
    pool = st.sampled_from(draw(st.lists(st.sampled_from(CELLS), min_size=1, max_size=3)))
    signs = st.sampled_from(draw(st.sampled_from([",", ";", "\t", "|", ",;", ";|"])))
    width = draw(st.integers(1, 2))
    rows = draw(st.lists(st.lists(pool, min_size=width, max_size=width), min_size=1, max_size=4))
    head = draw(st.sampled_from(["", "h", "1"]))
    named = [[head, "x"][:width]] if head else []
    text = "".join(draw(signs).join(row) + "\n" for row in (*named, *rows))
    return text, draw(st.sampled_from([head or None, "1"] if width > 1 else [head or None, None]))


EVERY_RULE = [
    CsvRules(delimiter=delimiter, header=header, decimal=decimal, missing="drop")
    for delimiter, header, decimal in product(",;\t|", ("yes", "no"), ".,")
]


def reading(read: Read, path: Path, rules: CsvRules) -> tuple[object, ...] | None:
    try:
        return read(path, rules).values
    except OptionError:
        return None


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tables")


def assert_never_guessed(folder: Path, text: str, column: str | None) -> bool:
    path, read = written(folder, text), numbers(column)
    found = reading(read, path, CsvRules(missing="drop"))
    if found is None:
        return False
    readings = {values for rules in EVERY_RULE if (values := reading(read, path, rules)) is not None}
    assert readings == {found}
    return True


@given(table=tables())
@example(table=("1,5\n2,5\n", None))
@example(table=("x;h\n1.234\n", "h"))
@example(table=("x;h\n1,234;2\n", "h"))
def test_what_is_read_without_being_told_reads_alike_under_every_rule_that_fits(
    folder: Path, table: tuple[str, str | None]
) -> None:
    assert_never_guessed(folder, *table)


def test_a_reader_that_guesses_is_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert assert_never_guessed(folder, "h\n1.5\n", None)
    assert not assert_never_guessed(folder, "h\n1.234\n", None)
    monkeypatch.setattr(csv_file.Numbers, "doubts", lambda _self, _texts: [])
    with pytest.raises(AssertionError):
        assert_never_guessed(folder, "h\n1.234\n", None)


@pytest.mark.large
@pytest.mark.parametrize("sign", [",", ";", "\t", "|"])
@given(data=st.data())
def test_a_table_that_any_delimiter_separates_is_read_as_it_was_written(
    folder: Path, sign: str, data: st.DataObject
) -> None:
    values = data.draw(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=5))
    words = data.draw(st.lists(st.sampled_from(["ann", "b c", "4"]), min_size=len(values), max_size=len(values)))
    rows = [f"{word}{sign}{value!r}" for word, value in zip(words, values, strict=True)]
    path = written(folder, "\r\n".join([f"name{sign}h", *rows]))
    found = reading(numbers("h"), path, CsvRules(decimal="."))
    assert found == tuple(values)


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
        ("12.04.2021", ".", None),
        ("1_000", ".", None),
        ("\u0661", ".", None),
        ("1.234,567.8", ".", None),
    ],
)
def test_the_sign_of_decimals_says_how_a_number_is_read(
    text: str, decimal: str, value: float | None, tmp_path: Path
) -> None:
    path = written(tmp_path, f"h\tw\n{text}\tx\n")
    found = reading(numbers("h"), path, CsvRules(decimal=decimal, delimiter="tab"))
    assert found == (None if value is None else (value,))


@pytest.mark.parametrize("other", ["12.5", "0.250", "1234.567", "1.2345"])
def test_a_point_that_separates_no_thousands_settles_the_column(other: str, tmp_path: Path) -> None:
    path = written(tmp_path, f"h\n1.234\n{other}\n")
    assert reading(numbers(), path, CsvRules()) == (1.234, float(other))
    assert reading(numbers(), path, CsvRules(decimal=",")) is None
