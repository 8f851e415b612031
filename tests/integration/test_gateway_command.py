"""`hush gateway` between two real brokers: sensors that publish each second, and a gateway that is killed."""

import json
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from commands import run
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion
from servers import Mosquitto
from stored import counted_ids
from waiting import wait_until

from hush_client.state.database import FILE_NAME

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


def gateway(house: Mosquitto, broker: Mosquitto, state: Path, *more: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "hush", "gateway", "--topic", "zigbee2mqtt/+", "--field", "temperature"]
    command += ["--task", "heating", "--source", house.url, "--broker", broker.url, "--device", "house"]
    command += ["--state", str(state), "--spread", "0.5", "--wait", "0.5", "--lifetime", "20", "--max-epsilon", "20"]
    with (state.parent / "gateway.log").open("ab") as log:
        return subprocess.Popen([*command, *more], stdout=log, stderr=log)


def charges(state: Path) -> list[tuple[str, int, bytes]]:
    if not (state / FILE_NAME).exists():
        return []
    with suppress(sqlite3.OperationalError), closing(sqlite3.connect(state / FILE_NAME)) as reader:
        return reader.execute("SELECT device, round, report_id FROM charge").fetchall()
    return []  # it is being made


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
            running = gateway(bare, bare, state)
            for number in range(rounds):
                moment = opens + timedelta(seconds=number * EVERY_S + (0.4 + 0.9 * number) % (EVERY_S / 2))
                time.sleep(max((moment - datetime.now(UTC)).total_seconds(), 0))
                running.kill()
                running.wait(60)
                running = gateway(bare, bare, state)
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


def check(found: list[tuple[str, int, bytes]], state: Path) -> None:
    """Each sensor is charged once a round, with a report of its own, and nothing else takes part."""
    assert max(Counter((device, number) for device, number, _ in found).values()) == 1
    assert len({report for *_, report in found}) == len(found)
    assert {device for device, *_ in found} == set((state / "sensors.txt").read_text().splitlines())
    assert all(device.startswith("zigbee2mqtt/room-") for device, *_ in found)


@pytest.mark.long
@pytest.mark.slow
def test_each_sensor_answers_a_round_once_though_the_gateway_is_killed_in_each(
    bare: Mosquitto, memory_path: Path
) -> None:
    found = house_of_sensors(bare, memory_path, sensors=20, rounds=3, more=7)
    check(found, memory_path / "state")
    assert len({device for device, *_ in found}) == 20


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_two_hundred_sensors_answer_ten_rounds_each_once(bare: Mosquitto, memory_path: Path) -> None:
    found = house_of_sensors(bare, memory_path, sensors=200, rounds=10)
    check(found, memory_path / "state")
    assert len(found) == 200 * 10


def test_a_check_lists_the_sensors_and_no_value_and_answers_nothing(bare: Mosquitto, memory_path: Path) -> None:
    domain = {"kind": "number", "lower": 0.0, "outside": "clamp", "upper": 16.0}
    task: dict[str, object] = {"domain": domain, "epsilon": "1"}
    task |= {"id": "heating", "mechanism": "laplace", "rounds": 1}
    publisher = Client(CallbackAPIVersion.VERSION2)
    publisher.connect("127.0.0.1", bare.port)
    publisher.loop_start()
    payload = json.dumps(task, sort_keys=True, separators=(",", ":"))
    publisher.publish("hush/v1/tasks/heating", payload, qos=1, retain=True).wait_for_publish(60)
    with publishing(bare.port, 3):
        command = [sys.executable, "-m", "hush", "gateway", "--check", "--topic", "zigbee2mqtt/+", "--field"]
        command += ["temperature", "--task", "heating", "--source", bare.url, "--broker", bare.url, "--wait", "4"]
        done = subprocess.run(
            [*command, "--state", str(memory_path / "state")], capture_output=True, text=True, timeout=60, check=False
        )
    publisher.disconnect()
    publisher.loop_stop()
    assert done.returncode == 0, done.stderr
    assert [line.split(maxsplit=1) for line in done.stdout.splitlines() if "room" in line] == [
        ["zigbee2mqtt/room-0", "usable"],
        ["zigbee2mqtt/room-1", "usable"],
        ["zigbee2mqtt/room-2", "beyond the bounds"],
    ]
    assert "Nothing was answered." in done.stdout
    assert charges(memory_path / "state") == []
    assert not (memory_path / "state" / "sensors.txt").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--task", "x", "--topic", "a/#/b"], "--topic: is not a topic filter; for example zigbee2mqtt/+"),
        (["--task", "X!", "--topic", "a"], "--task: is not a task id; use a-z, 0-9 and -, at most 64"),
        (
            ["--task", "x", "--task", "y", "--task", "z", "--topic", "a", "--field", "t", "--field", "h"],
            "--field: is given 2 times for 3 tasks; write it once, or for each",
        ),
        (["--task", "x", "--task", "x", "--topic", "a"], "--task: names a task twice; write each once"),
        (["--task", "x", "--topic", "a", "--absent", "no"], "--absent: must be answer or skip"),
    ],
)
def test_a_mistake_is_one_line(options: list[str], message: str, tmp_path: Path) -> None:
    shown = run(["gateway", *options, "--state", str(tmp_path / "s")], directory=tmp_path)
    assert (shown.code, shown.err.strip()) == (2, f"hush: {message}")
