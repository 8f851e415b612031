"""The README is true: its task file and its shell client run against a real mosquitto."""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from servers import Mosquitto, need

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    """The first fenced block of that language."""
    match = re.search(rf"```{language}\n(.*?)```", README, re.DOTALL)
    assert match, language
    return match[1]


@contextmanager
def serving(url: str, directory: Path) -> Iterator[None]:
    """`hush serve` for the task of the README, up until the block ends."""
    (directory / "heights.toml").write_text(block("toml"), encoding="utf-8")
    command = [sys.executable, "-m", "hush_common", "serve", "--broker", url]
    command += ["--store", str(directory / "hush.sqlite3"), "--task", str(directory / "heights.toml")]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
        try:
            yield
        finally:
            server.send_signal(signal.SIGTERM)
            assert server.wait(20) == 0


def estimate(port: int, reports: int) -> dict[str, object]:
    """The retained estimate, once it speaks of `reports` reports, refused ones included."""
    watch = [need("mosquitto_sub"), "-h", "127.0.0.1", "-p", str(port), "-t", "hush/v1/estimates/heights", "-C", "1"]
    deadline = time.monotonic() + 20
    while True:
        run = subprocess.run([*watch, "-W", "5"], capture_output=True, check=False)
        document: dict[str, object] = json.loads(run.stdout) if run.stdout else {"n": 0, "refused": {}}
        refused = document["refused"]
        assert isinstance(refused, dict)
        if document["n"] + sum(refused.values()) >= reports:  # type: ignore[operator]  # n is a JSON integer
            return document
        assert time.monotonic() < deadline, document
        time.sleep(0.2)


@pytest.mark.timeout(90)
def test_the_shell_client_of_the_readme_is_counted_once_and_its_repetition_refused(
    mosquitto: Mosquitto, tmp_path: Path
) -> None:
    publish = block("sh").replace("mosquitto_pub -h broker.local", f"{need('mosquitto_pub')} -p {mosquitto.port}")
    with serving(mosquitto.url, tmp_path):
        first = estimate(mosquitto.port, 0)
        assert first["n"] == 0
        subprocess.run(publish, shell=True, check=True)  # noqa: S602 - a shell is what the README shows
        counted = estimate(mosquitto.port, 1)
        assert (counted["n"], counted["refused"]) == (1, {})
        assert counted["mean"] == pytest.approx(120 + 100 * 571231 / 2**20)
        subprocess.run(publish, shell=True, check=True)  # noqa: S602
        repeated = estimate(mosquitto.port, 2)
        assert (repeated["n"], repeated["refused"]) == (1, {"duplicate": 1})
        assert repeated["mean"] == counted["mean"]
