"""What people expect of any command line: -h, groups, placeholders, suggestions, completion."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from commands import leaves, run

pytestmark = pytest.mark.face

COMMANDS = leaves()


def shown(name: str, option: str, columns: int = 100) -> str:
    ended = run([*name.split(), option], Path.cwd(), environment={"COLUMNS": str(columns)}, patience=60)
    assert ended.code == 0, ended.err
    return ended.out


@pytest.mark.medium
def test_every_command_has_a_short_help_with_all_its_options() -> None:
    assert {"simulate", "feasible", "serve", "task publish", "broker add"} <= COMMANDS.keys()
    for name, leaf in COMMANDS.items():
        text = shown(name, "-h")
        assert text == shown(name, "--help")
        options = [one for one in leaf.params if one.param_type_name == "option"]
        for one in options:
            assert one.help, (name, one.name)
            assert any(re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text) for word in one.opts), (name, one.name)
        headings = re.findall(r"^[A-Z][\w ]+:$", text, re.MULTILINE)
        assert len(headings) > 1 or len(options) < 10, name
        for option, placeholder in re.findall(r"^  (?:-\w, )?(--[\w-]+)(?: (\S+))?", text, re.MULTILINE):
            assert not placeholder or re.match(r"[A-Z0-9]|yes\|no", placeholder), (name, option, placeholder)
            assert "<" not in placeholder, (name, option)


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_the_help_of_a_group_fits_and_cuts_nothing(columns: int) -> None:
    for name in ("", "task", "broker"):
        text = shown(name, "--help", columns)
        assert max(map(len, text.splitlines())) <= columns
        assert "..." not in text.replace("[ARGS]...", "")
        words = {command.split()[1] for command in COMMANDS if command.startswith(f"{name} ")} if name else COMMANDS
        assert {word.split()[0] for word in words} <= set(re.findall(r"^  (\S+)", text, re.MULTILINE))


def test_alone_it_shows_three_commands_to_try_first() -> None:
    ended = run([], Path.cwd(), patience=60)
    names = re.findall(r"^    hush (\w+)", ended.err, re.MULTILINE)
    assert len(names) == 3
    assert set(names) <= COMMANDS.keys()


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
    assert ended.err.endswith(f"{meant!r}?\n")
    assert ended.err.count("\n") == 1


def test_an_invalid_broker_is_not_repeated_for_its_password(tmp_path: Path) -> None:
    ended = run(["simulate", "--broker", "name:geheim@broker"], tmp_path, patience=60)
    assert (ended.code, "geheim" in ended.err) == (2, False)


def test_a_missing_sweep_is_reported_before_a_missing_directory(tmp_path: Path) -> None:
    assert "nope.toml" in run(["sweep", "nope.toml"], tmp_path, patience=60).err
    assert "--out" in run(["sweep", "epsilon"], tmp_path, patience=60).err


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


def test_the_command_of_each_picture_in_the_gallery_has_known_options() -> None:
    gallery = (Path(__file__).parents[2] / "docs" / "gallery.md").read_text(encoding="utf-8")
    lines = re.findall(r"^```sh\nhush (.+)\n```$", gallery, re.MULTILINE)
    assert len(lines) == gallery.count("![") == gallery.count("\n## ") > 6
    for line in lines:
        name, *words = line.split()
        known = {word for one in COMMANDS[name].params for word in one.opts}
        assert {word for word in words if word.startswith("--")} <= known, line
