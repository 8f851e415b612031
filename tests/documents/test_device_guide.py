"""The programs, commands and rules of docs/device.md, with a broker that is set up as it says."""

import asyncio
import configparser
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import aiomqtt
import pytest
from certificates import Authority
from servers import Mosquitto, free_port, need

from hush_common.task import make_task

pytestmark = [pytest.mark.medium, pytest.mark.face]

GUIDE = (Path(__file__).parents[2] / "docs" / "device.md").read_text(encoding="utf-8")
HOST, PASSWORD = "127.0.0.1", "hunter2"
TASKS = ("heating", "processor-temperature")
REPORTS, END = "hush/v1/reports/", "hush/v1/tasks/end"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class House:
    """A broker with TLS, passwords and the rules of the guide, and a directory in place of `/`."""

    broker: Mosquitto
    directory: Path
    port: int  # with TLS

    def here(self, text: str) -> str:
        """A text of the guide with the addresses, files and times of this test."""
        for there, here in (
            ("broker.local", f"{HOST}:{self.port}"),
            ("/etc/hush", str(self.directory)),
            ("/var/lib/hush", str(self.directory / "state")),
            ("/opt/hush/bin/python", sys.executable),
            ("/opt/hush/bin", str(Path(sys.executable).parent)),
            ("/opt/hush/read-meter", "echo 20.5"),
            ("/opt/hush", str(self.directory)),
            ("/sys/class/thermal/thermal_zone0", str(self.directory)),
            ("spread=60", "spread=0.5"),  # a minute is long for a test
            ("--spread 600", "--spread 0.5"),
        ):
            text = text.replace(there, here)
        return text

    def connect(self, user: str) -> aiomqtt.Client:
        return aiomqtt.Client(HOST, self.broker.port, username=user, password=PASSWORD)

    def program(self, number: int, name: str = "program.py") -> Path:
        """The program of the guide with this number, in a file."""
        file = self.directory / name
        file.write_text(self.here(blocks("python")[number]), encoding="utf-8")
        return file


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    authority = Authority(tmp_path, "ca")
    certificate, key = authority.issue("broker", host=HOST)
    passwords, rules = tmp_path / "passwords", tmp_path / "rules"
    passwords.touch()
    for user in ("aggregator", "kitchen-7", "meter-3", "house-4"):
        command = [need("mosquitto_passwd"), "-b", str(passwords), user, PASSWORD]
        subprocess.run(command, check=True)  # noqa: ASYNC221 - nothing else runs yet
    rules.write_text(blocks("acl")[0], encoding="utf-8")
    for file in (passwords, rules):
        file.chmod(0o600)
    (tmp_path / "password").write_text(f"{PASSWORD}\n", encoding="utf-8")
    port = free_port()
    access = f"allow_anonymous false\npassword_file {passwords}\nacl_file {rules}"
    broker = Mosquitto(tmp_path, access, listeners={port: f"certfile {certificate}\nkeyfile {key}\n"})
    broker.start()
    made = House(broker, tmp_path, port)
    async with made.connect("aggregator") as aggregator:
        for name in TASKS:
            domain = {"kind": "number", "lower": 0.0, "upper": 100.0}
            task = make_task({"id": name, "purpose": name, "epsilon": "1", "domain": domain})
            await aggregator.publish(f"hush/v1/tasks/{name}", task.payload, qos=1, retain=True)
    yield made
    broker.stop()


@asynccontextmanager
async def aggregating(house: House) -> AsyncIterator[aiomqtt.Client]:
    async with house.connect("aggregator") as client:
        await client.subscribe(f"{REPORTS}#", qos=1)
        await client.subscribe(END, qos=1)
        yield client


async def reports(aggregator: aiomqtt.Client) -> list[str]:
    """Task and sender of each payload that the broker has taken since the last call."""
    await aggregator.publish(END, b"", qos=1)
    found: list[str] = []
    async with asyncio.timeout(60):
        while (topic := str((await anext(aggregator.messages)).topic)) != END:
            found.append(topic.removeprefix(REPORTS))
    return found


async def run(*command: str, **environment: str) -> str:
    """Run a command to its end, with as little as cron gives it; return its output."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={"PATH": "/usr/bin:/bin", **environment},
    )
    printed, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, printed.decode()
    return printed.decode()


@pytest.mark.parametrize(
    ("number", "topic"), [(0, "heating/kitchen-7"), (2, "heating/meter-3"), (3, "heating/house-4")]
)
async def test_a_program_of_the_guide_reports(house: House, number: int, topic: str) -> None:
    async with aggregating(house) as aggregator:
        assert "sent" in await run(sys.executable, str(house.program(number)))
        assert await reports(aggregator) == [topic]


async def test_the_service_answers_until_it_is_stopped(house: House) -> None:
    (house.directory / "temp").write_text("48312\n", encoding="utf-8")
    house.program(1, "thermometer.py")
    environment, unit = map(house.here, blocks("ini"))
    service = configparser.ConfigParser(interpolation=None)
    service.optionxform = str  # type: ignore[assignment,method-assign]  # the names of systemd have capitals
    service.read_string(unit)
    name, _, url = environment.strip().partition("=")
    async with aggregating(house) as aggregator:
        process = await asyncio.create_subprocess_exec(
            *shlex.split(service["Service"]["ExecStart"]),
            env={name: url, "STATE_DIRECTORY": str(house.directory / "state")},
        )
        message = await asyncio.wait_for(anext(aggregator.messages), 60)
        assert str(message.topic) == f"{REPORTS}processor-temperature/kitchen-7"
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 60) == -signal.SIGTERM


async def test_the_line_for_cron_reports_once_a_round(house: House) -> None:
    *assignments, line = house.here(blocks("cron")[0]).strip().splitlines()
    environment = dict(assignment.split("=", 1) for assignment in assignments)
    command, later = (text.split(maxsplit=5)[5] for text in (line, house.here(blocks("cron")[1])))
    assert "%" not in command, "cron would make a line break of it"
    async with aggregating(house) as aggregator:
        for sent in (["heating/meter-3"], []):
            await run("/bin/sh", "-c", command, **environment)
            assert await reports(aggregator) == sent
        await run("/bin/sh", "-c", later, **environment)
        assert await reports(aggregator) == []


async def test_the_rules_confine_a_device_to_its_own_topic(house: House) -> None:
    async with aggregating(house) as aggregator, house.connect("kitchen-7") as listener:
        await listener.subscribe("hush/v1/#", qos=1)
        for topic in ("reports/heating/house-4", "tasks/forged", "estimates/heating", "reports/heating/kitchen-7"):
            with suppress(aiomqtt.MqttError):  # some brokers hang up
                async with house.connect("kitchen-7") as sender:
                    await sender.publish(f"hush/v1/{topic}", b"x", qos=1, retain=True)
        assert await reports(aggregator) == ["heating/kitchen-7"]
        read: list[str] = []
        async with asyncio.timeout(60):
            while END not in read:
                read.append(str((await anext(listener.messages)).topic))
    assert set(read) == {*(f"hush/v1/tasks/{name}" for name in TASKS), END}
