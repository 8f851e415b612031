"""What the arguments of a client may be. A program names its client before anything that answers is loaded."""

from numbers import Real

from hush_common.errors import OptionError

__all__ = ["CAPACITY", "DEVICE_BYTES", "GATEWAY_BYTES", "LONGEST_KEEP", "check_number", "check_type", "not_a_sender"]

CAPACITY = 10_000
"""Most payloads that may wait for the broker, where nobody says otherwise."""
LONGEST_KEEP = 7 * 24 * 3600.0
"""Seconds for which what the broker has acknowledged may be kept: `hush_common.recall.KEPT_FOR`."""
DEVICE_BYTES, GATEWAY_BYTES = 4 << 20, 64 << 20
"""Most bytes that are kept so."""


def not_a_sender(option: str, name: object) -> OptionError:
    """What to raise where something cannot be the sender of a report."""
    shown = repr(name)[:80]
    return OptionError(option, f"{shown} cannot be part of a topic; use letters, digits and . _ @ : - (at most 128)")


def check_type(option: str, given: object, kinds: type | tuple[type, ...], wanted: str) -> None:
    """Refuse an argument of a type that it never has, by its name.

    Raises:
        TypeError: it is of another type; its value is not repeated.
    """
    if not isinstance(given, kinds) or (isinstance(given, bool) and kinds is not bool):
        raise TypeError(f"{option} is {wanted}, not of type {type(given).__name__}")


def check_number(option: str, given: object, wanted: str = "a number of seconds") -> None:
    """The same of a number: whatever can be compared with one is.

    Raises:
        TypeError: it is none.
    """
    check_type(option, given, Real, wanted)
