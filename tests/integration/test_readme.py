"""The README is true: its simulation runs; its task file and its shell client run against a real mosquitto."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from servers import Mosquitto, need
from serving import estimate, serving

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def block(language: str, start: str = "") -> str:
    """The first fenced block of that language that starts so."""
    match = re.search(rf"```{language}\n({re.escape(start)}.*?)```", README, re.DOTALL)
    assert match, language
    return match[1]


def test_the_simulation_of_the_readme_prints_and_draws(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", block("python", "import hush\n")]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.stderr == ""
    assert re.fullmatch(r"1\d\d\.\d+ 1[67]\d\.\d+ (True|False)\n", run.stdout)
    assert (tmp_path / "heights.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.timeout(90)
def test_the_shell_client_of_the_readme_is_counted_once_and_its_repetition_refused(
    mosquitto: Mosquitto, tmp_path: Path
) -> None:
    publish = block("sh").replace("mosquitto_pub -h broker.local", f"{need('mosquitto_pub')} -p {mosquitto.port}")
    with serving(mosquitto.url, tmp_path, block("toml")):
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
