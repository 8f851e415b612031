"""The rates at which a mixture of supermartingales is taken: one grid for every anytime band."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["RATES"]

RATES: NDArray[np.float64] = 2.0 ** (-np.arange(25) / 2)
"""The grid of l, relative to the largest."""
