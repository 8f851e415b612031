"""What the aggregator received, decoded: on average the value, whatever the mechanism."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from decoding import decoded, said

from hush_aggregator.estimate.finite_channel import finite
from hush_common.domain import NumberDomain
from hush_common.mechanisms import Channel, Multilevel, RandomizedResponse
from hush_common.task import make_task
from hush_simulations.engines.experiment import in_words, offers_of

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
    numbers = decoded(task, np.array(outputs)[:, None])
    rounded = float(task.domain.value_of(index)) if isinstance(task.domain, NumberDomain) else index
    assert np.dot(chances, numbers) == pytest.approx(rounded, rel=1e-12, abs=1e-12)


def test_a_laplace_report_is_its_place_on_the_grid() -> None:
    task = make_task({"id": "t", "epsilon": "1", "domain": NUMBER})
    assert isinstance(task.domain, NumberDomain)
    reported = [-5, 0, task.domain.steps]
    expected = [float(Fraction(task.domain.lower) + k * task.domain.step) for k in reported]
    assert decoded(task, np.array(reported)[:, None]).tolist() == pytest.approx(expected)


def test_reports_under_several_epsilons_are_decoded_each_by_its_own() -> None:
    task = make_task({"id": "t", "epsilon": "2", "offers": ["1", "2"], "domain": BIT})
    low, high = (finite(part).positions for part in task.randomizer.parts)  # type: ignore[union-attr]  # it has offers
    assert decoded(task, np.array([[0, 1], [1, 1]])).tolist() == pytest.approx([float(low[1]), float(high[1])])
    parts, offers, rest = offers_of(task, np.array([[0, 1], [1, 0]]))
    assert (len(parts), offers.tolist(), rest.tolist()) == (2, [0, 1], [[1], [0]])


def test_sets_of_categories_are_named_across_words() -> None:
    labels = [f"c{place}" for place in range(40)]
    task = make_task({"id": "t", "epsilon": "1", "size": 2, "domain": {"kind": "category", "labels": labels}})
    bodies = np.array([[0b101, 0], [1 << 31, 0b10000000]])
    assert in_words(task, bodies) == ["c0 | c2", "c31 | c39"]
    assert sum(said(task, bodies, place).sum() for place in range(40)) == 4


def test_drawn_coordinates_are_told_with_their_unbiased_values() -> None:
    coordinates = [{"name": name, "lower": 0, "upper": 10} for name in ("a", "b")]
    task = make_task(
        {"id": "t", "epsilon": "1", "levels": 1, "sampled": 1, "domain": {"kind": "vector", "coordinates": coordinates}}
    )
    (text,) = in_words(task, np.array([[1, 1]]))
    name, _, value = text.partition(" = ")
    keep = math.e / (1 + math.e)
    assert name == "b"
    assert float(value) == pytest.approx(10 * keep / (2 * keep - 1))
