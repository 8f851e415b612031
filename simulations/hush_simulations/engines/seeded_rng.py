"""Repeatable noise, for tests and lessons. It is not private: anyone who knows the seed subtracts it."""

import random

from hush_common.rng import REPORT_ID_BYTES, SystemRng

SYSTEM = "from the operating system"
"""What a result says about noise that is private."""

NOT_PRIVATE = "from the seed: NOT private"
"""What a result says about noise that is not."""


class SeededRng:
    """A `hush_common.rng.ReportRng` whose noise follows from a seed: the opposite of privacy, on purpose.

    Ids are those of the operating system: with ids of the seed, an observer could tell by one report whether a guess of
    the seed is right, before any noise is subtracted.

    Args:
        seed: 0 or more.
        stream: which of many independent sequences under that seed, such as the number of a gateway.
    """

    __slots__ = ("_random",)

    def __init__(self, seed: int, stream: int = 0) -> None:
        self._random = random.Random(f"{seed}/{stream}")  # noqa: S311 - the class says that it is not private

    def randbelow(self, n: int, /) -> int:
        return self._random.randrange(n)

    def token_bytes(self, count: int, /) -> bytes:
        return self._random.randbytes(count)

    def report_id(self) -> bytes:
        self._random.randbytes(REPORT_ID_BYTES)  # what ids once took: the noise after it is what a seed always gave
        return SystemRng().report_id()
