"""A CSV file by its path, as `hush.simulate` takes it: read as the command reads it, told in words of Python."""

from pathlib import Path

import pytest

import hush
from hush_common.domain import BitDomain, CategoryDomain, Coordinate, Domain, NumberDomain, VectorDomain
from hush_common.errors import OptionError
from hush_simulations.scenarios.python_data import observed

AGE = NumberDomain(0.0, 110.0)
WAYS = CategoryDomain(("bus", "car"))
MOVE = VectorDomain((Coordinate(0, 1, name="x"), Coordinate(0, 1, name="y")))


@pytest.fixture
def people(tmp_path: Path) -> Path:
    path = tmp_path / "people.csv"
    path.write_text("age;way;smokes;x;y\n34,5;bus;no;0;1\n51;car;yes;1;0\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("domain", "column", "csv", "values"),
    [
        (AGE, "age", {"decimal": ","}, (34.5, 51.0)),
        (WAYS, "way", None, ("bus", "car")),
        (CategoryDomain(("bus", "rest"), "rest"), "way", None, ("bus", "rest")),
        (BitDomain(), "smokes", None, (0, 1)),
        (BitDomain(), "way", {"yes": "bus"}, (1, 0)),
        (MOVE, None, None, ((0.0, 1.0), (1.0, 0.0))),
    ],
)
def test_a_file_is_read_by_its_path_for_every_kind_of_value(
    people: Path, domain: Domain, column: str | None, csv: dict[str, str] | None, values: tuple[object, ...]
) -> None:
    for path in (people, str(people)):
        data = observed(path, domain, column, csv=csv)
        assert data.values == values
        assert data.name == (column or "x, y")


def complaint(data: object, domain: Domain = AGE, column: str | None = None, **csv: str) -> str:
    with pytest.raises(OptionError) as caught:
        observed(data, domain, column, csv=csv or None)
    return str(caught.value)


def test_what_is_asked_is_asked_in_the_words_of_python(people: Path, tmp_path: Path) -> None:
    assert complaint(people) == f"column: is missing; the first line of {people} names 5, write one of them"
    told = complaint(people, column="age")
    assert told.endswith('1 with a decimal comma (line 2); write csv={"decimal": ","} if the comma separates decimals')
    assert "34" not in told.replace(str(people), "")
    (tmp_path / "bare.csv").write_text("170\n171\n", encoding="utf-8")
    assert complaint(tmp_path / "bare.csv").startswith('csv["header"]: the first line of')
    assert complaint(tmp_path / "bare.csv").endswith('write csv={"header": "yes"} or csv={"header": "no"}')
    (tmp_path / "gap.csv").write_text("h,w\n,1\n2,1\n", encoding="utf-8")
    assert 'write missing="drop" to leave rows' in complaint(tmp_path / "gap.csv", column="h")
    assert complaint(people, column="age", sep=";").startswith("csv: 'sep' is not one of its fields; write delimiter,")
    assert complaint(people, column="age", decimal=";").startswith('csv["decimal"]: ')
    assert complaint(people, MOVE, "x").startswith("column: a vector takes")
    assert complaint(people, column="age", yes="bus").startswith('csv["yes"]: is for a yes/no question')
    assert complaint([1.0], decimal=",").startswith("csv: says how a CSV file is to be read")
    for told in (complaint(people), complaint(tmp_path / "gap.csv", column="h"), complaint(people, column="age")):
        assert "--" not in told


def test_a_label_but_for_capitals_is_not_taken_for_another_one(tmp_path: Path) -> None:
    path = tmp_path / "ways.csv"
    path.write_text("way,n\nBus,1\ntram,1\n", encoding="utf-8")
    assert "1 with none of the labels (line 2)" in complaint(path, CategoryDomain(("bus", "rest"), "rest"), "way")


def test_a_simulation_counts_the_rows_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "ages.csv"
    path.write_text("age,n\n34,1\n,2\n51,3\n", encoding="utf-8")
    domain = {"kind": "number", "lower": 0, "upper": 110}
    run = hush.simulate(data=path, column="age", domain=domain, missing="drop", clients=40, engine="memory", seed=1)
    assert run.to_document()["data"] == {"rows": 3, "missing": 1, "treatment": "drop", "resampled": True}
    assert run.result.n == 40
    with pytest.raises(OptionError, match="csv: describes your data"):
        hush.simulate(csv={"decimal": ","})
