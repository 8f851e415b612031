"""What the aggregator received, decoded: on average the value, whatever the mechanism."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from hush_common.domain import NumberDomain
from hush_common.mechanisms import Channel, Multilevel, RandomizedResponse
from hush_common.task_file import make_task
from hush_simulations.received import decoded

NUMBER = {"kind": "number", "lower": 120.0, "upper": 220.0}
BIT = {"kind": "bit"}


def law(randomizer: RandomizedResponse | Multilevel | Channel, index: int) -> tuple[list[int], list[float]]:
    """The outputs, and the probability of each."""
    bodies = list(randomizer.outputs())
    return [body[0] for body in bodies], [float(randomizer.probability(body, index)) for body in bodies]


@pytest.mark.parametrize(
    ("document", "value"),
    [
        ({"epsilon": "1", "domain": NUMBER, "mechanism": "multilevel"}, 172.5),
        ({"epsilon": "4", "domain": NUMBER, "mechanism": "multilevel"}, 120.0),
        ({"epsilon": "2", "domain": NUMBER, "mechanism": "table"}, 172.5),
        ({"epsilon": "1", "domain": NUMBER, "mechanism": "auto"}, 220.0),
        ({"epsilon": "1", "domain": BIT}, 1),
        ({"domain": BIT, "coins": {"truth": "0.3", "yes": "0.8"}}, 0),
    ],
    ids=str,
)
def test_decoded_reports_average_to_the_value_over_all_outputs(document: dict[str, Any], value: float) -> None:
    task = make_task({"id": "t", **document})
    index = task.domain.index(value).scalar
    assert isinstance(task.randomizer, RandomizedResponse | Multilevel | Channel)
    outputs, chances = law(task.randomizer, index)
    numbers = decoded(task, np.array(outputs))
    rounded = float(task.domain.value_of(index)) if isinstance(task.domain, NumberDomain) else index
    assert np.dot(chances, numbers) == pytest.approx(rounded, rel=1e-12, abs=1e-12)


def test_a_laplace_report_is_its_place_on_the_grid() -> None:
    task = make_task({"id": "t", "epsilon": "1", "domain": NUMBER})
    assert isinstance(task.domain, NumberDomain)
    reported = [-5, 0, task.domain.steps]
    expected = [float(Fraction(task.domain.lower) + k * task.domain.step) for k in reported]
    assert decoded(task, np.array(reported)).tolist() == pytest.approx(expected)


def test_a_set_of_categories_is_no_number() -> None:
    task = make_task({"id": "t", "epsilon": "1", "domain": {"kind": "category", "labels": ["a", "b", "c"]}})
    with pytest.raises(TypeError, match="subset_selection"):
        decoded(task, np.array([1]))
