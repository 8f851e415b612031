import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asked import experiment_of
from servers import need

from hush import SCENARIOS, HushError
from hush_common.errors import BrokerError, OptionError, TaskError
from hush_simulations.brokers import choice
from hush_simulations.brokers.choice import mosquitto_broker, parse_broker
from hush_simulations.commands.options import (
    parse_confidence,
    parse_connections,
    parse_count,
    parse_port,
    parse_rounds,
    parse_seed,
)
from hush_simulations.commands.simulate import Request
from hush_simulations.display.files import prepare
from hush_simulations.engines.experiment import Experiment
from hush_simulations.engines.live import open_network
from hush_simulations.scenarios.population import Observed
from hush_simulations.scenarios.scenario_file import find_scenario, read_scenario

SCENARIO = """
clients = 30
[task]
id = "weights"
epsilon = "0.5"
[task.domain]
kind = "number"
lower = 0.0
upper = 200.0
unit = "kg"
[population]
kind = "mixture"
parts = [{ mean = 80.0, sd = 10.0 }, { weight = 2.0, mean = 65.0, sd = 8 }]
"""

OWN_SCENARIO = SCENARIO.partition("[population]")[0] + '[population]\nkind = "csv"\nfile = "people.csv"\n'


def complaint(**options: Any) -> str:  # noqa: ANN401 - any option
    with pytest.raises(HushError) as caught:
        experiment_of(Request(**options))
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        *((parse_count, text) for text in ("0", "-1", "abc", "", "1.5", "1000000001", "9" * 5000, "²")),
        *((parse_rounds, text) for text in ("0", "1001")),
        *((parse_connections, text) for text in ("0", "501")),
        *((parse_seed, text) for text in ("-1", "x", str(1 << 63))),
        *((parse_port, text) for text in ("-1", "65536", "http")),
        *((parse_confidence, text) for text in ("0", "1", "-0.1", "95", "nan", "inf", "high")),
    ],
)
def test_a_bad_value_is_named_in_one_line_with_a_remedy(parse: Callable[[str], object], text: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse(text)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 250
    assert text[:40] in message
    assert ";" in message


@pytest.mark.parametrize("text", ["rabbit", "http://x", "mqtt://", "mqtt://host:port", "kitchen:hunter2@host"])
def test_a_bad_broker_is_not_repeated_since_it_may_hold_a_password(text: str) -> None:
    with pytest.raises(OptionError, match=r"^--broker: [^\n]{,250}; write [^\n]*mqtt://") as caught:
        parse_broker(text)
    assert text.removeprefix("mqtt://") not in str(caught.value) or text == "mqtt://"


def test_good_values_are_read() -> None:
    assert (parse_count("500"), parse_rounds("3"), parse_connections("20"), parse_seed("0")) == (500, 3, 20, 0)
    assert parse_confidence("0.99") == 0.99
    assert [parse_broker(text) for text in ("embedded", "mosquitto", "mqtt://h:1")] == [
        "embedded",
        "mosquitto",
        "mqtt://h:1",
    ]


def test_a_password_in_an_address_is_not_repeated() -> None:
    with pytest.raises(OptionError) as caught:
        parse_broker("mqtt://ann:secret@host:0")
    assert "secret" not in str(caught.value)


def test_the_default_is_the_experiment_of_the_notebook() -> None:
    experiment = experiment_of(Request(seed=7))
    task = experiment.scenario.task()
    assert (len(experiment.values), experiment.seed, experiment.noise_seed) == (500, 7, None)
    assert (task.id, task.mechanism, task.unit) == ("heights", "laplace", "cm")
    assert task.epsilon == 1
    assert "171" not in repr(experiment)


def test_the_seed_fixes_the_people_and_a_missing_seed_is_made_up_and_told() -> None:
    first, second = experiment_of(Request(seed=7)), experiment_of(Request(seed=7))
    assert first.values == second.values
    experiment = experiment_of(Request())
    assert experiment.seed is not None
    assert experiment.values == experiment.scenario.population.draw(500, np.random.default_rng(experiment.seed))


def test_only_deterministic_noise_ties_the_noise_to_the_seed() -> None:
    assert experiment_of(Request(seed=7, deterministic_noise=True)).noise_seed == 7
    assert experiment_of(Request(seed=7)).noise_seed is None


@pytest.mark.parametrize(
    ("broker", "goes"),
    [
        (None, True),
        ("embedded", True),
        ("mosquitto", True),
        ("mqtt://127.0.0.1:1883", True),
        ("mqtt://ann:secret@LOCALHOST", True),
        ("mqtts://[::1]:8883", True),
        ("mqtt://127.0.0.2", True),
        ("mqtt://ann:secret@broker.example", False),
        ("mqtt://10.0.0.7:1883", False),
        ("mqtt://0.0.0.0", False),
        ("wss://localhost.example/mqtt", False),
    ],
)
def test_noise_of_a_seed_takes_ones_own_data_to_no_other_machine(
    tmp_path: Path, broker: str | None, *, goes: bool
) -> None:
    (tmp_path / "people.csv").write_text("h\n150\n160\n", encoding="utf-8")
    (tmp_path / "own.toml").write_text(OWN_SCENARIO, encoding="utf-8")
    for own in (
        Request(csv=tmp_path / "people.csv", lower="100", upper="200"),
        Request(scenario=str(tmp_path / "own.toml"), clients=9),
    ):
        assert experiment_of(replace(own, broker=broker)).noise_seed is None
        request = replace(own, broker=broker, deterministic_noise=True, seed=1)
        if goes:
            assert experiment_of(request).noise_seed == 1
            continue
        with pytest.raises(OptionError, match=r"would send your own data to .* a broker on this machine") as caught:
            experiment_of(request)
        assert "secret" not in str(caught.value)
    assert experiment_of(Request(broker=broker, deterministic_noise=True, seed=1)).noise_seed == 1


def test_epsilon_is_exact_and_split_over_rounds() -> None:
    task = experiment_of(Request(epsilon="0.3", rounds=3)).scenario.task()
    assert (task.rounds, str(task.epsilon_per_round)) == (3, "1/10")


@pytest.mark.parametrize("text", ["0", "nan", "60", "1e-9", "abc", "0,5", "-1", "1/2"])
def test_a_bad_epsilon_is_named(text: str) -> None:
    assert complaint(epsilon=text).startswith("--epsilon: ")
    assert text in complaint(epsilon=text)


def test_a_mechanism_that_does_not_fit_says_so() -> None:
    assert "does not fit a number" in complaint(mechanism="randomized_response")
    assert "does not fit a bit" in complaint(scenario="survey", mechanism="laplace")
    assert "'gauss'" in complaint(mechanism="gauss")


def test_an_unknown_scenario_lists_those_that_exist() -> None:
    assert {"commute", "heights", "offices", "sleep", "survey"} < {*SCENARIOS}
    assert f"there are {', '.join(SCENARIOS)}; did you mean 'heights'?" in complaint(scenario="hieghts")
    assert "name a TOML file" in complaint(scenario="xyz")


@pytest.mark.parametrize("name", ["people.csv", "data/People.CSV", "people.tsv"])
def test_a_file_of_values_in_the_place_of_a_scenario_is_told_from_one(name: str) -> None:
    with pytest.raises(OptionError, match="is a data file, not a scenario; write --csv FILE to simulate your data"):
        find_scenario(name)
    with pytest.raises(OptionError, match=r"scenario: .* write data=PATH to simulate"):
        find_scenario(name, "scenario")


def test_own_data_need_bounds_from_public_knowledge(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("h\n170\n180\n", encoding="utf-8")
    assert "never from the data" in complaint(csv=path, upper="250")
    assert "never from the data" in complaint(csv=path, lower="0")
    assert "5 is not below --upper 5" in complaint(csv=path, lower="5", upper="5")
    assert "not finite" in complaint(csv=path, lower="0", upper="inf")
    assert "overflows" in complaint(csv=path, lower="-1e308", upper="1e308")
    assert "--lower and --upper, from public knowledge" in complaint(csv=path)
    experiment = experiment_of(Request(csv=path, lower="0", upper="250", unit="cm", column="h"))
    assert (experiment.values, experiment.seed, experiment.scenario.task().title) == ((170.0, 180.0), None, "Mean of h")


def test_answers_of_ones_own_go_with_the_survey(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("q\nyes\nno\n", encoding="utf-8")
    assert experiment_of(Request(scenario="survey", csv=path)).values == (1, 0)
    assert "leave it out to use --csv" in complaint(scenario="heights", csv=path)


def test_options_that_say_nothing_are_refused() -> None:
    assert "--csv FILE" in complaint(column="h")
    assert "leave one of them out" in complaint(engine="memory", broker="embedded")


def test_a_scenario_may_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "weights.toml"
    path.write_text(SCENARIO, encoding="utf-8")
    experiment = experiment_of(Request(scenario=str(path), seed=1))
    assert len(experiment.values) == 30
    assert experiment.scenario.population.mean == pytest.approx(70.0)
    assert experiment.scenario.task().unit == "kg"


def test_the_data_of_a_scenario_lie_beside_its_file(tmp_path: Path) -> None:
    text = SCENARIO[: SCENARIO.index("[population]")] + '[population]\nkind = "csv"\nfile = "w.csv"\ncolumn = "w"\n'
    (tmp_path / "weights.toml").write_text(text, encoding="utf-8")
    (tmp_path / "w.csv").write_text("w\n70\n80\n", encoding="utf-8")
    scenario = read_scenario(tmp_path / "weights.toml")
    assert isinstance(scenario.population, Observed)
    assert (scenario.population.values, scenario.clients) == ((70.0, 80.0), 2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("[population]", "[people]"), "population: is missing"),
        (("clients = 30", "client = 30"), "unknown field"),
        (('kind = "mixture"', 'kind = "gamma"'), "mixture"),
        (("clients = 30", "clients = 0"), "clients"),
        (('epsilon = "0.5"', "epsilon = 0.5"), "not exact"),
        (("lower = 0.0", "lower = 300.0"), "not below upper"),
        (("sd = 10.0", "sd = -1.0"), "sd"),
        (("[task]", "[task"), "cannot be parsed"),
        (("clients = 30", "clients = 30\nshares = [1.0, 2.0]"), "shares: 2 shares, and the task has one epsilon"),
        (('kind = "number"', 'kind = "category"\nlabels = ["a", "b"]'), "unknown field"),
    ],
)
def test_a_mistake_in_a_scenario_file_is_one_line(tmp_path: Path, change: tuple[str, str], words: str) -> None:
    path = tmp_path / "weights.toml"
    path.write_text(SCENARIO.replace(*change), encoding="utf-8")
    assert words in complaint(scenario=str(path))


def test_a_missing_scenario_file_is_told() -> None:
    with pytest.raises(TaskError, match="cannot be read"):
        find_scenario("nowhere.toml")


def test_gateways_never_outnumber_devices() -> None:
    def gateways(devices: int, connections: int | None) -> int:
        return Experiment(scenario=SCENARIOS["heights"], values=[170.0] * devices, connections=connections).gateways

    assert [gateways(5, None), gateways(500, None), gateways(500, 3), gateways(2, 50)] == [5, 20, 3, 2]


def test_a_directory_for_results_is_made_and_tried_first(tmp_path: Path) -> None:
    assert prepare(tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(OptionError, match="is a file; name a directory"):
        prepare(tmp_path / "file")
    with pytest.raises(OptionError, match="cannot be written"):
        prepare(tmp_path / "file" / "below")


async def test_a_missing_mosquitto_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "installed_mosquitto", lambda: None)
    with pytest.raises(HushError, match="not installed; run for example: apt install mosquitto") as caught:
        async with mosquitto_broker(tmp_path):
            pass
    assert caught.value.exit_code == 1


async def test_a_mosquitto_that_does_not_start_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "installed_mosquitto", lambda: "/bin/false")
    with pytest.raises(HushError, match="does not start"):
        async with mosquitto_broker(tmp_path):
            pass


@pytest.mark.parametrize("broker", ["embedded", "mosquitto"])
async def test_other_users_of_the_machine_do_not_reach_the_broker_of_a_simulation(broker: str, tmp_path: Path) -> None:
    if broker == "mosquitto":
        need("mosquitto")
    async with choice.open_broker(broker, tmp_path) as url:
        place = Path(url.host)
        assert url.is_socket
        assert stat.S_IMODE(place.parent.stat().st_mode) == 0o700
    assert not place.parent.exists()


async def test_a_user_who_cannot_be_part_of_a_topic_is_told_before_anybody_connects(tmp_path: Path) -> None:
    experiment = experiment_of(Request(broker="mqtt://al~ice:s3cret@127.0.0.1:9"))
    with pytest.raises(BrokerError, match="this user cannot be part of a topic") as caught:
        async with open_network(experiment, tmp_path):
            pass
    assert "s3cret" not in str(caught.value)


def test_an_experiment_shows_neither_values_nor_the_password_of_its_broker() -> None:
    experiment = Experiment(scenario=SCENARIOS["heights"], values=[171.25], broker="mqtt://alice:hunter2@host")
    assert not any(secret in repr(experiment) for secret in ("171.25", "hunter2"))


def test_more_devices_than_rows_are_drawn_from_them_and_follow_the_seed(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("h\n170\n180\n", encoding="utf-8")
    first, again, other = (
        experiment_of(Request(csv=path, lower="0", upper="250", clients=400, seed=seed)) for seed in (1, 1, 2)
    )
    assert first.values == again.values != other.values
    assert set(first.values) == {170.0, 180.0}
    assert abs(first.values.count(170.0) - 200) <= 60  # six standard deviations
    assert first.seed == 1
    fewer = experiment_of(Request(csv=path, lower="0", upper="250", clients=1))
    assert (len(fewer.values), fewer.seed is not None) == (1, True)


def test_devices_drawn_without_any_value_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("h\n170\n" + "NA\n" * 999, encoding="utf-8")
    request = Request(csv=path, column="h", lower="0", upper="250", missing="replace", clients=1, seed=1)
    with pytest.raises(HushError, match="clients: none of the 1 devices drawn from the rows has a value"):
        experiment_of(request)


def test_a_column_of_ones_own_suggests_its_question(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    for cells, words in (("yes\nno\n", "--yes VALUE"), ("bus\ncar\n", "--labels A,B,C"), ("1\n2.5\n", "--lower and")):
        path.write_text(f"q\n{cells}", encoding="utf-8")
        assert words in complaint(csv=path, column="q")
    path.write_text("q\nyes\nno\n", encoding="utf-8")
    experiment = experiment_of(Request(csv=path, column="q", yes="yes"))
    assert (experiment.values, experiment.task.title) == ((1, 0), "Share of q")
    assert experiment_of(Request(scenario="survey", csv=path, column="q", yes="no")).values == (0, 1)
    assert "is for categories, and --yes for a yes/no question" in complaint(csv=path, labels="a,b", yes="a")
    assert "--labels: does not fit survey, which is a yes/no question" in complaint(
        scenario="survey", csv=path, labels="a,b"
    )
    assert "--csv FILE" in complaint(decimal=",")
