"""Questions answered together get what each would get alone, and one that fails takes no other with it."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from single_intervals import chernoffs

from hush_aggregator.estimate.bounded_mean import Batch
from hush_aggregator.estimate.finite_channel import FiniteChannel, finite
from hush_aggregator.estimate.intervals.betting import betting_limits, noise_limits
from hush_aggregator.estimate.intervals.chernoff import bands, chernoff_rates
from hush_aggregator.estimate.numerics.quantiles import clopper_pearson_shares, student_quantiles
from hush_common.task import make_task

NUMBER = {"kind": "number", "lower": 0.0, "upper": 1.0}
CONFIDENCES = (0.5, 0.95, 0.999)


def channel(epsilon: str, mechanism: str) -> FiniteChannel:
    made: Any = make_task({"id": "t", "epsilon": epsilon, "domain": NUMBER, "mechanism": mechanism}).randomizer
    return finite(made)


LEVELS, TABLE = channel("4", "multilevel"), channel("3", "auto")
SKEWED = FiniteChannel(
    LEVELS.positions, LEVELS.rows[:1] + LEVELS.rows[2:]
)  # two nodes are left out: not its own mirror image
SIZES = (((LEVELS, 7),), ((TABLE, 900),), ((LEVELS, 40), (TABLE, 3)), ((SKEWED, 25),))


def reports(sizes: tuple[tuple[FiniteChannel, int], ...]) -> tuple[tuple[FiniteChannel, tuple[int, ...]], ...]:
    rng = np.random.default_rng(3)
    return tuple(
        (of, tuple(rng.multinomial(n, np.full(len(of.positions), 1 / len(of.positions))).tolist())) for of, n in sizes
    )


def test_many_questions_are_answered_as_each_alone() -> None:
    wide = list(product(SIZES, CONFIDENCES))
    seen = [(reports(sizes), confidence) for sizes, confidence in wide]
    assert np.array(betting_limits(seen)) == pytest.approx(
        np.array([betting_limits([one])[0] for one in seen]), abs=1e-10
    )
    noise = [(*one, rates) for one, rates in zip(seen, chernoff_rates(wide), strict=True)]
    assert np.array(noise_limits(noise)) == pytest.approx(
        np.array([noise_limits([one])[0] for one in noise]), abs=1e-10
    )
    assert chernoffs(wide) == [pytest.approx(chernoffs([one])[0], rel=1e-12) for one in wide]
    watched = [(*one, sampling) for one in wide for sampling in (False, True)]
    assert bands(watched) == [pytest.approx(bands([one])[0], rel=1e-9) for one in watched]
    counts = [(n, k, one) for n, k in ((1, 0), (9, 9), (100, 31), (10**6, 5)) for one in CONFIDENCES]
    assert clopper_pearson_shares(counts) == [
        pytest.approx(clopper_pearson_shares([one])[0], rel=1e-10) for one in counts
    ]
    freedoms = list(product((1, 2, 30, 10**6), (0.1, *CONFIDENCES)))
    assert student_quantiles(freedoms) == [pytest.approx(student_quantiles([one])[0], rel=1e-10) for one in freedoms]


@pytest.mark.parametrize("sizes", SIZES)
def test_chernoffs_bound_is_nearly_the_least_of_all_rates(sizes: tuple[tuple[FiniteChannel, int], ...]) -> None:
    n = sum(size for _, size in sizes)
    for confidence in (*CONFIDENCES, 1 - 1e-9):
        needed = np.log(2 / (1 - confidence)) / n
        rates = np.sqrt(2 * needed * n / sum(size * of.variances[1] for of, size in sizes)) * np.geomspace(
            0.1, 10, 1000
        )
        exponents = [sum(size / n * of.noise_exponent(sign * rates) for of, size in sizes) for sign in (1, -1)]
        least = [float(np.min((needed + exponent) / rates)) for exponent in exponents]
        for found, best in zip(chernoffs([(sizes, confidence)])[0], least, strict=True):
            assert best * (1 - 1e-4) <= found <= best * 1.01


def test_only_a_channel_that_is_its_own_mirror_image_is_symmetric() -> None:
    assert LEVELS.symmetric
    assert TABLE.symmetric
    assert not SKEWED.symmetric
    assert FiniteChannel(LEVELS.positions, LEVELS.rows).symmetric


def test_the_first_answer_brings_those_of_all_that_were_asked() -> None:
    calls: list[Sequence[int]] = []

    def doubled(asked: Sequence[int]) -> list[int]:
        calls.append(asked)
        return [2 * one for one in asked]

    batch = Batch(doubled)
    first, second, again = batch.ask(1), batch.ask(2), batch.ask(1)
    assert (first(), second(), again()) == (2, 4, 2)
    assert calls == [[1, 2]]


def test_a_question_that_fails_takes_no_other_with_it() -> None:
    batch: Batch[int, int] = Batch(lambda asked: [1 // one for one in asked])
    bad, good, better = batch.ask(0), batch.ask(1), batch.ask(-1)
    with pytest.raises(ZeroDivisionError):
        bad()
    assert (good(), better()) == (1, -1)
    with pytest.raises(ZeroDivisionError):
        bad()
