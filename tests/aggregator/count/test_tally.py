"""Tallies and moments: exact, in any order, for every mechanism."""

import json
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hush import Task
from hush_aggregator.estimate import estimate
from hush_aggregator.estimate.mechanisms import check, columns, fold, parts_of
from hush_aggregator.estimate.mechanisms.laplace import LADDER, rung, threshold
from hush_aggregator.estimate.tally import Tally
from hush_common.mechanisms import Laplace, Offers, SubsetSelection
from hush_common.rng import SystemRng
from hush_common.task import make_task

INT64 = st.integers(-(2**62), 2**62) | st.sampled_from([-(2**63), 2**63 - 1, -(2**31), 2**31, 0, -1])
REPORTED = st.lists(INT64, max_size=30)

NUMBER = {"kind": "number", "lower": 0.0, "upper": 1.0}
LABELS = {"kind": "category", "labels": [f"label {k}" for k in range(40)]}
POINT = {"kind": "vector", "coordinates": [{"name": name, "lower": 0.0, "upper": 1.0} for name in "xyz"]}
TABLE = {"positions": [-1, 2], "unit": 1, "weights": [[2, 1], [1, 2]]}


def task(**fields: object) -> Task:
    return make_task({"id": "t", "epsilon": "1", **fields})


TASKS: dict[str, tuple[Task, Any]] = {
    "laplace": (task(domain=NUMBER), 0.3),
    "bit": (task(domain={"kind": "bit"}), True),
    "multilevel": (task(domain=NUMBER, mechanism="multilevel", epsilon="4"), 0.3),
    "table": (task(domain=NUMBER, mechanism="table", table=TABLE), 0.3),
    "category": (task(domain=LABELS), "label 33"),
    "vector": (task(domain=POINT, sampled=2), [0.1, 0.5, 0.9]),
    "laplace, two epsilons": (task(domain=NUMBER, offers=["0.5", "1"]), 0.3),
    "bit, two epsilons": (task(domain={"kind": "bit"}, offers=["0.5", "1"]), True),
    "multilevel, two epsilons": (task(domain=NUMBER, mechanism="multilevel", offers=["0.5", "1"]), 0.3),
    "category, two epsilons": (task(domain=LABELS, offers=["0.5", "1"]), "label 33"),
    "vector, two epsilons": (task(domain=POINT, offers=["0.5", "1"]), [0.1, 0.5, 0.9]),
}


def reports(asked: Task, value: object, count: int) -> NDArray[np.int64]:
    index, rng = asked.domain.index(value), SystemRng()
    offers = len(asked.offers) or 1
    bodies = [asked.perturb(index, rng, k % offers) for k in range(count)]
    return np.array(bodies, dtype=np.int64)


LAPLACE = TASKS["laplace"][0].randomizer


def tally_of(reported: list[int]) -> Tally:
    return fold(LAPLACE, np.array(reported, dtype=np.int64).reshape(-1, 1))


@pytest.mark.medium
@given(REPORTED)
def test_sums_are_exact_at_the_ends_of_64_bits(reported: list[int]) -> None:
    assert isinstance(LAPLACE, Laplace)
    expected = [sum(reported), sum(k * k for k in reported)]
    for step in LADDER:
        reach = threshold(LAPLACE, step)
        moved = [min(max(k, -reach), LAPLACE.steps + reach) for k in reported]
        expected += [sum(moved), sum(a != b for a, b in zip(moved, reported, strict=True))]
    assert tally_of(reported) == (Tally(len(reported), tuple(expected)) if reported else Tally())


@pytest.mark.medium
@given(st.lists(REPORTED, min_size=3, max_size=3))
def test_three_shards_in_every_order_merge_to_the_same_tally(shards: list[list[int]]) -> None:
    together = tally_of([k for shard in shards for k in shard])
    for first, second, third in permutations(map(tally_of, shards)):
        assert first.merge(second).merge(third) == first.merge(second.merge(third)) == together


@pytest.mark.parametrize("name", TASKS)
def test_three_shards_of_any_mechanism_give_one_tally_and_one_estimate(name: str) -> None:
    asked, value = TASKS[name]
    bodies = reports(asked, value, 60)
    shards = [fold(asked.randomizer, part) for part in (bodies[:7], bodies[7:40], bodies[40:])]
    together = fold(asked.randomizer, bodies)
    assert len(together.moments) == columns(asked.randomizer)
    check(asked.randomizer, [together])
    expected = estimate(asked, together, 0.9)
    for first, second, third in permutations(shards):
        merged = Tally().merge(first).merge(second).merge(third)
        assert merged == Tally(merged.n, tuple(json.loads(json.dumps(merged.moments)))) == together
        assert estimate(asked, merged, 0.9) == expected


def test_counts_are_those_of_a_plain_loop() -> None:
    asked, value = TASKS["category"]
    assert isinstance(asked.randomizer, SubsetSelection)
    bodies = reports(asked, value, 50)
    named = [0] * 40
    for body in bodies.tolist():
        for c in range(40):
            named[c] += body[c // 32] >> c % 32 & 1
    assert fold(asked.randomizer, bodies).moments == tuple(named)
    asked, value = TASKS["vector"]
    bodies = reports(asked, value, 50)
    cells = {(c, z): 0 for c in range(3) for z in range(2)}
    for a, x, b, y in bodies.tolist():
        cells[a, x] += 1
        cells[b, y] += 1
    assert fold(asked.randomizer, bodies).moments == tuple(cells.values())


def test_each_offer_has_its_own_tally() -> None:
    asked, value = TASKS["multilevel, two epsilons"]
    assert isinstance(asked.randomizer, Offers)
    bodies = reports(asked, value, 21)
    parts = [part for _, part in parts_of(asked.randomizer, fold(asked.randomizer, bodies))]
    assert [part.n for part in parts] == [11, 10]
    for offer, (part, mechanism) in enumerate(zip(parts, asked.randomizer.parts, strict=True)):
        assert part == fold(mechanism, bodies[bodies[:, 0] == offer, 1:])
    assert [part for _, part in parts_of(asked.randomizer, Tally())] == [Tally(), Tally()]


def test_an_empty_tally_is_neutral_and_one_of_another_task_is_refused() -> None:
    assert Tally().merge(Tally(3, (4, 5))) == Tally(3, (4, 5)).merge(Tally()) == Tally(3, (4, 5))
    with pytest.raises(ValueError, match="different tasks"):
        Tally(1, (1,)).merge(Tally(1, (1, 0)))


@pytest.mark.parametrize("name", TASKS)
def test_no_other_tally_is_estimated(name: str) -> None:
    asked, value = TASKS[name]
    right = fold(asked.randomizer, reports(asked, value, 5))
    for wrong in (
        Tally(5, right.moments[:-1]),
        Tally(5, (*right.moments, 0)),
        Tally(5),
        Tally(5, (-1,) * len(right.moments)),
    ):
        if wrong.moments and len(wrong.moments) == len(right.moments) and name == "laplace":
            wrong = Tally(5, (9, 1, *right.moments[2:]))  # noqa: PLW2901 - negative sums are possible here
        with pytest.raises(ValueError, match="tally"):
            estimate(asked, wrong, 0.95)


def test_the_rung_is_the_smallest_that_is_not_below_the_logarithm() -> None:
    assert [rung(n) for n in (1, 2, 3, 100, 1000, 10**6, 10**12)] == [1, 1, 2, 5, 7, 14, 24]
