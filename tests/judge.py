"""The judge of privacy: the loss of a mechanism, computed from its whole probability table."""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import TypeVar

from hush_common.epsilon import certified_exp
from hush_common.mechanisms import Mechanism

__all__ = ["ROUNDING", "TIGHT", "Input", "largest_ratio", "probabilities", "verdict"]

_Key = TypeVar("_Key", int, int | tuple[int, ...])
Input = int | tuple[int, ...]
DIGITS = 90
ROUNDING = Fraction(1, 10**80)
"""The table is rounded to 90 digits, so that a computed ratio is off by a few parts in 10^90."""
TIGHT = Fraction(1, 10**30)


def probabilities(mechanism: Mechanism, indices: Iterable[Input]) -> dict[Input, list[Fraction]]:
    """For each index the probabilities of all outputs, in the order of the outputs."""
    outputs = list(mechanism.outputs())
    return {i: [Fraction(mechanism.probability(k, i, DIGITS)) for k in outputs] for i in indices}


def largest_ratio(rows: Mapping[_Key, list[Fraction]]) -> Fraction:
    """The largest P(k|i)/P(k|i') over outputs k and pairs of indices."""
    ratios: list[Fraction] = [max(column) / min(column) for column in zip(*rows.values(), strict=True)]
    return max(ratios)


def verdict(mechanism: Mechanism, indices: Iterable[Input], tight: Fraction = TIGHT) -> str:
    """`"exact"`: the loss is epsilon and never above; else what is wrong with the table."""
    rows = probabilities(mechanism, indices)
    if any(abs(sum(row, Fraction(-1))) > ROUNDING for row in rows.values()):
        return "no law"
    if any(min(row) <= 0 for row in rows.values()):
        return "impossible output"
    low, high = certified_exp(mechanism.epsilon)
    ratio = largest_ratio(rows)
    if ratio > low * (1 + ROUNDING):
        return "above epsilon"
    return "exact" if ratio >= high * (1 - tight) else "below epsilon"
