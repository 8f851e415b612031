"""Differences: which figures of a repeated run are others than before."""

import math
from collections.abc import Iterator

from hush_simulations.engines.seeded_rng import SYSTEM

_OF_THE_CLOCK = frozenset(("elapsed_s", "reports_per_s", "updated_at", "digest"))
"""What no run has in common with another: a task that opens now has another digest than one that opened then."""

_WITHOUT_NOISE = frozenset(("clients", "truth", "clamped", "chosen", "data", "engine", "seed", "epsilon_spent"))
"""What of a run does not depend on its noise."""

_TOLERANCE = 1e-12


def is_repeatable(document: object) -> bool:
    """Whether the noise of a run follows from its seed."""
    return isinstance(document, dict) and document.get("noise") != SYSTEM


def differences(before: object, after: object) -> list[str]:
    """Each figure that differs, as `name: then, now`; floats differ from one part in 10^12 on.

    Args:
        before: the document of a run.
        after: that of its repetition. Where the noise came from the system, what rests on it is not compared.
    """
    if not is_repeatable(before) or not is_repeatable(after):
        before, after = _without_noise(before), _without_noise(after)
    return list(_differing("", before, after))


def _without_noise(document: object) -> object:
    if not isinstance(document, dict):
        return document
    return {name: value for name, value in document.items() if name in _WITHOUT_NOISE}


def _differing(name: str, before: object, after: object) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys((*before, *after)):
            if key not in _OF_THE_CLOCK:
                yield from _differing(f"{name}.{key}".lstrip("."), before.get(key), after.get(key))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for place, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from _differing(f"{name}[{place}]", one, other)
    elif not _same(before, after):
        yield f"{name}: {_said(before)}, now {_said(after)}"


def _same(before: object, after: object) -> bool:
    if isinstance(before, float) and isinstance(after, float):
        return math.isclose(before, after, rel_tol=_TOLERANCE, abs_tol=0.0)
    return type(before) is type(after) and before == after


def _said(value: object) -> str:
    return "nothing" if value is None else str(value)[:60]
