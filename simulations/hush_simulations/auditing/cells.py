"""Cells: a partition of what reports look like, made from some of them and then applied to others."""

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from hush_common.formatting import significant

__all__ = ["ATOM", "Cells", "cells_of"]

_Floats = NDArray[np.float64]
_Ints = NDArray[np.int64]

ATOM = 30
"""Equal numbers, among those that make the cells, for a cell of their own where none is stated."""
_CELLS = 64
_DIGITS = 6


class Cells:
    """A partition of what a view shows, made from samples; what it has not seen joins the last cell of names."""

    ordered = False

    def __init__(self, names: Sequence[Hashable]) -> None:
        self._names = list(names)
        self._places = {name: place for place, name in enumerate(names)}
        self.count: int = len(names) + 1

    def place(self, seen: Sequence[Hashable]) -> _Ints:
        """The number of the cell of each."""
        return np.fromiter((self._places.get(one, self.count - 1) for one in seen), np.int64, len(seen))

    def named(self, chosen: _Ints) -> str:
        """Some of the cells in words; nothing of none."""
        names = [_name(self._names[place]) for place in sorted(chosen) if place < len(self._names)]
        if len(names) < len(chosen):
            names.append("anything rare")
        return _listed(names, self.count)

    def beyond(self, chosen: _Ints) -> str:
        """The cells from one end to a threshold in words, for cells that are ordered."""
        raise NotImplementedError


class _Intervals(Cells):
    """Cells of numbers: cell i is (edge[i-1], edge[i]], the last one is open."""

    ordered = True

    def __init__(self, edges: _Floats) -> None:
        self._edges = edges
        self.count = len(edges) + 1

    def place(self, seen: Sequence[Hashable]) -> _Ints:
        return np.searchsorted(self._edges, np.array(seen, dtype=np.float64), side="left").astype(np.int64)

    def named(self, chosen: _Ints) -> str:
        return _listed([self._interval(int(place)) for place in sorted(chosen)], self.count)

    def _interval(self, place: int) -> str:
        low = "-inf" if place == 0 else _edge(self._edges[place - 1])
        high = "inf" if place == len(self._edges) else _edge(self._edges[place])
        return f"({low}, {high}]"

    def beyond(self, chosen: _Ints) -> str:
        if len(chosen) in {0, self.count}:
            return "is any" if len(chosen) else ""
        lowest, highest = int(chosen.min()), int(chosen.max())
        return f"≤ {_edge(self._edges[highest])}" if lowest == 0 else f"> {_edge(self._edges[lowest - 1])}"


def _edge(value: float) -> str:
    return significant(float(value), _DIGITS)


def _name(name: Hashable) -> str:
    return _edge(name) if isinstance(name, float) else repr(name)


def _listed(names: Sequence[str], of: int) -> str:
    if len(names) > 4:  # noqa: PLR2004 - fit on a line
        return f"is in {len(names)} of {of} cells, among them {', '.join(names[:2])}"
    return f"is {' or '.join(names)}" if names else ""


def cells_of(seen: Sequence[Hashable], atom: int = ATOM) -> Cells:
    """Cells for what was seen: intervals if all are floats and many, else names.

    Args:
        seen: what a view shows of some reports.
        atom: how many of one number it takes for a cell of its own.
    """
    if not all(isinstance(one, float) for one in seen):
        return Cells(_frequent(seen))
    values, counts = np.unique(np.array(seen, dtype=np.float64), return_counts=True)
    if len(values) <= _CELLS:
        return Cells([float(value) for value in values])
    edges = np.quantile(np.array(seen), np.linspace(0, 1, _CELLS + 1)[1:-1], method="lower")
    tails = np.sort(np.array(seen))[_tail_places(len(seen))]
    atoms = values[counts >= atom]
    alone = np.concatenate([atoms, np.nextafter(atoms, -np.inf)])  # ... a value] that holds nothing else
    return _Intervals(np.unique(np.concatenate([edges, tails, alone])))


def _tail_places(n: int) -> _Ints:
    """Ranks that double from both ends: thresholds for rare reports."""
    doubling = 2 ** np.arange(int(np.log2(n / _CELLS)) + 1) if n > _CELLS else np.array([1])
    return np.concatenate([doubling - 1, n - 1 - doubling])


def _frequent(seen: Sequence[Hashable]) -> list[Hashable]:
    """Names in their own order where they have one; those too rare to be judged alone are left out."""
    counts: dict[Hashable, int] = {}
    for one in seen:
        counts[one] = counts.get(one, 0) + 1
    names = [name for name, count in counts.items() if count >= min(ATOM // 10, len(seen) // 100)]
    return sorted(names, key=lambda name: (str(type(name)), str(name)))
