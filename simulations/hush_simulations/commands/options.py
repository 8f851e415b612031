"""Options of a simulation, checked one by one: each mistake is one line that names the value and the remedy."""

import math
from fractions import Fraction

from hush_common.errors import OptionError
from hush_common.figures import significant
from hush_simulations.engines.experiment import Engine
from hush_simulations.scenarios.population import MOST_CLIENTS

__all__ = [
    "parse_bound",
    "parse_confidence",
    "parse_connections",
    "parse_count",
    "parse_engine",
    "parse_port",
    "parse_rounds",
    "parse_seed",
    "parse_shares",
]

_MOST_CONNECTIONS = 500
_MOST_ROUNDS = 1000


def _whole(option: str, text: str, smallest: int, largest: int, remedy: str) -> int:
    digits = text.strip().replace("_", "")
    if len(digits.lstrip("+-")) > 20 or not digits.lstrip("+-").isdecimal():  # noqa: PLR2004 - 2^64 has 20 digits
        raise OptionError(option, f"{text[:40]!r} is not a whole number; {remedy}")
    value = int(digits)
    if not smallest <= value <= largest:
        raise OptionError(option, f"{text[:40]} is outside {smallest} to {largest}; {remedy}")
    return value


def parse_count(text: str) -> int:
    """How many devices: 1 to 1 000 000."""
    return _whole("--clients", text, 1, MOST_CLIENTS, "write how many devices report, as in --clients 500")


def parse_rounds(text: str) -> int:
    """How many rounds: 1 to 1000."""
    return _whole("--rounds", text, 1, _MOST_ROUNDS, "write how often every device is asked, as in --rounds 3")


def parse_connections(text: str) -> int:
    """How many gateways share the devices: 1 to 500."""
    return _whole("--connections", text, 1, _MOST_CONNECTIONS, "write over how many connections the devices are spread")


def parse_engine(text: str) -> Engine:
    """What carries the messages."""
    if text == "mqtt":
        return "mqtt"
    if text == "memory":
        return "memory"
    raise OptionError("--engine", f"{text[:40]!r} is not an engine; write mqtt (real sockets) or memory")


def parse_seed(text: str) -> int:
    """A seed of the population: 0 to 2^63 - 1."""
    return _whole("--seed", text, 0, (1 << 63) - 1, "write a seed of the population, as in --seed 7")


def parse_port(text: str | int) -> int:
    """A TCP port; 0 asks the system for a free one. The default comes as a number."""
    return _whole("--port", str(text), 0, 65535, "write a free TCP port, as in --port 1883")


def parse_confidence(text: str) -> float:
    """The confidence of an error bar, strictly between 0 and 1."""
    value = _number("--confidence", text, "write a number between 0 and 1, as in --confidence 0.95")
    if not 0 < value < 1:
        share = significant(Fraction(value) / 100, 12)
        remedy = f"for {text.strip()} % write {share}" if 1 < value < 100 else "write for example 0.95"  # noqa: PLR2004 - per cent
        raise OptionError("--confidence", f"{text[:40]} is not between 0 and 1; {remedy}")
    return value


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
