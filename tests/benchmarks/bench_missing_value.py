# ruff: noqa: T201 - a script that prints a table
"""What the time of a draw shows of a value: `python tests/benchmarks/bench_missing_value.py [draws]`.

For each kind of value: the value at the lower bound, at the upper one, one with many binary digits, and none at all, in
an order drawn at random for each turn. Medians of `draws` draws each (100 000), in nanoseconds of wall time, as an
observer on the device would measure them: of `draw`, which has the randomness, and of `read`, which comes before. Exit
code 1 if a missing value makes `draw` slower or faster than `MOST_NANOSECONDS` for each number that is asked for,
beside the value at the bound.
"""

import gc
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from hush import Task
from hush_client.privacy.decision import Decision
from hush_client.privacy.draw import draw
from hush_common.rng import SystemRng
from hush_common.task import make_task

__all__ = ["main"]

MOST_NANOSECONDS = 200
"""For each number that is asked for, at the median."""

KEYS = ("lower", "upper", "digits", "none")
NUMBER = {"kind": "number", "lower": 120.0, "upper": 220.0}
LABELS = [f"way {place}" for place in range(16)]
VECTOR = {"kind": "vector", "coordinates": [{**NUMBER, "kind": None, "name": name} for name in "abcd"]}
SUBJECTS: Mapping[str, tuple[str, Mapping[str, Any], tuple[object, object, object]]] = {
    "laplace": ("laplace", NUMBER, (120.0, 220.0, 150.1)),
    "multilevel": ("multilevel", NUMBER, (120.0, 220.0, 150.1)),
    "table": ("auto", NUMBER, (120.0, 220.0, 150.1)),
    "bit": ("auto", {"kind": "bit"}, (False, True, True)),
    "16 labels": ("auto", {"kind": "category", "labels": LABELS}, (LABELS[0], LABELS[-1], LABELS[7])),
    "vector of 4": ("auto", VECTOR, ([120.0] * 4, [220.0] * 4, [150.1] * 4)),
}


def task_of(mechanism: str, domain: Mapping[str, Any]) -> Task:
    """A task with one question."""
    parts = domain.get("coordinates")
    if parts is not None:
        domain = {
            **domain,
            "coordinates": [{key: one for key, one in part.items() if one is not None} for part in parts],
        }
    return make_task({"id": "t", "epsilon": "1", "mechanism": mechanism, "domain": dict(domain)})


def shuffled(works: Mapping[str, Callable[[], object]], turns: int) -> dict[str, float]:
    """The median time of each, in nanoseconds: each has as many turns, in a random order."""
    found: dict[str, list[int]] = {name: [] for name in works}
    order, source = list(works), random.Random(1)  # noqa: S311 - an order, nothing secret
    clock = time.perf_counter_ns
    gc.collect()
    gc.disable()
    for _ in range(turns):
        source.shuffle(order)
        for name in order:
            work = works[name]
            began = clock()
            work()
            found[name].append(clock() - began)
    gc.enable()
    return {name: statistics.median(times) for name, times in found.items()}


def main(turns: int) -> int:
    """Print the differences; 1 if a missing value shows in the time of a draw."""
    print("nanoseconds   " + "".join(f"{work:>10}{'upper':>8}{'digits':>8}{'none':>8}" for work in ("draw", "read")))
    slow, rng = False, SystemRng()
    for name, (mechanism, domain, ends) in SUBJECTS.items():
        task = task_of(mechanism, domain)
        values = dict(zip(KEYS, (*ends, None), strict=True))
        decision = Decision(task, 0, 0, task.epsilon, repeats=False, memory=None, not_before=0, delay=0)
        drawn = shuffled(
            {key: partial(draw, decision, task.domain.read(value), rng) for key, value in values.items()}, turns
        )
        read = shuffled({key: partial(task.domain.read, value) for key, value in values.items()}, turns)
        cells = [
            f"{found['lower']:10.0f}" + "".join(f"{found[key] - found['lower']:8.0f}" for key in KEYS[1:])
            for found in (drawn, read)
        ]
        print(f"{name:14}{''.join(cells)}")
        slow |= abs(drawn["none"] - drawn["lower"]) > MOST_NANOSECONDS * len(task.domain.sizes)
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000))
