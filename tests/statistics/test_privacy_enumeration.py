"""The loss of each mechanism, computed from its whole probability table, and of planted errors by the same judge."""

from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cached_property
from itertools import pairwise, product
from math import exp, log

import pytest
from judge import ROUNDING, TIGHT, largest_ratio, probabilities, verdict

from hush_common.domain import GRID_STEPS, NumberDomain
from hush_common.epsilon import SMALLEST, WEIGHT_OF_TRUTH, certified_exp, log_ceiling, weight_of_lie
from hush_common.errors import TaskError
from hush_common.mechanisms import Channel, Laplace, Multilevel, Offers, RandomizedResponse, SubsetSelection, Vector
from hush_common.mechanisms.parameters import coin_loss_ratio, shipped_at

EPSILONS = [Fraction(text) for text in ("1/10", "1/2", "1", "7/3", "4")]
EXTREMES = [SMALLEST, Fraction(50)]
NEARLY = Fraction(1, 10**16)
"""How tight a lie of few digits can be at epsilon = 50, where it weighs about 2^56."""
COINS_TIGHT = Fraction(1, 10**6)


# ---- laplace


@pytest.mark.parametrize(
    ("steps", "epsilon"),
    [
        (1, "1/2"),
        (1, "50"),
        (2, "1"),
        (2, "7/3"),
        (3, "4"),
        (5, "4"),
        (8, "7/3"),
        (8, "50"),
        pytest.param(2, "1/10", marks=pytest.mark.medium),
        pytest.param(8, "1/2", marks=pytest.mark.medium),
    ],
)
def test_the_loss_of_laplace_is_epsilon_and_never_above(steps: int, epsilon: str) -> None:
    assert verdict(Laplace(Fraction(epsilon), steps), range(steps + 1)) == "exact"


def test_clamped_ends_lose_epsilon_like_outputs_beyond_the_grid() -> None:
    for steps, epsilon in ((2, Fraction(1)), (5, Fraction(7, 3))):
        rows = probabilities(Laplace(epsilon, steps), range(steps + 1))
        low, high = certified_exp(epsilon)
        for end in (0, 1, -2, -1):
            column = [row[end] for row in rows.values()]
            assert high * (1 - TIGHT) <= max(column) / min(column) <= low * (1 + ROUNDING)


def test_neighbouring_indices_lose_proportionally_less() -> None:
    rows = probabilities(Laplace(Fraction(2), 4), range(5))
    low, high = certified_exp(Fraction(1, 2))
    for i, j in pairwise(range(5)):
        assert high * (1 - TIGHT) <= largest_ratio({i: rows[i], j: rows[j]}) <= low * (1 + ROUNDING)


def test_any_number_becomes_an_index_within_the_grid() -> None:
    domain = NumberDomain(-3.0, 7.5, steps=5)
    values = [-1e308, -3.0000001, -3.0, 0, 2.25, 7.499999999999999, 7.5, 8, 10**400, 5e-324, Fraction(-1, 3)]
    assert {domain.index(value).index for value in values} == {0, 1, 2, 5}


@dataclass(frozen=True)
class NarrowLaplace(Laplace):
    """Wrong on purpose: takes the sensitivity for steps - 1, as one does who counts points instead of steps."""

    @cached_property
    def scale(self) -> Fraction:
        return (self.steps - 1) / self.epsilon


@dataclass(frozen=True)
class ClippedNoise(Laplace):
    """Wrong on purpose: clamps the noise, so that the window of the outputs moves with the value."""

    def probability(self, body: tuple[int, ...], index: int, digits: int = 60) -> Decimal:
        if abs(body[0] - index) > self.window:
            return Decimal(0)
        return super().probability(body, index, digits)


@pytest.mark.medium
def test_laplace_noise_that_is_too_narrow_or_clamped_is_found() -> None:
    assert verdict(NarrowLaplace(Fraction(1), 3), range(4)) == "above epsilon"
    assert verdict(Laplace(Fraction(1), 3), range(5)) == "above epsilon", "an index that was not clamped"
    assert verdict(ClippedNoise(Fraction(1), 2), range(3)) in {"no law", "impossible output"}


# ---- randomized response


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_loss_of_randomized_response_is_epsilon_and_never_above(epsilon: Fraction) -> None:
    assert verdict(RandomizedResponse.from_epsilon(epsilon), (0, 1)) == "exact"


@pytest.mark.parametrize("epsilon", [Fraction(10), *EXTREMES])
def test_randomized_response_keeps_the_smallest_and_largest_epsilon(epsilon: Fraction) -> None:
    assert verdict(RandomizedResponse.from_epsilon(epsilon), (0, 1), NEARLY) == "exact"


@pytest.mark.parametrize("epsilon", [*EPSILONS, Fraction(50)])
def test_a_lie_of_a_bit_that_is_too_light_or_too_heavy_is_found(epsilon: Fraction) -> None:
    for more, said in ((-1, "above epsilon"), (2**40, "below epsilon")):
        lie = weight_of_lie(epsilon) + more
        assert verdict(RandomizedResponse(epsilon, (lie, WEIGHT_OF_TRUTH), WEIGHT_OF_TRUTH + lie), (0, 1)) == said


@pytest.mark.parametrize(
    ("truth", "yes"), [("1/2", "1/2"), ("1/2", "9/10"), ("1/2", "1/10"), ("3/10", "1/2"), ("9/10", "1/3")]
)
def test_the_loss_of_two_coins_is_the_largest_of_all_four_ratios(truth: str, yes: str) -> None:
    ratio = coin_loss_ratio(Fraction(truth), Fraction(yes))
    assert ratio is not None
    mechanism = RandomizedResponse.from_coins(log_ceiling(ratio), Fraction(truth), Fraction(yes))
    assert abs(largest_ratio(probabilities(mechanism, (0, 1))) / ratio - 1) < ROUNDING
    assert verdict(mechanism, (0, 1), COINS_TIGHT) == "exact"
    if truth == yes:  # fair coins cost ln 3
        assert ratio == 3
        assert mechanism.probability_of_one == (Fraction(1, 4), Fraction(3, 4))


def test_a_loss_computed_from_the_answer_yes_alone_is_found() -> None:
    """No is the telling answer."""
    truth, yes = Fraction(1, 2), Fraction(9, 10)
    ratio_of_yes = (truth + (1 - truth) * yes) / ((1 - truth) * yes)
    mechanism = RandomizedResponse.from_coins(log_ceiling(ratio_of_yes), truth, yes)
    assert verdict(mechanism, (0, 1)) == "above epsilon"


# ---- multilevel


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_loss_of_multilevel_is_epsilon_and_never_above(epsilon: Fraction) -> None:
    for steps, levels in product((1, 2, 7), (1, 2, 5)):
        assert verdict(Multilevel(epsilon, steps, levels), range(steps + 1)) == "exact", (steps, levels)


@pytest.mark.parametrize("epsilon", EXTREMES)
def test_multilevel_keeps_the_smallest_and_largest_epsilon(epsilon: Fraction) -> None:
    assert verdict(Multilevel(epsilon, 4, 3), range(5), NEARLY) == "exact"


@dataclass(frozen=True)
class LighterLie(Multilevel):
    """Wrong on purpose: the lie weighs one part in 2^128 too little."""

    @cached_property
    def lie(self) -> int:
        return weight_of_lie(self.epsilon) - 1


@dataclass(frozen=True)
class RoundedUniform(Multilevel):
    """Wrong on purpose: the random level is a rounded continuous uniform, so that the end levels come half as often."""

    def probability(self, body: tuple[int, ...], index: int, digits: int = 60) -> Decimal:
        right = super().probability(body, index, digits)
        uniform = (1 - self.contrast) / (self.levels + 1)
        rounded = (1 - self.contrast) / self.levels / (2 if body[0] in (0, self.levels) else 1)
        with localcontext() as context:
            context.prec = digits
            return right + (rounded - uniform).numerator / Decimal((rounded - uniform).denominator)


@pytest.mark.parametrize("epsilon", [*EPSILONS, *EXTREMES])
def test_a_lie_of_a_level_that_is_too_light_is_found(epsilon: Fraction) -> None:
    assert verdict(LighterLie(epsilon, 3, 3), range(4)) == "above epsilon"


def test_a_rounded_uniform_is_found_and_loses_what_the_formula_says() -> None:
    wrong = RoundedUniform(Fraction(4), 4, 4)
    assert verdict(wrong, range(5), NEARLY) == "above epsilon"
    loss = log(largest_ratio(probabilities(wrong, range(5))))
    assert loss == pytest.approx(log(1 + 2 * 4 / 5 * (exp(4) - 1)))
    assert loss == pytest.approx(4.463, abs=5e-4)


# ---- subset selection


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1), Fraction(4)])
def test_the_loss_of_subset_selection_is_epsilon_and_never_above(epsilon: Fraction) -> None:
    for categories, size in [(k, w) for k in range(2, 7) for w in range(1, k)]:
        mechanism = SubsetSelection(epsilon, categories, size)
        assert verdict(mechanism, range(categories)) == "exact", (categories, size)


@pytest.mark.parametrize("epsilon", EXTREMES)
def test_subset_selection_keeps_the_smallest_and_largest_epsilon(epsilon: Fraction) -> None:
    assert verdict(SubsetSelection(epsilon, 4, 2), range(4), NEARLY) == "exact"


def test_a_body_of_two_words_loses_epsilon_too() -> None:
    assert verdict(SubsetSelection(Fraction(1), 34, 1), range(34)) == "exact"


@dataclass(frozen=True)
class LighterLieAboutASet(SubsetSelection):
    """Wrong on purpose, as `LighterLie`."""

    @cached_property
    def lie(self) -> int:
        return weight_of_lie(self.epsilon) - 1


@dataclass(frozen=True)
class SetsByTheirFavourite(SubsetSelection):
    """Wrong on purpose: weighs the truth against single categories, not against sets, and loses the factor."""

    def probability(self, body: tuple[int, ...], index: int, digits: int = 60) -> Decimal:
        right = super().probability(body, index, digits)
        return right * 2 if body[index // 32] >> index % 32 & 1 else right


def test_sets_whose_weights_are_wrong_are_found() -> None:
    assert verdict(LighterLieAboutASet(Fraction(1), 5, 2), range(5)) == "above epsilon"
    assert verdict(SetsByTheirFavourite(Fraction(1), 5, 2), range(5)) == "no law"


# ---- vector


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1), Fraction(4)])
def test_the_loss_of_a_vector_is_epsilon_and_never_above(epsilon: Fraction) -> None:
    for coordinates, sampled, levels in ((1, 1, 2), (2, 1, 1), (2, 2, 2), (3, 1, 2), (3, 2, 1), (3, 3, 1)):
        mechanism = Vector(epsilon, 2, coordinates, sampled, levels)
        assert verdict(mechanism, product(range(3), repeat=coordinates)) == "exact", (coordinates, sampled, levels)


@dataclass(frozen=True)
class WholeEpsilonEach(Vector):
    """Wrong on purpose: spends epsilon on every drawn coordinate."""

    @cached_property
    def part(self) -> Multilevel:
        return Multilevel(self.epsilon, self.steps, self.levels)


@dataclass(frozen=True)
class LargestDrawnMoreOften(Vector):
    """Wrong on purpose: of two coordinates the larger is drawn twice as often as the other."""

    def probability(self, body: tuple[int, ...], index: tuple[int, ...], digits: int = 60) -> Decimal:
        right = super().probability(body, index, digits)
        if index[0] == index[1]:
            return right
        with localcontext() as context:
            context.prec = digits
            return right * (4 if index[body[0]] == max(index) else 2) / 3


def test_a_whole_epsilon_for_each_coordinate_is_found() -> None:
    wrong = WholeEpsilonEach(Fraction(1), 2, 3, 2, 1)
    assert verdict(wrong, product(range(3), repeat=3)) == "above epsilon"
    assert log(largest_ratio(probabilities(wrong, product(range(3), repeat=3)))) == pytest.approx(2)


def test_a_coordinate_drawn_by_the_data_is_found() -> None:
    assert verdict(LargestDrawnMoreOften(Fraction(1), 2, 2, 1, 1), product(range(3), repeat=2)) == "above epsilon"


# ---- table


@dataclass(frozen=True)
class Unchecked(Channel):
    """A channel that nobody has checked."""

    def __post_init__(self) -> None:
        pass


def one_bit(epsilon: Fraction, more: int = 0) -> tuple[tuple[int, int], int, tuple[tuple[int, int], ...]]:
    """Positions, unit and weights of a bit whose truth weighs the most that epsilon admits, and `more`."""
    lie = 1 << 40
    bound = certified_exp(epsilon)[0]
    truth = lie * bound.numerator // bound.denominator + more
    return (-lie, truth), truth - lie, ((truth, lie), (lie, truth))


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_a_table_may_use_its_epsilon_to_the_last_unit_and_no_more(epsilon: Fraction) -> None:
    assert verdict(Channel(epsilon, 3, *one_bit(epsilon)), range(4), Fraction(1, 2**39)) == "exact"
    wrong = one_bit(epsilon, more=1)
    with pytest.raises(TaskError, match="ratio"):
        Channel(epsilon, 3, *wrong)
    assert verdict(Unchecked(epsilon, 3, *wrong), range(4)) == "above epsilon"


@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(1), Fraction(2), Fraction(4)])
def test_the_shipped_tables_lose_epsilon_and_never_more(epsilon: Fraction) -> None:
    made = shipped_at(epsilon)
    rows = len(made.weights) - 1
    mechanism = Channel(epsilon, 2 * rows, made.positions, made.unit, made.weights)
    assert verdict(mechanism, range(2 * rows + 1), Fraction(1, 1000)) == "exact"


# ---- several epsilons


def test_each_offer_is_a_law_and_loses_its_own_epsilon() -> None:
    epsilons = (Fraction(1, 2), Fraction(1), Fraction(2))
    offers = Offers(tuple(Multilevel(epsilon, 3, 2) for epsilon in epsilons))
    for offer, epsilon in enumerate(epsilons):
        bodies = [body for body in offers.outputs() if body[0] == offer]
        rows = {i: [Fraction(offers.probability(body, i, 90)) for body in bodies] for i in range(4)}
        low, high = certified_exp(epsilon)
        assert all(abs(sum(row, Fraction(-1))) < ROUNDING for row in rows.values())
        assert high * (1 - TIGHT) <= largest_ratio(rows) <= low * (1 + ROUNDING)


def test_no_body_of_one_offer_is_taken_for_another() -> None:
    offers = Offers((Multilevel(Fraction(1), GRID_STEPS, 1), Multilevel(Fraction(3), GRID_STEPS, 3)))
    admitted = {(c, z) for c in range(-1, 4) for z in range(-1, 6) if offers.admits((c, z))}
    assert admitted == set(offers.outputs()) == {(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (1, 3)}
