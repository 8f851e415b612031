"""`cd tests; python -m tools.table_design`: the tables that hush ships, by linear programs, in about half an hour.

A solver is right up to a tolerance, a table must be right exactly: the least weight of each output is rounded to an
integer, the program is solved again under these and the integers ⌊e^epsilon·m⌋ as limits, and the few weights strictly
between are rounded so that sum and mean of every row are exact. So only the variance depends on a floating-point
number, and that is measured, in fractions, afterwards.

From each grid epsilon the next is as far as its table stays within `SLACK` of the optimum, or the next half. The
optimum is interpolated between those of `table_optima.json`.
"""

import gzip
import json
import sys
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from math import floor, log
from pathlib import Path

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.optimize import Bounds, LinearConstraint, milp
from tools.table_program import OPTIMA, Floats, Program, Solution, places

from hush_common.domain import GRID_STEPS
from hush_common.epsilon import certified_exp, decimal_text
from hush_common.mechanisms import Channel, parameters

__all__ = ["FIRST", "LAST", "SLACK", "Design", "design", "grid", "line", "main"]

FIRST, LAST = Fraction("0.33"), Fraction(8)
SLACK = 1.0195
_STEP = Fraction(1, 10_000)
_LANDMARKS = 2  # every half is a grid point
_MARGINS = tuple(map(Fraction, ("0", "1e-4", "3e-4", "1e-3")))
_NEAR = 1.0015
_TOTALS = tuple(Fraction(k, 16) for k in (16, 19, 23))
_LEVELS = {0.0: 4, 0.5: 6, 1.0: 8, 1.5: 10, 1.8: 12, 2.0: 14, 2.2: 16, 2.5: 18, 2.75: 20, 3.0: 24, 3.3: 28, 3.6: 30}
_LEVELS |= {4.0: 34, 4.4: 38, 4.7: 42, 5.0: 48, 5.3: 54, 5.6: 60, 5.9: 66, 6.2: 74, 6.5: 82, 6.8: 90, 7.1: 98}
_LEVELS |= {7.3: 106, 7.5: 112, 7.65: 116, 7.8: 120}


@dataclass(frozen=True)
class Design:
    """A symmetric table in integers, by its lower half.

    Args:
        epsilon: loss of one report.
        positions: of all outputs.
        unit: K.
        total: T.
        least: the least weight of each output.
        rows: weights of the inputs 0 to L/2.
    """

    epsilon: Fraction
    positions: tuple[int, ...]
    unit: int
    total: int
    least: tuple[int, ...]
    rows: tuple[tuple[int, ...], ...]

    @property
    def channel(self) -> Channel:
        """The mechanism, if the exact check admits it."""
        weights = (*self.rows, *(row[::-1] for row in self.rows[-2::-1]))
        return Channel(self.epsilon, GRID_STEPS, self.positions, self.unit, weights)


def design(epsilon: Fraction, levels: int, total: int) -> Design:
    """The best table of this size.

    Raises:
        RuntimeError: no margin leaves room to round the least weights.
    """
    candidates = places(epsilon, levels)
    for margin in _MARGINS:
        first = Program(epsilon - margin, levels, candidates, levels).solve()
        made = []
        for factor in _TOTALS:
            with suppress(RuntimeError):
                made.append(_in_integers(epsilon, 2 * round(total * factor / 2), first, candidates, levels))
                if made[-1].channel.worst_variance < _NEAR * first.variance:
                    break
        if made:
            return min(made, key=lambda one: one.channel.worst_variance)
    raise RuntimeError(f"no table for epsilon {epsilon}")


def _in_integers(epsilon: Fraction, total: int, first: Solution, candidates: tuple[int, ...], levels: int) -> Design:
    kept = [y for y, m in enumerate(first.least) if m * total >= 1.5]
    positions = tuple(candidates[y] for y in kept)
    least = _diffused(first.least[kept] * total)
    most = np.array([floor(certified_exp(epsilon)[0] * int(m)) for m in least])
    found = Program(epsilon, levels, positions, levels).solve(limits=(least / total, most / total))
    rows = tuple(
        _rounded(row * total, least, most, np.array(positions), (total, total * j), mirrored=2 * j == levels)
        for j, row in enumerate(found.rows)
    )
    return Design(epsilon, positions, levels, total, tuple(int(m) for m in least), rows)


def _diffused(values: Floats) -> Floats:
    """Positive integers, symmetric; what rounding takes from one value the next one inwards gets, so that sums stay."""
    result, error = np.zeros(len(values)), 0.0
    for y in range((len(values) + 1) // 2):
        result[[y, -1 - y]] = max(round(values[y] + error), 1)
        error += values[y] - result[y]
    return result


def _rounded(
    row: Floats, least: Floats, most: Floats, positions: Floats, moments: tuple[int, int], *, mirrored: bool
) -> tuple[int, ...]:
    """Integers next to `row`, within the limits, of exactly these moments; weights at a limit are moved last.

    Raises:
        RuntimeError: there are none within 40 of it.
    """
    start = np.clip(np.rint((row + row[::-1]) / 2 if mirrored else row), least, most)
    lack = [moments[0] - int(start.sum()), moments[1] - int(start @ positions)]
    run = np.flatnonzero(start > least)
    near = (np.arange(len(row)) >= run[0] - 1) & (np.arange(len(row)) <= run[-1] + 1)
    for reach in (2, 6, 40):
        raised, lowered = near * np.minimum(most - start, reach), np.minimum(start - least, reach)
        equal = [np.ones(len(row)), positions - positions[np.argmax(start)]]
        wanted = [lack[0], lack[1] - lack[0] * int(positions[np.argmax(start)])]
        if mirrored:
            half = np.eye(len(row))[: len(row) // 2]
            equal, wanted = [*equal, *(half - half[:, ::-1])], [*wanted, *np.zeros(len(half))]
        cost = np.where((start == least) | (start == most), 20.0, 1.0)
        table = np.hstack([np.array(equal), -np.array(equal)])
        found = milp(
            np.concatenate([cost, cost]),
            integrality=np.ones(2 * len(row), dtype=np.int64),
            bounds=Bounds(np.zeros(2 * len(row)), np.concatenate([raised, lowered])),
            constraints=LinearConstraint(table, wanted, wanted),
        )
        if found.x is not None:
            moved = np.rint(found.x[: len(row)] - found.x[len(row) :])
            return tuple(int(w) for w in start + moved)
    raise RuntimeError(f"no integers of the moments {moments} near the solution")


def size(epsilon: Fraction) -> tuple[int, int]:
    """L and T: as coarse as the bound of two per cent allows."""
    levels = _LEVELS[max(start for start in _LEVELS if start <= epsilon)]
    return levels, 1_000_000 if epsilon < 7 else 2_000_000


def line(made: Design) -> str:
    """In JSON: the least weight of each output, and of each row where it has more, how much less than most.

    A least weight in between stands as -1. All as far as the middle; the rest is the mirror image. Decoded by
    `hush_common.mechanisms.parameters`.
    """
    most = [floor(certified_exp(made.epsilon)[0] * m) for m in made.least]
    rows = []
    for row in made.rows:
        more = [y for y, weight in enumerate(row) if weight > made.least[y]]
        run = range(more[0], more[-1] + 1)
        rows.append([more[0], *(-1 if row[y] == made.least[y] else most[y] - row[y] for y in run)])
    middle = (len(made.positions) + 1) // 2
    document = [made.unit, made.total, made.positions[:middle], made.least[:middle], rows]
    return f'["{decimal_text(made.epsilon)}",{json.dumps(document, separators=(",", ":"))[1:]}'


def grid(first: Fraction, last: Fraction) -> Iterator[Design]:
    """Tables from `first` on, until those at `last` are within the slack."""
    optima = {float(epsilon): variance for epsilon, variance in json.loads(OPTIMA.read_text("utf-8")).items()}
    logs = CubicSpline(sorted(optima), [log(optima[epsilon]) for epsilon in sorted(optima)])
    epsilon = first
    while epsilon <= last:
        made = design(epsilon, *size(epsilon))
        yield made
        enough = log(made.channel.worst_variance / SLACK)
        least = -logs([float(epsilon + k * _STEP) for k in range(1, 1000)])  # ascending
        ahead = bisect_right(least.tolist(), -enough)
        landmark = Fraction(floor(epsilon * _LANDMARKS) + 1, _LANDMARKS)
        epsilon = min(epsilon + max(ahead, 1) * _STEP, landmark)


def main() -> None:
    """Write the grid beside the code that reads it, or a part of it: FROM TO FILE."""
    first, last, path = sys.argv[1:] or (FIRST, LAST, Path(parameters.__file__).with_name("tables.jsonl.gz"))
    with Path(path).open("wb") as raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as file:
        for made in grid(Fraction(first), Fraction(last)):
            file.write(f"{line(made)}\n".encode("ascii"))
            worst = made.channel.worst_variance
            sys.stdout.write(f"{decimal_text(made.epsilon)}: {len(made.positions)} outputs, variance {worst:.6g}\n")


if __name__ == "__main__":
    main()
