"""What a scenario file may say of its people: each kind of population, groups, drift, dropout and non-response."""

from pathlib import Path

import pytest

from hush import HushError, Scenario
from hush_simulations.scenarios.behaviour import Dropout, Nonresponse, Panel
from hush_simulations.scenarios.population import Frequencies, Grouped, Independent, Lognormal, Observed, zipf_numbers
from hush_simulations.scenarios.scenario_file import parse_scenario

TASK = '[task]\nid = "t"\ntitle = "T"\nepsilon = "1"\n'
NUMBER = TASK + '[task.domain]\nkind = "number"\nlower = 0.0\nupper = 60.0\n'
LABELS = TASK + '[task.domain]\nkind = "category"\nlabels = ["a", "b", "c"]\n'
VECTOR = TASK + '[task.domain]\nkind = "vector"\ncoordinates = [{ name = "x", lower = 0.0, upper = 1.0 }]\n'
BIT = TASK + '[task.domain]\nkind = "bit"\n'
NORMAL = '[population]\nkind = "mixture"\nparts = [{ mean = 20.0, sd = 5.0 }]\n'
YES = '[population]\nkind = "bernoulli"\nproportion = 0.5\n'
GROUPS = (
    '[population]\nkind = "groups"\n'
    '[[population.groups]]\nname = "day"\nshare = 3.0\npeople = { kind = "lognormal", median = 10.0, sigma = 0.5 }\n'
    '[[population.groups]]\nname = "night"\nshare = 1.0\npeople = { kind = "zipf", exponent = 1.0, largest = 9 }\n'
)


def read(text: str, folder: Path = Path()) -> Scenario:
    return parse_scenario(text, folder / "mine.toml")


def test_each_kind_of_population_is_what_the_file_says() -> None:
    skewed = '[population]\nkind = "lognormal"\nmedian = 20.0\nsigma = 0.7\n'
    assert read(NUMBER + skewed).population == Lognormal(20.0, 0.7)
    few = '[population]\nkind = "zipf"\nexponent = 1.5\n'
    assert read(NUMBER + few + "largest = 40\n").population == zipf_numbers(1.5, 40)
    population = read(LABELS + few).population
    assert isinstance(population, Frequencies)
    assert population.weights == pytest.approx((1, 2**-1.5, 3**-1.5))
    coordinate = '[population]\nkind = "independent"\n[population.coordinates]\n'
    vectors = read(VECTOR + coordinate + 'x = { kind = "lognormal", median = 0.5, sigma = 0.1 }\n')
    assert vectors.population == Independent((Lognormal(0.5, 0.1),))


def test_groups_have_names_shares_and_populations_of_their_own() -> None:
    scenario = read(NUMBER + GROUPS)
    people = scenario.population
    assert isinstance(people, Grouped)
    assert (scenario.groups, people.shares) == (("day", "night"), (0.75, 0.25))
    assert people.mean == pytest.approx(0.75 * Lognormal(10.0, 0.5).mean + 0.25 * zipf_numbers(1.0, 9).mean)


def test_how_people_behave_from_round_to_round_is_read() -> None:
    said = (
        "rounds = 3\ndrift = 2.0\n[dropout]\nshare = 0.2\ncorrelation = 0.5\n[[nonresponse]]\nshare = 0.4\nabove = 30\n"
    )
    panel = Panel((2.0,), Dropout(0.2, 0.5), (Nonresponse(0.4, above=30.0),))
    assert read(said + NUMBER + NORMAL).panel == panel
    said = "rounds = 3\ndrift = { x = 0.1 }\n" + VECTOR
    assert read(
        said + '[population]\nkind = "independent"\ncoordinates = { x = [{ mean = 0.5, sd = 0.1 }] }\n'
    ).panel == (Panel((0.1,)))


def test_rows_of_a_file_are_people_of_a_group_as_often_as_they_are_drawn(tmp_path: Path) -> None:
    (tmp_path / "day.csv").write_text("h\n7\n8\nNA\n", encoding="utf-8")
    text = GROUPS.replace('"lognormal", median = 10.0, sigma = 0.5', '"csv", file = "day.csv", missing = "drop"')
    people = read(NUMBER + text, tmp_path).population
    assert isinstance(people, Grouped)
    rows = people.groups[0].people
    assert isinstance(rows, Observed)
    assert (rows.values, rows.resampled, people.mean) == ((7.0, 8.0), True, None)


def test_rows_of_a_parquet_file_are_people(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"h": [7.0, None, 80.0], "w": ["x", "y", "z"]}), tmp_path / "p.parquet")
    head = NUMBER + '[population]\nkind = "parquet"\nfile = "p.parquet"\n'
    people = read(head + 'column = "h"\nmissing = "replace"\n', tmp_path).population
    assert isinstance(people, Observed)
    assert (people.values, people.missing) == ((7.0, None, 80.0), 1)
    assert complaint(head, tmp_path).startswith("population.column: is missing")
    missing = complaint(head + 'column = "h"\n', tmp_path)
    assert "population.file: 1 of 3 rows have no value" in missing
    assert 'write missing = "drop" or missing = "replace"' in missing
    assert "text, and a number is asked for" in complaint(head + 'column = "w"\n', tmp_path)
    assert "cannot be read" in complaint(head.replace("p.parquet", "q.parquet"), tmp_path)
    assert "does not end in .parquet" in complaint(head.replace("p.parquet", "p.csv"), tmp_path)


def complaint(text: str, folder: Path = Path()) -> str:
    with pytest.raises(HushError) as caught:
        read(text, folder)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message.rpartition(";")[2]) > 5 or ":" in message.partition(":")[2], message
    return message


HALF = "share = 0.5\n"
ZIPF, SKEWED = '[population]\nkind = "zipf"\nexponent = ', '[population]\nkind = "lognormal"\nmedian = '


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (NUMBER + NORMAL.replace("sd = 5.0", "sd = -5.0"), "population.sd: -5.0 is negative"),
        (NUMBER + NORMAL.replace("mean = 20.0", "mean = 20.0, weight = -1.0"), "population.weight: -1.0 is negative"),
        (NUMBER + NORMAL.replace("mean = 20.0", "mean = 20.0, weight = 0.0"), "population.parts: no group has a pos"),
        (NUMBER + NORMAL.replace("mean = 20.0", "mean = nan"), "population.mean: nan is not a finite number"),
        (NUMBER + '[population]\nkind = "mixture"\nparts = []\n', "population.parts: no group has a positive weight"),
        ("clients = 0\n" + NUMBER + NORMAL, "clients: '0' in mine.toml: input should be greater than or equal to 1"),
        (NUMBER + NORMAL.replace("mean = 20.0", "mean = '20'"), "population.parts.0.mean: '20' in mine.toml"),
        (NUMBER + NORMAL + "colour = 1\n", "population.colour: unknown field"),
        (NUMBER + SKEWED + "-2.0\nsigma = 1.0\n", "population.median: -2.0 is not"),
        (NUMBER + SKEWED + "2.0\nsigma = 0.0\n", "population.sigma: 0.0 is not above"),
        (NUMBER + ZIPF + "1.0\n", "population.largest: is missing; write the"),
        (NUMBER + ZIPF + "-1.0\nlargest = 5\n", "population.exponent: -1.0 is not from"),
        (NUMBER + ZIPF + "1.0\nlargest = 0\n", "population.largest: 0 is outside 1 to"),
        (LABELS + ZIPF + "1.0\nlargest = 5\n", "population.largest: is for numbers"),
        (BIT + ZIPF + "1.0\n", 'population.kind: "zipf" draws no values of this'),
        (NUMBER + '[population]\nkind = "normal"\n', 'population: in mine.toml needs kind = "mixture", "lognormal"'),
        (NUMBER + GROUPS.replace("3.0", "-3.0"), "population.groups.share: -3.0 is negative"),
        (NUMBER + GROUPS.replace('"night"', '"day"'), "population.groups.name: two groups have one name"),
        (NUMBER + GROUPS.replace('"zipf"', '"groups"'), "population.groups.1.people: in mine.toml needs kind"),
        (NUMBER + '[population]\nkind = "groups"\ngroups = []\n', "population.groups: no group has a positive share"),
        ("drift = 1.0\n" + BIT + YES, "drift: is for numbers"),
        ("drift = { x = 1.0 }\n" + NUMBER + NORMAL, "drift: by coordinate is for vectors"),
        ("rounds = 9\ndrift = 8.0\n" + NUMBER + NORMAL, "drift: 8 in 9 rounds moves values farther than the bounds"),
        ("drift = inf\n" + NUMBER + NORMAL, "drift: is not finite"),
        ("[dropout]\nshare = 1.0\n" + NUMBER + NORMAL, "dropout.share: 1.0 is not from 0 to below 1"),
        ("[dropout]\nshare = 0.5\ncorrelation = -0.5\n" + NUMBER + NORMAL, "dropout.correlation: -0.5 is not from 0"),
        ("[dropout]\ncorrelation = 0.5\n" + NUMBER + NORMAL, "dropout.share: is missing in mine.toml"),
        ("[[nonresponse]]\nshare = 2.0\nabove = 1.0\n" + NUMBER + NORMAL, "nonresponse.share: 2.0 is not a share"),
        ("[[nonresponse]]\n" + HALF + NUMBER + NORMAL, "nonresponse: says of nobody that they refuse"),
        ("[[nonresponse]]\n" + HALF + "above = nan\n" + NUMBER + NORMAL, "nonresponse.above: or below is not finite"),
        ("[[nonresponse]]\n" + HALF + "values = [1]\n" + NUMBER + NORMAL, "nonresponse.values: are for categories"),
        ("[[nonresponse]]\n" + HALF + "above = 1.0\n" + BIT + YES, "nonresponse.above: and below are for numbers"),
        ("[[nonresponse]]\n" + HALF + "values = [2]\n" + BIT + YES, "nonresponse.values: '2' is not a value of this"),
        ("[[nonresponse]]\n" + HALF + "group = 'x'\n" + BIT + YES, "nonresponse.group: 'x' is not a group of the pop"),
        ("gateways = 0\n" + BIT + YES, "gateways: '0' in mine.toml: input should be greater"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_with_its_field_and_what_to_do(text: str, told: str) -> None:
    assert complaint(text).startswith(told)
