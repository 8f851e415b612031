"""`hush serve` says in one line that its broker lets anyone in, and nothing where it does not."""

import asyncio
import logging
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from servers import Mosquitto, free_port

from hush_aggregator.broker.mqtt import warn_if_open
from hush_common.broker_url import BrokerUrl

WORDS = "accepts clients without a login: unless its rules forbid them to write, anyone who reaches it can take over"


async def warnings(url: str, caplog: pytest.LogCaptureFixture) -> list[str]:
    async with asyncio.timeout(60):
        await warn_if_open(BrokerUrl.parse(url), lambda: True)
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("login", ["", "alice:right@"])
async def test_a_broker_that_needs_no_login_is_named_without_the_password(
    mosquitto: Mosquitto, caplog: pytest.LogCaptureFixture, login: str
) -> None:
    (line,) = await warnings(mosquitto.url.replace("//", f"//{login}"), caplog)
    assert WORDS in line
    assert f":{mosquitto.port} " in line
    assert "right" not in line


async def test_a_broker_that_needs_one_is_not(guarded_mosquitto: Mosquitto, caplog: pytest.LogCaptureFixture) -> None:
    assert await warnings(guarded_mosquitto.url.replace("//", "//alice:right@"), caplog) == []


async def test_a_broker_that_is_not_there_is_not(caplog: pytest.LogCaptureFixture) -> None:
    assert await warnings(f"mqtt://alice:right@127.0.0.1:{free_port()}", caplog) == []


async def test_it_is_tried_only_once_the_aggregator_is_connected(
    mosquitto: Mosquitto, caplog: pytest.LogCaptureFixture
) -> None:
    asked = iter([False, False, True])
    await warn_if_open(BrokerUrl.parse(mosquitto.url), lambda: next(asked))
    assert next(asked, None) is None
    assert sum(WORDS in line for line in caplog.messages) == 1


@pytest.mark.large
@pytest.mark.parametrize("is_open", [True, False])
def test_the_service_says_it_once_and_goes_on(
    mosquitto: Mosquitto, guarded_mosquitto: Mosquitto, tmp_path: Path, *, is_open: bool
) -> None:
    broker = (mosquitto if is_open else guarded_mosquitto).url.replace("//", "//alice:right@")
    command = [sys.executable, "-m", "hush", "serve", "--broker", broker, "--store", str(tmp_path / "store")]
    log = tmp_path / "log"
    with log.open("wb") as stderr, subprocess.Popen(command, stderr=stderr) as service:
        try:
            deadline = time.monotonic() + 60
            while (WORDS if is_open else "connected to") not in log.read_text(encoding="utf-8"):
                assert time.monotonic() < deadline, log.read_text(encoding="utf-8")
                time.sleep(0.05)
            time.sleep(1)
        finally:
            service.send_signal(signal.SIGTERM)
        assert service.wait(60) == 0
    text = log.read_text(encoding="utf-8")
    assert text.count(WORDS) == is_open
    assert "right" not in text
    assert "ERROR" not in text
