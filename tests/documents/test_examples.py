"""The programs of docs/examples do what they say, as a person would run them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from counting import shell
from servers import Mosquitto

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def example(name: str, *arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py"), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def printed(process: "subprocess.Popen[str]") -> str:
    """What a program printed; it must end well and complain of nothing."""
    try:
        out, error = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, error) == (0, "")
    return out


def test_every_example_is_run_here() -> None:
    assert {path.stem for path in EXAMPLES.iterdir()} == {"simulate", "device", "aggregator"}


@pytest.mark.large
def test_the_simulation_finds_narrower_intervals_for_more_people() -> None:
    out = printed(example("simulate"))
    found = re.findall(r"people: (\d+) to (\d+) cm, in truth 1[67]\d cm", out)
    widths = [int(high) - int(low) for low, high in found]
    assert len(widths) == 3
    assert widths == sorted(widths, reverse=True)
    assert re.search(r"your own data: -?\d+ years, in truth 45", out)


@pytest.mark.large
def test_the_aggregator_counts_each_device_once(mosquitto: Mosquitto, tmp_path: Path) -> None:
    def device(number: int) -> str:
        name = f"sensor-{number}"
        return printed(example("device", mosquitto.url, name, str(tmp_path / name), "172.0"))

    aggregator = example("aggregator", mosquitto.url, str(tmp_path / "heights.sqlite3"), "3")
    try:
        shell("mosquitto_sub", mosquitto.port, "-t", "hush/v1/tasks/heights", "-C", "1", "-W", "60")
        assert device(1) == "sent: spent 1 in all\n"
        assert device(1).endswith(": spent 1 in all\n")
        assert device(2) == "sent: spent 1 in all\n"
        assert aggregator.poll() is None
        assert device(3) == "sent: spent 1 in all\n"
    finally:
        out = printed(aggregator)
    assert re.fullmatch(r"3 reports: -?[\d.]+ to -?[\d.]+ cm\n", out)
