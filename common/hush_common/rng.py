"""The one source of randomness: integers from the operating system.

There is no seed here. A simulation that wants a repeatable run injects its own `Rng` (and says that it is not private).
"""

from collections.abc import Callable
from secrets import SystemRandom
from typing import Protocol

REPORT_ID_BYTES = 16  # bytes of the id of a report

token_bytes: Callable[[int], bytes] = SystemRandom().randbytes
_spare_bytes: Callable[[int], bytes] = SystemRandom().randbytes
_from_bytes = int.from_bytes


class Rng(Protocol):
    """Uniform random integers."""

    def randbelow(self, n: int, /) -> int:
        """A uniform integer in [0, n), n ≥ 1."""
        ...

    def token_bytes(self, count: int, /) -> bytes:
        """`count` uniform random bytes."""
        ...


class ReportRng(Rng, Protocol):
    """What a report is made with: its noise, and its id."""

    def report_id(self) -> bytes:
        """16 bytes from the operating system, wherever the noise is from: an id must confirm no guess of a seed."""
        ...


class SystemRng:
    """Randomness of the operating system, through `secrets`, read at every draw: what every device uses.

    Exact by rejection, as `secrets.randbelow` is, and faster: at least eight spare bits make a second try rare, where
    that one tries twice on average if n is just above a power of two, as most totals here are.
    """

    __slots__ = ()

    def randbelow(self, n: int, /) -> int:
        if n < 1:
            raise ValueError(f"no integer lies in [0, {n})")
        size = (n.bit_length() + 15) >> 3
        span = 1 << (size << 3)
        while True:
            draw = _from_bytes(token_bytes(size), "big")
            rest = draw % n
            if draw - rest + n <= span:  # below the last multiple of n every remainder is equally likely
                return rest

    def token_bytes(self, count: int, /) -> bytes:
        return token_bytes(count)

    def report_id(self) -> bytes:
        return token_bytes(REPORT_ID_BYTES)


class SpareRng:
    """The work of `SystemRng.randbelow` for an unused result, with separate random bytes.

    So a place that needs an integer in some cases only takes as long in the others, and the bytes of the device's
    randomness stay in the order of docs/wire.md.
    """

    __slots__ = ()

    def randbelow(self, n: int, /) -> int:
        size = (n.bit_length() + 15) >> 3
        draw = span = 1 << (size << 3)
        rest = 0
        while draw - rest + n > span:
            draw = _from_bytes(_spare_bytes(size), "big")
            rest = draw % n
        return rest
