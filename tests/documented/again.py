# ruff: noqa: E501 - sentences of the document
"""Sections 15 and 16: asking again, and auditing."""

import json
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from math import exp, floor, log, sqrt
from pathlib import Path
from typing import Any

from audit_laws import larger
from documented.figures import computed, count, given, on_section
from scipy import stats

from hush_common.domain import GRID_STEPS
from hush_common.epsilon import WEIGHT_OF_TRUTH
from hush_common.mechanisms import Multilevel
from hush_common.mechanisms.multilevel import best_levels, best_sticky_levels
from hush_simulations.auditing import audit
from hush_simulations.auditing.audit import default_samples

AUDITS = Path(__file__).with_name("audits.json")
"""What `tests/benchmarks/bench_audit.py` found."""

TOTALS = ("1", "2", "4")
ROUNDS = (4, 12, 30, 365)


def error(epsilon: Fraction, levels: int, people: int) -> float:
    """Of the mean of one round: rms at the worst value, share of R."""
    return sqrt(Multilevel(epsilon, GRID_STEPS, levels).worst_variance / people)


def shown(number: float) -> str:
    """Three decimals below 1, three digits above."""
    return computed(number, ".3f" if number < 1 else ".2f" if number < 10 else ".1f")


@on_section("14")
def rounds() -> Iterator[str]:
    people = 1000
    lines = []
    for total in map(Fraction, TOTALS):
        pairs = []
        for asked in ROUNDS:
            levels = best_sticky_levels(total, asked)
            fresh = error(total / asked, best_levels(total / asked), people)
            pairs.append(f"{shown(fresh)}, {shown(error(total / (levels + 1), levels, people))}")
        lines.append(f"| {given(total)} | {' | '.join(pairs)} |")
    first, *others = ROUNDS
    yield (
        f"Error of a mean of {given(people)} numbers in *one* round (rms at the worst value, share of R), fresh with the "
        f"best `multilevel`: | ε | T = {given(first)}: fresh, sticky | "
        + " | ".join(f"T = {given(asked)}" for asked in others)
        + " | |---|---|---|---|---| "
        + " ".join(lines)
    )


@on_section("14")
def sticky() -> Iterator[str]:
    low, high = Fraction(5), Fraction(6)
    while high - low > Fraction(1, 1000):
        middle = (low + high) / 2
        low, high = (middle, high) if best_sticky_levels(middle, 100) == 1 else (low, middle)
    yield f"G is chosen when the task is published: {computed(1)} up to ε = {computed(floor(100 * low) / 100, '.2f')} ("
    differ: list[str] = []
    for each, name in ((0.5, "½"), (1.0, "1"), (2.0, "2")):
        truth = exp(each) / (1 + exp(each))
        differ.append(f"{computed(truth**2 + (1 - truth) ** 2, '.2f')} ({'ε/2 = ' if not differ else ''}{given(name)})")
    yield f"and then the report with probability {', '.join(differ)} for G = {given(1)}."
    power = str(WEIGHT_OF_TRUTH.bit_length() - 1).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    yield f"(2{computed(power)}/L)^min(T, G + 1), for constant values 2{computed(power)}/L, with L the weight of a lie."


@on_section("15")
def power() -> Iterator[str]:
    confidence, caught = 0.99, 0.95
    one, half, miss = (float(stats.norm.ppf(p)) for p in (confidence, 1 - (1 - confidence) / 2, caught))
    two_bounds, one_bound = 2 * half + sqrt(2) * miss, sqrt(2) * (one + miss)
    yield (
        f"at small ε they need {computed((two_bounds / one_bound) ** 2, '.1f')} times the reports (for a power of "
        f"{given(100 * caught, '.0f')} % at confidence {given(confidence)})."
    )


@on_section("15")
def sizes() -> Iterator[str]:
    small, large = 0.1, 8.8
    middle = default_samples(2)
    assert default_samples(1) == default_samples(4) == middle
    assert default_samples(small) > middle < default_samples(large)
    square = f"{default_samples(small) * small**2:,.0f}".replace(",", " ")
    yield (
        f"Hence {computed(square)}/ε² where ε is small, {computed(default_samples(large) / exp(large), '.0f')}·e^ε where "
        f"it is large, and {count(middle)} between."
    )


@on_section("15")
def audits() -> Iterator[str]:
    found: dict[str, Any] = json.loads(AUDITS.read_text(encoding="utf-8"))
    epsilons = list(found["audits"]["laplace"])
    names = {"subset_selection": "subset_selection, 8 categories", "vector": "vector, 4 coordinates"}
    head = [f"{given(e)}, {count(default_samples(float(e)))}" for e in epsilons]
    rows = [
        f"| {names.get(name, name)} | " + " | ".join(f"{computed(c)}, {computed(a)}" for c, a in line.values()) + " |"
        for name, line in found["audits"].items()
    ]
    yield (
        f"Of {computed(found['seeds'])} audits each (confidence {computed(found['confidence'])}, fixed seeds, reports drawn by numpy"
    )
    yield f"| ε, reports of each value | {' | '.join(head)} | |---|---|---|---|---|---|---| {' '.join(rows)}"
    more = float(Fraction(larger("1"))) - 1
    yield f"how many detected a mechanism whose ε is {computed(100 * more, '.0f')} % larger than claimed,"
    yield f"which have no version {computed(100 * more, '.0f')} % too large; the one for ε = 2 claimed as 1 is detected."
    accused = {name: sum(a for _, a in line.values()) for name, line in found["audits"].items()}
    honest = {name: found["seeds"] * len(line) for name, line in found["audits"].items()}
    yield (
        f"{computed(sum(accused.values()))} false alarms in {computed(sum(honest.values()))} audits; "
        f"{computed(100 * (1 - found['confidence']), '.0f')} % is what is allowed"
    )
    without = [name for name in accused if name != "randomized_response"]
    yield (
        f"the same draws, counted twice; {computed(sum(accused[name] for name in without))} of "
        f"{computed(sum(honest[name] for name in without))} without.)"
    )
    assert all(low < high for low, high in pairwise(map(float, epsilons)))


@on_section("15")
def leaks() -> Iterator[str]:
    found: dict[str, Any] = json.loads(AUDITS.read_text(encoding="utf-8"))
    shares = " | ".join(given(f"{share:.4f}".rstrip("0").rstrip(".")) for share in found["shares"])
    rows = [
        f"| {given(epsilon)}, {count(default_samples(float(epsilon)))} | {' | '.join(map(computed, caught))} |"
        for epsilon, caught in found["leaks"].items()
    ]
    yield f"Of {computed(found['seeds'])} audits each of randomized response"
    yield f"| ε, reports of each value | {shares} | |---|---|---|---|---|---| {' '.join(rows)}"
    beta = 1 - (1 - found["confidence"]) / 2
    least = -log(1 - beta)
    yield f"no more than about ln(G/{computed(least, '.1f')}):"
    lower = (1 - beta) ** (1 / 30)
    yield f": {given(30)} of them show {computed(log(lower / (1 - lower)), '.2f')}, and"
    yield f"takes {computed(least, '.1f')}·e^ε clear"


@on_section("15")
def rules() -> Iterator[str]:
    yield f"cells that hold at least {computed(audit._ONE_SIDED)} reports of one value"
