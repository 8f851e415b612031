"""Scenarios that come with hush, each a file in `shipped/`, and how one is found by its name."""

import difflib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path

from hush_common.errors import OptionError
from hush_simulations.scenarios.scenario import Scenario
from hush_simulations.scenarios.scenario_file import parse_scenario, read_scenario

__all__ = ["SCENARIOS", "find_scenario", "text_of"]

_FOLDER = files(__package__) / "shipped"
_DATA = (".csv", ".tsv")
_SUFFIX = ".toml"


class _Shipped(Mapping[str, Scenario]):
    """The scenarios by name, in the order of the alphabet; each file is read when its scenario is first used."""

    def __getitem__(self, name: str) -> Scenario:
        if name not in _names():
            raise KeyError(name)
        return _read(name)

    def __iter__(self) -> Iterator[str]:
        return iter(_names())

    def __len__(self) -> int:
        return len(_names())


SCENARIOS: Mapping[str, Scenario] = _Shipped()
"""The scenarios that come with hush, by name."""


def find_scenario(name: str, option: str = "SCENARIO") -> Scenario:
    """The scenario of that name, or in the TOML file of that name.

    Args:
        name: of a scenario that comes with hush, or the path of a file.
        option: what a message calls the option.

    Raises:
        OptionError: neither a scenario nor a file; the message lists the scenarios.
        TaskError: the file is not a legal scenario.
    """
    if name in SCENARIOS:
        return SCENARIOS[name]
    if name.lower().endswith(_DATA):
        own = "--csv FILE" if option.isupper() else "data=PATH"
        raise OptionError(option, f"{name[-60:]!r} has values, and is no scenario; write {own} for values of your own")
    if name.endswith(_SUFFIX) or "/" in name:
        return read_scenario(Path(name))
    near = difflib.get_close_matches(name, SCENARIOS, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "or name a TOML file"
    raise OptionError(option, f"{name[:60]!r} is not a scenario; there are {', '.join(SCENARIOS)}; {hint}")


def text_of(name: str) -> str:
    """The text of a scenario that `find_scenario` finds.

    Raises:
        OSError: its file is there no more.
    """
    file = _FOLDER / f"{name}{_SUFFIX}" if name in SCENARIOS else Path(name)
    return file.read_text(encoding="utf-8")


@cache
def _names() -> tuple[str, ...]:
    shipped = (entry.name for entry in _FOLDER.iterdir())
    return tuple(sorted(name.removesuffix(_SUFFIX) for name in shipped if name.endswith(_SUFFIX)))


@cache
def _read(name: str) -> Scenario:
    file = _FOLDER / f"{name}{_SUFFIX}"
    return parse_scenario(file.read_text(encoding="utf-8"), Path(file.name))
