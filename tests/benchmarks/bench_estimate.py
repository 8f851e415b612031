# ruff: noqa: T201 - a script that prints a table
"""How long an estimate with all its intervals takes: `python tests/benchmarks/bench_estimate.py [words of a name]`.

Medians in milliseconds of processor time (so that what else the machine does is not counted), for tallies of n reports
whose counts are drawn once from the law of the mechanism.

- first: nothing is remembered, as in a process that has never seen the task: every `lru_cache` of the estimators is
  emptied, and the task is made anew.
- cold: every `lru_cache` of the estimators is emptied, except what belongs to the task (the channels of its mechanisms
  and how they smooth one another) or to no task (tables of the correction for lattices).
- warm: the identical call again.

The limit is for the cold one: 5 ms, and 20 ms for 1024 categories. Every task knows how many are enrolled, so that no
interval is left out. On a busy machine, whose caches are shared, some do not keep it: vectors at epsilon 50 by up to
35 %, vectors under four epsilons at n = 1000 and 10^4 by 40 to 110 %, 64 categories by up to 50 % (at epsilon 50 from
n = 10^4 on by 120 %), and 1024 categories at n = 10^6 and under offers by up to 35 %.
"""

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np

from hush import Task
from hush_aggregator.estimate import estimate
from hush_aggregator.estimate.finite_channel import FiniteChannel, finite
from hush_aggregator.estimate.mechanisms import fold
from hush_aggregator.estimate.tally import Tally
from hush_common.mechanisms import (
    Channel,
    Laplace,
    Mechanism,
    Multilevel,
    Offers,
    RandomizedResponse,
    SubsetSelection,
    Vector,
)
from hush_common.task import make_task

__all__ = ["main"]

SIZES = (10, 100, 1000, 10_001, 10**6)
CONFIDENCE = 0.95
_RUNS = 15
_DRAWN = 10**6
_ENROLLED = 10**10
_SECONDS = 0.5
_NUMBER = {"kind": "number", "lower": 0.0, "upper": 100.0}


def _limit(name: str) -> float:
    return 20.0 if "of 1024" in name else 5.0


def _category(k: int) -> dict[str, Any]:
    return {"kind": "category", "labels": [f"label {c}" for c in range(k)]}


def _vector(d: int) -> dict[str, Any]:
    return {"kind": "vector", "coordinates": [{"name": f"x{c}", "lower": 0.0, "upper": 1.0} for c in range(d)]}


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """Name, and the fields of a task file."""
    for epsilon in ("0.000001", "0.5", "1", "4", "50"):
        yield f"laplace, epsilon {epsilon}", {"epsilon": epsilon, "domain": _NUMBER}
    for epsilon in ("0.5", "1", "4", "50"):
        yield f"randomized_response, epsilon {epsilon}", {"epsilon": epsilon, "domain": {"kind": "bit"}}
    for epsilon in ("1", "2", "4", "8", "50"):
        yield f"multilevel, epsilon {epsilon}", {"epsilon": epsilon, "domain": _NUMBER, "mechanism": "multilevel"}
    for epsilon in ("1", "2", "4", "6", "8"):
        yield f"table, epsilon {epsilon}", {"epsilon": epsilon, "domain": _NUMBER, "mechanism": "auto"}
    for k, epsilon in product((2, 5, 64, 1024), ("1", "4", "50")):
        yield f"subset_selection of {k}, epsilon {epsilon}", {"epsilon": epsilon, "domain": _category(k)}
    for d, epsilon in product((2, 8), ("1", "4", "8", "50")):
        yield f"vector of {d}, epsilon {epsilon}", {"epsilon": epsilon, "domain": _vector(d)}
    both = {"epsilon": "2", "offers": ["0.5", "2"]}
    yield "laplace, two epsilons", both | {"domain": _NUMBER}
    four = {"epsilon": "50", "offers": ["0.01", "0.5", "4", "50"]}
    yield "laplace, four epsilons", four | {"domain": _NUMBER}
    yield "randomized_response, two epsilons", both | {"domain": {"kind": "bit"}}
    yield "subset_selection of 5, two epsilons", both | {"domain": _category(5)}
    four = {"epsilon": "4", "offers": ["1", "2", "3", "4"]}
    yield "randomized_response, four epsilons", four | {"domain": {"kind": "bit"}}
    yield "multilevel, four epsilons", four | {"domain": _NUMBER, "mechanism": "multilevel"}
    for k in (64, 1024):
        yield f"subset_selection of {k}, four epsilons", four | {"domain": _category(k)}
    yield "vector of 8, four epsilons", four | {"domain": _vector(8)}


def tally_of(randomizer: Mechanism | Offers, n: int, rng: np.random.Generator) -> Tally:
    """A tally of n reports from devices that all hold a value in the middle (categories: spread unevenly)."""
    match randomizer:
        case Offers(parts=parts):
            sizes = [n // len(parts)] * (len(parts) - 1)
            shares = [tally_of(part, size, rng) for part, size in zip(parts, (*sizes, n - sum(sizes)), strict=True)]
            return Tally(n, tuple(number for share in shares for number in (share.n, *share.moments)))
        case Laplace(steps=steps):
            noise = rng.laplace(0, float(randomizer.scale), min(n, _DRAWN))
            once = fold(randomizer, np.rint(steps / 2 + noise).astype(np.int64)[:, None])
            more = max(n // _DRAWN, 1)  # the same reports again: the arithmetic is that of n
            return Tally(once.n * more, tuple(number * more for number in once.moments))
        case RandomizedResponse():
            return Tally(n, (int(rng.binomial(n, sum(map(float, randomizer.probability_of_one)) / 2)),))
        case Multilevel() | Channel():
            return Tally(n, tuple(_counts(randomizer, n, rng)))
        case SubsetSelection():
            return Tally(n, tuple(_named(randomizer, n, rng)))
    assert isinstance(randomizer, Vector)
    d, s = randomizer.coordinates, randomizer.sampled
    drawn = np.full(d, n) if s == d else np.bincount(rng.integers(d, size=n * s), minlength=d)
    return Tally(n, tuple(count for size in drawn for count in _counts(randomizer.part, int(size), rng)))


def _counts(mechanism: Multilevel | Channel, n: int, rng: np.random.Generator) -> list[int]:
    law = [float(mechanism.probability((y,), mechanism.steps // 2)) for y in range(len(finite(mechanism).positions))]
    return [int(count) for count in rng.multinomial(n, np.array(law) / sum(law))]


def _named(mechanism: SubsetSelection, n: int, rng: np.random.Generator) -> list[int]:
    """Counts near their means, in sum n·size as they must be."""
    q, p = map(float, mechanism.support)
    share = 1 / np.arange(1, mechanism.categories + 1)
    counts = rng.binomial(n, q + share / share.sum() * (p - q))
    while lack := n * mechanism.size - int(counts.sum()):
        free = np.flatnonzero(counts < n) if lack > 0 else np.flatnonzero(counts)
        counts[rng.choice(free, min(abs(lack), len(free)), replace=False)] += 1 if lack > 0 else -1
    return [int(count) for count in counts]


def _caches() -> list[tuple[str, Callable[[], None]]]:
    """What empties each `lru_cache` of the estimators, by name."""
    modules = [module for name, module in sys.modules.items() if name.startswith("hush_aggregator.estimate.")]
    found = [(name, value) for module in modules for name, value in vars(module).items()]
    found += vars(FiniteChannel).items()
    return [(name, value.cache_clear) for name, value in found if hasattr(value, "cache_clear")]


_OF_THE_TASK = {"finite", "mixture_exponents", "_resonance", "_sawtooth", "_missing_anywhere"}


def forget(*, everything: bool) -> None:
    """Empty the caches; those of the task too, if everything is to be forgotten."""
    for name, clear in _caches():
        if everything or name not in _OF_THE_TASK:
            clear()


def median(prepare: Callable[[], Task], tally: Tally) -> float:
    """Milliseconds of one estimate, at the median; `prepare` is not counted."""
    times: list[float] = []
    began = time.perf_counter()
    while len(times) < 3 or (len(times) < _RUNS and time.perf_counter() - began < _SECONDS):
        asked = prepare()
        start = time.process_time_ns()
        estimate(asked, tally, CONFIDENCE)
        times.append((time.process_time_ns() - start) / 1e6)
    return statistics.median(times)


def measure(fields: dict[str, Any], n: int) -> tuple[float, float, float]:
    """Milliseconds: first, cold and warm."""
    fields = {"id": "t", "enrolled": _ENROLLED, **fields}
    asked = make_task(fields)
    tally = tally_of(asked.randomizer, n, np.random.default_rng(n))

    def anew() -> Task:
        forget(everything=True)
        return make_task(fields)

    def cold() -> Task:
        forget(everything=False)
        return asked

    first = median(anew, tally)
    estimate(asked, tally, CONFIDENCE)
    return first, median(cold, tally), median(lambda: asked, tally)


def main(words: list[str]) -> int:
    """Print the medians; 1 if a cold one is above what is promised."""
    slow = 0
    print(f"{'milliseconds, median':42}{'n':>11}{'first':>9}{'cold':>9}{'warm':>9}{'limit':>7}")
    for name, fields in cases():
        if not all(word in name for word in words):
            continue
        for n in (*SIZES, 10**9) if name.startswith("laplace") else SIZES:
            first, cold, warm = measure(fields, n)
            slow += cold > _limit(name)
            mark = "  slow" if cold > _limit(name) else ""
            print(f"{name:42}{n:11}{first:9.2f}{cold:9.2f}{warm:9.2f}{_limit(name):7.0f}{mark}", flush=True)
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
