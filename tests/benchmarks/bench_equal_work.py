# ruff: noqa: T201 - a script that prints a table
"""A million randomized responses perturbed and estimated: `python tests/benchmarks/bench_equal_work.py [turns]`.

The same answers to the same question at epsilon 1 by the bulk engine of hush, by numpy alone, by pure-ldp and by
multi-freq-ldpy (`--group bench`): from an array of values to an estimate of the share of ones, each in turns, medians
of processor time. The engine works in blocks, as it does in a simulation; its estimate comes with all its intervals.
The others answer person by person, as they are written to; multi-freq-ldpy compiles that with numba before it counts.
Then the error of each: the root of the mean square, over as many repetitions, of estimates from fewer people.
"""

import importlib
import math
import sys
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray
from turns import in_turns, medians

from hush_aggregator.estimate import estimate
from hush_aggregator.estimate.mechanisms import fold
from hush_aggregator.estimate.tally import Tally
from hush_common.mechanisms import RandomizedResponse
from hush_common.task import make_task
from hush_simulations.engines.bulk.laws import law_of

__all__ = ["main"]

PEOPLE, FEW, REPETITIONS = 1_000_000, 20_000, 40
SHARE, EPSILON = 0.3, 1.0
BLOCK = 1 << 16
TASK = make_task({"id": "survey", "epsilon": "1", "domain": {"kind": "bit"}})
RNG = np.random.default_rng(1)

Way = Callable[[NDArray[np.int64]], float]


def hush(values: NDArray[np.int64]) -> float:
    mechanism = TASK.randomizer
    assert isinstance(mechanism, RandomizedResponse)
    law = law_of(mechanism)
    blocks = (values[start : start + BLOCK] for start in range(0, len(values), BLOCK))
    tally = reduce(Tally.merge, (fold(mechanism, law.bodies(mechanism, block, RNG)) for block in blocks))
    mean = estimate(TASK, tally, 0.95).mean
    assert mean is not None
    return mean


def numpy_alone(values: NDArray[np.int64]) -> float:
    p = math.e**EPSILON / (1 + math.e**EPSILON)
    reports = np.where(RNG.random(len(values)) < p, values, 1 - values)
    return float((reports.mean() - (1 - p)) / (2 * p - 1))


def pure_ldp() -> Way | None:
    try:
        encoding: Any = importlib.import_module("pure_ldp.frequency_oracles.direct_encoding")
    except ImportError:
        return None

    def estimated(values: NDArray[np.int64]) -> float:
        client = encoding.DEClient(epsilon=EPSILON, d=2, index_mapper=int)
        server = encoding.DEServer(epsilon=EPSILON, d=2, index_mapper=int)
        for value in values.tolist():
            server.aggregate(client.privatise(value))
        return float(server.estimate(1, suppress_warnings=True)) / len(values)

    return estimated


def multi_freq_ldpy() -> Way | None:
    try:
        oracle: Any = importlib.import_module("multi_freq_ldpy.pure_frequency_oracles.GRR")
    except ImportError:
        return None

    def estimated(values: NDArray[np.int64]) -> float:
        reports = [oracle.GRR_Client(value, 2, EPSILON) for value in values.tolist()]
        return float(oracle.GRR_Aggregator_MI(reports, 2, EPSILON)[1])

    return estimated


def error(way: Way) -> float:
    """Root of the mean square over the repetitions."""
    values = (np.arange(FEW) < SHARE * FEW).astype(np.int64)
    return math.sqrt(sum((way(values) - SHARE) ** 2 for _ in range(REPETITIONS)) / REPETITIONS)


def main(turns: int) -> None:
    """Print the medians, and the errors."""
    ways: dict[str, Way | None] = {
        "hush": hush,
        "numpy alone": numpy_alone,
        "pure-ldp": pure_ldp(),
        "multi-freq-ldpy": multi_freq_ldpy(),
    }
    there = {name: way for name, way in ways.items() if way is not None}
    values = (RNG.random(PEOPLE) < SHARE).astype(np.int64)
    fast = {name: (lambda way=way: way(values)) for name, way in there.items() if name in ("hush", "numpy alone")}
    slow = {name: (lambda way=way: way(values)) for name, way in there.items() if name not in fast}
    found = medians(in_turns(fast, turns=10 * turns)) | medians(in_turns(slow, turns=turns))
    print(f"{'of ' + str(PEOPLE) + ' people':20}{'milliseconds':>14}{'beside hush':>13}{f'error of {FEW}':>18}")
    for name, way in there.items():
        print(f"{name:20}{1000 * found[name]:14.1f}{found[name] / found['hush']:13.2f}{error(way):18.5f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
