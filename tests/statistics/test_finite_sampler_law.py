"""The samplers of the finite channels follow their tables: by every path with small weights, by fit at full.

The weights of 2^128 are made small, so that every draw can be followed; the code that is followed is the device's.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from itertools import combinations, product

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

from hush_common.domain import GRID_STEPS
from hush_common.mechanisms import (
    Channel,
    Laplace,
    Mechanism,
    Multilevel,
    Offers,
    RandomizedResponse,
    SubsetSelection,
    Vector,
    multilevel,
    subset_selection,
    vector,
)
from hush_common.mechanisms.parameters import shipped_at
from hush_common.mechanisms.subset_selection import _by_coins, _Plan, draw_subset
from hush_common.rng import Rng, SystemRng
from hush_common.task import make_task

Body = tuple[int, ...]
Law = dict[Body, Fraction]
Enumerate = Callable[[Callable[[Rng], Body], Fraction], tuple[Law, Fraction]]
Fits = Callable[[ArrayLike, ArrayLike], bool]
Seeded = Callable[[int], Rng]
NOTHING = Fraction(0)
TRUTH = 5
TINY = Fraction(1, 10**9)


@pytest.fixture(autouse=True)
def _small_truth(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "enumerate_law" in request.fixturenames:
        monkeypatch.setattr(multilevel, "WEIGHT_OF_TRUTH", TRUTH)
        monkeypatch.setattr(subset_selection, "WEIGHT_OF_TRUTH", TRUTH)


class SmallLevel(Multilevel):
    lie = 2  # in place of floor(2^128 e^-epsilon) + 1


class SmallSubset(SubsetSelection):
    lie = 2


class SmallVector(Vector):
    @cached_property
    def part(self) -> Multilevel:
        return SmallLevel(self.epsilon / self.sampled, self.steps, self.levels)


def right(enumerate_law: Enumerate, mechanism: Mechanism, index: int | tuple[int, ...]) -> bool:
    """Whether all paths of a sampler together give its table."""
    law, missing = enumerate_law(lambda rng: mechanism.perturb(index, rng), TINY)
    outputs = list(mechanism.outputs())
    admitted = all(mechanism.admits(body) for body in outputs)
    return admitted and follows(law, missing, lambda y: Fraction(mechanism.probability(y, index)), outputs)


def follows(law: Law, missing: Fraction, table: Callable[[Body], Fraction], outputs: Sequence[Body]) -> bool:
    """Whether the law of all paths is the table, with nothing outside it."""
    same = all(abs(law.get(body, NOTHING) - table(body)) < TINY for body in outputs)
    return missing == 0 and same and law.keys() <= set(outputs)


class Untouched:
    def randbelow(self, n: int, /) -> int:
        raise AssertionError(n)

    def token_bytes(self, count: int, /) -> bytes:
        raise AssertionError(count)


# ---- every path


@pytest.mark.parametrize(("steps", "levels"), [(1, 1), (3, 2), (4, 3), (2, 5)])
def test_every_path_of_multilevel_gives_its_table(enumerate_law: Enumerate, steps: int, levels: int) -> None:
    mechanism = SmallLevel(Fraction(1), steps, levels)
    for index in range(steps + 1):
        assert right(enumerate_law, mechanism, index)


@dataclass(frozen=True)
class MayTellTheTruth(SmallLevel):
    """Wrong on purpose: a lie may be the truth, and the last level is never one."""

    def perturb(self, index: int, rng: Rng) -> Body:
        level, rest = divmod(index * self.levels, self.steps)
        level += rng.randbelow(self.steps) < rest
        draw = rng.randbelow(self.total)
        return (level,) if draw < TRUTH else ((draw - TRUTH) // self.lie,)


def test_a_lie_that_may_be_the_truth_is_seen(enumerate_law: Enumerate) -> None:
    assert not right(enumerate_law, MayTellTheTruth(Fraction(1), 3, 2), 1)


def sets(n: int, size: int) -> list[Body]:
    return [(sum(1 << c for c in chosen),) for chosen in combinations(range(n), size)]


@pytest.mark.parametrize(("n", "size"), [(1, 1), (4, 1), (5, 2), (5, 3), (4, 4), (6, 5), (3, 0)])
def test_every_subset_is_drawn_equally_often(enumerate_law: Enumerate, n: int, size: int) -> None:
    law, missing = enumerate_law(lambda rng: (draw_subset(n, size, rng),), TINY)
    assert follows(law, missing, lambda _: 1 / Fraction(len(sets(n, size))), sets(n, size))


@dataclass(frozen=True)
class FollowedCoins(_Plan):
    """Coins and single elements drawn as integers, the latter one by one, so that every path can be followed."""

    def draw(self, rng: Rng) -> tuple[int, Iterator[int]]:
        return rng.randbelow(1 << self.n * len(self.digits)), iter(lambda: rng.randbelow(self.n), None)


@pytest.mark.large
@pytest.mark.parametrize(
    ("n", "size", "digits"),
    [(n, size, digits) for n, size in ((3, 1), (3, 2), (4, 2)) for digits in ((), (1,), (1, 0), (1, 1))]
    + [(4, 3, ()), (4, 3, (1,)), (5, 1, ())],
)
def test_every_subset_is_drawn_equally_often_by_coins(
    enumerate_law: Enumerate, monkeypatch: pytest.MonkeyPatch, n: int, size: int, digits: tuple[int, ...]
) -> None:
    monkeypatch.setattr(subset_selection, "_best_plan", lambda n, _: FollowedCoins(n, digits, 1))
    law, missing = enumerate_law(lambda rng: (_by_coins(n, size, rng),), Fraction(1, 3 * 10**5))
    assert missing < Fraction(1, 20)
    assert set(law) == set(sets(n, size))
    assert len(set(law.values())) == 1, "the paths that were followed are as many for every set"


class OnlyBytes(Untouched):
    """Gives these bytes, once."""

    def __init__(self, given: bytes) -> None:
        self.given = given

    def token_bytes(self, count: int, /) -> bytes:
        if len(self.given) != count:
            raise EOFError
        given, self.given = self.given, b""
        return given


def by_coins(plan: _Plan, size: int, given: Iterator[bytes], monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """How often each subset comes, over all that the random bytes can be; 0 where they do not suffice."""
    monkeypatch.setattr(subset_selection, "_best_plan", lambda *_: plan)
    counts: Counter[int] = Counter()
    for some in given:
        try:
            counts[_by_coins(plan.n, size, OnlyBytes(some))] += 1
        except EOFError:
            counts[0] += 1
    return counts


def test_all_bytes_for_coins_give_every_subset_that_they_suffice_for_equally_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = (bytes([coins]) for coins in range(256))
    counts = by_coins(_Plan(4, (1,), 0), 2, given, monkeypatch)
    assert counts == {0: 256 - 6 * 16} | {subset: 16 for (subset,) in sets(4, 2)}


@dataclass(frozen=True)
class RefusesNothing(_Plan):
    """Wrong on purpose: the remainder of 16 bits, whatever they are."""

    @cached_property
    def limit(self) -> int:
        return 1 << 16


@pytest.mark.large
@pytest.mark.parametrize("n", [2, 3, 63, 1023])
def test_all_bytes_for_single_elements_give_every_element_equally_often(
    monkeypatch: pytest.MonkeyPatch, n: int
) -> None:
    words = [word.to_bytes(2, "little") for word in range(1 << 16)]
    counts = by_coins(_Plan(n, (), 1), 1, iter(words), monkeypatch)
    refused = (1 << 16) % n
    assert counts.pop(0, 0) == refused
    assert counts == {1 << element: (1 << 16) // n for element in range(n)}
    wrong = by_coins(RefusesNothing(n, (), 1), 1, iter(words), monkeypatch)
    assert (len(set(wrong.values())) > 1) == (refused > 0)


@pytest.mark.parametrize(("n", "size"), [(20, 9), (20, 17), (300, 11), (300, 150), (1023, 275), (1023, 1000), (12, 12)])
def test_a_large_subset_has_its_size_and_names_all_elements_equally_often(
    fits: Fits, seeded: Seeded, n: int, size: int
) -> None:
    rng, runs = seeded(33), 6_007  # a prime: no count can equal its expectation, which would look too good to be true
    drawn = [draw_subset(n, size, rng) for _ in range(runs)]
    assert {bits.bit_count() for bits in drawn} == {size}
    assert max(drawn) < 1 << n
    if size < n:
        for element in (0, n // 2, n - 1):
            named = sum(bits >> element & 1 for bits in drawn)
            assert fits([named, runs - named], [size / n, 1 - size / n])


@pytest.mark.parametrize(("categories", "size"), [(k, w) for k in (2, 3, 5) for w in range(1, k)])
def test_every_path_of_subset_selection_gives_its_table(enumerate_law: Enumerate, categories: int, size: int) -> None:
    mechanism = SmallSubset(Fraction(1), categories, size)
    for index in range(categories):
        assert right(enumerate_law, mechanism, index)


def test_every_path_of_a_body_of_two_words_gives_its_table(enumerate_law: Enumerate) -> None:
    mechanism = SmallSubset(Fraction(1), 34, 1)
    for index in (0, 31, 32, 33):
        assert right(enumerate_law, mechanism, index)


@pytest.mark.parametrize("few", [8, 0], ids=["of one draw", "one by one"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 1, 2), (3, 2, 1), (2, 2, 1)])
def test_every_path_of_a_vector_gives_its_table(
    enumerate_law: Enumerate, monkeypatch: pytest.MonkeyPatch, few: int, shape: tuple[int, int, int]
) -> None:
    monkeypatch.setattr(vector, "_FEW", few)
    mechanism = SmallVector(Fraction(1), 2, *shape)
    for index in product((0, 1, 2), repeat=shape[0]):
        assert right(enumerate_law, mechanism, index)


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_every_path_of_a_table_gives_it(enumerate_law: Enumerate, steps: int) -> None:
    weights = ((4, 1, 2, 0), (2, 3, 2, 0), (1, 4, 2, 0))
    mechanism = Channel.__new__(Channel)  # its means and its epsilon have no part in how it draws
    mechanism.__dict__.update(epsilon=Fraction(2), steps=steps, positions=(0, 1, 2, 3), unit=1, weights=weights)
    for index in range(steps + 1):
        assert right(enumerate_law, mechanism, index)


def test_every_path_under_an_offer_gives_the_table_of_that_offer(enumerate_law: Enumerate) -> None:
    mechanism = Offers((SmallLevel(Fraction(1), 2, 1), SmallLevel(Fraction(2), 2, 3)))
    for offer in (0, 1):
        outputs = [body for body in mechanism.outputs() if body[0] == offer]
        law, missing = enumerate_law(partial(mechanism.perturb, 1, offer=offer), TINY)
        assert follows(law, missing, lambda y: Fraction(mechanism.probability(y, 1)), outputs)


@pytest.mark.parametrize("index", [-1, 9])
def test_an_index_outside_the_domain_draws_nothing(index: int) -> None:
    made = shipped_at(Fraction(1))
    channel = Channel(Fraction(1), 8, made.positions, made.unit, made.weights)
    coin = make_task({"id": "t", "epsilon": "1", "domain": {"kind": "bit"}}).randomizer
    assert isinstance(coin, RandomizedResponse)
    several = (
        Multilevel(Fraction(1), 8, 2),
        channel,
        SubsetSelection(Fraction(1), 9, 2),
        Laplace(Fraction(1), 8),
        coin,
    )
    for mechanism in several:
        with pytest.raises(ValueError, match=r"outside|neither 0 nor 1"):
            mechanism.perturb(index, Untouched())
    for values in ((0, index), (index, 0), (0,), (0, 0, 0)):
        with pytest.raises(ValueError, match="not a vector"):
            Vector(Fraction(1), 8, 2, 1, 1).perturb(values, Untouched())


# ---- at the scale that is deployed


@pytest.mark.parametrize("epsilon", [Fraction(1), Fraction(2), Fraction(4)])
def test_reports_of_a_shipped_table_have_its_law(fits: Fits, seeded: Seeded, epsilon: Fraction) -> None:
    made = shipped_at(epsilon)
    mechanism, rng = Channel(epsilon, GRID_STEPS, made.positions, made.unit, made.weights), seeded(30)
    index = GRID_STEPS * 3 // 7
    counts = np.bincount([mechanism.perturb(index, rng)[0] for _ in range(60_000)], minlength=len(made.positions))
    law = np.array([float(mechanism.probability((y,), index)) for y in range(len(made.positions))])
    other = np.array([float(mechanism.probability((y,), index * 6 // 7)) for y in range(len(made.positions))])
    assert fits(*joined(counts, law))
    assert not fits(*joined(counts, other)), "a value elsewhere must be seen"


def joined(counts: NDArray[np.int64], law: NDArray[np.float64]) -> tuple[ArrayLike, ArrayLike]:
    """Cells that expect few reports, added to the one that expects most."""
    common = law * counts.sum() > 20
    cells = np.where(common, np.arange(len(law)), np.argmax(law))
    return np.bincount(cells, counts)[common], np.bincount(cells, law)[common]


def test_a_category_among_forty_is_named_as_often_as_its_table_says(fits: Fits, seeded: Seeded) -> None:
    mechanism, rng, n = SubsetSelection(Fraction(1), 40, 11), seeded(31), 20_000
    bodies = [mechanism.perturb(35, rng) for _ in range(n)]
    assert all(mechanism.admits(body) for body in bodies)
    q, p = map(float, mechanism.support)
    for category in (0, 31, 32, 34, 35, 36, 39):
        named = sum(body[category // 32] >> category % 32 & 1 for body in bodies)
        expected, wrong = (p, q) if category == 35 else (q, p)
        assert fits([named, n - named], [expected, 1 - expected])
        assert not fits([named, n - named], [wrong, 1 - wrong])


def test_a_vector_draws_its_coordinates_evenly_and_levels_by_their_values(fits: Fits, seeded: Seeded) -> None:
    mechanism, rng, n = Vector(Fraction(2), GRID_STEPS, 6, 1, 2), seeded(32), 30_000
    index = tuple(GRID_STEPS * c // 5 for c in range(6))
    counts = np.zeros((6, 3))
    for _ in range(n):
        counts[mechanism.perturb(index, rng)] += 1
    law = np.array([[float(mechanism.probability((c, z), index)) for z in range(3)] for c in range(6)])
    assert fits(counts.ravel(), law.ravel())
    assert not fits(counts.ravel(), law[::-1].ravel())


# ---- where the integers come from


@pytest.mark.parametrize("n", [1, 2, 3, 7, 255, 256, 257])
def test_the_system_gives_every_integer_below_n_equally_often(monkeypatch: pytest.MonkeyPatch, n: int) -> None:
    every = reversed(range(1 << 16))  # the refused ones first
    monkeypatch.setattr("hush_common.rng.token_bytes", lambda size: next(every).to_bytes(size, "big"))
    accepted = (1 << 16) // n * n
    counts = np.bincount([SystemRng().randbelow(n) for _ in range(accepted if n > 1 else 256)], minlength=n)
    assert set(counts.tolist()) == {counts[0]}, "each remainder of every draw that is not refused"


@pytest.mark.parametrize("n", [0, -1])
def test_there_is_no_integer_below_zero(n: int) -> None:
    with pytest.raises(ValueError, match="no integer"):
        SystemRng().randbelow(n)


def test_the_integers_of_the_system_are_spread_evenly(fits: Fits) -> None:
    counts = np.bincount([SystemRng().randbelow(6) for _ in range(60_000)], minlength=6)
    assert fits(counts, np.full(6, 1 / 6))
