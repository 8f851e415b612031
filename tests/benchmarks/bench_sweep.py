# ruff: noqa: T201 - a script that prints a table
"""How long a sweep takes: `python tests/benchmarks/bench_sweep.py [workers]`, 2 if left out.

16 epsilons, 6 sizes up to 10^6 devices, 4 mechanisms (three for a number, one for yes or no), 200 trials of each: 384
cells, 76 800 estimates by the aggregator's own code, each with all its intervals. The second figure is processor time,
of all processes: what the sweep would take on so many idle cores, whatever else the machine does.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

import hush

EPSILONS = (0.33, 0.5, 0.7, 1, 1.4, 2, 2.5, 3, 3.5, 4, 4.5, 5, 5.5, 6, 7, 8)
SIZES = (100, 1_000, 10_000, 100_000, 300_000, 1_000_000)
NUMBERS = {"task.mechanism": ("laplace", "multilevel", "table"), "population.clients": SIZES, "task.epsilon": EPSILONS}
SHARES = {"population.clients": SIZES, "task.epsilon": EPSILONS}


def main(workers: int) -> None:
    began, cells = time.perf_counter(), 0
    with tempfile.TemporaryDirectory() as folder:
        for name, grid in (("heights", NUMBERS), ("survey", SHARES)):
            cells += hush.sweep(grid, scenario=name, out=Path(folder) / name, trials=200, seed=1, workers=workers).cells
    elapsed, spent = time.perf_counter() - began, os.times()
    used = spent.user + spent.system + spent.children_user + spent.children_system
    print(f"{cells} cells of 200 trials with {workers} workers: {elapsed:.1f} s")
    print(f"processor time: {used:.1f} s, on {workers} cores {used / workers:.1f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
