"""docs/architecture.md: the files that it sends people to exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
CHANGES = PAGE.partition("## Where do I change what")[2].partition("\n## ")[0]


def test_every_file_that_a_change_is_sent_to_is_there() -> None:
    named = re.findall(r"`((?:common|client|aggregator|simulations|tests|docs)/[\w/.]+)`", CHANGES)
    assert len(named) > 30
    assert [name for name in named if not (ROOT / name).exists()] == []
