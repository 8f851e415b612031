"""SECURITY.md names a test for every channel by which a value could leave, and those tests are there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "SECURITY.md").read_text(encoding="utf-8")


def test_every_channel_names_tests_that_exist() -> None:
    table = TEXT.partition("## Channels beside the report")[2].partition("\n## ")[0]
    rows = [line.split("|") for line in table.splitlines() if line.startswith("|")][2:]
    assert len(rows) > 10
    for _, channel, argument, tests, _ in rows:
        assert argument.strip(), channel
        named = re.findall(r"`([a-z_/]+\.py)`", tests)
        assert named, channel
        assert [name for name in named if not (ROOT / "tests" / name).exists()] == [], channel


def test_every_file_that_it_names_exists() -> None:
    named = set(re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", TEXT)) | set(re.findall(r"`(tests/[a-z_/]+\.py)`", TEXT))
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []
