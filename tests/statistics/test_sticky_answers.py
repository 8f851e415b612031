"""Sticky answers by enumeration: all value sequences, thresholds, memories and reports of small grids, in fractions."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product

import pytest

from hush_common.epsilon import WEIGHT_OF_TRUTH, certified_exp, log_ceiling, weight_of_lie
from hush_common.mechanisms import Multilevel, RandomizedResponse
from hush_common.mechanisms.mechanism import LevelMechanism
from hush_common.mechanisms.multilevel import best_sticky_levels
from hush_common.mechanisms.parameters import coin_loss_ratio
from hush_common.mechanisms.sticky import Memory

Values = tuple[int, ...]
Pattern = tuple[int, ...]
Law = dict[tuple[Pattern, Values], Fraction]
Answer = Callable[[LevelMechanism, Values], Iterator[tuple[Pattern, Values, Fraction]]]

E = Fraction(1, 2)
RATIO = Fraction(WEIGHT_OF_TRUTH, weight_of_lie(E))
"""What one slot can lose: the largest ratio of the mechanism at loss 1/2, as it is in integers."""

CASES = [(4, 1, 2), (4, 1, 4), (5, 2, 2), (3, 2, 4), (4, 3, 2)]
"""Steps, levels and rounds."""


def chance(mechanism: LevelMechanism, level: int, report: int) -> Fraction:
    """P(report | level), from the integer weights."""
    if isinstance(mechanism, RandomizedResponse):
        one = mechanism.probability_of_one[level]
        return one if report else 1 - one
    assert isinstance(mechanism, Multilevel)
    return Fraction(WEIGHT_OF_TRUTH if report == level else mechanism.lie, mechanism.total)


def memories(mechanism: LevelMechanism) -> Iterator[tuple[Memory, Fraction]]:
    """Every memory that a device can draw, with its probability."""
    steps, levels = (mechanism.steps, mechanism.levels) if isinstance(mechanism, Multilevel) else (1, 1)
    for reports in product(range(levels + 1), repeat=levels + 1):
        weight = Fraction(1, steps)
        for level, report in enumerate(reports):
            weight *= chance(mechanism, level, report)
        for threshold in range(steps):
            yield Memory(threshold, reports, 0), weight


def pattern_of(levels: Sequence[int]) -> Pattern:
    """Which rounds share a level: the round in which each level was met first."""
    return tuple(list(levels).index(level) for level in levels)


def remember(mechanism: LevelMechanism, values: Values) -> Iterator[tuple[Pattern, Values, Fraction]]:
    """What a device does, by its own code; a memory with a different report on each level shows the pattern."""
    levels = mechanism.levels if isinstance(mechanism, Multilevel) else 1
    for memory, weight in memories(mechanism):
        tell_tale = Memory(memory.threshold, tuple(range(levels + 1)), 0)
        pattern = pattern_of([tell_tale.body(mechanism, value)[0] for value in values])
        yield pattern, tuple(memory.body(mechanism, value)[0] for value in values), weight


def law_of(mechanism: LevelMechanism, values: Values, answer: Answer = remember) -> Law:
    law: Law = defaultdict(Fraction)
    for pattern, reports, weight in answer(mechanism, values):
        law[pattern, reports] += weight
    return law


def worst_ratio(laws: Sequence[Law]) -> Fraction | None:
    """Over all patterns and reports, and any two sequences that both can have the pattern: None is without bound."""
    worst = Fraction(1)
    shares: dict[Pattern, list[dict[Values, Fraction]]] = defaultdict(list)
    for law in laws:
        total: dict[Pattern, Fraction] = defaultdict(Fraction)
        for (pattern, _), weight in law.items():
            total[pattern] += weight
        for pattern, whole in total.items():
            shares[pattern].append({reports: w / whole for (p, reports), w in law.items() if p == pattern})
    for rows in shares.values():
        for reports in set().union(*rows):
            column = [row.get(reports, Fraction(0)) for row in rows]
            if min(column) == 0:
                return None
            worst = max(worst, max(column) / min(column))
    return worst


def blind(law: Law) -> Law:
    """The same law for whoever does not condition on the pattern."""
    merged: Law = defaultdict(Fraction)
    for (_, reports), weight in law.items():
        merged[(), reports] += weight
    return merged


def sequences(steps: int, rounds: int) -> list[Values]:
    return list(product(range(steps + 1), repeat=rounds))


def constants(steps: int, rounds: int) -> list[Values]:
    return [(value,) * rounds for value in range(steps + 1)]


@pytest.mark.medium
@pytest.mark.parametrize(("steps", "levels", "rounds"), CASES)
def test_all_rounds_lose_epsilon_given_the_pattern(steps: int, levels: int, rounds: int) -> None:
    mechanism = Multilevel(E, steps, levels)
    worst = worst_ratio([law_of(mechanism, values) for values in sequences(steps, rounds)])
    assert worst == RATIO ** min(rounds, levels + 1)
    assert worst <= certified_exp(E * (levels + 1))[0]


@pytest.mark.parametrize("rounds", [2, 3, 5])
def test_a_sticky_bit_loses_two_slots(rounds: int) -> None:
    mechanism = RandomizedResponse.from_epsilon(E)
    assert worst_ratio([law_of(mechanism, values) for values in sequences(1, rounds)]) == RATIO**2


@pytest.mark.parametrize(("steps", "levels", "rounds"), [*CASES, (4, 1, 9)])
def test_a_value_that_never_changes_loses_one_slot(steps: int, levels: int, rounds: int) -> None:
    mechanism = Multilevel(E, steps, levels)
    laws = [blind(law_of(mechanism, values)) for values in constants(steps, rounds)]
    assert worst_ratio(laws) == RATIO


@pytest.mark.medium
@pytest.mark.parametrize(("steps", "levels"), [(1, 1), (4, 1), (5, 2), (4, 3), (7, 3)])
def test_one_round_has_the_law_of_the_mechanism(steps: int, levels: int) -> None:
    mechanism = Multilevel(E, steps, levels)
    for value in range(steps + 1):
        law = blind(law_of(mechanism, (value,)))
        level, rest = divmod(value * levels, steps)
        for report in range(levels + 1):
            rounded = chance(mechanism, level, report) * (steps - rest)
            rounded += chance(mechanism, level + 1, report) * rest if rest else 0
            assert law[(), (report,)] == rounded / steps


@pytest.mark.medium
def test_a_change_shows_no_more_often_than_its_size_says() -> None:
    mechanism, steps, levels = Multilevel(E, 8, 2), 8, 2
    for low, high in product(range(steps + 1), repeat=2):
        law = law_of(mechanism, (low, high))
        changed = sum((weight for (pattern, _), weight in law.items() if pattern == (0, 1)), Fraction(0))
        assert changed <= Fraction(levels * abs(high - low), steps)
        if abs(high - low) * levels <= steps:
            assert changed == Fraction(levels * abs(high - low), steps)


def test_that_a_value_changed_is_not_hidden() -> None:
    mechanism = Multilevel(E, 4, 1)
    assert worst_ratio([blind(law_of(mechanism, values)) for values in ((0, 0), (0, 4))]) is None


# ---- planted errors


def redraw_the_threshold(mechanism: LevelMechanism, values: Values) -> Iterator[tuple[Pattern, Values, Fraction]]:
    """Wrong on purpose: a new alpha each round walks over the levels around a value that never changes."""
    assert isinstance(mechanism, Multilevel)
    for memory, weight in memories(mechanism):
        if memory.threshold:
            continue  # each memory once: its threshold is not used
        for thresholds in product(range(mechanism.steps), repeat=len(values)):
            each = [Memory(threshold, memory.reports, 0) for threshold in thresholds]
            reports = tuple(one.body(mechanism, value)[0] for one, value in zip(each, values, strict=True))
            yield (0,) * len(values), reports, weight / mechanism.steps ** (len(values) - 1)


def redraw_the_reports(mechanism: LevelMechanism, values: Values) -> Iterator[tuple[Pattern, Values, Fraction]]:
    """Wrong on purpose: remembers the level and adds noise anew, so that every round costs one slot."""
    for rounds in product(memories(mechanism), repeat=len(values)):
        if len({memory.threshold for memory, _ in rounds}) == 1:
            reports = tuple(memory.body(mechanism, value)[0] for (memory, _), value in zip(rounds, values, strict=True))
            weight = Fraction(1)
            for _, one in rounds:
                weight *= one
            steps = mechanism.steps if isinstance(mechanism, Multilevel) else 1
            yield (0,) * len(values), reports, weight * steps ** (len(values) - 1)


def test_a_threshold_drawn_anew_each_round_is_found() -> None:
    mechanism = Multilevel(E, 4, 1)
    laws = [law_of(mechanism, values, redraw_the_threshold) for values in constants(4, 2)]
    assert all(sum(law.values()) == 1 for law in laws)
    assert worst_ratio(laws) is None


def test_noise_drawn_anew_each_round_is_found() -> None:
    mechanism = Multilevel(E, 2, 1)
    laws = [law_of(mechanism, values, redraw_the_reports) for values in constants(2, 3)]
    assert all(sum(law.values()) == 1 for law in laws)
    assert worst_ratio(laws) == RATIO**3


def test_a_threshold_that_all_devices_share_is_biased() -> None:
    mechanism = Multilevel(E, 4, 1)
    for value in (1, 2, 3):
        shared = [
            sum(
                memory.body(mechanism, value)[0] * weight
                for memory, weight in memories(mechanism)
                if memory.threshold == t
            )
            * mechanism.steps
            for t in range(mechanism.steps)
        ]
        right = Fraction(sum(shared)) / mechanism.steps
        assert mechanism.unit_value(right) == Fraction(value, 4)
        assert right not in shared


# ---- how a memory is drawn


class Script:
    """Gives what it is told, and keeps what it was asked."""

    def __init__(self, *answers: int) -> None:
        self.answers, self.asked = list(answers), list[int]()

    def randbelow(self, n: int, /) -> int:
        self.asked.append(n)
        return self.answers.pop(0)

    def token_bytes(self, count: int, /) -> bytes:
        raise NotImplementedError


def test_a_memory_is_drawn_level_by_level_and_its_threshold_uniformly() -> None:
    mechanism = Multilevel(E, 1000, 2)
    lie, truth = mechanism.lie, WEIGHT_OF_TRUTH
    for draws, reports in [
        ((0, 0, 0), (0, 1, 2)),
        ((truth - 1, truth, truth + lie - 1), (0, 0, 0)),
        ((truth, truth + lie, truth + lie), (1, 2, 1)),
        ((truth + 2 * lie - 1, truth - 1, truth - 1), (2, 1, 2)),
    ]:
        script = Script(*draws, 617, 1000)
        assert Memory.draw(mechanism, script) == Memory(617, reports, 1000)
        assert script.asked == [2 * mechanism.total] * 3 + [1000, 1001]


def test_a_memory_of_a_bit_is_two_lies_or_truths() -> None:
    mechanism = RandomizedResponse.from_epsilon(E)
    script = Script(mechanism.ones[0], mechanism.ones[1], 0, 1)
    assert Memory.draw(mechanism, script) == Memory(0, (0, 0), 1)
    assert script.asked == [mechanism.total, mechanism.total, 1, 2]


def test_a_missing_value_is_answered_as_the_substitute_is_in_every_round() -> None:
    mechanism, memory = Multilevel(E, 4, 2), Memory(0, (2, 0, 1), 0)
    for substitute in range(5):
        completed = replace(memory, substitute=substitute)
        assert completed.body(mechanism, None) == memory.body(mechanism, substitute)
    with pytest.raises(ValueError, match="outside"):
        replace(memory, substitute=5).body(mechanism, None)


@pytest.mark.parametrize("index", [-1, 5])
def test_an_index_outside_the_grid_has_no_report(index: int) -> None:
    with pytest.raises(ValueError, match="outside"):
        Memory(0, (0, 1), 0).body(Multilevel(E, 4, 1), index)


@pytest.mark.parametrize(
    "memory",
    [Memory(-1, (0, 1), 0), Memory(4, (0, 1), 0), Memory(0, (0,), 0), Memory(0, (0, 2), 0), Memory(0, (0, 1), 5)],
)
def test_a_memory_of_another_mechanism_is_told(memory: Memory) -> None:
    assert Memory(3, (0, 1), 0).fits(Multilevel(E, 4, 1))
    assert not memory.fits(Multilevel(E, 4, 1))


def test_the_levels_of_a_sticky_task_are_those_of_least_variance() -> None:
    def worst(epsilon: Fraction, levels: int) -> float:
        return Multilevel(epsilon / (levels + 1), levels, levels).worst_variance

    for epsilon, rounds in product(map(Fraction, ("0.1", "2", "5.28", "5.29", "15", "50")), (3, 4, 12, 365)):
        best = best_sticky_levels(epsilon, rounds)
        assert best <= rounds - 2
        least = min(worst(epsilon, levels) for levels in range(1, min(rounds - 1, 60)))
        assert worst(epsilon, best) <= least * (1 + 1e-12)
        assert (best == 1) == (rounds == 3 or epsilon < Fraction("5.285"))


@pytest.mark.parametrize("level", [0, 1])
def test_two_coins_are_remembered_with_the_law_of_the_coins(level: int) -> None:
    ratio = coin_loss_ratio(Fraction(1, 2), Fraction(9, 10))
    assert ratio is not None
    mechanism = RandomizedResponse.from_coins(log_ceiling(ratio), Fraction(1, 2), Fraction(9, 10))
    chance_of_one = mechanism.probability_of_one[level]
    assert chance_of_one in (Fraction(9, 20), Fraction(19, 20))

    class At:
        """An rng whose draws lie at one place of their range."""

        def __init__(self, place: Fraction) -> None:
            self.place = place

        def randbelow(self, n: int, /) -> int:
            return int(self.place * n)

        def token_bytes(self, count: int, /) -> bytes:
            raise NotImplementedError

    steps = 2000
    ones = sum(Memory.draw(mechanism, At(Fraction(k, steps))).reports[level] for k in range(steps))
    assert Fraction(ones, steps) == pytest.approx(float(chance_of_one), abs=1 / steps)
