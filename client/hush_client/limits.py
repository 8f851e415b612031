"""Limits and checks of a client's arguments, apart from `policy` so that `Client` is imported without fractions."""

import os
from numbers import Real

from hush_common.errors import OptionError

CAPACITY = 10_000  # default of the most payloads that may wait for the broker
LONGEST_KEEP = 7 * 24 * 3600.0  # seconds for which an acknowledged report may be kept: `hush_common.recall.KEPT_FOR`
DEVICE_BYTES, GATEWAY_BYTES = 4 << 20, 64 << 20
"""Most bytes of kept reports, of a client and of a gateway."""


def not_a_sender(option: str, name: object) -> OptionError:
    shown = repr(name)[:80]
    return OptionError(option, f"{shown} cannot be part of a topic; use letters, digits and . _ @ : - (at most 128)")


def check_type(option: str, given: object, kinds: type | tuple[type, ...], wanted: str) -> None:
    """Raise a TypeError that names the argument, without its value, unless it has one of these types."""
    if not isinstance(given, kinds) or (isinstance(given, bool) and kinds is not bool):
        raise TypeError(f"{option} must be {wanted}, not of type {type(given).__name__}")


def check_process(opened_by: int) -> None:
    """Raise RuntimeError in a forked process: neither the threads nor the connection of its parent work there."""
    if opened_by != os.getpid():
        raise RuntimeError(
            f"the client was opened by process {opened_by}, and this one ({os.getpid()}) was forked from it; "
            "open another client here, with its own state directory"
        )


def check_seconds(option: str, given: object) -> None:
    check_type(option, given, Real, "a number of seconds")
