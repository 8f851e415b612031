"""From a value to the mean that is printed: drawn by the device's code, folded and estimated by the aggregator's.

That the tables are unbiased is shown by enumeration in `test_exact_moments`. This is the way as a whole. Fixed seeds;
4 standard errors: a right mean is condemned in 6 of 100 000 cases.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hush import Task
from hush_aggregator import Estimate
from hush_aggregator.estimate import REPORTERS, estimate
from hush_aggregator.estimate.mechanisms import fold
from hush_common.domain import CategoryDomain, NumberDomain
from hush_common.mechanisms import Laplace
from hush_common.rng import Rng
from hush_common.task import make_task

pytestmark = pytest.mark.medium

Seeded = Callable[[int], Rng]

REPORTS = 2000
NUMBER = {"kind": "number", "lower": -40.0, "upper": 60.0}
VECTOR = {"kind": "vector", "coordinates": [{"name": name, "lower": -40.0, "upper": 60.0} for name in "xy"]}
CATEGORY = {"kind": "category", "labels": list("abcdefghijk")}

CASES: dict[str, dict[str, Any]] = {
    "laplace": {"domain": NUMBER, "mechanism": "laplace"},
    "multilevel": {"domain": NUMBER, "mechanism": "multilevel"},
    "table": {"domain": NUMBER, "mechanism": "table"},
    "randomized_response": {"domain": {"kind": "bit"}},
    "subset_selection": {"domain": CATEGORY},
    "vector": {"domain": VECTOR},
}
"""What is asked; epsilon comes to it."""


def drawn(task: Task, value: object, count: int, rng: Rng) -> NDArray[np.int64]:
    index = task.domain.index(value)
    return np.array([task.perturb(index, rng, 0) for _ in range(count)], dtype=np.int64)


def values(task: Task) -> list[Any]:
    """Eleven of them, both ends included; a bit has two, a category its labels."""
    match task.domain:
        case NumberDomain():
            return [-40.0 + 10 * k for k in range(11)]
        case CategoryDomain(labels=labels):
            return list(labels)
    return [False, True] if task.mechanism == "randomized_response" else [[-40.0 + 10 * k, 60.0] for k in range(11)]


def deviation(given: Estimate, value: Any) -> float:  # noqa: ANN401 - whatever the domain holds
    """How many standard errors the estimate lies from the truth."""
    fact = next((fact for fact in given.parts if fact.name == value), given.parts[0])
    truth = 1 if isinstance(value, str) else value[0] if isinstance(value, list) else value
    return float(((fact.mean or 0) - float(truth)) / fact.stderr[REPORTERS])


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("epsilon", ["1", "4"])
def test_the_printed_mean_is_unbiased_at_several_values(seeded: Seeded, name: str, epsilon: str) -> None:
    task = make_task({"id": "t", "epsilon": epsilon, **CASES[name]})
    for place, value in enumerate(values(task)[::2]):
        bodies = drawn(task, value, REPORTS, seeded(place))
        assert abs(deviation(estimate(task, fold(task.randomizer, bodies), 0.95), value)) < 4


def test_reports_clipped_to_the_bounds_are_caught(seeded: Seeded) -> None:
    task = make_task({"id": "t", "epsilon": "1", **CASES["laplace"]})
    assert isinstance(task.randomizer, Laplace)
    bodies = np.clip(drawn(task, -40.0, REPORTS, seeded(0)), 0, task.randomizer.steps)
    assert abs(deviation(estimate(task, fold(task.randomizer, bodies), 0.95), -40.0)) > 4
