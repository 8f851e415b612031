"""Files that two plausible rules read differently: each is refused with the question, and never guessed."""

from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hush_common.errors import OptionError
from hush_simulations.scenarios import cells
from hush_simulations.scenarios.csv_file import read_answers, read_column
from hush_simulations.scenarios.csv_rules import CsvRules
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
    monkeypatch.setattr(cells.Numbers, "doubts", lambda _self, _texts: [])
    with pytest.raises(AssertionError):
        assert_never_guessed(folder, "h\n1.234\n", None)


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
