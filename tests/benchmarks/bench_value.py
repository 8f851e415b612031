# ruff: noqa: T201 - a script that prints a table
"""From a value to its index, and from a float to a perturbed one: `python tests/benchmarks/bench_value.py [turns]`.

Medians in microseconds of processor time, each work in turns with the others.

The index: what a device computes of a number before any random draw, and the same by the definition, in fractions, as
it was computed before. Then the same for numbers of other sizes: what the time still depends on is the length of the
integers, that is the exponent of the value beside those of the bounds. Reports leave at random moments for that reason.

Float to float: a value, its index, exact noise by the randomness of the operating system, and the reported number as a
float, under `laplace` and under what hush chooses for a number (`auto`, a table); beside it the Laplace mechanism of
diffprivlib, where that is installed (`--group bench`), which is neither exact nor safe against an attack by the last
bits of its floats. Half of the time of `laplace` is the operating system's: seven draws of random bytes, each alone.
"""

import importlib
import sys
import warnings
from collections.abc import Callable
from fractions import Fraction
from functools import partial

from turns import in_turns, medians

from hush_common.domain import NumberDomain
from hush_common.mechanisms import Channel, Laplace
from hush_common.mechanisms.parameters import shipped_at
from hush_common.rng import SystemRng

__all__ = ["main"]

MOST_MICROSECONDS = 2.0
"""That an index takes at the median."""

DOMAIN = NumberDomain(120.0, 220.0, "cm")
VALUES = {
    "172.3": 172.3,
    "a tie, 120 + 100/2^21": 120 + 100 / (1 << 21),
    "a bound, 220.0": 220.0,
    "beyond a bound, 250.1": 250.1,
    "far beyond, -1e300": -1e300,
    "the smallest float": 5e-324,
}


def by_definition(value: float) -> int:
    """Clamped, then the number of steps above the lower bound, ties to the even one."""
    inside = min(max(Fraction(value), Fraction(DOMAIN.lower)), Fraction(DOMAIN.upper))
    return round((inside - Fraction(DOMAIN.lower)) / DOMAIN.step)


def by_laplace(mechanism: Laplace, rng: SystemRng, value: float) -> float:
    (k,) = mechanism.perturb(DOMAIN.index(value).scalar, rng)
    return DOMAIN.number_at(k)


def by_table(mechanism: Channel, numbers: tuple[float, ...], rng: SystemRng, value: float) -> float:
    (output,) = mechanism.perturb(DOMAIN.index(value).scalar, rng)
    return numbers[output]


def table() -> tuple[Channel, tuple[float, ...]]:
    """What `auto` means at epsilon 1, and what each of its outputs says."""
    made = shipped_at(Fraction(1))
    mechanism = Channel(Fraction(1), DOMAIN.steps, made.positions, made.unit, made.weights)
    positions = (Fraction(place, made.unit) * DOMAIN.steps for place in made.positions)
    return mechanism, tuple(float(DOMAIN.value_of(position)) for position in positions)


def diffprivlib_float() -> Callable[[], float] | None:
    """Its mechanism for the same epsilon and bounds; None where it is not installed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            laplace = importlib.import_module("diffprivlib.mechanisms").Laplace
    except ImportError:
        return None
    return partial(laplace(epsilon=1, sensitivity=DOMAIN.upper - DOMAIN.lower).randomise, 172.3)


def main(turns: int) -> int:
    """Print the medians; 1 if an index takes longer than it may."""
    indices: dict[str, Callable[[], object]] = {}
    for name, value in VALUES.items():
        indices[f"index of {name}"] = partial(DOMAIN.index, value)
        indices[f"by definition, {name}"] = partial(by_definition, value)
    floats: dict[str, Callable[[], object]] = {
        "float to float, auto": partial(by_table, *table(), SystemRng(), 172.3),
        "float to float, laplace": partial(by_laplace, Laplace(Fraction(1), DOMAIN.steps), SystemRng(), 172.3),
    }
    if (theirs := diffprivlib_float()) is not None:
        floats["float to float, diffprivlib"] = theirs
    found = {name: 1e6 * middle for name, middle in medians(in_turns(indices | floats, turns=turns, calls=100)).items()}
    for name, microseconds in found.items():
        print(f"{name:40}{microseconds:8.2f} µs")
    if theirs is not None:
        for name in ("auto", "laplace"):
            ratio = found[f"float to float, {name}"] / found["float to float, diffprivlib"]
            print(f"{name} beside diffprivlib: {ratio:.2f}")
    index = found["index of 172.3"]
    print(f"an index beside its definition in fractions: {index / found['by definition, 172.3']:.2f}")
    return 0 if index <= MOST_MICROSECONDS else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 300))
