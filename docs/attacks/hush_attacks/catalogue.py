"""The attacks by name. Each module is imported when its attack is played."""

from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType

from hush_attacks.demonstration import Demonstration

ATTACKS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "float": ("floating_point", "Read a yes or no from the last bits of floating-point noise."),
        "averaging": ("averaging", "Ask the same device every day, until the noise averages out."),
        "poison": ("poisoning", "Move a mean with false reports, and with many identities of one device."),
        "link": ("linking", "Tell which two reports came from one device."),
        "silence": ("silence", "Find a value from the questions that a device does not answer."),
    }
)
"""The module and the description of each attack, by name."""


def play(name: str, seed: int | None = None) -> Demonstration:
    """Play an attack.

    Args:
        name: in `ATTACKS`.
        seed: of the naive side; a real device has no seed.

    Raises:
        KeyError: there is no such attack.
    """
    run: Callable[[int | None], Demonstration] = import_module(f"hush_attacks.{ATTACKS[name][0]}").run
    return run(seed)
