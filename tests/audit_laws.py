"""Reports for an audit, drawn at once by numpy from the laws of the mechanisms: far faster than by a device."""

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hush_common.epsilon import decimal_text
from hush_common.rng import SystemRng
from hush_common.task import make_task
from hush_simulations.auditing.audit import ReportView, mechanism_subject

__all__ = ["LAWS", "at_once", "larger", "leaky"]

LAWS = ("laplace", "multilevel", "randomized_response", "subset_selection", "vector")


def larger(epsilon: str) -> str:
    """A fifth more."""
    return decimal_text(Fraction(epsilon) * 6 / 5)


Drawn = tuple[NDArray[np.int64], NDArray[np.int64], Sequence[object], list[ReportView]]
"""What `audit_coded` takes: coins, codes of the reports, their kinds, and the views."""


def at_once(name: str, epsilon: str, samples: int, seed: int) -> Drawn:
    """`samples` reports of each extreme value, on average, by the law of a mechanism."""
    rng = np.random.default_rng([seed, round(1000 * float(epsilon))])
    sides = rng.integers(0, 2, 2 * samples)
    if name == "laplace":
        noise = rng.exponential(size=2 * samples) - rng.exponential(size=2 * samples)
        reports = (sides + noise / float(epsilon)).tolist()
        return sides, np.arange(2 * samples), reports, [ReportView("the report", float)]
    subject = mechanism_subject(name, Fraction(epsilon), 8, 4, SystemRng())
    outputs, laws = law_of(name, epsilon)
    drawn = np.where(sides == 1, *(rng.choice(len(outputs), 2 * samples, p=laws[side]) for side in (1, 0)))
    return sides, drawn, outputs, subject.views([])


def leaky(epsilon: str, share: float, samples: int, seed: int) -> Drawn:
    """`samples` reports of each bit by randomized response, of which a `share` is the bit itself under another name."""
    rng = np.random.default_rng([seed, round(1000 * float(epsilon)), round(1e6 * share)])
    sides = rng.integers(0, 2, 2 * samples)
    is_true = rng.random(2 * samples) < 1 / (1 + math.exp(-float(epsilon)))
    answers = np.where(is_true, sides, 1 - sides)
    drawn = np.where(rng.random(2 * samples) < share, 2 + sides, answers)
    return sides, drawn, ["no", "yes", "it is no", "it is yes"], [ReportView("the report", str)]


@lru_cache
def law_of(name: str, epsilon: str) -> tuple[list[tuple[int, ...]], list[list[float]]]:
    """Every body, and its probability under either extreme value."""
    domain = {
        "multilevel": {"kind": "number", "lower": 0, "upper": 1},
        "randomized_response": {"kind": "bit"},
        "subset_selection": {"kind": "category", "labels": list("abcdefgh")},
        "vector": {"kind": "vector", "coordinates": [{"name": n, "lower": 0, "upper": 1} for n in "abcd"]},
    }[name]
    task = make_task({"id": "t", "epsilon": epsilon, "mechanism": name, "domain": domain})
    last: object = {"multilevel": 1, "randomized_response": 1, "subset_selection": "h", "vector": [1] * 4}[name]
    first: object = {"multilevel": 0, "randomized_response": 0, "subset_selection": "a", "vector": [0] * 4}[name]
    outputs = list(task.randomizer.outputs())
    chances = [
        [float(task.randomizer.probability(body, task.domain.index(value).index)) for body in outputs]
        for value in (first, last)
    ]
    return outputs, [[chance / math.fsum(row) for chance in row] for row in chances]
