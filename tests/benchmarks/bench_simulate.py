"""Whole runs of `hush simulate`, start-up included: python tests/benchmarks/bench_simulate.py [runs].

Prints the wall time of each command (minimum, median, maximum) and what became of the reports of its last run.
"""

import json
import statistics
import subprocess
import sys
import time

__all__: list[str] = []

_COMMANDS = [
    ["heights", "--clients", "500"],
    ["survey", "--clients", "500"],
    ["heights", "--clients", "5000", "--broker", "mosquitto"],
]


def main(runs: int) -> None:
    for options in _COMMANDS:
        seconds = []
        for _ in range(runs):
            began = time.perf_counter()
            run = subprocess.run(
                [sys.executable, "-m", "hush", "simulate", *options, "--json"], capture_output=True, check=True
            )
            seconds.append(time.perf_counter() - began)
        found = json.loads(run.stdout)
        spread = f"{min(seconds):.2f} / {statistics.median(seconds):.2f} / {max(seconds):.2f} s"
        counts = f"{found['result']['n']} accepted, {found['lost']} lost, refused {found['result']['refused']}"
        print(f"hush simulate {' '.join(options):<42} {spread}   {counts}")  # noqa: T201 - a report to a person


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
