"""All rounds together: the intervals cover what they are about, by exact sums; those of merged rounds would not."""

from collections.abc import Callable, Mapping
from functools import cache
from math import sqrt

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from hush import Task
from hush_aggregator import Estimate
from hush_aggregator.estimate import POPULATION, REPORTERS, estimate
from hush_aggregator.estimate.mechanisms import fold
from hush_aggregator.estimate.pooled_rounds import METHOD, combine
from hush_aggregator.estimate.tally import Tally
from hush_common.mechanisms import Laplace, RandomizedResponse
from hush_common.task import make_task

ROUNDS = 3
TIMES = {"rounds": ROUNDS, "round_every": "1d", "opens": "2026-01-01T00:00:00Z"}
CONFIDENCE = 0.95
SHARES = (0.0, 0.02, 0.1, 0.3, 0.5, 0.9)

Array = NDArray[np.float64]
Ends = Mapping[str, tuple[float, float]]
Maker = Callable[[Task, list[Tally]], Ends]


def bits(epsilon: str) -> Task:
    return make_task({"id": "b", "epsilon": epsilon, "domain": {"kind": "bit"}, **TIMES})


def together(task: Task, tallies: list[Tally]) -> Ends:
    made = combine(task, tallies, CONFIDENCE)
    assert made is not None
    return made.intervals


def as_if_each_report_were_a_person(task: Task, tallies: list[Tally]) -> Ends:
    """What is wrong: N reports for the N people that they are not."""
    merged = tallies[0]
    for tally in tallies[1:]:
        merged = merged.merge(tally)
    return estimate(task, merged, CONFIDENCE).intervals


def split(ones: int, n: int, rounds: int) -> list[Tally]:
    """Tallies of some rounds with so many ones among n reports; which round has which does not matter."""
    found = []
    for left in range(rounds, 0, -1):
        size = n // left
        some = min(ones, size)
        found.append(Tally(size, (some,)))
        n, ones = n - size, ones - some
    return found


@cache
def intervals(make: Maker, epsilon: str, n: int, rounds: int) -> list[Ends]:
    task = bits(epsilon)
    return [make(task, split(ones, n, rounds)) for ones in range(n + 1)]


def coverage(make: Maker, epsilon: str, groups: Mapping[int, int], share: float, target: str) -> float:
    """Exact, over a population of which a share says yes; `groups`: how many people answer in so many rounds."""
    randomizer = bits(epsilon).randomizer
    assert isinstance(randomizer, RandomizedResponse)
    yes, no = (float(randomizer.probability((1,), value)) for value in (1, 0))
    n = sum(rounds * people for rounds, people in groups.items())
    found = intervals(make, epsilon, n, max(groups))
    held = 0.0
    for weights, ones, size in drawn(groups, share):
        if weights < 1e-12:
            continue
        reported = np.convolve(
            stats.binom.pmf(np.arange(ones + 1), ones, yes),
            stats.binom.pmf(np.arange(size - ones + 1), size - ones, no),
        )
        truth = share if target == POPULATION else ones / size
        held += weights * sum(
            chance for chance, ends in zip(reported, found, strict=True) if ends[target][0] <= truth <= ends[target][1]
        )
    return held


def drawn(groups: Mapping[int, int], share: float) -> list[tuple[float, int, int]]:
    """Probabilities of how many of all reports are of people who say yes."""
    size = sum(rounds * people for rounds, people in groups.items())
    law = {0: 1.0}
    for rounds, people in groups.items():
        more: dict[int, float] = {}
        for so_far, chance in law.items():
            for some, weight in enumerate(stats.binom.pmf(np.arange(people + 1), people, share)):
                place = so_far + rounds * some
                more[place] = more.get(place, 0.0) + chance * float(weight)
        law = more
    return [(chance, ones, size) for ones, chance in law.items()]


@pytest.mark.medium
@pytest.mark.parametrize(("epsilon", "groups"), [("1", {2: 30}), ("12", {2: 15, 1: 30}), ("24", {6: 12})])
def test_both_intervals_of_all_rounds_cover(epsilon: str, groups: dict[int, int]) -> None:
    for share in SHARES:
        for target in (REPORTERS, POPULATION):
            assert coverage(together, epsilon, groups, share, target) >= CONFIDENCE - 1e-3, (share, target)


@pytest.mark.medium
def test_reports_that_are_taken_for_people_are_found() -> None:
    wrong = coverage(as_if_each_report_were_a_person, "12", {2: 30}, 0.3, POPULATION)
    assert wrong < 0.88
    assert coverage(as_if_each_report_were_a_person, "24", {6: 12}, 0.3, POPULATION) < 0.7
    assert coverage(as_if_each_report_were_a_person, "12", {2: 30}, 0.3, REPORTERS) >= CONFIDENCE - 1e-3


NUMBER = make_task(
    {
        "id": "n",
        "epsilon": "6",
        "mechanism": "laplace",
        "domain": {"kind": "number", "lower": -10, "upper": 30},
        **TIMES,
    }
)


def noisy(source: np.random.Generator, values: Array) -> NDArray[np.int64]:
    """Reports of numbers on the grid, of the law of the mechanism, by two geometric variables."""
    mechanism = NUMBER.randomizer
    assert isinstance(mechanism, Laplace)
    success = -np.expm1(-float(mechanism.epsilon) / mechanism.steps)
    noise = source.geometric(success, len(values)) - source.geometric(success, len(values))
    return (np.rint(values * mechanism.steps).astype(np.int64) + noise)[:, None]


def test_more_rounds_shorten_the_reporters_interval_alone() -> None:
    source = np.random.default_rng(2)
    values = (source.random(400) < 0.5).astype(float)
    made = []
    for rounds in (2, 30):
        tallies = [fold(NUMBER.randomizer, noisy(source, values)) for _ in range(rounds)]
        found = combine(NUMBER, tallies, CONFIDENCE)
        assert found is not None
        made.append(found)
    widths = [{name: high - low for name, (low, high) in one.intervals.items()} for one in made]
    assert widths[1][REPORTERS] < widths[0][REPORTERS] / 3
    assert widths[1][POPULATION] > 40 * 2 * 1.96 * sqrt(0.25 / 400)  # that of people whose values are known
    assert widths[1][POPULATION] < 40 * 2 * 2 * 1.96 * sqrt(0.25 / 400)
    assert made[1].methods[POPULATION] == METHOD


@pytest.mark.parametrize(
    "domain",
    [
        {"kind": "category", "labels": ["a", "b", "c"]},
        {"kind": "vector", "coordinates": [{"name": name, "lower": 0, "upper": 4} for name in "xyz"]},
    ],
)
def test_each_category_and_coordinate_has_both_intervals(domain: dict[str, object]) -> None:
    task = make_task({"id": "p", "epsilon": "6", "domain": domain, **TIMES})
    outputs = np.array([body for body, _ in zip(task.randomizer.outputs(), range(200), strict=False)], dtype=np.int64)
    tallies = [fold(task.randomizer, outputs) for _ in range(ROUNDS)]
    made = combine(task, tallies, CONFIDENCE)
    assert made is not None
    parts = made.parts
    assert len(parts) == 3
    for part in parts:
        (low, high), (lower, upper) = part.intervals[REPORTERS], part.intervals[POPULATION]
        assert lower <= low < high <= upper
        assert upper - lower > high - low
        assert part.stderr.keys() == {REPORTERS}


def test_nothing_is_made_of_one_round_or_of_answers_that_repeat() -> None:
    tally = Tally(10, (4,))
    assert combine(bits("1"), [tally, Tally()], CONFIDENCE) is None
    assert isinstance(combine(bits("1"), [tally, tally], CONFIDENCE), Estimate)
    document = {"id": "s", "epsilon": "2", "repeat": "sticky", "domain": {"kind": "bit"}, **TIMES}
    assert combine(make_task(document), [tally, tally], CONFIDENCE) is None
