"""What a person may choose of a simulation, from a command line or from Python: ranges, and the words for a mistake."""

from dataclasses import dataclass
from fractions import Fraction

from hush_common.errors import OptionError
from hush_common.formatting import significant
from hush_simulations.engines.experiment import Drawing, Engine
from hush_simulations.scenarios.population import MOST_CLIENTS, MOST_DEVICES

__all__ = [
    "CLIENTS",
    "CONNECTIONS",
    "ROUNDS",
    "SEED",
    "TRIALS",
    "WORKERS",
    "Whole",
    "check_confidence",
    "check_drawing",
    "check_engine",
    "check_size",
]


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number.

    Args:
        smallest: smallest legal value.
        largest: largest legal value.
        meaning: what a person should write.
        example: a legal value.
    """

    smallest: int
    largest: int
    meaning: str
    example: int

    def check(self, value: int, option: str, remedy: str) -> int:
        """The value itself.

        Raises:
            OptionError: it is out of range.
        """
        if not self.smallest <= value <= self.largest:
            raise OptionError(option, f"{str(value)[:40]} is outside {self.smallest} to {self.largest}; {remedy}")
        return value


CLIENTS = Whole(1, MOST_CLIENTS, "how many devices report", 500)
ROUNDS = Whole(1, 1000, "how often every device is asked", 3)
CONNECTIONS = Whole(1, 500, "over how many connections the devices are spread", 20)
WORKERS = Whole(1, 64, "how many workers draw in bulk", 2)
TRIALS = Whole(1, 1_000_000, "how often each cell of a sweep is tried", 200)
SEED = Whole(0, (1 << 63) - 1, "a seed of the population", 7)


def check_engine(name: str, option: str) -> Engine:
    """The engine of that name.

    Raises:
        OptionError: there is none; `option` is what its message calls the choice.
    """
    if name == "mqtt":
        return "mqtt"
    if name == "memory":
        return "memory"
    if name == "bulk":
        return "bulk"
    raise OptionError(option, f"{name[:40]!r} is not an engine; write mqtt (real sockets), memory or bulk")


def check_drawing(name: str, option: str) -> Drawing:
    """What the bulk engine draws.

    Raises:
        OptionError: it draws no such thing; `option` is what its message calls the choice.
    """
    if name == "auto":
        return "auto"
    if name == "tally":
        return "tally"
    if name == "devices":
        return "devices"
    raise OptionError(option, f"{name[:40]!r} is not what the bulk engine draws; write auto, tally or devices")


def check_size(clients: int, engine: Engine, option: str) -> None:
    """So many devices take too long one by one.

    Raises:
        OptionError: more than `MOST_DEVICES`, and not in bulk.
    """
    if engine != "bulk" and clients > MOST_DEVICES:
        raise OptionError(option, f"{clients} devices are more than {MOST_DEVICES}; choose the bulk engine")


def check_confidence(value: float, option: str, shown: str) -> float:
    """The confidence of an error bar, strictly between 0 and 1.

    Args:
        value: finite.
        option: what a message calls it.
        shown: the value as it was typed.

    Raises:
        OptionError: it is no confidence; a percentage is told as a share.
    """
    if not 0 < value < 1:
        share = significant(Fraction(value) / 100, 12)
        remedy = f"for {shown} % write {share}" if 1 < value < 100 else "write for example 0.95"  # noqa: PLR2004 - per cent
        raise OptionError(option, f"{shown[:40]} is not between 0 and 1; {remedy}")
    return value
