"""`hush results --broker`: what a real mosquitto retains, whoever has published it."""

import csv
import json
import subprocess
import sys
from io import StringIO

import pytest
from counting import shell
from servers import Mosquitto

HUSH = [sys.executable, "-m", "hush"]
TOPIC = "hush/v1/estimates/heights"


def published(mosquitto: Mosquitto, payload: str) -> None:
    shell("mosquitto_pub", mosquitto.port, "-t", TOPIC, "-r", "-q", "1", "-m", payload)


def results(mosquitto: Mosquitto, *options: str) -> subprocess.CompletedProcess[str]:
    command = [*HUSH, "results", "heights", "--broker", mosquitto.url, *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, encoding="utf-8")


@pytest.mark.large
def test_the_retained_estimate_is_printed_as_text_json_and_csv(mosquitto: Mosquitto) -> None:
    document = {"v": 1, "task": "heights", "round": 0, "n": 7, "mean": 1.5, "unit": "€"}
    document |= {"stderr": {"reporters": 0.5}, "intervals": {"reporters": [0.5, 2.5]}}
    published(mosquitto, json.dumps(document))
    assert json.loads(results(mosquitto, "--json").stdout) == {"v": 1, "results": [document]}
    (row,) = csv.DictReader(StringIO(results(mosquitto, "--csv").stdout))
    assert (row["task"], row["n"], row["value"], row["low"], row["high"]) == ("heights", "7", "1.5", "0.5", "2.5")
    done = results(mosquitto)
    assert (done.returncode, done.stderr) == (0, "")
    assert "€" in done.stdout


@pytest.mark.medium
@pytest.mark.parametrize("form", [[], ["--json"], ["--csv"]], ids=["text", "json", "csv"])
def test_what_anybody_has_published_cannot_write_to_the_terminal(mosquitto: Mosquitto, form: list[str]) -> None:
    wild = "\x1b]0;x\x07\x9b2J\u202e\ud800"
    figures = {"n": 1, "mean": wild, "intervals": {wild: [1, 2]}}
    published(mosquitto, json.dumps({"v": 1, "task": wild, "round": 0, **figures}))
    done = results(mosquitto, *form)
    assert (done.returncode, done.stderr) == (0, "")
    assert all(line.isprintable() for line in done.stdout.splitlines()), done.stdout


@pytest.mark.large
@pytest.mark.parametrize(
    "payload", ["[" * 100_000, '{"n":NaN}', '{"n":%s}' % ("9" * 5000), "[]", "x"], ids=["deep", "nan", "9", "list", "x"]
)
def test_what_is_no_estimate_is_told_in_one_line(mosquitto: Mosquitto, payload: str) -> None:
    published(mosquitto, payload)
    done = results(mosquitto)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"hush: {mosquitto.url}: what it retains under {TOPIC} is not an estimate\n"


def test_nothing_retained_is_told_in_one_line(mosquitto: Mosquitto) -> None:
    done = results(mosquitto)
    assert (done.returncode, done.stdout) == (1, "")
    assert "retains nothing under" in done.stderr
    assert len(done.stderr.splitlines()) == 1
