"""How often an audit catches an epsilon that is a fifth too large, or a rare leak, and accuses the honest.

    .venv/bin/python tests/benchmarks/bench_audit.py [SEEDS] [EPSILON ...]

Each line is a figure of the table in docs/statistics.md. A whole run (a hundred seeds, every epsilon, a quarter of an
hour) writes them to tests/tools/audits.json, from which `tests/tools/figures.py` makes that table.
"""
# ruff: noqa: T201 - printing is its job

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from audit_laws import LAWS, at_once, larger, leaky

from hush_simulations.auditing.audit import audit_coded, default_samples

CONFIDENCE = 0.99
SEEDS = 100
EPSILONS = ("0.1", "0.5", "1", "2", "4", "8")
LEAKING = ("1", "2", "4")
LEAKS = (0.0, 1e-4, 3e-4, 1e-3, 3e-3)
"""Shares of the reports that are the value itself."""
FOUND = Path(__file__).resolve().parents[1] / "tools" / "audits.json"


def leaks(seeds: int, epsilon: str) -> list[int]:
    """How many audits find each of the leaks."""
    size, true = default_samples(float(epsilon)), float(epsilon)
    found = [
        sum(audit_coded(*leaky(epsilon, share, size, seed), CONFIDENCE).bound > true for seed in range(seeds))
        for share in LEAKS
    ]
    print(f"leaks of {LEAKS} at {epsilon}, {size} of each, {seeds} seeds: caught {found}", flush=True)
    return found


def main(seeds: int, epsilons: list[str]) -> None:
    found: dict[str, dict[str, list[int]]] = {}
    leaked = {epsilon: leaks(seeds, epsilon) for epsilon in epsilons if epsilon in LEAKING}
    for epsilon in epsilons:
        samples, true = default_samples(float(epsilon)), float(epsilon)
        for name in LAWS:
            caught, accused = (
                sum(audit_coded(*at_once(name, law, samples, seed), CONFIDENCE).bound > true for seed in range(seeds))
                for law in (larger(epsilon), epsilon)
            )
            found.setdefault(name, {})[epsilon] = [caught, accused]
            print(
                f"{name} at {epsilon}, {samples} of each, {seeds} seeds: caught {caught}, accused {accused}", flush=True
            )
    if seeds == SEEDS and tuple(epsilons) == EPSILONS:
        known = {"seeds": seeds, "confidence": CONFIDENCE, "audits": found, "shares": LEAKS, "leaks": leaked}
        FOUND.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else SEEDS, sys.argv[2:] or list(EPSILONS))
