"""How many plans are kept: python tests/tools/simulate_plans.py [runs] [word of the case …].

For each plan the share of samples whose error bar is at most 1.02 times (and, in brackets, once) the error asked for,
at the planned number of people and at nine tenths of it, for the worst people and the least of other populations.
"""

import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from planned import POPULATIONS, half_widths, kept, levels

from hush_common.domain import BitDomain, CategoryDomain, Coordinate, Domain, NumberDomain, VectorDomain
from hush_simulations.planning.plan import TARGETS, MechanismCost, offered, people_for, worst_shares

__all__: list[str] = []

_SEED = 5
_OTHERS = 10  # as many runs of each other population: so many-th part

_DOMAINS: tuple[Domain, ...] = (
    NumberDomain(0.0, 1.0),
    BitDomain(),
    CategoryDomain(tuple(map(str, range(4)))),
    CategoryDomain(tuple(map(str, range(64)))),
    VectorDomain(tuple(Coordinate(0.0, 1.0, name=str(place)) for place in range(8))),
)


def cases() -> Iterator[tuple[str, MechanismCost, float, float]]:
    """Name, line, error and confidence of each plan."""
    for epsilon in ("1", "2", "4", "8"):
        for confidence, error in ((0.95, 0.05), (0.95, 0.1), (0.9, 0.05), (0.99, 0.05), (0.999, 0.05), (0.95, 0.02)):
            for domain in _DOMAINS:
                for name, family in offered(domain).items():
                    line = family(Fraction(epsilon))
                    if line is not None:
                        of = f" of {len(domain.labels)}" if isinstance(domain, CategoryDomain) else ""
                        yield (
                            f"{name}{of} epsilon={epsilon} error={error} confidence={confidence}",
                            line,
                            error,
                            confidence,
                        )


def main(runs: int, words: list[str]) -> None:
    for name, line, error, confidence in cases():
        if not all(word in name for word in words) or line.task is None:
            continue
        for target in TARGETS:
            n = people_for(line, target, error, confidence)
            if n is None:
                continue
            worst = worst_shares(line.task)
            at = half_widths(line.task, n, confidence, worst, runs=runs, seed=_SEED)[target]
            less = half_widths(line.task, max(int(0.9 * n), 1), confidence, worst, runs=runs // _OTHERS, seed=_SEED)[
                target
            ]
            others = {
                label: kept(
                    half_widths(line.task, n, confidence, make(levels(line.task)), runs=runs // _OTHERS, seed=_SEED)[
                        target
                    ],
                    error,
                )
                for label, make in POPULATIONS.items()
            }
            least = min(others, key=others.__getitem__)
            print(
                f"{name} {target:<10} n={n:<6} {kept(at, error):.4f} ({kept(at, error, 1):.4f})  "
                f"at 0.9 n {kept(less, error):.3f} ({kept(less, error, 1):.3f})  least {others[least]:.3f} {least}",
                flush=True,
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000, sys.argv[2:])
