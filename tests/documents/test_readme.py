"""README.md as a person follows it: its blocks first to last, in an export of the repository and a fresh environment.

Blocks in `sh` are typed; every other block is a file, under the name that the text before it gives last. A block in
`sh` that begins with `# needs mosquitto` is left out where mosquitto is not installed.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from servers import Mosquitto, free_port, need

README = Path(__file__).parents[2] / "README.md"
MARK = "\x1e"
"""Before what each block prints."""
LIMIT_S = 900
"""For two installations and some forty commands, on a machine that does other work as well."""


@dataclass(frozen=True)
class Block:
    """A fenced block; `name` is that of its file, empty if it is typed."""

    text: str
    name: str


def blocks() -> Iterator[Block]:
    text, last = README.read_text(encoding="utf-8"), 0
    for found in re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        before = text[last : found.start()].rstrip().rpartition("\n\n")[2]
        name = "" if found[1] == "sh" else re.findall(r"`([\w-]+\.\w+)`", before)[-1]
        yield Block(found[2], name)
        last = found.end()


def script(port: int, *, mosquitto: bool) -> str:
    """All blocks as one script of bash, with another port of the broker."""
    lines = ["set -e"]
    for number, block in enumerate(blocks()):
        lines.append(f"printf '{MARK}%s\\n' {number}")
        text = block.text.replace("1883", str(port))
        if block.name:
            lines.append(f"printf %s {shlex.quote(text)} > {block.name}")
        elif text.startswith("kill %2") and mosquitto:  # an acknowledgement only says that the broker has the last one
            estimate = f"mosquitto_sub -p {port} -t hush/v1/estimates/heights -C 1"
            lines += [f"until {estimate} | grep -Eq '\"n\": ?3\\b'; do sleep 0.2; done", text]
        elif mosquitto or not text.startswith("# needs mosquitto\n"):
            lines.append(text)
    return "\n".join(lines)


def export(directory: Path) -> None:
    """What is committed, and what a commit of all changes of tracked files would have: no caches, no environments."""
    git = ["git", "-C", str(README.parent)]
    commit = [*git, "-c", "user.name=test", "-c", "user.email=test@localhost", "stash", "create"]
    made = subprocess.run(commit, check=True, capture_output=True, text=True).stdout.strip()
    directory.mkdir()
    archive = subprocess.run([*git, "archive", made or "HEAD"], check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", str(directory)], input=archive, check=True)


def environment(directory: Path) -> dict[str, str]:
    """Of a person who has Python and mosquitto, and nothing of hush; pip finds its settings and its cache."""
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_")) or name == "HOME"}
    python = Path(sys.base_exec_prefix, "bin")
    path = os.pathsep.join(map(str, (python, "/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin")))
    quiet = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_COMPILE": "1", "PIP_QUIET": "1"}
    return {**kept, **quiet, "PATH": path, "XDG_STATE_HOME": str(directory / "state"), "LANG": "C.UTF-8"}


def follow(directory: Path, *, mosquitto: bool) -> tuple[int, str, str]:
    """Exit code, and what all blocks print on either stream."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        ["bash", "-c", script(free_port(), mosquitto=mosquitto)],
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
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGTERM)
        return shell.returncode, printed, complained


@pytest.mark.large
@pytest.mark.timeout(LIMIT_S)
def test_every_block_runs_first_to_last_in_a_fresh_environment(tmp_path: Path) -> None:
    path = environment(tmp_path)["PATH"]
    mosquitto = all(shutil.which(name, path=path) for name in ("mosquitto", "mosquitto_pub"))
    if not mosquitto and os.environ.get("HUSH_NO_SKIP"):
        need("mosquitto")
    clone = tmp_path / "clone"
    export(clone)
    code, printed, complained = follow(tmp_path, mosquitto=mosquitto)
    assert code == 0, complained[-3000:]
    assert "Traceback" not in complained
    by_number = dict(part.split("\n", 1) for part in printed.split(MARK)[1:])

    def output(start: str) -> str:
        (found,) = [by_number[str(number)] for number, block in enumerate(blocks()) if block.text.startswith(start)]
        return found

    assert json.loads("{" + output("hush simulate  ").partition("\n{")[2])["result"]["n"] == 500
    assert (clone / "heights.png").read_bytes().startswith(b"\x89PNG")
    assert output("device/bin/python") == "sent spent 1 of 4\nalready_answered spent 1 of 4\n"
    if mosquitto:
        assert json.loads(output("# needs mosquitto\nmosquitto_pub"))["task"] == "heights"
    counted = subprocess.run(
        [clone / ".venv/bin/hush", "results", "heights", "--store", "hush.sqlite3", "--json"],
        cwd=clone,
        env=environment(tmp_path),
        capture_output=True,
        check=True,
    )
    assert json.loads(counted.stdout)["results"][0]["n"] == (3 if mosquitto else 2)


@pytest.mark.medium
def test_mosquitto_takes_the_settings_that_the_readme_advises(tmp_path: Path) -> None:
    (settings,) = [block.text for block in blocks() if block.name == "mosquitto.conf"]
    server = Mosquitto(tmp_path, access=settings)
    server.start()
    server.stop()
