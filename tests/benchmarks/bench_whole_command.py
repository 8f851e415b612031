# ruff: noqa: T201 - a script that prints a table
"""The whole of `hush simulate` next to numpy alone: python tests/benchmarks/bench_whole_command.py [millions] [rounds].

10 million numbers of the scenario heights, device by device, each program as a process of its own, its start included;
in turns, by processor time (user and system) of the process. The two that draw with numpy alone are this file again,
with the name of the one as its argument. Both draw the values of the same mixture, round each to its index on the grid
of 2^20 steps, add discrete Laplace noise as a difference of two geometric numbers, and print the mean:

- `plain`, as one writes it: whole arrays, `Generator.normal`, `Generator.geometric`;
- `blocks`, by hand: 2^14 numbers at a time, which stay in the caches, and floors of exponential numbers.

hush adds to it the squares, 24 winsorised sums, the clamp, the truth, and the estimate with its intervals. Then, in
bulk as it chooses by itself, 10^8 and 10^9 devices, and `hush feasible` with a million rows of CSV.
"""

import csv
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

STEPS, EPSILON, LOWER, RANGE = 1 << 20, 1.0, 120.0, 100.0
SCALE = STEPS / EPSILON
BLOCK = 1 << 14


def plain(devices: int) -> None:
    rng = np.random.default_rng(1)
    first = rng.random(devices) < 0.5
    values = rng.normal(np.where(first, 178.0, 162.0), np.where(first, 7.0, 6.5))
    indices = np.clip(np.rint((values - LOWER) * (STEPS / RANGE)), 0, STEPS).astype(np.int64)
    stops = -np.expm1(-1 / SCALE)
    reports = indices + rng.geometric(stops, devices) - rng.geometric(stops, devices)
    print(LOWER + reports.mean() * RANGE / STEPS, values.mean())


def blocks(devices: int) -> None:
    rng, total = np.random.Generator(np.random.SFC64(1)), 0
    for start in range(0, devices, BLOCK):
        count = min(BLOCK, devices - start)
        first = rng.random(count) < 0.5
        values = rng.standard_normal(count) * np.where(first, 7.0, 6.5) + np.where(first, 178.0, 162.0)
        indices = np.clip(np.rint((values - LOWER) * (STEPS / RANGE)), 0, STEPS)
        noise = np.floor(SCALE * rng.standard_exponential(count)) - np.floor(SCALE * rng.standard_exponential(count))
        total += int((indices + noise).sum())
    print(LOWER + total / devices * RANGE / STEPS)


def spent(command: list[str]) -> float:
    """Seconds of processor time of a process, from its start to its end."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def rows(file: Path) -> None:
    rng = np.random.default_rng(1)
    with file.open("w", newline="", encoding="utf-8") as out:
        csv.writer(out).writerows([["height"], *([f"{value:.2f}"] for value in rng.normal(170, 10, 10**6))])


def main(devices: int, rounds: int) -> None:
    me, hush = [sys.executable, __file__], [sys.executable, "-m", "hush"]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "heights.csv"
        rows(file)
        asked = ["--seed", "1", "--json"]
        commands = {
            "numpy, plain": [*me, "plain", str(devices)],
            "numpy, in blocks": [*me, "blocks", str(devices)],
            "hush simulate --draw devices": [
                *hush, "simulate", "heights", "--clients", str(devices), "--draw", "devices", *asked
            ],
            "hush simulate --help": [*hush, "simulate", "--help"],
            "10^8 devices": [*hush, "simulate", "heights", "--clients", str(10**8), *asked],
            "10^9 devices": [*hush, "simulate", "heights", "--clients", str(10**9), *asked],
            "hush feasible, 10^6 rows": [
                *hush, "feasible", str(file), "--column", "height", "--lower", "120", "--upper", "220"
            ],
        }  # fmt: skip
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(rounds):
            for name, command in commands.items():
                times[name].append(spent(command))
                print(f"{name}: {times[name][-1]:.2f}", file=sys.stderr, flush=True)
    for name, found in times.items():
        print(f"{name}: {statistics.median(found):.2f} s of processor time, {min(found):.2f} at least")
    ours = times["hush simulate --draw devices"]
    for name in ("numpy, plain", "numpy, in blocks"):
        ratios = [one / other for one, other in zip(times[name], ours, strict=True)]
        print(f"{name} / hush: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    if sys.argv[1:2] in (["plain"], ["blocks"]):
        {"plain": plain, "blocks": blocks}[sys.argv[1]](int(sys.argv[2]))
    else:
        main(int(sys.argv[1]) * 10**6 if len(sys.argv) > 1 else 10**7, int(sys.argv[2]) if len(sys.argv) > 2 else 5)
