# ruff: noqa: T201 - a script that prints a table
"""How long one exact perturbation takes: `python tests/benchmarks/bench_perturb.py`.

Medians over many short runs, with the randomness of the operating system, as on a device. Where OpenDP is installed
(`pip install --group bench`), its samplers for the same tasks stand beside: discrete Laplace noise of the same scale
on an integer, and randomized response.

A large set has no limit, because none can be kept: 275 of 1024 categories are 860 bits of randomness, drawn as 2046
coins (two for each category) and some fifty 16-bit words, of which about 25 then set the number right. The random bytes
alone take about 2.5 microseconds, and each single element 0.13 in pure Python, 10 in all. Fewer bits, by unranking one
integer below C(1024, 275), would take hundreds of divisions of integers of a thousand bits.
"""

import importlib
import statistics
import struct
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from functools import partial

from hush_common.domain import GRID_STEPS
from hush_common.mechanisms import Channel, Laplace, Mechanism, Multilevel, RandomizedResponse, SubsetSelection, Vector
from hush_common.mechanisms.multilevel import best_levels
from hush_common.mechanisms.parameters import shipped_at
from hush_common.mechanisms.subset_selection import best_size, draw_subset
from hush_common.rng import Rng, SystemRng

__all__ = ["main"]

LIMIT_LAPLACE = 15.0
LIMIT = 5.0
"""Microseconds that the project promises at the median, for sets of up to 64 categories; see above for larger ones."""

_RUNS = 200
_CALLS = 50
_LARGE = 64
_ONE = Fraction(1)
_THIRD = GRID_STEPS // 3
_SINGLE = [1 << c for c in range(1024)]

Case = tuple[str, Mechanism, int | tuple[int, ...], float]


def cases() -> list[Case]:
    """Name, mechanism, index and limit in microseconds (0 where none is promised)."""
    rows: list[Case] = [
        ("laplace, epsilon 1", Laplace(_ONE, GRID_STEPS), _THIRD, LIMIT_LAPLACE),
        ("laplace, epsilon 0.7", Laplace(Fraction("0.7"), GRID_STEPS), _THIRD, LIMIT_LAPLACE),
        ("randomized_response, epsilon 1", RandomizedResponse.from_epsilon(_ONE), 1, LIMIT),
    ]
    for epsilon in (_ONE, Fraction(4)):
        levels = best_levels(epsilon)
        rows.append((f"multilevel, epsilon {epsilon}", Multilevel(epsilon, GRID_STEPS, levels), _THIRD, LIMIT))
    for epsilon in (_ONE, Fraction(2), Fraction(4), Fraction(8)):
        made = shipped_at(epsilon)
        channel = Channel(epsilon, GRID_STEPS, made.positions, made.unit, made.weights)
        rows.append((f"table, epsilon {epsilon}", channel, _THIRD, LIMIT))
    for k in (4, 16, 64, 1024):
        size = best_size(_ONE, k)
        name = f"subset_selection, epsilon 1, {size} of {k}"
        rows.append((name, SubsetSelection(_ONE, k, size), 2, LIMIT if k <= _LARGE else 0))
    for total, sampled in ((1, 1), (8, 3)):
        vector = Vector(Fraction(total), GRID_STEPS, 8, sampled, best_levels(Fraction(total, sampled)))
        rows.append((f"vector, epsilon {total}, {sampled} of 8", vector, (_THIRD,) * 8, LIMIT))
    return rows


def median(call: Callable[[], object]) -> float:
    """Microseconds of one call, at the median of many short runs."""
    times = []
    for _ in range(_RUNS):
        start = time.perf_counter_ns()
        for _ in range(_CALLS):
            call()
        times.append((time.perf_counter_ns() - start) / _CALLS / 1000)
    return statistics.median(times)


def opendp() -> dict[str, Callable[[], object]]:
    """The same tasks by OpenDP; none where it is not installed."""
    try:
        dp = importlib.import_module("opendp.prelude")
    except ImportError:
        return {}
    dp.enable_features("contrib")
    number = dp.m.make_laplace(dp.atom_domain(T=int), dp.absolute_distance(T=int), scale=float(GRID_STEPS))
    bit = dp.m.make_randomized_response_bool(prob=0.7310585786300049)
    return {"laplace, epsilon 1": lambda: number(_THIRD), "randomized_response, epsilon 1": lambda: bit(arg=True)}


def by_rejection(n: int, size: int, rng: Rng) -> int:
    """What `draw_subset` could be in a dozen lines: elements of 16 bits, until there are enough different ones."""
    chosen: int = 0
    limit, left = (1 << 16) - (1 << 16) % n, size
    while True:
        for word in struct.unpack(f"<{2 * size}H", rng.token_bytes(4 * size)):
            bit = _SINGLE[word % n]
            if word < limit and not chosen & bit:
                chosen |= bit
                left -= 1
                if not left:
                    return chosen


def main() -> int:
    """Print the medians; 1 if one is above what is promised."""
    theirs, rng, slow = opendp(), SystemRng(), 0
    print(f"{'microseconds, median':42}{'hush':>8}{'limit':>8}{'OpenDP':>8}")
    for name, mechanism, index, limit in cases():
        took = median(lambda m=mechanism, i=index: m.perturb(i, rng))  # type: ignore[misc]
        other = f"{median(theirs[name]):8.1f}" if name in theirs else f"{'-':>8}"
        print(f"{name:42}{took:8.2f}{f'{limit:.0f}' if limit else '-':>8}{other}")
        slow += bool(limit and took > limit)
    print(f"\n{'a subset':42}{'hush':>8}{'by rejection':>14}")
    for n, size in ((15, 4), (63, 17), (127, 34), (255, 69), (1023, 275)):
        both = [median(partial(draw, n, size, rng)) for draw in (draw_subset, by_rejection)]
        print(f"{f'{size} of {n}':42}{both[0]:8.2f}{both[1]:14.2f}")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
