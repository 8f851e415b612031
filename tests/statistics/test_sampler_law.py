"""Samplers follow their tables: by every path on small scales, by goodness of fit at the scale that is deployed.

Weights of 2^128 are made small, so that every draw can be followed; the code that is followed is the device's.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache, cached_property, partial
from itertools import combinations, product
from math import exp
from typing import Protocol, cast

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from hush_common.domain import GRID_STEPS
from hush_common.epsilon import WEIGHT_OF_TRUTH, certified_exp, weight_of_lie
from hush_common.mechanisms import (
    Channel,
    Laplace,
    Mechanism,
    Multilevel,
    Offers,
    RandomizedResponse,
    SubsetSelection,
    Vector,
    laplace,
    multilevel,
    subset_selection,
)
from hush_common.mechanisms.laplace import bernoulli_exp, discrete_laplace
from hush_common.mechanisms.parameters import shipped_at
from hush_common.mechanisms.subset_selection import draw_subset
from hush_common.rng import Rng, SystemRng

Body = tuple[int, ...]
Law = dict[int, Fraction]
BodyLaw = dict[Body, Fraction]
Enumerate = Callable[[Callable[["PathRng"], int], Fraction], tuple[Law, Fraction]]
EnumerateBodies = Callable[[Callable[[Rng], Body], Fraction], tuple[BodyLaw, Fraction]]
Fits = Callable[[ArrayLike, ArrayLike], bool]
Seeded = Callable[[int], Rng]
TINY = Fraction(1, 10**9)
TRUTH = 5


class PathRng(Rng, Protocol):
    """The Rng of `enumerate_law`: it may also be asked for a coin of a given probability."""

    def flip(self, p: Fraction) -> bool: ...


class NoRng:
    """Nothing may be drawn of it."""

    def randbelow(self, n: int, /) -> int:
        raise AssertionError(n)

    def token_bytes(self, count: int, /) -> bytes:
        raise AssertionError(count)


# ---- laplace, by every path


@pytest.mark.parametrize(("a", "b"), [(0, 1), (1, 1), (2, 3), (1, 5)])
def test_bernoulli_exp_is_true_with_its_probability(enumerate_law: Enumerate, a: int, b: int) -> None:
    law, missing = enumerate_law(lambda rng: int(bernoulli_exp(a, b, rng)), Fraction(1, 10**7))
    low, high = certified_exp(Fraction(a, b))
    assert missing < Fraction(1, 10**3)
    assert 1 / high - missing <= law[1] <= 1 / low


def agrees(law: Law, missing: Fraction, mechanism: Laplace, index: int) -> bool:
    """Whether lower bounds that lack `missing` in all are compatible with the table, output by output."""
    return all(
        law.get(k, Fraction(0)) - TINY <= Fraction(mechanism.probability((k,), index)) <= law.get(k, 0) + missing
        for (k,) in mechanism.outputs()
    ) and all(mechanism.admits((k,)) for k in law)


@pytest.mark.medium
@pytest.mark.parametrize("index", [0, 1])
def test_every_path_of_a_noisy_number_gives_the_table(enumerate_law: Enumerate, index: int) -> None:
    mechanism = Laplace(Fraction(2), 2)
    law, missing = enumerate_law(lambda rng: mechanism.perturb(index, rng)[0], Fraction(1, 2 * 10**5))
    assert missing < Fraction(1, 20)
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


@pytest.mark.medium
@pytest.mark.usefixtures("_one_coin")
@pytest.mark.parametrize(("s", "t"), [(1, 1), (2, 1), (2, 3)])
def test_every_path_of_the_sampler_gives_the_table(enumerate_law: Enumerate, s: int, t: int) -> None:
    law, missing = enumerate_law(lambda rng: discrete_laplace(s, t, rng), Fraction(1, 10**5))
    assert missing < Fraction(1, 15)
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
def test_a_slip_in_the_sampler_shows_in_its_paths(
    enumerate_law: Enumerate,
    wrong: Callable[[int, int, Rng], int],
    s: int,
    t: int,
) -> None:
    law, missing = enumerate_law(lambda rng: wrong(s, t, rng), Fraction(1, 10**4))
    assert not agrees(law, missing, Laplace(Fraction(s, t), 1), 0)


# ---- bits


class Scripted:
    """Answers one draw with `outcome`, and remembers how many outcomes it had."""

    def __init__(self, outcome: int) -> None:
        self.outcome, self.size = outcome, 0

    def randbelow(self, n: int, /) -> int:
        self.size = n
        return self.outcome

    def token_bytes(self, count: int, /) -> bytes:
        raise NotImplementedError


@pytest.mark.parametrize("epsilon", ["1/10", "1", "4", "50"])
def test_a_bit_is_one_for_as_many_draws_as_its_weight(epsilon: str) -> None:
    mechanism = RandomizedResponse.from_epsilon(Fraction(epsilon))
    lie = weight_of_lie(Fraction(epsilon))
    for bit, weight in ((0, lie), (1, WEIGHT_OF_TRUTH)):
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


# ---- finite channels, by every path


@pytest.fixture(name="small")
def _small_truth(monkeypatch: pytest.MonkeyPatch, enumerate_law: EnumerateBodies) -> EnumerateBodies:
    """`enumerate_law`, with a truth that weighs little."""
    monkeypatch.setattr(multilevel, "WEIGHT_OF_TRUTH", TRUTH)
    monkeypatch.setattr(subset_selection, "WEIGHT_OF_TRUTH", TRUTH)
    return enumerate_law


class SmallLevel(Multilevel):
    lie = 2  # in place of floor(2^128 e^-epsilon) + 1


class SmallSubset(SubsetSelection):
    lie = 2


class SmallVector(Vector):
    @cached_property
    def part(self) -> Multilevel:
        return SmallLevel(self.epsilon / self.sampled, self.steps, self.levels)


def right(enumerate_law: EnumerateBodies, mechanism: Mechanism, index: int | tuple[int, ...]) -> bool:
    """Whether all paths of a sampler together give its table."""
    law, missing = enumerate_law(lambda rng: mechanism.perturb(index, rng), TINY)
    outputs = list(mechanism.outputs())
    admitted = all(mechanism.admits(body) for body in outputs)
    return admitted and follows(law, missing, lambda y: Fraction(mechanism.probability(y, index)), outputs)


def follows(law: BodyLaw, missing: Fraction, table: Callable[[Body], Fraction], outputs: Sequence[Body]) -> bool:
    """Whether the law of all paths is the table, with nothing outside it."""
    same = all(abs(law.get(body, Fraction(0)) - table(body)) < TINY for body in outputs)
    return missing == 0 and same and law.keys() <= set(outputs)


@pytest.mark.parametrize(("steps", "levels"), [(1, 1), (3, 2), (4, 3), (2, 5)])
def test_every_path_of_multilevel_gives_its_table(small: EnumerateBodies, steps: int, levels: int) -> None:
    mechanism = SmallLevel(Fraction(1), steps, levels)
    assert all(right(small, mechanism, index) for index in range(steps + 1))


@dataclass(frozen=True)
class MayTellTheTruth(SmallLevel):
    """Wrong on purpose: a lie may be the truth, and the last level is never one."""

    def perturb(self, index: int, rng: Rng) -> Body:
        level, rest = divmod(index * self.levels, self.steps)
        level += rng.randbelow(self.steps) < rest
        draw = rng.randbelow(self.total)
        return (level,) if draw < TRUTH else ((draw - TRUTH) // self.lie,)


def test_a_lie_that_may_be_the_truth_is_found(small: EnumerateBodies) -> None:
    assert not right(small, MayTellTheTruth(Fraction(1), 3, 2), 1)


@pytest.mark.parametrize(("categories", "size"), [(2, 1), (3, 1), (3, 2), (5, 1), (5, 2), (5, 3), (5, 4)])
def test_every_path_of_subset_selection_gives_its_table(small: EnumerateBodies, categories: int, size: int) -> None:
    mechanism = SmallSubset(Fraction(1), categories, size)
    assert all(right(small, mechanism, index) for index in range(categories))


def test_every_path_of_a_body_of_two_words_gives_its_table(small: EnumerateBodies) -> None:
    mechanism = SmallSubset(Fraction(1), 34, 1)
    assert all(right(small, mechanism, index) for index in (0, 31, 32, 33))


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 1, 2), (3, 2, 1), (2, 2, 1)])
def test_every_path_of_a_vector_gives_its_table(small: EnumerateBodies, shape: tuple[int, int, int]) -> None:
    mechanism = SmallVector(Fraction(1), 2, *shape)
    indices = list(product((0, 1, 2), repeat=shape[0]))
    assert all(right(small, mechanism, index) for index in indices[:: 1 + len(indices) // 10])


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_every_path_of_a_table_gives_it(small: EnumerateBodies, steps: int) -> None:
    weights = ((4, 1, 2, 0), (2, 3, 2, 0), (1, 4, 2, 0))
    mechanism = Channel.__new__(Channel)  # its means and its epsilon have no part in how it draws
    mechanism.__dict__.update(epsilon=Fraction(2), steps=steps, positions=(0, 1, 2, 3), unit=1, weights=weights)
    assert all(right(small, mechanism, index) for index in range(steps + 1))


def test_every_path_under_an_offer_gives_the_table_of_that_offer(small: EnumerateBodies) -> None:
    mechanism = Offers((SmallLevel(Fraction(1), 2, 1), SmallLevel(Fraction(2), 2, 3)))
    for offer in (0, 1):
        outputs = [body for body in mechanism.outputs() if body[0] == offer]
        law, missing = small(partial(mechanism.perturb, 1, offer=offer), TINY)
        assert follows(law, missing, lambda y: Fraction(mechanism.probability(y, 1)), outputs)


@pytest.mark.parametrize("index", [-1, 9])
def test_an_index_outside_the_domain_draws_nothing(index: int) -> None:
    made = shipped_at(Fraction(1))
    for mechanism in (
        Multilevel(Fraction(1), 8, 2),
        Channel(Fraction(1), 8, made.positions, made.unit, made.weights),
        SubsetSelection(Fraction(1), 9, 2),
        Laplace(Fraction(1), 8),
        RandomizedResponse.from_epsilon(Fraction(1)),
    ):
        with pytest.raises(ValueError, match=r"\d"):
            mechanism.perturb(index, NoRng())
    for values in ((0, index), (index, 0), (0,), (0, 0, 0)):
        with pytest.raises(ValueError, match="vector of 2"):
            Vector(Fraction(1), 8, 2, 1, 1).perturb(values, NoRng())


# ---- subsets


def joined(counts: NDArray[np.int64], law: NDArray[np.float64]) -> tuple[ArrayLike, ArrayLike]:
    """Cells that expect few reports, added to the one that expects most."""
    common = law * counts.sum() > 20
    cells = np.where(common, np.arange(len(law)), np.argmax(law))
    return np.bincount(cells, counts, len(law))[common], np.bincount(cells, law, len(law))[common]


def sets(n: int, size: int) -> list[Body]:
    return [(sum(1 << c for c in chosen),) for chosen in combinations(range(n), size)]


@pytest.mark.parametrize(("n", "size"), [(1, 1), (4, 1), (5, 2), (5, 3), (4, 4), (6, 5), (3, 0)])
def test_every_subset_is_drawn_equally_often(small: EnumerateBodies, n: int, size: int) -> None:
    law, missing = small(lambda rng: (draw_subset(n, size, rng),), TINY)
    assert follows(law, missing, lambda _: 1 / Fraction(len(sets(n, size))), sets(n, size))


@pytest.mark.parametrize(("n", "size"), [(20, 9), (20, 17), (300, 11), (300, 150), (1023, 275), (12, 12)])
def test_a_large_subset_is_a_uniform_one(fits: Fits, seeded: Seeded, n: int, size: int) -> None:
    """Each element as often as the others, and as many in the first half as a uniform subset has."""
    rng, runs = seeded(33), 6_007  # a prime: no count can equal its expectation, which would look too good to be true
    drawn = [draw_subset(n, size, rng) for _ in range(runs)]
    assert {bits.bit_count() for bits in drawn} == {size}
    assert max(drawn) < 1 << n
    if size < n:
        for element in (0, n // 2, n - 1):
            named = sum(bits >> element & 1 for bits in drawn)
            assert fits([named, runs - named], [size / n, 1 - size / n])
        half = (1 << n // 2) - 1
        law = stats.hypergeom(n, n // 2, size)
        counts = np.bincount([(bits & half).bit_count() for bits in drawn], minlength=size + 1)
        assert fits(*joined(counts, law.pmf(np.arange(len(counts)))))


class Filled:
    """Gives blocks of one byte each, however many are asked for."""

    def __init__(self, *fillings: int) -> None:
        self.fillings = list(fillings)

    def randbelow(self, n: int, /) -> int:
        raise AssertionError(n)

    def token_bytes(self, count: int, /) -> bytes:
        return bytes([self.fillings.pop(0)]) * count


def test_a_word_whose_remainder_would_not_be_uniform_is_refused() -> None:
    """All ones: of 2^16 words the last 64 are refused for 1023 elements, so none is taken out or put in."""
    with pytest.raises(IndexError):  # it asks for a second block
        draw_subset(1023, 275, Filled(0xFF))


# ---- at the scale that is deployed


def noise_cells(scale: float, edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probabilities of discrete Laplace noise between integer edges: P(Z < e) from the geometric series."""
    q = exp(-1 / scale)
    below = np.where(edges <= 0, q ** (1 - edges), 1 + q - q**edges) / (1 + q)
    return np.diff(np.concatenate([[0.0], below, [1.0]]))


@pytest.mark.medium
@pytest.mark.parametrize(("epsilon", "steps"), [("1", GRID_STEPS), ("1/2", 1)])
def test_noise_at_full_scale_has_the_law_of_the_table(fits: Fits, seeded: Seeded, epsilon: str, steps: int) -> None:
    mechanism, rng = Laplace(Fraction(epsilon), steps), seeded(20)
    scale = float(mechanism.scale)
    draws = np.array([mechanism.perturb(0, rng)[0] for _ in range(20_000)])
    edges = np.unique(np.round(scale * np.linspace(-4, 4, 25)))
    counts = np.bincount(np.searchsorted(edges, draws, side="right"), minlength=len(edges) + 1)
    assert fits(counts, noise_cells(scale, edges))
    assert not fits(counts, noise_cells(1.1 * scale, edges)), "a scale wrong by a tenth"
    assert not fits(counts, noise_cells(scale, edges + max(1.0, scale // 10))), "a shifted centre"


@pytest.mark.parametrize("epsilon", [Fraction(1), Fraction(4)])
def test_reports_of_a_shipped_table_have_its_law(fits: Fits, seeded: Seeded, epsilon: Fraction) -> None:
    made = shipped_at(epsilon)
    mechanism, rng = Channel(epsilon, GRID_STEPS, made.positions, made.unit, made.weights), seeded(30)
    index = GRID_STEPS * 3 // 7
    counts = np.bincount([mechanism.perturb(index, rng)[0] for _ in range(60_000)], minlength=len(made.positions))
    law, other = (
        np.array([float(mechanism.probability((y,), i)) for y in range(len(made.positions))])
        for i in (index, index * 6 // 7)
    )
    assert fits(*joined(counts, law))
    assert not fits(*joined(counts, other)), "a value elsewhere"


def test_a_category_among_forty_is_named_as_often_as_its_table_says(fits: Fits, seeded: Seeded) -> None:
    mechanism, rng, n = SubsetSelection(Fraction(1), 40, 11), seeded(31), 10_000
    bodies = [mechanism.perturb(35, rng) for _ in range(n)]
    assert all(mechanism.admits(body) for body in bodies)
    q, p = map(float, mechanism.support)
    for category in (0, 31, 32, 34, 35, 36, 39):
        named = sum(body[category // 32] >> category % 32 & 1 for body in bodies)
        expected, wrong = (p, q) if category == 35 else (q, p)
        assert fits([named, n - named], [expected, 1 - expected])
        assert not fits([named, n - named], [wrong, 1 - wrong])


@pytest.mark.medium
@pytest.mark.parametrize(("coordinates", "sampled"), [(6, 1), (12, 9)])
def test_a_vector_draws_its_coordinates_evenly_and_levels_by_value(
    fits: Fits, seeded: Seeded, coordinates: int, sampled: int
) -> None:
    mechanism, rng, n = (
        Vector(Fraction(2 * sampled), GRID_STEPS, coordinates, sampled, 2),
        seeded(32),
        18_001 // sampled,
    )
    index = tuple(GRID_STEPS * c // (coordinates - 1) for c in range(coordinates))
    counts, first = np.zeros((coordinates, 3)), np.zeros(coordinates)
    for _ in range(n):
        body = mechanism.perturb(index, rng)
        assert mechanism.admits(body)
        for c, z in zip(body[::2], body[1::2], strict=True):
            counts[c, z] += 1
            first[c] += 1
    one = mechanism.part
    law = np.array([[float(one.probability((z,), i)) for z in range(3)] for i in index])
    for c in range(coordinates):
        assert fits(counts[c], law[c])
        assert not fits(counts[c], law[(c + coordinates // 2) % coordinates])
        assert fits([first[c], n - first[c]], [sampled / coordinates, 1 - sampled / coordinates])


# ---- where the integers come from


@pytest.mark.parametrize("n", [1, 3, 7, 256])
def test_the_system_gives_every_integer_below_n_equally_often(monkeypatch: pytest.MonkeyPatch, n: int) -> None:
    every = reversed(range(1 << 16))  # the refused ones first
    monkeypatch.setattr("hush_common.rng.token_bytes", lambda size: next(every).to_bytes(size, "big"))
    accepted = (1 << 16) // n * n
    counts = np.bincount([SystemRng().randbelow(n) for _ in range(accepted if n > 1 else 256)], minlength=n)
    assert set(counts.tolist()) == {counts[0]}, "each remainder of every draw that is not refused"


@pytest.mark.parametrize("n", [0, -1])
def test_there_is_no_integer_below_zero(n: int) -> None:
    with pytest.raises(ValueError, match=str(n)):
        SystemRng().randbelow(n)


# ---- the variance that error bars are made of


def test_the_variance_keeps_its_digits_where_the_textbook_form_loses_them() -> None:
    mechanism = Laplace(Fraction(1, 10**6), GRID_STEPS)
    with localcontext() as context:
        context.prec = 60
        q = (-Decimal(mechanism.scale.denominator) / Decimal(mechanism.scale.numerator)).exp()
        exact = float(2 * q / (1 - q) ** 2)
    rounded = exp(-float(1 / mechanism.scale))
    assert mechanism.variance == pytest.approx(exact, rel=1e-14)
    assert 2 * rounded / (1 - rounded) ** 2 != pytest.approx(exact, rel=1e-6)


# ---- the judge


@pytest.mark.medium
def test_counts_of_another_law_or_that_agree_too_well_do_not_fit(fits: Fits) -> None:
    law = np.array([0.4, 0.3, 0.2, 0.1])
    rng = np.random.default_rng(0)
    assert all(fits(rng.multinomial(10_000, law), law) for _ in range(100))
    assert not any(fits(rng.multinomial(10_000, law + np.array([0.06, 0, 0, -0.06])), law) for _ in range(100))
    assert not fits(np.full(64, 1000), np.full(64, 1 / 64))
