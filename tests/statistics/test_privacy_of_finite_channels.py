"""The loss of every mechanism with few outputs, from its whole table, and of planted errors by the same judge."""

from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cached_property
from itertools import product
from math import exp, log

import pytest
from judge import TIGHT, largest_ratio, probabilities, verdict

from hush_common.domain import GRID_STEPS
from hush_common.epsilon import SMALLEST, certified_exp, weight_of_lie
from hush_common.errors import TaskError
from hush_common.mechanisms import Channel, Multilevel, Offers, SubsetSelection, Vector
from hush_common.mechanisms.parameters import shipped_at

EPSILONS = [Fraction(text) for text in ("1/10", "1/2", "1", "7/3", "4")]
EXTREMES = [SMALLEST, Fraction(50)]
NEARLY = Fraction(1, 10**16)
"""How tight a lie of few digits can be at epsilon = 50, where it weighs about 2^56."""


# ---- multilevel


@pytest.mark.parametrize("levels", [1, 2, 5])
@pytest.mark.parametrize("steps", [1, 2, 7])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_loss_of_multilevel_is_epsilon_and_never_above(epsilon: Fraction, steps: int, levels: int) -> None:
    assert verdict(Multilevel(epsilon, steps, levels), range(steps + 1)) == "exact"


@pytest.mark.parametrize("epsilon", EXTREMES)
def test_multilevel_keeps_epsilon_at_the_ends_of_what_is_admitted(epsilon: Fraction) -> None:
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
def test_a_lie_lighter_by_one_part_in_2_to_the_128_is_found(epsilon: Fraction) -> None:
    assert verdict(LighterLie(epsilon, 3, 3), range(4)) == "above epsilon"


def test_a_rounded_uniform_is_found_and_loses_what_the_formula_says() -> None:
    wrong = RoundedUniform(Fraction(4), 4, 4)
    assert verdict(wrong, range(5), NEARLY) == "above epsilon"
    loss = log(largest_ratio(probabilities(wrong, range(5))))
    assert loss == pytest.approx(log(1 + 2 * 4 / 5 * (exp(4) - 1)))
    assert loss == pytest.approx(4.463, abs=5e-4)


# ---- subset selection


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1), Fraction(4)])
@pytest.mark.parametrize(("categories", "size"), [(k, w) for k in range(2, 7) for w in range(1, k)])
def test_the_loss_of_subset_selection_is_epsilon_and_never_above(epsilon: Fraction, categories: int, size: int) -> None:
    assert verdict(SubsetSelection(epsilon, categories, size), range(categories)) == "exact"


@pytest.mark.parametrize("epsilon", EXTREMES)
def test_subset_selection_keeps_epsilon_at_the_ends_of_what_is_admitted(epsilon: Fraction) -> None:
    assert verdict(SubsetSelection(epsilon, 4, 2), range(4), NEARLY) == "exact"


def test_a_body_of_two_words_loses_epsilon_too() -> None:
    assert verdict(SubsetSelection(Fraction(1), 34, 2), range(34)) == "exact"


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
        with_truth = body[index // 32] >> index % 32 & 1
        return right * 2 if with_truth else right


def test_a_lighter_lie_about_a_set_is_found() -> None:
    assert verdict(LighterLieAboutASet(Fraction(1), 5, 2), range(5)) == "above epsilon"


def test_weights_without_a_common_total_are_found() -> None:
    assert verdict(SetsByTheirFavourite(Fraction(1), 5, 2), range(5)) == "no law"


# ---- vector

SHAPES = [(1, 1, 2), (2, 1, 1), (2, 2, 2), (3, 1, 2), (3, 2, 1), (3, 3, 1)]
"""d, s, G."""


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1), Fraction(4)])
@pytest.mark.parametrize(("coordinates", "sampled", "levels"), SHAPES)
def test_the_loss_of_a_vector_is_epsilon_and_never_above(
    epsilon: Fraction, coordinates: int, sampled: int, levels: int
) -> None:
    mechanism = Vector(epsilon, 2, coordinates, sampled, levels)
    assert verdict(mechanism, product(range(3), repeat=coordinates)) == "exact"


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
def test_a_table_may_use_its_epsilon_to_the_last_unit(epsilon: Fraction) -> None:
    assert verdict(Channel(epsilon, 3, *one_bit(epsilon)), range(4), Fraction(1, 2**39)) == "exact"


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_a_table_above_its_epsilon_by_one_unit_is_refused_and_rightly(epsilon: Fraction) -> None:
    wrong = one_bit(epsilon, more=1)
    with pytest.raises(TaskError, match="a ratio above e"):
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
        assert all(abs(sum(row, Fraction(-1))) < Fraction(1, 10**80) for row in rows.values())
        assert high * (1 - TIGHT) <= largest_ratio(rows) <= low * (1 + Fraction(1, 10**80))


def test_no_body_of_one_offer_is_taken_for_another() -> None:
    offers = Offers((Multilevel(Fraction(1), GRID_STEPS, 1), Multilevel(Fraction(3), GRID_STEPS, 3)))
    admitted = {(c, z) for c in range(-1, 4) for z in range(-1, 6) if offers.admits((c, z))}
    assert admitted == set(offers.outputs()) == {(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (1, 3)}
