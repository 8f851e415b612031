"""`hush serve --home-assistant` at a real mosquitto with the rules that `hush broker` writes."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import aiomqtt
import pytest
from hardened import Hardened, hush

CONFIG = "homeassistant/device/hush_heights/config"
STATUS = "hush/v1/status/aggregator"
USERS = {"serve": "announcer", "home": "home-assistant", "kitchen": "device"}
TASK = 'id = "heights"\nepsilon = "1"\n[domain]\nkind = "number"\nlower = 120.0\nupper = 220.0\n'


@pytest.fixture
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hardened]:
    with Hardened(tmp_path_factory.mktemp("hardened") / "broker", USERS).running() as hardened:
        yield hardened


@pytest.fixture
def serve(broker: Hardened, tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    (tmp_path / "task.toml").write_text(TASK, encoding="utf-8")
    command = [sys.executable, "-m", "hush", "serve", *broker.login("serve"), "--home-assistant"]
    command += ["--store", str(tmp_path / "store"), "--task", str(tmp_path / "task.toml")]
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(command, stderr=log) as process:
        yield process
        process.kill()


async def came(home: aiomqtt.Client, topic: str) -> bytes:
    """The next message on a topic."""
    async with asyncio.timeout(60):
        async for message in home.messages:
            if str(message.topic) == topic:
                assert isinstance(message.payload, bytes)
                return message.payload
    raise AssertionError


@pytest.mark.large
@pytest.mark.usefixtures("serve")
async def test_its_user_is_told_of_a_task_and_that_it_is_gone(broker: Hardened, tmp_path: Path) -> None:
    async with broker.client("home") as home:
        await home.subscribe("homeassistant/#")
        announced = json.loads(await came(home, CONFIG))
        assert announced["state_topic"] == "hush/v1/estimates/heights"
        assert announced["availability_topic"] == STATUS
        await home.subscribe(announced["state_topic"])
        assert json.loads(await came(home, announced["state_topic"]))["n"] == 0
        await home.subscribe(announced["availability_topic"])
        assert await came(home, STATUS) == b"online"
        withdrawn = await asyncio.to_thread(hush, "task", "withdraw", "heights", "--store", str(tmp_path / "store"))
        assert withdrawn.returncode == 0
        assert await came(home, CONFIG) == b""


@pytest.mark.soak  # it waits for a random moment within ten seconds
async def test_it_is_told_again_when_it_is_born_and_the_broker_says_when_nobody_serves(
    broker: Hardened, serve: "subprocess.Popen[bytes]"
) -> None:
    async with broker.client("home") as home, broker.client("kitchen") as kitchen:
        await home.subscribe([("homeassistant/#", 0), ("hush/v1/status/+", 0)])
        first = await came(home, CONFIG)
        await kitchen.publish("homeassistant/device/hush_heights/config", b"", retain=True, qos=1)  # is not let
        await home.publish("homeassistant/status", b"online")
        assert await came(home, CONFIG) == first
        serve.send_signal(signal.SIGKILL)
        while await came(home, STATUS) != b"offline":
            pass
