"""The statistics of `hush conform`: right laws pass, wrong ones are found. Fixed seeds; a false alarm of 1e-9 each."""

import random
from fractions import Fraction

import pytest

from hush_common.domain import BitDomain, NumberDomain
from hush_common.mechanisms import Laplace, Mechanism, RandomizedResponse
from hush_conform.law import Body, Comparison, compare, differ, views
from hush_simulations.engines.experiment import SeededRng

pytestmark = pytest.mark.medium

HEIGHTS = NumberDomain(120.0, 220.0)
MIDDLE = HEIGHTS.steps // 2


def drawn(part: Mechanism, index: int, count: int, seed: int) -> list[Body]:
    rng = SeededRng(seed)
    return [part.perturb(index, rng) for _ in range(count)]


def laplace(epsilon: str) -> Laplace:

    return Laplace(Fraction(epsilon), HEIGHTS.steps)


def compared(sample: list[Body], index: int = MIDDLE) -> Comparison:
    """A sample with the law of `laplace` at epsilon 1."""
    right = laplace("1")
    return compare(sample, drawn(right, index, 20_000, 2), drawn(right, index, 4_000, 3), views(right, HEIGHTS))


@pytest.mark.parametrize("count", [10, 200, 2000])
def test_the_right_law_passes_at_every_size(count: int) -> None:
    assert compared(drawn(laplace("1"), MIDDLE, count, 1)).deviation == ""


@pytest.mark.parametrize(
    ("wrong", "count"),
    [
        ("scale", 3000),  # noise of 0.7 times the scale
        ("mirrored", 300),  # of the other bound
        ("one sign", 100),
        ("no noise", 60),
        ("even", 100),  # the lowest bit is always 0
        ("rounded", 300),  # to 16 places
    ],
)
def test_a_wrong_law_is_found(wrong: str, count: int) -> None:
    index = 0 if wrong == "mirrored" else MIDDLE
    right = drawn(laplace("1"), index, count, 1)
    samples: dict[str, list[Body]] = {
        "scale": drawn(laplace("1.43"), MIDDLE, count, 1),
        "mirrored": drawn(laplace("1"), HEIGHTS.steps, count, 1),
        "one sign": [(MIDDLE + abs(one - MIDDLE),) for (one,) in right],
        "no noise": [(MIDDLE,)] * count,
        "even": [(one & ~1,) for (one,) in right],
        "rounded": [(one >> 16 << 16,) for (one,) in right],
    }
    assert compared(samples[wrong], index).deviation


def test_a_bit_that_lies_too_seldom_is_found() -> None:

    right, wrong = (RandomizedResponse.from_epsilon(Fraction(epsilon)) for epsilon in (1, 3))
    about = drawn(right, 1, 20_000, 2), drawn(right, 1, 4_000, 3), views(right, BitDomain())
    assert compare(drawn(right, 1, 400, 1), *about).deviation == ""
    assert compare(drawn(wrong, 1, 400, 1), *about).deviation != ""


def test_what_would_be_found_shrinks_with_the_root_of_the_reports() -> None:
    few, many = (compared(drawn(laplace("1"), MIDDLE, count, 1)).visible for count in (200, 3200))
    assert few / many == pytest.approx(4, rel=0.01)
    assert 0.2 < few < 0.3


def test_times_that_depend_on_the_kind_are_found_and_others_are_not() -> None:
    source = random.Random(7)  # noqa: S311 - a repeatable sample
    first, second = ([source.gauss(0.1, 0.02) for _ in range(32)] for _ in range(2))
    assert differ(first, second, comparisons=3) is None
    late = [one + 0.1 for one in second]
    found = differ(first, late, comparisons=3)
    assert found is not None
    assert (found[1] > 0.9, found[2] < 0.1) == (True, True)
