"""What `hush.simulate` and `hush simulate` may be asked: the engine that answers, and refusals that name the option."""

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from commands import Shown, run
from servers import need

import hush
from hush_common.errors import BrokerError
from hush_simulations.api.simulate import SimulationOptions
from hush_simulations.brokers import choice
from hush_simulations.engines.experiment import MOST_OVER_MQTT, Experiment
from hush_simulations.scenarios.behaviour import Faults

AGES = {"kind": "number", "lower": 0, "upper": 110, "unit": "years"}
NUMBERS = {"kind": "number", "lower": 0, "upper": 2}
MANY = MOST_OVER_MQTT + 1


@pytest.mark.parametrize(
    ("options", "engine"),
    [
        ({"clients": MOST_OVER_MQTT}, "mqtt"),
        ({"clients": MANY}, "bulk"),
        ({"clients": MANY, "rounds": 2}, "bulk"),
        ({"clients": MANY, "engine": "mqtt"}, "mqtt"),
        ({"clients": MANY, "engine": "memory"}, "memory"),
        ({"clients": 5, "engine": "bulk"}, "bulk"),
        ({"clients": MANY, "broker": "embedded"}, "mqtt"),
        ({"clients": MANY, "connections": 3}, "mqtt"),
        ({"clients": MANY, "deterministic_noise": True}, "mqtt"),
        ({"data": [1.0] * MOST_OVER_MQTT, "domain": NUMBERS}, "mqtt"),
        ({"data": [1.0] * MANY, "domain": NUMBERS}, "bulk"),
        ({"scenario": replace(hush.SCENARIOS["heights"], faults=Faults(lost=0.1)), "clients": MANY}, "mqtt"),
    ],
)
def test_many_devices_are_drawn_in_bulk_unless_a_broker_is_needed(options: dict[str, Any], engine: str) -> None:
    assert SimulationOptions(**options).experiment().engine == engine


def test_an_option_of_the_bulk_engine_needs_many_devices_or_its_name() -> None:
    assert SimulationOptions(clients=MANY, draw="tally").experiment().drawing == "tally"
    with pytest.raises(hush.HushError, match=r"^draw: .*bulk"):
        SimulationOptions(clients=5, draw="tally").experiment()


@pytest.mark.parametrize(
    ("options", "argument", "named"),
    [
        ({"scenario": "hieghts"}, "scenario", "'heights'"),
        ({"scenario": 3}, "scenario", "int"),
        ({"clients": 0}, "clients", "1000000000"),
        ({"clients": 2.5}, "clients", "'2.5'"),
        ({"clients": True}, "clients", "'True'"),
        ({"clients": 10**6 + 1, "engine": "memory"}, "clients", "1000001"),
        ({"clients": 10**9 + 1, "engine": "bulk"}, "clients", "1000000001"),
        ({"rounds": 1001}, "rounds", "1001"),
        ({"seed": -1}, "seed", "-1"),
        ({"workers": 0, "engine": "bulk"}, "workers", "64"),
        ({"confidence": 95}, "confidence", "0.95"),
        ({"confidence": "high"}, "confidence", "'high'"),
        ({"epsilon": 0}, "epsilon", "50"),
        ({"epsilon": float("nan")}, "epsilon", "'NaN'"),
        ({"epsilon": Fraction(1, 3)}, "epsilon", "1/3"),
        ({"mechanism": "magic"}, "mechanism", "'magic'"),
        ({"mechanism": "randomized_response"}, "mechanism", "number"),
        ({"scenario": "survey", "mechanism": "laplace"}, "mechanism", "bit"),
        ({"shares": [1, 2]}, "shares", "2"),
        ({"engine": "dask"}, "engine", "memory"),
        ({"draw": "all", "engine": "bulk"}, "draw", "auto"),
        ({"broker": "rabbit"}, "broker", "mosquitto"),
        ({"broker": "mosquitto", "engine": "memory"}, "broker", "memory"),
        ({"broker": "mosquitto", "engine": "bulk"}, "broker", "bulk"),
        ({"domain": AGES}, "domain", "data="),
        ({"column": "age"}, "column", "data="),
        ({"csv": {"decimal": ","}}, "csv", "data="),
        ({"data": [1]}, "domain", ""),
        ({"data": [1], "domain": "age"}, "domain", "str"),
        ({"data": [1], "domain": {"kind": "age"}}, "domain", "'age'"),
        ({"data": [1], "domain": AGES, "scenario": "survey"}, "domain", ""),
        ({"data": ["old"], "domain": AGES}, "data", "row 0"),
        (
            {"data": [170.0] + [None] * 999, "domain": AGES, "missing": "replace", "clients": 1, "seed": 1},
            "clients",
            "1",
        ),
    ],
)
def test_a_mistake_names_the_argument_and_the_value(options: dict[str, Any], argument: str, named: str) -> None:
    with pytest.raises(hush.HushError) as caught:
        SimulationOptions(**options).experiment()
    message = str(caught.value)
    assert message.startswith(f"{argument}: ")
    assert named in message
    assert "--" not in message
    assert "\n" not in message


@pytest.mark.parametrize("text", ["rabbit", "http://x", "mqtt://host:port", "kitchen:hunter2@host", "mqtt://a:s3@h:0"])
def test_a_wrong_broker_is_not_repeated_since_it_may_hold_a_password(text: str) -> None:
    with pytest.raises(hush.HushError, match=r"^broker: ") as caught:
        SimulationOptions(broker=text).experiment()
    assert text.removeprefix("mqtt://") not in str(caught.value)
    assert "s3" not in str(caught.value)


@pytest.mark.parametrize(
    ("broker", "allowed"),
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
def test_noise_of_a_seed_takes_own_data_to_no_other_machine(
    broker: str | None, *, allowed: bool, tmp_path: Path
) -> None:
    (tmp_path / "people.csv").write_text("h\n50\n60\n", encoding="utf-8")
    scenario = tmp_path / "own.toml"
    scenario.write_text(
        '[task]\nid = "t"\nepsilon = "1"\n[task.domain]\nkind = "number"\nlower = 0.0\nupper = 200.0\n'
        '[population]\nkind = "csv"\nfile = "people.csv"\n',
        encoding="utf-8",
    )
    for own in (SimulationOptions(data=[50.0], domain=AGES), SimulationOptions(scenario=scenario, clients=9)):
        assert replace(own, broker=broker).experiment().noise_seed is None
        seeded = replace(own, broker=broker, deterministic_noise=True, seed=1)
        if allowed:
            assert seeded.experiment().noise_seed == 1
            continue
        with pytest.raises(hush.HushError, match="your own data") as caught:
            seeded.experiment()
        assert "secret" not in str(caught.value)
    assert SimulationOptions(broker=broker, deterministic_noise=True, seed=1).experiment().noise_seed == 1


def test_gateways_never_outnumber_devices() -> None:
    def gateways(devices: int, connections: int | None) -> int:
        return Experiment(scenario=hush.SCENARIOS["heights"], values=[1.0] * devices, connections=connections).gateways

    assert [gateways(5, None), gateways(500, None), gateways(500, 3), gateways(2, 50)] == [5, 20, 3, 2]


def test_an_experiment_shows_neither_values_nor_a_password() -> None:
    experiment = Experiment(scenario=hush.SCENARIOS["heights"], values=[171.25], broker="mqtt://alice:hunter2@host")
    assert not any(secret in repr(experiment) for secret in ("171.25", "hunter2"))


def test_devices_drawn_from_rows_follow_the_seed() -> None:
    own = SimulationOptions(data=[17.0, 18.0], domain=AGES, clients=400)
    first, again, other = (replace(own, seed=seed).experiment() for seed in (1, 1, 2))
    assert first.values == again.values != other.values
    assert set(first.values) == {17.0, 18.0}
    assert abs(first.values.count(17.0) - 200) <= 60  # six standard deviations
    assert replace(own, clients=1).experiment().seed is not None


def simulated(directory: Path, *arguments: str) -> Shown:
    return run(["simulate", *arguments, "--engine", "bulk", "--json"], directory)


def test_a_csv_file_is_simulated_row_by_row(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("h\n" + "".join(f"{150 + i}\n" for i in range(40)), encoding="utf-8")
    own = ("--csv", "data.csv", "--lower", "-20", "--upper", "180")
    found = json.loads(simulated(tmp_path, *own).out)
    assert (found["clients"], found["truth"], found["clamped"]) == (40, {"reporters": 169.5}, 9)
    assert "population" not in found["covered"]


def test_missing_rows_are_counted_with_their_treatment(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("h\n" + "".join(f"{10 + i}\n" for i in range(20)) + "NA\n" * 4, encoding="utf-8")
    own = ("--csv", "data.csv", "--lower", "0", "--upper", "100")
    refused = simulated(tmp_path, *own)
    assert refused.code == 2
    assert "--missing drop" in refused.err
    for missing, devices in (("drop", 20), ("replace", 24)):
        found = json.loads(simulated(tmp_path, *own, "--missing", missing).out)
        assert found["data"] == {"rows": 24, "missing": 4, "treatment": missing, "resampled": False}
        assert (found["clients"], found["truth"], found["result"]["n"]) == (devices, {"reporters": 19.5}, devices)
        assert found["result"]["replacement_bias"]


@pytest.mark.medium
def test_labels_answers_and_parquet_are_questions_too(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pandas.DataFrame({"age": [34.0, None, 67.0], "way": ["bus", "car", "bus"]}).to_parquet(tmp_path / "people.parquet")
    (tmp_path / "people.csv").write_text("way,ill\nbus,yes\ncar,no\nbus,no\n", encoding="utf-8")
    for file in ("people.parquet", "people.csv"):
        found = json.loads(simulated(tmp_path, "--csv", file, "--column", "way", "--labels", "car, bus").out)
        assert (found["result"]["n"], found["result"]["mechanism"]) == (3, "subset_selection")
    answers = json.loads(simulated(tmp_path, "--csv", "people.csv", "--column", "way", "--yes", "car").out)
    assert answers["truth"]["reporters"] == pytest.approx(1 / 3)
    survey = json.loads(simulated(tmp_path, "survey", "--csv", "people.csv", "--column", "ill").out)
    assert survey["truth"]["reporters"] == pytest.approx(1 / 3)
    numbers = ("--csv", "people.parquet", "--column", "age", "--lower", "0", "--upper", "110")
    assert json.loads(simulated(tmp_path, *numbers, "--missing", "drop").out)["result"]["n"] == 2
    assert "--missing drop" in simulated(tmp_path, *numbers).err
    assert "--delimiter" in simulated(tmp_path, *numbers, "--delimiter", "tab").err


def test_a_code_for_missing_values_is_hinted_on_standard_error(tmp_path: Path) -> None:
    ages = [*range(91), *[999] * 20]
    (tmp_path / "people.csv").write_text("age\n" + "".join(f"{age}\n" for age in ages), encoding="utf-8")
    own = ["--csv", "people.csv", "--lower", "0", "--upper", "110", "--json"]
    for command in (["simulate", "--engine", "bulk"], ["plan", "--epsilon", "1", "--error", "5"]):
        shown = run([*command, *own], tmp_path)
        (line,) = shown.err.splitlines()
        assert "20 of 111 rows have 999" in line
        assert "--na" in line
        assert json.loads(shown.out)["data"]["rows"] == 111


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--clients", "0"), "--clients: 0"),
        (("--clients",), "--clients"),
        (("--client", "5"), "--client"),
        (("--clients", "-1"), "--clients: -1"),
        (("--clients", "²"), "--clients: "),
        (("--clients", "9" * 5000), "--clients: "),
        (("--rounds", "0"), "--rounds: 0"),
        (("--connections", "501"), "--connections: 501"),
        (("--seed", str(1 << 63)), "--seed: "),
        (("--workers", "0", "--engine", "bulk"), "--workers: 0"),
        (("--confidence", "95"), "--confidence: 95"),
        (("--epsilon", "nan"), "--epsilon: 'nan'"),
        (("--epsilon", "0,5"), "--epsilon: '0,5'"),
        (("--epsilon", "1e-9"), "--epsilon: "),
        (("--mechanism", "gauss"), "'multilevel'"),
        (("census",), "commute"),
        (("sleep", "--shares", "1,x,2"), "--shares: 'x'"),
        (("--broker", "rabbit"), "--broker: "),
        (("--engine", "memory", "--broker", "embedded"), "--broker"),
        (("--out", "file"), "file"),
        (("--out", "file/below"), "--out: "),
        (("--column", "h"), "--csv FILE"),
        (("--decimal", ","), "--csv FILE"),
        (("--labels", "car, bus"), "--csv FILE"),
        (("--csv", "nothing.csv", "--lower", "0", "--upper", "1"), "nothing.csv"),
        (("--csv", "h.csv"), "--lower"),
        (("--csv", "h.csv", "--lower", "0"), "--upper"),
        (("--csv", "h.csv", "--lower", "5", "--upper", "5"), "--upper 5"),
        (("--csv", "h.csv", "--lower", "0", "--upper", "inf"), "--upper"),
        (("--csv", "h.csv", "--lower", "-1e308", "--upper", "1e308"), "upper"),
        (("--csv", "ways.csv"), "--labels A,B,C"),
        (("--csv", "answers.csv"), "--yes VALUE"),
        (("--csv", "ways.csv", "--labels", "car,bus", "--unit", "cm"), "--unit: "),
        (("--csv", "ways.csv", "--labels", "car,bus", "--yes", "car"), "--yes"),
        (("survey", "--csv", "ways.csv", "--labels", "car,bus"), "--labels: "),
        (("heights", "--csv", "answers.csv"), "--csv"),
    ],
)
def test_a_mistake_at_the_command_is_one_line_and_exit_code_2(
    arguments: tuple[str, ...], named: str, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "h.csv").write_text("h\n170\n180.5\n", encoding="utf-8")
    (tmp_path / "ways.csv").write_text("way\nbus\ncar\n", encoding="utf-8")
    (tmp_path / "answers.csv").write_text("ill\nyes\nno\n", encoding="utf-8")
    shown = run(["simulate", *arguments], tmp_path)
    assert (shown.code, shown.out, shown.trouble) == (2, "", "")
    (line,) = shown.err.splitlines()
    assert named in line
    assert len(line) < 500


async def test_without_mosquitto_the_remedy_is_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "installed_mosquitto", lambda: None)
    with pytest.raises(hush.HushError, match="apt install mosquitto") as caught:
        async with choice.mosquitto_broker(tmp_path):
            pass
    assert caught.value.exit_code == 1


@pytest.mark.medium
async def test_a_mosquitto_that_does_not_start_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "installed_mosquitto", lambda: "/bin/false")
    with pytest.raises(hush.HushError):
        async with choice.mosquitto_broker(tmp_path):
            pass


@pytest.mark.medium
@pytest.mark.parametrize("broker", ["embedded", "mosquitto"])
async def test_other_users_do_not_reach_the_broker_of_a_simulation(broker: str, tmp_path: Path) -> None:
    if broker == "mosquitto":
        need("mosquitto")
    async with choice.open_broker(broker, tmp_path) as url:
        place = Path(url.host)
        assert url.is_socket
        assert place.parent.stat().st_mode & 0o777 == 0o700
    assert not place.parent.exists()


def test_a_user_that_cannot_be_part_of_a_topic_is_refused() -> None:
    with pytest.raises(BrokerError) as caught:
        hush.simulate(clients=2, broker="mqtt://al~ice:s3cret@127.0.0.1:9")
    assert "s3cret" not in str(caught.value)
