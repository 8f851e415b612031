"""The short ways of reading give what reading each cell by itself gives; and files that are not plain text."""

import gzip
import importlib
import io
import math
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from commands import run
from hypothesis import given
from hypothesis import strategies as st

import hush
from hush_common.domain import BitDomain, CategoryDomain, Domain, NumberDomain
from hush_common.errors import OptionError
from hush_simulations.scenarios import csv_file, python_data
from hush_simulations.scenarios.csv_file import CellError, CsvRules, Fault, Labels, Numbers, Reader, Yes, YesNo
from hush_simulations.scenarios.population import Treatment

TEXTS = st.sampled_from(
    [
        "",
        "-",
        "NA",
        "nan",
        "inf",
        "1e5",
        "1_000",
        "170",
        "-3.5",
        "+4",
        ".5",
        "5.",
        "1,5",
        "1.234",
        "1,234",
        "1.234,5",
        "1,234.5",
        "1 234",
        "\u22127",
        "\u0663",
        "0x10",
        "5 %",
        "12 cm",
        "1-2",
        "yes",
        "No",
        "bus",
        "Bus",
        "BUS",
        "9" * 400,
        "1," + "000," * 120 + "000",
        "00012",
        "-0",
        "1.2.3",
        "--1",
        "1" * 16,
    ]
) | st.text("0123456789.,-+eE ", max_size=9).map(str.strip)
READERS: list[Reader] = [
    Numbers(),
    Numbers("."),
    Numbers(","),
    YesNo(),
    Yes("Yes"),
    Yes("yes", fold=True),
    Labels(["bus", "170"]),
    Labels(["bus"], "other"),
    Labels(["Bus"], fold=True),
]


def one_by_one(reader: Reader, texts: Sequence[str | None]) -> tuple[list[object], list[tuple[int, Fault]]]:
    values: list[object] = []
    faults = []
    for place, text in enumerate(texts):
        try:
            values.append(None if text is None else reader.read(text))
        except CellError as error:
            values.append(None)
            faults.append((place, error.fault))
        if text is None:
            faults.append((place, Fault.SHORT))
    return values, faults


@pytest.mark.large
@pytest.mark.parametrize("reader", READERS, ids=range(len(READERS)))
@given(texts=st.lists(st.none() | TEXTS, max_size=12))
def test_a_column_is_read_as_its_cells_are(reader: Reader, texts: list[str | None]) -> None:
    values, faults = reader.column(texts)
    expected, wrong = one_by_one(reader, texts)
    assert faults == wrong
    assert [(type(one), one) for one in values] == [(type(one), one) for one in expected]
    assert [math.copysign(1, one) for one in values if isinstance(one, float)] == [
        math.copysign(1, one) for one in expected if isinstance(one, float)
    ]


DOMAINS: list[tuple[Domain, st.SearchStrategy[object]]] = [
    (NumberDomain(0.0, 9.0), st.floats() | st.integers() | st.booleans() | st.none()),
    (NumberDomain(0.0, 9.0), st.integers(-(1 << 60), 1 << 60)),
    (NumberDomain(0.0, 9.0), st.floats()),
    (BitDomain(), st.booleans() | st.integers(0, 2)),
    (BitDomain(), st.booleans()),
    (CategoryDomain(("a", "b")), st.sampled_from(["a", "b", "c", None])),
    (CategoryDomain(("a", "b")), st.sampled_from(["a", "b"])),
    (CategoryDomain(("a", "b"), "b"), st.sampled_from(["a", "b", "c"])),
]


@pytest.mark.parametrize("treatment", [None, "drop", "replace"])
@pytest.mark.parametrize(("domain", "values"), DOMAINS, ids=range(len(DOMAINS)))
@given(data=st.data())
def test_rows_of_one_type_are_read_as_each_is(
    domain: Domain, values: st.SearchStrategy[object], treatment: Treatment | None, data: st.DataObject
) -> None:
    rows = data.draw(st.lists(values, min_size=1, max_size=9))
    quick = python_data._alike(rows, domain, treatment)
    if quick is not None:
        slow = python_data._values(rows, python_data._reader(domain, treatment), treatment)
        assert repr(quick) == repr(slow)


def test_the_short_way_is_taken() -> None:
    for domain, rows in (
        (NumberDomain(0.0, 9.0), [1.0, 2.5]),
        (BitDomain(), [True]),
        (CategoryDomain(("a", "b")), ["b"]),
    ):
        assert python_data._alike(list(rows), domain, None) == (tuple(rows), 0)
    assert python_data._alike([1.0, math.nan], NumberDomain(0.0, 9.0), "drop") == ((1.0,), 1)


TABLE = "age;way\n34;bus\n51;car\n67;Bus\n"
AGES = ("--column", "age", "--lower", "0", "--upper", "110", "--engine", "memory", "--json")


def simulated(directory: Path, name: str, *more: str) -> str:
    ended = run(["simulate", "--csv", name, *(more or AGES)], directory, patience=60)
    return ended.out if ended.code == 0 else ended.err


def test_a_compressed_file_is_read_whatever_its_name(tmp_path: Path) -> None:
    (tmp_path / "people.dat").write_bytes(gzip.compress(TABLE.encode()))
    assert '"n": 3' in simulated(tmp_path, "people.dat")
    (tmp_path / "cut.gz").write_bytes(gzip.compress(TABLE.encode())[:-9])
    assert "cut.gz is compressed by gzip, and damaged" in simulated(tmp_path, "cut.gz")


def test_a_file_that_grows_too_large_is_refused_before_it_fills_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_file, "MOST_BYTES", 1 << 20)
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(b"0\n" * (1 << 21)))
    assert "bomb.gz has more than 1 MiB" in simulated(tmp_path, "bomb.gz")


def test_a_dash_is_what_another_program_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    csv_file._standard_input.cache_clear()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(TABLE.encode()), isatty=lambda: False))
    found = csv_file.read_column(Path("-"), "age")
    assert found.values == (34.0, 51.0, 67.0)
    assert csv_file.kind_of_column(Path("-"), "way") == "text"  # it may be looked at twice
    csv_file._standard_input.cache_clear()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xd0\xcf\x11\xe0\xa1\xb1", "is an old Excel workbook; save the sheet as CSV"),
        (b"PAR1....", "is a Parquet file; give it a name that ends in .parquet"),
        (b"BZh91AY", "is compressed by bzip2"),
        (b"\xfd7zXZ\x00", "is compressed by xz"),
        (b"(\xb5/\xfd..", "is compressed by zstd"),
    ],
)
def test_a_file_of_another_kind_is_named(content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_bytes(content)
    assert words in simulated(tmp_path, "people.csv")


def test_an_excel_workbook_is_named(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "people.xlsx", "w") as book:
        book.writestr("xl/workbook.xml", "<workbook/>")
    assert "is an Excel workbook or a ZIP archive; save the sheet as CSV" in simulated(tmp_path, "people.xlsx")


def test_parquet_is_read_at_the_command_line(tmp_path: Path) -> None:
    frame = importlib.import_module("pandas").DataFrame({"age": [34.0, None, 67.0], "way": ["bus", "car", "bus"]})
    frame.to_parquet(tmp_path / "people.parquet")
    assert '"n": 2' in simulated(tmp_path, "people.parquet", *AGES, "--missing", "drop")
    assert "--csv: 1 of 3 rows have no value" in simulated(tmp_path, "people.parquet")
    assert "--missing drop" in simulated(tmp_path, "people.parquet")
    ways = ("--column", "way", "--labels", "bus,car", "--engine", "memory", "--json")
    assert '"n": 3' in simulated(tmp_path, "people.parquet", *ways)
    assert "--delimiter: is for CSV" in simulated(tmp_path, "people.parquet", *AGES, "--delimiter", "tab")
    assert "--lower and --upper" in simulated(tmp_path, "people.parquet", "--column", "age")


def test_texts_that_mark_a_missing_value_are_named(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("age,id\n34,1\n-99,2\nk.A.,3\n67,4\n", encoding="utf-8")
    assert "1 with text" in simulated(tmp_path, "people.csv")
    assert "2 empty" in simulated(tmp_path, "people.csv", *AGES, "--na", "-99,k.A.")
    assert '"missing": 2' in simulated(tmp_path, "people.csv", *AGES, "--na", "-99, k.A.", "--missing", "drop")
    csv = {"na": "-99,k.A."}
    domain = {"kind": "number", "lower": 0, "upper": 110}
    found = hush.feasible(tmp_path / "people.csv", domain, column="age", missing="drop", csv=csv)
    assert found.people == 2


def test_capitals_matter_unless_somebody_says_otherwise(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text(TABLE, encoding="utf-8")
    ways = ("--column", "way", "--labels", "bus,car", "--engine", "memory", "--json")
    assert "write --fold-case yes if capitals do not matter" in simulated(tmp_path, "people.csv", *ways)
    assert '"n": 3' in simulated(tmp_path, "people.csv", *ways, "--fold-case", "yes")
    yes = ("--column", "way", "--yes", "BUS", "--engine", "memory", "--json")
    assert "write --fold-case yes" in simulated(tmp_path, "people.csv", *yes)
    assert '"n": 3' in simulated(tmp_path, "people.csv", *yes, "--fold-case", "yes")
    with pytest.raises(OptionError, match="--fold-case: two of the labels differ only in capitals"):
        Labels(["a", "A"], fold=True)
    assert "--fold-case: 'maybe' is not one of its values" in simulated(
        tmp_path, "people.csv", *yes, "--fold-case", "maybe"
    )


@pytest.mark.parametrize("told", ["sep=;\n", "SEP=;\r\n"])
def test_the_first_line_of_excel_names_the_delimiter(told: str, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_bytes((told + TABLE).encode())
    assert csv_file.read_column(tmp_path / "people.csv", "age").values == (34.0, 51.0, 67.0)
    (tmp_path / "people.csv").write_bytes((told + TABLE + "x;bus\n").encode())
    assert "line 6" in simulated(tmp_path, "people.csv")
    rules = CsvRules(delimiter=",")
    with pytest.raises(OptionError, match="'age' is not a column"):
        csv_file.read_column(tmp_path / "people.csv", "age", rules=rules)


def test_empty_lines_are_clients_but_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("age,id\n34,1\n\n51,2\n\n\n", encoding="utf-8")
    found = csv_file.read_column(tmp_path / "people.csv", "age", rules=CsvRules(missing="replace"))
    assert found.values == (34.0, None, 51.0)
    assert "line 3" in simulated(tmp_path, "people.csv")
