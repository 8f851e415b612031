"""Troubles: what goes wrong on the way to the broker, and devices that do not tell the truth."""

from dataclasses import dataclass, fields
from typing import Literal

from hush_common.domain import Domain
from hush_common.errors import OptionError
from hush_simulations.scenarios.population import Observed, Value

__all__ = ["NO_FAULTS", "Faults", "Liars", "Lie", "told_by", "truthful_count"]

Lie = Literal["value", "edge", "replay"]
"""Of a liar: a false value under the protocol, the admissible report that moves the estimate up furthest, or its own
report once more."""


@dataclass(frozen=True, slots=True)
class Faults:
    """Shares of the publications of a device, each in [0, 1], together at most 1.

    Args:
        lost: the connection dies before the broker has it.
        cut: the broker has it; the connection dies before the device knows.
        late: the acknowledgement takes its time.
        twice: it arrives twice.
        reordered: one that was published later arrives before it.
        forgotten: the broker acknowledges it, and forgets it.
    """

    lost: float = 0.0
    cut: float = 0.0
    late: float = 0.0
    twice: float = 0.0
    reordered: float = 0.0
    forgotten: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            share = getattr(self, field.name)
            if not 0 <= share <= 1:
                raise OptionError(f"network.{field.name}", f"{share} is not a share; write a number from 0 to 1")
        if sum(getattr(self, field.name) for field in fields(self)) > 1:
            raise OptionError("network", "the shares add up to more than 1; one thing happens to a publication")
        if self.forgotten and self.lost + self.cut:
            raise OptionError("network.forgotten", "goes with late, twice and reordered alone; leave out lost and cut")
        if self.lost + self.cut > _MOST_BROKEN:
            raise OptionError("network.lost", f"with cut more than {_MOST_BROKEN}; a device would try for ever")

    def __bool__(self) -> bool:
        return any(getattr(self, field.name) for field in fields(self))


_MOST_BROKEN = 0.5
NO_FAULTS = Faults()


@dataclass(frozen=True, slots=True)
class Liars:
    """Devices of one kind that do not tell the truth.

    Args:
        share: of all devices, in [0, 1].
        lie: what they send.
        value: the false value, where that is the lie.
        reports: how many reports each sends, as many identities would; of its own report, how many copies besides.
    """

    share: float
    lie: Lie
    value: Value = None
    reports: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise OptionError("liars.share", f"{self.share} is not a share; write a number from 0 to 1")
        if not 1 <= self.reports <= _MOST_REPORTS:
            raise OptionError("liars.reports", f"{self.reports} is outside 1 to {_MOST_REPORTS}")
        if (self.lie == "value") != (self.value is not None):
            raise OptionError("liars.value", 'is what is told where lie = "value"; write it there, and nowhere else')

    def among(self, clients: int) -> int:
        """How many of so many devices."""
        return round(self.share * clients)


_MOST_REPORTS = 1000


def truthful_count(clients: int, liars: tuple[Liars, ...]) -> int:
    """How many of so many devices tell the truth: the first of them."""
    return max(0, clients - sum(some.among(clients) for some in liars))


def told_by(domain: Domain, value: Value) -> Observed:
    """People who all have one value, any number of them.

    Raises:
        OptionError: no value of this domain.
    """
    if None in domain.read(value, strict=False).parts:
        raise OptionError("liars.value", f"{str(value)[:40]!r} is no value of this task's domain; write one")
    return Observed((value,), resampled=True)
