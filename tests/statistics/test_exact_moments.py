"""Every decoded report has the value as its mean and the published variance: from whole tables, not from samples."""

from collections.abc import Callable
from fractions import Fraction
from itertools import product
from typing import TypeAlias

import pytest
from single_intervals import finite

from hush_common.epsilon import weight_of_lie
from hush_common.errors import TaskError
from hush_common.mechanisms import Channel, Laplace, Mechanism, Multilevel, RandomizedResponse, SubsetSelection, Vector
from hush_common.mechanisms.multilevel import best_levels
from hush_common.mechanisms.parameters import shipped_at
from hush_common.mechanisms.subset_selection import best_size
from hush_common.mechanisms.vector import best_sampled

Input: TypeAlias = int | tuple[int, ...]
Decode: TypeAlias = Callable[[tuple[int, ...]], Fraction]
EPSILONS = [Fraction(text) for text in ("1/10", "1", "7/3", "4")]
TABLES = (Fraction(1), Fraction(2), Fraction(4))
ROUNDING = Fraction(1, 10**70)


def moments(mechanism: Mechanism, index: Input, decode: Decode) -> tuple[Fraction, Fraction]:
    """Mean and variance of a decoded report, within `ROUNDING`."""
    law = [(decode(body), Fraction(mechanism.probability(body, index, 90))) for body in mechanism.outputs()]
    mean = sum((v * p for v, p in law), Fraction(0))
    return mean, sum(((v - mean) ** 2 * p for v, p in law), Fraction(0))


# ---- multilevel


def level(mechanism: Multilevel) -> Decode:
    return lambda body: mechanism.unit_value(Fraction(body[0]))


@pytest.mark.parametrize("epsilon", [*EPSILONS, Fraction(1, 10**6), Fraction(50)])
def test_multilevel_is_unbiased_at_every_index(epsilon: Fraction) -> None:
    for steps, levels in ((1, 1), (3, 1), (7, 3), (8, 4), (5, 7)):
        mechanism = Multilevel(epsilon, steps, levels)
        for index in range(steps + 1):
            assert abs(moments(mechanism, index, level(mechanism))[0] - Fraction(index, steps)) < ROUNDING


@pytest.mark.parametrize(("epsilon", "levels"), [("1/10", 1), ("1", 2), ("7/3", 6), ("4", 3)])
def test_the_worst_variance_of_multilevel_is_the_largest_of_a_grid(epsilon: str, levels: int) -> None:
    mechanism = Multilevel(Fraction(epsilon), 120, levels)
    worst = float(max(moments(mechanism, index, level(mechanism))[1] for index in range(121)))
    assert worst <= mechanism.worst_variance * (1 + 1e-12)
    assert worst == pytest.approx(mechanism.worst_variance, rel=1e-3)


@pytest.mark.parametrize(
    ("epsilon", "levels", "worst"),
    [("0.1", 1, 400.667), ("0.5", 1, 16.6708), ("1", 1, 4.68269), ("2", 2, 0.99992), ("4", 4, 0.17669)],
)
def test_the_levels_of_least_variance_are_those_of_the_literature(epsilon: str, levels: int, worst: float) -> None:
    assert best_levels(Fraction(epsilon)) == levels
    assert 4 * Multilevel(Fraction(epsilon), 1 << 20, levels).worst_variance == pytest.approx(worst, rel=5e-5)


def test_two_levels_are_best_up_to_ln_3() -> None:
    assert (best_levels(Fraction("1.098612")), best_levels(Fraction("1.098613"))) == (1, 2)
    assert [best_levels(Fraction(epsilon)) for epsilon in (3, 5, 6, 8)] == [3, 6, 8, 16]
    assert best_levels(Fraction(1, 10**6)) == 1
    assert best_levels(Fraction(50)) > 500


# ---- table


def table_of(epsilon: Fraction, steps: int) -> Channel:
    made = shipped_at(epsilon)
    return Channel(epsilon, steps, made.positions, made.unit, made.weights)


def position(mechanism: Channel) -> Decode:
    return lambda body: Fraction(mechanism.positions[body[0]], mechanism.unit)


@pytest.mark.parametrize("epsilon", TABLES)
def test_a_shipped_table_is_unbiased_at_and_between_its_levels(epsilon: Fraction) -> None:
    mechanism = table_of(epsilon, 77)
    for index in range(78):
        assert abs(moments(mechanism, index, position(mechanism))[0] - Fraction(index, 77)) < ROUNDING


@pytest.mark.medium
@pytest.mark.parametrize("epsilon", TABLES)
def test_the_worst_variance_of_a_table_counts_values_between_its_levels(epsilon: Fraction) -> None:
    mechanism = table_of(epsilon, 20 * (len(shipped_at(epsilon).weights) - 1))
    variances = [float(moments(mechanism, index, position(mechanism))[1]) for index in range(mechanism.steps + 1)]
    assert max(variances) <= mechanism.worst_variance * (1 + 1e-12)
    assert max(variances) == pytest.approx(mechanism.worst_variance, rel=1e-4)
    assert max(variances) > max(variances[::20])


@pytest.mark.parametrize("epsilon", TABLES)
def test_a_table_that_is_biased_by_one_unit_is_refused(epsilon: Fraction) -> None:
    made = shipped_at(epsilon)
    row = list(made.weights[3])
    for place, more, fault in ((4, 1, "biased"), (5, -1, "biased"), (5, 0, "sums")):
        wrong = list(row)
        wrong[4] += 1
        wrong[5] += more if place == 5 else -1
        with pytest.raises(TaskError, match=f"row 3 .*{fault}|row 3 {fault}"):
            Channel(epsilon, 1, made.positions, made.unit, (*made.weights[:3], tuple(wrong), *made.weights[4:]))


# ---- categories


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(4)])
def test_subset_selection_is_unbiased_for_every_category(epsilon: Fraction) -> None:
    for categories, size in [(k, w) for k in range(2, 6) for w in range(1, k)]:
        mechanism = SubsetSelection(epsilon, categories, size)
        q, p = mechanism.support
        for truth, asked in product(range(categories), repeat=2):
            mean, variance = moments(mechanism, truth, lambda body, c=asked: ((body[0] >> c & 1) - q) / (p - q))  # type: ignore[misc]  # noqa: B023 - used at once
            named = p if truth == asked else q
            assert abs(mean - (truth == asked)) < ROUNDING
            assert abs(variance - named * (1 - named) / (p - q) ** 2) < ROUNDING * (p - q) ** -2


@pytest.mark.parametrize(
    ("epsilon", "categories", "size", "at_zero"),
    [("1", 4, 1, 1.598), ("1", 16, 4, 3.111), ("1", 1024, 275, 3.674), ("4", 64, 1, 0.0406)],
)
def test_the_size_of_least_variance_is_that_of_the_literature(
    epsilon: str, categories: int, size: int, at_zero: float
) -> None:
    assert best_size(Fraction(epsilon), categories) == size
    q, p = SubsetSelection(Fraction(epsilon), categories, size).support
    assert float(q * (1 - q) / (p - q) ** 2) == pytest.approx(at_zero, rel=2e-3)


# ---- vectors


def share_of(mechanism: Vector, asked: int) -> Decode:
    """The position of a drawn coordinate, scaled up by how rarely it is drawn; 0 where it was not."""

    def share(body: tuple[int, ...]) -> Fraction:
        drawn = dict(zip(body[::2], body[1::2], strict=True))
        if asked not in drawn:
            return Fraction(0)
        return mechanism.part.unit_value(Fraction(drawn[asked])) * mechanism.coordinates / mechanism.sampled

    return share


@pytest.mark.parametrize(("coordinates", "sampled", "levels"), [(1, 1, 2), (2, 1, 1), (3, 2, 2), (3, 3, 1)])
def test_a_vector_is_unbiased_in_every_coordinate(coordinates: int, sampled: int, levels: int) -> None:
    mechanism = Vector(Fraction(1), 2, coordinates, sampled, levels)
    for index, asked in product(product(range(3), repeat=coordinates), range(coordinates)):
        mean, _ = moments(mechanism, index, share_of(mechanism, asked))
        assert abs(mean - Fraction(index[asked], 2)) < ROUNDING


def test_one_coordinate_is_drawn_unless_epsilon_is_large() -> None:
    assert [best_sampled(Fraction(epsilon), 8) for epsilon in (1, 2, 4)] == [1, 1, 1]
    assert best_sampled(Fraction(8), 8) > 1
    assert best_sampled(Fraction(50), 1) == 1
    assert best_sampled(Fraction(1, 10**6), 1024) == 1


# ---- bits and noise


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_randomized_response_has_its_textbook_mean_and_variance(epsilon: Fraction) -> None:
    mechanism = RandomizedResponse.from_epsilon(epsilon)
    p0, p1 = mechanism.probability_of_one
    odds = Fraction(1 << 128, weight_of_lie(epsilon))
    for bit in (0, 1):
        mean, variance = moments(mechanism, bit, lambda body: (body[0] - p0) / (p1 - p0))
        assert abs(mean - bit) < ROUNDING
        assert abs(variance / (odds / (odds - 1) ** 2) - 1) < ROUNDING


@pytest.mark.parametrize("index", [0, 1, 3])
def test_laplace_is_unbiased_up_to_its_window(index: int) -> None:
    mean, variance = moments(Laplace(Fraction(2), 3), index, lambda body: Fraction(body[0]))
    assert abs(mean - index) < Fraction(1, 10**15)
    assert float(variance) == pytest.approx(Laplace(Fraction(2), 3).variance, rel=1e-12)


# ---- the worst variance, of which plans and the text of a task are made


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_worst_variance_of_a_category_is_the_largest_of_its_table(epsilon: Fraction) -> None:
    mechanism = SubsetSelection(epsilon, 5, 2)
    q, p = mechanism.support
    variances = [moments(mechanism, truth, lambda body: ((body[0] & 1) - q) / (p - q))[1] for truth in (0, 1)]
    assert mechanism.worst_variance == pytest.approx(float(max(variances)), rel=1e-12)


@pytest.mark.parametrize("coins", [("1/2", "1/2"), ("1/2", "9/10"), ("4/5", "1/20")])
def test_the_worst_variance_of_a_bit_is_that_of_the_noisier_answer(coins: tuple[str, str]) -> None:
    mechanism = RandomizedResponse.from_coins(Fraction(50), Fraction(coins[0]), Fraction(coins[1]))
    p0, p1 = mechanism.probability_of_one
    variances = [moments(mechanism, bit, lambda body: (body[0] - p0) / (p1 - p0))[1] for bit in (0, 1)]
    assert mechanism.worst_variance == pytest.approx(float(max(variances)), rel=1e-12)


@pytest.mark.parametrize("epsilon", TABLES)
def test_plans_and_estimates_have_one_worst_variance(epsilon: Fraction) -> None:
    """A plan takes it from the mechanism, exact; an estimate makes it of its arrays."""
    for number in (Multilevel(epsilon, 1 << 20, best_levels(epsilon)), table_of(epsilon, 1 << 20)):
        assert finite(number).variances[1] == pytest.approx(number.worst_variance, rel=1e-12)
    for share in (RandomizedResponse.from_epsilon(epsilon), SubsetSelection(epsilon, 40, best_size(epsilon, 40))):
        assert finite(share).noise.max() == pytest.approx(share.worst_variance, rel=1e-12)


def test_the_worst_variance_of_laplace_noise_is_in_units_of_the_range() -> None:
    mechanism = Laplace(Fraction(2), 3)
    variance = moments(mechanism, 1, lambda body: Fraction(body[0], 3))[1]
    assert mechanism.worst_variance == pytest.approx(float(variance), rel=1e-12)


@pytest.mark.parametrize(("coordinates", "sampled"), [(1, 1), (3, 1), (3, 2)])
def test_the_worst_variance_of_a_vector_counts_who_did_not_draw(coordinates: int, sampled: int) -> None:
    mechanism = Vector(Fraction(1), 2, coordinates, sampled, 1)

    def error(body: tuple[int, ...]) -> Fraction:
        drawn = dict(zip(body[::2], body[1::2], strict=True))
        if 0 not in drawn:
            return Fraction(0)
        return (mechanism.part.unit_value(Fraction(drawn[0])) - Fraction(1, 2)) * coordinates / sampled

    variance = moments(mechanism, (1,) * coordinates, error)[1]
    assert mechanism.worst_variance == pytest.approx(float(variance), rel=1e-12)
