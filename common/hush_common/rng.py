"""The one source of randomness: integers from the operating system.

There is no seed here. A simulation that wants a repeatable run injects its own `Rng` (and says that it is not private).
"""

import secrets
from typing import Protocol

__all__ = ["Rng", "SystemRng"]


class Rng(Protocol):
    """Uniform random integers."""

    def randbelow(self, n: int, /) -> int:
        """A uniform integer in [0, n), n ≥ 1."""
        ...

    def token_bytes(self, count: int, /) -> bytes:
        """`count` uniform random bytes."""
        ...


class SystemRng:
    """Randomness of the operating system, through `secrets`: what every device uses."""

    __slots__ = ()

    def randbelow(self, n: int, /) -> int:
        return secrets.randbelow(n)

    def token_bytes(self, count: int, /) -> bytes:
        return secrets.token_bytes(count)
