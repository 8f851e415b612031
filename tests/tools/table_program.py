"""The linear program behind the shipped tables: the least worst-case variance that an epsilon-LDP report can have.

Over all channels from L + 1 equally spaced inputs of [0, 1] to outputs at multiples of 1/K it minimises the largest
variance of one report subject to exact unbiasedness and m[y] ≤ p[j, y] ≤ M[y] (Kairouz, Oh and Viswanath 2016), where
M = e^epsilon·m and m is unknown, or both are given. The mirror image of a channel is as good, and so is the mixture of
both: so m is symmetric, and half of the rows are enough. The unknowns are q = p - m, then half of m, then the variance.

`optimum` demands the variance at the inputs alone: no channel with outputs at these places does better at all values.
A table is made with three points within each cell, too, where a value is rounded at random: so much it really has.
"""

import json
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import exp
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog

__all__ = ["OPTIMA", "Floats", "Program", "Solution", "optimum", "places"]

Floats = NDArray[np.float64]
OPTIMA = Path(__file__).with_name("table_optima.json")
"""Checked-in values of `optimum` by epsilon."""
_WITHIN = (0.3, 0.5, 0.7)  # the vertex of a cell lies here, or no farther than 0.1 of its width away


@dataclass(frozen=True)
class Solution:
    """What the solver found, within its tolerance of about 1e-9.

    Args:
        variance: the largest of one report, on the unit interval.
        least: m, shape (outputs,).
        rows: p of the inputs 0 to L/2, shape (L/2 + 1, outputs).
    """

    variance: float
    least: Floats
    rows: Floats


@dataclass(frozen=True)
class Program:
    """What a channel may be made of.

    Args:
        epsilon: loss of one report.
        levels: L, even.
        places: numerators of the outputs, ascending and symmetric about K/2.
        unit: K, even.
    """

    epsilon: Fraction
    levels: int
    places: tuple[int, ...]
    unit: int

    def solve(self, *, cells: bool = True, limits: tuple[Floats, Floats] | None = None) -> Solution:
        """The best channel.

        Args:
            cells: whether the variance counts within cells, too.
            limits: m and M, if they are given.

        Raises:
            RuntimeError: the solver gave up.
        """
        rows, outputs, half = self._shape
        fold = self._fold()
        spread = sparse.kron(np.ones((rows, 1)), fold, format="csr")
        unknowns = rows * outputs + half + 1
        positions, inputs = np.array(self.places) / self.unit, np.arange(rows) / self.levels
        second, squares = self._moment(positions**2, spread), inputs**2
        if cells:
            between = np.vstack([(1 - f) * np.eye(rows)[:-1] + f * np.eye(rows)[1:] for f in _WITHIN])
            second = sparse.csr_array(sparse.vstack([second, sparse.csr_array(between) @ second]))
            squares = np.concatenate([squares, (between @ inputs) ** 2])
        count = len(squares)
        worst = sparse.csr_array((-np.ones(count), (range(count), [unknowns - 1] * count)), shape=(count, unknowns))
        upper, right, bounds = second + worst, squares, np.tile([0.0, np.inf], (unknowns, 1))
        if limits is None:
            room = sparse.hstack([sparse.eye_array(rows * outputs), (1 - exp(self.epsilon)) * spread, _none(spread)])
            upper, right = (
                sparse.vstack([sparse.csr_array(upper), sparse.csr_array(room)]),
                np.concatenate([right, np.zeros(rows * outputs)]),
            )
        else:
            bounds[: rows * outputs, 1] = np.tile(limits[1] - limits[0], rows)
            bounds[rows * outputs : -1] = limits[0][:half, None]
        found = linprog(  # type: ignore[call-overload]  # its stubs know no sparse tables, the solver does
            np.arange(unknowns) == unknowns - 1,
            A_ub=sparse.csr_array(upper),
            b_ub=right,
            A_eq=sparse.vstack([self._moment(positions**0, spread), self._moment(positions, spread), self._mirror()]),
            b_eq=np.concatenate([np.ones(rows), inputs, np.zeros(outputs // 2)]),
            bounds=bounds,
            method="highs",
        )
        if found.x is None:
            raise RuntimeError(f"the solver gave up on epsilon {self.epsilon}: {found.message}")
        least = fold @ found.x[rows * outputs : -1]
        return Solution(float(found.fun), least, found.x[: rows * outputs].reshape(rows, outputs) + least)

    @property
    def _shape(self) -> tuple[int, int, int]:
        """Rows that are unknown, outputs, and outputs up to the middle."""
        return self.levels // 2 + 1, len(self.places), (len(self.places) + 1) // 2

    def _fold(self) -> sparse.csr_array:
        """From half of the outputs to all."""
        _, outputs, half = self._shape
        mirrored = [min(y, outputs - 1 - y) for y in range(outputs)]
        return sparse.csr_array((np.ones(outputs), (range(outputs), mirrored)), shape=(outputs, half))

    def _moment(self, values: Floats, spread: sparse.csr_array) -> sparse.csr_array:
        """The mean of `values` in each row, from the unknowns."""
        each = sparse.kron(sparse.eye_array(self._shape[0]), values[None, :], format="csr")
        below = sparse.csr_array(each @ spread)
        return sparse.csr_array(sparse.hstack([each, below, _none(below)]))

    def _mirror(self) -> sparse.csr_array:
        """The middle row is its own mirror image."""
        rows, outputs, half = self._shape
        start, pairs = (rows - 1) * outputs, range(outputs // 2)
        columns = [start + y for y in pairs] + [start + outputs - 1 - y for y in pairs]
        signs = np.repeat([1.0, -1.0], outputs // 2)
        return sparse.csr_array((signs, ([*pairs, *pairs], columns)), shape=(outputs // 2, rows * outputs + half + 1))


def _none(beside: sparse.csr_array) -> sparse.csr_array:
    return sparse.csr_array((beside.shape[0], 1))


def places(epsilon: Fraction, unit: int) -> tuple[int, ...]:
    """Multiples of 1/unit, farther out than the best channels go: 1/epsilon beyond the ends, less from 2 on."""
    e = float(epsilon)
    beyond = round(unit * 1.6 / e * min(1.0, 2 / e) ** 0.5) + 2
    return tuple(range(-beyond, unit + beyond + 1))


@lru_cache(maxsize=256)
def optimum(epsilon: Fraction) -> float:
    """The least worst-case variance on the unit interval, within 0.2 %.

    Inputs are half as dense as outputs: up to 145 of them, and some 300 outputs. So many inputs ask for a little less
    than all do, so many outputs allow a little less.
    """
    levels = 2 * round(min(16 * exp(float(epsilon) / 3.2), 128) / 2 + 8)
    return Program(epsilon, levels, places(epsilon, 2 * levels), 2 * levels).solve(cells=False).variance


def main() -> None:
    """Find every checked-in optimum anew; some minutes."""
    epsilons = json.loads(OPTIMA.read_text("utf-8"))
    found = {epsilon: optimum(Fraction(epsilon)) for epsilon in epsilons}
    OPTIMA.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
