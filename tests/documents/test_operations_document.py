"""docs/operations.md explains every reason for a refusal, and quotes messages that exist."""

import re
from pathlib import Path

from hush_common.wire import Refusal

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/operations.md").read_text(encoding="utf-8")


def rows(text: str) -> list[list[str]]:
    """The cells of each row about a reason: the reason, what it means, what to do."""
    section = text.partition("## Why reports are refused\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


def test_every_reason_for_a_refusal_has_a_meaning_and_a_remedy() -> None:
    table = rows(TEXT)
    assert [re.fullmatch("`([a-z_]+)`", row[0])[1] for row in table] == [reason.value for reason in Refusal]  # type: ignore[index]
    assert all(len(row) == 3 and all(row) for row in table)


COMMANDS = re.compile(r"(hush|mosquitto\w*|sqlite3|pip|pytest|python|install|system\S*|docker|openssl)\s")
PLACEHOLDERS = re.compile(r"…|\bN\b|\bheights\b|\d+|[;:()]")


def log_fragments(text: str) -> list[str]:
    """The words that never vary of each message quoted in the text, three or more of them in a row."""
    prose = " ".join(re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE).split())
    quoted = [span for span in re.findall(r"`([^`]+)`", prose) if not COMMANDS.match(span)]
    parts = (part.strip(" ,") for span in quoted for part in PLACEHOLDERS.split(span))
    return [part for part in parts if re.fullmatch(r"[a-z]+(,? [a-z]+){2,}", part)]


def absent(fragments: list[str]) -> list[str]:
    """Those of them that no text of the aggregator has."""
    sources = ((ROOT / "aggregator").rglob("*.py"), (ROOT / "common").rglob("*.py"))
    joined = " ".join(
        re.sub(r'"\s*\n\s*f?"', "", file.read_text(encoding="utf-8")) for some in sources for file in some
    )
    return [fragment for fragment in fragments if fragment not in " ".join(joined.split())]


def test_every_quoted_message_is_one_of_the_code() -> None:
    fragments = log_fragments(TEXT)
    assert len(fragments) > 15
    assert absent(fragments) == []


def test_a_message_that_the_code_does_not_have_is_found() -> None:
    assert absent(log_fragments("the log says `the broker went to sleep at 12 s`")) == ["the broker went to sleep at"]
