"""Every link in the documents of a clone leads somewhere: to a file of the repository, and to a heading in it."""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"^(`{3,}).*?^\1|`[^`\n]+`", re.MULTILINE | re.DOTALL)


def links(file: Path) -> list[str]:
    return _LINK.findall(_CODE.sub("", file.read_text(encoding="utf-8")))


@cache
def anchors(file: Path) -> set[str]:
    """The headings, as GitHub and Sphinx name them."""
    text = re.sub(r"^```.*?^```", "", file.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title) for title in titles)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in plain}


def dead(file: Path) -> list[str]:
    found = []
    for link in links(file):
        path, _, anchor = link.partition("#")
        if "://" in path or path.startswith("mailto:"):
            continue
        target = file if not path else (file.parent / path).resolve()
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            found.append(link)
    return found


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_link_of_a_document_leads_somewhere(file: Path) -> None:
    assert dead(file) == []


def test_a_dead_link_would_be_found(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# One, two\n[b](b.md) [c](a.md#one-two) [d](#three) [e](https://x.y) `[f](g)`\n")
    assert dead(tmp_path / "a.md") == ["b.md", "#three"]
    assert sum(len(links(file)) for file in DOCUMENTS) > 100
