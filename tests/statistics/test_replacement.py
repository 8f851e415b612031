"""What devices without a value do to an estimate: exactly what `replacement_bias` says at most."""

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from silence import Tree

from hush_aggregator.estimate import estimate
from hush_aggregator.estimate.diagnostics import replacement_bias
from hush_aggregator.estimate.mechanisms import fold
from hush_common.domain import BitDomain, CategoryDomain, Coordinate, Domain, NumberDomain, VectorDomain
from hush_common.mechanisms import Multilevel, RandomizedResponse, SubsetSelection
from hush_common.task import make_task

SHARE = Decimal("0.01")
NUMBER = NumberDomain(-3.0, 5.0, steps=8)
WAYS = CategoryDomain(("a", "b", "c", "d"))


def of_no_value(domain: Domain, mean: Callable[[int], Decimal]) -> Decimal:
    """The mean of something over the index that a device without a value answers with, by its own code."""
    total = Decimal(0)
    script: list[int] | None = []
    while script is not None:
        tree = Tree(script)
        one = mean(domain.complete(domain.read(None), tree).scalar)
        total += tree.weight * one
        script = tree.after()
    return total


def test_a_number_that_is_missing_counts_as_the_middle_of_the_range() -> None:
    mechanism = Multilevel(Fraction(1), 8, 3)

    def decoded(index: int) -> Decimal:
        units = [(body, mechanism.unit_value(Fraction(body[0]))) for body in mechanism.outputs()]
        return sum((mechanism.probability(b, index) * u.numerator / u.denominator for b, u in units), Decimal(0))

    middle = Decimal(-3) + 8 * of_no_value(NUMBER, decoded)
    assert abs(middle - 1) < Decimal("1e-20")
    worst = max(abs(SHARE * (middle - mu)) for mu in (Decimal(-3), Decimal(5)))
    assert replacement_bias(*NUMBER.parts) == {"1%": pytest.approx(float(worst))}


def test_a_bit_that_is_missing_counts_as_a_half() -> None:
    mechanism = RandomizedResponse.from_epsilon(Fraction(1))
    zero, one = mechanism.probability_of_one

    def decoded(index: int) -> Decimal:
        share = (mechanism.probability((1,), index) * zero.denominator - zero.numerator) / zero.denominator
        return share * (one - zero).denominator / (one - zero).numerator

    assert abs(of_no_value(BitDomain(), decoded) - Decimal("0.5")) < Decimal("1e-20")
    assert replacement_bias(*BitDomain().parts) == {"1%": pytest.approx(0.005)}


def test_a_label_that_is_missing_counts_as_an_equal_part_of_each() -> None:
    mechanism = SubsetSelection(Fraction(1), 4, 2)
    q, p = mechanism.support
    for label in range(4):

        def decoded(index: int, label: int = label) -> Decimal:
            named = [body for body in mechanism.outputs() if body[0] >> label & 1]
            share = sum((mechanism.probability(body, index) for body in named), Decimal(0))
            return (share * q.denominator - q.numerator) / q.denominator * (p - q).denominator / (p - q).numerator

        assert abs(of_no_value(WAYS, decoded) - Decimal("0.25")) < Decimal("1e-20")
    assert replacement_bias(WAYS.parts[0]) == {"1%": pytest.approx(0.01 * 0.75)}


def test_results_carry_it_for_the_mean_the_frequencies_and_each_coordinate() -> None:
    number = make_task({"id": "n", "epsilon": "1", "domain": {"kind": "number", "lower": 120, "upper": 220}})
    assert estimate(number, fold(number.randomizer, np.array([[7]])), 0.9).single.replacement_bias == {"1%": 0.5}
    parts = [{"name": name, "lower": 0, "upper": upper} for name, upper in (("x", 1), ("y", 10))]
    vector = make_task({"id": "v", "epsilon": "1", "domain": {"kind": "vector", "coordinates": parts}})
    found = estimate(vector, fold(vector.randomizer, np.array([[1, 0]])), 0.9)
    assert [one.replacement_bias for one in found.parts] == [{}, {"1%": pytest.approx(0.05)}]
    huge = VectorDomain((Coordinate(-8e307, 8e307, name="x"),)).parts[0]
    assert replacement_bias(huge) == {"1%": pytest.approx(8e305)}
