"""`python -m hush_simulations.table_design`: the linear programs behind the tables that hush ships.

Over all channels from L + 1 equally spaced inputs to outputs on a grid of positions, the program minimises the largest
variance of one report subject to exact unbiasedness and to p(y|j) ≤ e^epsilon·p(y|j') (Kairouz, Oh and Viswanath 2016).
Variances between two inputs, where a value is rounded at random, are bounded at the middle of the cell.

A solver is right up to a tolerance, a table must be right exactly: the solution is rounded to integers, the sum and the
mean of every row are repaired in integers, and `Channel` must admit the result. The program is solved for an epsilon
less by a margin, the smallest with which that succeeds. It runs at development time only, and needs scipy.
"""

import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import exp, gcd, lcm
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import typer

from hush_common.domain import GRID_STEPS
from hush_common.errors import TaskError
from hush_common.mechanisms import Channel, tables

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy.sparse import csr_array

__all__ = ["DESIGNS", "Design", "channel", "main", "solve"]

_MARGINS = (1e-7, 1e-6, 1e-5, 1e-4)
_SCALE = 1 << 36
_UNUSED = 1e-7  # an output that no input gives more often than this is left out


@dataclass(frozen=True, slots=True)
class Design:
    """What a table may be made of.

    Args:
        epsilon: loss of one report.
        levels: L, even; inputs are 0 to L.
        half: outputs are candidates at 2·half + 1 positions,
        reach: spread evenly over [-reach, reach], where the values are [-1, 1].
        optimum: worst-case variance of the best channel with outputs anywhere, on the unit interval, within 0.5 %.
    """

    epsilon: Fraction
    levels: int
    half: int
    reach: Fraction
    optimum: float

    @property
    def positions(self) -> list[Fraction]:
        """Candidate outputs on the unit interval, ascending."""
        grid = (self.reach * k / self.half for k in range(-self.half, self.half + 1))
        return [(u + 1) / 2 for u in grid]


DESIGNS: dict[str, Design] = {
    "epsilon-1": Design(Fraction(1), 16, 12, Fraction(3), 3.991 / 4),
    "epsilon-2": Design(Fraction(2), 24, 20, Fraction(2), 0.865 / 4),
    "epsilon-4": Design(Fraction(4), 32, 20, Fraction("1.25"), 0.127 / 4),
}


def channel(design: Design) -> Channel:
    """The table of a design, admitted by the exact check.

    Raises:
        TaskError: no margin gives a solution that can be repaired.
    """
    for margin in _MARGINS[:-1]:
        try:
            return _in_integers(design, solve(design, margin))
        except TaskError as error:
            typer.echo(f"{error}; once more with a margin above {margin:g}", err=True)
    return _in_integers(design, solve(design, _MARGINS[-1]))


def solve(design: Design, margin: float = 0.0) -> "NDArray[np.float64]":
    """The probabilities p[j, y] of the best channel, within the solver's tolerance.

    Raises:
        ImportError: scipy is not installed.
        RuntimeError: the solver gave up.
    """
    try:
        from scipy.optimize import linprog  # noqa: PLC0415 - hush runs without scipy; only this script needs it
    except ImportError as error:
        raise ImportError("the design of tables needs scipy: pip install scipy") from error
    rows, outputs = design.levels + 1, np.array([float(x) for x in design.positions])
    inputs = np.linspace(0, 1, rows)
    upper, bounds = _inequalities(inputs, outputs, exp(float(design.epsilon) - margin))
    equal, right = _equalities(inputs, outputs, upper.shape[1])
    cost = np.zeros(upper.shape[1])
    cost[-1] = 1
    found = linprog(  # type: ignore[call-overload]  # its stubs know no sparse tables, the solver does
        cost, A_ub=upper, b_ub=bounds, A_eq=equal, b_eq=right, bounds=(0, None), method="highs"
    )
    if found.x is None:
        raise RuntimeError(f"the solver gave up on epsilon {design.epsilon}: {found.message}")
    p: NDArray[np.float64] = found.x[: rows * len(outputs)].reshape(rows, len(outputs))
    return (p + p[::-1, ::-1]) / 2  # the mirror image is as good, and so is any mixture of both


def _inequalities(
    inputs: "NDArray[np.float64]", outputs: "NDArray[np.float64]", ratio: float
) -> "tuple[csr_array, NDArray[np.float64]]":
    """p[j, y] between m[y] and ratio·m[y]; the variance at each input and in the middle of each cell below t.

    The unknowns are p, row by row, then m, then t.
    """
    from scipy import sparse  # noqa: PLC0415 - as in `solve`

    rows, count = len(inputs), len(outputs)
    each = sparse.eye_array(rows * count)
    least = sparse.csr_array(np.tile(np.eye(count), (rows, 1)))
    no_t = sparse.csr_array((rows * count, 1))
    second = sparse.csr_array(np.kron(np.eye(rows), outputs**2))
    middle = sparse.csr_array((np.eye(rows)[:-1] + np.eye(rows)[1:]) / 2) @ second
    moments = sparse.vstack([second, middle])
    squares = np.concatenate([inputs**2, ((inputs[:-1] + inputs[1:]) / 2) ** 2])
    table = sparse.block_array(
        [
            [-each, least, no_t],
            [each, -ratio * least, no_t],
            [moments, sparse.csr_array((len(squares), count)), sparse.csr_array(-np.ones((len(squares), 1)))],
        ],
        format="csr",
    )
    return table, np.concatenate([np.zeros(2 * rows * count), squares])


def _equalities(
    inputs: "NDArray[np.float64]", outputs: "NDArray[np.float64]", unknowns: int
) -> "tuple[csr_array, NDArray[np.float64]]":
    """Every row sums to one and has its input as its mean."""
    from scipy import sparse  # noqa: PLC0415 - as in `solve`

    rows = len(inputs)
    sums = np.kron(np.eye(rows), np.ones(len(outputs)))
    means = np.kron(np.eye(rows), outputs)
    table = np.zeros((2 * rows, unknowns))
    table[:, : sums.shape[1]] = np.vstack([sums, means])
    return sparse.csr_array(table), np.concatenate([np.ones(rows), inputs])


def _in_integers(design: Design, p: "NDArray[np.float64]") -> Channel:
    kept = [y for y in range(p.shape[1]) if p[:, y].max() > _UNUSED]
    fractions = [design.positions[y] for y in kept]
    unit = lcm(*(x.denominator for x in fractions))
    positions = [int(x * unit) for x in fractions]
    step = gcd(*(b - a for a, b in pairwise(positions)))
    total = _SCALE // (2 * design.levels * step) * (2 * design.levels * step)
    weights: list[list[int]] = []
    for j in range(design.levels // 2):
        row = [round(float(x) * total) for x in p[j, kept]]
        weights.append(_repaired(row, positions, total, total * unit * j // design.levels))
    middle = [round(float(x) * total) for x in p[design.levels // 2, kept]]
    weights.append(_balanced(middle, total))
    weights += [row[::-1] for row in weights[-2::-1]]
    return Channel(design.epsilon, GRID_STEPS, tuple(positions), unit, tuple(tuple(row) for row in weights))


def _repaired(row: Sequence[int], positions: Sequence[int], total: int, moment: int) -> list[int]:
    """`row` with the sum `total` and the first moment `moment`, changed as little as need be.

    The heaviest output makes up the sum, then gives to others: one at a time until what the mean lacks is a multiple of
    the distance to the second heaviest, and that many to the second heaviest.
    """
    result = list(row)
    home, *others = sorted(range(len(row)), key=lambda y: -row[y])
    result[home] += total - sum(row)
    distances = {y: positions[y] - positions[home] for y in others}
    lack = moment - sum(w * a for w, a in zip(result, positions, strict=True))
    bulk = distances[others[0]]
    for y, sign in _fewest_moves(distances, lack % abs(bulk), abs(bulk)):
        result[y] += sign
        result[home] -= sign
        lack -= sign * distances[y]
    result[others[0]] += lack // bulk
    result[home] -= lack // bulk
    return result


def _fewest_moves(distances: Mapping[int, int], target: int, modulus: int) -> list[tuple[int, int]]:
    """The fewest steps (output, ±1) whose distances sum to `target` modulo `modulus`: breadth first over the residues.

    Raises:
        ValueError: the distances and the modulus have a common factor that `target` lacks.
    """
    paths: dict[int, list[tuple[int, int]]] = {0: []}
    queue = deque([0])
    while queue and target not in paths:
        residue = queue.popleft()
        for y, distance in distances.items():
            for sign in (1, -1):
                reached = (residue + sign * distance) % modulus
                if reached not in paths:
                    paths[reached] = [*paths[residue], (y, sign)]
                    queue.append(reached)
    if target not in paths:
        raise ValueError(f"no moves by {sorted(distances.values())} reach {target} modulo {modulus}")
    return paths[target]


def _balanced(row: Sequence[int], total: int) -> list[int]:
    """The middle row, made its own mirror image with the sum `total`; its mean is right by symmetry.

    Raises:
        ValueError: the outputs have no middle and the sum is odd.
    """
    result = [(a + b) // 2 for a, b in zip(row, reversed(row), strict=True)]
    lack = total - sum(result)
    middle, odd = divmod(len(row), 2)
    if odd:
        result[middle] += lack
        return result
    if lack % 2:
        raise ValueError(f"{lack} cannot be halved")
    heaviest = max(range(len(row)), key=lambda y: row[y])
    result[heaviest] += lack // 2
    result[-1 - heaviest] += lack // 2
    return result


def main() -> None:
    """Write every table beside the code that reads it, and say how near to the optimum it is."""
    directory = Path(tables.__file__).parent
    for name, design in DESIGNS.items():
        made = channel(design)
        document = {"positions": made.positions, "unit": made.unit, "weights": made.weights}
        text = json.dumps(document, separators=(",", ":"))
        (directory / f"{name}.json").write_text(text + "\n", encoding="utf-8")
        excess = made.worst_variance / design.optimum - 1
        typer.echo(f"{name}: {len(made.positions)} outputs, {len(text)} bytes, {excess:+.2%} of the optimal variance")


if __name__ == "__main__":
    main()
