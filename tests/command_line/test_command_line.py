"""What people expect of any command line: -h, groups, placeholders, suggestions, completion."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import run

from hush.cli import _COMMANDS, _ready
from hush.options import _GROUPS, _MANY


def leaves(name: str, command: Any) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - typer does not export it
    for word, part in getattr(command, "commands", {}).items():
        yield from leaves(f"{name} {word}", part)
    if not getattr(command, "commands", {}):
        yield name, command


COMMANDS = {name: leaf for word, one in _COMMANDS.items() for name, leaf in leaves(word, _ready(word, one))}


def told(name: str, *options: str) -> str:
    ended = run([*name.split(), *options], Path.cwd(), environment={"COLUMNS": "100"}, patience=60)
    assert ended.code == 0, ended.err
    return ended.out


def test_every_command_is_looked_at() -> None:
    assert len(COMMANDS) > 30
    assert {"simulate", "feasible", "serve", "task publish", "broker add"} <= set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_short_too_and_has_placeholders_in_one_style(name: str) -> None:
    text = told(name, "-h")
    assert text == told(name, "--help")
    assert re.search(r"-h, --help +Show this message", text)
    shown = re.findall(r"^  (?:-\w, )?(--[\w-]+)(?: (\S+))?", text, re.MULTILINE)
    for option, placeholder in shown:
        assert "<" not in placeholder, option
        assert not placeholder or re.match(r"[A-Z0-9]|yes\|no", placeholder), (option, placeholder)


@pytest.mark.parametrize("name", COMMANDS)
def test_many_options_are_in_groups_and_none_is_lost(name: str) -> None:
    options = [one for one in COMMANDS[name].params if one.param_type_name == "option"]
    text = told(name, "-h")
    for one in options:
        assert one.help, one.name
        assert any(re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text) for word in one.opts), one.name
    if len(options) > _MANY:
        assert len(re.findall(r"^[A-Z][\w ]+:$", text, re.MULTILINE)) > 1


def test_no_group_names_an_option_that_no_command_has() -> None:
    there = {one.name for leaf in COMMANDS.values() for one in leaf.params}
    assert {name for members in _GROUPS.values() for name in members} - there <= {"na", "fold_case"}


def test_alone_it_says_what_to_try_first() -> None:
    ended = run([], Path.cwd(), patience=60)
    names = re.findall(r"^    hush (\w+)", ended.err, re.MULTILINE)
    assert len(names) == 3
    assert set(names) <= set(_COMMANDS)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("simulate --engine bulkk", "bulk"),
        ("simulate --engine bulk --draw taly", "tally"),
        ("simulate --broker mosquito", "mosquitto"),
        ("simulate --mechanism laplac", "laplace"),
        ("simulate --mechanism AUTOO", "auto"),
        ("simulate hieghts", "heights"),
        ("sweep epsilom", "epsilon"),
        ("audit laplac", "laplace"),
        ("attack flot", "float"),
        ("tour heigts", "heights"),
        ("plan --domain numbr --people 5 --epsilon 1", "number"),
    ],
)
def test_a_name_that_is_nearly_right_is_suggested(typed: str, meant: str, tmp_path: Path) -> None:
    ended = run(typed.split(), tmp_path, patience=60)
    assert ended.code == 2
    assert ended.err.endswith(f"did you mean {meant!r}?\n")
    assert ended.err.count("\n") == 1


def test_a_broker_that_is_none_is_not_repeated_since_it_may_have_a_password(tmp_path: Path) -> None:
    ended = run(["simulate", "--broker", "name:geheim@broker"], tmp_path, patience=60)
    assert (ended.code, "geheim" in ended.err) == (2, False)


def test_a_sweep_that_is_not_there_is_told_before_the_missing_directory(tmp_path: Path) -> None:
    assert "nope.toml: cannot be read" in run(["sweep", "nope.toml"], tmp_path, patience=60).err
    assert "--out: is missing" in run(["sweep", "epsilon"], tmp_path, patience=60).err


COMPLETED = [
    ("hush sim", "simulate"),
    ("hush simulate two", "two-groups"),
    ("hush simulate --eng", "--engine"),
    ("hush simulate --engine b", "bulk"),
    ("hush serve --http-tru", "--http-trusted-proxy"),
    ("hush task pub", "publish"),
    ("hush task publish --pass", "--password-file"),
    ("hush sweep li", "liars"),
    ("hush attack av", "averaging"),
    ("hush scenario show pois", "poisoned"),
]


@pytest.mark.large
@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_commands_options_and_values() -> None:
    script = ['eval "$(hush --show-completion bash)"']
    script += [
        f'COMP_WORDS=({typed}); COMP_CWORD={len(typed.split()) - 1}; _hush_completion hush; echo "${{COMPREPLY[*]}}"'
        for typed, _ in COMPLETED
    ]
    place = Path(sys.executable).parent
    ended = subprocess.run(
        ["bash", "--norc", "-c", "; ".join(script)],
        env={**os.environ, "PATH": f"{place}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    assert ended.stdout.splitlines() == [word for _, word in COMPLETED]


def test_names_of_commands_are_completed_without_a_package_of_theirs() -> None:
    code = "import sys; from hush.cli import _root_command; _root_command(); print('numpy' in sys.modules)"
    environment = {**os.environ, "_HUSH_COMPLETE": "complete_bash", "COMP_WORDS": "hush sim", "COMP_CWORD": "1"}
    ended = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stdout == "False\n"


GALLERY = (Path(__file__).parents[2] / "docs" / "gallery.md").read_text(encoding="utf-8")
IN_GALLERY = re.findall(r"^```sh\nhush (.+)\n```$", GALLERY, re.MULTILINE)


@pytest.mark.parametrize("line", IN_GALLERY)
def test_the_command_of_each_picture_has_options_that_there_are(line: str) -> None:
    name, *words = line.split()
    there = {word for one in COMMANDS[name].params for word in one.opts}
    assert {word for word in words if word.startswith("--")} <= there


def test_each_picture_of_the_gallery_has_its_command() -> None:
    assert len(IN_GALLERY) == GALLERY.count("![") == GALLERY.count("\n## ") > 6
