"""The loss of each mechanism, computed from its whole probability table, and of planted errors by the same judge."""

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from itertools import pairwise

import pytest
from judge import ROUNDING, TIGHT, largest_ratio, probabilities, verdict

from hush_common.domain import NumberDomain
from hush_common.epsilon import WEIGHT_OF_TRUTH, certified_exp, log_ceiling, weight_of_lie
from hush_common.mechanisms import Laplace, RandomizedResponse
from hush_common.mechanisms.parameters import coin_loss_ratio

LN3 = log_ceiling(Fraction(3))
SMALL_GRIDS = [(steps, Fraction(epsilon)) for steps in (1, 2, 5, 8) for epsilon in ("1/2", "1", "7/3", "4", "50")] + [
    (2, Fraction(1, 10)),
    (3, LN3),
]


@pytest.mark.medium
@pytest.mark.parametrize(("steps", "epsilon"), SMALL_GRIDS)
def test_the_loss_of_laplace_is_epsilon_to_thirty_digits_and_never_above(steps: int, epsilon: Fraction) -> None:
    assert verdict(Laplace(epsilon, steps), range(steps + 1)) == "exact"


@pytest.mark.parametrize(("steps", "epsilon"), [(2, Fraction(1)), (5, Fraction(7, 3))])
def test_the_clamped_ends_lose_epsilon_like_every_output_beyond_the_grid(steps: int, epsilon: Fraction) -> None:
    mechanism = Laplace(epsilon, steps)
    rows = probabilities(mechanism, range(steps + 1))
    low, high = certified_exp(epsilon)
    for end in (0, 1, -2, -1):
        column = [row[end] for row in rows.values()]
        assert high * (1 - TIGHT) <= max(column) / min(column) <= low * (1 + ROUNDING)


def test_indices_closer_than_the_whole_grid_lose_proportionally_less() -> None:
    mechanism = Laplace(Fraction(2), 8)
    rows = probabilities(mechanism, range(9))
    for i, j in pairwise(range(9)):
        ratio = largest_ratio({i: rows[i], j: rows[j]})
        assert certified_exp(Fraction(1, 4))[1] * (1 - TIGHT) <= ratio
        assert ratio <= certified_exp(Fraction(1, 4))[0] * (1 + ROUNDING)


def test_any_two_numbers_whatever_they_are_become_indices_within_the_grid() -> None:
    domain = NumberDomain(-3.0, 7.5, steps=5)
    values = [-1e308, -3.0000001, -3.0, 0, 2.25, 7.499999999999999, 7.5, 8, 10**400, 5e-324, Fraction(-1, 3)]
    assert {domain.index(value).index for value in values} == {0, 1, 2, 5}


@dataclass(frozen=True)
class NarrowLaplace(Laplace):
    """Wrong on purpose: takes the sensitivity for steps - 1, as one does who counts points instead of steps."""

    @cached_property
    def scale(self) -> Fraction:
        return (self.steps - 1) / self.epsilon


def test_noise_for_one_step_too_few_is_found() -> None:
    assert verdict(NarrowLaplace(Fraction(1), 8), range(9)) == "above epsilon"


def test_an_index_that_was_not_clamped_is_found() -> None:
    assert verdict(Laplace(Fraction(1), 8), range(10)) == "above epsilon"


@dataclass(frozen=True)
class ClippedNoise(Laplace):
    """Wrong on purpose: clamps the noise, so that the window of the outputs moves with the value."""

    def probability(self, body: tuple[int, ...], index: int, digits: int = 60) -> Decimal:
        if abs(body[0] - index) > self.window:
            return Decimal(0)
        return super().probability(body, index, digits)


def test_noise_clamped_around_the_value_is_found() -> None:
    assert verdict(ClippedNoise(Fraction(1), 2), range(3)) in {"no law", "impossible output"}


def test_a_table_that_loses_less_than_it_charges_is_found() -> None:
    mechanism = RandomizedResponse(Fraction(1), (weight_of_lie(Fraction(1)) + 2**40, WEIGHT_OF_TRUTH), 2**129)
    assert verdict(mechanism, (0, 1)) == "below epsilon"


@pytest.mark.parametrize("epsilon", ["1/10", "1/2", "1", "7/3", "4"])
def test_randomized_response_loses_epsilon_to_thirty_digits_and_never_above(epsilon: str) -> None:
    assert verdict(RandomizedResponse.from_epsilon(Fraction(epsilon)), (0, 1)) == "exact"


@pytest.mark.parametrize("epsilon", ["1/1000000", "10", "50"])
def test_randomized_response_is_never_above_epsilon_at_the_ends_of_what_is_admitted(epsilon: str) -> None:
    mechanism = RandomizedResponse.from_epsilon(Fraction(epsilon))
    assert verdict(mechanism, (0, 1), tight=Fraction(1, 10**16)) == "exact"


@pytest.mark.parametrize("epsilon", ["1/10", "1", "4", "50"])
def test_a_weight_of_lie_smaller_by_one_part_in_2_to_the_128_is_found(epsilon: str) -> None:
    lie = weight_of_lie(Fraction(epsilon)) - 1
    mechanism = RandomizedResponse(Fraction(epsilon), (lie, WEIGHT_OF_TRUTH), WEIGHT_OF_TRUTH + lie)
    assert verdict(mechanism, (0, 1)) == "above epsilon"


def test_fair_coins_cost_ln_3() -> None:
    half = Fraction(1, 2)
    mechanism = RandomizedResponse.from_coins(LN3, half, half)
    assert mechanism.probability_of_one == (Fraction(1, 4), Fraction(3, 4))
    assert coin_loss_ratio(half, half) == 3
    assert verdict(mechanism, (0, 1), tight=Fraction(1, 10**6)) == "exact"


@pytest.mark.parametrize(("truth", "yes"), [("1/2", "9/10"), ("1/2", "1/10"), ("3/10", "1/2"), ("9/10", "1/3")])
def test_the_loss_of_two_coins_is_the_largest_of_all_four_ratios(truth: str, yes: str) -> None:
    ratio = coin_loss_ratio(Fraction(truth), Fraction(yes))
    assert ratio is not None
    mechanism = RandomizedResponse.from_coins(log_ceiling(ratio), Fraction(truth), Fraction(yes))
    assert abs(largest_ratio(probabilities(mechanism, (0, 1))) / ratio - 1) < ROUNDING
    assert verdict(mechanism, (0, 1), tight=Fraction(1, 10**6)) == "exact"


def test_a_loss_computed_from_the_answer_yes_alone_is_found_where_no_is_the_telling_answer() -> None:
    truth, yes = Fraction(1, 2), Fraction(9, 10)
    ratio_of_yes = (truth + (1 - truth) * yes) / ((1 - truth) * yes)
    mechanism = RandomizedResponse.from_coins(log_ceiling(ratio_of_yes), truth, yes)
    assert verdict(mechanism, (0, 1)) == "above epsilon"
