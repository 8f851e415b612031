"""README.md is true: every block runs, first to last, in a fresh environment; its shell client counts once."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from readme import MARK, README, Block, blocks, export, script
from servers import Mosquitto, free_port, need
from serving import estimate, serving

TEXT = README.read_text(encoding="utf-8")
BLOCKS = list(blocks(TEXT))
LIMIT_S = 900
"""For two installations and some forty commands, on a machine that does other work as well."""


def block(start: str) -> Block:
    """The only block that begins so."""
    (found,) = [block for block in BLOCKS if block.text.startswith(start)]
    return found


def environment(directory: Path) -> dict[str, str]:
    """Of a person who has Python and mosquitto, and nothing of hush; pip finds its settings and its cache."""
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_")) or name == "HOME"}
    python = Path(sys.base_exec_prefix, "bin")
    path = os.pathsep.join(map(str, (python, "/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin")))
    quiet = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_COMPILE": "1", "PIP_QUIET": "1"}
    return {**kept, **quiet, "PATH": path, "XDG_STATE_HOME": str(directory / "state"), "LANG": "C.UTF-8"}


def follow(document: str, directory: Path, *, mosquitto: bool) -> tuple[int, str, str]:
    """Exit code, and what all blocks print on either stream, in an export of this repository."""
    export(README.parent, directory / "clone")
    command = ["bash", "-c", script(document, free_port(), mosquitto=mosquitto)]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command,
        cwd=directory / "clone",
        env=environment(directory),
        stdout=pipe,
        stderr=pipe,
        text=True,
        start_new_session=True,
    ) as shell:
        try:
            printed, complained = shell.communicate(timeout=LIMIT_S - 30)
        finally:
            with_all_it_started(shell.pid, signal.SIGTERM)
        return shell.returncode, printed, complained


def with_all_it_started(leader: int, number: signal.Signals) -> None:
    try:
        os.killpg(leader, number)
    except ProcessLookupError:
        return


@pytest.mark.large
@pytest.mark.timeout(LIMIT_S)
def test_every_block_runs_first_to_last_as_printed_in_a_fresh_environment(tmp_path: Path) -> None:
    mosquitto = all(shutil.which(name, path=environment(tmp_path)["PATH"]) for name in ("mosquitto", "mosquitto_pub"))
    if not mosquitto and os.environ.get("HUSH_NO_SKIP"):
        need("mosquitto")
    code, printed, complained = follow(TEXT, tmp_path, mosquitto=mosquitto)
    assert code == 0, complained[-3000:]
    assert "Traceback" not in complained
    said = dict(part.split("\n", 1) for part in printed.split(MARK)[1:])
    of = {block.text: said[str(number)] for number, block in enumerate(BLOCKS)}

    def told(start: str) -> str:
        return of[block(start).text]

    assert told("hush plan").count("How many people?") == told("hush plan").count("Which epsilon?") == 1
    assert json.loads("{" + told("hush simulate     ").partition("\n{")[2])["result"]["n"] == 500
    assert re.search(
        r"reports +1 000 accepted(?s:.*)\n1\d\d\.\d+ 1[67]\d\.\d+ (True|False)\n\Z", told("python heights.py")
    )
    assert (tmp_path / "clone" / "heights.png").read_bytes().startswith(b"\x89PNG")
    assert "Is it feasible?" in told("hush feasible")
    assert "1 of 5" in told("hush feasible")
    assert "floating" in told("hush sweep")
    assert "at most 73.2 % sure" in told("hush task check")
    assert told("device/bin/python") == "sent spent 1 of 4\nalready_answered spent 1 of 4\n"
    assert "sensor-16, for Sizing of workplaces: epsilon 1 of 4" in told("hush report")
    if mosquitto:
        assert json.loads(told("# needs mosquitto\nmosquitto_pub"))["task"] == "heights"
    where = subprocess.run(
        [tmp_path / "clone" / ".venv" / "bin" / "python", "-c", "import hush; print(hush.__file__)"],
        cwd=tmp_path,
        env=environment(tmp_path),
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert where.startswith(str(tmp_path / "clone" / ".venv"))
    assert f"accepted {3 if mosquitto else 2} since the start" in complained


def test_every_file_has_a_name_and_every_other_block_is_typed() -> None:
    assert [block.name for block in BLOCKS if block.language != "sh" and not block.name] == []
    assert {block.name for block in BLOCKS} - {""} == {
        "heights.py",
        "heights.toml",
        "mosquitto.conf",
        "people.csv",
        "sensor.py",
    }
    assert "    hush" not in TEXT  # no block that only looks like one


def test_a_block_that_fails_ends_the_script(tmp_path: Path) -> None:
    fenced = "```sh\n{}\n```\n"
    document = "".join(fenced.format(line) for line in ("echo one", "false", "echo two"))
    run = subprocess.run(
        ["bash", "-c", script(document, 1, mosquitto=False)], cwd=tmp_path, check=False, capture_output=True, text=True
    )
    assert (run.returncode, run.stdout) == (1, f"{MARK}0\none\n{MARK}1\n")


def test_sections_come_in_the_order_in_which_a_new_user_needs_them() -> None:
    assert re.findall(r"^## (.*)$", TEXT, re.MULTILINE) == [
        "Install",
        "Five words",
        "Simulate",
        "Your own data",
        "Plan",
        "Sweep, attack, tour",
        "Serve",
        "A device",
        "What is promised, and what is not",
        "More",
    ]


def test_mosquitto_takes_the_settings_that_the_readme_advises(tmp_path: Path) -> None:
    server = Mosquitto(tmp_path, access=block("persistence").text)
    server.start()
    server.stop()


@pytest.mark.large
def test_the_shell_client_of_the_readme_is_counted_once_and_its_repetition_refused(
    mosquitto: Mosquitto, tmp_path: Path
) -> None:
    published = next(line for line in block("# needs mosquitto\nmosquitto_pub").text.splitlines() if "_pub" in line)
    publish = published.replace("mosquitto_pub -p 1883", f"{need('mosquitto_pub')} -p {mosquitto.port}")
    with serving(mosquitto.url, tmp_path, block("id = ").text):
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
