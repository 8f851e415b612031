"""What documents refer to is there: files, headings, tests, commands and their options."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from commands import commands

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")} - {ROOT / "CHANGELOG.md"})
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


@cache
def anchors(file: Path) -> set[str]:
    """The headings, as GitHub and Sphinx name them."""
    titles = re.findall(r"^#+ +(.+?) *$", FENCED.sub("", file.read_text(encoding="utf-8")), re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title) for title in titles)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in plain}


def test_every_link_leads_to_a_file_and_a_heading() -> None:
    for file in [ROOT / "CHANGELOG.md", *DOCUMENTS]:
        text = re.sub(r"`[^`\n]+`", "", FENCED.sub("", file.read_text(encoding="utf-8")))
        for link in re.findall(r"!?\[[^\]]*\]\(([^)\s]+)\)", text):
            path, _, anchor = link.partition("#")
            if "://" not in path and not path.startswith("mailto:"):
                target = (file.parent / path).resolve() if path else file
                assert target.exists(), f"{file.name}: {link}"
                assert not anchor or target.suffix != ".md" or anchor in anchors(target), f"{file.name}: {link}"


def test_every_path_is_that_of_a_file() -> None:
    tests = ROOT / "tests"
    folders = "|".join({path.name for top in (ROOT, tests) for path in top.iterdir() if path.is_dir()} - {"out"})
    names = {path.name for path in tests.rglob("test_*.py")}
    for file in DOCUMENTS:
        text = file.read_text(encoding="utf-8")
        for path in re.findall(rf"`((?:{folders})/[\w./-]+)`", text):
            assert (ROOT / path).exists() or (tests / path).exists(), f"{file.name}: {path}"
        assert set(re.findall(r"\btest_\w+\.py\b", text)) <= names, file.name


def test_every_promise_of_the_threat_model_names_a_test() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    tables = re.findall(r"^\|.*(?:\btest|shown by.*) \|\n\|[-|]+\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    rows = [row for table in tables for row in table.splitlines()]
    assert len(tables) >= 6
    assert [row for row in rows if not re.search(r"test_\w+\.py|none|^ \u2013 $", row.split("|")[-2])] == []


def calls(text: str) -> Iterator[str]:
    """Each call of hush in a document: after its name, without comments and the command that it starts."""
    blocks = "".join(FENCED.findall(text)).replace("\\\n", " ")
    typed = re.findall(r"^(?:\$ )?hush ([a-z].*)", blocks, re.MULTILINE)
    for call in [*typed, *re.findall(r"`hush ([a-z][^`]*)`", FENCED.sub("", text))]:
        yield re.split(r"\s#|\s--\s", call)[0]


@pytest.mark.medium
def test_every_command_and_its_options_exist() -> None:
    known = commands()
    for call in [call for file in DOCUMENTS for call in calls(file.read_text(encoding="utf-8"))]:
        name, *words = call.split()
        path = f"{name} {words[0]} " if name not in known and words and words[0].isalpha() else f"{name} "
        meant = [one for one in known if f"{one} ".startswith(path)]
        assert meant, call
        flags = {option.flag for one in meant for option in known[one]} | {"--help", "--version"}
        assert set(re.findall(r"(?<!\S)\[?(--[a-z-]+)", call)) <= flags, call
