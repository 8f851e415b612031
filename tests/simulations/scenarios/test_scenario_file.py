"""What a scenario file may say of its task, its people and their network; and `hush scenario`."""

from pathlib import Path

import pytest
from commands import run

from hush import SCENARIOS, HushError, Scenario
from hush_simulations import scenarios
from hush_simulations.scenarios.behaviour import Dropout, Nonresponse, Panel
from hush_simulations.scenarios.population import Frequencies, Grouped, Independent, Lognormal, Observed, zipf_numbers
from hush_simulations.scenarios.scenario_file import find_scenario, parse_scenario, read_scenario

SHIPPED = Path(scenarios.__file__).parent / "shipped"
TASK = '[task]\nid = "t"\ntitle = "T"\nepsilon = "1"\n'
NUMBER = TASK + '[task.domain]\nkind = "number"\nlower = 0.0\nupper = 60.0\nunit = "kg"\n'
LABELS = TASK + '[task.domain]\nkind = "category"\nlabels = ["a", "b", "c"]\n'
VECTOR = TASK + '[task.domain]\nkind = "vector"\ncoordinates = [{ name = "x", lower = 0.0, upper = 1.0 }]\n'
BIT = TASK + '[task.domain]\nkind = "bit"\n'
OFFERS = TASK + 'offers = ["0.5", "1"]\n' + BIT.removeprefix(TASK)
NORMAL = '[population]\nkind = "mixture"\nparts = [{ mean = 20.0, sd = 5.0 }]\n'
YES = '[population]\nkind = "bernoulli"\nproportion = 0.5\n'
SHARES = '[population]\nkind = "frequencies"\nfrequencies = { a = 0.5, b = 0.5 }\n'
CSV = '[population]\nkind = "csv"\nfile = "people.csv"\n'
GROUPS = (
    '[population]\nkind = "groups"\n'
    '[[population.groups]]\nname = "day"\nshare = 3.0\npeople = { kind = "lognormal", median = 10.0, sigma = 0.5 }\n'
    '[[population.groups]]\nname = "night"\nshare = 1.0\npeople = { kind = "zipf", exponent = 1.0, largest = 9 }\n'
)
HALF = "share = 0.5\n"
ZIPF, SKEWED = '[population]\nkind = "zipf"\nexponent = ', '[population]\nkind = "lognormal"\nmedian = '


def read(text: str, folder: Path = Path()) -> Scenario:
    return parse_scenario(text, folder / "mine.toml")


def refusal(text: str, folder: Path = Path()) -> str:
    with pytest.raises(HushError) as caught:
        read(text, folder)
    message = str(caught.value)
    assert caught.value.exit_code == 2
    assert "\n" not in message
    return message


def test_each_kind_of_population_is_what_the_file_says() -> None:
    assert read("clients = 30\n" + NUMBER + NORMAL).clients == 30
    assert read(
        NUMBER + NORMAL.replace("}]", "}, { weight = 2.0, mean = 50.0, sd = 8 }]")
    ).population.mean == pytest.approx(40)
    assert read(NUMBER + SKEWED + "20.0\nsigma = 0.7\n").population == Lognormal(20.0, 0.7)
    assert read(NUMBER + ZIPF + "1.5\nlargest = 40\n").population == zipf_numbers(1.5, 40)
    population = read(LABELS + ZIPF + "1.5\n").population
    assert isinstance(population, Frequencies)
    assert population.weights == pytest.approx((1, 2**-1.5, 3**-1.5))
    coordinate = '[population]\nkind = "independent"\n[population.coordinates]\n'
    vectors = read(VECTOR + coordinate + 'x = { kind = "lognormal", median = 0.5, sigma = 0.1 }\n')
    assert vectors.population == Independent((Lognormal(0.5, 0.1),))


def test_a_label_without_a_share_has_none_in_the_order_of_the_task() -> None:
    people = read(LABELS + '[population]\nkind = "frequencies"\nfrequencies = { c = 0.5, a = 0.5 }\n').population
    assert isinstance(people, Frequencies)
    assert (people.labels, people.weights) == (("a", "b", "c"), (0.5, 0.0, 0.5))


def test_groups_have_names_shares_and_populations() -> None:
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
    vectors = VECTOR + '[population]\nkind = "independent"\ncoordinates = { x = [{ mean = 0.5, sd = 0.1 }] }\n'
    assert read("rounds = 3\ndrift = { x = 0.1 }\n" + vectors).panel == Panel((0.1,))


def test_rows_of_a_file_are_people_or_those_of_a_group(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("h\n7\n8\nNA\n", encoding="utf-8")
    alone = read(NUMBER + CSV + 'missing = "drop"\n', tmp_path)
    assert isinstance(alone.population, Observed)
    assert (alone.population.values, alone.clients) == ((7.0, 8.0), 2)
    text = GROUPS.replace('"lognormal", median = 10.0, sigma = 0.5', '"csv", file = "people.csv", missing = "drop"')
    people = read(NUMBER + text, tmp_path).population
    assert isinstance(people, Grouped)
    rows = people.groups[0].people
    assert isinstance(rows, Observed)
    assert (rows.values, rows.resampled, people.mean) == ((7.0, 8.0), True, None)


def test_the_file_says_how_its_table_is_read(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("h;w\n7,5;x\nNA;x\n", encoding="utf-8")
    head = NUMBER + CSV
    assert refusal(head, tmp_path).startswith("population.column: ")
    untold = refusal(head + 'column = "h"\n', tmp_path)
    assert untold.startswith("population.file: ")
    assert 'decimal = ","' in untold
    assert 'missing = "drop"' in untold
    assert "--" not in untold
    assert "line 2" in refusal(head + 'column = "w"\ndecimal = ","\n', tmp_path)
    people = read(head + 'column = "h"\ndecimal = ","\nmissing = "replace"\n', tmp_path).population
    assert isinstance(people, Observed)
    assert (people.values, people.missing) == ((7.5, None), 1)
    assert refusal(head.replace("people.csv", "gone.csv"), tmp_path).startswith("population.file: ")


def test_columns_named_as_the_coordinates_are_vectors(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("n,x\n1,0.5\n2,1\n", encoding="utf-8")
    people = read(VECTOR + CSV, tmp_path).population
    assert isinstance(people, Observed)
    assert people.values == ((0.5,), (1.0,))
    assert refusal(VECTOR + CSV + 'column = "x"\n', tmp_path).startswith("population.column: ")


def test_rows_of_a_parquet_file_are_people(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"h": [7.0, None, 80.0], "w": ["x", "y", "z"]}), tmp_path / "p.parquet")
    head = NUMBER + '[population]\nkind = "parquet"\nfile = "p.parquet"\n'
    people = read(head + 'column = "h"\nmissing = "replace"\n', tmp_path).population
    assert isinstance(people, Observed)
    assert (people.values, people.missing) == ((7.0, None, 80.0), 1)
    assert refusal(head, tmp_path).startswith("population.column: ")
    missing = refusal(head + 'column = "h"\n', tmp_path)
    assert "1 of 3 rows" in missing
    assert 'missing = "drop"' in missing
    for wrong in (head + 'column = "w"\n', head.replace("p.parquet", "q.parquet"), head.replace("p.parquet", "p.csv")):
        assert refusal(wrong, tmp_path).startswith("population.file: ")


@pytest.mark.parametrize(
    ("text", "field", "named"),
    [
        ("[task", "mine.toml", ""),
        (NUMBER, "population", ""),
        ("client = 0\n" + NUMBER + NORMAL, "client", ""),
        ("clients = 0\n" + NUMBER + NORMAL, "clients", "'0'"),
        ("rounds = 0\n" + NUMBER + NORMAL, "rounds", "'0'"),
        ("gateways = 0\n" + BIT + YES, "gateways", "'0'"),
        (NUMBER.replace('"1"', "0.5") + NORMAL, "epsilon", "0.5"),
        (NUMBER.replace("lower = 0.0", "lower = 300.0") + NORMAL, "domain.lower", "300"),
        (NUMBER.replace("[task]", '[task]\nrelease_every = "1d"') + NORMAL, "task.release_every", ""),
        ("shares = [1.0, 2.0]\n" + NUMBER + NORMAL, "shares", "2"),
        ("shares = [1.0, 2.0, 1.0]\n" + OFFERS + YES, "shares", "3"),
        ("shares = [0.0, 0.0]\n" + OFFERS + YES, "shares", "0"),
        (NUMBER + NORMAL.replace("sd = 5.0", "sd = -5.0"), "population.sd", "-5.0"),
        (NUMBER + NORMAL.replace("mean = 20.0", "mean = 20.0, weight = -1.0"), "population.weight", "-1.0"),
        (NUMBER + NORMAL.replace("mean = 20.0", "mean = 20.0, weight = inf"), "population.weight", "inf"),
        (NUMBER + NORMAL.replace("mean = 20.0", "mean = 20.0, weight = 0.0"), "population.parts", ""),
        (NUMBER + NORMAL.replace("mean = 20.0", "mean = nan"), "population.mean", "nan"),
        (NUMBER + NORMAL.replace("mean = 20.0", "mean = '20'"), "population.parts.0.mean", "'20'"),
        (NUMBER + NORMAL.replace("mean = 20.0", "mean = 20.0, skew = 1.0"), "population.parts.0.skew", ""),
        (NUMBER + '[population]\nkind = "mixture"\nparts = []\n', "population.parts", ""),
        (NUMBER + NORMAL + "colour = 1\n", "population.colour", ""),
        (NUMBER + SKEWED + "-2.0\nsigma = 1.0\n", "population.median", "-2.0"),
        (NUMBER + SKEWED + "2.0\nsigma = 0.0\n", "population.sigma", "0.0"),
        (NUMBER + ZIPF + "1.0\n", "population.largest", ""),
        (NUMBER + ZIPF + "-1.0\nlargest = 5\n", "population.exponent", "-1.0"),
        (NUMBER + ZIPF + "1.0\nlargest = 0\n", "population.largest", "0"),
        (LABELS + ZIPF + "1.0\nlargest = 5\n", "population.largest", ""),
        (LABELS + SHARES.replace("b =", "z ="), "population.frequencies", "'z'"),
        (LABELS + SHARES.replace("a = 0.5", "a = -1.0"), "population.frequencies", "-1.0"),
        (BIT + ZIPF + "1.0\n", "population.kind", "zipf"),
        (NUMBER + SHARES, "population.kind", "mixture"),
        (NUMBER + YES, "population.kind", "mixture"),
        (NUMBER + '[population]\nkind = "normal"\n', "population", "mixture"),
        (NUMBER + GROUPS.replace("3.0", "-3.0"), "population.groups.share", "-3.0"),
        (NUMBER + GROUPS.replace('"night"', '"day"'), "population.groups.name", ""),
        (NUMBER + GROUPS.replace('"zipf"', '"groups"'), "population.groups.1.people", ""),
        (NUMBER + '[population]\nkind = "groups"\ngroups = []\n', "population.groups", ""),
        (VECTOR + '[population]\nkind = "independent"\ncoordinates = { y = [] }\n', "population.coordinates", ""),
        ("drift = 1.0\n" + BIT + YES, "drift", ""),
        ("drift = { x = 1.0 }\n" + NUMBER + NORMAL, "drift", ""),
        ("rounds = 9\ndrift = 8.0\n" + NUMBER + NORMAL, "drift", "9 rounds"),
        ("drift = inf\n" + NUMBER + NORMAL, "drift", ""),
        ("[dropout]\nshare = 1.0\n" + NUMBER + NORMAL, "dropout.share", "1.0"),
        ("[dropout]\nshare = 0.5\ncorrelation = -0.5\n" + NUMBER + NORMAL, "dropout.correlation", "-0.5"),
        ("[dropout]\ncorrelation = 0.5\n" + NUMBER + NORMAL, "dropout.share", ""),
        ("[[nonresponse]]\nshare = 2.0\nabove = 1.0\n" + NUMBER + NORMAL, "nonresponse.share", "2.0"),
        ("[[nonresponse]]\n" + HALF + NUMBER + NORMAL, "nonresponse", ""),
        ("[[nonresponse]]\n" + HALF + "above = nan\n" + NUMBER + NORMAL, "nonresponse.above", ""),
        ("[[nonresponse]]\n" + HALF + "values = [1]\n" + NUMBER + NORMAL, "nonresponse.values", ""),
        ("[[nonresponse]]\n" + HALF + "above = 1.0\n" + BIT + YES, "nonresponse.above", ""),
        ("[[nonresponse]]\n" + HALF + "values = [2]\n" + BIT + YES, "nonresponse.values", "'2'"),
        ("[[nonresponse]]\n" + HALF + "group = 'x'\n" + BIT + YES, "nonresponse.group", "'x'"),
        ("[network]\nlost = 1.5\n" + BIT + YES, "network.lost", "1.5"),
        ("[network]\nlost = 0.6\n" + BIT + YES, "network.lost", "0.5"),
        ("[network]\ntwice = 0.6\nlate = 0.6\n" + BIT + YES, "network", "1"),
        ("[network]\nforgotten = 0.1\ncut = 0.1\n" + BIT + YES, "network.forgotten", ""),
        ("[network]\nreordered = -0.1\n" + BIT + YES, "network.reordered", "-0.1"),
        ("[network]\nslow = 0.1\n" + BIT + YES, "network.slow", ""),
        ("[[liars]]\nshare = -0.1\nlie = 'edge'\n" + BIT + YES, "liars.share", "-0.1"),
        ("[[liars]]\nshare = 0.1\nlie = 'value'\n" + BIT + YES, "liars.value", ""),
        ("[[liars]]\nshare = 0.1\nlie = 'edge'\nvalue = 1\n" + BIT + YES, "liars.value", ""),
        ("[[liars]]\nshare = 0.1\nlie = 'value'\nvalue = 'yes'\n" + BIT + YES, "liars.value", "'yes'"),
        ("[[liars]]\nshare = 0.1\nlie = 'edge'\nreports = 0\n" + BIT + YES, "liars.reports", "0"),
        ("[[liars]]\nshare = 0.6\nlie = 'edge'\n[[liars]]\nshare = 0.6\nlie = 'edge'\n" + BIT + YES, "liars", "1"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_file_names_its_field_and_value(text: str, field: str, named: str) -> None:
    message = refusal(text)
    assert message.startswith(f"{field}:") or field == "mine.toml" in message
    assert named in message


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_copy_of_a_shipped_file_is_the_same_scenario(name: str, tmp_path: Path) -> None:
    copy = tmp_path / "mine.toml"
    copy.write_bytes((SHIPPED / f"{name}.toml").read_bytes())
    assert find_scenario(str(copy)) == find_scenario(name) == read_scenario(copy)
    assert SCENARIOS[name].task().id == name


def test_each_shipped_file_is_a_scenario() -> None:
    assert list(SCENARIOS) == sorted(path.stem for path in SHIPPED.glob("*.toml"))
    assert "nonsense" not in SCENARIOS


def test_another_size_asks_the_same_task_and_another_epsilon_another() -> None:
    asked = SCENARIOS["heights"]
    assert asked.of_size(12).task() is asked.task()
    other = asked.asking(epsilon="2").task()
    assert other.epsilon == 2
    assert other.digest != asked.task().digest
    with pytest.raises(HushError, match="epsilon"):
        asked.asking(epsilon="-1").task()


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("hieghts", "'heights'"),
        ("xyz", "TOML"),
        ("nowhere.toml", "nowhere.toml"),
        ("people.csv", "--csv"),
        ("data/People.CSV", "--csv"),
        ("people.tsv", "--csv"),
    ],
)
def test_a_name_that_is_not_a_scenario_is_refused_with_a_remedy(name: str, named: str) -> None:
    with pytest.raises(HushError) as caught:
        find_scenario(name)
    assert named in str(caught.value)


@pytest.mark.parametrize("command", [("simulate",), ("simulate", "--engine", "bulk"), ("scenario", "check")])
def test_every_command_refuses_a_wrong_file_in_one_line(command: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("height,name\n1.5,Ada\n1.6,Grace\n", encoding="utf-8")
    (tmp_path / "mine.toml").write_text(NUMBER + CSV + 'column = "name"\n', encoding="utf-8")
    shown = run([*command, "mine.toml"], tmp_path)
    (line,) = shown.err.splitlines()
    assert (shown.code, shown.out) == (2, "")
    assert line.startswith("hush: population.file: ")
    assert "Ada" not in line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.toml", "people.csv"]


def test_hush_scenario_lists_shows_and_checks(tmp_path: Path) -> None:
    listed = " ".join(run(["scenario", "list"], tmp_path).out.split())
    for name, scenario in SCENARIOS.items():
        assert name in listed
        assert scenario.about.split(".")[0] in listed
    text = (SHIPPED / "survey.toml").read_text(encoding="utf-8")
    assert run(["scenario", "show", "survey"], tmp_path).out == text
    assert run(["scenario", "show", "heigths"], tmp_path).code == 2
    assert run(["scenario", "show", "./a.toml"], tmp_path).code == 2


def test_a_new_scenario_is_a_copy_that_is_never_written_over(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    assert run(["scenario", "new", "mine.toml", "--like", "survey"], tmp_path).code == 0
    assert file.read_bytes() == (SHIPPED / "survey.toml").read_bytes()
    checked = run(["scenario", "check", "mine.toml"], tmp_path)
    assert checked.code == 0
    assert "500" in checked.out
    file.write_text("mine", encoding="utf-8")
    assert run(["scenario", "new", "mine.toml", "--like", "survey"], tmp_path).code == 2
    assert file.read_text(encoding="utf-8") == "mine"
    assert run(["scenario", "new", "x/y.toml", "--like", "none"], tmp_path).code == 2
