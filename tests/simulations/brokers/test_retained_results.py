"""`hush results --broker`: what a real mosquitto retains, from any publisher."""

import csv
import json
from io import StringIO
from pathlib import Path

import pytest
from commands import Shown, run
from counting import shell
from servers import Mosquitto

pytestmark = [pytest.mark.medium, pytest.mark.face]

TOPIC = "hush/v1/estimates/heights"
DOCUMENT = {
    "v": 1,
    "task": "heights",
    "round": 0,
    "n": 7,
    "mean": 1.5,
    "unit": "€",
    "stderr": {"reporters": 0.5},
    "intervals": {"reporters": [0.5, 2.5]},
}


def published(mosquitto: Mosquitto, payload: str) -> None:
    shell("mosquitto_pub", mosquitto.port, "-t", TOPIC, "-r", "-q", "1", "-m", payload)


def results(mosquitto: Mosquitto, directory: Path, *options: str) -> Shown:
    return run(["results", "heights", "--broker", mosquitto.url, *options], directory)


def test_the_retained_estimate_is_printed_as_text_json_and_csv(mosquitto: Mosquitto, tmp_path: Path) -> None:
    published(mosquitto, json.dumps(DOCUMENT))
    assert json.loads(results(mosquitto, tmp_path, "--json").out) == {"v": 1, "results": [DOCUMENT]}
    (row,) = csv.DictReader(StringIO(results(mosquitto, tmp_path, "--csv").out))
    assert (row["task"], row["n"], row["value"], row["low"], row["high"]) == ("heights", "7", "1.5", "0.5", "2.5")
    done = results(mosquitto, tmp_path)
    assert (done.code, done.err) == (0, "")
    assert "€" in done.out


def test_a_retained_message_cannot_control_the_terminal(mosquitto: Mosquitto, tmp_path: Path) -> None:
    wild = "\x1b]0;x\x07\x9b2J\u202e\ud800"
    published(mosquitto, json.dumps(DOCUMENT | {"task": wild, "mean": wild, "intervals": {wild: [1, 2]}}))
    for form in ([], ["--json"], ["--csv"]):
        done = results(mosquitto, tmp_path, *form)
        assert (done.code, done.err) == (0, "")
        assert all(line.isprintable() for line in done.out.splitlines()), done.out


def test_a_retained_message_that_is_not_an_estimate_is_one_line(mosquitto: Mosquitto, tmp_path: Path) -> None:
    (nothing,) = results(mosquitto, tmp_path).err.splitlines()
    assert TOPIC in nothing
    for payload in ("[" * 100_000, '{"n":NaN}', '{"n":%s}' % ("9" * 5000), "[]", "x"):
        published(mosquitto, payload)
        done = results(mosquitto, tmp_path)
        (line,) = done.err.splitlines()
        assert (done.code, done.out) == (1, "")
        assert TOPIC in line
