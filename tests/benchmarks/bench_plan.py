"""What a person waits for `hush plan`, start-up included: python tests/benchmarks/bench_plan.py [runs].

The promise is a second. The hardest questions are those that no epsilon answers, and many coordinates.
"""

import statistics
import subprocess
import sys
import time

__all__: list[str] = []

_QUESTIONS = [
    ["--people", "1000", "--epsilon", "1"],
    ["--people", "5", "--error", "0.01%"],
    ["--people", "5", "--error", "0.01%", "--domain", "vector", "--coordinates", "64"],
    ["--people", "5", "--error", "0.01%", "--domain", "category", "--categories", "1024"],
    ["--people", "1000", "--epsilon", "50", "--domain", "vector", "--coordinates", "64"],
]


def main(runs: int) -> None:
    for question in _QUESTIONS:
        seconds = []
        for _ in range(runs):
            began = time.perf_counter()
            subprocess.run([sys.executable, "-m", "hush", "plan", *question], capture_output=True, check=True)
            seconds.append(time.perf_counter() - began)
        spread = f"{min(seconds):.2f} / {statistics.median(seconds):.2f} / {max(seconds):.2f} s"
        print(f"hush plan {' '.join(question):<80} {spread}")  # noqa: T201 - a report to a person


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
