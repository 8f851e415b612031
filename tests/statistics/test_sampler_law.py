"""The sampler follows the table: by every path on small scales, by goodness of fit at the scale that is deployed."""

from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache
from math import exp
from typing import Protocol, cast

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

from hush_common.domain import GRID_STEPS
from hush_common.epsilon import WEIGHT_OF_TRUTH, certified_exp, weight_of_lie
from hush_common.mechanisms import Laplace, RandomizedResponse, laplace
from hush_common.mechanisms.laplace import bernoulli_exp, discrete_laplace
from hush_common.rng import Rng

pytestmark = pytest.mark.medium

Law = dict[int, Fraction]
Enumerate = Callable[[Callable[["PathRng"], int], Fraction], tuple[Law, Fraction]]
Fits = Callable[[ArrayLike, ArrayLike], bool]
Seeded = Callable[[int], Rng]
Sampler = Callable[[int, int, Rng], int]


class PathRng(Rng, Protocol):
    """The Rng of `enumerate_law`: it may also be asked for a coin of a given probability."""

    def flip(self, p: Fraction) -> bool: ...


SCALES = [(1, 1), (2, 1), (1, 2), (2, 3), (1, 3)]
"""s, t: noise of scale t/s."""


# ---- every path


@pytest.mark.parametrize(("a", "b"), [(0, 1), (1, 1), (1, 2), (2, 3), (1, 5)])
def test_bernoulli_exp_is_true_with_probability_e_to_the_minus_a_over_b(
    enumerate_law: Enumerate, a: int, b: int
) -> None:
    law, missing = enumerate_law(lambda rng: int(bernoulli_exp(a, b, rng)), Fraction(1, 10**10))
    low, high = certified_exp(Fraction(a, b))
    assert missing < Fraction(1, 10**5)
    assert 1 / high - missing <= law[1] <= 1 / low


def agrees(law: Law, missing: Fraction, mechanism: Laplace, index: int) -> bool:
    """Whether lower bounds that lack `missing` in all are compatible with the table, output by output."""
    slack = Fraction(1, 10**9)  # the table has 60 digits, a coin of `one_coin` 40 bits
    return all(
        law.get(k, Fraction(0)) - slack <= Fraction(mechanism.probability((k,), index)) <= law.get(k, 0) + missing
        for (k,) in mechanism.outputs()
    ) and all(mechanism.admits((k,)) for k in law)


@pytest.mark.large
@pytest.mark.parametrize("index", [0, 1, 2])
def test_every_path_of_perturb_together_gives_the_table(enumerate_law: Enumerate, index: int) -> None:
    mechanism = Laplace(Fraction(2), 2)
    law, missing = enumerate_law(lambda rng: mechanism.perturb(index, rng)[0], Fraction(1, 10**6))
    assert missing < Fraction(1, 50)
    assert agrees(law, missing, mechanism, index)


def one_coin(a: int, b: int, rng: Rng) -> bool:
    """`bernoulli_exp` as one draw: with its law established, the paths of its callers reach much further."""
    return cast("PathRng", rng).flip(_forty_bits(a, b))


@cache
def _forty_bits(a: int, b: int) -> Fraction:
    return Fraction(round(2**40 / certified_exp(Fraction(a, b))[0]), 2**40)


@pytest.fixture
def _one_coin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laplace, "bernoulli_exp", one_coin)


@pytest.mark.large
@pytest.mark.usefixtures("_one_coin")
@pytest.mark.parametrize(("s", "t"), SCALES)
def test_every_path_of_the_sampler_together_gives_the_table(enumerate_law: Enumerate, s: int, t: int) -> None:
    law, missing = enumerate_law(lambda rng: discrete_laplace(s, t, rng), Fraction(1, 4 * 10**5))
    assert missing < Fraction(1, 25)
    assert agrees(law, missing, Laplace(Fraction(s, t), 1), 0)


def keeps_negative_zero(s: int, t: int, rng: Rng) -> int:
    """Wrong on purpose: zero comes with either sign, twice as often as it should."""
    while True:
        residue = rng.randbelow(t)
        if not one_coin(residue, t, rng):
            continue
        quotient = 0
        while one_coin(1, 1, rng):
            quotient += 1
        magnitude = (residue + t * quotient) // s
        return -magnitude if rng.randbelow(2) == 1 else magnitude


def rounds_up(s: int, t: int, rng: Rng) -> int:
    """Wrong on purpose: divides by s with the other rounding, which removes part of the mass at 0."""
    noise = discrete_laplace(1, t, rng)
    return -(-noise // s) if noise > 0 else noise // s


@pytest.mark.usefixtures("_one_coin")
@pytest.mark.parametrize(("wrong", "s", "t"), [(keeps_negative_zero, 1, 2), (rounds_up, 2, 3)])
def test_a_slip_in_the_sampler_shows_in_its_paths(enumerate_law: Enumerate, wrong: Sampler, s: int, t: int) -> None:
    law, missing = enumerate_law(lambda rng: wrong(s, t, rng), Fraction(1, 10**5))
    assert not agrees(law, missing, Laplace(Fraction(s, t), 1), 0)


class Scripted:
    """Answers one draw with `outcome`, and remembers how many outcomes it had."""

    def __init__(self, outcome: int) -> None:
        self.outcome, self.size = outcome, 0

    def randbelow(self, n: int, /) -> int:
        self.size = n
        return self.outcome

    def token_bytes(self, count: int, /) -> bytes:
        raise NotImplementedError


@pytest.mark.parametrize("bit", [0, 1])
@pytest.mark.parametrize("epsilon", ["1/10", "1", "4", "50"])
def test_randomized_response_says_one_for_exactly_as_many_draws_as_its_weight(epsilon: str, bit: int) -> None:
    mechanism = RandomizedResponse.from_epsilon(Fraction(epsilon))
    lie = weight_of_lie(Fraction(epsilon))
    weight = WEIGHT_OF_TRUTH if bit else lie
    for draw, said in ((0, 1), (weight - 1, 1), (weight, 0), (WEIGHT_OF_TRUTH + lie - 1, 0)):
        rng = Scripted(draw)
        assert mechanism.perturb(bit, rng) == (said,)
        assert rng.size == WEIGHT_OF_TRUTH + lie


@pytest.mark.parametrize(("truth", "yes"), [("1/2", "1/2"), ("3/4", "1/5")])
@pytest.mark.parametrize("bit", [0, 1])
def test_every_path_of_two_coins_gives_their_table(enumerate_law: Enumerate, truth: str, yes: str, bit: int) -> None:
    a, h = Fraction(truth), Fraction(yes)
    mechanism = RandomizedResponse.from_coins(Fraction(1), a, h)
    law, missing = enumerate_law(lambda rng: mechanism.perturb(bit, rng)[0], Fraction(1, 10**6))
    assert missing == 0
    assert law[1] == a * bit + (1 - a) * h


# ---- at the scale that is deployed


def noise_cells(scale: float, edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probabilities of discrete Laplace noise between integer edges: P(Z < e) from the geometric series."""
    q = exp(-1 / scale)
    below = np.where(edges <= 0, q ** (1 - edges), 1 + q - q**edges) / (1 + q)
    return np.diff(np.concatenate([[0.0], below, [1.0]]))


@pytest.mark.parametrize(("epsilon", "steps"), [("1", GRID_STEPS), ("7/3", GRID_STEPS), ("1/2", 1)])
def test_noise_at_full_scale_has_the_law_of_the_table(fits: Fits, seeded: Seeded, epsilon: str, steps: int) -> None:
    mechanism, rng = Laplace(Fraction(epsilon), steps), seeded(20)
    scale = float(mechanism.scale)
    draws = np.array([mechanism.perturb(0, rng)[0] for _ in range(20_000)])
    edges = np.unique(np.round(scale * np.linspace(-4, 4, 25)))
    counts = np.bincount(np.searchsorted(edges, draws, side="right"), minlength=len(edges) + 1)
    assert fits(counts, noise_cells(scale, edges))
    assert not fits(counts, noise_cells(1.1 * scale, edges)), "a scale wrong by a tenth must be seen"
    assert not fits(counts, noise_cells(scale, edges + max(1.0, scale // 10))), "so must a shifted centre"


def test_reports_of_a_bit_have_the_law_of_the_table(fits: Fits, seeded: Seeded) -> None:
    mechanism, rng = RandomizedResponse.from_epsilon(Fraction(1)), seeded(21)
    lie = float(mechanism.probability_of_one[0])
    ones = sum(mechanism.perturb(0, rng)[0] for _ in range(50_000))
    assert fits([50_000 - ones, ones], [1 - lie, lie])
    assert not fits([50_000 - ones, ones], [1 - 1.1 * lie, 1.1 * lie])


# ---- the variance that error bars are made of


@pytest.mark.parametrize(("epsilon", "steps"), [("1/2", 1), ("1", 2), ("7/3", 5), ("4", 8)])
@pytest.mark.parametrize("end", [0, 1])
def test_mean_and_variance_of_the_table_are_those_that_are_published(epsilon: str, steps: int, end: int) -> None:
    mechanism, index = Laplace(Fraction(epsilon), steps), end * steps
    law = {k: Fraction(mechanism.probability((k,), index)) for (k,) in mechanism.outputs()}
    mean = sum(k * p for k, p in law.items())
    variance = sum((k - index) ** 2 * p for k, p in law.items())
    assert float(mean) == pytest.approx(index, abs=1e-12)
    assert float(variance) == pytest.approx(mechanism.variance, rel=1e-12)


def test_the_variance_keeps_its_digits_where_the_textbook_form_loses_them() -> None:
    mechanism = Laplace(Fraction(1, 10**6), GRID_STEPS)
    with localcontext() as context:
        context.prec = 60
        q = (-Decimal(mechanism.scale.denominator) / Decimal(mechanism.scale.numerator)).exp()
        right = float(2 * q / (1 - q) ** 2)
    rounded = exp(-float(1 / mechanism.scale))
    assert mechanism.variance == pytest.approx(right, rel=1e-14)
    assert 2 * rounded / (1 - rounded) ** 2 != pytest.approx(right, rel=1e-6)
