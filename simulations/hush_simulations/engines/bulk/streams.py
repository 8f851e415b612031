"""Streams: where the randomness of each piece of work comes from, whoever does it, and after or beside what.

A piece is a cell of a sweep (0 where there is one) and a chunk of its devices. Its seed is `SeedSequence(entropy,
spawn_key=(cell, chunk))`, and never a matter of workers: so the same seed gives the same integers with any number of
them, as long as numpy draws as it does (its version stands in the result).
"""

import numpy as np

__all__ = ["noise_of", "people_of"]

_PEOPLE = 0


def people_of(entropy: int, cell: int, chunk: int) -> np.random.Generator:
    """What the people of a piece are drawn from."""
    return _stream(entropy, cell, chunk, _PEOPLE)


def noise_of(entropy: int, cell: int, chunk: int, round_: int) -> np.random.Generator:
    """What the devices of a piece draw their noise from in one round, or their memories (round 0)."""
    return _stream(entropy, cell, chunk, 1 + round_)


def _stream(entropy: int, *key: int) -> np.random.Generator:
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(entropy, spawn_key=key)))
