"""The guide for device makers is true: its programs, commands and rules run, against a broker set up as it says."""

import asyncio
import configparser
import inspect
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import aiomqtt
import pytest
from certificates import Authority
from heights import make_heights
from servers import Mosquitto, free_port, need

from hush_client import Client
from hush_common.broker_url import BrokerUrl
from hush_common.topics import ALL_REPORTS, task_topic

GUIDE = (Path(__file__).parents[2] / "docs" / "device.md").read_text(encoding="utf-8")
HOST, PASSWORD = "127.0.0.1", "hunter2"
DEVICES = ("kitchen-7", "meter-3", "house-4")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class House:
    """A broker with TLS, passwords and the rules of the guide, and a directory for what the guide has in `/`."""

    broker: Mosquitto
    directory: Path
    port: int

    def here(self, text: str) -> str:
        """The text of the guide, with its addresses, files and commands where this test has them."""
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
            ("source_timeout=5", "source_timeout=0.5"),
            ("--spread 600", "--spread 0.5"),
        ):
            text = text.replace(there, here)
        return text

    def python(self, number: int) -> Path:
        """The program of the guide with this number, in a file."""
        file = self.directory / f"program-{number}.py"
        file.write_text(self.here(blocks("python")[number]), encoding="utf-8")
        return file

    @asynccontextmanager
    async def aggregator(self) -> AsyncIterator[aiomqtt.Client]:
        """Whoever may read reports and publish tasks."""
        async with aiomqtt.Client(HOST, self.broker.port, username="aggregator", password=PASSWORD) as client:
            for name in ("heating", "processor-temperature"):
                domain = {"kind": "number", "lower": 0.0, "upper": 100.0}
                payload = make_heights(id=name, purpose=name, domain=domain)
                await client.publish(task_topic(name), payload, qos=1, retain=True)
            await client.subscribe(ALL_REPORTS, qos=1)
            yield client


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    authority = Authority(tmp_path, "ca")
    certificate, key = authority.issue("broker", host=HOST)
    passwords, rules = tmp_path / "passwords", tmp_path / "rules"
    passwords.touch()
    for user in ("aggregator", *DEVICES):
        subprocess.run([need("mosquitto_passwd"), "-b", str(passwords), user, PASSWORD], check=True)
    rules.write_text(blocks("acl")[0], encoding="utf-8")
    for file in (passwords, rules):
        file.chmod(0o600)
    access = f"allow_anonymous false\npassword_file {passwords}\nacl_file {rules}"
    port = free_port()
    broker = Mosquitto(tmp_path, access, listeners={port: f"certfile {certificate}\nkeyfile {key}\n"})
    broker.start()
    (tmp_path / "password").write_text(f"{PASSWORD}\n", encoding="utf-8")
    yield House(broker, tmp_path, port)
    broker.stop()


async def run(*command: str, **environment: str) -> tuple[int, str]:
    """A command to its end: its exit code, and all that it printed."""
    bare = {"PATH": "/usr/bin:/bin", **environment}  # as cron and systemd start it
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, env=bare
    )
    printed, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode is not None
    return process.returncode, printed.decode()


async def senders(aggregator: aiomqtt.Client, count: int) -> list[str]:
    """Task and sender of the next payloads."""
    async with asyncio.timeout(60):
        return [str((await anext(aggregator.messages)).topic).removeprefix("hush/v1/reports/") for _ in range(count)]


@pytest.mark.large
@pytest.mark.parametrize(
    ("number", "printed", "reports"),
    [
        (0, "sent spent 1 of 4", ["heating/kitchen-7"]),
        (2, "sent; spent 1; an observer is 73.2 % sure at most", ["heating/meter-3"]),
        (3, "{'flat-1': 'sent', 'flat-2': 'sent', 'flat-3': 'sent'}\nall sent", ["heating/house-4"]),
    ],
)
async def test_the_programs_of_the_guide_report(house: House, number: int, printed: str, reports: list[str]) -> None:
    async with house.aggregator() as aggregator:
        assert await run(sys.executable, str(house.python(number))) == (0, f"{printed}\n")
        assert await senders(aggregator, len(reports)) == reports


async def test_the_service_of_the_guide_answers_by_itself_and_may_be_stopped_at_any_time(house: House) -> None:
    (house.directory / "temp").write_text("48312\n", encoding="utf-8")
    house.python(1).rename(house.directory / "thermometer.py")
    environment, unit = map(house.here, blocks("ini"))
    service = configparser.ConfigParser(interpolation=None)
    service.optionxform = str  # type: ignore[assignment,method-assign]  # the names of systemd have capitals
    service.read_string(unit)
    name, _, url = environment.strip().partition("=")
    async with house.aggregator() as aggregator:
        process = await asyncio.create_subprocess_exec(
            *shlex.split(service["Service"]["ExecStart"]),
            env={name: url, "STATE_DIRECTORY": str(house.directory / "state")},
        )
        assert await senders(aggregator, 1) == ["processor-temperature/kitchen-7"]
        ledger = [str(Path(sys.executable).with_name("hush")), "ledger", "--state", str(house.directory / "state")]
        code, printed = await run(*ledger)
        assert code == 0
        assert "kitchen-7, for processor-temperature: epsilon 1 of" in printed
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 60) == -signal.SIGTERM


async def test_the_service_of_the_guide_logs_that_the_broker_cannot_be_reached(tmp_path: Path) -> None:
    program = tmp_path / "thermometer.py"
    program.write_text(blocks("python")[1], encoding="utf-8")
    environment = {"HUSH_BROKER": f"mqtt://kitchen-7:hunter2@{HOST}:{free_port()}", "STATE_DIRECTORY": str(tmp_path)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(program), stderr=asyncio.subprocess.PIPE, env=environment
    )
    assert process.stderr is not None
    line = (await asyncio.wait_for(process.stderr.readline(), 60)).decode()
    process.kill()
    await process.wait()
    assert line.startswith("WARNING ")
    assert "cannot connect" in line
    assert PASSWORD not in line


async def test_the_line_for_cron_reports_once_a_round(house: House) -> None:
    *assignments, line = house.here(blocks("cron")[0]).strip().splitlines()
    environment = dict(assignment.split("=", 1) for assignment in assignments)
    command = line.split(maxsplit=5)[5]
    assert "%" not in command, "cron would make a line break of it"
    async with house.aggregator() as aggregator:
        code, printed = await run("/bin/sh", "-c", command, **environment)
        assert (code, "sent, and the broker has it" in printed) == (0, True), printed
        assert await senders(aggregator, 1) == ["heating/meter-3"]
        code, printed = await run("/bin/sh", "-c", command, **environment)
        assert (code, "answered before" in printed) == (0, True), printed
    command = house.here(blocks("cron")[1]).split(maxsplit=5)[5]
    code, printed = await run("/bin/sh", "-c", command, **environment)
    assert (code, printed) == (
        0,
        "0 sent again for a recall, nothing more is due later; nothing waits for the broker.\n",
    )


async def test_the_rules_of_the_guide_confine_a_device_to_its_own_topic(house: House) -> None:
    def device() -> aiomqtt.Client:
        return aiomqtt.Client(HOST, house.broker.port, username="kitchen-7", password=PASSWORD)

    async with house.aggregator() as aggregator, device() as listener:
        await listener.subscribe("hush/v1/#", qos=1)
        for topic in ("reports/heating/house-4", "tasks/forged", "estimates/heating", "reports/heating/kitchen-7"):
            with suppress(aiomqtt.MqttError):  # some brokers hang up
                async with device() as sender:
                    await sender.publish(f"hush/v1/{topic}", topic.encode(), qos=1, retain=True)
        message = await asyncio.wait_for(anext(aggregator.messages), 60)
        assert message.payload == b"reports/heating/kitchen-7"
        await aggregator.publish(task_topic("last"), b"{}", qos=1)
        read: list[str] = []
        async with asyncio.timeout(60):
            while task_topic("last") not in read:
                read.append(str((await anext(listener.messages)).topic))
    assert set(read) == {task_topic("heating"), task_topic("processor-temperature"), task_topic("last")}


def test_what_the_guide_calls_on_a_client_is_awaited_where_it_must_be() -> None:
    spans = re.findall(r"`([^`]*\bclient\.(\w+)\([^`]*)`", re.sub(r"```.*?```", "", GUIDE, flags=re.DOTALL))
    assert {name for _, name in spans} >= {"ledger", "sync"}
    wrong = [span for span, name in spans if inspect.iscoroutinefunction(getattr(Client, name)) != ("await " in span)]
    assert wrong == []


def test_every_address_of_the_guide_is_one() -> None:
    addresses = re.findall(r"(?:mqtts?|wss?)://[^`\"\s]+", GUIDE)
    assert len(addresses) >= 8
    for address in addresses:
        BrokerUrl.parse(address)
