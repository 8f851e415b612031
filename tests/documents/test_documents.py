"""The documents: short enough to be read, and each thing said once."""

import re
from itertools import combinations
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
LONG_PARAGRAPH = 30


def paragraphs(text: str) -> set[str]:
    """Paragraphs of at least 30 words, with one space between words; code and tables are not prose."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    joined = (" ".join(part.split()) for part in re.split(r"\n\s*\n", prose) if not part.startswith("|"))
    return {part for part in joined if len(part.split()) >= LONG_PARAGRAPH}


@pytest.mark.parametrize(("name", "most"), [("README.md", 1600), ("docs/architecture.md", 3500)])
def test_a_page_to_begin_with_is_short(name: str, most: int) -> None:
    assert len((ROOT / name).read_text(encoding="utf-8").split()) <= most


def test_no_long_paragraph_is_in_two_documents() -> None:
    found = {path.name: paragraphs(path.read_text(encoding="utf-8")) for path in DOCUMENTS}
    assert all(found[path.name] for path in DOCUMENTS if path.name in {"README.md", "statistics.md", "wire.md"})
    assert [(a, b, found[a] & found[b]) for a, b in combinations(found, 2) if found[a] & found[b]] == []


def test_a_repeated_paragraph_is_found() -> None:
    repeated = " ".join(["word"] * LONG_PARAGRAPH)
    assert paragraphs(f"# A\n\n{repeated}\n\nb") & paragraphs(f"x\n\n{repeated.replace(' ', chr(10), 3)}\n") == {
        repeated
    }
    assert not paragraphs(f"```sh\n{repeated}\n```\n")
