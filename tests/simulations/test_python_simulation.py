"""`hush.simulate` as a program and a notebook meet it."""

import asyncio
import inspect
import json
import re
import signal
import subprocess
import sys
import tempfile
import threading
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread
from servers import need

import hush
from hush_common.domain import NumberDomain
from hush_simulations.display.run_figure import picture_of
from hush_simulations.display.style import write_picture

AGES = {"kind": "number", "lower": 0, "upper": 110, "unit": "years"}
SCENARIO = """
clients = 20
[task]
id = "weights"
epsilon = "0.5"
[task.domain]
kind = "number"
lower = 0.0
upper = 200.0
[population]
kind = "mixture"
parts = [{ mean = 80.0, sd = 10.0 }]
"""


def simulate(*arguments: Any, **options: Any) -> hush.Run:  # noqa: ANN401 - any argument
    return hush.simulate(*arguments, **({"engine": "memory"} | options))


def complaint(*arguments: Any, **options: Any) -> str:  # noqa: ANN401 - any argument
    with pytest.raises(hush.HushError) as caught:
        hush.simulate(*arguments, **options)
    assert "\n" not in str(caught.value)
    assert "--" not in str(caught.value)
    return str(caught.value)


@pytest.mark.large
@pytest.mark.parametrize("broker", ["embedded", "mosquitto"])
def test_the_default_is_500_heights_over_real_sockets(broker: str) -> None:
    if broker == "mosquitto":
        need("mosquitto")
    run = hush.simulate(seed=7, broker=broker)
    assert (run.task.id, run.result.n, len(run.results)) == ("heights", 500, 1)
    assert run.truth["population"] == 170.0
    assert run.covered.keys() == {"reporters", "population", "anytime", "anytime_population"}
    assert run.to_document()["broker"] == broker


def test_the_document_is_that_of_the_command_line() -> None:
    command = [sys.executable, "-m", "hush", "simulate", "survey", "--clients", "40", "--seed", "3", "--json"]
    printed = json.loads(subprocess.run([*command, "--engine", "memory"], capture_output=True, check=True).stdout)
    document = simulate("survey", clients=40, seed=3).to_document()
    assert json.loads(json.dumps(document)).keys() == printed.keys()
    for key in ("truth", "clients", "published", "seed", "engine", "epsilon_spent"):
        assert document[key] == printed[key]


@pytest.mark.large
def test_the_picture_is_the_one_that_the_command_line_keeps(tmp_path: Path) -> None:
    run = simulate(clients=50, seed=1)
    write_picture(picture_of(run), tmp_path, "kept", "both")
    for name, figure in (("kept", run.figure()), ("kept-dark", run.figure(dark=True))):
        figure.savefig(tmp_path / "own.png")
        assert np.array_equal(imread(tmp_path / "own.png"), imread(tmp_path / f"{name}.png"))


def test_the_asynchronous_twin_takes_the_same_arguments() -> None:
    one, other = (inspect.signature(function) for function in (hush.simulate, hush.simulate_async))
    assert one == other


async def test_where_a_loop_runs_the_simulation_has_a_thread_of_its_own() -> None:
    threads: set[str] = set()
    run = hush.simulate(clients=30, seed=1, progress=lambda *_: threads.add(threading.current_thread().name))
    assert run.result.n == 30
    assert threads == {"hush-simulate"}
    assert "hush-simulate" not in {thread.name for thread in threading.enumerate()}


async def test_the_asynchronous_twin_runs_in_the_loop_of_its_caller() -> None:
    loops = set()
    run = await hush.simulate_async(
        clients=30, engine="memory", progress=lambda *_: loops.add(asyncio.get_running_loop())
    )
    assert run.result.n == 30
    assert loops == {asyncio.get_running_loop()}


def test_progress_counts_all_answers_of_all_rounds() -> None:
    seen: list[tuple[int, int]] = []
    run = simulate(clients=10, rounds=3, progress=lambda *counts: seen.append(counts))
    assert seen == sorted(seen)
    assert seen[-1] == (30, 30)
    assert [result.round for result in run.results] == [0, 1, 2]
    assert run.result == run.results[-1]


def test_what_progress_raises_ends_the_simulation() -> None:
    def enough(counted: int, total: int) -> None:
        raise LookupError(f"{counted} of {total} are enough")

    with pytest.raises(LookupError, match="of 50 are enough"):
        simulate(clients=50, progress=enough)


INTERRUPTED = """
import asyncio, hush, signal, sys, tempfile, threading
signal.signal(signal.SIGINT, signal.default_int_handler)
tempfile.tempdir = sys.argv[1]
first = threading.Lock()
def started(counted, total):
    if first.acquire(blocking=False): print("running", flush=True)
def simulate():
    hush.simulate(clients=200_000, engine="mqtt", progress=started)
async def cell():
    simulate()
try:
    CALL
except KeyboardInterrupt:
    print("interrupted", "hush-simulate" in {thread.name for thread in threading.enumerate()}, flush=True)
"""
CALLS = ["simulate()", "asyncio.run(cell())", "asyncio.new_event_loop().run_until_complete(cell())"]


@pytest.mark.large
@pytest.mark.parametrize("call", CALLS, ids=["program", "asyncio", "notebook"])
def test_ctrl_c_ends_a_simulation_and_leaves_nothing_behind(call: str, tmp_path: Path) -> None:
    program = [sys.executable, "-c", INTERRUPTED.replace("CALL", call), str(tmp_path)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=60)
    assert (out, error, process.returncode) == ("interrupted False\n", "", 0)
    assert list(tmp_path.iterdir()) == []


def test_a_scenario_is_a_name_a_path_or_an_object(tmp_path: Path) -> None:
    path = tmp_path / "weights.toml"
    path.write_text(SCENARIO, encoding="utf-8")
    for scenario in (path, str(path)):
        assert simulate(scenario).task.id == "weights"
    mine = hush.Scenario({**hush.SCENARIOS["survey"].document, "id": "mine"}, hush.SCENARIOS["survey"].population)
    assert simulate(mine, clients=20).task.id == "mine"


@pytest.mark.parametrize("domain", [AGES, NumberDomain(0, 110, "years")])
def test_data_of_ones_own_are_all_clients_and_their_mean_is_the_truth(domain: Any) -> None:  # noqa: ANN401
    run = simulate(data=np.array([30.0, 41.0, 52.0]), domain=domain, epsilon=2)
    assert (run.result.n, run.truth, run.task.title) == (3, {"reporters": 41.0}, "Mean of your data")
    assert (run.task.unit, run.task.epsilon) == ("years", Fraction(2))
    assert "seed" not in run.to_document()


def test_data_may_be_the_people_of_a_scenario() -> None:
    run = simulate("survey", data=[True, True, False, True])
    assert run.truth == {"reporters": 0.75}
    parts = simulate("commute", data=["car", "bus", "bus", "bus"]).score.parts
    assert [parts[way].truth["reporters"] for way in ("car", "bus", "train")] == [0.25, 0.75, 0.0]


@pytest.mark.parametrize("epsilon", ["0.25", 0.25, np.float64(0.25), np.float32(0.25), Decimal("0.25"), Fraction(1, 4)])
def test_an_epsilon_is_exact_however_it_is_written(epsilon: Any) -> None:  # noqa: ANN401
    assert simulate(clients=2, epsilon=epsilon).task.epsilon == Fraction(1, 4)
    assert simulate(clients=2, epsilon=0.1).task.epsilon == Fraction(1, 10)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"scenario": "hieghts"}, "scenario: 'hieghts' is not a scenario; there are commute, flaky-links"),
        ({"scenario": 3}, "scenario: is of type int; pass a name, a path or a Scenario"),
        ({"clients": 0}, "clients: 0 is outside 1 to 1000000000; pass how many devices report, as in clients=500"),
        ({"clients": 2.5}, "clients: '2.5' is not a whole number"),
        ({"clients": True}, "clients: 'True' is not a whole number"),
        ({"rounds": 1001}, "rounds: 1001 is outside 1 to 1000"),
        ({"seed": -1}, "seed: -1 is outside"),
        ({"confidence": 95}, "confidence: 95 is not between 0 and 1; for 95 % write 0.95"),
        ({"confidence": "high"}, "confidence: 'high' is not a finite number"),
        ({"epsilon": 0}, "epsilon: 0 is outside [0.000001, 50]"),
        ({"epsilon": float("nan")}, "epsilon: 'NaN' is not a decimal number"),
        ({"epsilon": Fraction(1, 3)}, "epsilon: '1/3' is not a decimal number"),
        ({"epsilon": None, "mechanism": "magic"}, "mechanism"),
        ({"engine": "dask"}, "engine: 'dask' is not an engine; write mqtt (real sockets), memory or bulk"),
        ({"broker": "rabbit"}, "broker: is not a broker; write embedded, mosquitto or mqtt://host:port"),
        ({"broker": "mosquitto", "engine": "memory"}, "broker: a broker is not used with engine='memory'"),
        ({"domain": AGES}, "domain: describes your data; pass the data as data=..."),
        ({"column": "age"}, "column: describes your data; pass the data as data=..."),
        ({"data": [1]}, "domain: is missing; state the legal values from public knowledge"),
        ({"data": [1], "domain": "age"}, "domain: is of type str; pass a mapping, as in domain={'kind': 'number'"),
        (
            {"data": [1], "domain": {"kind": "age"}},
            "domain: 'age' is not a kind; write number, bit,",
        ),
        ({"data": [1], "domain": AGES, "scenario": "survey"}, "domain: the scenario has its own domain"),
        ({"data": ["old"], "domain": AGES}, "data: row 0 (counted from 0) is text, and a number is asked for"),
        ({"data": [1], "domain": AGES, "column": "age"}, "column: chooses a column of a data frame"),
    ],
)
def test_a_mistake_names_the_argument_and_the_remedy(options: dict[str, Any], words: str) -> None:
    assert words in complaint(**options)


def test_a_broker_that_is_not_there_is_told_without_its_password() -> None:
    text = complaint(clients=2, broker="mqtt://alice:hunter2@127.0.0.1:1")
    assert "127.0.0.1:1: cannot connect" in text
    assert "hunter2" not in text


def test_a_run_shows_neither_values_nor_addresses() -> None:
    run = simulate(data=[30.125, 41.125], domain=AGES)
    assert not re.search("30.125|41.125|embedded", repr((run, run.experiment, run.last)))
    assert repr(run) == "<Run of 'own-data': 2 reports>"


def test_a_weak_epsilon_and_lost_reports_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.warns(UserWarning, match=re.escape("epsilon 5 protects little")):
        simulate(clients=2, epsilon=5)
    monkeypatch.setattr(hush.Run, "lost", 3)
    with pytest.warns(RuntimeWarning, match="acknowledged 3 reports that never reached the aggregator"):
        simulate(clients=2)


def test_a_simulation_leaves_no_file_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    simulate(clients=5)
    assert list(tmp_path.iterdir()) == []
