# ruff: noqa: T201 - a script that prints a table
"""How fast the bulk engine draws: `python tests/benchmarks/bench_bulk.py [millions of devices]`, 100 if left out.

Laplace noise, device by device, beside numpy alone drawing the same: values of the same mixture, noise of the same law,
the index of each value, and the sum. Both in pieces of the size that suits them, in turns; the ratio is that of the
medians of processor time, so that what else the machine does counts little. hush adds to it the squares, the 24
winsorised sums, the clamp and the truth. Then the same with two workers, and the law of the tally for 10^9 devices of
each finite mechanism.
"""

import resource
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np

import hush
from hush_common.mechanisms import Laplace
from hush_simulations.engines.bulk.devices import draw_devices
from hush_simulations.engines.bulk.engine import simulate_now
from hush_simulations.engines.experiment import bulk_experiment

SCENARIO = hush.SCENARIOS["heights"]
TASK = SCENARIO.task()
TURNS = 5
PIECE = 1 << 14
FINITE = (("survey", None), ("commute", None), ("heights", "multilevel"), ("heights", "table"), ("offices", None))


def bare(devices: int) -> int:
    """What numpy needs for the sum of the reports of heights, and nothing else."""
    rng, mechanism = np.random.default_rng(1), TASK.randomizer
    assert isinstance(mechanism, Laplace)
    scale, steps, total = float(mechanism.scale), mechanism.steps, 0
    for start in range(0, devices, PIECE):
        count = min(PIECE, devices - start)
        group = rng.random(count) < 0.5
        values = rng.standard_normal(count) * np.where(group, 7.0, 6.5) + np.where(group, 178.0, 162.0)
        indices = np.clip(np.rint((values - 120.0) * (steps / 100.0)), 0, steps)
        noise = np.floor(scale * rng.standard_exponential(count)) - np.floor(scale * rng.standard_exponential(count))
        total += int((indices + noise).sum())
    return total


def hushed(devices: int, workers: int) -> None:
    draw_devices(TASK, SCENARIO.population, devices, (), 1, workers=workers)


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """How long it takes: in all, and of processor time."""
    began, spent = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - began, time.process_time() - spent


def middle_of(work: Callable[[], object]) -> tuple[float, float]:
    """Medians of some turns."""
    walls, spent = zip(*(seconds(work) for _ in range(TURNS)), strict=True)
    return statistics.median(walls), statistics.median(spent)


def main(millions: int) -> None:
    devices = millions * 1_000_000 // TURNS
    works: dict[str, Callable[[], object]] = {
        "numpy": partial(bare, devices),
        "one worker": partial(hushed, devices, 1),
        "two workers": partial(hushed, devices, 2),
    }
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
    for _ in range(TURNS):
        for name, work in works.items():
            times[name].append(seconds(work))
    wall = {name: statistics.median(one[0] for one in found) for name, found in times.items()}
    spent = {name: statistics.median(one[1] for one in found) for name, found in times.items()}
    for name in works:
        rates = [f"{devices / middle[name] / 1e6:.1f}" for middle in (wall, spent)]
        print(f"{name}: {rates[0]} million devices a second, {rates[1]} in a second of processor time")
    print(f"rate beside numpy, by processor time: {spent['numpy'] / spent['one worker']:.2f}")
    print(f"two workers beside one, in all: {wall['one worker'] / wall['two workers']:.2f}")
    print(f"memory at most: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")
    for name, mechanism in FINITE:
        experiment = bulk_experiment(
            hush.SCENARIOS[name].asking(mechanism=mechanism).of_size(10**9), (), 1, confidence=0.95
        )
        elapsed, used = middle_of(partial(simulate_now, experiment))
        print(f"10^9 devices of {experiment.task.mechanism}: {used:.2f} s of processor time, {elapsed:.2f} s in all")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
