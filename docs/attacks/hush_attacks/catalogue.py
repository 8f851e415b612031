"""The attacks by their names; each is loaded when it is played."""

from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType

from hush_attacks.demonstration import Demonstration

ATTACKS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "float": ("floating_point", "Read a yes or no from the last bits of floating-point noise."),
        "averaging": ("averaging", "Ask the same device every day, until the noise averages away."),
        "poison": ("poisoning", "Move a mean by false reports, and by many devices that are one."),
        "link": ("linking", "Tell which two reports came from one device."),
        "silence": ("silence", "Find a value by the questions that are not answered."),
    }
)
"""Module and what the attacker does, by name."""


def play(name: str, seed: int | None = None) -> Demonstration:
    """Play an attack.

    Args:
        name: in `ATTACKS`.
        seed: fixes what the naive side draws; a real device has no seed.

    Raises:
        KeyError: there is no such attack.
    """
    run: Callable[[int | None], Demonstration] = import_module(f"hush_attacks.{ATTACKS[name][0]}").run
    return run(seed)
