"""Repeatable noise, for tests and lessons. It is not private: anyone who knows the seed can subtract it."""

import random

from hush_common.rng import REPORT_ID_BYTES, SystemRng

SYSTEM = "from the operating system"
"""What a result says about noise that is private."""

NOT_PRIVATE = "from the seed: NOT private"
"""What a result says about noise that is not."""


class SeededRng:
    """A `hush_common.rng.ReportRng` whose noise follows from a seed: the opposite of privacy, on purpose.

    Ids come from the operating system: with ids from the seed, one report would confirm a guess of the seed. `stream`
    is one of many independent sequences of a seed, such as the number of a gateway.
    """

    __slots__ = ("_random",)

    def __init__(self, seed: int, stream: int = 0) -> None:
        self._random = random.Random(f"{seed}/{stream}")  # noqa: S311 - the class says that it is not private

    def randbelow(self, n: int, /) -> int:
        return self._random.randrange(n)

    def token_bytes(self, count: int, /) -> bytes:
        return self._random.randbytes(count)

    def report_id(self) -> bytes:
        self._random.randbytes(REPORT_ID_BYTES)  # as when ids came from the seed: the noise of a seed stays the same
        return SystemRng().report_id()
