"""`hush gateway` between two real brokers: sensors that publish each second, and a gateway that is killed."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from commands import run
from device_state import FILE_NAME, rows
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion
from servers import Mosquitto
from stored import counted_ids
from waiting import wait_until

EVERY_S = 8
"""Seconds of a round; the gateway is killed once in each."""


@contextmanager
def publishing(port: int, sensors: int) -> Iterator[None]:
    """Sensors that publish each second, as Zigbee2MQTT does, until the end."""
    client = Client(CallbackAPIVersion.VERSION2)
    client.connect("127.0.0.1", port)
    client.loop_start()
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(1):
            client.publish("zigbee2mqtt/lamp", json.dumps({"state": "ON", "brightness": 254}))
            for number in range(sensors):
                client.publish(
                    f"zigbee2mqtt/room-{number}", json.dumps({"temperature": 15 + number % 10, "battery": 9})
                )
            client.publish("zigbee2mqtt/bridge/state", "online")

    thread = threading.Thread(target=run)
    thread.start()
    yield
    ended.set()
    thread.join()
    client.disconnect()
    client.loop_stop()


QUICK = "import asyncio; sleep = asyncio.sleep; asyncio.sleep = lambda seconds: sleep(seconds / 20); "
"""A gateway reads its list and prints what is new every ten seconds, and silence after a minute."""


def gateway(house: Mosquitto, broker: Mosquitto, state: Path, *more: str) -> "subprocess.Popen[bytes]":
    program = [sys.executable, "-c", f"{QUICK}from hush.__main__ import main; main()"]
    command = [*program, "gateway", "--topic", "zigbee2mqtt/+"]
    command += [] if "--field" in more else ["--field", "temperature"]
    command += ["--task", "heating", "--source", house.url, "--broker", broker.url, "--device", "house"]
    command += ["--state", str(state), "--spread", "0.5", "--wait", "0.5", "--lifetime", "20", "--max-epsilon", "20"]
    with (state.parent / "gateway.log").open("ab") as log:
        return subprocess.Popen([*command, *more], stdout=log, stderr=log)


def charges(state: Path) -> list[tuple[str, int, bytes]]:
    if not (state / FILE_NAME).exists():
        return []
    with suppress(sqlite3.OperationalError):  # it is being made
        return rows(state, "SELECT device, round, report_id FROM charge")
    return []


def house_of_sensors(
    bare: Mosquitto, directory: Path, sensors: int, rounds: int, *, more: int = 0
) -> list[tuple[str, int, bytes]]:
    """Let a gateway answer all rounds, and kill it in each; return its charges once all of them are counted.

    In `more` rounds it is not killed, so that it answers for each sensor, however long it takes to start.
    """
    opens = datetime.now(UTC) + timedelta(seconds=EVERY_S)
    all_rounds = rounds + more
    task: dict[str, object] = {"id": "heating", "epsilon": str(2 * all_rounds), "mechanism": "auto"}
    task["rounds"] = all_rounds
    task |= {"round_every": f"{EVERY_S}s", "opens": opens.strftime("%Y-%m-%dT%H:%M:%SZ")}
    task |= {"domain": {"kind": "number", "lower": 0.0, "upper": 40.0}}
    (directory / "task.json").write_text(json.dumps(task))
    store, state = directory / "store.sqlite3", directory / "state"
    command = [sys.executable, "-m", "hush", "serve", "--broker", bare.url, "--store", str(store)]
    with (directory / "serve.log").open("ab") as log:
        serve = subprocess.Popen([*command, "--task", str(directory / "task.json")], stderr=log)
    try:
        with publishing(bare.port, sensors):
            running = gateway(bare, bare, state, "--take-part", "all")
            for number in range(rounds):
                moment = opens + timedelta(seconds=number * EVERY_S + (0.4 + 0.9 * number) % (EVERY_S / 2))
                time.sleep(max((moment - datetime.now(UTC)).total_seconds(), 0))
                running.kill()
                running.wait(60)
                running = gateway(bare, bare, state, "--take-part", "all")
            time.sleep(EVERY_S)
            if more:
                wait_until(lambda: len({device for device, *_ in charges(state)}) == sensors)
        # what waits is sent; nothing is answered any more
        wait_until(lambda: {one[2] for one in charges(state)} == set(counted_ids(store)[0]))  # counted is made
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 0
    finally:
        running.kill()
        serve.terminate()
        serve.wait(60)
    return charges(state)


def listed(state: Path, decision: str) -> list[str]:
    """The topics in the list of sensors with a decision."""
    path = state / "sensors.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    return [line.split(maxsplit=2)[2] for line in lines if line.startswith(f"{decision} ")]


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("sensors", "rounds", "more"),
    [pytest.param(20, 3, 7, marks=pytest.mark.large), pytest.param(200, 10, 0, marks=pytest.mark.soak)],
)
def test_each_sensor_answers_a_round_once_despite_kills(
    bare: Mosquitto, memory_path: Path, sensors: int, rounds: int, more: int
) -> None:
    found = house_of_sensors(bare, memory_path, sensors, rounds, more=more)
    assert max(Counter((device, number) for device, number, _ in found).values()) == 1
    assert len({report for *_, report in found}) == len(found)
    assert {device for device, *_ in found} == set(listed(memory_path / "state", "yes"))
    assert all(device.startswith("zigbee2mqtt/room-") for device, *_ in found)
    assert len({device for device, *_ in found}) == sensors
    assert more or len(found) == sensors * rounds


class House:
    """A broker with a task, and a client that publishes for its sensors."""

    def __init__(self, broker: Mosquitto, directory: Path, *, upper: float = 40.0) -> None:
        self.broker, self.state, self.log = broker, directory / "state", directory / "gateway.log"
        self.client = Client(CallbackAPIVersion.VERSION2)
        self.client.connect("127.0.0.1", broker.port)
        self.client.loop_start()
        task: dict[str, object] = {"id": "heating", "epsilon": "1", "mechanism": "laplace", "rounds": 1}
        task["domain"] = {"kind": "number", "lower": 0.0, "outside": "clamp", "upper": upper}
        payload = json.dumps(task, sort_keys=True, separators=(",", ":"))
        self.publish("hush/v1/tasks/heating", payload, retain=True)

    def publish(self, topic: str, payload: str, *, retain: bool = False) -> None:
        self.client.publish(topic, payload, qos=1, retain=retain).wait_for_publish(60)

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()

    def command(self, *options: str) -> list[str]:
        command = [sys.executable, "-m", "hush", "gateway", "--check", "--topic", "zigbee2mqtt/+", "--task", "heating"]
        command += ["--source", self.broker.url, "--broker", self.broker.url, "--state", str(self.state)]
        return [*command, *options]

    def check(self, *options: str, wait: float = 8) -> dict[str, list[str]]:
        """What `--check` says of each sensor."""
        command = self.command("--field", "temperature", "--wait", str(wait), *options)
        wide = {**os.environ, "COLUMNS": "250"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=wide)
        assert done.returncode == 0, done.stderr
        assert "Nothing was answered." in done.stdout
        assert ("event" in done.stdout) == ("--take-part" in done.stdout or "  yes\n" in done.stdout)
        lines = [re.split("  +", line.strip()) for line in done.stdout.splitlines()]
        return {topic: rest for topic, *rest in lines if topic.startswith("zigbee2mqtt/")}

    @contextmanager
    def gateway(self, *options: str) -> Iterator[None]:
        running = gateway(self.broker, self.broker, self.state, *options)
        try:
            yield
        finally:
            running.send_signal(signal.SIGTERM)
            assert running.wait(60) == 0

    def wait_for_lines(self, *parts: str) -> None:
        """Wait for a line of the gateway that contains all of these."""
        wait_until(lambda: any(all(part in line for part in parts) for line in self.log.read_text().splitlines()))

    def answered(self) -> set[str]:
        return {device for device, *_ in charges(self.state)}


@pytest.fixture
def house(bare: Mosquitto, memory_path: Path) -> Iterator[House]:
    made = House(bare, memory_path, upper=16.0)
    yield made
    made.close()


@pytest.mark.medium
def test_a_check_lists_the_sensors_and_no_value_and_answers_nothing(house: House) -> None:
    house.publish("zigbee2mqtt/dead", '{"temperature":12}', retain=True)
    with publishing(house.broker.port, 3):
        found = house.check("--take-part", "zigbee2mqtt/room-1")
    assert {topic: cell for topic, (cell, _) in found.items()} == {
        "zigbee2mqtt/room-0": "usable",
        "zigbee2mqtt/room-1": "usable",
        "zigbee2mqtt/room-2": "beyond the bounds",
        "zigbee2mqtt/lamp": "no value",
        "zigbee2mqtt/dead": "no value",
    }
    why = {topic: reason for topic, (_, reason) in found.items()}
    assert why["zigbee2mqtt/room-1"] == "yes"
    assert "--take-part" in why["zigbee2mqtt/room-0"]
    assert "none" in why["zigbee2mqtt/lamp"]
    assert "temperature" in why["zigbee2mqtt/lamp"]
    assert "retained" in why["zigbee2mqtt/dead"]
    assert charges(house.state) == []
    assert not (house.state / "sensors.txt").exists()


@pytest.mark.medium
@pytest.mark.face
def test_only_confirmed_sensors_answer_and_the_log_names_the_others(house: House) -> None:
    house.publish("zigbee2mqtt/dead", '{"temperature":12}', retain=True)
    running = gateway(house.broker, house.broker, house.state)
    path = house.state / "sensors.txt"
    wait_until(house.log.read_text)  # it has started
    with publishing(house.broker.port, 2):
        wait_until(lambda: len(listed(house.state, "?  ")) == 2)
        house.wait_for_lines("zigbee2mqtt/lamp", "temperature")
        house.wait_for_lines("zigbee2mqtt/room-0", "--take-part")
        house.wait_for_lines("zigbee2mqtt/dead", "retained")
        kept = [line for line in path.read_text().splitlines(keepends=True) if "room-0" not in line]
        path.write_text("".join(kept).replace("\n?  ", "\nyes"))
        wait_until(house.answered)
        house.wait_for_lines("zigbee2mqtt/room-0", "sensors.txt")
    assert house.answered() == {"zigbee2mqtt/room-1"}
    assert "12" not in re.sub(r"[0-9]{4}-[^ ]*Z", "", path.read_text())
    path.write_text("[temperature]\nnein zigbee2mqtt/room-0\n")
    assert running.wait(60) == 1
    house.wait_for_lines("sensors.txt", "line 2", "yes, no or ?")


@pytest.mark.medium
def test_lamps_and_stored_messages_take_no_part_where_all_do(house: House) -> None:
    for topic, payload in (("dead", '{"temperature":12}'), ("lamp", '{"state":"ON"}'), ("bridge", "online")):
        house.publish(f"zigbee2mqtt/{topic}", payload, retain=True)
    with house.gateway("--take-part", "all", "--exclude", "+/room-0"), publishing(house.broker.port, 3):
        wait_until(lambda: len(house.answered()) == 2)
        house.publish("zigbee2mqtt/null", '{"temperature":null}')
        wait_until(lambda: len(house.answered()) == 3)
        house.wait_for_lines("zigbee2mqtt/room-0 takes no part", "--exclude")
    assert house.answered() == {"zigbee2mqtt/room-1", "zigbee2mqtt/room-2", "zigbee2mqtt/null"}


@pytest.mark.large
def test_a_check_names_a_sensor_that_was_silent_for_long(house: House) -> None:
    house.state.mkdir(mode=0o700)
    lines = ["[temperature]", "yes 2020-01-01T00:00:00Z zigbee2mqtt/gone", "no zigbee2mqtt/out", ""]
    (house.state / "sensors.txt").write_text("\n".join(lines))
    house.publish("zigbee2mqtt/gone", '{"temperature":12}', retain=True)
    found = house.check("--take-part", "all", wait=4)
    assert "--forget-after" in found["zigbee2mqtt/gone"][1]
    assert "sensors.txt" in found["zigbee2mqtt/out"][1]


@pytest.mark.medium
def test_a_task_or_a_topic_that_nobody_publishes_is_named(house: House) -> None:
    house.publish("hush/v1/tasks/heating", "", retain=True)
    house.publish("zigbee2mqtt/lamp", "{}", retain=True)
    with house.gateway("--topic", "nothing/+", "--take-part", "zigbee2mqtt/lmap", "--take-part", "zigbee2mqtt/lamp"):
        house.wait_for_lines("nothing/+", house.broker.url, "--topic")
        house.wait_for_lines("--take-part zigbee2mqtt/lmap", "--topic")
        house.wait_for_lines("'heating'", house.broker.url, "hush/v1/tasks/heating")
    assert "--take-part zigbee2mqtt/lamp" not in house.log.read_text()


@pytest.mark.medium
def test_a_field_of_too_many_keys_is_named_and_answers_nothing(house: House) -> None:
    options = ["--field", "temperature,battery", "--take-part", "all"]
    checked = subprocess.run(house.command(*options), capture_output=True, text=True, timeout=60, check=False)
    assert checked.returncode == 2
    assert all(part in checked.stderr for part in ("--field", "temperature,battery", "2 keys", "heating"))
    with publishing(house.broker.port, 1):
        for wait in ("5", "0.5"):  # first the task is unknown at the start, then it is stored
            with house.gateway(*options, "--wait", wait):
                house.wait_for_lines("heating", "temperature,battery", "2 keys")
                house.log.write_text("")
    assert house.answered() == set()


def test_a_wrong_option_is_named_in_one_line(tmp_path: Path) -> None:
    for options, name in (
        (["--task", "x", "--topic", "a/#/b"], "--topic"),
        (["--task", "X!", "--topic", "a"], "--task"),
        (["--task", "x", "--task", "y", "--task", "z", "--topic", "a", "--field", "t", "--field", "h"], "--field"),
        (["--task", "x", "--task", "x", "--topic", "a"], "--task"),
        (["--task", "x", "--topic", "a", "--absent", "no"], "--absent"),
        (["--task", "x", "--topic", "a", "--exclude", "b+"], "--exclude"),
        (["--task", "x", "--topic", "a", "--take-part", "b#"], "--take-part"),
        (["--task", "x", "--topic", "a", "--yes", "On", "--no", "ON"], "--no"),
    ):
        shown = run(["gateway", *options, "--state", str(tmp_path / "s")], directory=tmp_path)
        assert shown.code == 2
        (line,) = shown.err.strip().splitlines()
        assert line.startswith(f"hush: {name}: ")
