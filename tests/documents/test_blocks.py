"""The blocks of code in the documents: each document is a session, whose blocks run first to last in one folder.

A block in Python runs here, one in a shell in bash with the programs of this environment. A block that is data is read
by the part of hush that it is for. `ELSEWHERE` has the blocks that another test runs, or that nothing can run here.
"""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from sybil import Document, Example, Region
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown.lexers import FencedCodeBlockLexer

from hush import Task
from hush_common.errors import TaskError
from hush_common.recall import Recall, decode_recall
from hush_common.task import decode_task, make_task
from hush_common.wire import Frame, decode
from hush_poll.questions import questions_of
from hush_simulations.scenarios.scenario_file import parse_scenario, text_of
from hush_simulations.sweeps.sweep import find_sweep

ROOT = Path(__file__).parents[2]
LEXER = FencedCodeBlockLexer(".*")

ELSEWHERE = {
    "README.md": {"": "documents/test_readme.py"},
    "docs/architecture.md": {"text": "a drawing"},
    "docs/conform.md": {"console": "simulations/conform"},
    "docs/device.md": {
        "console": "needs root: it adds a user",
        "python": "documents/test_device_guide.py",
        "ini": "documents/test_device_guide.py",
        "cron": "documents/test_device_guide.py",
        "acl": "documents/test_device_guide.py",
        "sh\nexport HUSH_BROKER": "needs the sensors of a house",
        "\n[temperature]": "a file that the gateway writes",
    },
    "docs/gallery.md": {"sh": "takes minutes: simulations, sweeps and attacks have tests of their own"},
    "docs/http.md": {"sh": "documents/test_http_document.py"},
    "docs/index.md": {"{toctree}": "documents/test_docs.py"},
    "docs/operations.md": {
        "sh": "documents/test_operations_guide.py",
        "text\nconnection": "aggregator/ops/test_bridges.py",
        "text\nINFO": "lines of a log",
    },
    "docs/poll.md": {
        "console": "runs until Ctrl-C, on the network of a room",
        "sh": "simulations/poll/test_poll_on_a_real_broker.py",
    },
    "docs/ports.md": {
        "c": "ports/test_c_device.py",
        "js": "ports/test_javascript_device.py",
        "sh": "ports/test_javascript_package.py",
        "python": "documents/test_wire_document.py",
    },
    "docs/wire.md": {"text": "a list of characters", "sh": "documents/test_wire_document.py"},
}
"""Why a block does not run here, by its document and the beginning of its language and text: a test, or a reason."""


@dataclass
class Session:
    """What the blocks of a document share."""

    folder: Path
    task: Task | None = None  # of docs/wire.md

    def shell(self, commands: str) -> str:
        """Run commands until the first that fails; return their output."""
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        done = subprocess.run(
            ["bash", "-ec", commands],
            cwd=self.folder,
            env={**os.environ, "PATH": path, "COLUMNS": "120"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def figures(text: str) -> list[str]:
    return re.findall(r"\d+(?:[ .]\d+)*", text)


def run_console(text: str, session: Session) -> None:
    """Run the line after each `$`. If its output is shown and is not drawn at random, it has the same figures."""
    for call in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, shown = call.partition("\n")
        printed = session.shell(command)
        if shown and not command.startswith("hush audit"):
            assert figures(printed) == figures(shown)


def write_file(text: str, session: Session) -> None:
    """A block that begins with the name of its file."""
    name = text.partition("\n")[0].removeprefix("# ")
    (session.folder / name).write_text(text, encoding="utf-8")


def read_message(text: str, session: Session) -> None:
    """A task of docs/wire.md, or a report or a recall that is about it."""
    payload = text.strip().encode()
    document = json.loads(payload)
    if "domain" in document:
        session.task = decode_task(payload)
        return
    assert session.task is not None
    message = decode_recall(payload) if "over" in document else decode(payload)
    digest = session.task.digest if "over" in document else session.task.report_digest
    assert isinstance(message, Recall | Frame)
    assert message.digest == digest


def read_laboratory(text: str, session: Session) -> None:
    """The file of a sweep, or what the file of a scenario may have in addition to task and population."""
    if "[grid]" in text:
        write_file(text, session)
        assert find_sweep(str(session.folder / "mine.toml")).grid.cells == 12
    else:
        task_and_people = "[task]" + text_of("heights").partition("\n[task]")[2]
        assert parse_scenario(text + task_and_people, session.folder / "mine.toml").rounds == 3


def read_questions(text: str, _session: Session) -> None:
    assert questions_of(tomllib.loads(text)).in_turn


def read_release(text: str, _session: Session) -> None:
    fields = tomllib.loads(text)
    make_task({"id": "a", "epsilon": "1", "domain": {"kind": "bit"}, **fields})


def read_scraping(text: str, _session: Session) -> None:
    for file in yaml.safe_load(text)["rule_files"]:
        assert (ROOT / "docs/operations" / file).is_file()


def match_epsilon(grammar: str, _session: Session) -> None:
    """The grammar has every epsilon of legal size that hush reads, and no other."""
    for text in ("1", "0.5", "1e-3", "007", "5e1", ".5", "1.", "+1", "1e+1", "1/3", " 1", "1E0", "1e", "0x1", "1_0"):
        try:
            make_task({"id": "a", "epsilon": text, "domain": {"kind": "bit"}})
        except TaskError:
            assert not re.fullmatch(grammar.strip(), text), text
        else:
            assert re.fullmatch(grammar.strip(), text), text


Run = Callable[[str, Session], object]
READERS: Mapping[tuple[str, str], Run] = {
    ("docs/laboratory.md", "toml"): read_laboratory,
    ("docs/operations.md", "json"): lambda text, _: json.loads(text),
    ("docs/operations.md", "toml"): read_release,
    ("docs/operations.md", "yaml"): read_scraping,
    ("docs/poll.md", "toml"): read_questions,
    ("docs/wire.md", "json"): read_message,
    ("docs/wire.md", "regex"): match_epsilon,
}
RUNNERS: Mapping[str, Run] = {
    "console": run_console,
    "conf": write_file,
    "sh": lambda text, session: session.shell(text),
}
FILES = {
    "docs/laboratory.md": {"people.csv": "age,way\n34,bus\n51,car\n,train\n29,bus\n"},
    "docs/planning.md": {"mine.py": "import secrets\n\ndef coins(yes):\n    return secrets.choice([True, False])\n"},
}
"""Files that a document takes as given."""

LARGE = {"docs/device.md", "docs/laboratory.md", "docs/planning.md"}


def blocks(name: str) -> Iterable[tuple[str, Example]]:
    """Language and text of each block of a document, and the block."""

    def parse(document: Document) -> Iterable[Region]:
        for region in LEXER(document):
            region.parsed = region.lexemes["source"]
            yield region

    for example in Document.parse(str(ROOT / name), parse):
        yield f"{example.region.lexemes['language']}\n{example.parsed}", example


def elsewhere(name: str, block: str) -> str:
    """Why a block does not run here; empty if it does."""
    return next((reason for start, reason in ELSEWHERE.get(name, {}).items() if block.startswith(start)), "")


NAMES = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
HERE = [name for name in NAMES if any(not elsewhere(name, block) for block, _ in blocks(name))]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.large if name in LARGE else ()) for name in HERE]
)
def test_the_blocks_of_a_document_run_in_their_order(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    session = Session(tmp_path)
    for file, text in FILES.get(name, {}).items():
        (tmp_path / file).write_text(text, encoding="utf-8")
    for block, example in blocks(name):
        language = block.partition("\n")[0]
        if elsewhere(name, block):
            continue
        if language == "python":
            PythonEvaluator()(example)
        else:
            run = READERS.get((name, language)) or RUNNERS[language]
            run(str(example.parsed), session)


def test_each_block_that_runs_elsewhere_has_a_test_or_a_reason() -> None:
    for name, reasons in ELSEWHERE.items():
        for start, reason in reasons.items():
            assert any(block.startswith(start) for block, _ in blocks(name)), (name, start)
            assert " " in reason or (ROOT / "tests" / reason).exists(), reason
