"""`table`: any finite channel, given as a table of integers, and admitted only if it proves its epsilon.

Specification. L + 1 input levels, N outputs, weights w[j][y] ≥ 0 with the same sum T in every row. A value at index i
of {0, …, m} becomes level j = floor(i·L/m) plus one with probability (i·L mod m)/m, drawn exactly; then output y
has probability w[j][y]/T (one uniform integer below T). Output y means position a[y]/D on the unit interval.

Privacy, checked in integers when the object is made: in every column max_j w ≤ e^epsilon · min_j w, with a rational
lower bound of e^epsilon; so a zero is only in a column of zeros. Rounding mixes rows, which cannot raise the ratio.

Estimator. Also checked is sum_y w[j][y]·a[y]·L = T·D·j, in integers: the position of a report is exactly unbiased
for every level, and by the rounding for every index. Variance at x between two levels: the interpolated second moment
less x^2; largest at a point that `worst_variance` finds exactly on each cell.

The tables that hush ships come within two percent of the smallest worst-case variance that any epsilon-LDP channel can
have; `tests/tools/table_design.py` made them, by linear programs.
Source: Kairouz, Oh and Viswanath 2016 (linear programs over channels); the check is hush's own.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from operator import mul
from typing import ClassVar, cast

from hush_common.domain import NumberDomain, Readable
from hush_common.epsilon import certified_exp, decimal_text
from hush_common.errors import TaskError
from hush_common.mechanisms.mechanism import FiniteLaw, Mechanism
from hush_common.mechanisms.parameters import ChannelTable, Parameters, grid, shipped_at
from hush_common.rng import Rng

MOST_CELLS = 16_384
_MOST_WEIGHT = 1 << 128


@dataclass(frozen=True)
class Channel(Mechanism):
    """The parameters of the mechanism, built once from a task.

    Raises:
        TaskError: naming the row or column that breaks a rule.
    """

    epsilon: Fraction  #: loss of one report, exact
    steps: int  #: grid steps m ≥ 1 of the value; indices are 0 to m
    positions: tuple[int, ...]  #: a[y] of each output, in units of 1/`unit` of the range; outside [0, `unit`] as a rule
    unit: int  #: D ≥ 1
    weights: tuple[tuple[int, ...], ...]  #: w[j][y], one row for each of at least two input levels

    name = "table"
    fits: ClassVar[type[Readable]] = NumberDomain
    takes: ClassVar[frozenset[str]] = frozenset({"table"})
    auto = True
    width = 1

    @classmethod
    def smallest(cls) -> Fraction:
        return grid()[0]

    @classmethod
    def serves(cls, epsilons: Sequence[Fraction]) -> bool:
        return len(epsilons) == 1 and super().serves(epsilons)

    @classmethod
    def complete(cls, domain: NumberDomain, epsilons: Sequence[Fraction], given: Parameters) -> Parameters:  # noqa: ARG003 - a share of any range
        """The shipped table of the nearest grid point below."""
        return given if given.table is not None else replace(given, table=shipped_at(epsilons[-1]))

    @classmethod
    def build(cls, domain: NumberDomain, epsilon: Fraction, parameters: Parameters, offer: int) -> "Channel":  # noqa: ARG003 - there is one
        table = cast("ChannelTable", parameters.table)
        return cls(epsilon, domain.steps, table.positions, table.unit, table.weights)

    @property
    def chosen(self) -> dict[str, int]:
        return {"outputs": len(self.positions)}

    @cached_property
    def law(self) -> FiniteLaw:
        rows = tuple(tuple(Fraction(w, self.total) for w in row) for row in self.weights)
        return FiniteLaw(tuple(Fraction(a, self.unit) for a in self.positions), rows)

    def __post_init__(self) -> None:
        self._check_shape()
        self._check_sums()
        self._check_privacy()

    def _check_shape(self) -> None:
        cells = len(self.weights) * len(self.positions)
        if len(self.weights) < 2 or len(self.positions) < 2 or cells > MOST_CELLS:  # noqa: PLR2004 - fewer say nothing
            raise TaskError(
                "table.weights", f"{cells} cells; a table has 2 or more rows and outputs, at most {MOST_CELLS} cells"
            )
        if self.unit < 1 or any(abs(a) > _MOST_WEIGHT for a in (*self.positions, self.unit)):
            raise TaskError("table.unit", f"{self.unit} is not a positive integer below 2^128")
        for j, row in enumerate(self.weights):
            if len(row) != len(self.positions):
                raise TaskError("table.weights", f"row {j} has {len(row)} weights for {len(self.positions)} outputs")
            if not all(0 <= w <= _MOST_WEIGHT for w in row) or not any(row):
                raise TaskError("table.weights", f"row {j} has a weight outside 0 to 2^128, or none above 0")

    def _check_sums(self) -> None:
        for j, row in enumerate(self.weights):
            if sum(row) != self.total:
                raise TaskError(
                    "table.weights", f"row {j} sums to {sum(row)}, row 0 to {self.total}; all must be equal"
                )
            moment = sum(map(mul, row, self.positions))
            if moment * self.levels != self.total * self.unit * j:
                raise TaskError("table.weights", f"row {j} is biased: its mean position is not {j}/{self.levels}")

    def _check_privacy(self) -> None:
        bound = certified_exp(self.epsilon)[0]
        for y, column in enumerate(zip(*self.weights, strict=True)):
            if max(column) * bound.denominator > min(column) * bound.numerator:
                weights = f"output {y} has weights {min(column)} and {max(column)}"
                raise TaskError("table.weights", f"{weights}, a ratio above e^{decimal_text(self.epsilon)}")

    @property
    def levels(self) -> int:
        """L: input levels less one."""
        return len(self.weights) - 1

    @cached_property
    def total(self) -> int:
        """T: the sum of every row."""
        return sum(self.weights[0])

    @cached_property
    def _draws(self) -> int:
        """One integer below it is two, independent and uniform: below `steps` and below `total`."""
        return self.steps * self.total

    @cached_property
    def _cumulative(self) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(accumulate(row)) for row in self.weights)

    def perturb(self, index: int, rng: Rng) -> tuple[int, ...]:
        """Return the body of a report, the number of one output; ValueError if `index` is outside [0, m]."""
        if not 0 <= index <= self.steps:
            raise ValueError(f"the index is outside [0, {self.steps}]")
        level, rest = divmod(index * (len(self.weights) - 1), self.steps)
        rounding, draw = divmod(rng.randbelow(self._draws), self.total)
        level += rounding < rest
        return (bisect_right(self._cumulative[level], draw),)

    def admits(self, body: tuple[int, ...]) -> bool:
        return len(body) == 1 and 0 <= body[0] < len(self.positions) and self.weights[0][body[0]] > 0

    def outputs(self) -> Iterator[tuple[int, ...]]:
        return ((y,) for y in range(len(self.positions)) if self.weights[0][y] > 0)

    def probability(self, body: tuple[int, ...], index: int, digits: int = 60) -> Decimal:
        level, rest = divmod(index * self.levels, self.steps)
        above = self.weights[level + 1][body[0]] if rest else 0
        with localcontext() as context:
            context.prec = digits
            weight = self.weights[level][body[0]] * (self.steps - rest) + above * rest
            return Decimal(weight) / Decimal(self.total * self.steps)

    @cached_property
    def exact_worst_variance(self) -> Fraction:
        squares, whole = [a * a for a in self.positions], self.total * self.unit**2
        second = [Fraction(sum(map(mul, row, squares)), whole) for row in self.weights]
        return max(self._peak(second[j], second[j + 1], j) for j in range(self.levels))

    @property
    def worst_variance(self) -> float:
        return float(self.exact_worst_variance)

    def _peak(self, low: Fraction, high: Fraction, cell: int) -> Fraction:
        """Max of low + (x·L - cell)(high - low) - x^2 over the cell: a parabola, at its vertex or nearer end."""
        slope = (high - low) * self.levels
        x = min(max(slope / 2, Fraction(cell, self.levels)), Fraction(cell + 1, self.levels))
        return low + (x - Fraction(cell, self.levels)) * slope - x * x
