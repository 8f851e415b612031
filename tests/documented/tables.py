# ruff: noqa: E501, RUF001 - sentences of the document
"""Section 5: the shipped tables and the mechanism that `auto` takes."""

import json
from collections.abc import Iterator
from fractions import Fraction
from math import ceil, exp, log
from unittest.mock import patch

from documented.figures import computed, given, on_section
from scipy import stats
from tools import table_program
from tools.table_program import OPTIMA

from hush_aggregator.estimate.finite_channel import finite
from hush_common.domain import GRID_STEPS, NumberDomain
from hush_common.mechanisms import Channel, Multilevel
from hush_common.mechanisms.multilevel import best_levels
from hush_common.mechanisms.parameters import grid, shipped_at
from hush_common.mechanisms.registry import choose

NUMBER = NumberDomain(0.0, 1.0)
SHOWN = ("0.34", "0.5", "0.7", "1", "2", "3", "4", "4.2", "5", "6", "7", "8")


def optima() -> dict[Fraction, float]:
    found: dict[str, float] = json.loads(OPTIMA.read_text(encoding="utf-8"))
    return {Fraction(epsilon): variance for epsilon, variance in found.items()}


def channel(epsilon: Fraction) -> Channel:
    made = shipped_at(epsilon)
    return Channel(epsilon, GRID_STEPS, made.positions, made.unit, made.weights)


def by_levels(epsilon: Fraction) -> float:
    return float(Multilevel(epsilon, GRID_STEPS, best_levels(epsilon)).exact_worst_variance)


def by_auto(epsilon: Fraction) -> float:
    _, table = choose(NUMBER, [epsilon])
    return by_levels(epsilon) if table is None else float(channel(epsilon).exact_worst_variance)


@on_section("5")
def choice() -> Iterator[str]:
    least = optima()
    shown = [Fraction(epsilon) for epsilon in SHOWN]
    yield (
        f"| ε | {' | '.join(given(e) for e in SHOWN)} | |{'---|' * (len(SHOWN) + 1)} "
        f"| optimum, values in [−1, 1] | {' | '.join(computed(4 * least[e], '.4g') for e in shown)} | "
        f"| `auto`, times the optimum | {' | '.join(computed(by_auto(e) / least[e], '.3f') for e in shown)} | "
        f"| `multilevel` | {' | '.join(computed(by_levels(e) / least[e], '.3f') for e in shown)} |"
    )
    furthest = max(by_auto(e) / variance for e, variance in least.items()) - 1
    below = sum(e + Fraction(1, 10_000) in grid() for e in least)
    yield (
        f"and the distance from the optimum at {computed(len(least))} ε, {computed(below)} of them just below a grid point "
        f"(the largest is {computed(100 * furthest, '.2f')} %)."
    )
    first, last = computed(float(min(grid())), "g"), computed(float(max(grid())), "g")
    yield f"From ε = {first} to {last} the {computed(len(grid()))} grid points lie so close that max V is never more than {computed(ceil(100 * furthest))} % above"
    yield f"below {first} one bit is as near. Above {last} it is the least that hush offers: the last table to ε = {computed(ends(), '.2f')}, then `multilevel`."


def ends() -> float:
    """Where `multilevel` overtakes the last table."""
    low, high = Fraction(8), Fraction(10)
    while high - low > Fraction(1, 1000):
        middle = Fraction(round(5000 * (low + high)), 10_000)
        low, high = (middle, high) if choose(NUMBER, [middle])[1] is not None else (low, middle)
    return float(low)


def fewer(epsilon: Fraction) -> bool:
    """Whether one bit varies less than the table, of values that vary as much as they can."""
    return ((exp(epsilon) + 1) / (exp(epsilon) - 1)) ** 2 / 4 < finite(channel(epsilon)).second_moment


@on_section("5")
def people() -> Iterator[str]:
    epsilon, error = 1, 0.05
    z = float(stats.norm.isf(0.025))
    one_bit = ((exp(epsilon) + 1) / (exp(epsilon) - 1)) ** 2 / 4
    table = finite(channel(Fraction(epsilon))).second_moment
    needed = [f"{computed(f'{ceil((z / error) ** 2 * v):,}'.replace(',', ' '))}" for v in (one_bit, table)]
    crossing = log(3)
    for by, levels in ((-10, 1), (10, 2)):
        near = Fraction(round(1000 * crossing) + by, 1000)
        assert (fewer(near), best_levels(near)) == (True, levels)
    yield f"one bit needs fewer people up to ε = ln {computed(exp(crossing), '.0f')} (at ε = {given(epsilon)} and an error of {given(100 * error, '.0f')} %, {needed[0]} instead of {needed[1]}; `hush plan` has both columns)"


def program(epsilon: Fraction) -> tuple[int, int]:
    """Inputs and outputs of the linear program that is solved for the optimum."""
    with patch.object(table_program, "Program") as made:
        table_program.optimum.__wrapped__(epsilon)
    _, levels, outputs, _ = made.call_args.args
    return levels + 1, len(outputs)


@on_section("5")
def programs() -> Iterator[str]:
    sizes = {e: program(Fraction(e)) for e in ("0.34", "4", "8")}
    yield (
        f"{computed(sizes['0.34'][0])} inputs and {computed(sizes['0.34'][1])} outputs at ε = {given('0.34')}, "
        f"{computed(sizes['4'][0])} and {computed(sizes['4'][1])} at {given(4)}, {computed(sizes['8'][0])} and {computed(sizes['8'][1])} at {given(8)},"
    )
    kinds = [len(shipped_at(epsilon).positions) for epsilon in grid()]
    yield f"have {computed(min(kinds))} to {computed(max(kinds))} outputs,"
