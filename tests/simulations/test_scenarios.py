"""Scenarios of categories, vectors and several epsilons: built in, from files, and from somebody's own data."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asked import experiment_of

from hush import SCENARIOS, HushError
from hush_simulations import scenarios
from hush_simulations.commands.simulate import Request
from hush_simulations.scenarios.population import Frequencies, Independent, Observed
from hush_simulations.scenarios.scenario_file import find_scenario, read_scenario

FILES = Path(scenarios.__file__).parent / "shipped"
COMMUTE, OFFICES, SLEEP = (
    (FILES / f"{name}.toml").read_text(encoding="utf-8") for name in ("commute", "offices", "sleep")
)


TROUBLED = ["flaky-links", "forgetful-broker", "gateway", "many-rounds", "poisoned", "two-groups"]


def complaint(text: str, directory: Path, **options: Any) -> str:  # noqa: ANN401 - any option
    path = directory / "scenario.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(HushError) as caught:
        experiment_of(Request(scenario=str(path), **options))
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_each_file_that_ships_is_a_scenario_and_there_are_no_others() -> None:
    plain = ["commute", "heights", "offices", "sleep", "survey"]
    assert list(SCENARIOS) == sorted([*plain, *TROUBLED])
    assert "nonsense" not in SCENARIOS


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_copy_of_a_file_that_ships_is_the_same_scenario(name: str, tmp_path: Path) -> None:
    copy = tmp_path / "mine.toml"
    copy.write_bytes((FILES / f"{name}.toml").read_bytes())
    assert find_scenario(str(copy)) == find_scenario(name)
    assert SCENARIOS[name].task().id == name


@pytest.mark.parametrize("name", SCENARIOS)
def test_everybody_in_a_scenario_has_a_value_that_its_task_admits(name: str) -> None:
    scenario = SCENARIOS[name]
    task = scenario.task()
    for value in scenario.population.draw(200, np.random.default_rng(1)):
        task.domain.index(value)


def test_a_label_without_a_share_has_none_and_the_order_is_that_of_the_task() -> None:
    scenario = read_scenario(FILES / "commute.toml")
    assert isinstance(scenario.population, Frequencies)
    assert scenario.population.labels[:2] == ("car", "bus")
    assert isinstance(SCENARIOS["offices"].population, Independent)


@pytest.mark.parametrize(
    ("text", "change", "words"),
    [
        (
            COMMUTE,
            ("car = 0.42", "cra = 0.42"),
            "population.frequencies: 'cra' does not fit: the task has no such label",
        ),
        (COMMUTE, ("car = 0.42", "car = -1.0"), "population.frequencies: -1.0 for 'car' is negative"),
        (COMMUTE, ('kind = "frequencies"', 'kind = "independent"'), "population"),
        (COMMUTE, ('kind = "category"', 'kind = "bit"'), "unknown field"),
        (OFFICES, ("humidity = [{", "dampness = [{"), "name each coordinate of the task once"),
        (OFFICES, ("sd = 1.8", "sd = -1.8"), "population.sd"),
        (
            SLEEP,
            ('kind = "mixture"\nparts = [{ mean = 7.1, sd = 1.2 }]', 'kind = "bernoulli"\nproportion = 0.5'),
            '"mixture"',
        ),
        (SLEEP, ("clients = 1000", "shares = [1.0, 2.0]"), "2 shares, and the task has 3 offers"),
        (SLEEP, ("clients = 1000", "shares = [0.0, 0.0, 0.0]"), "all are 0"),
        (SLEEP, ("[task]", '[task]\nrelease_every = "1d"'), "release_every: a simulation shows each estimate at once"),
    ],
)
def test_a_mistake_in_a_file_is_one_line(tmp_path: Path, text: str, change: tuple[str, str], words: str) -> None:
    assert change[0] in text
    assert words in complaint(text.replace(*change), tmp_path)


def test_people_of_the_wrong_kind_are_refused_with_the_right_one(tmp_path: Path) -> None:
    text = SLEEP[: SLEEP.index("[population]")] + '[population]\nkind = "frequencies"\nfrequencies = { a = 1.0 }\n'
    assert '"frequencies" draws no values of this domain; write "mixture"' in complaint(text, tmp_path)


def test_columns_named_as_the_coordinates_are_the_vectors(tmp_path: Path) -> None:
    text = OFFICES[: OFFICES.index("[population]")] + '[population]\nkind = "csv"\nfile = "o.csv"\n'
    (tmp_path / "o.toml").write_text(text, encoding="utf-8")
    (tmp_path / "o.csv").write_text("noise,temperature,humidity,carbon dioxide\n40,21,50,800\n", encoding="utf-8")
    scenario = read_scenario(tmp_path / "o.toml")
    assert isinstance(scenario.population, Observed)
    assert scenario.population.values == ((21.0, 50.0, 800.0, 40.0),)
    assert "drop it" in complaint(text + 'column = "noise"\n', tmp_path)


def test_a_column_of_labels_is_a_scenario_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text("way\nbus\ncar\nbus\n", encoding="utf-8")
    experiment = experiment_of(Request(csv=path, labels="car, bus"))
    task = experiment.scenario.task()
    assert (experiment.values, experiment.seed, task.mechanism, task.title) == (
        ("bus", "car", "bus"),
        None,
        "subset_selection",
        "Shares of way",
    )
    with pytest.raises(HushError, match="--unit: is for numbers, and --labels for categories"):
        experiment_of(Request(csv=path, labels="car, bus", unit="cm"))
    with pytest.raises(HushError, match="--csv FILE"):
        experiment_of(Request(labels="car, bus"))


def test_choices_follow_the_shares_and_nothing_else() -> None:
    even = experiment_of(Request(scenario="sleep", clients=9000, seed=1))
    counts = np.bincount(even.choices)
    assert counts == pytest.approx(3000, abs=6 * np.sqrt(9000 * 2 / 9))
    uneven = experiment_of(Request(scenario="sleep", clients=9000, seed=1, shares="0,1,3"))
    assert np.bincount(uneven.choices, minlength=3) == pytest.approx([0, 2250, 6750], abs=6 * np.sqrt(9000 * 3 / 16))
    assert even.values == uneven.values
    assert np.corrcoef(np.array(even.values, dtype=float), even.choices)[0, 1] == pytest.approx(
        0, abs=6 / np.sqrt(9000)
    )


def test_choices_come_from_the_seed_and_own_data_get_one_for_them(tmp_path: Path) -> None:
    first, second, other = (experiment_of(Request(scenario="sleep", seed=seed)).choices for seed in (1, 1, 2))
    assert first == second != other
    (tmp_path / "s.csv").write_text("h\n7\n8\n", encoding="utf-8")
    text = SLEEP[: SLEEP.index("[population]")] + '[population]\nkind = "csv"\nfile = "s.csv"\n'
    (tmp_path / "s.toml").write_text(text, encoding="utf-8")
    experiment = experiment_of(Request(scenario=str(tmp_path / "s.toml")))
    assert (len(experiment.choices), experiment.seed is not None) == (2, True)


def test_another_epsilon_is_the_only_one() -> None:
    experiment = experiment_of(Request(scenario="sleep", epsilon="1"))
    assert (experiment.scenario.task().offers, experiment.choices) == ((), ())
    with pytest.raises(HushError, match="--shares: 2 shares, and the task has one epsilon"):
        experiment_of(Request(scenario="heights", shares="1,2"))


def test_a_mistake_in_the_table_that_a_file_names_is_told_by_the_field_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("h,w\n7,x\n", encoding="utf-8")
    head = SLEEP[: SLEEP.index("[population]")] + '[population]\nkind = "csv"\n'
    assert complaint(head + 'file = "gone.csv"\n', tmp_path).startswith("population.file: ")
    assert complaint(head + 'file = "s.csv"\n', tmp_path).startswith("population.column: is missing")
    assert complaint(head + 'file = "s.csv"\ncolumn = "w"\n', tmp_path).startswith("population.file: ")
    assert "1 with text (line 2)" in complaint(head + 'file = "s.csv"\ncolumn = "w"\n', tmp_path)


def test_a_file_says_how_its_table_is_read_and_is_told_in_its_own_words(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("h;w\n7,5;x\nNA;x\n", encoding="utf-8")
    head = SLEEP[: SLEEP.index("[population]")] + '[population]\nkind = "csv"\nfile = "s.csv"\ncolumn = "h"\n'
    assert 'write decimal = ","' in complaint(head, tmp_path)
    assert 'write missing = "drop"' in complaint(head, tmp_path)
    assert "--" not in complaint(head, tmp_path)
    (tmp_path / "s.toml").write_text(head + 'decimal = ","\nmissing = "replace"\n', encoding="utf-8")
    population = read_scenario(tmp_path / "s.toml").population
    assert isinstance(population, Observed)
    assert (population.values, population.missing) == ((7.5, None), 1)


def test_a_scenario_of_another_size_asks_the_same_task_and_one_of_another_epsilon_another() -> None:
    asked = SCENARIOS["heights"]
    assert asked.of_size(12).task() is asked.task()
    other = asked.asking(epsilon="2").task()
    assert other.epsilon == 2
    assert other.digest != asked.task().digest
    with pytest.raises(HushError, match="epsilon"):
        asked.asking(epsilon="-1").task()
