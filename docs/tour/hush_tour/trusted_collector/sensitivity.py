"""Sensitivities: by how much the answer about a whole data set can change when one person's record does.

    Delta_p(f) = sup over neighbouring data sets D, D' of the l_p norm of f(D) - f(D')

(Dwork, McSherry, Nissim and Smith 2006, definition 1.) Two data sets are neighbours if one record is *replaced*, so
that both have n records and n may be public; or if one is *added or removed*, so that n itself is a secret. Both
notions are in use, and a histogram has another sensitivity under each: every function here says which it is for.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Literal, TypeAlias, TypeVar

Neighbours: TypeAlias = Literal["replace", "add or remove"]
_Record = TypeVar("_Record")


def l1_norm(components: Sequence[Fraction | int]) -> Fraction:
    """The sum of the absolute values."""
    return sum((abs(Fraction(one)) for one in components), Fraction(0))


def count() -> Fraction:
    """Of "how many records are such": 1, under both notions."""
    return Fraction(1)


def histogram(neighbours: Neighbours) -> Fraction:
    """Of counts in disjoint cells, in the l1 norm, however many cells: a replaced record leaves one and enters another.

    With a single cell, which every record is in, a replaced record changes nothing: two cells at least are meant.
    """
    return Fraction(2 if neighbours == "replace" else 1)


def proportion(n: int) -> Fraction:
    """Of the share of records that are such, of n ≥ 1; one is replaced."""
    return mean(Fraction(0), Fraction(1), n)


def mean(lower: Fraction, upper: Fraction, n: int) -> Fraction:
    """Of the mean of n ≥ 1 numbers from lower to upper; one is replaced. Without bounds there is none.

    Raises:
        ValueError: n below 1, or bounds the wrong way round.
    """
    if n < 1:
        raise ValueError(f"a mean of {n} numbers does not exist; n is at least 1")
    if upper < lower:
        raise ValueError(f"the lower bound {lower} is above the upper one {upper}")
    return Fraction(upper - lower) / n


def total(lower: Fraction, upper: Fraction, neighbours: Neighbours) -> Fraction:
    """Of the sum of numbers from lower to upper."""
    if neighbours == "replace":
        return mean(lower, upper, 1)
    return max(abs(Fraction(lower)), abs(Fraction(upper)))


def combined(parts: Sequence[Fraction]) -> Fraction:
    """A bound in the l1 norm for several queries about the same records: the sum of theirs.

    It is reached where one record can change all of them the most at once.
    """
    return sum(parts, Fraction(0))


def enumerated(
    query: Callable[[tuple[_Record, ...]], Sequence[Fraction | int]],
    records: Sequence[_Record],
    n: int,
    neighbours: Neighbours,
) -> Fraction:
    """The sensitivity in the l1 norm by looking at every data set of n records out of `records`, and every neighbour.

    A check of the formulas above for small n, not a method: the number of data sets is len(records) to the n.
    """
    pairs = itertools.chain.from_iterable(
        ((data, other) for other in _neighbours(data, records, neighbours))
        for data in itertools.product(records, repeat=n)
    )
    return max(l1_norm([Fraction(a) - b for a, b in zip(query(d), query(e), strict=True)]) for d, e in pairs)


def _neighbours(
    data: tuple[_Record, ...], records: Sequence[_Record], neighbours: Neighbours
) -> Iterator[tuple[_Record, ...]]:
    if neighbours == "add or remove":
        yield from ((*data, one) for one in records)
        return
    for place in range(len(data)):
        yield from ((*data[:place], one, *data[place + 1 :]) for one in records)
