"""Arranging: a sweep from what a file says and what a person adds to it."""

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from hush_simulations.engines.limits import SEED, TRIALS, check_confidence, check_drawing
from hush_simulations.sweeps.directory import Directory
from hush_simulations.sweeps.plan import Sweep
from hush_simulations.sweeps.sweep_file import Asked

__all__ = ["arranged"]

T = TypeVar("T")

_TRIALS, _CONFIDENCE = 200, 0.95


def arranged(
    asked: Asked,
    out: Path,
    *,
    trials: int | None = None,
    seed: int | None = None,
    confidence: float | None = None,
    draw: str | None = None,
    option: Callable[[str], str] = "--{}".format,
) -> Sweep:
    """The sweep that is meant.

    Args:
        asked: what the file says.
        out: where it is kept: a seed that nobody says is that of the sweep that is there, or a fresh one.
        trials: instead of those of the file; 200 if nobody says.
        seed: instead of that of the file.
        confidence: instead of that of the file; 0.95 if nobody says.
        draw: instead of that of the file; `auto` if nobody says.
        option: what a message calls an argument.

    Raises:
        OptionError: an argument that is illegal.
    """
    often = _first(trials, asked.trials, _TRIALS)
    level = _first(confidence, asked.confidence, _CONFIDENCE)
    chosen = _first(seed, asked.seed, _seed_of(out))
    return Sweep(
        bases=asked.bases,
        grid=asked.grid,
        trials=TRIALS.check(often, option("trials"), f"write {TRIALS.meaning}, as in 200"),
        seed=SEED.check(chosen, option("seed"), "write a whole number from 0 up"),
        confidence=check_confidence(level, option("confidence"), str(level)),
        drawing=check_drawing(_first(draw, asked.draw, "auto"), option("draw")),
    )


def _first(*found: T | None) -> T:
    return next(one for one in found if one is not None)


def _seed_of(out: Path) -> int:
    before = Directory(out).identity()
    seed = None if before is None else before.get("seed")
    return seed if isinstance(seed, int) else secrets.randbelow(1 << 32)
