"""Options of a simulation, checked one by one: each mistake is one line that names the value and the remedy."""

import math

from hush_common.errors import OptionError
from hush_simulations.engines.experiment import Drawing, Engine
from hush_simulations.engines.limits import (
    CLIENTS,
    CONNECTIONS,
    ROUNDS,
    SEED,
    TRIALS,
    WORKERS,
    Whole,
    check_confidence,
    check_drawing,
    check_engine,
)

__all__ = [
    "parse_bound",
    "parse_confidence",
    "parse_connections",
    "parse_count",
    "parse_drawing",
    "parse_engine",
    "parse_port",
    "parse_rounds",
    "parse_seed",
    "parse_shares",
    "parse_trials",
    "parse_workers",
]

_PORT = Whole(0, 65535, "a free TCP port", 1883)


def _whole(option: str, text: str, limits: Whole) -> int:
    remedy = f"write {limits.meaning}, as in {option} {limits.example}"
    digits = text.strip().replace("_", "")
    if len(digits.lstrip("+-")) > 20 or not digits.lstrip("+-").isdecimal():  # noqa: PLR2004 - 2^64 has 20 digits
        raise OptionError(option, f"{text[:40]!r} is not a whole number; {remedy}")
    return limits.check(int(digits), option, remedy)


def parse_count(text: str) -> int:
    """How many devices: 1 to 1 000 000, in bulk to 1 000 000 000."""
    return _whole("--clients", text, CLIENTS)


def parse_rounds(text: str) -> int:
    """How many rounds: 1 to 1000."""
    return _whole("--rounds", text, ROUNDS)


def parse_connections(text: str) -> int:
    """How many gateways share the devices: 1 to 500."""
    return _whole("--connections", text, CONNECTIONS)


def parse_engine(text: str) -> Engine:
    """What carries the messages."""
    return check_engine(text, "--engine")


def parse_drawing(text: str) -> Drawing:
    """What the bulk engine draws."""
    return check_drawing(text, "--draw")


def parse_workers(text: str) -> int:
    """How many draw at a time: 1 to 64."""
    return _whole("--workers", text, WORKERS)


def parse_trials(text: str) -> int:
    """How often each cell of a sweep is tried: 1 to 1 000 000."""
    return _whole("--trials", text, TRIALS)


def parse_seed(text: str) -> int:
    """A seed of the population: 0 to 2^63 - 1."""
    return _whole("--seed", text, SEED)


def parse_port(text: str | int) -> int:
    """A TCP port; 0 asks the system for a free one. The default comes as a number."""
    return _whole("--port", str(text), _PORT)


def parse_confidence(text: str | float) -> float:
    """The confidence of an error bar, strictly between 0 and 1: as text, or the default as it is."""
    text = str(text)
    value = _number("--confidence", text, "write a number between 0 and 1, as in --confidence 0.95")
    return check_confidence(value, "--confidence", text.strip())


def parse_shares(text: str) -> tuple[float, ...]:
    """Shares of the devices, one for each epsilon that a task offers, whatever they add up to."""
    return tuple(
        _number("--shares", part, "write one share for each epsilon offered, as in 1,1,2") for part in text.split(",")
    )


def parse_bound(option: str, text: str) -> float:
    """A finite bound of a person's own data."""
    return _number(option, text, f"write the bound as a number, as in {option} 120")


def _number(option: str, text: str, remedy: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise OptionError(option, f"{text[:40]!r} is not a number; {remedy}") from None
    if not math.isfinite(value):
        raise OptionError(option, f"{text[:40]!r} is not finite; {remedy}")
    return value
