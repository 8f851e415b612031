"""Which engine answers where nobody named one; and the truth of rows that devices are drawn from."""

import math
from dataclasses import replace
from typing import Any

import pytest

import hush
from hush_simulations.api.simulate import SimulationOptions
from hush_simulations.engines.experiment import MOST_OVER_MQTT
from hush_simulations.scenarios.behaviour import Faults

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
        ({"data": [1.0] * MOST_OVER_MQTT, "domain": {"kind": "number", "lower": 0, "upper": 2}}, "mqtt"),
        ({"data": [1.0] * MANY, "domain": {"kind": "number", "lower": 0, "upper": 2}}, "bulk"),
        ({"scenario": replace(hush.SCENARIOS["heights"], faults=Faults(lost=0.1)), "clients": MANY}, "mqtt"),
    ],
)
def test_many_devices_are_drawn_in_bulk_unless_something_needs_a_broker(options: dict[str, Any], engine: str) -> None:
    assert SimulationOptions(**options).experiment().engine == engine


def test_an_option_of_the_bulk_engine_needs_no_engine_for_many_devices() -> None:
    assert SimulationOptions(clients=MANY, draw="tally").experiment().drawing == "tally"
    with pytest.raises(hush.HushError, match="draw: is for engine='bulk'"):
        SimulationOptions(clients=5, draw="tally").experiment()


def test_the_table_and_the_document_name_the_engine() -> None:
    run = hush.simulate("survey", clients=MANY)
    assert run.to_document()["engine"] == "bulk"
    assert "20 001 devices, randomized_response, epsilon 1, in bulk" in str(run)
    assert "In bulk there are no devices and no broker" in str(run)
    assert "In bulk" not in str(hush.simulate("survey", clients=50, engine="memory"))


NUMBERS = [12.0, 40.0, 130.0, 55.0]  # one is outside the bounds: the truth is that of the values
QUESTIONS: list[tuple[Any, dict[str, object], list[float]]] = [
    (NUMBERS, {"kind": "number", "lower": 0, "upper": 110}, [math.fsum(NUMBERS) / 4]),
    ([1, 0, 1, 1], {"kind": "bit"}, [0.75]),
    (["a", "c", "a", "a"], {"kind": "category", "labels": ["a", "b", "c"]}, [0.75, 0.0, 0.25]),
]


@pytest.mark.parametrize("engine", ["memory", "bulk"])
@pytest.mark.parametrize(("data", "domain", "truth"), QUESTIONS)
def test_rows_that_devices_are_drawn_from_are_a_population_with_a_known_truth(
    data: object, domain: dict[str, object], truth: list[float], engine: str
) -> None:
    drawn = hush.simulate(data=data, domain=domain, clients=60, seed=1, engine=engine)
    parts = drawn.score.parts.values() or [drawn.score]
    assert [part.truth["population"] for part in parts] == pytest.approx(truth, abs=1e-12)
    assert all("population" in part.covered for part in parts)
    asked = hush.simulate(data=data, domain=domain, seed=1, engine=engine)
    assert not any("population" in part.truth for part in asked.score.parts.values() or [asked.score])


def test_rows_without_a_value_are_no_part_of_that_truth() -> None:
    domain = {"kind": "number", "lower": 0, "upper": 10}
    run = hush.simulate(data=[2.0, None, 4.0], domain=domain, missing="replace", clients=40, engine="memory")
    assert run.truth["population"] == 3.0
