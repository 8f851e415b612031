"""Winsorising thresholds of Laplace reports: rungs of whole noise scales beyond the grid."""

from math import ceil, log

from hush_common.mechanisms import Laplace

__all__ = ["LADDER", "rung", "threshold"]

LADDER = range(1, 25)
"""Winsorising thresholds, in noise scales beyond the grid. The last is enough for e^24 reports."""


def threshold(mechanism: Laplace, rung: int) -> int:
    """How far beyond the grid, in steps, rung `rung` lets a report lie."""
    scale = mechanism.scale
    return -(-rung * scale.numerator // scale.denominator)


def rung(n: int) -> int:
    """The rung for n reports: the smallest that is at least ln n, so that honest noise loses at most b/(2n)."""
    return min(max(ceil(log(max(n, 1))), LADDER[0]), LADDER[-1])
