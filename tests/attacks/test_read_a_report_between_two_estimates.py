"""Whoever reads every estimate wants the perturbed report that came between two of them, however many have answered."""

import random

import numpy as np
import pytest

from hush_aggregator.estimate import estimate
from hush_aggregator.estimate.mechanisms import fold
from hush_aggregator.estimate.tally import Tally
from hush_common.domain import GRID_STEPS
from hush_common.mechanisms import Laplace
from hush_common.task import make_task

HEIGHTS = {"kind": "number", "lower": 120.0, "upper": 220.0}
TASK = make_task({"id": "heights", "epsilon": "1", "mechanism": "laplace", "domain": HEIGHTS})


def mean_of(tally: Tally) -> float:
    mean = estimate(TASK, tally, 0.95).mean
    assert mean is not None
    return mean


def guessed(before: float, after: float, n: int) -> int:
    """The body of the report that made one mean of n - 1 reports another one of n: one place on the grid."""
    steps = [(mean - 120.0) / 100.0 * GRID_STEPS for mean in (before, after)]
    return round(n * (steps[1] - steps[0]) + steps[0])


@pytest.mark.parametrize("n", [10, 1_000, 100_000, 10_000_000])
def test_one_report_between_two_estimates_is_read_exactly(n: int) -> None:
    """What SECURITY.md says of whoever reads the estimate: the rate of reports decides, not how many there are."""
    source, mechanism = random.Random(n), TASK.randomizer  # noqa: S311 - repeatable
    assert isinstance(mechanism, Laplace)
    exact = 0
    for _ in range(20):
        body = round(source.gauss(GRID_STEPS / 2, GRID_STEPS))
        one = fold(mechanism, np.array([[round(GRID_STEPS * source.uniform(0.3, 0.7))]]))
        before = Tally(n - 1, tuple((n - 1) * moment for moment in one.moments))
        after = before.merge(fold(mechanism, np.array([[body]])))
        exact += guessed(mean_of(before), mean_of(after), n) == body
    assert exact == 20
