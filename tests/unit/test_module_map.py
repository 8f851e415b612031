"""docs/architecture.md: its map is made of the modules' own words, and the files it sends people to are there."""

import re
from pathlib import Path

import pytest
from tools.module_map import module_map, modules

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
CHANGES = PAGE.partition("## Where do I change what")[2].partition("\n## ")[0]


def test_the_map_is_what_the_modules_say_of_themselves() -> None:
    assert PAGE.endswith(module_map()), "run python tests/tools/module_map.py"


@pytest.mark.parametrize(("path", "sentence"), [(path.as_posix(), sentence) for path, sentence in modules()])
def test_every_module_says_in_one_line_what_it_is(path: str, sentence: str) -> None:
    assert 10 < len(sentence) <= 130, path


def test_every_file_that_a_change_is_sent_to_is_there() -> None:
    named = re.findall(r"`((?:common|client|aggregator|simulations|tests|docs)/[\w/.]+)`", CHANGES)
    assert len(named) > 30
    assert [name for name in named if not (ROOT / name).exists()] == []
