"""docs/operations.md tells an operator of every reason for which a report is refused."""

import re
from pathlib import Path

from hush_common.wire import Refusal

TEXT = (Path(__file__).parents[2] / "docs/operations.md").read_text(encoding="utf-8")


def rows(text: str) -> list[list[str]]:
    """The cells of each row about a reason: the reason, what it means, what to do."""
    section = text.partition("## Why reports are refused\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


def test_every_reason_for_a_refusal_has_a_meaning_and_a_remedy() -> None:
    table = rows(TEXT)
    assert [re.fullmatch("`([a-z_]+)`", row[0])[1] for row in table] == [reason.value for reason in Refusal]  # type: ignore[index]
    assert all(len(row) == 3 and all(row) for row in table)
