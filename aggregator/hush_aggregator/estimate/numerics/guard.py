"""Guard: which floating-point events an estimate may cause, and what becomes of an interval that fails.

An overflow, a division by zero and an invalid operation are errors here, never warnings: an interval made of their
results would look like any other. Underflow is one too, but where `underflow` says that a zero is the right answer,
and why.

An interval that fails, or has an end that is not finite, is absent. `failures` of the result names it, and
everything else of the estimate stays.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from math import isfinite
from typing import TypeVar

import numpy as np

NOT_FINITE = "not_finite"
"""The interval came out as NaN or infinite, or its arithmetic overflowed."""

FAILED = "failed"
"""Making the interval failed in another way: an error of hush."""

ACCEPTED_UNDERFLOWS: dict[str, str] = {
    "laplace-contour": "far from the saddle point the integrand is below 1e-300 of its largest value; all terms add up",
    "the end of an integral": "beyond e^-32 of its first value an integrand adds nothing",
    "a logit far from the middle": "a probability below e^-700 is 0 next to the others",
    "the mixture of a band": "a rate whose term is below e^-700 of the largest one adds nothing to the mixture",
    "the transform of a channel": "an output whose term is below e^-700 of the largest one adds nothing to a mean",
    "the wealth of the other bets": "a bet that has won e^-700 of what another one has adds nothing to their sum",
    "the tail of a sum of two binomials": "far from the saddle point the integrand is below e^-700 of its top",
}
"""Where a number too small for a float may become 0, and why that is right."""

T = TypeVar("T")


@contextmanager
def guarded() -> Iterator[None]:
    """Run numpy with overflow, division by zero, invalid operations and underflow raised."""
    with np.errstate(over="raise", divide="raise", invalid="raise", under="raise"):
        yield


@contextmanager
def underflow(place: str) -> Iterator[None]:
    """Accept underflow within, for the reason that `ACCEPTED_UNDERFLOWS` gives for `place`."""
    if place not in ACCEPTED_UNDERFLOWS:
        raise LookupError(f"no reason is listed why numbers may underflow in {place!r}")
    with np.errstate(under="ignore"):
        yield


def are_finite(ends: Iterable[float]) -> bool:
    """Return whether no number is infinite or NaN."""
    return all(map(isfinite, ends))


def attempt(
    failures: dict[str, str], target: str, make: Callable[[], T], is_sound: Callable[[T], bool | np.bool_]
) -> T | None:
    """Return what `make` returns; None, with an entry in `failures`, if it raises or its result is not sound."""
    try:
        made = make()
        if is_sound(made):
            return made
        failures[target] = NOT_FINITE
    except ArithmeticError:  # overflow, division by zero, numpy's FloatingPointError
        failures[target] = NOT_FINITE
    except Exception:  # noqa: BLE001 - one interval must never take the others with it
        failures[target] = FAILED
    return None
