"""Filling: what devices do whose people have no usable value: each draws one uniformly."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hush_simulations.engines.bulk.cells import MISSING, Cells, Places
from hush_simulations.engines.bulk.scatter import Counts, scatter

__all__ = ["filled"]


def filled(cells: Cells, counts: Counts, sizes: Sequence[int], rng: np.random.Generator) -> tuple[Places, Counts]:
    """Indices and counts with one drawn uniformly for every person without a value.

    Args:
        cells: where the people are.
        counts: shape (trials, cells).
        sizes: of the domain: how many indices each coordinate has.
        rng: the randomness of the devices.
    """
    missing = cells.indices == MISSING
    if not missing.any():
        return cells.indices, counts
    if cells.indices.ndim > 1:  # somebody's vectors: each is a person, or as many as were drawn of the row
        return _filled_vectors(cells.indices, missing, counts, sizes, rng)
    lost = counts[:, missing].sum(axis=1)
    drawn = scatter(lost, np.ones(sizes[0]), rng)
    kept = ~missing
    indices = np.concatenate((cells.indices[kept], np.arange(sizes[0])))
    return indices, np.concatenate((counts[:, kept], drawn), axis=1)


def _filled_vectors(
    indices: Places,
    missing: NDArray[np.bool_],
    counts: Counts,
    sizes: Sequence[int],
    rng: np.random.Generator,
) -> tuple[Places, Counts]:
    partial = missing.any(axis=1)
    copies = counts[:, partial].max(axis=0)
    rows = np.repeat(indices[partial], copies, axis=0)
    number = np.arange(len(rows)) - np.repeat(np.cumsum(copies) - copies, copies)
    drawn = rng.integers(0, np.array(sizes), size=rows.shape)
    there = (number < np.repeat(counts[:, partial], copies, axis=1)).astype(np.int64)
    every = np.concatenate((indices[~partial], np.where(rows == MISSING, drawn, rows)))
    return every, np.concatenate((counts[:, ~partial], there), axis=1)
